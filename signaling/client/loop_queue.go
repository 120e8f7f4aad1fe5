package client

import (
	"errors"
	"sync"
)

// maxQueued limits the functions that wait for a client's loop (webClient.Serve). A peer posts about one function per
// address of the gateway, and the socket posts one every 5 s.
const maxQueued = 1024

// errOverrun ends a client whose loop (webClient.Serve) does not run the functions that were posted to it.
var errOverrun = errors.New("the client's loop is stuck")

// loopQueue holds the functions for a client's loop (webClient.Serve). Adding never blocks: Pion may call back from
// inside the loop. A full queue calls onOverrun once.
type loopQueue struct {
	wake      chan struct{} // signals new functions
	onOverrun func()

	mu       sync.Mutex
	list     []func()
	isClosed bool
}

func newLoopQueue(onOverrun func()) *loopQueue {
	return &loopQueue{wake: make(chan struct{}, 1), onOverrun: sync.OnceFunc(onOverrun)}
}

// enqueue adds f; after close, or if the queue is full, f is dropped.
func (l *loopQueue) enqueue(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.isClosed:
		return
	case len(l.list) == maxQueued:
		l.onOverrun()
		return
	}
	l.list = append(l.list, f)
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// takeAll removes and returns all functions.
func (l *loopQueue) takeAll() []func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.list
	l.list = nil
	return list
}

func (l *loopQueue) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isClosed, l.list = true, nil
}
