package main

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"voxgate/internal/testkit/mediatest"
)

const (
	slowRate   = 8 << 10 // bytes a second: 64 kbit/s, an eighth of the rate of the voice in base64
	slowTrials = 8       // beeps of the other caller while the link is slow
	slowQuiet  = 3 * time.Second
)

// slowLink is a connection that is read at slowRate until fast is closed.
type slowLink struct {
	net.Conn
	fast <-chan struct{}
}

func (l slowLink) Read(b []byte) (int, error) {
	select {
	case <-l.fast:
	case <-time.After(frame):
		b = b[:min(len(b), int(slowRate*frame/time.Second))]
	}
	return l.Conn.Read(b)
}

// measureSlowReader measures how much of a long reply reaches a WebSocket caller that reads too slowly. Meanwhile,
// another caller must still be answered.
func (c *comparison) measureSlowReader(ctx context.Context) error {
	c.model.answerBeeps()
	open, fast := lineOpeners[c.caller]["websocket"], make(chan struct{})
	link := *c.stage
	link.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		conn.(*net.TCPConn).SetReadBuffer(2 * slowRate) // small, so that the kernel does not buffer the whole reply
		return slowLink{conn, fast}, nil
	}
	var receivedSamples atomic.Int64 // number of loud samples
	opening, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	began := time.Now()
	l, err := open(opening, &link, func(pcm []int16) {
		if isLoud(pcm) {
			receivedSamples.Add(int64(len(pcm)))
		}
	})
	if err != nil {
		return err
	}
	defer l.end()
	s, err := c.model.awaitSession(opening, instruction, began)
	if err != nil {
		return err
	}
	before, err := c.residentMemory()
	if err != nil {
		return err
	}
	trials := min(c.trials, slowTrials)
	reply := mediatest.Tone(time.Duration(trials+warmUp)*c.trialTiming.trial, voiceRate, 440, 12000)
	telling, quiet := context.WithCancel(ctx)
	defer quiet()
	go s.sendTurn(telling, reply)
	beside, failed := c.measureBeeps(ctx, open, trials)
	most, err := c.residentMemory()
	close(fast)
	if err != nil {
		return err
	}
	dropped := l.awaitRest(ctx, &receivedSamples, int64(len(reply)))
	c.addFigure("slow.heard", 1, "", min(100, 100*float64(receivedSamples.Load())/float64(len(reply))))
	if dropped {
		c.Figures[len(c.Figures)-1].Missing = "its connection was ended"
	}
	if len(beside.mouthToEar) > 0 {
		c.addFigure("slow.beside", trials, "no reply", allInMilliseconds(beside.mouthToEar)...)
	}
	c.addFigure("slow.memory", 1, "", float64(max(0, most-before))/(1<<20))
	return failed
}

// awaitRest waits until all samples were received, no more samples arrive for slowQuiet, or the line has ended.
// isClosed is true if the line has ended.
func (l *line) awaitRest(ctx context.Context, receivedSamples *atomic.Int64, all int64) (isClosed bool) {
	for last, at := receivedSamples.Load(), time.Now(); last < all && time.Since(at) < slowQuiet; {
		select {
		case <-l.closed:
			return true
		case <-ctx.Done():
			return false
		case <-time.After(frame):
		}
		if now := receivedSamples.Load(); now > last {
			last, at = now, time.Now()
		}
	}
	return false
}
