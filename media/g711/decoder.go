package g711

import (
	"errors"
	"fmt"

	"voxgate/media"
)

var (
	errEmpty   = errors.New("packet without samples")
	errTooLong = errors.New("packet too long")
)

// Concealment repeats the last pitch period, as in appendix I of G.711, but adds no delay. All lengths are in samples.
//
// TestConcealment compares concealed sound with the 20 ms of real speech that it replaces: the median SNR is 2.1 dB,
// the loudness is that of the original, and the start has no step. Filling with silence gives 0 dB. The concealment of
// libopus for Opus at 8 kHz gives 3.3 dB.
const (
	ms = rate / 1000
	// shortestPeriod and longestPeriod bound the pitch search: voices of 200 to 66 Hz (appendix I.2.2).
	shortestPeriod = 5 * ms
	longestPeriod  = 15 * ms
	// matchLength is the length of the newest sound that is compared with earlier sound to find the pitch period. With
	// 20 ms, as in the appendix, the SNR is 1.1 dB instead of 2.1 dB.
	matchLength = 5 * ms
	// Concealed sound starts to fade after fadeBegins, and is silent after fadeEnds (appendix I.2.7).
	fadeBegins = 10 * ms
	fadeEnds   = 60 * ms
	// crossfadeLength is the length of the crossfade from concealed sound to the next packet.
	crossfadeLength = 5 * ms
)

// decoder decodes one stream and keeps the end of its sound for concealment.
type decoder struct {
	law       *law
	history   [2 * longestPeriod]int16 // the newest sound, for findPitchPeriod and preparePitchCycle
	cycle     []int16                  // the pitch period that is repeated; empty for silence
	step      int                      // last received sample minus the one that precedes cycle
	concealed int                      // samples concealed since the last packet
}

// NewDecoder implements [media.Codec].
func (c Codec) NewDecoder(toRate int) (media.Decoder, error) {
	if toRate != rate {
		return nil, fmt.Errorf("G.711 is not decoded to %d Hz", toRate)
	}
	return &decoder{law: c.law, cycle: make([]int16, 0, longestPeriod)}, nil
}

// Decode implements [media.Decoder].
func (d *decoder) Decode(packet []byte, pcm []int16) (int, error) {
	switch {
	case len(packet) == 0:
		return 0, errEmpty
	case len(packet) > len(pcm):
		return 0, errTooLong
	}
	for i, b := range packet {
		pcm[i] = d.law.samples[b]
	}
	pcm = pcm[:len(packet)]
	if d.concealed > 0 {
		n := min(crossfadeLength, len(pcm))
		for i := range pcm[:n] {
			pcm[i] = int16((int(pcm[i])*i + int(d.nextConcealedSample())*(n-i)) / n)
		}
		d.concealed = 0
	}
	d.appendHistory(pcm)
	return len(pcm), nil
}

// Conceal implements [media.Decoder].
func (d *decoder) Conceal(_ []byte, pcm []int16) error {
	if d.concealed == 0 {
		d.preparePitchCycle()
	}
	for i := range pcm {
		pcm[i] = d.nextConcealedSample()
	}
	d.appendHistory(pcm)
	return nil
}

// appendHistory keeps pcm as the newest sound in history.
func (d *decoder) appendHistory(pcm []int16) {
	if len(pcm) < len(d.history) {
		copy(d.history[:], d.history[len(pcm):])
	}
	copy(d.history[max(0, len(d.history)-len(pcm)):], pcm[max(0, len(pcm)-len(d.history)):])
}

// preparePitchCycle copies the last pitch period to cycle and crossfades its end into its start.
func (d *decoder) preparePitchCycle() {
	h, size := d.history[:], len(d.history)
	period := d.findPitchPeriod()
	if period == 0 {
		d.cycle = d.cycle[:0]
		return
	}
	d.cycle = append(d.cycle[:0], h[size-period:]...)
	fade := period / 4
	for i := range fade { // crossfade with the sound before the period
		at := period - fade + i
		d.cycle[at] = int16((int(d.cycle[at])*(fade-1-i) + int(h[size-period-fade+i])*(i+1)) / fade)
	}
	d.step = int(h[size-1]) - int(h[size-period-1])
}

// findPitchPeriod returns the pitch period of the newest sound in samples, or 0 for silence.
func (d *decoder) findPitchPeriod() (best int) {
	size := len(d.history)
	last := d.history[size-matchLength:]
	highest := 0.0
	for period := shortestPeriod; period <= longestPeriod; period++ {
		var both, energy int64
		for i, x := range d.history[size-matchLength-period:][:matchLength] {
			both += int64(x) * int64(last[i])
			energy += int64(x) * int64(x)
		}
		if score := float64(both) * float64(max(0, both)) / float64(energy+1); score > highest {
			best, highest = period, score
		}
	}
	return best
}

// nextConcealedSample returns the next concealed sample. The first samples smooth the step from the end of the received
// sound.
func (d *decoder) nextConcealedSample() int16 {
	i := d.concealed
	d.concealed++
	if len(d.cycle) == 0 || i >= fadeEnds {
		return 0
	}
	s := int(d.cycle[i%len(d.cycle)])
	if fade := len(d.cycle) / 4; i < fade {
		s += d.step * (fade - i) / fade
	}
	if i > fadeBegins {
		s = s * (fadeEnds - i) / (fadeEnds - fadeBegins)
	}
	return int16(min(max(s, -32768), 32767))
}
