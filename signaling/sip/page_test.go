package sip_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/pion/webrtc/v4"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/emulator"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/doortest"
	"voxgate/signaling/rtc"
	"voxgate/signaling/sip"
)

// pages is a gateway for phones in web pages, with an emulated model.
type pages struct {
	t     testing.TB
	url   string
	host  *bridge.Host
	doors *signaling.Server
	logs  *logBook
}

func newPages(t testing.TB, admit func(context.Context, string, *bridge.SessionRequest) error) *pages {
	t.Helper()
	logs := &logBook{}
	log := slog.New(slog.NewTextHandler(logs, nil))
	model := emulator.New(emulator.Options{Logger: log, Espeak: emulator.NoVoice})
	up := httptest.NewServer(model)
	host := bridge.NewHost(bridge.Options{Client: &api.Client{BaseURL: up.URL}, Backend: "emulator", Logger: log, Admit: admit})
	ports, err := rtc.New(rtc.Options{UDPAddr: "127.0.0.1:0", Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	answer := agents.New(&agents.Agent{Name: "desk", Numbers: []string{"desk", "500"}, Greeting: new("")})
	door, err := sip.New(sip.Options{
		Config: &sip.Config{Calls: 100}, Agents: answer, Host: host, RTC: ports, Logger: log, Timeout: 4 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	gate := doortest.Must(access.New(access.Options{Agents: answer, Logger: log}))
	t.Cleanup(gate.Close)
	doors := signaling.NewServer(signaling.Options{Access: gate, Logger: log}, signaling.Endpoint{Pattern: "/sip", Socket: door.Pages()})
	server := httptest.NewServer(doors)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := host.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := doors.Close(ctx); err != nil {
			t.Error(err)
		}
		door.Close()
		server.Close()
		if err := ports.Close(); err != nil {
			t.Error(err)
		}
		model.Close()
		up.Close()
		if t.Failed() {
			t.Log(logs)
		}
	})
	return &pages{t, "ws" + strings.TrimPrefix(server.URL, "http") + "/sip", host, doors, logs}
}

// pagePhone is a phone in a web page, whose messages the test writes and reads.
type pagePhone struct {
	t    testing.TB
	conn *websocket.Conn
	cseq int
	last string // the message that was expected last
	name string // its name in Via, which is also part of the branch
}

func (p *pages) dial() *pagePhone {
	p.t.Helper()
	conn, _, err := (&websocket.Dialer{Subprotocols: []string{"sip"}}).Dial(p.url, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { conn.Close() })
	if conn.Subprotocol() != "sip" {
		p.t.Fatalf("the subprotocol is %q", conn.Subprotocol())
	}
	return &pagePhone{t: p.t, conn: conn, name: strings.ToLower(rand.Text()[:12])}
}

func (c *pagePhone) send(text string) {
	c.t.Helper()
	if err := c.conn.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *pagePhone) read() string {
	c.t.Helper()
	c.conn.SetReadDeadline(time.Now().Add(patience))
	_, text, err := c.conn.ReadMessage()
	if err != nil {
		c.t.Fatal(err)
	}
	return string(text)
}

// expect reads until a message with this beginning, and returns it.
func (c *pagePhone) expect(start string) string {
	c.t.Helper()
	for {
		text := c.read()
		if strings.HasPrefix(text, start) {
			c.last = text
			return text
		}
		if text == c.last {
			continue // an answer is repeated until it is acknowledged
		}
		if !strings.HasPrefix(text, "SIP/2.0 1") {
			c.t.Fatalf("not %q, but\n%s", start, text)
		}
	}
}

// request returns a request of the call id. tag is the gateway's, or empty.
func (c *pagePhone) request(method, id, tag, headers, body string) string {
	if method != "ACK" && method != "CANCEL" {
		c.cseq++
	}
	if tag != "" {
		tag = ";tag=" + tag
	}
	to := "desk"
	if strings.Contains(headers, "X-To: nobody") {
		to = "nobody"
	}
	return fmt.Sprintf(
		"%[1]s sip:%[8]s@localhost SIP/2.0\r\nVia: SIP/2.0/WS %[9]s.invalid;branch=z9hG4bK%[2]s%[3]d\r\nMax-Forwards: 70\r\n"+
			"From: \"Ada\" <sip:ada@localhost>;tag=1\r\nTo: <sip:%[8]s@localhost>%[4]s\r\nCall-ID: %[2]s\r\nCSeq: %[3]d %[1]s\r\n"+
			"Contact: <sip:ada@a.invalid;transport=ws>\r\n%[5]sContent-Length: %[6]d\r\n\r\n%[7]s",
		method,
		id,
		c.cseq,
		tag,
		headers,
		len(body),
		body,
		to,
		c.name,
	)
}

const isSDP = "Content-Type: application/sdp\r\n"

func tagOf(response string) string {
	_, to, _ := strings.Cut(response, "\r\nTo: ")
	to, _, _ = strings.Cut(to, "\r\n")
	_, tag, _ := strings.Cut(to, ";tag=")
	return tag
}

// offerer returns a WebRTC peer with audio, and its offer.
func offerer(t testing.TB) (*webrtc.PeerConnection, string) {
	t.Helper()
	var settings webrtc.SettingEngine
	settings.SetIncludeLoopbackCandidate(true)
	pc, err := webrtc.NewAPI(webrtc.WithSettingEngine(settings)).NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pc.Close() })
	if _, err := pc.AddTransceiverFromKind(webrtc.RTPCodecTypeAudio); err != nil {
		t.Fatal(err)
	}
	offer, err := pc.CreateOffer(nil)
	if err != nil {
		t.Fatal(err)
	}
	gathered := webrtc.GatheringCompletePromise(pc)
	if err := pc.SetLocalDescription(offer); err != nil {
		t.Fatal(err)
	}
	<-gathered
	return pc, pc.LocalDescription().SDP
}

