package main

import (
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// relay is the network between the gateway and the model: it can be cut.
type relay struct {
	url      string
	to       string
	listener net.Listener

	mu    sync.Mutex
	down  time.Time // until when connections are refused
	conns map[*net.TCPConn]struct{}
}

// newRelay passes connections on to a URL, until its listener is closed.
func newRelay(url string) (*relay, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{
		url: "http://" + listener.Addr().String(), to: strings.TrimPrefix(url, "http://"), listener: listener,
		conns: map[*net.TCPConn]struct{}{},
	}
	go r.serve()
	return r, nil
}

func (r *relay) serve() {
	for {
		near, err := r.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", r.to)
		if err != nil {
			near.Close()
			continue
		}
		r.mu.Lock()
		for _, c := range []net.Conn{near, far} {
			r.conns[c.(*net.TCPConn)] = struct{}{}
		}
		if time.Now().Before(r.down) {
			r.reset()
		}
		r.mu.Unlock()
		go pass(near, far)
		go pass(far, near)
	}
}

// pass brings what comes from one end to the other.
func pass(from, to net.Conn) {
	_, err := io.Copy(to, from)
	to.Close()
	if err != nil {
		from.Close()
	}
}

// cut resets all connections, and new ones for a while.
func (r *relay) cut(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = time.Now().Add(d)
	r.reset()
}

// reset ends all connections by RST. The caller holds mu.
func (r *relay) reset() {
	for c := range r.conns {
		c.SetLinger(0)
		c.Close()
	}
	clear(r.conns)
}

func (r *relay) close() {
	r.listener.Close()
	r.cut(time.Hour)
}
