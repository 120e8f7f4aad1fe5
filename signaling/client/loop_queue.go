package client

import (
	"errors"
	"sync"
)

// maxQueued limits the functions that wait for a client's loop (webClient.Serve). A peer posts little more than one
// candidate for each address of the gateway, and the socket posts a round-trip time every 5 s. So a loop that runs
// never gets that far behind.
const maxQueued = 1024

// errOverrun ends a client whose loop (webClient.Serve) does not run the functions that were posted to it.
var errOverrun = errors.New("the client's loop is stuck")

// loopQueue holds the functions that a client's loop (webClient.Serve) is to run. Pion and timers add to it without
// blocking, because they may call back from inside the loop. If it is full, it calls overrun once.
type loopQueue struct {
	wake      chan struct{} // signals new functions
	onOverrun func()

	mu       sync.Mutex
	list     []func()
	isClosed bool
}

func newLoopQueue(overrun func()) *loopQueue {
	return &loopQueue{wake: make(chan struct{}, 1), onOverrun: sync.OnceFunc(overrun)}
}

// enqueue adds f; after close, or if the queue is full, f is dropped.
func (p *loopQueue) enqueue(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.isClosed:
		return
	case len(p.list) == maxQueued:
		p.onOverrun()
		return
	}
	p.list = append(p.list, f)
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// takeAll removes and returns all functions.
func (p *loopQueue) takeAll() []func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.list
	p.list = nil
	return list
}

func (p *loopQueue) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isClosed, p.list = true, nil
}
