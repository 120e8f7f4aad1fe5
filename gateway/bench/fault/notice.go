package fault

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"voxgate/gateway/bench/harness"
)

// notice is something that a person notices of a fault. In text, %s stands for how long.
type notice struct {
	rank int // by which they are told
	text string
	took time.Duration
}

// In the order in which they are told. What the gateway said stands behind what was heard.
const (
	rankLate = iota
	rankTorn
	rankSilence
	rankLost
	rankTwice
	rankTone
	rankWords
	rankPage
	rankError
	rankNext
	rankMemory
	rankEnd
)

// turnsByEnd is what the model knows when it is asked at the end: three sentences and their answers. The question itself
// is counted as well.
const turnsByEnd = 2*sentences + 1

// outcome sums up the conversation.
func (t *conversation) outcome(turns int) outcome {
	var o outcome
	second, third := t.answer(1), t.answer(2)
	from := t.baseline.over
	o.relink = t.r.relink(from)
	o.tried = strings.Join(t.tried(), ", then ")
	next := third.began.Sub(t.spoken[2]) - t.usual
	switch t.phase {
	case asking, resting:
		o.recovery = second.began.Sub(t.spoken[1]) - t.usual
	case listening:
		o.recovery = next
	case ending:
		if t.struck.IsZero() {
			t.struck = t.emulator.Faulted()
		}
		o.recovery = t.farewells()[0].at.Sub(t.struck)
	case leaving:
		o.recovery = t.r.messages("SETUP_COMPLETE", t.dialled)[0].at.Sub(t.dialled)
		o.back = t.connected.Sub(t.dialled)
	}
	if t.phase != ending {
		o.notices = t.heard(second, third, turns)
	}
	o.notices = append(o.notices, t.sounds(from)...)
	o.notices = append(o.notices, t.said(from)...)
	o.remarks = fmt.Sprintf("usual answer after %v, relinked in %v, next answer %v later, tried %q, memory of %d turns, %v",
		t.usual.Round(time.Millisecond), o.relink.Round(time.Millisecond), next.Round(time.Millisecond), o.tried, turns, o.notices)
	return o
}

// heard compares the answers with what they should be.
func (t *conversation) heard(second, third answer, turns int) []notice {
	var n []notice
	whole := func(a answer) bool { return float64(a.frames) >= wholeAnswer*float64(t.baseline.frames) }
	late := second.began.Sub(t.spoken[1]) - t.usual
	if late > notNoticed {
		n = append(n, notice{rankLate, "the answer comes %s later", late})
	}
	switch {
	case !second.last:
		n = append(n, notice{rankTorn, fmt.Sprintf("the answer breaks off after %%s of %.1f s", t.baseline.over.Sub(t.baseline.began).Seconds()), second.over.Sub(second.began)})
	case !whole(second):
		n = append(n, notice{rankLost, "a part of what was said is lost", 0})
	}
	if second.silence-t.baseline.silence > notNoticed {
		n = append(n, notice{rankSilence, "the answer stops for %s", second.silence - t.baseline.silence})
	}
	if second.twice {
		n = append(n, notice{rankTwice, "a part of the answer is heard twice", 0})
	}
	if again := find(t.r.heard(t.asked[2]), 1); !again.began.IsZero() {
		n = append(n, notice{rankTwice, "the answer comes again after the next sentence", 0})
	}
	if next := third.began.Sub(t.spoken[2]) - t.usual; next > notNoticed && t.phase != listening {
		n = append(n, notice{rankNext, "the next answer comes %s later, too", next})
	}
	if !third.last || !whole(third) || third.twice {
		n = append(n, notice{rankNext, "the next answer is not whole", 0})
	}
	if turns < turnsByEnd {
		n = append(n, notice{rankMemory, fmt.Sprintf("Gemini knows %d of %d turns", turns, turnsByEnd), 0})
	}
	return n
}

// sounds are those of the gateway itself.
func (t *conversation) sounds(from time.Time) []notice {
	var n []notice
	run := 0
	var tone, spoken, last time.Time
	for _, s := range t.r.heard(from) {
		if run++; s.what != words || s.at.Sub(last) > burstEvery-burstLength {
			run = 0
		}
		if run > leastRun && spoken.IsZero() { // fewer are the edges of bursts
			spoken = s.at
		}
		if s.what == softTone && tone.IsZero() {
			tone = s.at
		}
		last = s.at
	}
	if !tone.IsZero() {
		n = append(n, notice{rankTone, "a soft tone every 2 s, from %s after the last word on", t.sinceWord(tone)})
	}
	if !spoken.IsZero() {
		n = append(n, notice{rankWords, "a spoken sentence after %s", t.sinceWord(spoken)})
	}
	return n
}

// sinceWord is how long before a time the person's last word was; 0 if it speaks.
func (t *conversation) sinceWord(at time.Time) time.Duration {
	for sentence := sentences - 1; sentence > 0; sentence-- {
		if asked := t.asked[sentence]; !asked.IsZero() && at.After(asked) {
			return max(0, at.Sub(t.spoken[sentence]))
		}
	}
	return 0
}

