package mediatest

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// MaxDatagram is the length of receive buffers, in bytes. WebRTC packets fit, because they are shorter than the Ethernet MTU.
const MaxDatagram = 2048

// Socket is a UDP socket behind a bad network, in both directions. It has no deadlines: writing never blocks, and Close ends
// reading.
type Socket struct {
	up, down *Pipe
	conn     net.PacketConn
	inbox    chan Packet
	closed   context.Context
	stop     context.CancelFunc
	running  sync.WaitGroup
}

var _ net.PacketConn = (*Socket)(nil)

// NewSocket puts an unimpaired network around a socket. It takes ownership of the socket.
func NewSocket(inner net.PacketConn, seed uint64) *Socket {
	const unread = 1024 // packets buffered before more are lost, as at a real socket
	c := &Socket{conn: inner, inbox: make(chan Packet, unread)}
	c.closed, c.stop = context.WithCancel(context.Background())
	c.up = NewPipe(NewPath(seed, 0), func(p Packet) {
		inner.WriteTo(p.Data, p.Addr) // an error counts as loss
	})
	c.down = NewPipe(NewPath(seed, 1), func(p Packet) {
		select {
		case c.inbox <- p:
		default:
		}
	})
	c.running.Go(func() { c.up.Run(c.closed) })
	c.running.Go(func() { c.down.Run(c.closed) })
	c.running.Go(c.receive)
	return c
}

// SetImpairments sets the impairment for sent and received packets.
func (s *Socket) SetImpairments(up, down Impairment) {
	s.up.SetImpairment(up)
	s.down.SetImpairment(down)
}

// Blackout makes the network lose packets in both directions from now until the given time.
func (s *Socket) Blackout(until time.Time) {
	s.up.Blackout(until)
	s.down.Blackout(until)
}

// receive reads the real socket until it is closed.
func (s *Socket) receive() {
	buf := make([]byte, MaxDatagram)
	for {
		n, addr, err := s.conn.ReadFrom(buf)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err == nil:
			s.down.Put(buf[:n], addr)
		default: // an ICMP error, because nothing listens at the port: read on, later packets may arrive
			time.Sleep(time.Millisecond)
		}
	}
}

// ReadFrom waits for a packet that has come through the network.
func (s *Socket) ReadFrom(b []byte) (int, net.Addr, error) {
	select {
	case p := <-s.inbox:
		return copy(b, p.Data), p.Addr, nil
	case <-s.closed.Done():
		return 0, nil, net.ErrClosed
	}
}

// WriteTo sends a packet through the network. It never blocks, and fails only after Close.
func (s *Socket) WriteTo(b []byte, addr net.Addr) (int, error) {
	if s.closed.Err() != nil {
		return 0, net.ErrClosed
	}
	s.up.Put(b, addr)
	return len(b), nil
}

// Close closes the socket and loses packets in flight. A second Close returns net.ErrClosed.
func (s *Socket) Close() error {
	if s.closed.Err() != nil {
		return net.ErrClosed
	}
	s.stop()
	err := s.conn.Close()
	s.running.Wait()
	return err
}

// LocalAddr returns the address of the real socket.
func (s *Socket) LocalAddr() net.Addr { return s.conn.LocalAddr() }

// SetDeadline does nothing.
func (*Socket) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing.
func (*Socket) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing.
func (*Socket) SetWriteDeadline(time.Time) error { return nil }
