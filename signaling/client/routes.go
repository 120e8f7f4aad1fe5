package client

import (
	"context"
	"errors"
	"sync"

	"voxgate/signaling"
	"voxgate/signaling/client/protocol"
)

// route says over which connection a message is sent.
type route int

const (
	routeEvents  route = iota // the data channel while it is open, otherwise the socket
	routeSocket               // the WebSocket, or the channel after the socket was lost
	routeChannel              // the data channel, or the socket after the channel was lost
)

// transport is one of the two connections to the client: a WebSocket or a data channel.
type transport interface {
	Write(message []byte) error
	// Limit is the longest message that the transport accepts, in bytes; 0 means any.
	Limit() int
	// WaitWritable blocks until the transport accepts more, ctx is done, or the client is too slow
	// ([signaling.ErrSlow]).
	WaitWritable(ctx context.Context) error
}

// socketTransport is the [transport] over the WebSocket.
type socketTransport struct{ *signaling.WSConn }

func (s *socketTransport) Write(message []byte) error { return s.WSConn.Write(message, true) }

func (s *socketTransport) Limit() int { return 0 }

func (s *socketTransport) WaitWritable(context.Context) error { return nil }

// router holds the two transports to the client, and queues its messages. Only one goroutine writes to the transports,
// so that events stay in order.
type router struct {
	enqueue func(signaling.Outgoing) // queues a message
	onLost  func(transport)          // called for a failed transport, by the goroutine that writes

	mu          sync.Mutex
	transports  [routeChannel + 1]transport
	wake        chan struct{} // closed and replaced when transports or isClosed change
	isClosed    bool
	seq         uint64
	lastPieceID uint64
}

func newRouter() *router { return &router{wake: make(chan struct{})} }

// sendMessage queues a message for a route. It never blocks. Only messages for routeEvents get a sequence number.
func (r *router) sendMessage(via route, m protocol.ServerMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seq := uint64(0)
	if via == routeEvents {
		r.seq++
		seq = r.seq
	}
	r.enqueue(signaling.Outgoing{Data: m.Encode(seq), Route: int(via)})
}

// setTransport sets the transport of one kind: routeSocket or routeChannel.
func (r *router) setTransport(via route, l transport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.transports[via] = l
	r.wakeWaiters()
}

// removeTransport removes a lost transport.
func (r *router) removeTransport(lost transport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for by, l := range r.transports {
		if l == lost {
			r.transports[by] = nil
		}
	}
}

// close records that no further transport will be connected. From then on, messages are dropped if no transport is
// left.
func (r *router) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isClosed = true
	r.wakeWaiters()
}

// wakeWaiters wakes goroutines that wait for a transport. The caller must hold mu.
func (r *router) wakeWaiters() {
	close(r.wake)
	r.wake = make(chan struct{})
}

// writeMessage implements [signaling.SocketOptions].Write. It returns [signaling.ErrSlow] if the client is too slow, or
// the error of ctx. If a transport fails, the message is lost, and the other transport is used from then on.
func (r *router) writeMessage(ctx context.Context, m signaling.Outgoing) error {
	by, err := r.awaitTransport(ctx, route(m.Route), len(m.Data))
	if by == nil || err != nil {
		return err
	}
	if err := r.writeTo(ctx, by, m.Data); errors.Is(err, signaling.ErrSlow) {
		return err
	} else if err != nil { // the transport is not used again
		r.removeTransport(by)
		r.onLost(by)
	}
	return nil
}

// awaitTransport waits for a transport on which a message of size bytes can be sent. It prefers a transport that can
// send the message in one piece. It returns nil if no transport is left after close.
func (r *router) awaitTransport(ctx context.Context, preferred route, size int) (transport, error) {
	for {
		r.mu.Lock()
		by, other, changed, closed := r.transports[routeChannel], r.transports[routeSocket], r.wake, r.isClosed
		r.mu.Unlock()
		if by == nil || preferred == routeSocket && other != nil {
			by = other
		} else if other != nil && by.Limit() > 0 && size > by.Limit() {
			by = other // too long for the channel
		}
		if by != nil || closed {
			return by, nil
		}
		select {
		case <-changed: // try again; the client's loop decides how long to wait for a transport
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// writeTo sends one message, in pieces if necessary.
func (r *router) writeTo(ctx context.Context, t transport, text []byte) error {
	limit := t.Limit()
	if limit == 0 || len(text) <= limit {
		if err := t.WaitWritable(ctx); err != nil {
			return err
		}
		return t.Write(text)
	}
	r.mu.Lock()
	r.lastPieceID++
	id := r.lastPieceID
	r.mu.Unlock()
	for piece := range protocol.SplitMessage(id, text) {
		if err := t.WaitWritable(ctx); err != nil {
			return err
		}
		if err := t.Write(piece); err != nil {
			return err
		}
	}
	return nil
}
