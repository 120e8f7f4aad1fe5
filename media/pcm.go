// Package media holds the shared types of a call's audio: mono PCM, durations, and the interfaces that consume it.
//
// A receiver of RTP writes PCM to a Sink in step with the wall clock. A playout passes the model's voice to an Output in frames
// of 20 ms. Codecs run at the rates of their users (Opus decodes to and encodes from 8, 12, 16, 24 or 48 kHz), so no resampler
// adds delay.
//
// Neither this package nor those below it open sockets or depend on signaling.
package media

import (
	"encoding/binary"
	"math"
	"slices"
	"time"
)

const (
	// FrameDuration is the duration of sound in a packet: the default of RFC 7587, section 6.1 ("ptime"), and of RFC 3551, section
	// 4.2.
	FrameDuration = 20 * time.Millisecond
	// FadeDuration is the length of the fade-out where sound is cut. It is the shortest without an audible click.
	FadeDuration = 5 * time.Millisecond
)

// Sink consumes mono PCM. It is called by one goroutine at a time and must neither keep nor change pcm.
type Sink interface {
	Rate() int // samples per second; constant
	WritePCM(pcm []int16) error
}

// Frame is 20 ms of sound. For an output with an [UnlimitedLead] it may have any length.
type Frame struct {
	PCM   []int16
	PTS   time.Duration // when to play the frame: wall-clock time since the playout was created
	Start bool          // first frame of a talkspurt: nothing was sent right before it

	// Generation counts the flushes before this frame. A client must discard buffered frames of an older generation.
	Generation uint32
}

// Output consumes the frames of a playout, from one goroutine at a time. WriteFrame is called with the playout locked.
// It must not block, call the playout, or keep f.PCM.
type Output interface {
	// MaxLead returns how long before its PTS a frame may be sent. 0 means one frame every 20 ms, as in RTP, and silence
	// after each talkspurt.
	//
	// With a lead, frames come early, without trailing silence and fades. The client must clear its buffer on
	// interruption.
	MaxLead() time.Duration
	WriteFrame(f Frame) error
}

// DelayedOutput is an [Output] with a lead that knows its delay. PlaybackDelay returns how long after its PTS a frame
// is played: the delay of the network and the client. It must not block.
type DelayedOutput interface{ PlaybackDelay() time.Duration }

// BackpressureOutput is an [Output] with an [UnlimitedLead] that can be full. While Full returns true, sound stays in
// the playout, where an interruption can still drop it. Full must not block.
type BackpressureOutput interface{ Full() bool }

// UnlimitedLead is the Lead of an output that takes all sound at once, in frames of any length. Its client paces the
// sound.
const UnlimitedLead = time.Duration(math.MaxInt64)

// Samples returns the number of samples in d at rate, in Hz, rounded down.
func Samples(d time.Duration, rate int) int {
	return int(int64(d) * int64(rate) / int64(time.Second))
}

// Duration returns the duration of n samples at rate, in Hz.
func Duration(n, rate int) time.Duration {
	return time.Duration(int64(n) * int64(time.Second) / int64(rate))
}

// RMS returns the root mean square of pcm in the unit of its samples, 0 to 32768. Speech on a phone line averages about
// 1600 (-26 dBov, ITU-T P.56).
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

// WriteFadeOut writes a fade-out to the beginning of dst: last, which is the newest sound played, backwards. Playing it
// backwards avoids a step. dst and last must not overlap.
func WriteFadeOut(dst, last []int16) {
	n := len(last)
	for i := range min(n, len(dst)) {
		dst[i] = int16(int(last[n-1-i]) * (n - i) / n)
	}
}

// AppendBytes appends pcm to b as 16-bit little-endian samples.
func AppendBytes(b []byte, pcm []int16) []byte {
	n := len(b)
	b = slices.Grow(b, 2*len(pcm))[:n+2*len(pcm)]
	for i, s := range pcm {
		binary.LittleEndian.PutUint16(b[n+2*i:], uint16(s))
	}
	return b
}

// AppendSamples appends the 16-bit little-endian samples in b to pcm. An odd byte at the end is ignored.
func AppendSamples(pcm []int16, b []byte) []int16 {
	n := len(pcm)
	pcm = slices.Grow(pcm, len(b)/2)[:n+len(b)/2]
	for i := range pcm[n:] {
		pcm[n+i] = int16(binary.LittleEndian.Uint16(b[2*i:]))
	}
	return pcm
}
