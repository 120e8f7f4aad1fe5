package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pion/rtp"

	"voxgate/media"
)

const (
	// roomFrames is the number of packets that callers repeat: room noise, neither silence nor speech.
	roomFrames = 50
	roomLevel  = 240 // decoded at 16 kHz, an RMS of 82: the gateway treats levels below 64 as silence, which is cheaper

	// connecting is the number of calls that are set up concurrently.
	connecting = 8
)

// load is a server with calls in which both sides talk without a pause: 50 packets a second in each direction.
type load struct {
	*stage
	room     [][]byte
	callers  []*caller
	arrivals []arrivals
	quiet    context.CancelFunc
	talking  sync.WaitGroup
}

// observed holds the measurements of a load in a window.
type observed struct {
	cpu      time.Duration // per minute of a call
	memory   int64         // maximum of all resident memory, in bytes
	lateness time.Duration // excess of the time between two packets over that of their timestamps: 95th percentile
	cores    float64       // used by the server
	idle     float64       // idle share of the machine
}

// hangUp ends the calls.
func (l *load) hangUp() {
	l.quiet()
	l.talking.Wait()
	for _, c := range l.callers {
		if c != nil {
			c.close()
		}
	}
	l.callers = nil
}

// call sets up n calls and starts the callers' audio.
func (l *load) call(ctx context.Context, o options, n int) error {
	l.callers, l.arrivals = make([]*caller, n), make([]arrivals, n)
	errs := make([]error, n)
	var failed atomic.Bool // do not set up the rest
	atOnce(connecting, n, func(i int) {
		if failed.Load() {
			return
		}
		l.callers[i], errs[i] = l.stage.call(ctx, callOptions{instruction: fmt.Sprint(n, i), hear: l.arrivals[i].hear})
		if errs[i] != nil {
			failed.Store(true)
		}
	})
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("call %d: %w", i, err)
		}
	}
	ctx, l.quiet = context.WithCancel(ctx)
	l.talking.Go(func() {
		pace(ctx, frame, n, int(time.Hour/frame), func(caller, i int) { l.callers[caller].speak(l.room[(i+caller)%roomFrames]) })
	})
	if err := sleep(ctx, o.settle); err != nil {
		return err
	}
	if err := l.answered(ctx, n); err != nil {
		return err
	}
	for i, s := range l.model.all() {
		l.talking.Go(func() { s.chatter(ctx, time.Duration(i)*chatterLength/time.Duration(n)) })
	}
	return sleep(ctx, o.settle)
}

// answered waits until each of n calls has its session with the model, if the subject has a model: an agent may join after its caller.
func (l *load) answered(ctx context.Context, n int) error {
	if l.cannot["barge"] != "" {
		return nil
	}
	_, err := within(ctx, connectTimeout, func(ctx context.Context) (struct{}, error) {
		for len(l.model.all()) < n {
			if err := sleep(ctx, frame); err != nil {
				return struct{}{}, fmt.Errorf("%d of %d calls have a session with the model: %w", len(l.model.all()), n, err)
			}
		}
		return struct{}{}, nil
	})
	return err
}

// observe measures the load for a window.
func (l *load) observe(ctx context.Context, o options) (observed, error) {
	var w observed
	for i := range l.arrivals {
		l.arrivals[i].take()
	}
	before, err := l.usage()
	if err != nil {
		return w, err
	}
	for end := before.at.Add(o.window); time.Now().Before(end); {
		if err := sleep(ctx, min(time.Until(end), time.Second)); err != nil {
			return w, err
		}
		resident, err := l.resident()
		if err != nil {
			return w, err
		}
		w.memory = max(w.memory, resident)
	}
	after, err := l.usage()
	if err != nil {
		return w, err
	}
	took := after.at.Sub(before.at)
	w.cores, w.idle = before.until(after)
	w.cpu = time.Duration(w.cores * float64(time.Minute) / float64(len(l.callers)))
	var late []time.Duration
	for i, c := range l.callers {
		if c.err() != nil {
			return w, fmt.Errorf("call %d failed: %w\n%s", i, c.err(), l.log())
		}
		came := l.arrivals[i].take()
		if share := float64(len(came)) * float64(frame) / float64(took); share < o.least {
			return w, fmt.Errorf("a caller got only %s of its packets", percent(share))
		}
		late = append(late, came...)
	}
	w.lateness = quantile(late, 0.95)
	return w, nil
}

// arrivals records a caller's packets: the excess of the time between two packets over that of their timestamps.
type arrivals struct {
	mu    sync.Mutex
	late  []time.Duration // for each packet; 0 for the first of a talkspurt
	at    time.Time
	stamp uint32
}

func (a *arrivals) hear(at time.Time, p *rtp.Packet) {
	const clock = 48000 // Hz, of RTP timestamps: RFC 7587
	a.mu.Lock()
	defer a.mu.Unlock()
	late := at.Sub(a.at) - time.Duration(p.Timestamp-a.stamp)*time.Second/clock
	if a.at.IsZero() || p.Marker {
		late = 0
	}
	a.late = append(a.late, max(0, late))
	a.at, a.stamp = at, p.Timestamp
}

// take returns the values since the last call.
func (a *arrivals) take() []time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	late := a.late
	a.late = nil
	return late
}

// roomNoise returns the encoded packets of all callers.
func roomNoise() (packets [][]byte) {
	encoder := newMicrophone()
	random := rand.New(rand.NewPCG(1, 2))
	pcm := make([]int16, media.Samples(frame, micRate))
	for range roomFrames {
		for i := range pcm {
			pcm[i] = int16(random.IntN(2*roomLevel+1) - roomLevel)
		}
		packets = append(packets, slices.Clone(encoder.encode(pcm)))
	}
	return packets
}

// measureLoad observes a server with n calls. memory in its result is per call.
func measureLoad(ctx context.Context, o options, stage *stage, n int) (w observed, err error) {
	l := &load{stage: stage, quiet: func() {}, room: roomNoise()}
	defer l.hangUp()
	stage.model.listen(nil)
	// Make a first call, so that the memory without calls is that of a warm server.
	if err := l.call(ctx, o, 1); err != nil {
		return w, err
	}
	l.hangUp()
	if err := sleep(ctx, o.settle); err != nil {
		return w, err
	}
	idle, err := l.resident()
	if err != nil {
		return w, err
	}
	if err := l.call(ctx, o, n); err != nil {
		return w, err
	}
	if w, err = l.observe(ctx, o); err != nil {
		return observed{}, err
	}
	w.memory = (w.memory - idle) / int64(n)
	return w, nil
}
