package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Targets for the values in the tables.
const (
	targetLoad   = "5.0 ms; 25 % with 100 calls; 1.1 with 200"
	targetMemory = 1126 << 10 // bytes per call, with 100 calls: 1.1 MB
)

// turnCalls is the number of calls of measureTurns. It is low enough not to overload the machine, because the costs of
// two overloaded servers cannot be compared.
const turnCalls = 50

// measureCallCosts measures the cost of calls, and prints a table.
func measureCallCosts(ctx context.Context, o options, stdout io.Writer) error {
	began := time.Now()
	t := newTable("what", "measured", "target")
	var failed error // one load may fail on a busy machine; the figures of other loads are still useful
	for _, n := range o.sessions {
		logProgress("%d calls: %v", n, o.window)
		w, err := o.measureCalls(ctx, n)
		if err != nil {
			err = fmt.Errorf("%d calls: %w", n, err)
			logProgress("%v", err)
			failed = errors.Join(failed, err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		t.addLoadRows(n, w)
	}
	return errors.Join(t.writeMarkdown(stdout, began, fmt.Sprintf("CPU time, memory and lateness are of %v.", o.window)), failed)
}

// measureCalls starts a gateway and observes it with n calls.
func (o options) measureCalls(ctx context.Context, n int) (observed, error) {
	stage, err := o.startStage(ctx, voxgate, silence)
	if err != nil {
		return observed{}, err
	}
	defer stage.close()
	return measureLoad(ctx, o, stage, n)
}

// measureTurns compares the cost of calls in which the model decides about turns with calls in which the gateway does,
// and prints the medians. Each round measures both kinds once.
func measureTurns(ctx context.Context, o options, rounds int, stdout io.Writer) error {
	began := time.Now()
	n := min(turnCalls, o.sessions[0])
	o.window /= time.Duration(rounds)
	cpu := map[string][]time.Duration{}
	for range rounds {
		for _, o.turns = range []string{"model", "gateway"} {
			logProgress("%d calls, turns by the %s: %v", n, o.turns, o.window)
			w, err := o.measureCalls(ctx, n)
			if err != nil {
				return fmt.Errorf("%d calls, turns by the %s: %w", n, o.turns, err)
			}
			cpu[o.turns] = append(cpu[o.turns], w.cpu)
		}
	}
	model, gateway := quantile(cpu["model"], 0.5), quantile(cpu["gateway"], 0.5)
	t := newTable("turns are decided by", "CPU per minute of a call", "target")
	t.addRow("the model", formatSeconds(model), "–")
	t.addRow("the gateway", formatSeconds(gateway), formatSeconds(model+model/5))
	return t.writeMarkdown(stdout, began, fmt.Sprintf(
		"%d calls with a sound of 0.2 s in 4 s over an answer; medians of %d windows of %v each, in turn.", n, rounds, o.window))
}

// formatPercentiles returns the median, the 95th and the 99th percentile for a table.
func formatPercentiles(d []time.Duration) string {
	return fmt.Sprintf("%s / %s / %s",
		formatMilliseconds(quantile(d, 0.5)), formatMilliseconds(quantile(d, 0.95)), formatMilliseconds(quantile(d, 0.99)))
}

// addLoadRows adds the rows of n calls. If w is zero, the rows show that nothing was measured.
func (t *table) addLoadRows(n int, w observed) {
	calls := fmt.Sprintf(", %d calls", n)
	if w.cpu == 0 {
		t.addRow("all"+calls, "not measured", "–")
		return
	}
	t.addRow("CPU per minute of a call"+calls, formatSeconds(w.cpu), "–")
	t.addRow("memory per call"+calls, formatMegabytes(w.memory), formatMegabytes(targetMemory))
	t.addRow("packets late, p95; machine idle; cores of the gateway"+calls,
		fmt.Sprintf("%s; %s; %.2f", formatMilliseconds(w.lateness), formatPercent(w.idle), w.cores), targetLoad)
}
