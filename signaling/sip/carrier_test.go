package sip_test

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/signaling/sip"
)

// newCarrier is a carrier by hand, and an office whose trunk it is.
func newCarrier(t *testing.T, trunk map[string]any, outbound map[string]any) (*handset, *office) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	out := map[string]any{"server": "sip:" + conn.LocalAddr().String(), "from": "+49301", "to": []string{"+49*"}}
	for name, value := range outbound {
		out[name] = value
	}
	fields := map[string]any{"outbound": out}
	for name, value := range trunk {
		fields[name] = value
	}
	o := newOffice(t, ofTrunk(t, fields))
	return &handset{t: t, signals: conn, to: net.UDPAddrFromAddrPort(o.door.Addresses()[0])}, o
}

// request waits for one that matches.
func (h *handset) request(pattern string) string {
	h.t.Helper()
	h.signals.SetReadDeadline(time.Now().Add(patience))
	buf := make([]byte, 65535)
	for {
		n, _, err := h.signals.ReadFrom(buf)
		if err != nil {
			h.t.Fatalf("no %s: %v", pattern, err)
		}
		if text := string(buf[:n]); regexp.MustCompile("(?s)^" + pattern).MatchString(text) {
			return text
		}
	}
}

// reply answers a request, with a description of sound if it is a 200 to an INVITE.
func (h *handset) reply(req, status, tag string, headers ...string) {
	h.t.Helper()
	text := "SIP/2.0 " + status + "\r\n"
	for line := range strings.SplitSeq(req, "\r\n") {
		switch name, _, _ := strings.Cut(line, ":"); name {
		case "Via", "From", "Call-ID", "CSeq":
			text += line + "\r\n"
		case "To":
			if !strings.Contains(line, "tag=") {
				line += ";tag=" + tag
			}
			text += line + "\r\n"
		}
	}
	sound := ""
	if strings.HasPrefix(status, "200") && strings.HasPrefix(req, "INVITE") {
		sound = body
		headers = append(headers, "Content-Type: application/sdp", fmt.Sprintf("Contact: <sip:%s@%s>", tag, h.signals.LocalAddr()))
	}
	for _, header := range headers {
		text += header + "\r\n"
	}
	h.send(text + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(sound), sound))
}

// dial has the office call somebody; result is what came of the dialling.
func (o *office) dial() (result <-chan error) {
	done := make(chan error, 1)
	go func() {
		_, err := o.door.Call(o.t.Context(), sip.Dial{To: "+49302", Trunk: "lab", Agent: talker})
		done <- err
	}()
	return done
}

// A carrier's headers and our own make messages of more than 1,300 bytes, which sipgo once refused to send by UDP.
func TestLongMessagesByUDP(t *testing.T) {
	t.Parallel()
	t.Run("an answer", func(t *testing.T) {
		t.Parallel()
		o := newOffice(t, config)
		route := "Record-Route: <sip:proxy.a-carrier-with-a-long-name.example.com:5060;transport=udp;lr;ftag=" + strings.Repeat("x", 150) + ">"
		s := (&scenario{}).request("INVITE", 1, sdp("[media_ip]", "sendrecv", plain), route, route, route, route, route, route).ringing().
			expect(200, "m=audio").request("ACK", 1, "").bye(2)
		s.run(t, o)
	})
	t.Run("a request", func(t *testing.T) {
		t.Parallel()
		h, o := newCarrier(t, map[string]any{"srtp": "required"}, map[string]any{"username": "voxgate", "password": "open sesame"})
		result := o.dial()
		first := h.request("INVITE")
		nonce := strings.Repeat("0123456789", 30)
		h.reply(first, "407 Proxy Authentication Required", "a", `Proxy-Authenticate: Digest realm="carrier", nonce="`+nonce+`", algorithm=MD5, qop="auth"`)
		second := h.request("INVITE.*Proxy-Authorization")
		if len(second) < 1300 {
			t.Errorf("only %d bytes", len(second))
		}
		h.reply(second, "486 Busy Here", "a")
		if refused := (*sip.RefusedError)(nil); !errors.As(<-result, &refused) || refused.Status != 486 {
			t.Errorf("%v", refused)
		}
	})
}

// One lost ACK must not end a call, and of two telephones that answer, one gets it.
func TestAnswersThatComeAgain(t *testing.T) {
	t.Parallel()
	h, o := newCarrier(t, nil, nil)
	result := o.dial()
	invite := h.request("INVITE")
	h.reply(invite, "200 OK", "first")
	h.request("ACK.*tag=first")
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	for range 2 {
		h.reply(invite, "200 OK", "first")
		h.request("ACK.*tag=first")
	}
	h.reply(invite, "200 OK", "second")
	h.request("ACK sip:second@.*tag=second")
	h.reply(h.request("BYE sip:second@.*tag=second.*completed elsewhere"), "200 OK", "second")
	_ = o.session().Do(bridge.Goodbye{})
	h.reply(h.request("BYE sip:first@.*tag=first"), "200 OK", "first")
}

// An ACK that comes twice is not taken for that of a later answer: the sound would go one way.
func TestAcksThatComeTwice(t *testing.T) {
	t.Parallel()
	o := newOffice(t, config)
	h := newHandset(t, o)
	o.session()
	h.next("ACK", 1, "")
	h.next("INVITE", 2, "") // the offer is ours
	h.answer("200")
	h.next("ACK", 1, "")
	h.next("ACK", 2, body)
	h.next("INVITE", 3, "")
	h.answer("200")
	h.next("ACK", 3, strings.Replace(body, "RTP/AVP 0", "RTP/AVP 8", 1))
	o.loggedTimes("msg=sound door", 3)
}
