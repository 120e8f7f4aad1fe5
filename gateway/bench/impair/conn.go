package impair

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// maxDatagram is what WebRTC never exceeds: it keeps to the Ethernet MTU.
const maxDatagram = 2048

// received is how many packets wait to be read before new ones are lost, as at a socket.
const received = 1024

// Conn is a socket behind a bad network, in both directions. Its own socket can be changed for another one, as when a phone
// leaves the Wi-Fi or a NAT forgets it.
type Conn struct {
	up, down *pipe[datagram]
	local    net.Addr
	inbox    chan datagram
	closed   chan struct{}
	stop     context.CancelFunc
	running  sync.WaitGroup

	mu       sync.Mutex
	inner    net.PacketConn
	reading  *time.Timer   // until the read deadline; nil: none
	deadline chan struct{} // closed when it has passed
	ended    bool
}

type datagram struct {
	data []byte
	addr net.Addr
}

var _ net.PacketConn = (*Conn)(nil)

// NewConn puts a network without faults around a socket, which it then owns.
func NewConn(inner net.PacketConn, seed uint64) *Conn {
	ctx, stop := context.WithCancel(context.Background())
	c := &Conn{inner: inner, local: inner.LocalAddr(), inbox: make(chan datagram, received), closed: make(chan struct{}), stop: stop, deadline: make(chan struct{})}
	c.up = newPipe(newDirection(seed, 0), func(d datagram) {
		c.socket().WriteTo(d.data, d.addr) // an error is a loss
	})
	c.down = newPipe(newDirection(seed, 1), func(d datagram) {
		select {
		case c.inbox <- d:
		default:
		}
	})
	c.running.Go(func() { c.up.run(ctx) })
	c.running.Go(func() { c.down.run(ctx) })
	c.running.Go(func() { c.receive(inner) })
	return c
}

// Set changes the profiles of what is sent and of what is received.
func (c *Conn) Set(up, down Profile) {
	c.up.set(up)
	c.down.set(down)
}

// Blackout loses everything for a while.
func (c *Conn) Blackout(length time.Duration) {
	c.up.blackout(length)
	c.down.blackout(length)
}

// Stats returns what became of the packets.
func (c *Conn) Stats() (up, down Stats) { return c.up.read(), c.down.read() }

// Swap goes on with another socket and closes the old one.
func (c *Conn) Swap(next net.PacketConn) {
	c.mu.Lock()
	old := c.inner
	if c.ended {
		old = next
	} else {
		c.inner = next
		c.running.Go(func() { c.receive(next) })
	}
	c.mu.Unlock()
	old.Close()
}

func (c *Conn) socket() net.PacketConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inner
}

// receive reads a socket until it is closed.
func (c *Conn) receive(socket net.PacketConn) {
	buf := make([]byte, maxDatagram)
	for {
		n, addr, err := socket.ReadFrom(buf)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err == nil:
			c.down.put(datagram{slices.Clone(buf[:n]), addr}, n)
		default: // a port that is not there (ICMP): the next packet may arrive
			time.Sleep(time.Millisecond)
		}
	}
}

// ReadFrom reads what has come through the network.
func (c *Conn) ReadFrom(b []byte) (int, net.Addr, error) {
	c.mu.Lock()
	deadline := c.deadline
	c.mu.Unlock()
	select {
	case d := <-c.inbox:
		return copy(b, d.data), d.addr, nil
	case <-deadline:
		return 0, nil, os.ErrDeadlineExceeded
	case <-c.closed:
		return 0, nil, net.ErrClosed
	}
}

// WriteTo sends into the network, and so never fails but after Close.
func (c *Conn) WriteTo(b []byte, addr net.Addr) (int, error) {
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	default:
	}
	c.up.put(datagram{slices.Clone(b), addr}, len(b))
	return len(b), nil
}

// Close ends it, with its socket and with what is on the way.
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return net.ErrClosed
	}
	c.ended = true
	close(c.closed)
	if c.reading != nil {
		c.reading.Stop()
	}
	err := c.inner.Close()
	c.mu.Unlock()
	c.stop()
	c.running.Wait()
	return err
}

// LocalAddr is that of the first socket, for ever: behind a NAT, too, nobody is told of another one.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// SetDeadline is SetReadDeadline: writing does not block.
func (c *Conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetWriteDeadline does nothing: writing does not block.
func (c *Conn) SetWriteDeadline(time.Time) error { return nil }

// SetReadDeadline bounds the calls of ReadFrom that begin after it.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reading != nil {
		c.reading.Stop()
	}
	passed := make(chan struct{})
	c.reading, c.deadline = nil, passed
	if !t.IsZero() {
		c.reading = time.AfterFunc(time.Until(t), func() { close(passed) })
	}
	return nil
}
