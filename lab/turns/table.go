package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"voxgate/media/prosody"
	"voxgate/media/silero"
	"voxgate/media/vad"
)

const (
	frame = rate / 50 // 20 ms
	askAt = 200 * time.Millisecond
)

// pause is a silence that the detector found.
type pause struct {
	at     int           // position at which the pause has lasted 200 ms, in samples
	length time.Duration // length until the voice continues, or the item ends
}

// pausesOf runs the detector of the uplink over an item.
func pausesOf(it item) (pauses []pause) {
	d := &vad.Detector{Onset: 60 * time.Millisecond, Hangover: time.Hour}
	isAsked := false
	for i := 0; i+frame <= len(it.pcm); i += frame {
		isSpeaking := d.ProcessFrame(it.pcm[i:i+frame], rate)
		switch quiet := d.SilenceDuration(); {
		case quiet == 0:
			isAsked = false
		case isSpeaking && quiet >= askAt && !isAsked:
			isAsked = true
			pauses = append(pauses, pause{i + frame, quiet})
		case isAsked:
			pauses[len(pauses)-1].length = quiet
		}
	}
	return pauses
}

// isInside reports whether a position is in a pause inside of the turn.
func (it item) isInside(at int) bool {
	return slices.ContainsFunc(it.pauses, func(p [2]int) bool { return at > p[0] && at <= p[1]+rate/20 })
}

// policy decides how much silence ends a turn; wait returns that for the sound before a pause.
type policy struct {
	name string
	wait func(pcm []int16) time.Duration
}

// steps returns the function wait of a policy with three lengths of silence: high for a probability of at least 0.8, middle for
// at least 0.3, and low otherwise.
func steps(high, middle, low time.Duration) func(pcm []int16) time.Duration {
	return func(pcm []int16) time.Duration {
		switch p := prosody.Predict(pcm); {
		case p >= 0.8:
			return high
		case p >= 0.3:
			return middle
		default:
			return low
		}
	}
}

const ms = time.Millisecond

var policies = []policy{
	{"own detector, 500 ms", func([]int16) time.Duration { return 500 * ms }},
	{"own detector, 800 ms", func([]int16) time.Duration { return 800 * ms }},
	{"prosody, quick", steps(250*ms, 600*ms, 1200*ms)},
	{"prosody, normal", steps(300*ms, 700*ms, 1600*ms)},
	{"prosody, patient", steps(700*ms, 1100*ms, 2500*ms)},
}

var pauseKinds = []string{"mid", "hesit", "meeting", "pause", "natural"}

