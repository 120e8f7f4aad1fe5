// Command lab measures a gateway from outside, on the same machine: Pion callers call it, and this program emulates its model. It
// prints the tables of docs/figures.md, in Markdown:
//
//	go build -C lab -o ../bin/lab . && bin/lab
//
// It measures 100 and 200 calls, 200 calls in which the model or the gateway decides about turns, and 300 telephones if sipp (Debian's
// sip-tester) is installed. It runs in the root of the source tree.
//
// With "compare" it measures each subject in the same cells, for docs/compare.md; "page" makes a web page from the reports in the folder:
//
//	bin/lab -out DIR compare voxgate echo livekit pipecat page
//
// -gateway PATH measures the given binary, such as an older one, instead of the gateway of this source tree.
//
// The gateway and the echo server run as child processes; their CPU time and memory are read from /proc (Linux).
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

// turnRounds is the number of rounds of measureTurns.
const turnRounds = 3

// options configure the measurements.
type options struct {
	gateway        string        // path of the gateway's binary
	trials         int           // number of beeps
	sessions       []int         // numbers of concurrent calls
	window         time.Duration // time in which calls are observed
	settle         time.Duration // time between the last connection and the window
	minPacketShare float64       // minimum share of its packets that each caller must receive for a valid figure
	seed           uint64        // seed of the random packet loss
	turns          string        // who decides about turns in a load; "" for callers who say nothing
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

// run measures and prints the tables; progress goes to stderr. It fails if a call failed or replies were missing. A
// table is then incomplete.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) > 0 && args[0] == echoCommand {
		return serveEcho(ctx)
	}
	f := flag.NewFlagSet("lab", flag.ContinueOnError)
	out := f.String("out", "compare", "`folder` of what compare measures")
	runs := f.Int("runs", 3, "how often compare lets each fault happen")
	only := f.String("only", "", "measure only these `cells`, separated by commas")
	o := options{
		sessions: []int{100, 200}, window: 50 * time.Second, settle: 5 * time.Second, minPacketShare: 0.95, seed: 1,
	}
	f.StringVar(&o.gateway, "gateway", "", "`binary` to measure; none: the source tree's is built")
	if err := f.Parse(args); err != nil {
		return err
	}
	comparing := f.Arg(0) == compareCommand
	if f.NArg() > 0 && !comparing {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.gateway == "" {
		remove, err := o.buildGateway(ctx)
		if err != nil {
			return err
		}
		defer remove()
	}
	if comparing {
		o.trials, o.window, o.settle = 40, 10*time.Second, 3*time.Second
		return runComparison(ctx, o, *runs, *only, *out, f.Args()[1:])
	}
	return errors.Join(measureCallCosts(ctx, o, stdout), measureTurns(ctx, o, turnRounds, stdout), measurePhones(ctx, o, stdout))
}

// logProgress prints a progress message to stderr.
func logProgress(format string, args ...any) { fmt.Fprintf(os.Stderr, "lab: "+format+"\n", args...) }
