package sip_test

import (
	"crypto/rand"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pion/rtp"

	"voxgate/bridge"
	"voxgate/media"
	"voxgate/media/g711"
	"voxgate/media/mediatest"
)

// handset is a phone that the test drives: signalling by one socket, audio by another.
type handset struct {
	t              testing.TB
	signals, sound net.PacketConn
	to             net.Addr
	party          string // the To of its call, with our tag
	described      string // its SDP; empty until listen is called
	gateway        net.Addr
	spoke          atomic.Int64
}

// listen opens the socket for audio, and describes it with these payload types.
func (h *handset) listen(formats string) {
	h.t.Helper()
	var err error
	if h.sound, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { h.sound.Close() })
	h.described = h.describe(formats)
}

// describe returns the SDP of its audio.
func (h *handset) describe(formats string) string {
	return fmt.Sprintf("v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio %d RTP/AVP %s\r\n"+
		"a=rtpmap:96 opus/48000/2\r\na=rtpmap:101 telephone-event/8000\r\n", h.sound.LocalAddr().(*net.UDPAddr).Port, formats)
}

// hears stores the gateway's address for audio, from the SDP in a message.
func (h *handset) hears(text string) {
	h.t.Helper()
	_, port, _ := strings.Cut(text, "m=audio ")
	to := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}
	if _, err := fmt.Sscanf(port, "%d", &to.Port); err != nil {
		h.t.Fatalf("%v in %s", err, text)
	}
	h.gateway = to
}

// newHandset calls an office, and returns when the call is answered. Its audio is PCMU unless other payload types are given.
func newHandset(t testing.TB, o *office, formats ...string) *handset {
	t.Helper()
	h := &handset{t: t}
	h.listen(strings.Join(append(formats, "0")[:1], ""))
	var err error
	if h.signals, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.signals.Close() })
	h.to = net.UDPAddrFromAddrPort(o.door.Addresses()[0])
	headers := strings.Replace(fmt.Sprintf(usualHeaders, "h"), "<sip:ada@127.0.0.1>", "<sip:ada@"+h.signals.LocalAddr().String()+">", 1)
	h.send(invite(h.signals.LocalAddr().String(), headers, h.described))
	accepted := h.answer("200")
	h.hears(accepted)
	_, h.party, _ = strings.Cut(accepted, "To: ")
	h.party, _, _ = strings.Cut(h.party, "\r\n")
	h.next("ACK", 1, "")
	return h
}

// next sends a request of the call. A body without headers is SDP.
func (h *handset) next(method string, sequence int, body string, headers ...string) {
	h.t.Helper()
	kind := ""
	switch {
	case len(headers) > 0:
		kind = strings.Join(headers, "\r\n") + "\r\n"
	case body != "":
		kind = "Content-Type: application/sdp\r\n"
	}
	h.send(fmt.Sprintf("%s sip:500@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP %s;branch=z9hG4bK%s\r\nMax-Forwards: 70\r\n"+
		"From: <sip:eve@127.0.0.1>;tag=1\r\nTo: %s\r\nCall-ID: ah\r\nCSeq: %d %s\r\nContact: <sip:eve@%s>\r\n%sContent-Length: %d\r\n\r\n%s",
		method, h.signals.LocalAddr(), rand.Text(), h.party, sequence, method, h.signals.LocalAddr(), kind, len(body), body))
}

func (h *handset) send(text string) {
	h.t.Helper()
	if _, err := h.signals.WriteTo([]byte(text), h.to); err != nil {
		h.t.Fatal(err)
	}
}

// answer waits for a response whose status begins with a pattern, and returns it.
func (h *handset) answer(status string) string {
	h.t.Helper()
	h.signals.SetReadDeadline(time.Now().Add(patience))
	buf := make([]byte, 4000)
	for {
		n, _, err := h.signals.ReadFrom(buf)
		if err != nil {
			h.t.Fatalf("no %s: %v", status, err)
		}
		if text := string(buf[:n]); regexp.MustCompile("^SIP/2.0 " + status).MatchString(text) {
			return text
		}
	}
}

// hear waits for audio until the deadline. It returns false if only silence has arrived, or nothing.
func (h *handset) hear(until time.Time) bool {
	h.t.Helper()
	h.sound.SetReadDeadline(until)
	buf := make([]byte, 1500)
	for {
		n, _, err := h.sound.ReadFrom(buf)
		if err != nil {
			return false
		}
		var p rtp.Packet
		if p.Unmarshal(buf[:n]) == nil && p.PayloadType == 0 && media.RMS(g711.MuLaw.Append(nil, p.Payload)) > 50 {
			return true
		}
	}
}

// An interrupted answer is silent on the line within 60 ms.
func TestBargeIn(t *testing.T) {
	t.Parallel()
	const most = 60 * time.Millisecond
	o, machine := newOffice(t, config), mediatest.MeasureLateness(t)
	h := newHandset(t, o)
	o.types(strings.Repeat("a long story ", 60))
	if !h.hear(time.Now().Add(patience)) {
		t.Fatal("the model says nothing")
	}
	for left := 3; ; left-- { // a busy machine may stop the test between two lines
		for h.hear(time.Now().Add(time.Millisecond)) { // discard what arrived before
		}
		if err := o.session().Do(bridge.Interrupt{}); err != nil {
			t.Fatal(err)
		}
		packets := 0 // counting packets does not depend on when this test reads them
		for until := time.Now().Add(time.Second); h.hear(until); {
			packets++
		}
		if packets <= int(most/media.FrameDuration) {
			return
		}
		if left == 1 {
			if !machine.CanJudge(t, most) {
				return
			}
			t.Fatalf("the voice went on for %d packets of 20 ms", packets)
		}
		o.types(strings.Repeat("a long story ", 60))
		if !h.hear(time.Now().Add(patience)) {
			t.Fatal("the model says nothing any more")
		}
	}
}