// call makes a call, and returns the gateway's tag and the offer once WebRTC is connected.
func (c *pagePhone) call(id string) (tag, sdp string) {
	c.t.Helper()
	pc, sdp := offerer(c.t)
	connected := make(chan struct{}, 1)
	pc.OnConnectionStateChange(func(s webrtc.PeerConnectionState) {
		if s == webrtc.PeerConnectionStateConnected {
			connected <- struct{}{}
		}
	})
	c.send(c.request("INVITE", id, "", isSDP, sdp))
	ok := c.expect("SIP/2.0 200")
	_, answer, _ := strings.Cut(ok, "\r\n\r\n")
	if err := pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: answer}); err != nil {
		c.t.Fatal(err)
	}
	tag = tagOf(ok)
	c.send(c.request("ACK", id, tag, "", ""))
	select {
	case <-connected:
	case <-time.After(patience):
		c.t.Fatal("not connected")
	}
	return tag, sdp
}

// wait waits until there are n conversations.
func (p *pages) wait(n int) {
	p.t.Helper()
	for deadline := time.Now().Add(patience); len(p.host.Sessions()) != n; <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("%+v", p.host.Sessions())
		}
	}
}

// A phone's requests are answered according to the RFCs, and its call lasts until the BYE or the end of the socket.
func TestPagePhone(t *testing.T) {
	t.Parallel()
	p := newPages(t, nil)
	c := p.dial()
	c.send(c.request("REGISTER", "reg", "", "Expires: 60\r\n", ""))
	if ok := c.expect("SIP/2.0 200"); !strings.Contains(ok, "<sip:ada@a.invalid;transport=ws>;expires=60\r\n") {
		t.Error(ok)
	}
	c.send("\r\n\r\n")
	if pong := c.read(); pong != "\r\n" {
		t.Errorf("%q", pong)
	}
	tag, sdp := c.call("a")
	p.wait(1)
	other, _ := offerer(t)
	for _, step := range []struct{ method, tag, headers, body, want string }{
		{"INFO", tag, "Content-Type: application/dtmf-relay\r\n", "Signal=5\r\n", "SIP/2.0 200"},
		{"INFO", tag, "Content-Type: text/plain\r\n", "5", "SIP/2.0 415"},
		{"UPDATE", tag, "", "", "SIP/2.0 200"},
		{"INVITE", tag, "", "", "SIP/2.0 488"},
		{"INVITE", tag, isSDP, "nonsense", "SIP/2.0 488"},
		{"INVITE", tag, isSDP, other.LocalDescription().SDP, "SIP/2.0 488"},
		{"INVITE", tag, isSDP, strings.Replace(sdp, "a=sendrecv", "a=sendonly", 1), "SIP/2.0 200"},
		{"BYE", "another", "", "", "SIP/2.0 481"},
		{"BYE", tag, "", "", "SIP/2.0 200"},
	} {
		c.send(c.request(step.method, "a", step.tag, step.headers, step.body))
		answer := c.expect(step.want)
		if step.method == "INVITE" && step.want == "SIP/2.0 200" { // else it would be repeated, and taken for another response
			c.send(c.request("ACK", "a", step.tag, "", ""))
		}
		if strings.Contains(step.body, "sendonly") && !strings.Contains(answer, "\r\na=recvonly\r\n") {
			t.Errorf("on hold\n%s", answer)
		}
	}
	p.wait(0)
	c.call("b")
	p.wait(1)
	c.conn.Close()
	p.wait(0)
}

