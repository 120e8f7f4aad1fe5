package web

import (
	"errors"
	"sync"
)

// maxPosts bounds what waits for a client's loop. A peer posts a candidate for each of our addresses and little else, and the socket
// one round trip in 5 s: no loop that runs is so far behind.
const maxPosts = 1024

// errOverrun is the end of a client whose loop does not get to what was posted.
var errOverrun = errors.New("the client's loop is stuck")

// posts are what a loop is to run, in order. Pion and timers put in and never wait, as they may call back from inside the loop. Too many
// call overrun, once.
type posts struct {
	more    chan struct{} // there may be something
	overrun func()

	mu     sync.Mutex
	list   []func()
	closed bool
}

func newPosts(overrun func()) *posts {
	return &posts{more: make(chan struct{}, 1), overrun: sync.OnceFunc(overrun)}
}

// put adds f; after close, or if there are too many, it is dropped.
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

// take takes all that there is.
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
