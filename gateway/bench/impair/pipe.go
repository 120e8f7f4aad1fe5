package impair

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// pipe carries the packets of one direction: put never blocks, and deliver is called for each that comes out, by one
// goroutine, at its time.
type pipe[T any] struct {
	*direction
	deliver func(T)

	mu    sync.Mutex
	queue departures[T]
	count uint64
	wake  chan struct{}
}

// maxQueued bounds a direction: the loopback at full speed, delayed by seconds.
const maxQueued = 1 << 16

func newPipe[T any](d *direction, deliver func(T)) *pipe[T] {
	return &pipe[T]{direction: d, deliver: deliver, wake: make(chan struct{}, 1)}
}

// put takes a packet of a size. Its data must stay as they are.
func (p *pipe[T]) put(packet T, size int) {
	at, copies := p.fate(time.Now(), size)
	p.mu.Lock()
	if copies > maxQueued-len(p.queue) {
		copies = 0
	}
	for range copies {
		p.count++
		heap.Push(&p.queue, departure[T]{at: at, count: p.count, packet: packet})
	}
	first := len(p.queue) > 0 && p.queue[0].at.Equal(at)
	p.mu.Unlock()
	if first {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}

// run delivers until ctx is done.
func (p *pipe[T]) run(ctx context.Context) {
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
			packet, wait, ok := p.next(time.Now())
			if !ok {
				if wait > 0 {
					timer.Reset(wait)
				}
				break
			}
			p.deliver(packet)
		}
	}
}

// next takes the packet that is due, or says how long the first one has to wait; 0 if there is none.
func (p *pipe[T]) next(now time.Time) (packet T, wait time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		return packet, 0, false
	}
	if wait = p.queue[0].at.Sub(now); wait > 0 {
		return packet, wait, false
	}
	packet = heap.Pop(&p.queue).(departure[T]).packet
	p.direction.mu.Lock()
	p.stats.Out++
	p.direction.mu.Unlock()
	return packet, 0, true
}

// departure is a packet on its way. Those that come out at the same time keep their order.
type departure[T any] struct {
	at     time.Time
	count  uint64
	packet T
}

type departures[T any] []departure[T]

func (q departures[T]) Len() int      { return len(q) }
func (q departures[T]) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *departures[T]) Push(x any)   { *q = append(*q, x.(departure[T])) }

func (q departures[T]) Less(i, j int) bool {
	if q[i].at.Equal(q[j].at) {
		return q[i].count < q[j].count
	}
	return q[i].at.Before(q[j].at)
}

func (q *departures[T]) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	(*q)[last] = departure[T]{} // lets go of the packet
	*q = (*q)[:last]
	return x
}
