// Package bench measures the gateway on the machine it runs on: the latency it adds, the CPU time and the memory a call
// costs, and, in packages of their own, what a person notices of bad networks and of faults. The gateway, the emulator and, to
// compare with, a bare Pion echo server run as child processes of the same binary; the callers are Pion peers in this one.
package bench

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"voxgate/gateway/bench/fault"
	"voxgate/gateway/bench/harness"
	"voxgate/gateway/bench/network"
	"voxgate/gateway/bench/peer"
)

// options say how much is measured.
type options struct {
	trials   int
	sessions []int
	window   time.Duration
	settle   time.Duration // from the last connection to the window's begin
	answered float64       // the least share of the replies that must have come for a figure to count
	faults   bool          // is what is measured
	impaired bool          // is what is measured
	seed     uint64        // of what befalls the network
	capacity bool          // is what is measured
	floor    bool          // the echo server with codecs is measured as well
	browser  bool          // the callers offer what Chromium does
	quick    bool
	profile  string // file for a CPU profile of the gateway with the most calls; "": none
}

// Run measures and prints a Markdown table to stdout; its progress goes to stderr. When a call failed or replies were missing
// it returns an error, and there is no table, or a gap in it. Serve is the program's own `serve`: the gateway that writes a
// profile is a hidden command of the benchmark.
func Run(ctx context.Context, args []string, serve func(context.Context) error, stdout, stderr io.Writer) error {
	switch {
	case len(args) > 0 && args[0] == echoCommand:
		return peer.ServeEcho(ctx, slices.Contains(args[1:], codecsFlag), stderr)
	case len(args) > 0 && args[0] == linkCommand:
		return serveLink(ctx, os.Stdin, stdout)
	case len(args) > 1 && args[0] == profiledCommand:
		return harness.Profiled(ctx, args[1], serve)
	}
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	progress := func(format string, args ...any) { fmt.Fprintf(stderr, "bench: "+format+"\n", args...) }
	command := strings.Join(append([]string{"gateway bench"}, args...), " ")
	switch {
	case o.faults:
		return fault.Measure(ctx, fault.Options{Command: command, Trials: o.trials, Quick: o.quick}, stdout, progress)
	case o.impaired:
		return network.Measure(ctx, network.Options{Command: command, Seed: o.seed, Quick: o.quick}, stdout, progress)
	case o.capacity:
		return measureCapacity(ctx, o, command, stdout, progress)
	}
	return measureFigures(ctx, o, command, stdout, progress)
}

// measureFigures measures latency and cost.
func measureFigures(ctx context.Context, o options, command string, stdout io.Writer, progress func(string, ...any)) error {
	r := results{command: command, machine: harness.Machine(), began: time.Now(), options: o}
	var err error
	progress("latency: %d beeps, %v", o.trials, time.Duration(o.trials)*trialLength)
	if r.latency, err = measureLatency(ctx, o); err != nil {
		return fmt.Errorf("latency: %w", err)
	}
	progress("interruption: %d answers, %v", o.cuts(), time.Duration(o.cuts())*(voiceBefore+silenceAfter))
	if r.cut, err = measureInterruption(ctx, o.cuts()); err != nil {
		return fmt.Errorf("interruption: %w", err)
	}
	var failed error // a cell, on a machine that others use as well: the rest is still worth something
	for _, n := range o.sessions {
		for _, s := range []struct {
			name  string
			start func(context.Context) (*service, error)
			into  *[]cost
			skip  bool
		}{
			{"gateway", func(ctx context.Context) (*service, error) {
				return startGateway(ctx, "parrot", o.profileOf(n))
			}, &r.gateway, false},
			{"echo", func(ctx context.Context) (*service, error) { return startEcho(ctx) }, &r.echo, false},
			{"echo with codecs", func(ctx context.Context) (*service, error) { return startEcho(ctx, codecsFlag) }, &r.codecs, !o.floor},
		} {
			if s.skip {
				continue
			}
			progress("%s with %d calls: %v", s.name, n, o.window)
			c, err := measureCost(ctx, o, n, s.start)
			if err != nil {
				err = fmt.Errorf("%s with %d calls: %w", s.name, n, err)
				failed = errors.Join(failed, err)
				progress("%v", err)
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			c.calls = n
			*s.into = append(*s.into, c)
		}
	}
	return errors.Join(r.write(stdout), failed)
}

// cuts is how many answers are interrupted: a fifth of the beeps.
func (o options) cuts() int { return max(2, o.trials/5) }

// offers are what the callers whose cost is measured offer.
func (o options) offers() peer.Features {
	if o.browser {
		return peer.Chromium
	}
	return peer.NACK
}

// profileOf is the file for the profile of a gateway with n calls; "": none.
func (o options) profileOf(n int) string {
	if n != slices.Max(o.sessions) {
		return ""
	}
	return o.profile
}

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{window: 20 * time.Second, settle: 3 * time.Second, answered: 0.99}
	f := flag.NewFlagSet("gateway bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.IntVar(&o.trials, "trials", 0, "`how many` beeps the latency is measured with, half a second each (default 200), or conversations with each fault (default 3)")
	f.BoolVar(&o.faults, "faults", false, "measure what a person notices of faults between gateway and Gemini, in place of latency and cost")
	f.BoolVar(&o.impaired, "impair", false, "measure what bad networks between person and gateway leave of the speech, in place of latency and cost")
	f.Uint64Var(&o.seed, "seed", 1, "`number` that decides which packets a bad network loses")
	f.BoolVar(&o.capacity, "capacity", false, "measure how evenly packets come with many calls, in place of latency and cost")
	f.BoolVar(&o.floor, "floor", false, "compare with a bare echo server that decodes and encodes as well")
	f.BoolVar(&o.browser, "browser", false, "have the calls whose cost is measured offer what Chromium does: copies (RED), NACK, transport-cc")
	f.Func("sessions", "`numbers` of calls at once, comma separated (default 10,50,100; 100,200 with -capacity)", func(v string) error {
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
	f.StringVar(&o.profile, "profile", "", "`file` for a CPU profile of the gateway with the most calls, for go tool pprof")
	f.BoolVar(&o.quick, "quick", false, "a few seconds in all: shows that everything runs, the figures mean little")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	given := map[string]bool{}
	f.Visit(func(set *flag.Flag) { given[set.Name] = true })
	o.complete(given)
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

// complete sets what was not given.
func (o *options) complete(given map[string]bool) {
	set := func(name string, f func()) {
		if !given[name] {
			f()
		}
	}
	switch {
	case o.faults:
		set("trials", func() { o.trials = 3 })
	case o.capacity:
		set("sessions", func() { o.sessions = []int{100, 200} })
		set("window", func() { o.window = capacityWindow })
	}
	set("trials", func() { o.trials = cmp.Or(o.trials, 200) })
	set("sessions", func() {
		if o.sessions == nil {
			o.sessions = []int{10, 50, 100}
		}
	})
	if !o.quick {
		return
	}
	o.trials, o.sessions, o.window, o.settle = 4, []int{2}, time.Second, turnLength+200*time.Millisecond
	o.answered = 0.8 // one hiccup of the machine is a large share of so short a time
	if o.faults {
		o.trials = 1
	}
}
