package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pion/rtp"

	"voxgate/store/redistest"
)

const (
	// killEarliest and killLatest bound where in an answer of 4 s the gateway is killed.
	killEarliest = 200 * time.Millisecond
	killLatest   = 2500 * time.Millisecond

	// targetAnswered is the 95th percentile of when a caller is answered whose gateway was killed.
	targetAnswered = 2 * time.Second
)

// rescues are what callers noticed whose gateways were killed. Each list has the times from the kill until something.
type rescues struct {
	noticed   []time.Duration // the caller's WebSocket has ended
	resumed   []time.Duration // another gateway goes on with the conversation
	connected []time.Duration // with WebRTC
	answered  []time.Duration // the first packet of the answer to what the caller said next
	same      int             // of them, in the same session with Gemini
	kept      int             // where what was said is known
}

// fleet is two gateways with one model and one Redis.
type fleet struct {
	redis *redistest.Server
	model *process
	nodes [2]*process
}

// startFleet starts all of it.
func startFleet(ctx context.Context, o options) (f *fleet, err error) {
	f = &fleet{}
	if f.redis, err = redistest.Start(); err != nil {
		return nil, err
	}
	f.model, err = o.startEmulator(ctx)
	for i := range f.nodes {
		if err == nil {
			f.nodes[i], err = f.startNode(ctx, o)
		}
	}
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *fleet) startNode(ctx context.Context, o options) (*process, error) {
	return o.startGateway(ctx, f.model.url, "VOXGATE_REDIS="+f.redis.URL(), "VOXGATE_REDIS_SECRET=the secret of a benchmark")
}

func (f *fleet) close() {
	for _, p := range append(f.nodes[:], f.model) {
		if p != nil {
			p.stop()
		}
	}
	f.redis.Stop()
}

// measureKills kills gateways in the middle of answers, and prints what their callers noticed.
func measureKills(ctx context.Context, o options, stdout io.Writer) error {
	began := time.Now()
	f, err := startFleet(ctx, o)
	if err != nil {
		return err
	}
	defer f.close()
	var r rescues
	for i := range o.trials {
		progress("kill %d of %d", i+1, o.trials)
		if err := f.kill(ctx, o, i%2, &r); err != nil {
			return fmt.Errorf("kill %d: %w\n%s", i+1, err, f.nodes[(i+1)%2].log())
		}
	}
	t := newTable("from the kill until", "p50 / p95 / p99", "most", "target")
	for _, row := range []struct {
		what   string
		took   []time.Duration
		target string
	}{
		{"the caller's WebSocket has ended", r.noticed, "–"},
		{"another gateway goes on with the conversation", r.resumed, "–"},
		{"WebRTC is connected", r.connected, "–"},
		{"the first packet of the next answer", r.answered, "p95 " + seconds(targetAnswered)},
	} {
		t.row(row.what, three(row.took), milliseconds(quantile(row.took, 1)), row.target)
	}
	note := fmt.Sprintf("%d of %d went on in the same session of Gemini, and %d knew all that was said.", r.same, o.trials, r.kept)
	return t.write(stdout, began, note)
}

// kill has a caller talk to a gateway, kills the gateway in the middle of an answer, and has the caller go on at the other one. Then it
// starts another gateway in the place of the dead one.
func (f *fleet) kill(ctx context.Context, o options, victim int, r *rescues) (err error) {
	caller := callOptions{instruction: "Answer briefly.", hear: func(time.Time, *rtp.Packet) {}, resumable: true}
	first, err := call(ctx, f.nodes[victim].url, caller)
	if err != nil {
		return err
	}
	defer first.close()
	if err := first.ask(ctx, "one two three four five six seven eight nine ten", "ASSISTANT_SPEAKING"); err != nil {
		return err
	}
	if err := sleep(ctx, killEarliest+rand.N(killLatest-killEarliest)); err != nil {
		return err
	}
	killed := time.Now()
	if err := f.nodes[victim].cmd.Process.Kill(); err != nil {
		return err
	}
	select {
	case <-first.ended:
	case <-time.After(connectTimeout):
		return errors.New("the caller has noticed nothing")
	}
	r.noticed = append(r.noticed, time.Since(killed))
	var heard atomic.Int64 // when the first packet came
	caller.token = first.token
	caller.hear = func(at time.Time, _ *rtp.Packet) { heard.CompareAndSwap(0, int64(at.Sub(killed))) }
	caller.resumed = func() { r.resumed = append(r.resumed, time.Since(killed)) }
	second, err := call(ctx, f.nodes[1-victim].url, caller)
	if err != nil {
		return err
	}
	defer second.close()
	r.connected = append(r.connected, time.Since(killed))
	heard.Store(0)
	if err := second.ask(ctx, "still there?", "TURN_COMPLETE"); err != nil {
		return err
	}
	r.answered = append(r.answered, time.Duration(heard.Load()))
	raw, err := second.request(ctx, "GET_CONTEXT", nil, "CONTEXT")
	if err != nil {
		return err
	}
	if said := string(raw); strings.Contains(said, "eight nine ten") && strings.Contains(said, "You said: still there?") {
		r.kept++
	}
	if log := f.nodes[1-victim].log(); strings.Contains(log, "link resumed") && !strings.Contains(log, "begun anew") {
		r.same++
	}
	<-f.nodes[victim].ended
	f.nodes[victim], err = f.startNode(ctx, o)
	return err
}

// ask types something and waits for a message.
func (c *caller) ask(ctx context.Context, text, until string) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	_, err := c.request(ctx, "SEND_MESSAGE", map[string]any{"parts": []any{map[string]string{"text": text}}}, until)
	return err
}
