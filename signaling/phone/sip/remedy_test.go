package sip_test

import (
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"voxgate/internal/testkit"
)

// A response that states a remedy is obeyed: by registrations, by calls and within calls.
func TestRefusalRemedies(t *testing.T) {
	t.Parallel()
	contact := func(h *handset) string { return "Contact: <sip:x@" + h.signals.LocalAddr().String() + ">" }
	phoneOf := func(h *handset) *rawPhone { return &rawPhone{t: t, conn: h.signals, to: h.to} }
	t.Run("REGISTER", func(t *testing.T) {
		t.Parallel()
		for name, c := range map[string]struct {
			status, header string
			want           string        // in the next REGISTER
			least          time.Duration // until then
		}{
			"423":                   {"423 Interval Too Brief", "Min-Expires: 3600", "Expires: 3600\r\n", 0},
			"503":                   {"503 Busy", "Retry-After: 1", "Expires: 300\r\n", time.Second},
			"480, with a comment":   {"480 Away", "Retry-After: 1 (soon);duration=60", "Expires: 300\r\n", time.Second},
			"302":                   {"302 Moved", "Contact: <sip:127.0.0.1:{port}>", "REGISTER sip:127.0.0.1:", 0},
			"401, and stale before": {"401 No", digestChallenge("WWW-Authenticate", "a", "1", "MD5", ", stale=true"), `nonce="1"`, 0},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				h, _ := startCarrier(t, nil, map[string]any{"register": true, "username": "me", "password": "open sesame"})
				p := phoneOf(h)
				first := h.awaitRequest("REGISTER")
				_, port, _ := strings.Cut(h.signals.LocalAddr().String(), ":")
				began := time.Now()
				p.respond(first, c.status, "", strings.ReplaceAll(c.header, "{port}", port))
				next := p.awaitMessage(patience, func(text string) bool {
					return strings.HasPrefix(text, "REGISTER ") && !strings.Contains(text,
						cseqOf(first)) ||
						strings.HasPrefix(text, "REGISTER ") && c.status[:1] == "3"
				})
				if !strings.Contains(next, c.want) || time.Since(began) < c.least {
					t.Errorf("after %v comes %s", time.Since(began), next)
				}
				p.respond(next, "200 OK", "", "Expires: 3600")
				go func() { // answers when the gateway unregisters
					buf := make([]byte, 65535)
					for {
						n, _, err := h.signals.ReadFrom(buf)
						if err != nil {
							return
						}
						if text := string(buf[:n]); !strings.HasPrefix(text, "SIP/2.0") {
							_, _ = h.signals.WriteTo([]byte("SIP/2.0 200 OK\r\n"+headersOf(text)+"Content-Length: 0\r\n\r\n"), h.to)
						}
					}
				}()
			})
		}
	})
	t.Run("INVITE", func(t *testing.T) {
		t.Parallel()
		other, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { other.Close() })
		for name, c := range map[string]struct{ status, header, want string }{
			"302": {"302 Moved", "Contact: <sip:+49-309;npdi@x;user=phone>", "INVITE sip:+49309@"},
			"300, the best": {
				"300 Several", "Contact: <sip:+1555@x>;q=1, <sip:+49307@x>;q=0.2, <sip:+49308@x>;q=0.7", "INVITE sip:+49308@",
			},
			"422":                                    {"422 Too Small", "Min-SE: 1800", "Session-Expires: 1800\r\n"},
			"380 has no remedy":                      {"380 Other Service", "X-A: 1", ""},
			"302 to a number that may not be called": {"302 Moved", "Contact: <sip:+1555@x>", ""},
		} {
			h, o := startCarrier(t, nil, nil)
			p := phoneOf(h)
			result := o.dialNumber()
			first := h.awaitRequest("INVITE")
			p.respond(first, c.status, "", c.header)
			if c.want == "" {
				if err := <-result; err == nil {
					t.Errorf("%s: the call goes on", name)
				}
				continue
			}
			next := p.awaitMessage(patience, func(text string) bool {
				return strings.HasPrefix(text, "INVITE ") && !strings.Contains(text, cseqOf(first))
			})
			if !strings.Contains(next, c.want) {
				t.Errorf("after %s comes %s", name, next)
			}
			p.respond(next, "486 Busy Here", "")
			<-result
		}
		h, o := startCarrier(t, nil, nil)
		result := o.dialNumber()
		phoneOf(h).respond(h.awaitRequest("INVITE"), "305 Use Proxy", "", "Contact: <sip:"+other.LocalAddr().String()+">")
		proxy := &rawPhone{t: t, conn: other, to: h.to}
		next := proxy.awaitMessage(patience, func(text string) bool { return strings.HasPrefix(text, "INVITE sip:+49302@") })
		if next == "" {
			t.Fatal("the proxy is not used")
		}
		proxy.respond(next, "486 Busy Here", "")
		<-result
	})
	t.Run("session timer", func(t *testing.T) {
		t.Parallel()
		for name, c := range map[string]struct{ status, header, want string }{
			"422": {"422 Too Small", "Min-SE: 1800", "Session-Expires: 1800;"},
			"491": {"491 Pending", "X-A: 1", "Session-Expires: 90;"},
			"500": {"500 Busy", "Retry-After: 1", "Session-Expires: 90;"},
		} {
			h, o := startCarrier(t, nil, nil)
			p := phoneOf(h)
			o.dialNumber()
			invite := h.awaitRequest("INVITE")
			p.respond(invite, "200 OK", body, "Content-Type: application/sdp", contact(h))
			h.awaitRequest("ACK")
			h.sendInDialog(invite, "a", "OPTIONS", 1, "", "")
			h.awaitResponse("200")
			done := o.server.RefreshSession()
			first := h.awaitRequest("UPDATE")
			p.respond(first, c.status, "", c.header)
			next := p.awaitMessage(patience, func(text string) bool {
				return strings.HasPrefix(text, "UPDATE ") && !strings.Contains(text, cseqOf(first))
			})
			if !strings.Contains(next, c.want) {
				t.Errorf("after %s comes %s", name, next)
			}
			p.respond(next, "200 OK", "")
			<-done
			h.sendInDialog(invite, "a", "BYE", 2, "", "")
			h.awaitResponse("200")
		}
	})
}

