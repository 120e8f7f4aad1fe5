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
	targetP50   = 18 * time.Millisecond
	targetP95   = 27 * time.Millisecond
	targetDoor  = 50 * time.Millisecond // 95th percentile
	targetAdded = 5 * time.Millisecond  // over the first door, at the median
	targetCut   = 25 * time.Millisecond // 95th percentile
	targetCPU   = 1.15                  // times that of the echo server
	targetLoad  = "5.0 ms; 25 % with 100 calls; 1.1 with 200"
	// targetMemory is of a call in bytes, with most calls: 1.1 MB.
	targetMemory = 1126 << 10
)

// measureNumbers measures latency, interruption and what calls cost, and prints a table.
func measureNumbers(ctx context.Context, o options, stdout io.Writer) error {
	began := time.Now()
	t := newTable("what", "measured", "target")
	notes := []string{fmt.Sprintf("CPU time, memory and lateness are of %v, in brackets those of an echo server that decodes and encodes.", o.window)}
	if !o.capacity {
		note, err := t.latencies(ctx, o)
		if err != nil {
			return err
		}
		notes = append(notes, note)
	}
	var failed error // one load, on a machine that others use as well: the rest is still worth something
	measure := func(who string, echo bool, n int) observed {
		progress("%s with %d calls: %v", who, n, o.window)
		w, err := measureLoad(ctx, o, echo, nil, n)
		if err != nil {
			err = fmt.Errorf("%s with %d calls: %w", who, n, err)
			progress("%v", err)
			failed = errors.Join(failed, err)
		}
		return w
	}
	for _, n := range o.sessions {
		gateway, echo := measure("gateway", false, n), observed{}
		if !o.capacity {
			echo = measure("echo", true, n)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		t.load(n, gateway, echo)
	}
	return errors.Join(t.write(stdout, began, notes...), failed)
}

// latencies adds the rows of latency and interruption.
func (t *table) latencies(ctx context.Context, o options) (note string, err error) {
	progress("latency: %d beeps, %v", o.trials, time.Duration(o.trials)*trialLength)
	l, err := measureLatency(ctx, o, nil, frame)
	if err != nil {
		return "", fmt.Errorf("latency: %w", err)
	}
	short, err := measureLatency(ctx, o, nil, frame/2)
	if err != nil {
		return "", fmt.Errorf("latency with packets of 10 ms: %w", err)
	}
	t.row("latency, beep to reply: p50 / p95 / p99", three(l.mouthToEar), fmt.Sprintf("%s / %s / –", milliseconds(targetP50), milliseconds(targetP95)))
	t.row("of which after the beep's packet was sent: p50 / p95 / p99", three(l.inside), "–")
	t.row("beep to reply where the caller sends packets of 10 ms: p50 / p95 / p99", three(short.mouthToEar), "–")
	t.row("from the model's “interrupted” to the last of the voice: p50 / p95 / p99", three(l.cut), fmt.Sprintf("– / %s / –", milliseconds(targetCut)))
	progress("doors by WebSocket: %d answers each", o.trials/2)
	took, err := measureDoors(ctx, o)
	if err != nil {
		return "", fmt.Errorf("doors: %w", err)
	}
	t.row("from the model's voice to the first AUDIO_CHUNK of a client by WebSocket: p50 / p95 / p99", three(took[0]), "–")
	t.row("the same to the first frame of a client of the VOX door: p50 / p95 / p99", three(took[1]), fmt.Sprintf("– / %s / –", milliseconds(targetDoor)))
	t.row("the same to the first message of a client of the Live door: p50 / p95 / p99", three(took[2]), milliseconds(quantile(took[0], 0.5)+targetAdded)+" / – / –")
	t.row("the same to the first message of a client of OpenAI's: p50 / p95 / p99", three(took[3]), milliseconds(quantile(took[0], 0.5)+targetAdded)+" / – / –")
	progress("doors by WebSocket with %d conversations: %v each", doorCalls, o.window)
	var costs []string
	for _, d := range []door{doors[3], doors[0]} {
		cpu, err := measureDoorCost(ctx, o, d)
		if err != nil {
			return "", fmt.Errorf("cost of a door: %w", err)
		}
		costs = append(costs, seconds(cpu))
	}
	t.row(fmt.Sprintf("CPU per minute of a conversation by WebSocket, %d of them: a client of OpenAI's (the first door)", doorCalls), costs[0]+" ("+costs[1]+")", "–")
	if err := t.posted(ctx, o, l); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d of %d beeps were answered; their packets were sent %s late (p99). %d answers were interrupted.",
		len(l.mouthToEar), o.trials, milliseconds(quantile(l.late, 0.99)), len(l.cut)), nil
}

// three are the quantiles that the tables have.
func three(d []time.Duration) string {
	return fmt.Sprintf("%s / %s / %s", milliseconds(quantile(d, 0.5)), milliseconds(quantile(d, 0.95)), milliseconds(quantile(d, 0.99)))
}

// posted adds the rows of WebRTC that begins by a request, beside the first door's.
func (t *table) posted(ctx context.Context, o options, first latency) error {
	o.trials /= 2
	for _, by := range []*posted{whip, realtime} {
		progress("latency by %s: %d beeps", by.who, o.trials)
		l, err := measureLatency(ctx, o, by, frame)
		if err != nil {
			return fmt.Errorf("latency by %s: %w", by.who, err)
		}
		t.row(fmt.Sprintf("latency, beep to reply, by %s: p50 / p95 / p99", by.who), three(l.mouthToEar), milliseconds(quantile(first.mouthToEar, 0.5)+targetAdded)+" / – / –")
	}
	var costs []string
	n := o.sessions[0]
	for _, by := range []*posted{whip, realtime, nil} {
		progress("doors by WebRTC with %d calls: %v each", n, o.window)
		w, err := measureLoad(ctx, o, false, by, n)
		if err != nil {
			return fmt.Errorf("cost of a call: %w", err)
		}
		costs = append(costs, seconds(w.cpu))
	}
	t.row(fmt.Sprintf("CPU per minute of a call by WebRTC, %d calls: WHIP; OpenAI's API (the first door)", n), fmt.Sprintf("%s; %s (%s)", costs[0], costs[1], costs[2]), "–")
	return nil
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
		target = fmt.Sprintf("%s (%.2f × echo)", seconds(time.Duration(targetCPU*float64(echo.cpu))), targetCPU)
	}
	t.row("CPU per minute of a call"+calls, cpu, target)
	t.row("memory per call"+calls, memory, megabytes(targetMemory))
	t.row("packets late, p95; machine idle; cores of the gateway"+calls,
		fmt.Sprintf("%s; %s; %.2f", milliseconds(gateway.lateness), percent(gateway.idle), gateway.cores), targetLoad)
}
