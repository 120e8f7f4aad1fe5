// Command bench measures a gateway from outside, on the machine it runs on: Pion peers call it, and it talks to a model that
// this program plays itself (for faults: to the emulator). Each measurement prints a table of the README, in Markdown:
//
//	go run ./gateway/bench            "Numbers": latency, interruption, CPU time and memory of a call
//	go run ./gateway/bench -floor     the same, beside an echo server that decodes and encodes
//	go run ./gateway/bench -capacity  the same for the gateway alone, with 100 and 200 calls
//	go run ./gateway/bench -impair    "Bad networks": what they leave of the speech between a person and the model
//	go run ./gateway/bench -faults    "Faults": what a person notices of them
//
// With -browser the calls of the first three offer what Chromium does; -profile FILE writes a CPU profile of the gateway under
// the most calls, for `go tool pprof`; -gateway PATH measures another binary than that of this source tree, such as an older
// one. -trials, -sessions, -window and -seed change how much is measured, see -h.
//
// The gateway, the emulator and the echo server run as child processes, whose CPU time and memory are read from /proc (Linux).
//
//	go run ./gateway/bench link       a bad network between two namespaces, for web/test/network.test.mjs; it needs root
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"voxgate/media"
)

const frame = media.FrameDuration

// options say what is measured, and how much of it.
type options struct {
	command  string // as it was called
	gateway  string // the binary
	faults   bool
	impaired bool
	capacity bool
	floor    bool
	browser  bool
	trials   int // beeps, or conversations with each fault
	sessions []int
	window   time.Duration
	settle   time.Duration // from the last connection to the window
	seed     uint64
	profile  string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures and prints a table; progress goes to stderr. When a call failed or replies were missing it returns an error, and
// there is no table, or a gap in it.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case echoCommand:
			return serveEcho(ctx, slices.Contains(args, codecsArgument))
		case "link":
			return serveLink(ctx, os.Stdin, stdout)
		}
	}
	o, err := parse(args)
	if err != nil {
		return err
	}
	if o.gateway == "" {
		remove, err := o.build(ctx)
		if err != nil {
			return err
		}
		defer remove()
	}
	switch {
	case o.faults:
		return measureFaults(ctx, o, faults, stdout)
	case o.impaired:
		return measureNetworks(ctx, o, stdout)
	}
	return measureNumbers(ctx, o, stdout)
}

func parse(args []string) (options, error) {
	o := options{command: strings.Join(append([]string{"go run ./gateway/bench"}, args...), " "), settle: 5 * time.Second}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.BoolVar(&o.faults, "faults", false, "measure what a person notices of faults between gateway and Gemini")
	f.BoolVar(&o.impaired, "impair", false, "measure what bad networks between person and gateway leave of the speech")
	f.BoolVar(&o.capacity, "capacity", false, "with many calls, and neither latency nor echo servers")
	f.BoolVar(&o.floor, "floor", false, "compare with an echo server that decodes and encodes, too")
	f.BoolVar(&o.browser, "browser", false, "calls offer what Chromium does: RED, NACK, transport-cc")
	f.StringVar(&o.gateway, "gateway", "", "`binary` to measure; none: the source tree's is built")
	f.StringVar(&o.profile, "profile", "", "`file` for a CPU profile of the gateway with the most calls (a binary given by -gateway must be built with the tag cpuprofile)")
	f.IntVar(&o.trials, "trials", 0, "`number` of beeps for the latency (0: 200), or of conversations with each fault (0: 3)")
	f.DurationVar(&o.window, "window", 0, "how `long` calls are watched (0: 20s; with -capacity 50s)")
	f.Uint64Var(&o.seed, "seed", 1, "`number` that decides which packets a bad network loses")
	f.Func("sessions", "`numbers` of calls at once, comma separated (default 10,50,100; 100,200 with -capacity)", func(v string) error {
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
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	trials, sessions, window := 200, []int{10, 50, 100}, 20*time.Second
	if o.faults {
		trials = 3
	}
	if o.capacity {
		sessions, window = []int{100, 200}, 50*time.Second
	}
	o.trials, o.window = cmp.Or(o.trials, trials), cmp.Or(o.window, window)
	if o.sessions == nil {
		o.sessions = sessions
	}
	if o.trials < 1 || o.window < time.Second {
		return o, errors.New("at least one trial and a window of 1s are needed")
	}
	return o, nil
}

// progress says what is going on.
func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }
