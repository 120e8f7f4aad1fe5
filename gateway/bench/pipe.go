package main

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"voxgate/media/mediatest"
)

// pipe carries the packets of one direction: put never blocks, and deliver is called for each packet when it arrives, by the
// one goroutine that runs the pipe.
type pipe struct {
	*mediatest.Path
	deliver func(packet)

	mu    sync.Mutex
	queue []packet      // on the way; the next to arrive stands first
	wake  chan struct{} // the first one is new
}

type packet struct {
	data    []byte
	addr    net.Addr // where it goes to, or comes from; nil on a link
	arrives time.Time
}

// maxQueued bounds what is on the way: the loopback at full speed, delayed by seconds.
const maxQueued = 1 << 16

func newPipe(p *mediatest.Path, deliver func(packet)) *pipe {
	return &pipe{Path: p, deliver: deliver, wake: make(chan struct{}, 1)}
}

// put takes a copy of a packet.
func (p *pipe) put(data []byte, addr net.Addr) {
	arrives, copies := p.Send(time.Now())
	if copies == 0 {
		return
	}
	taken := packet{slices.Clone(data), addr, arrives}
	p.mu.Lock()
	defer p.mu.Unlock()
	// Behind those that arrive at the same time: they keep their order.
	at, _ := slices.BinarySearchFunc(p.queue, arrives, func(q packet, t time.Time) int {
		if q.arrives.After(t) {
			return 1
		}
		return -1
	})
	for range min(copies, maxQueued-len(p.queue)) {
		p.queue = slices.Insert(p.queue, at, taken)
	}
	if at == 0 {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}

// run delivers until ctx is done.
func (p *pipe) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-p.wake:
		case <-ctx.Done():
			return
		}
		for {
			next, wait := p.next()
			if wait > 0 {
				timer.Reset(wait)
			}
			if next.data == nil {
				break
			}
			p.deliver(next)
		}
	}
}

// next takes the packet that has arrived, or says how long the first one still takes: 0 if there is none.
func (p *pipe) next() (next packet, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		return next, 0
	}
	if wait = time.Until(p.queue[0].arrives); wait > 0 {
		return next, wait
	}
	next = p.queue[0]
	p.queue[0] = packet{} // lets go of it
	p.queue = p.queue[1:]
	return next, 0
}
