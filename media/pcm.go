// Package media is the sound of a call: it turns RTP into PCM and PCM into RTP on the caller's clock.
//
// A Receiver reads RTP packets, puts them in order, decodes and conceals them and writes mono PCM to a Sink. A Playout
// takes PCM in bursts and hands it to an Output in frames of 20 ms, one at a time as the wall clock goes. The codec runs
// at the rates of its users (Opus decodes to and encodes from 8, 12, 16, 24 or 48 kHz), so no resampler adds delay.
//
// The package opens no sockets and knows no signaling.
package media

import (
	"math"
	"time"
)

// FrameDuration is how much sound travels in one packet: the default of RFC 7587, section 6.1 ("ptime"), and of RFC 3551,
// section 4.2.
const FrameDuration = 20 * time.Millisecond

// Sink takes mono PCM. It is called by one goroutine at a time and must neither keep nor change pcm.
type Sink interface {
	Rate() int // samples per second; constant
	WritePCM(pcm []int16) error
}

// samplesIn returns how many samples at rate last d, rounded down.
func samplesIn(d time.Duration, rate int) int {
	return int(int64(d) * int64(rate) / int64(time.Second))
}

// durationOf returns how long n samples at rate last.
func durationOf(n, rate int) time.Duration {
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

// ToneLevel returns the share of the energy of pcm, 0 to 1, that a sine of hz accounts for (Goertzel's algorithm). Its
// resolution is rate/len(pcm) Hz.
func ToneLevel(pcm []int16, rate int, hz float64) float64 {
	c := 2 * math.Cos(2*math.Pi*hz/float64(rate))
	var s1, s2, energy float64
	for _, x := range pcm {
		v := float64(x)
		energy += v * v
		s1, s2 = v+c*s1-s2, s1
	}
	if energy == 0 {
		return 0
	}
	power := s1*s1 + s2*s2 - c*s1*s2 // of the bin; (amplitude*n/2)^2 for a pure tone
	return min(1, 2*power/(energy*float64(len(pcm))))
}
