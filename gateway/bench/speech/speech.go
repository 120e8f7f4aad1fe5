// Package speech is what callers and models say to each other where it is measured how much of it arrives, and how that is
// told from what was heard.
package speech

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"voxgate/media"
	"voxgate/media/opus"
)

// wav is web/test/speech.wav: 0.9 s of a voice at 16 kHz with hardly a pause in it.
//
//go:embed speech.wav
var wav []byte

// Sampling rates in Hz, of mono PCM with 16 bits.
const (
	MicRate   = 48000 // of a caller's microphone, as a browser's
	EarRate   = 24000 // of the model's voice, and of a caller's ear
	ModelRate = 16000 // of the clip, and of what the model hears
)

const (
	frame     = media.FrameDuration
	wavHeader = 44
)

// Speech is what is said in an impaired call, over and over: the clip at four pitches, so that a piece that comes late is
// not taken for another one.
type Speech struct {
	pcm   []int16 // at ModelRate; a whole number of frames
	clips []int   // at which frame each saying of the clip begins; and the end
	low   []int16 // the same as Opus gives it back at 32 kb/s, which keeps the sound but not each wave
	mic   []int16 // the same at MicRate
	ear   []int16 // the same at EarRate
}

// Recite makes the speech, once for all.
var Recite = sync.OnceValues(func() (*Speech, error) {
	clip := make([]int16, (len(wav)-wavHeader)/2)
	if _, err := binary.Decode(wav[wavHeader:], binary.LittleEndian, clip); err != nil {
		return nil, fmt.Errorf("speech.wav: %w", err)
	}
	s := &Speech{}
	for _, as := range []int{16000, 14500, 17500, 15200} { // read at this rate: two semitones either way
		s.clips = append(s.clips, s.Frames())
		voice, err := media.Resample(clip, as, ModelRate)
		if err != nil {
			return nil, err
		}
		s.pcm = append(s.pcm, voice...)
		const pause = 5 // frames between the words, and what is left of the last one
		whole := FrameSamples(ModelRate)
		s.pcm = append(s.pcm, make([]int16, pause*whole+whole-len(s.pcm)%whole)...)
	}
	s.clips = append(s.clips, s.Frames())
	var err error
	if s.mic, err = media.Resample(s.pcm, ModelRate, MicRate); err != nil {
		return nil, err
	}
	if s.ear, err = media.Resample(s.pcm, ModelRate, EarRate); err != nil {
		return nil, err
	}
	return s, s.code()
})

// NewTalker returns the encoder of a caller that talks as a browser does: VOIP at 32 kb/s, with FEC.
func NewTalker() (*opus.Encoder, error) {
	e, err := opus.NewRobustEncoder(MicRate)
	if err != nil {
		return nil, err
	}
	const expected = 10 // percent of loss: enough for a copy in every packet
	return e, e.Expect(expected)
}

// code makes low.
func (s *Speech) code() error {
	encoder, err := NewTalker()
	if err != nil {
		return err
	}
	decoder, err := opus.NewDecoder(ModelRate, "")
	if err != nil {
		return err
	}
	const delay = 104 // samples: the encoder looks ahead 6.5 ms
	packet, pcm := make([]byte, 1500), make([]int16, ModelRate*120/1000)
	for i := range s.Frames() + 1 {
		n, err := encoder.Encode(s.MicFrame(i), packet)
		if err == nil {
			n, err = decoder.Decode(packet[:n], pcm)
		}
		if err != nil {
			return err
		}
		s.low = append(s.low, pcm[:n]...)
	}
	s.low = s.low[delay:][:len(s.pcm)]
	return nil
}

// FrameSamples returns the samples of 20 ms at a rate.
func FrameSamples(rate int) int { return rate * int(frame) / int(time.Second) }

// Frames returns the length in frames of 20 ms.
func (s *Speech) Frames() int { return len(s.pcm) / FrameSamples(ModelRate) }

// MicFrame returns a frame at MicRate. The speech begins anew when it is over.
func (s *Speech) MicFrame(i int) []int16 {
	n := FrameSamples(MicRate)
	i %= s.Frames()
	return s.mic[i*n : (i+1)*n]
}

// Voice returns the frames of the speech from one to another, which is not in it, at EarRate.
func (s *Speech) Voice(from, to int) []int16 {
	n := FrameSamples(EarRate)
	return s.ear[from*n : to*n]
}

// Clip returns from which frame to which, not in it, saying i of the clip goes. They begin anew when all were said.
func (s *Speech) Clip(i int) (from, to int) {
	i %= len(s.clips) - 1
	return s.clips[i], s.clips[i+1]
}

// Loud tells whether a frame holds more than a codec makes of silence, by the emulator's own measure: -36 dBov.
func Loud(pcm []int16) bool { return media.RMS(pcm) >= 500 }

// Recording is what somebody has heard at ModelRate, with the time at which each piece came. It is a media.Sink.
type Recording struct {
	mu     sync.Mutex
	pieces []Piece
}

// Piece is what came at once.
type Piece struct {
	at  time.Time
	pcm []int16
}

// Rate returns ModelRate.
func (*Recording) Rate() int { return ModelRate }

// WritePCM keeps a piece that comes now.
func (r *Recording) WritePCM(pcm []int16) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pieces = append(r.pieces, Piece{time.Now(), slices.Clone(pcm)})
	return nil
}

// Pieces returns what was heard until now.
func (r *Recording) Pieces() []Piece {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.pieces)
}
