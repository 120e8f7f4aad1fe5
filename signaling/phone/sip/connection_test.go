package sip_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/mediatest"
)

// messageConn is a net.PacketConn for a handset, with one packet per SIP message of a connection.
type messageConn struct {
	net.Conn
	transport string // name in Via
	in        *bufio.Reader
}

func (m *messageConn) WriteTo(b []byte, _ net.Addr) (int, error) {
	if _, err := m.Write(bytes.Replace(b, []byte("SIP/2.0/UDP"), []byte("SIP/2.0/"+m.transport), 1)); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (m *messageConn) ReadFrom(b []byte) (n int, from net.Addr, err error) {
	for length := 0; ; {
		line, err := m.in.ReadString('\n')
		if err != nil {
			return 0, nil, err
		}
		n += copy(b[n:], line)
		if value, ok := strings.CutPrefix(line, "Content-Length:"); ok {
			if length, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
				return 0, nil, err
			}
		}
		if line == "\r\n" {
			body, err := io.ReadFull(m.in, b[n:n+length])
			return n + body, m.RemoteAddr(), err
		}
	}
}

// callByConn returns a handset whose call by a connection was answered. Its INVITE has this Contact, and more headers.
func callByConn(t *testing.T, conn net.Conn, transport, contact string, headers ...string) *handset {
	t.Helper()
	t.Cleanup(func() { conn.Close() })
	h := &handset{t: t, signals: &messageConn{conn, transport, bufio.NewReader(conn)}}
	more := strings.Join(append(headers, ""), "\r\n")
	more += strings.Replace(fmt.Sprintf(usualHeaders, "h"), "<sip:ada@127.0.0.1>", "<"+contact+">", 1)
	h.send(inviteText(conn.LocalAddr().String(), more, body))
	accepted := h.awaitResponse("200")
	_, h.remoteParty, _ = strings.Cut(accepted, "To: ")
	h.remoteParty, _, _ = strings.Cut(h.remoteParty, "\r\n")
	h.sendRequest("ACK", 1, "")
	return h
}

// A proxy that connects by TLS receives our requests by that connection. A new one would fail, as the certificate does not cover its
// address.
func TestRequestsReuseProxyConnection(t *testing.T) {
	t.Parallel()
	cert, key := writeCertificate(t)
	o := startGateway(t, configWith(t, func(c map[string]any) {
		c["listen"] = []any{map[string]any{"transport": "tls", "address": "127.0.0.1:0", "cert": cert, "key": key}}
	}))
	conn, err := tls.Dial("tcp", o.server.Addresses()[0].String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	route := fmt.Sprintf("<sip:127.0.0.1:%d;transport=tls;lr>", mediatest.FreePort(t))
	h := callByConn(t, conn, "TLS", "sip:ada@192.0.2.1;transport=tls", "Record-Route: "+route)
	if err := o.awaitSession().Do(bridge.Goodbye{}); err != nil {
		t.Fatal(err)
	}
	h.respond(h.awaitRequest("BYE sip:ada@192.0.2.1.*Route: "+route), "200 OK", "1")
}

// A caller whose connection is closed is reached at its Contact.
func TestRequestsAfterConnectionClosed(t *testing.T) {
	t.Parallel()
	o := startGateway(t, config)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.Dial("tcp", o.server.Addresses()[1].String())
	if err != nil {
		t.Fatal(err)
	}
	callByConn(t, conn, "TCP", "sip:ada@"+listener.Addr().String()+";transport=tcp")
	session := o.awaitSession()
	conn.Close()
	for deadline := time.Now().Add(patience); o.server.TCPConnections() > 0; <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the gateway keeps a connection that is closed")
		}
	}
	if err := session.Do(bridge.Goodbye{}); err != nil {
		t.Fatal(err)
	}
	_ = listener.(*net.TCPListener).SetDeadline(time.Now().Add(patience))
	back, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	h := &handset{t: t, signals: &messageConn{back, "TCP", bufio.NewReader(back)}}
	h.respond(h.awaitRequest("BYE sip:ada@"), "200 OK", "1")
}
