package testkit

import (
	"encoding/base64"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
)

// Base64PCM returns audio in base64, as messages contain it.
func Base64PCM(pcm []int16) string {
	return base64.StdEncoding.EncodeToString(media.AppendBytes(nil, pcm))
}

// MakeTone returns a sine at half of the full scale.
func MakeTone(hz float64, d time.Duration, rate int) []int16 {
	return mediatest.Tone(d, rate, hz, 16000)
}

// MakeSilence returns silent samples.
func MakeSilence(d time.Duration, rate int) []int16 {
	return make([]int16, int(d.Seconds()*float64(rate)))
}

// MakeSentence returns a tone with the timing of a spoken sentence: a pause, the tone, and a pause long enough to end the
// turn.
func MakeSentence(hz float64, d time.Duration, rate int) []int16 {
	pcm := MakeSilence(300*time.Millisecond, rate)
	pcm = append(pcm, MakeTone(hz, d, rate)...)
	return append(pcm, MakeSilence(time.Second, rate)...)
}

// TrimSilence trims silence at both ends.
func TrimSilence(pcm []int16) []int16 {
	first, last := -1, 0
	for i, s := range pcm {
		if s > 1000 || s < -1000 {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	if first < 0 {
		return nil
	}
	return pcm[first:last]
}

// ToneShare returns the share of a frequency in the energy of the voice. It measures short pieces, so that gaps and
// jumps of the phase do not change the result.
func ToneShare(pcm []int16, hz float64) float64 {
	const piece = wire.OutputRate / 20
	if len(pcm) < piece {
		return mediatest.ToneLevel(pcm, wire.OutputRate, hz)
	}
	var share, energy float64
	for ; len(pcm) >= piece; pcm = pcm[piece:] {
		e := media.RMS(pcm[:piece])
		e *= e
		share += e * mediatest.ToneLevel(pcm[:piece], wire.OutputRate, hz)
		energy += e
	}
	return share / energy
}

// IsTone reports whether the voice consists mostly of a tone of this frequency.
func IsTone(pcm []int16, hz float64) bool { return ToneShare(pcm, hz) > 0.5 }
