// Package fault measures what a person notices when something between the gateway and Gemini breaks, or when their own
// connection does.
package fault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// phase is what the person does when a fault strikes, and so what is measured.
type phase int

const (
	asking    phase = iota // speaks, or has just spoken: how much later the answer comes
	resting                // nothing; speaks as soon as it shows: how much later the answer comes
	listening              // hears the answer: how much later the next one comes
	ending                 // speaks; the conversation ends: from the fault to the reason
	leaving                // has lost the gateway itself: from the new WebSocket to the conversation
)

// fault is one thing that goes wrong. It strikes by the emulator's scenario or by act.
type fault struct {
	name     string
	phase    phase
	scenario string
	act      func(*conversation) // in the middle of the second sentence
	away     time.Duration
	hangs    bool // the lost connections are not closed
	once     bool // takes long and is the same each time
	quick    bool // is measured by Options.Quick as well
}

// The connection that a conversation begins with is number 1, and the second sentence on it is where most faults strike.
// Speech is recognized 60 ms after it began and its end 500 ms after the last word.
const midSentence = 700 * time.Millisecond

// faults are in the order of the table; those that take longest stand last.
var faults = []fault{
	{
		name: "planned end of a connection (goAway) while nobody speaks", phase: resting,
		scenario: `{"connectionAge": "12s", "goAwayLead": "6s"}`,
	},
	{
		name: "goAway while the person speaks", phase: asking,
		scenario: `{"faults": [{"on": "speechStart", "nth": 2, "after": "600ms", "connections": [1], "send": "{\"goAway\":{\"timeLeft\":\"20s\"}}"}]}`,
	},
	{
		name: "TCP lost while nobody speaks", phase: resting,
		scenario: `{"faults": [{"on": "turnComplete", "nth": 1, "after": "1s", "connections": [1], "drop": true}]}`,
	},
	{
		name: "TCP lost while the person speaks", phase: asking, quick: true,
		scenario: `{"faults": [{"on": "speechStart", "nth": 2, "after": "600ms", "connections": [1], "drop": true}]}`,
	},
	{
		name: "1011 while the person speaks", phase: asking,
		scenario: `{"faults": [{"on": "speechStart", "nth": 2, "after": "600ms", "connections": [1], "close": 1011}]}`,
	},
	{
		name: "1008 “aborted” while the person speaks", phase: asking,
		scenario: `{"faults": [{"on": "speechStart", "nth": 2, "after": "600ms", "connections": [1], "close": 1008}]}`,
	},
	{
		name: "1011 right after the question", phase: asking,
		scenario: `{"faults": [{"on": "speechEnd", "nth": 2, "connections": [1], "close": 1011}]}`,
	},
	{
		name: "TCP lost in mid-frame while the model speaks", phase: listening, quick: true,
		scenario: `{"faults": [{"on": "answer", "nth": 2, "after": "600ms", "connections": [1], "dropMidFrame": true}]}`,
	},
	{
		name: "Gemini falls silent in mid-answer, socket open", phase: listening,
		scenario: `{"faults": [{"on": "answer", "nth": 2, "after": "600ms", "connections": [1], "stall": "forever"}]}`,
	},
	{
		name: "TCP lost while the person speaks, and Gemini has forgotten the session", phase: asking,
		scenario: `{"handleTTL": "1ns", "faults": [{"on": "speechStart", "nth": 2, "after": "600ms", "connections": [1], "drop": true}]}`,
	},
	{
		name: "Gemini refuses a message (1007)", phase: ending, quick: true,
		scenario: `{"faults": [{"on": "speechEnd", "nth": 2, "connections": [1], "close": 1007}]}`,
	},
	{
		name: "quota used up (1011)", phase: ending,
		scenario: `{"faults": [{"on": "speechEnd", "nth": 2, "connections": [1], "close": 1011, "reason": "You exceeded your current quota, please check your plan and billing details."}]}`,
	},
	{name: "network to Gemini swallows everything for 4 s", phase: asking, act: func(t *conversation) { t.wire.swallow(4 * time.Second) }},
	{name: "Gemini out of reach for 3 s", phase: asking, act: func(t *conversation) { t.wire.cut(3 * time.Second) }, quick: true},
	{name: "Gemini out of reach for 8 s", phase: asking, act: func(t *conversation) { t.wire.cut(8 * time.Second) }},
	{
		name: "TCP lost while the person speaks, and 429 at the first dial", phase: asking,
		scenario: `{"faults": [{"on": "speechStart", "nth": 2, "after": "600ms", "connections": [1], "drop": true}, {"on": "handshake", "connections": [2], "http": 429}]}`,
	},
	{name: "client gone for 1 s, its old connections hang (a change of network)", phase: leaving, away: time.Second, hangs: true},
	{name: "client gone for 7 s, its old connections are closed", phase: leaving, away: 7 * time.Second},
	{
		name: "no answer to a question, socket open", phase: asking,
		scenario: `{"faults": [{"on": "speechEnd", "nth": 2, "connections": [1], "stall": "forever"}]}`,
	},
	{
		name: "Gemini reads no more while the person speaks", phase: asking,
		scenario: `{"faults": [{"on": "speechStart", "nth": 2, "after": "600ms", "connections": [1], "stall": "forever", "deaf": true}]}`,
	},
	{name: "Gemini out of reach for good", phase: ending, act: func(t *conversation) { t.wire.cut(time.Hour) }, once: true},
}

// sideBySide is how many trials run at a time. A conversation takes a few percent of a core: they do not disturb each other.
const sideBySide = 3

var errTooLate = errors.New("too late")

// Options say how much is measured.
type Options struct {
	Command string // as it stands above the table
	Trials  int    // of each fault
	Quick   bool   // a few faults only
}

// Measure makes the trials of the faults and prints a Markdown table to stdout.
func Measure(ctx context.Context, o Options, stdout io.Writer, progress func(string, ...any)) error {
	chosen := slices.Clone(faults)
	if o.Quick {
		chosen = slices.DeleteFunc(chosen, func(f fault) bool { return !f.quick })
	}
	began := time.Now()
	seen, failed := make([][]outcome, len(chosen)), make([]error, len(chosen))
	var mu sync.Mutex
	var lanes sync.WaitGroup
	room := make(chan struct{}, sideBySide)
	try := func(i int) {
		defer func() { <-room }()
		f := &chosen[i]
		result, err := f.try(ctx)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed[i] = errors.Join(failed[i], fmt.Errorf("%s: %w", f.name, err))
			progress("%s: %v", f.name, err)
			return
		}
		progress("%s: %v; %s", f.name, result.recovery.Round(time.Millisecond), result.remarks)
		seen[i] = append(seen[i], result)
	}
	for i, f := range slices.Backward(chosen) { // the longest first, so that none is left over
		for n := range o.Trials {
			if n > 0 && f.once {
				break
			}
			room <- struct{}{}
			lanes.Go(func() { try(i) })
		}
	}
	lanes.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := write(stdout, began, o, chosen, seen); err != nil {
		return err
	}
	return errors.Join(failed...)
}
