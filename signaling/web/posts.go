package web

import (
	"errors"
	"sync"
)

// maxPosts limits the functions that wait for a client's loop. A peer posts a candidate for each of our addresses and
// little else, and the socket one round trip in 5 s: no running loop is that far behind.
const maxPosts = 1024

// errOverrun ends a client whose loop does not process its posts.
var errOverrun = errors.New("the client's loop is stuck")

// posts is a queue of functions for a loop. Pion and timers add to it without blocking, because they may call back from
// inside the loop. If it is full, it calls overrun once.
type posts struct {
	more    chan struct{} // signals new functions
	overrun func()

	mu     sync.Mutex
	list   []func()
	closed bool
}

func newPosts(overrun func()) *posts {
	return &posts{more: make(chan struct{}, 1), overrun: sync.OnceFunc(overrun)}
}

// put adds f; after close, or if the queue is full, f is dropped.
func (p *posts) put(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return
	case len(p.list) == maxPosts:
		p.overrun()
		return
	}
	p.list = append(p.list, f)
	select {
	case p.more <- struct{}{}:
	default:
	}
}

// take removes and returns all functions.
func (p *posts) take() []func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.list
	p.list = nil
	return list
}

func (p *posts) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed, p.list = true, nil
}
