// Package redistest runs a real redis-server for tests and measurements, and simulates network failures in front of it.
package redistest

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// Server is a redis-server without persistence.
type Server struct {
	folder, socket string
	cmd            *exec.Cmd
}

// Start starts a server and waits until it responds. Stop releases it.
func Start() (*Server, error) {
	folder, err := os.MkdirTemp("", "redis")
	if err != nil {
		return nil, err
	}
	s := &Server{folder: folder, socket: filepath.Join(folder, "s")}
	if err := s.Restart(); err != nil {
		os.RemoveAll(folder)
		return nil, err
	}
	return s, nil
}

// startTimeout limits how long a redis-server may take to respond, on a busy machine.
const startTimeout = 10 * time.Second

// Restart starts the server again after Kill, without its data. It blocks until the server accepts connections.
func (s *Server) Restart() error {
	os.Remove(s.socket)
	s.cmd = exec.Command("redis-server", "--port", "0", "--unixsocket", s.socket, "--save", "", "--appendonly", "no", "--dir", s.folder)
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("redis-server: %w", err)
	}
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		conn, err := net.Dial("unix", s.socket)
		if err == nil {
			return conn.Close()
		}
		if time.Since(began) > startTimeout {
			s.Kill()
			return fmt.Errorf("redis-server: %w", err)
		}
	}
}

// Kill ends the server at once.
func (s *Server) Kill() {
	s.cmd.Process.Kill()
	s.cmd.Wait()
}

// Stop ends the server and removes its folder.
func (s *Server) Stop() {
	s.Kill()
	os.RemoveAll(s.folder)
}

// PID returns the process ID of the server.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// URL returns the address of the server.
func (s *Server) URL() string { return "unix://" + s.socket }

// Proxy is a TCP port in front of a server that can be slow or unresponsive.
type Proxy struct {
	server   *Server
	listener net.Listener
	running  sync.WaitGroup

	mu          sync.Mutex
	isBlackhole bool
	conns       map[net.Conn]bool
}

// OpenProxy opens a proxy of the server. Close releases it.
func (s *Server) OpenProxy() (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{server: s, listener: listener, conns: map[net.Conn]bool{}}
	p.running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			p.running.Go(func() { p.serveConn(conn) })
		}
	})
	return p, nil
}

// URL returns the address of the proxy.
func (p *Proxy) URL() string { return "redis://" + p.listener.Addr().String() }

// SetBlackhole makes the proxy drop all data silently. If isOn is false, it closes the open connections, and forwards
// data of new connections again.
func (p *Proxy) SetBlackhole(isOn bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isBlackhole = isOn; !isOn {
		for c := range p.conns {
			c.Close()
		}
	}
}

func (p *Proxy) dropsData() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isBlackhole
}

// Close closes all connections.
func (p *Proxy) Close() {
	p.listener.Close()
	p.mu.Lock()
	p.isBlackhole = true
	for c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
}

// trackConn registers a connection, so that it is closed with the proxy. closeConn closes it earlier, and unregisters
// it.
func (p *Proxy) trackConn(c net.Conn) (closeConn func()) {
	p.mu.Lock()
	p.conns[c] = true
	p.mu.Unlock()
	return func() {
		p.mu.Lock()
		delete(p.conns, c)
		p.mu.Unlock()
		c.Close()
	}
}

func (p *Proxy) serveConn(client net.Conn) {
	defer p.trackConn(client)()
	server, err := net.Dial("unix", p.server.socket)
	if err != nil {
		return
	}
	defer p.trackConn(server)()
	p.running.Go(func() {
		p.forward(server, client)
		server.Close()
	})
	p.forward(client, server)
	client.Close()
}

// forward copies data until an end is closed. Data that arrives during a blackhole is lost.
func (p *Proxy) forward(to io.Writer, from io.Reader) {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		if p.dropsData() {
			continue
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}
