// Package network measures what bad networks between a person and the gateway leave of the speech, both ways.
package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"voxgate/gateway/bench/harness"
	"voxgate/gateway/bench/impair"
	"voxgate/gateway/bench/model"
)

// condition is something that befalls the network between a person and the gateway.
type condition struct {
	name     string
	profile  impair.Profile // of both directions, while it lasts
	blackout time.Duration  // at its begin
	moves    bool           // the person's address changes at its begin, and the person restarts ICE
	drift    time.Duration  // per second: how much slower the person's clock is, all the time
	plain    bool           // the person offers neither copies nor retransmission
}

// span is how long the parts of a call take.
type span struct {
	settle, clean, bad, after time.Duration
}

func (s span) whole() time.Duration { return s.settle + s.clean + s.bad + s.after }

// backTime is when the delay must be back at its old value, at the latest.
const backTime = 5 * time.Second

// conditions are in the order of the table.
var conditions = []condition{
	{name: "clean"},
	{name: "1 % lost", profile: impair.Profile{Loss: 0.01}},
	{name: "5 % lost", profile: impair.Profile{Loss: 0.05}},
	{name: "5 % lost, plain Opus", profile: impair.Profile{Loss: 0.05}, plain: true},
	{name: "10 % lost", profile: impair.Profile{Loss: 0.1}},
	{name: "20 % lost", profile: impair.Profile{Loss: 0.2}},
	{name: "20 % lost, plain Opus", profile: impair.Profile{Loss: 0.2}, plain: true},
	{name: "7 % lost in bursts of 4", profile: impair.Profile{Burst: impair.Burst{Loss: 0.07, Length: 4}}},
	{name: "jitter of 100 ms, in order", profile: impair.Profile{Jitter: 100 * time.Millisecond}},
	{name: "jitter of 100 ms, out of order", profile: impair.Profile{Jitter: 100 * time.Millisecond, Overtake: true}},
	{name: "25 % overtake others", profile: impair.Profile{Reorder: 0.25}},
	{name: "5 % come twice", profile: impair.Profile{Duplicate: 0.05}},
	{name: "nothing passes for 2 s", blackout: 2 * time.Second},
	{name: "the person's clock is 200 ppm slow", drift: 200 * time.Microsecond},
	{name: "the person's clock is 200 ppm fast", drift: -200 * time.Microsecond},
	{name: "the person's address changes, ICE restart", moves: true},
}

// atATime is how many calls are made at once: a few percent of a core each.
const atATime = 6

// Options say how much is measured.
type Options struct {
	Command string // as it stands above the table
	Seed    uint64 // of what befalls the networks
	Quick   bool   // a few seconds in all: shows that everything runs
}

// Measure makes the calls and prints a Markdown table to stdout.
func Measure(ctx context.Context, o Options, stdout io.Writer, progress func(string, ...any)) error {
	began := time.Now()
	m, gateway, err := model.Start(ctx, "")
	if err != nil {
		return err
	}
	defer m.Close()
	defer gateway.Stop()
	chosen, parts := slices.Clone(conditions), fullSpan
	if o.Quick {
		chosen, parts = chosen[:1], quickSpan
	}
	calls, failed := callAll(ctx, chosen, gateway, m, o.Seed, parts, progress)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(write(stdout, began, o, chosen, calls), failed)
}

// fullSpan is that of the table: some 700 voiced blocks in each direction.
var fullSpan = span{settle: time.Second, clean: 7 * time.Second, bad: 20 * time.Second, after: backTime + 5*time.Second}

// quickSpan shows that everything runs.
var quickSpan = span{settle: time.Second, clean: 2 * time.Second, bad: 2 * time.Second, after: backTime + time.Second}

// callAll makes the calls of all conditions, a few at a time. Those that failed are nil.
func callAll(ctx context.Context, chosen []condition, gateway *harness.Process, m *model.Model, seed uint64, s span, progress func(string, ...any)) ([]*call, error) {
	calls, errs := make([]*call, len(chosen)), make([]error, len(chosen))
	var lanes sync.WaitGroup
	room := make(chan struct{}, atATime)
	for i := range chosen {
		room <- struct{}{}
		lanes.Go(func() {
			defer func() { <-room }()
			c := &chosen[i]
			progress("%s: %v", c.name, s.whole())
			made, err := c.call(ctx, gateway, m, seed, s)
			if err != nil {
				errs[i] = fmt.Errorf("%s: %w", c.name, err)
				return
			}
			calls[i] = made
		})
	}
	lanes.Wait()
	return calls, errors.Join(errs...)
}
