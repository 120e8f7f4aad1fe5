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
	// roomFrames is the number of packets that callers send again and again. They hold room noise, which is neither silence nor speech.
	roomFrames = 50
	roomLevel  = 240 // decoded at 16 kHz, an RMS of 82: the gateway treats levels below 64 as silence, which is cheaper

	// connecting is the number of calls that are set up at the same time.
	connecting = 8
)

// load is a server with calls in which both sides talk without a pause: 50 packets a second in each direction.
type load struct {
	*stage
	packets     [][]byte // packets that each caller sends in a loop
	callers     []*caller
	arrivals    []arrivals
	stopTalking context.CancelFunc
	talking     sync.WaitGroup
}

// observed holds the measurements of a load in a window.
type observed struct {
	cpu      time.Duration // CPU time of the server per minute of a call
	memory   int64         // maximum of all resident memory, in bytes
	lateness time.Duration // 95th percentile of arrivals.delays of all callers
	cores    float64       // processor cores that the server used
	idle     float64       // idle share of the machine
}

// hangUp ends the calls.
func (l *load) hangUp() {
	l.stopTalking()
	l.talking.Wait()
	for _, c := range l.callers {
		if c != nil {
			c.close()
		}
	}
	l.callers = nil
}

// startCalls sets up n calls and starts the callers' audio.
func (l *load) startCalls(ctx context.Context, o options, n int) error {
	l.callers, l.arrivals = make([]*caller, n), make([]arrivals, n)
	errs := make([]error, n)
	var failed atomic.Bool // a call has failed: set up no further calls
	runConcurrently(connecting, n, func(i int) {
		if failed.Load() {
			return
		}
		l.callers[i], errs[i] = l.stage.placeCall(ctx, callOptions{
			instruction: fmt.Sprint(n, i), turns: o.turns, hear: l.arrivals[i].recordPacket,
		})
		if errs[i] != nil {
			failed.Store(true)
		}
	})
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("call %d: %w", i, err)
		}
	}
	ctx, l.stopTalking = context.WithCancel(ctx)
	l.talking.Go(func() {
		paceFrames(ctx, frame, n, int(time.Hour/frame), func(caller, i int) {
			l.callers[caller].sendPacket(l.packets[(i+caller)%len(l.packets)])
		})
	})
	if err := sleep(ctx, o.settle); err != nil {
		return err
	}
	if err := l.awaitSessions(ctx, n); err != nil {
		return err
	}
	for i, s := range l.model.currentSessions() {
		l.talking.Go(func() { s.sendChatter(ctx, time.Duration(i)*chatterLength/time.Duration(n)) })
	}
	return sleep(ctx, o.settle)
}

// awaitSessions waits until each of n calls has its session with the model, because some subjects open it late. Without
// a model it returns at once.
func (l *load) awaitSessions(ctx context.Context, n int) error {
	if l.cannot["barge"] != "" {
		return nil
	}
	_, err := withTimeout(ctx, connectTimeout, func(ctx context.Context) (struct{}, error) {
		for len(l.model.currentSessions()) < n {
			if err := sleep(ctx, frame); err != nil {
				return struct{}{}, fmt.Errorf("%d of %d calls have a session with the model: %w", len(l.model.currentSessions()), n, err)
			}
		}
		return struct{}{}, nil
	})
	return err
}

