package sip_test

import (
	"strings"
	"testing"
	"time"

	"voxgate/bridge"
)

// If a Contact or a Record-Route is unreachable, our requests go to the source of the peer's requests. The log says so if a request had to
// fail first.
func TestUnreachableContactFallback(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		contact, route string
		found          bool // whether a request had to fail first
	}{
		"a Contact where nobody is":          {"<sip:eve@127.0.0.77:9>", "", true},
		"a Contact of a name without a host": {"<sip:eve@pbx.invalid>", "", false},
		"a Contact of another link":          {"<sip:eve@169.254.1.2:5060>", "", false},
		"a Contact of all addresses":         {"<sip:eve@0.0.0.0:5060>", "", false},
		"a route where nobody is":            {"", "<sip:127.0.0.77:9;lr>", true},
		"a route of a name without a host":   {"", "<sip:edge.invalid;lr>", false},
		"a route with maddr":                 {"", "<sip:edge.invalid:{port};maddr=127.0.0.1;lr>", false},
		"a strict route":                     {"", "<sip:127.0.0.1:{port}>", false},
		"none":                               {"", "", false},
	} {
		for _, method := range []string{"BYE", "INVITE", "REFER"} {
			t.Run(method+" and "+name, func(t *testing.T) {
				t.Parallel()
				o := startGateway(t, trunkConfig(t, map[string]any{"transferTo": []string{"*"}}))
				p := newRawPhone(t, o, "127.0.0.1")
				_, port, _ := strings.Cut(p.conn.LocalAddr().String(), ":")
				contact := p.contact
				if c.contact != "" {
					p.contact = c.contact
				}
				headers := []string{"Allow: INVITE"}
				if c.route != "" {
					headers = append(headers, "Record-Route: "+strings.ReplaceAll(c.route, "{port}", port))
				}
				if status, text := p.placeCall(body, headers...); status != 200 {
					t.Fatal(text)
				}
				o.awaitSession() // from here on the call can be changed
				switch method {
				case "BYE":
					if err := o.awaitSession().Do(bridge.Goodbye{}); err != nil {
						t.Fatal(err)
					}
				case "REFER":
					o.server.Transfer("+49301")
				case "INVITE": // after an UPDATE
					o.server.RefreshSession()
					refresh := p.awaitMessage(10*time.Second, func(text string) bool { return strings.HasPrefix(text, "UPDATE ") })
					p.respond(refresh, "405 Method Not Allowed", "")
				}
				req := p.awaitMessage(10*time.Second, func(text string) bool { return strings.HasPrefix(text, method+" ") })
				if req == "" {
					t.Fatalf("no %s has come", method)
				}
				if method == "INVITE" {
					p.respond(req, "200 OK", body, "Content-Type: application/sdp", "Contact: "+p.contact)
					if p.awaitMessage(10*time.Second, func(text string) bool { return strings.HasPrefix(text, "ACK ") }) == "" {
						t.Error("no ACK has come")
					}
				} else {
					p.respond(req, "200 OK", "")
				}
				if said := strings.Contains(o.logs.String(), "requests cannot reach the peer's Contact or Record-Route"); said != c.found {
					t.Errorf("the log says so: %v", said)
				}
				line, _, _ := strings.Cut(req, "\r\n")
				if strict := strings.Contains(name, "strict"); strict && (!strings.Contains(line, "sip:127.0.0.1:"+port+" ") ||
					!strings.Contains(req, "\r\nRoute: "+contact)) {
					t.Errorf("to a strict router goes %s", req)
				}
			})
		}
	}
}
