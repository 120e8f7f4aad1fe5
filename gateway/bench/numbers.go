package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// The targets.
const (
	targetP50  = 18 * time.Millisecond
	targetP95  = 27 * time.Millisecond
	targetCut  = 25 * time.Millisecond // 95th percentile
	targetCPU  = 1.15                  // times that of the echo server that decodes and encodes
	targetLoad = "5.0 ms; 25 % with 100 calls; 1.1 with 200"
	// targetMemory is of a call in bytes, with most calls: 1.1 MB.
	targetMemory = 1126 << 10
)

// measureNumbers measures latency, interruption and what calls cost, and prints a table.
func measureNumbers(ctx context.Context, o options, stdout io.Writer) error {
	began := time.Now()
	t := newTable("what", "measured", "target")
	notes := []string{fmt.Sprintf("CPU time, memory and lateness are of %v.", o.window)}
	if !o.capacity {
		note, err := t.latencies(ctx, o)
		if err != nil {
			return err
		}
		notes = append(notes, note)
	}
	servers := []server{gatewayServer}
	if !o.capacity {
		servers = append(servers, echoServer)
	}
	if o.floor {
		servers = append(servers, codecServer)
	}
	least := 1.0
	var failed error // one load, on a machine that others use as well: the rest is still worth something
	for _, n := range o.sessions {
		var seen []observed
		for _, which := range servers {
			progress("%v with %d calls: %v", which, n, o.window)
			profile := ""
			if which == gatewayServer && n == slices.Max(o.sessions) {
				profile = o.profile
			}
			w, err := measureLoad(ctx, o, which, n, profile)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				err = fmt.Errorf("%v with %d calls: %w", which, n, err)
				progress("%v", err)
				failed = errors.Join(failed, err)
			}
			if w.cpu > 0 {
				least = min(least, w.share)
			}
			seen = append(seen, w)
		}
		t.load(n, servers, seen)
	}
	notes = append(notes, fmt.Sprintf("Each caller got at least %s of its packets.", percent(least)))
	return errors.Join(t.write(stdout, o, began, notes...), failed)
}

// latencies adds the rows of latency and interruption.
func (t *table) latencies(ctx context.Context, o options) (note string, err error) {
	progress("latency: %d beeps, %v", o.trials, time.Duration(o.trials)*trialLength)
	l, err := measureLatency(ctx, o)
	if err != nil {
		return "", fmt.Errorf("latency: %w", err)
	}
	three := func(d []time.Duration) string {
		return fmt.Sprintf("%s / %s / %s", milliseconds(quantile(d, 0.5)), milliseconds(quantile(d, 0.95)), milliseconds(quantile(d, 0.99)))
	}
	t.row("latency, beep to reply: p50 / p95 / p99", three(l.mouthToEar), fmt.Sprintf("%s / %s / –", milliseconds(targetP50), milliseconds(targetP95)))
	t.row("of which after the beep's packet was sent: p50 / p95 / p99", three(l.inside), "–")
	t.row("from the model's “interrupted” to the last of the voice: p50 / p95 / p99", three(l.cut), fmt.Sprintf("– / %s / –", milliseconds(targetCut)))
	return fmt.Sprintf("%d of %d beeps were answered; their packets were sent %s late (p99). %d answers were interrupted.",
		len(l.mouthToEar), o.trials, milliseconds(quantile(l.late, 0.99)), len(l.cut)), nil
}

// load adds the rows of n calls: what the gateway needs, and in brackets the echo servers that were measured.
func (t *table) load(n int, servers []server, seen []observed) {
	row := func(what string, text func(observed) string, target string) {
		var all, others []string
		for i, w := range seen {
			if w.cpu > 0 {
				all = append(all, text(w))
			} else {
				all = append(all, "not measured")
			}
			if i > 0 {
				others = append(others, servers[i].String())
			}
		}
		what, measured := fmt.Sprintf("%s, %d calls", what, n), all[0]
		if len(others) > 0 {
			what += " (" + strings.Join(others, "; ") + ")"
			measured += " (" + strings.Join(all[1:], "; ") + ")"
		}
		t.row(what, measured, target)
	}
	target := "–"
	if i := slices.Index(servers, codecServer); i >= 0 && seen[i].cpu > 0 {
		target = fmt.Sprintf("%s (%.2f × echo with codecs)", seconds(time.Duration(targetCPU*float64(seen[i].cpu))), targetCPU)
	}
	row("CPU per minute of a call", func(w observed) string { return seconds(w.cpu) }, target)
	row("memory per call", func(w observed) string { return megabytes(w.memory) }, megabytes(targetMemory))
	w, late := seen[0], "not measured"
	if w.cpu > 0 {
		late = fmt.Sprintf("%s; %s; %.2f", milliseconds(w.lateness), percent(w.idle), w.cores)
	}
	t.row(fmt.Sprintf("packets late, p95; machine idle; cores of the gateway, %d calls", n), late, targetLoad)
}
