package signaling

import (
	"context"
	"errors"
	"sync"

	"voxgate/signaling/protocol"
)

// way is how a message travels.
type way int

const (
	events  way = iota // the data channel while it is open, else the socket
	socket             // the WebSocket, or the channel when it is gone
	channel            // the data channel, or the socket when it is gone
)

// line is one of the two ways to the client: a WebSocket or a data channel.
type line interface {
	Write(message []byte) error
	// Limit is the longest message it takes, in bytes; 0: any.
	Limit() int
	// Ready blocks until the line takes more, ctx is done, or the client is too slow ([ErrSlow]).
	Ready(ctx context.Context) error
}

// socketLine is the [line] over the WebSocket.
type socketLine struct{ *Line }

func (l *socketLine) Write(message []byte) error { return l.Line.Write(message, true) }

func (l *socketLine) Limit() int { return 0 }

func (l *socketLine) Ready(context.Context) error { return nil }

// ways are the two ways to the client, and what waits to go by them. One goroutine writes, whichever way it goes, so that the
// last event on the old way is sent before the first on the new one.
type ways struct {
	box  *Outbox[letter]
	lost func(line) // is told of a line that failed, in the goroutine that writes

	mu      sync.Mutex
	lines   [channel + 1]line
	changed chan struct{} // closed and replaced when lines or closed change
	closed  bool
	seq     uint64
	pieces  uint64
}

type letter struct {
	way  way
	text []byte
}

func newWays(lost func(line)) *ways {
	return &ways{box: NewOutbox[letter](), lost: lost, changed: make(chan struct{})}
}

// put queues a message. It never blocks.
func (w *ways) put(by way, m protocol.ServerMessage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	seq := uint64(0)
	if by == events {
		w.seq++
		seq = w.seq
	}
	text := m.Encode(seq)
	w.box.Put(letter{by, text}, len(text))
}

// connect sets one of the two lines: socket or channel.
func (w *ways) connect(by way, l line) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines[by] = l
	w.change()
}

// drop takes a line away.
func (w *ways) drop(gone line) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for by, l := range w.lines {
		if l == gone {
			w.lines[by] = nil
		}
	}
}

// close accepts nothing more; run returns when all that waits was written, or there is no line to write it to.
func (w *ways) close() {
	w.mu.Lock()
	w.closed = true
	w.change()
	w.mu.Unlock()
	w.box.Close()
}

// change tells who waits for a line. Needs mu.
func (w *ways) change() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// run writes until the ways are closed and empty, the client is too slow, or ctx is done.
func (w *ways) run(ctx context.Context) error {
	return w.box.Run(ctx, func(ctx context.Context, l letter) error {
		by, err := w.line(ctx, l)
		if by == nil || err != nil {
			return err
		}
		if err := w.write(ctx, by, l.text); errors.Is(err, ErrSlow) {
			return err
		} else if err != nil { // it is not used again
			w.drop(by)
			w.lost(by)
		}
		return nil
	})
}

// line waits for the line that a letter shall go by now; nil: there will be none.
func (w *ways) line(ctx context.Context, l letter) (line, error) {
	for {
		w.mu.Lock()
		by, other, changed, closed := w.lines[channel], w.lines[socket], w.changed, w.closed
		w.mu.Unlock()
		if by == nil || l.way == socket && other != nil {
			by = other
		} else if other != nil && by.Limit() > 0 && len(l.text) > by.Limit() {
			by = other // too long for the channel
		}
		if by != nil || closed {
			return by, nil
		}
		select {
		case <-changed: // nobody there: the client's loop decides what that means
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// write sends one message, in pieces if it must be.
func (w *ways) write(ctx context.Context, by line, text []byte) error {
	limit := by.Limit()
	if limit == 0 || len(text) <= limit {
		if err := by.Ready(ctx); err != nil {
			return err
		}
		return by.Write(text)
	}
	w.mu.Lock()
	w.pieces++
	id := w.pieces
	w.mu.Unlock()
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