// Unsupported requests are refused with the right status, and begin no conversation.
func TestPagePhoneIsRefused(t *testing.T) {
	t.Parallel()
	p := newPages(t, nil)
	if _, res, err := websocket.DefaultDialer.Dial(p.url, nil); err == nil || res.StatusCode != http.StatusBadRequest {
		t.Errorf("without the subprotocol: %v", err)
	}
	_, sdp := offerer(t)
	for i, r := range []struct{ method, headers, body, want string }{
		{"INVITE", "", "", "SIP/2.0 488"},
		{"INVITE", isSDP, "v=0", "SIP/2.0 488"},
		{"INVITE", isSDP, strings.ReplaceAll(sdp, "a=fingerprint", "a=x"), "SIP/2.0 488"},
		{"INVITE", isSDP, strings.ReplaceAll(sdp, "a=ice-pwd", "a=x"), "SIP/2.0 488"},
		{"INVITE", isSDP + "X-To: nobody\r\n", sdp, "SIP/2.0 404"},
		{"INVITE", isSDP + "Require: foo\r\n", sdp, "SIP/2.0 420"},
		{"INVITE", isSDP + "Session-Expires: 10\r\n", sdp, "SIP/2.0 422"},
		{"MESSAGE", "", "hello", "SIP/2.0 405"},
		{"CANCEL", "", "", "SIP/2.0 481"},
		{"OPTIONS", "", "", "SIP/2.0 200"},
	} {
		c := p.dial()
		c.send(c.request(r.method, fmt.Sprint("r", i), "", r.headers, r.body))
		c.expect(r.want)
		c.conn.Close()
	}
	p.wait(0)
	c := p.dial()
	for range 10 {
		c.send(c.request("REGISTER", "reg", "", "", ""))
		c.expect("SIP/2.0 200")
	}
	c.send(c.request("REGISTER", "reg", "", "", ""))
	c.expect("SIP/2.0 503")
}

