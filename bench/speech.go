package main

import (
	_ "embed"
	"slices"
	"sync"
	"time"

	"voxgate/media"
	"voxgate/media/opus"
)

// Sampling rates in Hz.
const (
	micRate   = 48000 // of a caller's microphone, as a browser's
	voiceRate = 24000 // of the model's voice, and of a caller's loudspeaker
	modelRate = 16000 // of what the model hears
)

// wav is web/test/speech.wav: 0.9 s of a voice at 16 kHz with hardly a pause in it.
//
//go:embed speech.wav
var wav []byte

// reference is what is said over bad networks, again and again: the clip at four pitches, so that a piece that comes late is not
// taken for another one.
type reference struct {
	pcm   []int16 // at modelRate; a whole number of frames
	mic   []int16 // the same at micRate
	voice []int16 // the same at voiceRate
	clips []int   // at which frame each clip begins; and the end
}

// must is for what fails only where this program is wrong: codecs and filters of constant rates.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// speech makes it, once for all.
var speech = sync.OnceValue(func() *reference {
	const header = 44
	clip := media.AppendSamples(nil, wav[header:])
	s, whole := &reference{}, media.Samples(frame, modelRate)
	for _, rate := range []int{16000, 14500, 17500, 15200} { // two semitones either way
		s.clips = append(s.clips, s.frames())
		voice := must(media.Resample(clip, rate, modelRate))
		const pause = 5 // frames, and what is left of the clip's last one
		s.pcm = slices.Concat(s.pcm, voice, make([]int16, (pause+1)*whole-len(voice)%whole))
	}
	s.clips = append(s.clips, s.frames())
	s.mic = must(media.Resample(s.pcm, modelRate, micRate))
	s.voice = must(media.Resample(s.pcm, modelRate, voiceRate))
	return s
})

// frames returns the length in frames of 20 ms.
func (s *reference) frames() int { return len(s.pcm) / media.Samples(frame, modelRate) }

// micFrame returns a frame at micRate. The speech begins anew when it is over.
func (s *reference) micFrame(i int) []int16 {
	n := media.Samples(frame, micRate)
	i %= s.frames()
	return s.mic[i*n : (i+1)*n]
}

// voiced returns the frames from one to another, which is not in it, at voiceRate.
func (s *reference) voiced(from, to int) []int16 {
	n := media.Samples(frame, voiceRate)
	return s.voice[from*n : to*n]
}

// clip returns from which frame to which, not in it, clip i goes. They begin anew when all were said.
func (s *reference) clip(i int) (from, to int) {
	i %= len(s.clips) - 1
	return s.clips[i], s.clips[i+1]
}

// talker encodes what a caller says.
type talker struct {
	*opus.Encoder
	buf []byte
}

// newMicrophone returns the encoder with the least delay, whose look-ahead is 2.5 ms.
func newMicrophone() *talker { return &talker{must(opus.NewEncoder(micRate)), make([]byte, 1500)} }

// newTalker returns the encoder of a caller that talks as a browser does: VOIP at 32 kb/s, with FEC.
func newTalker() *talker {
	e := must(opus.NewRobustEncoder(micRate))
	return must(&talker{e, make([]byte, 1500)}, e.SetExpectedLoss(10)) // percent of loss: enough for FEC in every packet
}

// encode returns the packet of 20 ms at micRate, until the next call.
func (t *talker) encode(pcm []int16) []byte { return t.buf[:must(t.Encode(pcm, t.buf))] }

// listener decodes what somebody hears.
type listener struct {
	media.Decoder
	pcm []int16
}

func newListener(rate int) *listener {
	return &listener{must(opus.NewDecoder(rate, "")), make([]int16, media.Samples(media.MaxPacketDuration, rate))}
}

// decode returns the sound of a packet, until the next call: none if it is empty, as in a pause, or broken.
func (l *listener) decode(packet []byte) []int16 {
	if len(packet) == 0 {
		return nil
	}
	n, err := l.Decode(packet, l.pcm)
	if err != nil {
		return nil
	}
	return l.pcm[:n]
}

// loud reports whether a frame holds more than a codec makes of silence: -36 dBov, as for the emulator.
func loud(pcm []int16) bool { return media.RMS(pcm) >= 500 }

// recording is what somebody has heard at modelRate, with the time at which each piece came. It is a media.Sink.
type recording struct {
	mu     sync.Mutex
	pieces []piece
}

type piece struct {
	at  time.Time
	pcm []int16
}

// Rate returns modelRate.
func (*recording) Rate() int { return modelRate }

// WritePCM keeps a piece that comes now.
func (r *recording) WritePCM(pcm []int16) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pieces = append(r.pieces, piece{time.Now(), slices.Clone(pcm)})
	return nil
}

// all returns the pieces until now.
func (r *recording) all() []piece {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.pieces)
}
