package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Targets of the tables.
const (
	targetLoad   = "5.0 ms; 25 % with 100 calls; 1.1 with 200"
	targetMemory = 1126 << 10 // bytes per call, with 100 calls: 1.1 MB
)

// measureNumbers measures the cost of calls, and prints a table.
func measureNumbers(ctx context.Context, o options, stdout io.Writer) error {
	began := time.Now()
	t := newTable("what", "measured", "target")
	var failed error // one load may fail on a busy machine; the rest is still useful
	for _, n := range o.sessions {
		progress("%d calls: %v", n, o.window)
		w, err := o.load(ctx, n)
		if err != nil {
			err = fmt.Errorf("%d calls: %w", n, err)
			progress("%v", err)
			failed = errors.Join(failed, err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		t.load(n, w)
	}
	return errors.Join(t.write(stdout, began, fmt.Sprintf("CPU time, memory and lateness are of %v.", o.window)), failed)
}

// load starts a gateway and observes it with n calls.
func (o options) load(ctx context.Context, n int) (observed, error) {
	stage, err := o.stage(ctx, voxgate, silence)
	if err != nil {
		return observed{}, err
	}
	defer stage.close()
	return measureLoad(ctx, o, stage, n)
}

// three returns the median, the 95th and the 99th percentile for a table.
func three(d []time.Duration) string {
	return fmt.Sprintf("%s / %s / %s", milliseconds(quantile(d, 0.5)), milliseconds(quantile(d, 0.95)), milliseconds(quantile(d, 0.99)))
}

// load adds the rows of n calls. A zero w means that nothing was measured.
func (t *table) load(n int, w observed) {
	calls := fmt.Sprintf(", %d calls", n)
	if w.cpu == 0 {
		t.row("all"+calls, "not measured", "–")
		return
	}
	t.row("CPU per minute of a call"+calls, seconds(w.cpu), "–")
	t.row("memory per call"+calls, megabytes(w.memory), megabytes(targetMemory))
	t.row("packets late, p95; machine idle; cores of the gateway"+calls,
		fmt.Sprintf("%s; %s; %.2f", milliseconds(w.lateness), percent(w.idle), w.cores), targetLoad)
}
