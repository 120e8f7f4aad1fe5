package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// The targets.
const (
	targetP50    = 18 * time.Millisecond
	targetP95    = 27 * time.Millisecond
	targetCut    = 25 * time.Millisecond // 95th percentile
	targetLoad   = "5.0 ms; 25 % with 100 calls; 1.1 with 200"
	targetMemory = 1126 << 10 // bytes of a call, at 100 calls: 1.1 MB
)

// targetCPU is the CPU time of n calls, as a multiple of the echo server's. With few calls the gateway's own wake-ups weigh more.
func targetCPU(n int) float64 {
	switch {
	case n <= 10:
		return 1.25
	case n <= 50:
		return 1.15
	default:
		return 1.10
	}
}

// measureNumbers measures what calls cost, and prints a table. With all it also measures latency and interruption, and an echo server.
func measureNumbers(ctx context.Context, o options, all bool, stdout io.Writer) error {
	began := time.Now()
	t := newTable("what", "measured", "target")
	notes := []string{fmt.Sprintf("CPU time, memory and lateness are of %v.", o.window)}
	if all {
		note, err := t.latency(ctx, o)
		if err != nil {
			return fmt.Errorf("latency: %w", err)
		}
		notes = append(notes, "In brackets: an echo server that decodes and encodes.", note)
	}
	var failed error // one load, on a machine that others use as well: the rest is still worth something
	measure := func(who string, n int) (w observed) {
		progress("%s with %d calls: %v", who, n, o.window)
		stage, err := o.stage(ctx, who, silence, echoVoice)
		if err == nil {
			w, err = measureLoad(ctx, o, stage, n)
			stage.close()
		}
		if err != nil {
			err = fmt.Errorf("%s with %d calls: %w", who, n, err)
			progress("%v", err)
			failed = errors.Join(failed, err)
		}
		return w
	}
	for _, n := range o.sessions {
		gateway, echo := measure(voxgate, n), observed{}
		if all {
			echo = measure(echoing, n)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		t.load(n, gateway, echo)
	}
	return errors.Join(t.write(stdout, began, notes...), failed)
}

// latency adds the rows of latency and interruption.
func (t *table) latency(ctx context.Context, o options) (note string, err error) {
	progress("latency: %d beeps, %v", o.trials, time.Duration(o.trials)*gatewayTempo.trial)
	stage, err := o.stage(ctx, voxgate, silence)
	if err != nil {
		return "", err
	}
	defer stage.close()
	l, err := measureLatency(ctx, o, stage, gatewayTempo)
	if err != nil {
		return "", err
	}
	t.row("latency, beep to reply: p50 / p95 / p99", three(l.mouthToEar), milliseconds(targetP50)+" / "+milliseconds(targetP95)+" / –")
	t.row("of which after the beep's packet was sent: p50 / p95 / p99", three(l.inside), "–")
	t.row("from the model's “interrupted” to the last of the voice: p50 / p95 / p99", three(l.cut),
		"– / "+milliseconds(targetCut)+" / –")
	return fmt.Sprintf("%d of %d beeps were answered; their packets were sent %s late (p99). %d answers were interrupted.",
		len(l.mouthToEar), o.trials, milliseconds(quantile(l.late, 0.99)), len(l.cut)), nil
}

// three are the quantiles that the tables have.
func three(d []time.Duration) string {
	return fmt.Sprintf("%s / %s / %s", milliseconds(quantile(d, 0.5)), milliseconds(quantile(d, 0.95)), milliseconds(quantile(d, 0.99)))
}

// load adds the rows of n calls. What was not measured is zero.
func (t *table) load(n int, gateway, echo observed) {
	calls := fmt.Sprintf(", %d calls", n)
	if gateway.cpu == 0 {
		t.row("all"+calls, "not measured", "–")
		return
	}
	cpu, memory, target := seconds(gateway.cpu), megabytes(gateway.memory), "–"
	if echo.cpu > 0 {
		cpu += " (" + seconds(echo.cpu) + ")"
		memory += " (" + megabytes(echo.memory) + ")"
		target = fmt.Sprintf("%s (%.2f × echo)", seconds(time.Duration(targetCPU(n)*float64(echo.cpu))), targetCPU(n))
	}
	t.row("CPU per minute of a call"+calls, cpu, target)
	t.row("memory per call"+calls, memory, megabytes(targetMemory))
	t.row("packets late, p95; machine idle; cores of the gateway"+calls,
		fmt.Sprintf("%s; %s; %.2f", milliseconds(gateway.lateness), percent(gateway.idle), gateway.cores), targetLoad)
}
