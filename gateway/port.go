package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"voxgate/signaling/rtc"
)

// portTries limits how often the gateway asks the system for a port that is free for both TCP and UDP. A few tries are
// enough, because most of the 28,000 ports are free.
const portTries = 10

// openPorts opens the ports of the page and of WebRTC.
func (g *gateway) openPorts(context.Context) (end func(context.Context) error, err error) {
	if g.page, g.webrtc, err = openPorts(g.settings, g.log); err != nil {
		return nil, err
	}
	return func(context.Context) error {
		defer g.page.Close()
		return g.webrtc.Close()
	}, nil
}

// openPorts opens the port of the page, with TLS if configured, and the ports of WebRTC.
func openPorts(s settings, log *slog.Logger) (page net.Listener, webrtc *rtc.API, err error) {
	_, port, _ := net.SplitHostPort(s.addr) // Listen reports an invalid address
	tries := 1
	if port == "0" && s.udpPort == 0 { // WebRTC uses the number of the page's port over UDP
		tries = portTries
	}
	for range tries {
		page, webrtc, err = openPortsOnce(s, log)
		if failed := (*net.OpError)(nil); !errors.As(err, &failed) || failed.Net != "udp" || !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return page, webrtc, err
}

func openPortsOnce(s settings, log *slog.Logger) (page net.Listener, webrtc *rtc.API, err error) {
	if page, err = net.Listen("tcp", s.addr); err != nil {
		return nil, nil, fmt.Errorf("listen for browsers at VOXGATE_ADDR: %w", err)
	}
	page = logAcceptErrors(page, log)
	addr := page.Addr().(*net.TCPAddr)
	at := func(host string, port int) string {
		return net.JoinHostPort(cmp.Or(s.webrtcHost, host), strconv.Itoa(cmp.Or(port, addr.Port)))
	}
	pageIP := addr.IP.String()
	o := rtc.Options{UDPAddr: at(pageIP, s.udpPort), PublicIPs: s.publicIPs, Logger: log}
	if addr.IP.IsLoopback() && s.webrtcHost == "" { // Firefox ignores loopback candidates, even for a page on localhost
		o.UDPAddr, o.Loopback = at(unspecifiedAddress(addr.IP), s.udpPort), true
	}
	defer func(opened net.Listener) {
		if err != nil {
			opened.Close()
			if o.TCP != nil {
				o.TCP.Close()
			}
		}
	}(page)
	config, err := s.tls.newConfig(log)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case s.tcpPort == 0:
	case s.tcpPort == addr.Port && s.webrtcHost == "":
		page, o.TCP = splitPort(page)
	default:
		if o.TCP, err = net.Listen("tcp", at(pageIP, s.tcpPort)); err != nil {
			return nil, nil, fmt.Errorf("listen for ICE-TCP at VOXGATE_TCP_PORT: %w", err)
		}
	}
	if webrtc, err = rtc.New(o); err != nil {
		return nil, nil, err
	}
	if config != nil {
		page = tls.NewListener(page, config)
	}
	return page, webrtc, nil
}

// unspecifiedAddress returns 0.0.0.0 if ip is an IPv4 address, and :: if it is an IPv6 address.
func unspecifiedAddress(ip net.IP) string {
	if ip.To4() != nil {
		return net.IPv4zero.String()
	}
	return net.IPv6unspecified.String()
}

// splitPort shares a port between the page and WebRTC, for networks that allow only port 443. It recognizes the
// protocol of a connection by its first byte. ICE-TCP begins with a length below 2,048 (RFC 4571), TLS with 22, and
// HTTP with a letter.
func splitPort(l net.Listener) (page, webrtc net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &portSplitter{Listener: l, closed: ctx.Done(), cancel: cancel}
	p, w := &splitListener{portSplitter: s, conns: make(chan net.Conn)}, &splitListener{portSplitter: s, conns: make(chan net.Conn)}
	s.running.Go(func() {
		for ctx.Err() == nil {
			conn, err := l.Accept()
			if err == nil {
				s.running.Go(func() { s.routeConn(ctx, conn, p, w) })
				continue
			}
			select { // pause before the next try: Accept fails for a while if too many files are open
			case <-time.After(acceptPause):
			case <-ctx.Done():
			}
		}
	})
	return p, w
}

const (
	// maxFirstByte is the highest byte with which an ICE-TCP connection can begin.
	maxFirstByte = 2048>>8 - 1
	// acceptPause is the time before the next Accept after a failure.
	acceptPause = 100 * time.Millisecond
)

// portSplitter accepts the connections and looks at the first byte of each.
type portSplitter struct {
	net.Listener
	closed  <-chan struct{}
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// routeConn reads the first byte of a connection, and then passes the connection to one of the two listeners. It waits
// for the byte, for headerTimeout at most, and then blocks until the listener accepts the connection.
func (s *portSplitter) routeConn(ctx context.Context, conn net.Conn, page, webrtc *splitListener) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	conn.SetReadDeadline(time.Now().Add(headerTimeout))
	first := make([]byte, 1)
	_, err := conn.Read(first)
	conn.SetReadDeadline(time.Time{})
	if !stop() || err != nil {
		conn.Close()
		return
	}
	to := page
	if first[0] <= maxFirstByte {
		to = webrtc
	}
	select {
	case to.conns <- &peekedConn{conn, first}:
	case <-ctx.Done():
		conn.Close()
	}
}

// splitListener is one of the two listeners of a shared port.
type splitListener struct {
	*portSplitter
	conns chan net.Conn
}

func (s *splitListener) Accept() (net.Conn, error) {
	select {
	case conn := <-s.conns:
		return conn, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

// Close closes both listeners of the port.
func (s *splitListener) Close() error {
	s.cancel()
	err := s.Listener.Close()
	s.running.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// peekedConn is a connection whose first byte was already read. It has one reader at a time.
type peekedConn struct {
	net.Conn
	first []byte
}

func (pc *peekedConn) Read(p []byte) (int, error) {
	if len(pc.first) > 0 && len(p) > 0 {
		n := copy(p, pc.first)
		pc.first = nil
		return n, nil
	}
	return pc.Conn.Read(p)
}
