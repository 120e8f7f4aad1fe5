package web

import (
	"context"
	"errors"
	"sync"

	"voxgate/signaling"
	"voxgate/signaling/protocol"
)

// route selects the connection for a message.
type route int

const (
	events  route = iota // the data channel while it is open, otherwise the socket
	socket               // the WebSocket, or the channel after the socket was lost
	channel              // the data channel, or the socket after the channel was lost
)

// line is one of the two connections to the client: a WebSocket or a data channel.
type line interface {
	Write(message []byte) error
	// Limit is the longest message that the line accepts, in bytes; 0 means any.
	Limit() int
	// Ready blocks until the line accepts more, ctx is done, or the client is too slow ([signaling.ErrSlow]).
	Ready(ctx context.Context) error
}

// socketLine is the [line] over the WebSocket.
type socketLine struct{ *signaling.WSConn }

func (l *socketLine) Write(message []byte) error { return l.WSConn.Write(message, true) }

func (l *socketLine) Limit() int { return 0 }

func (l *socketLine) Ready(context.Context) error { return nil }

// routes holds the two lines to the client, and queues its messages. One goroutine writes to both, so that the last
// event on the old line is sent before the first on the new one.
type routes struct {
	put  func(signaling.Outgoing) // queues a message
	lost func(line)               // called for a failed line, by the goroutine that writes

	mu      sync.Mutex
	lines   [channel + 1]line
	changed chan struct{} // closed and replaced when lines or closed change
	closed  bool
	seq     uint64
	pieces  uint64
}

func newRoutes() *routes { return &routes{changed: make(chan struct{})} }

// send queues a message. It never blocks.
func (w *routes) send(by route, m protocol.ServerMessage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	seq := uint64(0)
	if by == events {
		w.seq++
		seq = w.seq
	}
	w.put(signaling.Outgoing{Data: m.Encode(seq), Route: int(by)})
}

// connect sets one of the two lines: socket or channel.
func (w *routes) connect(by route, l line) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines[by] = l
	w.change()
}

// drop removes a line.
func (w *routes) drop(gone line) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for by, l := range w.lines {
		if l == gone {
			w.lines[by] = nil
		}
	}
}

// close declares that no further line will be connected: messages without a line are dropped.
func (w *routes) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.change()
}

// change wakes goroutines that wait for a line. Needs mu.
func (w *routes) change() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// write is [signaling.SocketOptions].Write. Its only error is a client that is too slow.
func (w *routes) write(ctx context.Context, m signaling.Outgoing) error {
	by, err := w.line(ctx, route(m.Route), len(m.Data))
	if by == nil || err != nil {
		return err
	}
	if err := w.writeTo(ctx, by, m.Data); errors.Is(err, signaling.ErrSlow) {
		return err
	} else if err != nil { // the line is not used again
		w.drop(by)
		w.lost(by)
	}
	return nil
}

// line waits for a line that accepts a message of size bytes. It returns nil if there will be none.
func (w *routes) line(ctx context.Context, wanted route, size int) (line, error) {
	for {
		w.mu.Lock()
		by, other, changed, closed := w.lines[channel], w.lines[socket], w.changed, w.closed
		w.mu.Unlock()
		if by == nil || wanted == socket && other != nil {
			by = other
		} else if other != nil && by.Limit() > 0 && size > by.Limit() {
			by = other // too long for the channel
		}
		if by != nil || closed {
			return by, nil
		}
		select {
		case <-changed: // without a line; the client's loop decides what that means
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// writeTo sends one message, in pieces if necessary.
func (w *routes) writeTo(ctx context.Context, by line, text []byte) error {
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
