package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"voxgate/bridge/turns"
)

const (
	turnLength   = 3 * rate // length of the person's turn before an answer, from which the machine learns the person's level
	soundDelay   = 2 * rate // time from the end of this turn to the sound over the answer
	longestSound = 700 * ms // longest sound that does not mean to interrupt
)

// outcome is the effect of a sound over an answer. duck, hold and cut are the times of these actions in seconds from
// the sound's onset, or 0 for an action that did not happen. length is the length of the sound in seconds.
type outcome struct {
	duck, hold, cut float64
	resume          float64 // seconds from the end of the sound until the answer continues; negative within the sound, 0 for never
	length          float64
	isWhole         bool // whether the model got everything from the onset on
}

// simulateInterruption plays turn, a turn of the corpus, and then plays sound while the model answers it.
func simulateInterruption(sound, turn item) (o outcome) {
	pcm := append(slices.Clone(turn.pcm[:min(turn.end, rate/2+turnLength)]), make([]int16, soundDelay)...)
	for i := range soundDelay {
		pcm[len(pcm)-soundDelay+i] = turn.pcm[len(turn.pcm)-1-i] // room noise
	}
	from := len(pcm) + rate/2 // the sound begins after 0.5 s of room noise
	end := len(pcm) + sound.end
	pcm = append(pcm, sound.pcm...)
	r := newConversation(turns.Settings{Patience: turns.PatienceFixedAt(500 * ms)}, newRecording(nil, pcm), false)
	r.hasAnswers = true
	o.length = float64(end-from) / rate
	for _, e := range r.play() {
		since := float64(e.at-from) / rate
		switch {
		case since <= 0 || o.cut > 0 && e.Kind != turns.Start:
		case e.Kind == turns.Duck && o.duck == 0:
			o.duck = since
		case e.Kind == turns.Hold && o.hold == 0:
			o.hold = since
		case e.Kind == turns.Cut:
			o.cut = since
		case e.Kind == turns.GoOn:
			o.resume = float64(e.at-end) / rate
		case e.Kind == turns.Start && o.cut > 0:
			o.isWhole = o.isWhole || time.Duration(since*float64(time.Second)) <= e.Back
		}
	}
	return o
}

// printInterruptions prints how often a sound over an answer makes the gateway hold or end the answer. It prints how soon
// this happens for interruptions, and how soon a held answer continues for other sounds.
func printInterruptions(out io.Writer, items []item) {
	turn := items[slices.IndexFunc(items, func(it item) bool { return it.kind == "ends" && it.end > rate/2+turnLength })]
	outcomes := make([]outcome, len(items))
	forEach(items, func(i int, it item) {
		if slices.Contains([]string{"bursts", "noises", "stops", "ends"}, it.kind) {
			outcomes[i] = simulateInterruption(it, turn)
		}
	})
	fmt.Fprint(out, "\nSounds over an answer, in %, and seconds from the end of a sound until a held answer goes on.\n\n"+
		"| sound | end the answer | hold it | goes on: median | p95 |\n| --- | --- | --- | --- | --- |\n")
	for _, kind := range []string{"bursts", "noises"} {
		n, held, cut := 0, 0, 0
		var resumes []float64
		for i, it := range items {
			if it.kind != kind {
				continue
			}
			n++
			o := outcomes[i]
			if o.hold > 0 || o.cut > 0 {
				held++
			}
			if o.cut > 0 {
				cut++
			} else if o.hold > 0 && o.resume > 0 { // resume is negative if the answer continues within the sound: a noise holds it for 1.5 s at most
				resumes = append(resumes, o.resume)
			}
		}
		fmt.Fprintf(out, "| %s (%d) | %.0f | %.0f |", kind, n, percent(cut, n), percent(held, n))
		if len(resumes) == 0 {
			fmt.Fprintln(out, " – | – |")
			continue
		}
		fmt.Fprintf(out, " %.2f | %.2f |\n", percentile(resumes, 50), percentile(resumes, 95))
	}
	fmt.Fprint(out, "\nInterruptions of 0.7 s and more: share that acts, in %, and p95 of the seconds from the onset.\n\n"+
		"| interruption | ducked | held | told | ducked p95 | held p95 | told p95 | first word whole |\n"+
		"| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, kind := range []string{"stops", "ends"} {
		printDelays(out, map[string]string{"stops": "calls of the game", "ends": "prompts and dialogues"}[kind], kind, items, outcomes)
	}
}

func printDelays(out io.Writer, name, kind string, items []item, outcomes []outcome) {
	n, whole := 0, 0
	var delays [3][]float64
	for i, it := range items {
		o := outcomes[i]
		if it.kind != kind || o.length < longestSound.Seconds() {
			continue
		}
		n++
		if o.isWhole {
			whole++
		}
		for k, delay := range []float64{o.duck, o.hold, o.cut} {
			if delay > 0 {
				delays[k] = append(delays[k], delay)
			}
		}
	}
	fmt.Fprintf(out, "| %s (%d) |", name, n)
	for _, d := range delays {
		fmt.Fprintf(out, " %.0f |", percent(len(d), n))
	}
	for _, d := range delays {
		fmt.Fprintf(out, " %.2f |", percentile(d, 95))
	}
	fmt.Fprintf(out, " %.0f |\n", percent(whole, len(delays[2])))
}
