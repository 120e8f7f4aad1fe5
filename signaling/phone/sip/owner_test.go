package sip_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/icholy/digest"
)

// withinCall are requests within a call, and the status that the other side of the call gets.
var withinCall = []struct {
	method, body string
	headers      []string
	status       int
}{
	{"INFO", "Signal=5\r\n", []string{"Content-Type: application/dtmf-relay"}, 200},
	{"OPTIONS", "", nil, 200},
	{"UPDATE", "", nil, 200},
	{"INVITE", body, nil, 200},
	{"NOTIFY", "SIP/2.0 200 OK\r\n", []string{"Event: refer", "Content-Type: message/sipfrag"}, 200},
	{"MESSAGE", "hello", []string{"Content-Type: text/plain"}, 405},
	{"REFER", "", []string{"Refer-To: <sip:x@y>"}, 405},
	{"SUBSCRIBE", "", []string{"Event: presence"}, 405},
	{"PUBLISH", "", []string{"Event: presence"}, 405},
	{"PRACK", "", []string{"RAck: 1 1 INVITE"}, 481},
	{"BYE", "", nil, 200},
}

// atAddress returns a phone at another address, or with another transport, that knows everything about the call.
func (p *rawPhone) atAddress(o *testGateway, address, transport string) *rawPhone {
	p.t.Helper()
	other := *p
	if transport == "UDP" {
		other.conn = newRawPhone(p.t, o, address).conn
		return &other
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	conn, err := dialer.Dial("tcp", o.server.Addresses()[1].String())
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { conn.Close() })
	other.conn, other.transport, other.to = &messageConn{conn, "TCP", bufio.NewReader(conn)}, "TCP", conn.RemoteAddr()
	return &other
}