// printTable prints three measurements: the share of inner pauses that wrongly end a turn, the delay of the true end, and the
// sounds that each detector takes for voice.
func printTable(out io.Writer, items []item) {
	fmt.Fprint(out, "Inner pauses in which the turn was ended, in %, and seconds from the last word until the end was told.\n\n| policy |")
	for _, kind := range pauseKinds {
		n := 0
		for _, it := range items {
			if it.kind == kind {
				n += len(it.pauses)
			}
		}
		fmt.Fprintf(out, " %s (%d) |", kind, n)
	}
	fmt.Fprint(out, " median | p95 |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	found := make([][]pause, len(items))
	for i, it := range items {
		found[i] = pausesOf(it)
	}
	for _, p := range policies {
		printPolicy(out, p, items, found)
	}
	printArea(out, items, found)
	printVoice(out, items)
}

func printPolicy(out io.Writer, p policy, items []item, found [][]pause) {
	cut, all := map[string]int{}, map[string]int{}
	var delays []float64
	for i, it := range items {
		all[it.kind] += len(it.pauses)
		for _, f := range found[i] {
			inside := it.isInside(f.at)
			if !inside && (it.kind != "ends" || f.at <= it.end) {
				continue
			}
			wait := p.wait(it.pcm[max(0, f.at-4*rate):f.at])
			if inside {
				if f.length >= wait {
					cut[it.kind]++
				}
				continue
			}
			delays = append(delays, float64(f.at-it.end)/rate+(wait-askAt).Seconds())
			break
		}
	}
	fmt.Fprintf(out, "| %s |", p.name)
	for _, kind := range pauseKinds {
		fmt.Fprintf(out, " %.0f |", 100*float64(cut[kind])/float64(max(1, all[kind])))
	}
	slices.Sort(delays)
	fmt.Fprintf(out, " %.2f | %.2f |\n", delays[len(delays)/2], delays[len(delays)*95/100])
}

// printArea prints the area under the ROC curve: the chance that prosody gives an end a higher probability than an inner pause.
func printArea(out io.Writer, items []item, found [][]pause) {
	predictions := map[string][]float32{}
	for i, it := range items {
		for _, f := range found[i] {
			switch inside := it.isInside(f.at); {
			case inside, it.kind == "ends" && f.at > it.end:
				predictions[it.kind] = append(predictions[it.kind], prosody.Predict(it.pcm[max(0, f.at-4*rate):f.at]))
			}
		}
	}
	fmt.Fprint(out, "| area under the curve of prosody |")
	for _, kind := range pauseKinds {
		above := 0.0
		for _, inner := range predictions[kind] {
			for _, end := range predictions["ends"] {
				if end > inner {
					above++
				}
			}
		}
		fmt.Fprintf(out, " %.2f |", above/float64(max(1, len(predictions[kind])*len(predictions["ends"]))))
	}
	fmt.Fprint(out, " | |\n")
}

// printVoice prints the share of short sounds that count as voice for at least 250 and 700 ms: by our own detector, and by both
// it and Silero.
func printVoice(out io.Writer, items []item) {
	fmt.Fprint(out, "\nShort sounds that are voice for 250 / 700 ms, in %.\n\n")
	fmt.Fprint(out, "| kind | own detector | own detector and Silero |\n| --- | --- | --- |\n")
	for _, kind := range []string{"bursts", "noises", "stops"} {
		n := 0
		var detector, both [2]int
		for _, it := range items {
			if it.kind != kind {
				continue
			}
			n++
			length, bothLength := longestVoice(it.pcm)
			for i, least := range []time.Duration{250 * ms, 700 * ms} {
				if length >= least {
					detector[i]++
				}
				if bothLength >= least {
					both[i]++
				}
			}
		}
		percent := func(k int) int { return (100*k + n/2) / max(1, n) }
		fmt.Fprintf(out, "| %s (%d) | %d / %d | %d / %d |\n", kind, n,
			percent(detector[0]), percent(detector[1]), percent(both[0]), percent(both[1]))
	}
}

// longestVoice returns the length of the longest stretch of voice, by our own detector, and by both it and Silero. Gaps of up
// to 120 ms do not end a stretch.
func longestVoice(pcm []int16) (detector, both time.Duration) {
	const step = silero.FrameLength // 32 ms
	d, s := &vad.Detector{Hangover: time.Nanosecond}, silero.NewDetector()
	var detectorRun, bothRun voiceRun
	for i := 0; i+step <= len(pcm); i += step {
		d.ProcessFrame(pcm[i:i+step/2], rate)
		isFirst := d.SilenceDuration() == 0
		d.ProcessFrame(pcm[i+step/2:i+step], rate)
		isVoice := isFirst || d.SilenceDuration() == 0
		detectorRun.add(isVoice)
		bothRun.add(isVoice && s.Probability(pcm[i:i+step]) >= 0.5)
	}
	return detectorRun.longest, bothRun.longest
}

// voiceRun finds the longest stretch of voice, in steps of 32 ms.
type voiceRun struct{ length, gap, longest time.Duration }

func (r *voiceRun) add(isVoice bool) {
	const step = 32 * ms
	switch {
	case isVoice && r.length > 0 && r.gap <= 120*ms:
		r.length += r.gap + step
		r.gap = 0
	case isVoice:
		r.length, r.gap = step, 0
	default:
		r.gap += step
	}
	r.longest = max(r.longest, r.length)
}
