package g711

import (
	"errors"
	"fmt"

	"voxgate/media"
)

var (
	errEmpty = errors.New("packet without samples")
	errLong  = errors.New("packet too long")
)

// What stands for a lost packet is the last period of the voice, again and again, as in appendix I of G.711; but nothing is
// delayed for it. Of lost 20 ms of real speech half come out with more than 2.1 dB of SNR (silence has 0 dB, libopus' own
// concealment of Opus at 8 kHz 3.3 dB), as loud as they were, and without a step (TestConcealment).
// All lengths are in samples.
const (
	ms = rate / 1000
	// shortestPeriod and longestPeriod bound the period that is looked for: voices of 200 to 66 Hz (appendix I.2.2).
	shortestPeriod = 5 * ms
	longestPeriod  = 15 * ms
	// compared is how much of the last sound is compared with itself, a period earlier. The 20 ms of the appendix make it 1.1 dB
	// of SNR in place of 2.1: what comes next resembles the newest sound.
	compared = 5 * ms
	// fadeBegins and fadeEnds are when the voice that is made up begins to fade, and when nothing is left of it (appendix I.2.7).
	fadeBegins = 10 * ms
	fadeEnds   = 60 * ms
	// blend is over how long the next packet takes over from what was made up.
	blend = 5 * ms
)

// decoder decodes a stream and remembers the last of its sound.
type decoder struct {
	law     *law
	history [2 * longestPeriod]int16 // what period and findCycle look at
	cycle   []int16                  // the period that is repeated; empty: silence
	step    int                      // from its begin to where the sound ended
	made    int                      // samples made up since the last packet
}

// NewDecoder implements [media.Codec].
func (c Codec) NewDecoder(to int) (media.Decoder, error) {
	if to != rate {
		return nil, fmt.Errorf("G.711 is not decoded to %d Hz", to)
	}
	return &decoder{law: c.law, cycle: make([]int16, 0, longestPeriod)}, nil
}

// Decode implements [media.Decoder].
func (d *decoder) Decode(packet []byte, pcm []int16) (int, error) {
	switch {
	case len(packet) == 0:
		return 0, errEmpty
	case len(packet) > len(pcm):
		return 0, errLong
	}
	for i, b := range packet {
		pcm[i] = d.law.samples[b]
	}
	pcm = pcm[:len(packet)]
	if d.made > 0 {
		n := min(blend, len(pcm))
		for i := range pcm[:n] {
			pcm[i] = int16((int(pcm[i])*i + int(d.makeUp())*(n-i)) / n)
		}
		d.made = 0
	}
	d.remember(pcm)
	return len(pcm), nil
}

// Conceal implements [media.Decoder].
func (d *decoder) Conceal(_ []byte, pcm []int16) error {
	if d.made == 0 {
		d.findCycle()
	}
	for i := range pcm {
		pcm[i] = d.makeUp()
	}
	d.remember(pcm)
	return nil
}

func (d *decoder) remember(pcm []int16) {
	if len(pcm) < len(d.history) {
		copy(d.history[:], d.history[len(pcm):])
	}
	copy(d.history[max(0, len(d.history)-len(pcm)):], pcm[max(0, len(pcm)-len(d.history)):])
}

// findCycle takes the last period of the sound for the cycle, and has its end go over into its begin.
func (d *decoder) findCycle() {
	h, size := d.history[:], len(d.history)
	period := d.period()
	if period == 0 {
		d.cycle = d.cycle[:0]
		return
	}
	d.cycle = append(d.cycle[:0], h[size-period:]...)
	fade := period / 4
	for i := range fade { // what stood before the begin
		at := period - fade + i
		d.cycle[at] = int16((int(d.cycle[at])*(fade-1-i) + int(h[size-period-fade+i])*(i+1)) / fade)
	}
	d.step = int(h[size-1]) - int(h[size-period-1])
}

// period is by how much the last sound resembles itself best, in samples; 0: it is silence.
func (d *decoder) period() (best int) {
	size := len(d.history)
	last := d.history[size-compared:]
	highest := 0.0
	for period := shortestPeriod; period <= longestPeriod; period++ {
		var both, energy int64
		for i, x := range d.history[size-compared-period:][:compared] {
			both += int64(x) * int64(last[i])
			energy += int64(x) * int64(x)
		}
		if score := float64(both) * float64(max(0, both)) / float64(energy+1); score > highest {
			best, highest = period, score
		}
	}
	return best
}

// makeUp returns the next sample that stands for a lost one. The first ones lead over from where the sound ended.
func (d *decoder) makeUp() int16 {
	i := d.made
	d.made++
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
