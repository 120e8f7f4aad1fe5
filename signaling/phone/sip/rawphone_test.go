package sip_test

import (
	"crypto/rand"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// rawPhone is a phone whose messages the test writes.
type rawPhone struct {
	t                     testing.TB
	conn                  net.PacketConn
	transport             string
	to                    net.Addr
	id, from, uri, target string // its call: From with its tag, the URI that it calls, and the Contact of the gateway
	tag                   string // the gateway's
	contact               string
	sequence              int
}

// newRawPhone returns a phone at an address, which calls a gateway by UDP.
func newRawPhone(t testing.TB, o *testGateway, at string) *rawPhone {
	t.Helper()
	conn, err := net.ListenPacket("udp", at+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return newRawPhoneOn(t, conn, "UDP", net.UDPAddrFromAddrPort(o.server.Addresses()[0]))
}

func newRawPhoneOn(t testing.TB, conn net.PacketConn, transport string, to net.Addr) *rawPhone {
	return &rawPhone{
		t: t, conn: conn, transport: transport, to: to, id: rand.Text(), from: "<sip:eve@127.0.0.1>;tag=" + rand.Text(),
		uri: "sip:500@127.0.0.1", contact: fmt.Sprintf("<sip:eve@%s;transport=%s>", conn.LocalAddr(), strings.ToLower(transport)),
	}
}

// buildRequest returns the next request of its call. Each of headers is added, or replaces the usual one of that name.
func (p *rawPhone) buildRequest(method, body string, headers ...string) string {
	if method != "ACK" && method != "CANCEL" {
		p.sequence++
	}
	to, line := "<"+p.uri+">", p.uri
	if p.tag != "" {
		to, line = to+";tag="+p.tag, p.target
	}
	list := []string{
		fmt.Sprintf("Via: SIP/2.0/%s %s;branch=z9hG4bK%s;rport", p.transport, p.conn.LocalAddr(), rand.Text()), "Max-Forwards: 70",
		"From: " + p.from, "To: " + to, "Call-ID: " + p.id, fmt.Sprintf("CSeq: %d %s", p.sequence, method), "Contact: " + p.contact,
	}
	if body != "" && !slices.ContainsFunc(headers, func(h string) bool { return strings.HasPrefix(h, "c: ") }) {
		list = append(list, "Content-Type: application/sdp")
	}
	for _, h := range headers {
		name, _, _ := strings.Cut(h, ":")
		own := false
		for i := range list {
			if strings.HasPrefix(list[i], name+":") {
				list[i], own = h, true
			}
		}
		if !own {
			list = append(list, h)
		}
	}
	list = append(list, fmt.Sprintf("Content-Length: %d", len(body)))
	return method + " " + line + " SIP/2.0\r\n" + strings.Join(list, "\r\n") + "\r\n\r\n" + body
}

func (p *rawPhone) send(text string) {
	p.t.Helper()
	if _, err := p.conn.WriteTo([]byte(text), p.to); err != nil {
		p.t.Fatal(err)
	}
}

var (
	tagOfTo     = regexp.MustCompile(`(?m)^To: .*;tag=([^;\s]+)`)
	uriOfTarget = regexp.MustCompile(`(?m)^Contact: <([^>]+)>`)
)

// awaitMessage returns the next message that want accepts, or "" if none arrives in time.
func (p *rawPhone) awaitMessage(within time.Duration, want func(text string) bool) string {
	p.t.Helper()
	buf := make([]byte, 65535)
	for deadline := time.Now().Add(within); ; {
		p.conn.SetReadDeadline(deadline)
		n, _, err := p.conn.ReadFrom(buf)
		if err != nil {
			return ""
		}
		if text := string(buf[:n]); want(text) {
			return text
		}
	}
}

// awaitFinal waits for the final response to the newest request. The status is 0 if none arrives in time.
func (p *rawPhone) awaitFinal(method string, within time.Duration) (status int, text string) {
	p.t.Helper()
	text = p.awaitMessage(within, func(text string) bool {
		return strings.HasPrefix(text, "SIP/2.0 ") && text[8] >= '2' && strings.Contains(text, fmt.Sprintf("CSeq: %d %s\r\n", p.sequence,
			method))
	})
	if text == "" {
		return 0, ""
	}
	status, _ = strconv.Atoi(text[8:11])
	return status, text
}

// sendRequest sends a request and returns its final response. The status is 0 if none arrives within 2 s.
func (p *rawPhone) sendRequest(method, body string, headers ...string) (status int, text string) {
	p.t.Helper()
	p.send(p.buildRequest(method, body, headers...))
	return p.awaitFinal(method, 2*time.Second)
}

// placeCall makes a call, and returns how it was answered.
func (p *rawPhone) placeCall(body string, headers ...string) (status int, text string) {
	p.t.Helper()
	p.send(p.buildRequest("INVITE", body, headers...))
	status, text = p.awaitFinal("INVITE", patience)
	if m := tagOfTo.FindStringSubmatch(text); m != nil {
		p.tag = m[1]
	}
	p.target = p.uri
	if m := uriOfTarget.FindStringSubmatch(text); m != nil {
		p.target = m[1]
	}
	if status == 200 {
		p.send(p.buildRequest("ACK", ""))
	} else {
		p.tag = ""
	}
	return status, text
}
