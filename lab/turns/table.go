package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"voxgate/bridge/turns"
	"voxgate/media/smartturn"
)

const (
	frame = rate / 50 // 20 ms
	ms    = time.Millisecond
)

// isInPause reports whether a position is in a pause of the turn. The 50 ms after a pause are included, because a
// detector notices a voice late.
func (it item) isInPause(at int) bool {
	return slices.ContainsFunc(it.pauses, func(p [2]int) bool { return at > p[0] && at <= p[1]+rate/20 })
}

// policy decides when turns end.
type policy struct {
	name     string
	patience turns.Patience
	hasJudge bool
}

var policies = []policy{
	{"own detector, 500 ms", turns.PatienceFixedAt(500 * ms), false},
	{"own detector, 800 ms", turns.PatienceFixedAt(800 * ms), false},
	{"prosody, quick", turns.Quick, false},
	{"prosody, normal", turns.Normal, false},
	{"prosody, patient", turns.Patient, false},
	{"with the judge, quick", turns.Quick, true},
	{"with the judge, normal", turns.Normal, true},
	{"with the judge, patient", turns.Patient, true},
}

var pauseKinds = []string{"mid", "hesit", "meeting", "pause", "natural"}

// printBenchmark prints what bridge/turns does with the corpus. judge may be nil.
func printBenchmark(out io.Writer, items []item, judge *smartturn.Judge) {
	recordings := make([]*recording, len(items))
	for i, it := range items {
		recordings[i] = newRecording(judge, it.pcm)
	}
	printEnds(out, items, recordings)
	printAreas(out, items, recordings)
	printInterruptions(out, items)
}

func countPauses(items []item, kind string) (n int) {
	for _, it := range items {
		if it.kind == kind {
			n += len(it.pauses)
		}
	}
	return n
}

// printEnds prints how often the gateway took a pause for the end of the turn, and how often an answer began in such a
// pause. It also prints how late true ends were reported.
func printEnds(out io.Writer, items []item, recordings []*recording) {
	fmt.Fprint(out, "Pauses inside of a turn in which its end was told, in %, and seconds from the last word until the end was told.\n"+
		"Not told: ends without a turn. Heard: pauses in which an answer began to sound, 0.5 s after the end was told, in %.\n"+
		"Silent: seconds from the voice after such a pause, or after one in which the answer was awaited, until no answer could sound.\n\n"+
		"| policy |")
	for _, kind := range pauseKinds {
		fmt.Fprintf(out, " %s (%d) |", kind, countPauses(items, kind))
	}
	fmt.Fprint(out, " median | p95 | not told | heard: mid | hesit | meeting | silent: median | p95 |\n| --- |"+
		" --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, p := range policies {
		if !p.hasJudge || recordings[0].judge != nil {
			measureEnds(items, recordings, p).printRow(out, p.name, items)
		}
	}
}

// ends counts ends of turns by one policy.
type ends struct {
	endCount, answerCount map[string]int // pauses in which an end was reported, or an answer began, by kind
	delays                []float64      // delays of the reports of true ends, in s
	missing               int            // true ends that were not reported
	silences              []float64      // results of measureSilences, in s
}

func measureEnds(items []item, recordings []*recording, p policy) *ends {
	type result struct {
		endCount, answerCount int
		delay                 float64
		silences              []float64
	}
	results := make([]result, len(items))
	forEach(items, func(i int, it item) {
		r := &results[i]
		if !slices.Contains(pauseKinds, it.kind) && it.kind != "ends" {
			return
		}
		for _, e := range newConversation(turns.Settings{Patience: p.patience}, recordings[i], p.hasJudge).play() {
			switch {
			case e.Kind != turns.End:
			case it.isInPause(e.at):
				r.endCount++
			case e.at > it.end && r.delay == 0:
				r.delay = float64(e.at-it.end) / rate
			}
		}
		answered := newConversation(turns.Settings{Patience: p.patience}, recordings[i], p.hasJudge)
		answered.hasAnswers = true
		r.silences = measureSilences(it, answered.play())
		for _, at := range answered.answers {
			if it.isInPause(at) {
				r.answerCount++
			}
		}
	})
	sum := &ends{endCount: map[string]int{}, answerCount: map[string]int{}}
	for i, it := range items {
		sum.endCount[it.kind] += results[i].endCount
		sum.answerCount[it.kind] += results[i].answerCount
		sum.silences = append(sum.silences, results[i].silences...)
		switch {
		case it.kind == "ends" && results[i].delay > 0:
			sum.delays = append(sum.delays, results[i].delay)
		case it.kind == "ends":
			sum.missing++
		}
	}
	return sum
}

// measureSilences measures each pause in which an end was reported. It returns the seconds from the person's next sound
// until the answer was stopped or prevented.
func measureSilences(it item, events []event) (silences []float64) {
	for _, p := range it.pauses {
		isTold := false
		for _, e := range events {
			switch {
			case e.Kind == turns.End && e.at > p[0] && e.at <= p[1]:
				isTold = true
			case isTold && e.at > p[1] && (e.Kind == turns.Hold || e.Kind == turns.Retract || e.Kind == turns.Cut):
				silences, isTold = append(silences, float64(e.at-p[1])/rate), false
			}
		}
	}
	return silences
}

func (e *ends) printRow(out io.Writer, name string, items []item) {
	fmt.Fprintf(out, "| %s |", name)
	for _, kind := range pauseKinds {
		fmt.Fprintf(out, " %.0f |", percent(e.endCount[kind], countPauses(items, kind)))
	}
	fmt.Fprintf(out, " %.2f | %.2f | %d |", percentile(e.delays, 50), percentile(e.delays, 95), e.missing)
	for _, kind := range pauseKinds[:3] {
		fmt.Fprintf(out, " %.0f |", percent(e.answerCount[kind], countPauses(items, kind)))
	}
	fmt.Fprintf(out, " %.2f | %.2f |\n", percentile(e.silences, 50), percentile(e.silences, 95))
}

func percent(k, n int) float64 { return 100 * float64(k) / float64(max(1, n)) }

func percentile(values []float64, p int) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[(len(values)-1)*p/100]
}

// printAreas prints the areas under the ROC curve. An area is the chance that a judge gives a true end a higher
// probability than a pause within a turn.
func printAreas(out io.Writer, items []item, recordings []*recording) {
	kinds := map[string][]verdict{}
	for i, it := range items {
		for _, at := range detectPauses(it) {
			if it.isInPause(at) || it.kind == "ends" && at > it.end {
				kinds[it.kind] = append(kinds[it.kind], recordings[i].judgeAt(at))
			}
		}
	}
	for _, judge := range []struct {
		name string
		p    func(v verdict) float64
	}{
		{"prosody", func(v verdict) float64 { return v.prosody }},
		{"network", func(v verdict) float64 { return v.network }},
		{"both", func(v verdict) float64 { return v.both }},
	} {
		fmt.Fprintf(out, "| area under the curve of %s |", judge.name)
		for _, kind := range pauseKinds {
			above := 0.0
			for _, inner := range kinds[kind] {
				for _, end := range kinds["ends"] {
					switch {
					case judge.p(end) > judge.p(inner):
						above++
					case judge.p(end) == judge.p(inner):
						above += 0.5
					}
				}
			}
			fmt.Fprintf(out, " %.2f |", above/float64(max(1, len(kinds[kind])*len(kinds["ends"]))))
		}
		fmt.Fprint(out, " | | | | | | | |\n")
	}
}