// said is what stands on the page.
func (t *conversation) said(from time.Time) []notice {
	var n []notice
	add := func(rank int, format, text string) {
		note := notice{rank, strings.ReplaceAll(fmt.Sprintf(format, text), "%", "%%"), 0}
		if text != "" && !slices.Contains(n, note) {
			n = append(n, note)
		}
	}
	for _, m := range t.r.messages("SESSION_STATE", from) {
		add(rankPage, "“%s” on the page", m.read().Message)
	}
	over := t.ended()
	for _, m := range t.r.messages("GEMINI_ERROR", from) {
		if text := m.read().Message; !over || text != t.reason() {
			add(rankError, "“%s” on the page", text)
		}
	}
	if t.phase == ending {
		add(rankEnd, "the conversation ends: “%s”", t.reason())
	}
	return n
}

// tried is what the gateway says it has done about a silent model.
func (t *conversation) tried() []string {
	names := map[string]string{"nudge": "a nudge", "resume": "a new connection", "fresh": "a fresh session", "none": "nothing more"}
	var steps []string
	for _, m := range t.r.messages("LOG_MESSAGE", t.baseline.over) {
		if step := m.read().Details.Stall; step != "" {
			steps = append(steps, cmp.Or(names[step], step))
		}
	}
	return steps
}

// write prints the table.
func write(w io.Writer, began time.Time, o Options, chosen []fault, seen [][]outcome) error {
	var b harness.Table
	fmt.Fprintf(&b, "`%s` on %s, %v: %s.\n\n", o.Command, began.Format(time.DateOnly), time.Since(began).Round(time.Second), harness.Machine())
	b.Header("fault", "what the person notices", fmt.Sprintf("recovery (median of %d)", o.Trials))
	for i, f := range chosen {
		if len(seen[i]) == 0 {
			b.Row(f.name, "not measured", "–")
			continue
		}
		b.Row(f.name, noticed(seen[i]), f.recovered(seen[i], o.Trials))
	}
	b.WriteString(`
- Each figure is of a whole conversation in real time over the loopback: a Pion caller with a microphone, the gateway, and the
  emulator as Gemini, in processes of their own. The caller says a sentence of 1.5 s and is answered, says one that meets the
  fault, and a third. Each syllable has a pitch of its own, and the model says back what it hears: lost and repeated ones show.
- "Later" is the first packet of the answer, compared with that to the first sentence, half a second after the last word. Least
  and most stand in brackets where they differ by 0.1 s.
- "New link" is from the loss of the connection to Gemini, or its replacement, to the next one that has been set up, as
  SESSION_STATE tells it. It was a millisecond away here; Google is several round trips away.
- At the end the model was asked what it remembers: every turn, unless it says otherwise above.
`)
	_, err := io.WriteString(w, b.String())
	return err
}

// noticed tells what was noticed in the trials: in how many, if not in all.
func noticed(seen []outcome) string {
	type kind struct {
		rank int
		text string
	}
	times := map[kind][]time.Duration{}
	for _, o := range seen {
		for _, n := range o.notices {
			times[kind{n.rank, n.text}] = append(times[kind{n.rank, n.text}], n.took)
		}
	}
	var kinds []kind
	for k := range times {
		kinds = append(kinds, k)
	}
	slices.SortFunc(kinds, func(a, b kind) int { return cmp.Or(a.rank-b.rank, strings.Compare(a.text, b.text)) })
	var texts []string
	for _, k := range kinds {
		text := strings.ReplaceAll(strings.Replace(k.text, "%s", tenths(harness.Quantile(times[k], 0.5)), 1), "%%", "%")
		if n := len(times[k]); n < len(seen) {
			text += fmt.Sprintf(" (in %d of %d)", n, len(seen))
		}
		texts = append(texts, text)
	}
	return cmp.Or(strings.Join(texts, "; "), "nothing")
}

// recovered is the figure of a row.
func (f *fault) recovered(seen []outcome, trials int) string {
	var all, links, back []time.Duration
	tried := ""
	for _, o := range seen {
		all, back = append(all, o.recovery), append(back, o.back)
		if o.relink > 0 {
			links = append(links, o.relink)
		}
		tried = cmp.Or(tried, o.tried)
	}
	middle := harness.Quantile(all, 0.5) // sorts
	text := map[phase]string{
		asking: "answer %s later", resting: "answer %s later", listening: "next answer %s later",
		ending: "told after %s", leaving: "resumed %s after the new WebSocket is asked for",
	}[f.phase]
	text = fmt.Sprintf(text, precise(middle))
	switch least, most := all[0], all[len(all)-1]; {
	case len(all) < trials:
		text += fmt.Sprintf(" (measured %d×)", len(all))
	case most-least >= 100*time.Millisecond:
		text += fmt.Sprintf(" (%s to %s)", precise(least), precise(most))
	}
	if len(links) > 0 && f.phase != ending && f.phase != leaving {
		text += ", new link in " + precise(harness.Quantile(links, 0.5))
	}
	if f.phase == leaving {
		text += ", both ways connected after " + precise(harness.Quantile(back, 0.5))
	}
	if tried != "" {
		text += ", by " + tried
	}
	return text
}

func tenths(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// precise shows hundredths of a second, and below that milliseconds. An answer that comes a little earlier than the one it
// is compared with is not late.
func precise(d time.Duration) string {
	if d = max(d, 0); d < 100*time.Millisecond {
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}
