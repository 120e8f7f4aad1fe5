package mediatest

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// MaxDatagram is more than WebRTC ever sends: it keeps to the Ethernet MTU.
const MaxDatagram = 2048

// Socket is a UDP socket behind a bad network, in both directions. Swap exchanges the real socket, as when a phone leaves the Wi-Fi or a
// NAT forgets it. There are no deadlines: writing does not block, and reading ends with Close.
type Socket struct {
	up, down *Pipe
	local    net.Addr
	inbox    chan Packet
	closed   context.Context
	stop     context.CancelFunc
	running  sync.WaitGroup

	mu    sync.Mutex
	inner net.PacketConn
}

var _ net.PacketConn = (*Socket)(nil)

// NewSocket puts a network without faults around a socket, which it then owns.
func NewSocket(inner net.PacketConn, seed uint64) *Socket {
	const unread = 1024 // packets that wait to be read before more are lost, as at a real socket
	c := &Socket{inner: inner, local: inner.LocalAddr(), inbox: make(chan Packet, unread)}
	c.closed, c.stop = context.WithCancel(context.Background())
	c.up = NewPipe(NewPath(seed, 0), func(p Packet) {
		c.mu.Lock()
		socket := c.inner
		c.mu.Unlock()
		socket.WriteTo(p.Data, p.Addr) // an error is a loss
	})
	c.down = NewPipe(NewPath(seed, 1), func(p Packet) {
		select {
		case c.inbox <- p:
		default:
		}
	})
	c.running.Go(func() { c.up.Run(c.closed) })
	c.running.Go(func() { c.down.Run(c.closed) })
	c.running.Go(func() { c.receive(inner) })
	return c
}

// Set changes what happens to packets that are sent and that are received.
func (c *Socket) Set(up, down Impairment) {
	c.up.Set(up)
	c.down.Set(down)
}

// Blackout loses what is sent and received before a time.
func (c *Socket) Blackout(until time.Time) {
	c.up.Blackout(until)
	c.down.Blackout(until)
}

// Swap goes on with another socket and closes the old one.
func (c *Socket) Swap(next net.PacketConn) {
	c.mu.Lock()
	old := c.inner
	if c.closed.Err() != nil {
		old = next
	} else {
		c.inner = next
		c.running.Go(func() { c.receive(next) })
	}
	c.mu.Unlock()
	old.Close()
}

// receive reads a socket until it is closed.
func (c *Socket) receive(socket net.PacketConn) {
	buf := make([]byte, MaxDatagram)
	for {
		n, addr, err := socket.ReadFrom(buf)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err == nil:
			c.down.Put(buf[:n], addr)
		default: // a port where nobody listens (ICMP): the next packet may arrive
			time.Sleep(time.Millisecond)
		}
	}
}

// ReadFrom waits for what has come through the network.
func (c *Socket) ReadFrom(b []byte) (int, net.Addr, error) {
	select {
	case p := <-c.inbox:
		return copy(b, p.Data), p.Addr, nil
	case <-c.closed.Done():
		return 0, nil, net.ErrClosed
	}
}

// WriteTo sends into the network. It never blocks, and fails only after Close.
func (c *Socket) WriteTo(b []byte, addr net.Addr) (int, error) {
	if c.closed.Err() != nil {
		return 0, net.ErrClosed
	}
	c.up.Put(b, addr)
	return len(b), nil
}

// Close closes the socket, and loses what is on the way. A second Close returns net.ErrClosed.
func (c *Socket) Close() error {
	c.mu.Lock()
	if c.closed.Err() != nil {
		c.mu.Unlock()
		return net.ErrClosed
	}
	c.stop()
	err := c.inner.Close()
	c.mu.Unlock()
	c.running.Wait()
	return err
}

// LocalAddr is always that of the first socket: a client behind a NAT does not learn of another one, either.
func (c *Socket) LocalAddr() net.Addr { return c.local }

// SetDeadline does nothing.
func (*Socket) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing.
func (*Socket) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing.
func (*Socket) SetWriteDeadline(time.Time) error { return nil }
