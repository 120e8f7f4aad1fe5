package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// phase is what the person does when a fault strikes, and so what is measured.
type phase int

const (
	asking    phase = iota // speaks, or has just spoken: how much later the answer comes
	resting                // nothing; speaks as soon as the client is told of it: how much later the answer comes
	listening              // hears the answer: how much later the next one comes
	ending                 // speaks; the conversation ends: from the fault to the reason
	leaving                // has lost the gateway itself: from the new WebSocket to the conversation
)

// fault is one thing that goes wrong. It strikes by the emulator's scenario, or by act in the middle of the second sentence.
type fault struct {
	name     string
	phase    phase
	scenario string
	act      func(*conversation)
	away     time.Duration // leaving: until the person comes back
}

// The connection that a conversation begins with is number 1, and the second sentence on it is where most faults strike.
// Speech is recognized 60 ms after it began and its end 500 ms after the last word.
const (
	midSentence = 700 * time.Millisecond
	inSentence  = `{"on": "speechStart", "nth": 2, "after": "600ms", "connections": [1], `
	atQuestion  = `{"on": "speechEnd", "nth": 2, "connections": [1], `
	inAnswer    = `{"on": "answer", "nth": 2, "after": "600ms", "connections": [1], `
)

// faults are in the order of the table; those that take longest stand last.
var faults = []fault{
	{name: "planned end of a connection (goAway) while nobody speaks", phase: resting, scenario: `{"connectionAge": "12s", "goAwayLead": "6s"}`},
	{name: "goAway while the person speaks", scenario: `{"faults": [` + inSentence + `"send": "{\"goAway\":{\"timeLeft\":\"20s\"}}"}]}`},
	{
		name: "TCP lost while nobody speaks", phase: resting,
		scenario: `{"faults": [{"on": "turnComplete", "nth": 1, "after": "1s", "connections": [1], "drop": true}]}`,
	},
	{name: "TCP lost while the person speaks", scenario: `{"faults": [` + inSentence + `"drop": true}]}`},
	{name: "1011 while the person speaks", scenario: `{"faults": [` + inSentence + `"close": 1011}]}`},
	{name: "1008 “aborted” while the person speaks", scenario: `{"faults": [` + inSentence + `"close": 1008}]}`},
	{name: "1011 right after the question", scenario: `{"faults": [` + atQuestion + `"close": 1011}]}`},
	{name: "TCP lost in mid-frame while the model speaks", phase: listening, scenario: `{"faults": [` + inAnswer + `"dropMidFrame": true}]}`},
	{
		name:     "TCP lost while the person speaks, and Gemini has forgotten the session",
		scenario: `{"handleTTL": "1ns", "faults": [` + inSentence + `"drop": true}]}`,
	},
	{name: "Gemini refuses a message (1007)", phase: ending, scenario: `{"faults": [` + atQuestion + `"close": 1007}]}`},
	{
		name: "quota used up (1011)", phase: ending,
		scenario: `{"faults": [` + atQuestion + `"close": 1011, "reason": "You exceeded your current quota, please check your plan and billing details."}]}`,
	},
	{name: "network to Gemini swallows everything for 4 s", act: func(c *conversation) { c.stopEmulator(4 * time.Second) }},
	{name: "Gemini out of reach for 3 s", act: func(c *conversation) { c.relay.cut(3 * time.Second) }},
	{name: "Gemini out of reach for 8 s", act: func(c *conversation) { c.relay.cut(8 * time.Second) }},
	{
		name:     "TCP lost while the person speaks, and 429 at the first dial",
		scenario: `{"faults": [` + inSentence + `"drop": true}, {"on": "handshake", "connections": [2], "http": 429}]}`,
	},
	{name: "client gone for 7 s", phase: leaving, away: 7 * time.Second},
	{name: "no answer to a question, socket open", scenario: `{"faults": [` + atQuestion + `"stall": "forever"}]}`},
	{name: "Gemini reads no more while the person speaks", scenario: `{"faults": [` + inSentence + `"stall": "forever", "deaf": true}]}`},
	{name: "Gemini out of reach for good", phase: ending, act: func(c *conversation) { c.relay.cut(time.Hour) }},
}