// measureWindow measures the load during one window of time.
func (l *load) measureWindow(ctx context.Context, o options) (observed, error) {
	var w observed
	for i := range l.arrivals {
		l.arrivals[i].takeDelays()
	}
	before, err := l.readUsage()
	if err != nil {
		return w, err
	}
	for end := before.at.Add(o.window); time.Now().Before(end); {
		if err := sleep(ctx, min(time.Until(end), time.Second)); err != nil {
			return w, err
		}
		resident, err := l.residentMemory()
		if err != nil {
			return w, err
		}
		w.memory = max(w.memory, resident)
	}
	after, err := l.readUsage()
	if err != nil {
		return w, err
	}
	took := after.at.Sub(before.at)
	w.cores, w.idle = before.loadUntil(after)
	w.cpu = time.Duration(w.cores * float64(time.Minute) / float64(len(l.callers)))
	var delays []time.Duration
	for i, c := range l.callers {
		if c.err() != nil {
			return w, fmt.Errorf("call %d failed: %w\n%s", i, c.err(), l.newestLog())
		}
		came := l.arrivals[i].takeDelays()
		if share := float64(len(came)) * float64(frame) / float64(took); share < o.minPacketShare {
			return w, fmt.Errorf("a caller received only %s of its packets", formatPercent(share))
		}
		delays = append(delays, came...)
	}
	w.lateness = quantile(delays, 0.95)
	return w, nil
}

// arrivals records how late a caller's packets arrive. The delay of a packet is the time since the previous packet,
// minus the difference of the two RTP timestamps.
type arrivals struct {
	mu     sync.Mutex
	delays []time.Duration // delay of each packet; 0 for the first packet of a talkspurt
	at     time.Time
	stamp  uint32
}

func (a *arrivals) recordPacket(at time.Time, p *rtp.Packet) {
	const clock = 48000 // Hz, of RTP timestamps: RFC 7587
	a.mu.Lock()
	defer a.mu.Unlock()
	delay := at.Sub(a.at) - time.Duration(p.Timestamp-a.stamp)*time.Second/clock
	if a.at.IsZero() || p.Marker {
		delay = 0
	}
	a.delays = append(a.delays, max(0, delay))
	a.at, a.stamp = at, p.Timestamp
}

// takeDelays returns the values since the last call.
func (a *arrivals) takeDelays() []time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	delays := a.delays
	a.delays = nil
	return delays
}

// roomNoisePackets returns encoded room noise, which all callers send.
func roomNoisePackets() [][]byte {
	return encodeWithRoomNoise(make([]int16, roomFrames*media.Samples(frame, micRate)))
}

// murmurPackets returns the packets of callers who speak for 0.2 s in 4 s. This is enough for the gateway to detect
// speech, but too little to interrupt an answer.
func murmurPackets() [][]byte {
	const before, sound, all = 1900 * time.Millisecond, 200 * time.Millisecond, 4 * time.Second
	pcm := make([]int16, media.Samples(all, micRate))
	copy(pcm[media.Samples(before, micRate):], speech().mic[:media.Samples(sound, micRate)])
	return encodeWithRoomNoise(pcm)
}

// encodeWithRoomNoise adds the noise of the room to pcm, which is at micRate, and returns its packets.
func encodeWithRoomNoise(pcm []int16) (packets [][]byte) {
	encoder := newLowDelayTalker()
	random := rand.New(rand.NewPCG(1, 2))
	for i := range pcm {
		pcm[i] += int16(random.IntN(2*roomLevel+1) - roomLevel)
	}
	for part := range slices.Chunk(pcm, media.Samples(frame, micRate)) {
		packets = append(packets, slices.Clone(encoder.encodeFrame(part)))
	}
	return packets
}

// measureLoad observes a server with n calls. In the result, memory is the memory per call.
func measureLoad(ctx context.Context, o options, stage *stage, n int) (w observed, err error) {
	l := &load{stage: stage, stopTalking: func() {}, packets: roomNoisePackets()}
	if o.turns != "" {
		l.packets = murmurPackets()
	}
	defer l.hangUp()
	stage.model.setListener(nil)
	// Make a first call, so that the memory without calls is measured in a warm server.
	if err := l.startCalls(ctx, o, 1); err != nil {
		return w, err
	}
	l.hangUp()
	if err := sleep(ctx, o.settle); err != nil {
		return w, err
	}
	idle, err := l.residentMemory()
	if err != nil {
		return w, err
	}
	if err := l.startCalls(ctx, o, n); err != nil {
		return w, err
	}
	if w, err = l.measureWindow(ctx, o); err != nil {
		return observed{}, err
	}
	w.memory = (w.memory - idle) / int64(n)
	return w, nil
}
