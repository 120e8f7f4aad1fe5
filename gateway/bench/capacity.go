package bench

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pion/rtp"

	"voxgate/gateway/bench/harness"
	"voxgate/gateway/bench/model"
	"voxgate/gateway/bench/peer"
)

const (
	capacityWindows = 5
	capacityWindow  = 10 * time.Second
	targetLateness  = 5 * time.Millisecond // of the 95th percentile of the packets
	targetCores     = 1.1                  // of the gateway, with the most calls
)

// window is what was seen in one.
type window struct {
	lateness time.Duration // 95th percentile
	cores    float64       // that the gateway used
	use      harness.MachineUse
}

// lateness finds out how much later a caller's packets come, one after the other, than their timestamps say.
type lateness struct {
	mu      sync.Mutex
	late    []time.Duration
	arrived time.Time
	stamp   uint32
}

func (l *lateness) hear(arrived time.Time, p *rtp.Packet) {
	const clock = 48000 // Hz, of the timestamps: RFC 7587
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.arrived.IsZero() && !p.Marker {
		l.late = append(l.late, max(0, arrived.Sub(l.arrived)-time.Duration(p.Timestamp-l.stamp)*time.Second/clock))
	}
	l.arrived, l.stamp = arrived, p.Timestamp
}

// take returns what was found since the last call.
func (l *lateness) take() []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	late := l.late
	l.late = nil
	return late
}

// measureCapacity makes more and more calls and prints a Markdown table to stdout.
func measureCapacity(ctx context.Context, o options, command string, stdout io.Writer, progress func(string, ...any)) error {
	began := time.Now()
	var b harness.Table
	b.Header("calls at once", "packets late, p95 (median of windows)", "of the windows", "cores the gateway uses", "machine busy", "stolen by its host")
	for _, n := range o.sessions {
		progress("capacity: %d calls, %d windows of %v", n, capacityWindows, o.window)
		windows, err := holdCalls(ctx, o, n)
		if err != nil {
			return fmt.Errorf("%d calls: %w", n, err)
		}
		var late []time.Duration
		var all []string
		var cores, busy, steal float64
		for _, w := range windows {
			late = append(late, w.lateness)
			all = append(all, harness.Milliseconds(w.lateness))
			cores += w.cores / float64(len(windows))
			busy += w.use.Busy / float64(len(windows))
			steal += w.use.Steal / float64(len(windows))
		}
		b.Row(fmt.Sprint(n), harness.Milliseconds(harness.Quantile(late, 0.5)), strings.Join(all, ", "), fmt.Sprintf("%.2f", cores), percent(busy), percent(steal))
	}
	fmt.Fprintf(&b, `
Targets: %s; a quarter of the machine idle with the fewest calls; at most %.1f cores for the gateway with the most. Callers and
model run beside it on the same cores, and their own lateness is in the figures: that of each packet behind the one before. Both
directions carry 50 packets a second all the time. Each window is %v.
`, harness.Milliseconds(targetLateness), targetCores, o.window)
	_, err := fmt.Fprintf(stdout, "`%s` on %s: %s.\n\n%s", command, began.Format(time.DateOnly), harness.Machine(), b.String())
	return err
}

func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

// holdCalls makes n calls whose model talks all the time and looks at them.
func holdCalls(ctx context.Context, o options, n int) ([]window, error) {
	m, gateway, err := model.Start(ctx, "")
	if err != nil {
		return nil, err
	}
	defer m.Close()
	defer gateway.Stop()
	room, err := roomNoise()
	if err != nil {
		return nil, err
	}
	ears := make([]lateness, n)
	peers, err := callsWith(ctx, &service{Process: gateway}, n, func(i int) peer.Options {
		return peer.Options{Hear: ears[i].hear, Open: model.Opening(model.DeafTo(i)), Offers: o.offers()}
	})
	if err != nil {
		return nil, err
	}
	defer hangUp(peers)
	talking, quiet := context.WithCancel(ctx)
	var talkers sync.WaitGroup
	defer talkers.Wait()
	defer quiet()
	talkers.Go(func() {
		harness.Pace(talking, frame, n, int(time.Hour/frame), func(caller, i int) { peers[caller].Send(room[(i+caller)%roomFrames]) })
	})
	for i := range n {
		l := <-m.Line(model.DeafTo(i))
		talkers.Go(func() { l.Chatter(talking, time.Duration(i)*model.ChatterLength/time.Duration(n)) })
	}
	if err := harness.Sleep(ctx, o.settle+model.ChatterLength); err != nil {
		return nil, err
	}
	var windows []window
	for range capacityWindows {
		w, err := look(ctx, gateway, ears, o)
		if err != nil {
			return nil, err
		}
		windows = append(windows, w)
	}
	for i, p := range peers {
		if p.Err() != nil {
			return nil, fmt.Errorf("call %d failed: %w", i, p.Err())
		}
	}
	return windows, nil
}

// look watches for the length of a window.
func look(ctx context.Context, gateway *harness.Process, ears []lateness, o options) (window, error) {
	var w window
	for i := range ears {
		ears[i].take()
	}
	began := time.Now()
	used, err := gateway.CPUTime()
	if err != nil {
		return w, err
	}
	before, err := harness.ReadMachine()
	if err != nil {
		return w, err
	}
	if err := harness.Sleep(ctx, o.window); err != nil {
		return w, err
	}
	usedNow, err := gateway.CPUTime()
	if err != nil {
		return w, err
	}
	after, err := harness.ReadMachine()
	if err != nil {
		return w, err
	}
	w.cores = float64(usedNow-used) / float64(time.Since(began))
	w.use = after.Since(before)
	var late []time.Duration
	for i := range ears {
		late = slices.Concat(late, ears[i].take())
	}
	// Some packets open a talkspurt, where there is nothing to be late for.
	if want := int(o.window/frame) * len(ears); float64(len(late)) < min(o.answered, 0.9)*float64(want) {
		return w, fmt.Errorf("%d packets came, not %d", len(late), want)
	}
	w.lateness = harness.Quantile(late, 0.95)
	return w, nil
}
