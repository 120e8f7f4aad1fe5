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

// portTries is how many ports are tried where the system chooses: among 28,000 a UDP socket rarely has the number already.
const portTries = 10

// openPorts opens the port of the page, with TLS if that is wanted, and those of WebRTC.
func openPorts(s settings, log *slog.Logger) (page net.Listener, webrtc *rtc.API, err error) {
	_, port, _ := net.SplitHostPort(s.addr) // Listen says what is wrong with it
	tries := 1
	if port == "0" && s.udpPort == 0 { // the page's number is WebRTC's, too
		tries = portTries
	}
	for range tries {
		page, webrtc, err = openAt(s, log)
		if failed := (*net.OpError)(nil); !errors.As(err, &failed) || failed.Net != "udp" || !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return page, webrtc, err
}

func openAt(s settings, log *slog.Logger) (page net.Listener, webrtc *rtc.API, err error) {
	if page, err = net.Listen("tcp", s.addr); err != nil {
		return nil, nil, fmt.Errorf("listen for browsers at VOXGATE_ADDR: %w", err)
	}
	page = heard(page, log)
	addr := page.Addr().(*net.TCPAddr)
	at := func(host string, port int) string {
		return net.JoinHostPort(cmp.Or(s.webrtcHost, host), strconv.Itoa(cmp.Or(port, addr.Port)))
	}
	own := addr.IP.String()
	o := rtc.Options{UDPAddr: at(own, s.udpPort), PublicIPs: s.publicIPs, Logger: log}
	if addr.IP.IsLoopback() && s.webrtcHost == "" { // Firefox uses no candidate of the loopback, not even for a page on localhost
		o.UDPAddr, o.Loopback = at(anywhere(addr.IP), s.udpPort), true
	}
	defer func(opened net.Listener) {
		if err != nil {
			opened.Close()
			if o.TCP != nil {
				o.TCP.Close()
			}
		}
	}(page)
	config, err := s.tls.config(log)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case s.tcpPort == 0:
	case s.tcpPort == addr.Port && s.webrtcHost == "":
		page, o.TCP = split(page)
	default:
		if o.TCP, err = net.Listen("tcp", at(own, s.tcpPort)); err != nil {
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

// anywhere is the address of all interfaces that speak the IP of this one.
func anywhere(ip net.IP) string {
	if ip.To4() != nil {
		return net.IPv4zero.String()
	}
	return net.IPv6unspecified.String()
}

// split shares a port between the page and WebRTC, for networks that let nothing out but 443. By ICE-TCP each message begins with its
// length (RFC 4571), and no STUN message of a first check has 2,048 bytes; TLS begins with 22 and HTTP with a letter.
func split(l net.Listener) (page, webrtc net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &splitter{Listener: l, closed: ctx.Done(), cancel: cancel}
	p, w := &half{splitter: s, conns: make(chan net.Conn)}, &half{splitter: s, conns: make(chan net.Conn)}
	s.running.Go(func() {
		for ctx.Err() == nil {
			conn, err := l.Accept()
			if err == nil {
				s.running.Go(func() { s.sort(ctx, conn, p, w) })
				continue
			}
			select { // too many files are open, perhaps
			case <-time.After(acceptPause):
			case <-ctx.Done():
			}
		}
	})
	return p, w
}

const (
	// maxFirstByte is that of ICE-TCP's first message.
	maxFirstByte = 2048>>8 - 1
	// acceptPause is how long after a failure another connection is accepted.
	acceptPause = 100 * time.Millisecond
)

// splitter accepts the connections and looks at the first byte of each.
type splitter struct {
	net.Listener
	closed  <-chan struct{}
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// sort hands a connection to the listener it is for.
func (s *splitter) sort(ctx context.Context, conn net.Conn, page, webrtc *half) {
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
	case to.conns <- &begun{conn, first}:
	case <-ctx.Done():
		conn.Close()
	}
}

// half is the listener for one of the two.
type half struct {
	*splitter
	conns chan net.Conn
}

func (h *half) Accept() (net.Conn, error) {
	select {
	case conn := <-h.conns:
		return conn, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close closes both halves: neither is of use without the other.
func (h *half) Close() error {
	h.cancel()
	err := h.Listener.Close()
	h.running.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// begun is a connection of which the first byte was read. It has one reader at a time.
type begun struct {
	net.Conn
	first []byte
}

func (b *begun) Read(p []byte) (int, error) {
	if len(b.first) > 0 && len(p) > 0 {
		n := copy(p, b.first)
		b.first = nil
		return n, nil
	}
	return b.Conn.Read(p)
}
