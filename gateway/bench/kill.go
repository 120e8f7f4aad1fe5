package main

import (
	"context"
	"encoding/json"
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
	killSecret = "the secret of a benchmark"

	// killEarliest and killLatest bound where in an answer of 4 s the gateway is killed.
	killEarliest = 200 * time.Millisecond
	killLatest   = 2500 * time.Millisecond

	// targetAnswered is the 95th percentile of when a caller is answered whose gateway was killed.
	targetAnswered = 2 * time.Second
)

// rescue is what a caller noticed whose gateway was killed, from then on.
type rescue struct {
	noticed   time.Duration // its WebSocket ended
	resumed   time.Duration // another gateway goes on with the conversation
	connected time.Duration // with WebRTC
	answered  time.Duration // the first packet of the answer to what it said next
	same      bool          // Gemini's session is the same
	kept      bool          // and what was said is known
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
	if f.model, err = start(ctx, nil, o.gateway, "emulate", "-addr", "127.0.0.1:0"); err != nil {
		f.close()
		return nil, err
	}
	for i := range f.nodes {
		if f.nodes[i], err = f.startNode(ctx, o); err != nil {
			f.close()
			return nil, err
		}
	}
	return f, nil
}

func (f *fleet) startNode(ctx context.Context, o options) (*process, error) {
	env := []string{
		"VOXGATE_ADDR=127.0.0.1:0", "GOOGLE_GEMINI_BASE_URL=" + f.model.url, "VOXGATE_DRAIN=0",
		"VOXGATE_REDIS=" + f.redis.URL(), "VOXGATE_REDIS_SECRET=" + killSecret, "VOXGATE_LIMITS=sessions=0,new-per-second=0",
	}
	return start(ctx, env, o.gateway, "serve")
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
	var noticed, resumed, connected, answered []time.Duration
	same, kept := 0, 0
	for i := range o.trials {
		progress("kill %d of %d", i+1, o.trials)
		r, err := f.killOne(ctx, o, i%2)
		if err != nil {
			return fmt.Errorf("kill %d: %w\n%s", i+1, err, f.nodes[(i+1)%2].log())
		}
		noticed, resumed = append(noticed, r.noticed), append(resumed, r.resumed)
		connected, answered = append(connected, r.connected), append(answered, r.answered)
		if r.same {
			same++
		}
		if r.kept {
			kept++
		}
	}
	t := newTable("from the kill until", "p50", "p95", "p99", "most", "target")
	for _, row := range []struct {
		what   string
		values []time.Duration
		target string
	}{
		{"the caller's WebSocket has ended", noticed, "–"},
		{"another gateway goes on with the conversation", resumed, "–"},
		{"WebRTC is connected", connected, "–"},
		{"the first packet of the next answer", answered, "p95 " + seconds(targetAnswered)},
	} {
		t.row(row.what, milliseconds(quantile(row.values, .5)), milliseconds(quantile(row.values, .95)), milliseconds(quantile(row.values, .99)), milliseconds(quantile(row.values, 1)), row.target)
	}
	return t.write(stdout, began, fmt.Sprintf("%d of %d went on in the same session of Gemini, and %d knew all that was said.", same, o.trials, kept))
}

// killOne has a caller talk to a gateway, kills that in the middle of an answer, and has the caller go on at the other one. It starts
// another gateway in the place of the dead.
func (f *fleet) killOne(ctx context.Context, o options, victim int) (r rescue, err error) {
	first, err := call(ctx, f.nodes[victim].url, callOptions{offers: withNACK, hear: func(time.Time, *rtp.Packet) {}, name: "Answer briefly.", resumable: true})
	if err != nil {
		return r, err
	}
	defer first.close()
	if err := first.asks(ctx, "one two three four five six seven eight nine ten", "ASSISTANT_SPEAKING"); err != nil {
		return r, err
	}
	if err := sleep(ctx, killEarliest+rand.N(killLatest-killEarliest)); err != nil {
		return r, err
	}
	killed := time.Now()
	if err := f.nodes[victim].cmd.Process.Kill(); err != nil {
		return r, err
	}
	select {
	case <-first.failed:
	case <-time.After(connectTimeout):
		return r, errors.New("the caller has noticed nothing")
	}
	r.noticed = time.Since(killed)
	var heard atomic.Int64 // when the first packet came
	second, err := call(ctx, f.nodes[1-victim].url, callOptions{
		offers: withNACK, name: first.name, resumable: true, token: first.token,
		hear:    func(at time.Time, _ *rtp.Packet) { heard.CompareAndSwap(0, int64(at.Sub(killed))) },
		resumed: func() { r.resumed = time.Since(killed) },
	})
	if err != nil {
		return r, err
	}
	defer second.close()
	r.connected = time.Since(killed)
	heard.Store(0)
	if err := second.asks(ctx, "still there?", "TURN_COMPLETE"); err != nil {
		return r, err
	}
	r.answered = time.Duration(heard.Load())
	raw, err := second.request(ctx, "GET_CONTEXT", "{}", "CONTEXT")
	if err != nil {
		return r, err
	}
	r.kept = strings.Contains(string(raw), "eight nine ten") && strings.Contains(string(raw), "You said: still there?")
	log := f.nodes[1-victim].log()
	r.same = strings.Contains(log, "link resumed") && !strings.Contains(log, "begun anew")
	<-f.nodes[victim].ended
	f.nodes[victim], err = f.startNode(ctx, o)
	return r, err
}

// asks types something and waits for a message.
func (p *peer) asks(ctx context.Context, text, until string) error {
	payload, err := json.Marshal(map[string]any{"parts": []any{map[string]string{"text": text}}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	_, err = p.request(ctx, "SEND_MESSAGE", string(payload), until)
	return err
}