// A call that is cancelled before its answer ends, and so does one whose answer is not acknowledged.
func TestPagePhoneGivesUp(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 1)
	p := newPages(t, func(ctx context.Context, _ string, _ *bridge.SessionRequest) error {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	c := p.dial()
	_, sdp := offerer(t)
	c.send(c.request("INVITE", "a", "", isSDP, sdp))
	<-asked
	c.send(c.request("INVITE", "a", "", isSDP, sdp)) // RFC 3261, section 8.2.2.2
	c.expect("SIP/2.0 482")
	c.cseq--
	c.send(c.request("CANCEL", "a", "", "", ""))
	c.expect("SIP/2.0 200")
	c.expect("SIP/2.0 487")
	for _, id := range []string{"b", "c", "d", "e"} {
		c.send(c.request("INVITE", id, "", isSDP, sdp))
	}
	c.send(c.request("INVITE", "f", "", isSDP, sdp))
	c.expect("SIP/2.0 486")

	p = newPages(t, nil)
	c = p.dial()
	c.send(c.request("INVITE", "a", "", isSDP, sdp))
	c.expect("SIP/2.0 200")
	bye := c.expect("BYE sip:ada@a.invalid;transport=ws SIP/2.0")
	if !strings.Contains(bye, "\r\nVia: SIP/2.0/WS 127.0.0.1:") || !strings.Contains(bye, "\r\nReason: Q.850;cause=") {
		t.Error(bye)
	}
	c.send("SIP/2.0 200 OK\r\n" + bye[strings.Index(bye, "\r\n")+2:])
	p.wait(0)
}

// A call may replace another one of the same phone (RFC 3891), and continues its conversation. It cannot replace a call of another phone.
func TestPagePhoneReplaces(t *testing.T) {
	t.Parallel()
	p := newPages(t, nil)
	c, stranger := p.dial(), p.dial()
	tag, sdp := c.call("a")
	p.wait(1)
	id := p.host.Sessions()[0].ID
	replaces := isSDP + "Replaces: a;to-tag=" + tag + ";from-tag=1\r\n"
	stranger.send(stranger.request("INVITE", "x", "", replaces, sdp))
	stranger.expect("SIP/2.0 481")
	_, sdp = offerer(t)
	c.send(c.request("INVITE", "b", "", replaces, sdp))
	var bye, ok string
	for bye == "" || ok == "" {
		switch text := c.read(); {
		case strings.HasPrefix(text, "BYE"):
			bye = text
		case strings.HasPrefix(text, "SIP/2.0 200"):
			ok = text
		}
	}
	if !strings.Contains(bye, "\r\nCall-ID: a\r\n") || !strings.Contains(ok, "\r\nCall-ID: b\r\n") {
		t.Errorf("%s\n%s", bye, ok)
	}
	c.send("SIP/2.0 200 OK\r\n" + bye[strings.Index(bye, "\r\n")+2:])
	c.send(c.request("ACK", "b", tagOf(ok), "", ""))
	p.wait(1)
	if now := p.host.Sessions()[0].ID; now != id {
		t.Errorf("the conversation is %s, not %s", now, id)
	}
}

// A gateway that stops hangs up, and closes the WebSocket with a status.
func TestPagePhonesAreTold(t *testing.T) {
	t.Parallel()
	p := newPages(t, nil)
	c := p.dial()
	c.call("a")
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		p.doors.Close(context.Background())
	}()
	bye := c.expect("BYE")
	c.send("SIP/2.0 200 OK\r\n" + bye[strings.Index(bye, "\r\n")+2:])
	_, _, err := c.conn.ReadMessage()
	if !websocket.IsCloseError(err, websocket.CloseGoingAway) {
		t.Error(err)
	}
	<-stopped
}

// After any malformed message phones are still served. Nothing crashes, and no conversation begins.
func TestHostileMessages(t *testing.T) {
	t.Parallel()
	p := newPages(t, nil)
	for name, packet := range hostile("127.0.0.1:9") {
		c := p.dial()
		c.send(packet)
		c.send("SIP/2.0 200 OK\r\n\r\n")
		if err := c.conn.WriteMessage(websocket.BinaryMessage, []byte(packet+"\x00\xff")); err != nil {
			t.Fatal(err)
		}
		c.send(strings.Repeat("x", 70_000))
		c.alive(name)
		c.conn.Close()
	}
	if log := p.logs.String(); strings.Contains(log, "crashed") || strings.Contains(log, "conversation started") {
		t.Error("something crashed, or a stranger's message has begun a conversation")
	}
}

// alive checks that the gateway still answers OPTIONS.
func (c *pagePhone) alive(after string) {
	c.t.Helper()
	c.send(c.request("OPTIONS", "alive", "", "", ""))
	for {
		c.conn.SetReadDeadline(time.Now().Add(patience))
		_, text, err := c.conn.ReadMessage()
		if err != nil {
			c.t.Fatalf("after %s: %v", after, err)
		}
		if strings.Contains(string(text), "\r\nCall-ID: alive\r\n") && strings.HasPrefix(string(text), "SIP/2.0 200") {
			return
		}
	}
}

// FuzzPage sends arbitrary messages by a phone's socket, which must still be served afterwards.
func FuzzPage(f *testing.F) {
	for _, packet := range hostile("127.0.0.1:9") {
		f.Add(packet)
	}
	p := newPages(f, nil)
	c := p.dial()
	c.send(c.request("REGISTER", "reg", "", "", ""))
	c.expect("SIP/2.0 200")
	f.Fuzz(func(t *testing.T, text string) {
		c.t = t
		c.send(text)
		c.alive(fmt.Sprintf("%q", text))
		if strings.Contains(p.logs.String(), "crashed") {
			t.Error(p.logs)
		}
	})
}
