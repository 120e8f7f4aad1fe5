// Package bench measures the gateway on the machine it runs on: the latency it adds, the CPU time and the memory a call
// costs, and what a person notices of faults. The gateway, the emulator and, to compare with, a bare Pion echo server run as child processes of the same
// binary; the callers are Pion peers in this one.
package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// options say how much is measured.
type options struct {
	trials   int
	sessions []int
	window   time.Duration
	settle   time.Duration // from the last connection to the window's begin
	answered float64       // the least share of the replies that must have come for a figure to count
	faults   bool          // is what is measured
	quick    bool
}

// Run measures and prints a Markdown table to stdout; its progress goes to stderr. It returns an error instead of a table
// when a call failed or replies were missing.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == echoCommand {
		return serveEcho(ctx, stderr)
	}
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	progress := func(format string, args ...any) { fmt.Fprintf(stderr, "bench: "+format+"\n", args...) }
	command := strings.Join(append([]string{"gateway bench"}, args...), " ")
	if o.faults {
		return measureFaults(ctx, o, command, stdout, progress)
	}
	r := results{command: command, machine: machine(), began: time.Now(), options: o}
	progress("latency: %d beeps, %v", o.trials, time.Duration(o.trials)*trialLength)
	if r.latency, err = measureLatency(ctx, o); err != nil {
		return fmt.Errorf("latency: %w", err)
	}
	for _, n := range o.sessions {
		for _, s := range []struct {
			name  string
			start func(context.Context) (*service, error)
			into  *[]cost
		}{
			{"gateway", func(ctx context.Context) (*service, error) { return startGateway(ctx, "parrot") }, &r.gateway},
			{"echo", startEcho, &r.echo},
		} {
			progress("%s with %d calls: %v", s.name, n, o.window)
			c, err := measureCost(ctx, o, n, s.start)
			if err != nil {
				return fmt.Errorf("%s with %d calls: %w", s.name, n, err)
			}
			*s.into = append(*s.into, c)
		}
	}
	return r.write(stdout)
}

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{sessions: []int{10, 50}, window: 20 * time.Second, settle: 3 * time.Second, answered: 0.99}
	f := flag.NewFlagSet("gateway bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.IntVar(&o.trials, "trials", 0, "`how many` beeps the latency is measured with, half a second each (default 200), or conversations with each fault (default 3)")
	f.BoolVar(&o.faults, "faults", false, "measure what a person notices of faults between gateway and Gemini, in place of latency and cost")
	f.Func("sessions", "`numbers` of calls at once to measure the cost of, comma separated (default 10,50)", func(v string) error {
		o.sessions = nil
		for _, item := range strings.Split(v, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(item))
			if err != nil || n < 1 {
				return fmt.Errorf("%q is not a number of calls", item)
			}
			o.sessions = append(o.sessions, n)
		}
		slices.Sort(o.sessions)
		return nil
	})
	f.DurationVar(&o.window, "window", o.window, "how `long` each cost is measured")
	f.BoolVar(&o.quick, "quick", false, "a few seconds in all: shows that everything runs, the figures mean little")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	given := false
	f.Visit(func(set *flag.Flag) { given = given || set.Name == "trials" })
	switch {
	case o.quick && o.faults:
		o.trials = 1
	case o.quick:
		o.trials, o.sessions, o.window, o.settle = 4, []int{2}, time.Second, turnLength+200*time.Millisecond
		o.answered = 0.8 // one hiccup of the machine is a large share of so short a time
	case given:
	case o.faults:
		o.trials = 3
	default:
		o.trials = 200
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.trials < 1:
		return o, errors.New("trials: must be at least 1")
	case o.window < time.Second:
		return o, errors.New("window: must be at least 1s")
	}
	return o, nil
}