// digestHeader returns the header that answers a challenge for a URI.
func digestHeader(t testing.TB, challenge, method, uri string) string {
	t.Helper()
	m := nonceOf.FindStringSubmatch(challenge)
	if m == nil {
		t.Fatalf("no challenge in %s", challenge)
	}
	c, err := digest.Digest(&digest.Challenge{Realm: "voxgate", Nonce: m[1], Algorithm: "MD5", QOP: []string{"auth"}},
		digest.Options{Method: method, URI: uri, Username: "alice", Password: "open sesame", Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	return "Authorization: " + c.String()
}

// callWithPassword makes a call, and authenticates with the password.
func (p *rawPhone) callWithPassword() {
	p.t.Helper()
	_, challenge := p.placeCall(body)
	p.send(p.buildRequest("ACK", ""))
	if status, text := p.placeCall(body, digestHeader(p.t, challenge, "INVITE", p.uri)); status != 200 {
		p.t.Fatalf("answered %s", text)
	}
}

// Requests within a call are accepted from its other side only: from the source of the INVITE, its trunk, its route, or with the password.
// Others that know its identifiers are refused, and the call continues.
func TestInDialogRequestSources(t *testing.T) {
	t.Parallel()
	const anybodys, refused, asked = "", "refused", "challenged"
	trunks := configWith(t, func(c map[string]any) {
		c["trunks"] = []any{
			map[string]any{"name": "lab", "from": []string{"127.0.0.1", "127.0.0.11"}},
			map[string]any{"name": "other", "from": []string{"127.0.0.2"}},
			map[string]any{"name": "away", "username": "alice", "password": "open sesame"},
		}
	})
	for _, caller := range []struct{ name, address string }{{"of a trunk", "127.0.0.1"}, {"by password", "127.0.0.5"}} {
		for _, transport := range []string{"UDP", "TCP"} {
			for source, c := range map[string]struct{ address, trunk, password string }{
				"the same address":       {caller.address, anybodys, anybodys},
				"another of the trunk's": {"127.0.0.11", anybodys, asked},
				"the route":              {"127.0.0.21", anybodys, anybodys},
				"another trunk's":        {"127.0.0.2", refused, asked},
				"a stranger's":           {"127.0.0.9", refused, asked},
			} {
				t.Run(fmt.Sprintf("call %s, request from %s by %s", caller.name, source, transport), func(t *testing.T) {
					t.Parallel()
					o := startGateway(t, trunks)
					p := newRawPhone(t, o, caller.address)
					want := c.trunk
					if caller.name == "by password" {
						want = c.password
						p.callWithPassword()
					} else if status, text := p.placeCall(body, "Record-Route: <sip:127.0.0.21;lr>"); status != 200 {
						t.Fatalf("answered %s", text)
					}
					if caller.name == "by password" && source == "the route" {
						want = asked
					}
					other := p.atAddress(o, c.address, transport)
					for _, r := range withinCall {
						other.sequence = p.sequence
						within := 2 * time.Second
						if want == refused {
							within = 50 * time.Millisecond
						}
						other.send(other.buildRequest(r.method, r.body, r.headers...))
						status, text := other.awaitFinal(r.method, within)
						if r.method == "INVITE" {
							other.send(other.buildRequest("ACK", ""))
						}
						p.sequence = other.sequence
						switch {
						case want == anybodys && status != r.status, want == asked && status != 401, want == refused && status != 0 && status != 481:
							t.Errorf("%s is answered %d: %s", r.method, status, text)
						case want == asked && r.method == "INFO":
							headers := append(r.headers, digestHeader(t, text, "INFO", "sip:999@127.0.0.1"))
							if status, text := other.sendRequest("INFO", r.body, headers...); status != 401 {
								t.Errorf("a proof for another URI is answered %s", text)
							}
						}
						p.sequence = other.sequence
					}
					if want == anybodys { // it has hung up
						if status, text := p.sendRequest("OPTIONS", ""); status != 481 {
							t.Errorf("in a call that is over OPTIONS is answered %s", text)
						}
						return
					}
					if status, text := p.sendRequest("OPTIONS", ""); status != 200 {
						t.Fatalf("the call does not go on: %s", text)
					}
					if want == asked {
						_, text := other.sendRequest("BYE", "")
						other.sequence = p.sequence + 10
						if status, text := other.sendRequest("BYE", "", digestHeader(t, text, "BYE", other.target)); status != 200 {
							t.Errorf("BYE with the password is answered %s", text)
						}
					}
				})
			}
		}
	}
}

// Strangers get no response that is much longer than their request, because their address may be spoofed.
func TestNoAmplification(t *testing.T) {
	t.Parallel()
	o := startGateway(t, passwordConfig(t))
	for name, text := range map[string]string{
		"the shortest": "INVITE sip:a SIP/2.0\r\n" +
			"v:SIP/2.0/UDP a;branch=z9hG4bKa\r\nf:<sip:a>;tag=a\r\nt:<sip:a>\r\ni:a\r\nCSeq:1 INVITE\r\nl:0\r\n\r\n",
		"an ordinary one": "INVITE sip:500@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP 127.0.0.9;branch=z9hG4bKa;rport\r\nMax-Forwards: 70\r\n" +
			"From: <sip:eve@127.0.0.9>;tag=1\r\nTo: <sip:500@127.0.0.1>\r\nCall-ID: a\r\nCSeq: 1 INVITE\r\nContact: <sip:eve@127.0.0.9>\r\n" +
			"Content-Length: 0\r\n\r\n",
	} {
		p := newRawPhone(t, o, "127.0.0.9")
		p.send(text)
		answer := p.awaitMessage(300*time.Millisecond, func(string) bool { return true })
		if len(answer) > 3*len(text) {
			t.Errorf("%s: %d bytes are answered by %d", name, len(text), len(answer))
		}
		if name == "an ordinary one" && strings.Count(answer, "WWW-Authenticate") != 2 {
			t.Errorf("%s is answered %s", name, answer)
		}
	}
}
