package signaling

import (
	"context"
	"errors"
	"sync"

	"voxgate/signaling/protocol"
	"voxgate/signaling/rtc"
)

// way is how a message travels.
type way int

const (
	events  way = iota // the data channel while it is open, else the socket
	socket             // the WebSocket, or the channel when it is gone
	channel            // the data channel, or the socket when it is gone
)

// maxWaiting bounds what waits for a slow client, in bytes. Above it the client is dropped: what it would hear is seconds
// old.
const maxWaiting = 4 << 20

// line is one of the two ways to the client, as the outbox sees it.
type line interface {
	Write(message []byte) error
	// Limit is the longest message it takes, in bytes; 0: any.
	Limit() int
	// Ready blocks until the line takes more, ctx is done, or the client is too slow ([rtc.ErrSlow]).
	Ready(ctx context.Context) error
}

// outbox holds what waits to go to a client. One goroutine writes, whichever way it goes, so that the last event on
// the old way is sent before the first on the new one.
type outbox struct {
	wake chan struct{}

	mu       sync.Mutex
	queue    []letter
	waiting  int
	seq      uint64
	pieces   uint64
	overflow bool
	closed   bool // nothing more is accepted
	lines    [channel + 1]line
}

type letter struct {
	way  way
	text []byte
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

// put queues a message. It never blocks.
func (o *outbox) put(w way, m protocol.ServerMessage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	if o.waiting > maxWaiting {
		o.overflow = true
		o.signal()
		return
	}
	seq := uint64(0)
	if w == events {
		o.seq++
		seq = o.seq
	}
	text := m.Encode(seq)
	o.queue = append(o.queue, letter{w, text})
	o.waiting += len(text)
	o.signal()
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// connect sets or, with nil, takes away one of the two lines: socket or channel.
func (o *outbox) connect(w way, l line) {
	o.mu.Lock()
	o.lines[w] = l
	o.mu.Unlock()
	o.signal()
}

// close accepts nothing more; run returns when the queue is empty.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.signal()
}

// next takes the oldest message and the line that it shall go by now. done is true when there will be none.
func (o *outbox) next() (l letter, by line, done bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.overflow {
		return letter{}, nil, true, rtc.ErrSlow
	}
	if len(o.queue) == 0 {
		return letter{}, nil, o.closed, nil
	}
	l = o.queue[0]
	by = o.lines[channel]
	if other := o.lines[socket]; by == nil || l.way == socket && other != nil {
		by = other
	} else if other != nil && by.Limit() > 0 && len(l.text) > by.Limit() {
		by = other // too long for the channel
	}
	if by == nil {
		return letter{}, nil, o.closed, nil // nobody there: wait, the caller's loop decides what that means
	}
	o.queue[0] = letter{}
	o.queue = o.queue[1:]
	o.waiting -= len(l.text)
	return l, by, false, nil
}

// run writes until the outbox is closed and empty, the client is too slow (rtc.ErrSlow), or ctx is done. A line that fails
// is reported to lost and not used again.
func (o *outbox) run(ctx context.Context, lost func(line)) error {
	for {
		l, by, done, err := o.next()
		if err != nil {
			return err
		}
		if by == nil {
			if done {
				return nil
			}
			select {
			case <-o.wake:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err := o.write(ctx, by, l.text); errors.Is(err, rtc.ErrSlow) {
			return err
		} else if err != nil {
			o.drop(by)
			lost(by)
		}
	}
}

// drop forgets a line that failed.
func (o *outbox) drop(by line) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for w, l := range o.lines {
		if l == by {
			o.lines[w] = nil
		}
	}
}

// write sends one message, in pieces if it must be.
func (o *outbox) write(ctx context.Context, by line, text []byte) error {
	limit := by.Limit()
	if limit == 0 || len(text) <= limit {
		if err := by.Ready(ctx); err != nil {
			return err
		}
		return by.Write(text)
	}
	o.mu.Lock()
	o.pieces++
	id := o.pieces
	o.mu.Unlock()
	for piece := range protocol.Pieces(id, text) {
		if err := by.Ready(ctx); err != nil {
			return err
		}
		if err := by.Write(piece); err != nil {
			return err
		}
	}
	return nil
}
