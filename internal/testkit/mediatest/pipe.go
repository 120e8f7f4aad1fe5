package mediatest

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"
)

// Pipe carries the packets of one direction of a bad network. Put never blocks; Run delivers.
type Pipe struct {
	*Path
	deliver func(Packet)

	mu    sync.Mutex
	queue []Packet      // in flight, by arrival
	wake  chan struct{} // signals a new first packet
}

// Packet is one datagram in a Pipe.
type Packet struct {
	Data    []byte
	Addr    net.Addr // addr of Put
	arrives time.Time
}

// maxQueued bounds the packets in flight. Packets beyond it are lost. It is large enough for the full speed of the
// loopback interface with a delay of several seconds.
const maxQueued = 1 << 16

// NewPipe returns a pipe that calls deliver for each packet when it arrives.
func NewPipe(p *Path, deliver func(Packet)) *Pipe {
	return &Pipe{Path: p, deliver: deliver, wake: make(chan struct{}, 1)}
}

// Put sends a copy of data.
func (p *Pipe) Put(data []byte, addr net.Addr) {
	arrives, copies := p.Send(time.Now())
	if copies == 0 {
		return
	}
	sent := Packet{slices.Clone(data), addr, arrives}
	p.mu.Lock()
	defer p.mu.Unlock()
	// Insert it after the packets that arrive at the same time, to keep their order.
	at, _ := slices.BinarySearchFunc(p.queue, arrives, func(q Packet, t time.Time) int {
		if q.arrives.After(t) {
			return 1
		}
		return -1
	})
	for range min(copies, maxQueued-len(p.queue)) {
		p.queue = slices.Insert(p.queue, at, sent)
	}
	if at == 0 {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}

// Run delivers until ctx is done.
func (p *Pipe) Run(ctx context.Context) {
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
			next, wait := p.takeNext()
			if wait > 0 {
				timer.Reset(wait)
			}
			if next.Data == nil {
				break
			}
			p.deliver(next)
		}
	}
}

// takeNext removes and returns the first packet if it has arrived. Otherwise it returns how long to wait for it, or 0 if the queue
// is empty.
func (p *Pipe) takeNext() (next Packet, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		return next, 0
	}
	if wait = time.Until(p.queue[0].arrives); wait > 0 {
		return next, wait
	}
	next = p.queue[0]
	p.queue[0] = Packet{} // releases its memory
	p.queue = p.queue[1:]
	return next, 0
}