// sideBySide is how many trials run at a time. A conversation takes a few percent of a core: they do not disturb each other.
const sideBySide = 3

// measureFaults holds a few conversations with each fault and prints a table.
func measureFaults(ctx context.Context, o options, faults []fault, stdout io.Writer) error {
	began := time.Now()
	var trials []int // numbers of faults, the longest first, so that none is left over
	for i := range slices.Backward(faults) {
		trials = append(trials, slices.Repeat([]int{i}, o.trials)...)
	}
	seen, failed := make([][]outcome, len(faults)), make([]error, len(faults))
	var mu sync.Mutex
	atOnce(sideBySide, len(trials), func(n int) {
		i := trials[n]
		f := faults[i]
		result, err := f.try(ctx, o)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed[i] = errors.Join(failed[i], fmt.Errorf("%s: %w", f.name, err))
			progress("%s: %v", f.name, err)
			return
		}
		progress("%s: %v later, %v", f.name, result.recovery.Round(time.Millisecond), result.notices)
		seen[i] = append(seen[i], result)
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t := newTable("fault", "what the person notices", fmt.Sprintf("the answer comes later by (median of %d)", o.trials))
	for i, f := range faults {
		if len(seen[i]) == 0 {
			t.row(f.name, "not measured", "–")
			continue
		}
		t.row(f.name, noticed(seen[i]), f.recovered(seen[i]))
	}
	return errors.Join(append(failed, t.write(stdout, began))...)
}

// outcome is what a trial has shown.
type outcome struct {
	recovery time.Duration
	notices  []notice // in the order in which they are told
	tried    string   // by the watch for a silent model
}

// notice is something that a person notices of a fault. In text, %s stands for how long.
type notice struct {
	text string
	took time.Duration
}

// noticed tells what was noticed in the trials: in how many, if not in all.
func noticed(seen []outcome) string {
	var order []string
	times := map[string][]time.Duration{}
	for _, o := range seen {
		for _, n := range o.notices {
			if times[n.text] == nil {
				order = append(order, n.text)
			}
			times[n.text] = append(times[n.text], n.took)
		}
	}
	var texts []string
	for _, text := range order {
		told := strings.Replace(text, "%s", fmt.Sprintf("%.1f s", quantile(times[text], 0.5).Seconds()), 1)
		if n := len(times[text]); n < len(seen) {
			told += fmt.Sprintf(" (in %d of %d)", n, len(seen))
		}
		texts = append(texts, told)
	}
	return cmp.Or(strings.Join(texts, "; "), "nothing")
}

// recovered is the figure of a row.
func (f *fault) recovered(seen []outcome) string {
	var all []time.Duration
	tried := ""
	for _, o := range seen {
		all, tried = append(all, o.recovery), cmp.Or(tried, o.tried)
	}
	median := max(quantile(all, 0.5), 0) // an answer that comes a little earlier than the one it is compared with is not late
	took := seconds(median)
	if median < 100*time.Millisecond {
		took = fmt.Sprintf("%d ms", median.Round(time.Millisecond).Milliseconds())
	}
	text := map[phase]string{
		asking: "%s", resting: "%s", listening: "%s (the next one)", ending: "told after %s", leaving: "resumed %s after its new WebSocket",
	}[f.phase]
	text = fmt.Sprintf(text, took)
	if tried != "" {
		text += ", by " + tried
	}
	return text
}

// stopEmulator halts the model for a while: what comes to it and from it stands still, and nobody is told.
func (c *conversation) stopEmulator(d time.Duration) {
	c.emulator.cmd.Process.Signal(syscall.SIGSTOP)
	time.AfterFunc(d, func() { c.emulator.cmd.Process.Signal(syscall.SIGCONT) })
}
