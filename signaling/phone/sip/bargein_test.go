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
	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
	"voxgate/media/g711"
)

// handset is a phone that the test drives: signalling by one socket, audio by another.
type handset struct {
	t              testing.TB
	signals, audio net.PacketConn
	to             net.Addr
	remoteParty    string // the To of its call, with our tag
	sdp            string // its SDP; empty until listen is called
	gateway        net.Addr
	spokeAt        atomic.Int64
}

// openAudio opens the socket for audio, and describes it with these payload types.
func (h *handset) openAudio(formats string) {
	h.t.Helper()
	var err error
	if h.audio, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { h.audio.Close() })
	h.sdp = h.audioSDP(formats)
}

// audioSDP returns the SDP of its audio.
func (h *handset) audioSDP(formats string) string {
	return fmt.Sprintf("v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio %d RTP/AVP %s\r\n"+
		"a=rtpmap:96 opus/48000/2\r\na=rtpmap:101 telephone-event/8000\r\n", h.audio.LocalAddr().(*net.UDPAddr).Port, formats)
}

// setAudioAddr stores the gateway's address for audio, from the SDP in a message.
func (h *handset) setAudioAddr(text string) {
	h.t.Helper()
	_, port, _ := strings.Cut(text, "m=audio ")
	to := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}
	if _, err := fmt.Sscanf(port, "%d", &to.Port); err != nil {
		h.t.Fatalf("%v in %s", err, text)
	}
	h.gateway = to
}

// startCall calls a gateway, and returns when the call is answered. Its audio is PCMU unless other payload types are given.
func startCall(t testing.TB, o *testGateway, formats ...string) *handset {
	t.Helper()
	h := &handset{t: t}
	h.openAudio(strings.Join(append(formats, "0")[:1], ""))
	var err error
	if h.signals, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.signals.Close() })
	h.to = net.UDPAddrFromAddrPort(o.server.Addresses()[0])
	headers := strings.Replace(fmt.Sprintf(usualHeaders, "h"), "<sip:ada@127.0.0.1>", "<sip:ada@"+h.signals.LocalAddr().String()+">", 1)
	h.send(inviteText(h.signals.LocalAddr().String(), headers, h.sdp))
	accepted := h.awaitResponse("200")
	h.setAudioAddr(accepted)
	_, h.remoteParty, _ = strings.Cut(accepted, "To: ")
	h.remoteParty, _, _ = strings.Cut(h.remoteParty, "\r\n")
	h.sendRequest("ACK", 1, "")
	return h
}

// sendRequest sends a request of the call. A body without headers is SDP.
func (h *handset) sendRequest(method string, sequence int, body string, headers ...string) {
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
		method, h.signals.LocalAddr(), rand.Text(), h.remoteParty, sequence, method, h.signals.LocalAddr(), kind, len(body), body))
}

func (h *handset) send(text string) {
	h.t.Helper()
	if _, err := h.signals.WriteTo([]byte(text), h.to); err != nil {
		h.t.Fatal(err)
	}
}

// awaitResponse waits for a response whose status begins with a pattern, and returns it.
func (h *handset) awaitResponse(status string) string {
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

// awaitVoice waits for audio until the deadline. It returns false if only silence has arrived, or nothing.
func (h *handset) awaitVoice(until time.Time) bool {
	h.t.Helper()
	h.audio.SetReadDeadline(until)
	buf := make([]byte, 1500)
	for {
		n, _, err := h.audio.ReadFrom(buf)
		if err != nil {
			return false
		}
		var p rtp.Packet
		if p.Unmarshal(buf[:n]) == nil && p.PayloadType == 0 && media.RMS(g711.MuLaw.AppendDecoded(nil, p.Payload)) > 50 {
			return true
		}
	}
}

// An interrupted answer is silent on the line within 60 ms.
func TestBargeIn(t *testing.T) {
	t.Parallel()
	const most = 60 * time.Millisecond
	o, machine := startGateway(t, config), mediatest.MeasureLateness(t)
	h := startCall(t, o)
	o.sendText(strings.Repeat("a long story ", 60))
	if !h.awaitVoice(time.Now().Add(patience)) {
		t.Fatal("the model says nothing")
	}
	for left := 3; ; left-- { // a busy machine may stop the test between two lines
		for h.awaitVoice(time.Now().Add(time.Millisecond)) { // discard what arrived before
		}
		if err := o.awaitSession().Do(bridge.Interrupt{}); err != nil {
			t.Fatal(err)
		}
		packets := 0 // counting packets does not depend on when this test reads them
		for until := time.Now().Add(time.Second); h.awaitVoice(until); {
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
		o.sendText(strings.Repeat("a long story ", 60))
		if !h.awaitVoice(time.Now().Add(patience)) {
			t.Fatal("the model says nothing any more")
		}
	}
}