var copiedHeader = regexp.MustCompile(`(?m)^(?:Via|From|To|Call-ID|CSeq): .*\r\n`)

// headersOf returns the headers of a request that its response repeats.
func headersOf(text string) string { return strings.Join(copiedHeader.FindAllString(text, -1), "") }

// If a call is not answered, the backend learns its ID and the reason, for all reasons.
func TestUnreachedTrunkReasons(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { plain.Close() })
	go func() {
		for {
			conn, err := plain.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("no TLS here\r\n"))
			conn.Close()
		}
	}()
	for name, c := range map[string]struct{ server, answer, says string }{
		"refused":      {"sip:" + closed.Addr().String() + ";transport=tcp", "", "does not answer"},
		"no TLS":       {"sip:" + plain.Addr().String() + ";transport=tls", "", "does not answer"},
		"no such name": {"sip:pbx.invalid:5060", "", "was not found"},
		"silent":       {"", "100 Trying", "nobody has answered in time"},
		"busy":         {"", "486 Busy Here", `"sip":486`},
		"overloaded":   {"", "503 Overloaded", `"retryAfter":120`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outbound := map[string]any{}
			if c.server != "" {
				outbound["server"] = c.server
			}
			h, o := startCarrier(t, nil, outbound)
			o.setResolver(testkit.NewResolver(t))
			if c.answer != "" {
				go func() {
					p := &rawPhone{t: t, conn: h.signals, to: h.to}
					if invite := p.awaitMessage(patience, func(text string) bool { return strings.HasPrefix(text, "INVITE ") }); invite != "" {
						p.respond(invite, c.answer, "", "Retry-After: 120")
						if cancel := p.awaitMessage(5*time.Second, func(text string) bool { return strings.HasPrefix(text, "CANCEL ") }); cancel != "" {
							p.respond(cancel, "200 OK", "")
							p.respond(invite, "487 Request Terminated", "")
						}
					}
				}()
			}
			b := startBackend(t, o)
			status, text := b.sendRequest(b.key, "POST", "/v1/calls",
				`{"to":"+49 (302) 1","trunk":"lab","ringSeconds":2,"agent":{"prompt":"You remind people."}}`)
			if status != http.StatusConflict || !strings.Contains(text, "not_answered") || !strings.Contains(text, c.says) {
				t.Errorf("answered %d %s", status, text)
			}
			m := regexp.MustCompile(`"id":"([^"]+)"`).FindStringSubmatch(text)
			if m == nil {
				t.Fatalf("no id in %s", text)
			}
			if status, text := b.sendRequest(b.key, "GET", "/v1/calls/"+m[1], ""); status != 200 || !strings.Contains(text, `"to":"+493021"`) {
				t.Errorf("by its id: %d %s", status, fmt.Sprint(text))
			}
		})
	}
}
