package fault

import (
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// wire is the network between the gateway and the model: a forwarder that can be cut and that can swallow everything.
type wire struct {
	url      string
	to       string
	listener net.Listener
	running  sync.WaitGroup
	flow     sync.RWMutex // held for reading while something is passed on

	mu    sync.Mutex
	down  time.Time // until when connections are refused
	ended bool
	conns map[net.Conn]struct{}
}

// newWire lays a wire to a URL.
func newWire(url string) (*wire, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &wire{
		url: "http://" + listener.Addr().String(), to: strings.TrimPrefix(url, "http://"),
		listener: listener, conns: make(map[net.Conn]struct{}),
	}
	w.running.Go(w.serve)
	return w, nil
}

func (w *wire) serve() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", w.to)
		if err != nil {
			near.Close()
			continue
		}
		if !w.keep(near, far) {
			continue
		}
		w.running.Go(func() { w.pass(near, far) })
		w.running.Go(func() { w.pass(far, near) })
	}
}

// keep adds the two ends of a connection, or resets them if there is no way now.
func (w *wire) keep(ends ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	cut := w.ended || time.Now().Before(w.down)
	for _, c := range ends {
		w.conns[c] = struct{}{}
		if cut {
			w.reset(c)
		}
	}
	return !cut
}

// reset ends a connection by RST. The caller holds mu.
func (w *wire) reset(c net.Conn) {
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
	delete(w.conns, c)
}

// pass brings what comes from one end to the other.
func (w *wire) pass(from, to net.Conn) {
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		w.flow.RLock()
		_, failed := to.Write(buf[:n])
		w.flow.RUnlock()
		if err != nil || failed != nil {
			if err != io.EOF {
				from.Close()
			}
			return
		}
	}
}

// cut resets all connections, and new ones for a while.
func (w *wire) cut(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = time.Now().Add(d)
	for c := range w.conns {
		w.reset(c)
	}
}

// swallow lets nothing through for a while. The ends are not told.
func (w *wire) swallow(d time.Duration) {
	w.flow.Lock()
	time.AfterFunc(d, w.flow.Unlock)
}

// close ends it, after what it may be swallowing.
func (w *wire) close() {
	w.listener.Close()
	w.mu.Lock()
	w.ended = true
	for c := range w.conns {
		w.reset(c)
	}
	w.mu.Unlock()
	w.running.Wait()
}
