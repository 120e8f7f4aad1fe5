// Package media is what the packages for a call's sound share: mono PCM, its duration, and the types that take it.
//
// A receiver of RTP writes PCM to a Sink as the wall clock goes; a playout hands the voice of the model to an Output in
// frames of 20 ms. The codec runs at the rates of its users (Opus decodes to and encodes from 8, 12, 16, 24 or 48 kHz), so no
// resampler adds delay.
//
// Neither this package nor those below it open sockets or know signaling.
package media

import (
	"encoding/binary"
	"math"
	"slices"
	"time"
)

const (
	// FrameDuration is how much sound travels in one packet: the default of RFC 7587, section 6.1 ("ptime"), and of RFC 3551,
	// section 4.2.
	FrameDuration = 20 * time.Millisecond
	// FadeDuration is how long sound takes to fall silent where it is cut: the shortest fade in which no click is heard.
	FadeDuration = 5 * time.Millisecond
)

// Sink takes mono PCM. It is called by one goroutine at a time and must neither keep nor change pcm.
type Sink interface {
	Rate() int // samples per second; constant
	WritePCM(pcm []int16) error
}

// Frame is 20 ms of sound, or for an output that takes it [AtOnce] all that is ready.
type Frame struct {
	PCM   []int16
	PTS   time.Duration // when it is to be heard, on the wall clock, since the playout was made
	Start bool          // opens a talkspurt: nothing was sent right before it

	// Generation counts the flushes before it. A client must not play what it still holds of an older one.
	Generation uint32
}

// Output takes the frames of a playout, one goroutine at a time. WriteFrame is called with the playout locked: it must not
// block, must not call the playout, and must not keep f.PCM.
type Output interface {
	// Lead is how far ahead of their PTS frames may be handed over. 0 means one frame every 20 ms, as RTP wants it, and silence after each
	// talkspurt. An output with a lead (a socket whose client has its own queue, and must empty it when the voice is cut) gets frames early,
	// no trailing silence and no fades.
	Lead() time.Duration
	WriteFrame(f Frame) error
}

// Late is an [Output] with a lead that knows how long after its PTS a frame is heard, as far as it has been found out: what the client
// holds back besides the way to it. Like WriteFrame it must not block.
type Late interface{ Late() time.Duration }

// Filler is an [Output] that takes sound [AtOnce] and can be full: what is waiting for a client that reads slowly is enough. Until there
// is room the sound waits in the playout, where it can still be cut off. Like WriteFrame Full must not block.
type Filler interface{ Full() bool }

// AtOnce is the Lead of an output that takes sound as it comes, in frames of any length: its client paces itself.
const AtOnce = time.Duration(math.MaxInt64)

// Samples returns how many samples at rate, in Hz, last d, rounded down.
func Samples(d time.Duration, rate int) int {
	return int(int64(d) * int64(rate) / int64(time.Second))
}

// Duration returns how long n samples at rate, in Hz, last.
func Duration(n, rate int) time.Duration {
	return time.Duration(int64(n) * int64(time.Second) / int64(rate))
}

// RMS returns the root mean square of pcm in the unit of its samples: 0 to 32768, where speech on a phone line averages
// about 1600 (-26 dBov, ITU-T P.56).
func RMS(pcm []int16) float64 {
	if len(pcm) == 0 {
		return 0
	}
	var sum int64
	for _, s := range pcm {
		sum += int64(s) * int64(s)
	}
	return math.Sqrt(float64(sum) / float64(len(pcm)))
}

// FadeOut writes the mirror image of last, what was heard last, to the beginning of pcm, fading: it goes on without a step.
// They must not overlap.
func FadeOut(pcm, last []int16) {
	n := len(last)
	for i := range min(n, len(pcm)) {
		pcm[i] = int16(int(last[n-1-i]) * (n - i) / n)
	}
}

// AppendBytes appends pcm as the wires have it, 16 bits little-endian, to b.
func AppendBytes(b []byte, pcm []int16) []byte {
	n := len(b)
	b = slices.Grow(b, 2*len(pcm))[:n+2*len(pcm)]
	for i, s := range pcm {
		binary.LittleEndian.PutUint16(b[n+2*i:], uint16(s))
	}
	return b
}

// AppendSamples appends what b has, 16 bits little-endian, to pcm. An odd byte at the end is left out.
func AppendSamples(pcm []int16, b []byte) []int16 {
	n := len(pcm)
	pcm = slices.Grow(pcm, len(b)/2)[:n+len(b)/2]
	for i := range pcm[n:] {
		pcm[n+i] = int16(binary.LittleEndian.Uint16(b[2*i:]))
	}
	return pcm
}
