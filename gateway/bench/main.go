// Command bench measures a gateway from outside, on the machine it runs on: Pion peers call it, and it talks to a model that
// this program plays itself. Each measurement prints a table of the README or of docs/figures.md, in Markdown:
//
//	go run ./gateway/bench            "Numbers": latency, interruption, CPU time and memory of a call, beside an echo server
//	go run ./gateway/bench -capacity  the same for the gateway alone, with 100 and 200 calls
//	go run ./gateway/bench -kill      what callers notice whose gateway is killed, where several share a Redis
//	go run ./gateway/bench -fleet     what a Redis carries that many gateways share
//	go run ./gateway/bench -churn     what a gateway keeps of 20,000 conversations that were opened and closed in every way
//	go run ./gateway/bench -impair    "Bad networks": what they leave of the speech between a person and the model
//
// -gateway PATH measures another binary than that of this source tree, such as an older one.
//
// The gateway and the echo server run as child processes, whose CPU time and memory are read from /proc (Linux).
//
//	go run ./gateway/bench link       a bad network between two namespaces, for web/test/network.test.mjs; it needs root
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"voxgate/media"
)

const frame = media.FrameDuration

// options say what is measured, and how much of it.
type options struct {
	gateway  string // the binary
	capacity bool   // the gateway alone, without latency
	trials   int    // beeps
	sessions []int  // how many calls at once
	window   time.Duration
	settle   time.Duration // from the last connection to the window
	least    float64       // of its packets, that each caller must get for a figure to count
	seed     uint64        // decides which packets a bad network loses
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
			return serveEcho(ctx)
		case "link":
			return serveLink(ctx, os.Stdin, stdout)
		}
	}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	impaired := f.Bool("impair", false, "measure what bad networks between person and gateway leave of the speech")
	capacity := f.Bool("capacity", false, "100 and 200 calls, and neither latency nor echo server")
	telephones := f.Bool("telephones", false, "300 telephones at once; needs sipp (Debian's sip-tester)")
	kill := f.Bool("kill", false, "100 gateways killed in the middle of an answer; needs redis-server")
	many := f.Bool("fleet", false, "thousands of conversations on simulated gateways that share a Redis; needs redis-server")
	churn := f.Bool("churn", false, "20,000 conversations opened and closed in every way")
	gateway := f.String("gateway", "", "`binary` to measure; none: the source tree's is built")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	o := options{gateway: *gateway, trials: 200, sessions: []int{10, 50, 100}, window: 20 * time.Second, settle: 5 * time.Second, least: 0.95, seed: 1}
	if *many {
		o.sessions = []int{1000, 5000, 10000}
		return measureFleet(ctx, o, stdout)
	}
	if *gateway == "" {
		remove, err := o.build(ctx)
		if err != nil {
			return err
		}
		defer remove()
	}
	switch {
	case *impaired:
		return measureNetworks(ctx, o, stdout)
	case *kill:
		o.trials = 100
		return measureKills(ctx, o, stdout)
	case *churn:
		o.sessions, o.settle = []int{churnWarm, 5000, 5000, 5000, 5000}, 40*time.Second // a peer that never came is given up after 30 s
		return measureChurn(ctx, o, stdout)
	case *telephones:
		return measureTelephones(ctx, o, stdout)
	case *capacity:
		o.capacity, o.sessions, o.window = true, []int{100, 200}, 50*time.Second
	}
	return measureNumbers(ctx, o, stdout)
}

// progress says what is going on.
func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }
