package main

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"voxgate/media/mediatest"
)

// maxDatagram is what WebRTC never exceeds: it keeps to the Ethernet MTU.
const maxDatagram = 2048

// received is how many packets wait to be read before new ones are lost, as at a socket.
const received = 1024

// badSocket is a socket behind a bad network, in both directions. Its own socket can be exchanged for another one, as when a phone
// leaves the Wi-Fi or a NAT forgets it. It has no deadlines: writing does not block, and reading ends with Close.
type badSocket struct {
	up, down *pipe
	local    net.Addr
	inbox    chan packet
	closed   context.Context
	stop     context.CancelFunc
	running  sync.WaitGroup

	mu    sync.Mutex
	inner net.PacketConn
}

var _ net.PacketConn = (*badSocket)(nil)

// newBadSocket puts a network without faults around a socket, which it then owns.
func newBadSocket(inner net.PacketConn, seed uint64) *badSocket {
	c := &badSocket{inner: inner, local: inner.LocalAddr(), inbox: make(chan packet, received)}
	c.closed, c.stop = context.WithCancel(context.Background())
	c.up = newPipe(mediatest.NewPath(seed, 0), func(p packet) {
		c.mu.Lock()
		socket := c.inner
		c.mu.Unlock()
		socket.WriteTo(p.data, p.addr) // an error is a loss
	})
	c.down = newPipe(mediatest.NewPath(seed, 1), func(p packet) {
		select {
		case c.inbox <- p:
		default:
		}
	})
	c.running.Go(func() { c.up.run(c.closed) })
	c.running.Go(func() { c.down.run(c.closed) })
	c.running.Go(func() { c.receive(inner) })
	return c
}

// Set changes the impairments of what is sent and of what is received.
func (c *badSocket) Set(up, down mediatest.Impairment) {
	c.up.Set(up)
	c.down.Set(down)
}

// Blackout loses what is sent and what comes before a time.
func (c *badSocket) Blackout(until time.Time) {
	c.up.Blackout(until)
	c.down.Blackout(until)
}

// Swap goes on with another socket and closes the old one.
func (c *badSocket) Swap(next net.PacketConn) {
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
func (c *badSocket) receive(socket net.PacketConn) {
	buf := make([]byte, maxDatagram)
	for {
		n, addr, err := socket.ReadFrom(buf)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err == nil:
			c.down.put(buf[:n], addr)
		default: // a port that is not there (ICMP): the next packet may arrive
			time.Sleep(time.Millisecond)
		}
	}
}

// ReadFrom waits for what has come through the network.
func (c *badSocket) ReadFrom(b []byte) (int, net.Addr, error) {
	select {
	case p := <-c.inbox:
		return copy(b, p.data), p.addr, nil
	case <-c.closed.Done():
		return 0, nil, net.ErrClosed
	}
}

// WriteTo sends into the network. It never blocks, and fails after Close only.
func (c *badSocket) WriteTo(b []byte, addr net.Addr) (int, error) {
	if c.closed.Err() != nil {
		return 0, net.ErrClosed
	}
	c.up.put(b, addr)
	return len(b), nil
}

// Close ends it, with its socket and with what is on the way. It returns net.ErrClosed when it was closed before.
func (c *badSocket) Close() error {
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

// LocalAddr is that of the first socket, always: behind a NAT nobody is told of another one, either.
func (c *badSocket) LocalAddr() net.Addr { return c.local }

// SetDeadline does nothing.
func (c *badSocket) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing.
func (c *badSocket) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing.
func (c *badSocket) SetWriteDeadline(time.Time) error { return nil }
