package sip_test

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/rtp"

	"voxgate/bridge"
	"voxgate/media"
	"voxgate/media/g711"
	"voxgate/signaling/phone/sip"
	"voxgate/signaling/phone/sip/ua"
)

// startCarrier returns a carrier that the test drives, and a gateway with a trunk to it.
func startCarrier(t testing.TB, trunk, outbound map[string]any, tell ...func(sip.CallStatus)) (*handset, *testGateway) {
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
	o := startGateway(t, trunkConfig(t, fields), tell...)
	return &handset{t: t, signals: conn, to: net.UDPAddrFromAddrPort(o.server.Addresses()[0])}, o
}

// A CANCEL that is read before its INVITE still cancels the call, as on a network that reorders packets.
func TestCancelBeforeInvite(t *testing.T) {
	t.Parallel()
	h, o := startCarrier(t, nil, nil)
	for i := range 3 {
		text := func(method string) string {
			return fmt.Sprintf("%s sip:500@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP %s;branch=z9hG4bKgone%d;rport\r\nMax-Forwards: 70\r\n"+
				"From: <sip:eve@127.0.0.1>;tag=1\r\nTo: <sip:500@127.0.0.1>\r\nCall-ID: gone%d\r\nCSeq: 1 %s\r\nContact: <sip:eve@%s>\r\n",
				method, h.signals.LocalAddr(), i, i, method, h.signals.LocalAddr())
		}
		invite := fmt.Sprintf("%sContent-Type: application/sdp\r\nContent-Length: %d\r\n\r\n%s", text("INVITE"), len(body), body)
		cancel := text("CANCEL") + "Content-Length: 0\r\n\r\n"
		h.send(cancel)
		h.awaitResponse("481")
		h.send(invite)
		if got := h.awaitResponse(`[2-6]\d\d.*\r\n(?s:.*)CSeq: 1 INVITE`); !strings.HasPrefix(got, "SIP/2.0 487") {
			t.Fatalf("call %d was answered %s", i, got)
		}
		h.send(text("ACK") + "Content-Length: 0\r\n\r\n")
	}
	if n := len(o.host.Sessions()); n > 0 {
		t.Errorf("%d conversations were begun", n)
	}
}

// A CANCEL ends only the call of its own INVITE: not with another branch, and not from another address, even if all other fields match.
func TestCancelByStrangerIgnored(t *testing.T) {
	t.Parallel()
	o := startGateway(t, trunkConfig(t, map[string]any{"from": []string{"127.0.0.0/8"}}))
	caller, stranger := newCallerPhone(t, o, "127.0.0.1"), newCallerPhone(t, o, "127.0.0.2")
	at := caller.signals.LocalAddr()
	text := func(method, branch string, headers string) string {
		return fmt.Sprintf("%s sip:500@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP %s;branch=z9hG4bK%s;rport\r\n"+
			"Max-Forwards: 70\r\nFrom: <sip:eve@127.0.0.1>;tag=1\r\n"+
			"To: <sip:500@127.0.0.1>\r\nCall-ID: cancelled\r\nCSeq: 1 %s\r\nContact: <sip:eve@%s>\r\n%s", method, at, branch, method, at, headers)
	}
	caller.send(text("INVITE", "first", fmt.Sprintf(
		"Require: 100rel\r\nContent-Type: application/sdp\r\nContent-Length: %d\r\n\r\n%s", len(body), body,
	)))
	rings := caller.awaitResponse("180") // until that is acknowledged
	number := regexp.MustCompile(`RSeq: (\d+)`).FindStringSubmatch(rings)
	const nothing = "Content-Length: 0\r\n\r\n"
	for branch, h := range map[string]*handset{"another": caller, "third": stranger} { // with one branch the second would repeat the first
		h.send(text("CANCEL", branch, nothing))
		h.awaitResponse("481")
	}
	stranger.send(text("CANCEL", "first", nothing))
	stranger.send(strings.Replace(text("CANCEL", "first", nothing), "Call-ID: cancelled", "Call-ID: another", 1))
	conn := dialTCP(t, o, "127.0.0.2")
	byTCP := &handset{t: t, signals: &messageConn{conn, "TCP", bufio.NewReader(conn)}}
	byTCP.send("\r\n\r\n" + text("OPTIONS", "fourth", "Subject: a CANCEL of my own\r\n"+nothing) +
		strings.Replace(text("CANCEL", "first", nothing), "Call-ID: cancelled", "Call-ID: third", 1))
	o.awaitLogTimes("a CANCEL of another's call", 3)
	_, to, _ := strings.Cut(rings, "To: ")
	to, _, _ = strings.Cut(to, "\r\n")
	acknowledges := text("PRACK", "second", "RAck: "+number[1]+" 1 INVITE\r\n"+nothing)
	caller.send(strings.NewReplacer("To: <sip:500@127.0.0.1>", "To: "+to, "CSeq: 1 ", "CSeq: 2 ").Replace(acknowledges))
	if got := caller.awaitResponse(`[2-6](?s:.*)CSeq: 1 INVITE`); !strings.HasPrefix(got, "SIP/2.0 200") {
		t.Errorf("the call was answered %s", got)
	}
}

// awaitRequest waits for a request that matches a pattern, and returns it.
func (h *handset) awaitRequest(pattern string) string {
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

// respond answers a request, with SDP if it is a 200 to an INVITE.
func (h *handset) respond(req, status, tag string, headers ...string) {
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
		sound = cmp.Or(h.sdp, body)
		headers = append(headers, "Content-Type: application/sdp", fmt.Sprintf("Contact: <sip:%s@%s>", tag, h.signals.LocalAddr()))
	}
	for _, header := range headers {
		text += header + "\r\n"
	}
	h.send(text + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(sound), sound))
}

// hangUp ends an outgoing call of the gateway.
func (h *handset) hangUp(invite, tag string) {
	h.t.Helper()
	h.sendInDialog(invite, tag, "BYE", 1, "", "")
	h.awaitResponse("200")
}

// sendInDialog sends a request within an outgoing call of the gateway.
func (h *handset) sendInDialog(invite, tag, method string, sequence int, kind, body string, headers ...string) {
	h.t.Helper()
	header := func(name string) string {
		_, value, _ := strings.Cut(invite, name+": ")
		value, _, _ = strings.Cut(value, "\r\n")
		return value
	}
	if kind != "" {
		headers = append(headers, "Content-Type: "+kind)
	}
	for i := range headers {
		headers[i] += "\r\n"
	}
	h.send(fmt.Sprintf("%s sip:voxgate@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP %s;branch=z9hG4bK%s\r\nMax-Forwards: 70\r\n"+
		"From: %s;tag=%s\r\nTo: %s\r\nCall-ID: %s\r\nCSeq: %d %s\r\n%sContent-Length: %d\r\n\r\n%s",
		method, h.signals.LocalAddr(), rand.Text(), header("To"), tag, header("From"), header("Call-ID"),
		sequence, method, strings.Join(headers, ""), len(body), body))
}

// dialNumber makes the gateway call a number. result receives the result.
func (t *testGateway) dialNumber() (result <-chan error) {
	done := make(chan error, 1)
	go func() {
		_, err := t.server.CallUntilRinging(t.t.Context(), "app", sip.Dial{To: "+49302", Trunk: "lab", Agent: talker})
		done <- err
	}()
	return done
}

// Headers of carriers and our own make messages longer than 1,300 bytes, which sipgo once refused to send by UDP.
func TestLongMessagesByUDP(t *testing.T) {
	t.Parallel()
	t.Run("an answer", func(t *testing.T) {
		t.Parallel()
		o := startGateway(t, config)
		route := "Record-Route: <sip:proxy.a-carrier-with-a-long-name.example.com:5060;transport=udp;lr;ftag=" + strings.Repeat("x", 150) + ">"
		s := (&scenario{}).request("INVITE", 1, sdp("[media_ip]", "sendrecv", plain), route, route, route, route, route, route).ringing().
			expect(200, "m=audio").request("ACK", 1, "").bye(2)
		s.run(t, o)
	})
	t.Run("a request", func(t *testing.T) {
		t.Parallel()
		h, o := startCarrier(t, map[string]any{"srtp": "required"}, map[string]any{"username": "voxgate", "password": "open sesame"})
		result := o.dialNumber()
		first := h.awaitRequest("INVITE")
		nonce := strings.Repeat("0123456789", 30)
		h.respond(
			first, "407 Proxy Authentication Required", "a",
			`Proxy-Authenticate: Digest realm="carrier", nonce="`+nonce+`", algorithm=MD5, qop="auth"`,
		)
		second := h.awaitRequest("INVITE.*Proxy-Authorization")
		if len(second) < 1300 {
			t.Errorf("only %d bytes", len(second))
		}
		h.respond(second, "486 Busy Here", "a")
		if refused := (*ua.RefusedError)(nil); !errors.As(<-result, &refused) || refused.Status != 486 {
			t.Errorf("%v", refused)
		}
	})
}

// One lost ACK does not end a call. If two phones answer, only one gets the call.
func TestRetransmittedAnswers(t *testing.T) {
	t.Parallel()
	h, o := startCarrier(t, nil, nil)
	result := o.dialNumber()
	invite := h.awaitRequest("INVITE")
	h.respond(invite, "200 OK", "first")
	h.awaitRequest("ACK.*tag=first")
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	for range 2 {
		h.respond(invite, "200 OK", "first")
		h.awaitRequest("ACK.*tag=first")
	}
	h.respond(invite, "200 OK", "second")
	h.awaitRequest("ACK sip:second@.*tag=second")
	h.respond(h.awaitRequest("BYE sip:second@.*tag=second.*completed elsewhere"), "200 OK", "second")
	_ = o.awaitSession().Do(bridge.Goodbye{})
	h.respond(h.awaitRequest("BYE sip:first@.*tag=first"), "200 OK", "first")
}

// A duplicated answer counts once: the second is not taken for another phone's, which would get a BYE.
func TestDuplicateAnswers(t *testing.T) {
	t.Parallel()
	h, o := startCarrier(t, map[string]any{"calls": 100, "callsPerSecond": 1000}, nil)
	next := func(pattern string) string {
		t.Helper()
		got := h.awaitRequest("(BYE|" + pattern + ")")
		if strings.HasPrefix(got, "BYE") {
			t.Fatalf("hung up: %s", got)
		}
		return got
	}
	for range 20 {
		result := o.dialNumber()
		invite := next("INVITE")
		for range 20 {
			h.respond(invite, "200 OK", "a")
		}
		next("ACK")
		if err := <-result; err != nil {
			t.Fatal(err)
		}
		h.sendInDialog(invite, "a", "BYE", 1, "", "")
		next("SIP/2.0 200")
	}
}

// A duplicated ACK is not mistaken for the ACK of a later response. If it were, audio would be sent in one direction
// only.
func TestDuplicateACKs(t *testing.T) {
	t.Parallel()
	o := startGateway(t, config)
	h := startCall(t, o)
	o.awaitSession()
	h.sendRequest("ACK", 1, "")
	o.awaitLogTimes("msg=sound door", 1) // or all would be agreed on before there is any
	h.sendRequest("INVITE", 2, "")       // the offer is ours
	h.awaitResponse("200")
	h.sendRequest("ACK", 1, "")
	h.sendRequest("ACK", 2, body)
	h.sendRequest("INVITE", 3, "")
	h.awaitResponse("200")
	h.sendRequest("ACK", 3, strings.Replace(body, "RTP/AVP 0", "RTP/AVP 8", 1))
	o.awaitLogTimes("msg=sound door", 3)
}

// A trunk where we are registered calls our Contact. The called number is in another header, and selects the agent.
func TestCalledNumberOfRegisteredTrunk(t *testing.T) {
	t.Parallel()
	h, o := startCarrier(t, map[string]any{"callsPerCaller": 10}, map[string]any{"register": true})
	register := h.awaitRequest("REGISTER")
	h.respond(register, "200 OK", "r", "Expires: 3600")
	contact := regexp.MustCompile(`Contact: <(sip:\+49301@[^>]+)>`).FindStringSubmatch(register)
	if contact == nil {
		t.Fatalf("the contact is not our number: %s", register)
	}
	for i, test := range []struct{ headers, to string }{
		{"P-Called-Party-ID: <sip:+493017@carrier>\r\n", "sip:+49301@carrier"},
		{"P-Called-Party-ID: <tel:+493017;phone-context=carrier>\r\n", "sip:+49301@carrier"},
		{"", "sip:+493017@carrier"},
		{"", "tel:+49-30-17"},
	} {
		text := inviteText(h.signals.LocalAddr().String(), fmt.Sprintf(usualHeaders, strings.Repeat("x", i))+test.headers, body)
		text = strings.Replace(text, "INVITE sip:500@127.0.0.1", "INVITE "+contact[1], 1)
		h.send(strings.Replace(text, "To: <sip:500@127.0.0.1>", "To: <"+test.to+">", 1))
		h.awaitResponse("200")
		o.awaitLogTimes("to=+493017", i+1)
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		o.server.Close()
	}()
	for last := ""; !strings.HasPrefix(last, "REGISTER"); {
		last = h.awaitRequest("(BYE|REGISTER.*Expires: 0)")
		h.respond(last, "200 OK", "r")
	}
	<-closed
}

const challenge = `WWW-Authenticate: Digest realm="carrier", nonce="abc", algorithm=MD5, qop="auth"`

// A trunk may challenge any request within a call, incoming or outgoing, as some do with every request.
func TestChallengesWithinCall(t *testing.T) {
	t.Parallel()
	prove := func(h *handset, pattern string) string {
		t.Helper()
		first := h.awaitRequest(pattern)
		h.respond(first, "401 Unauthorized", "1", challenge)
		second := h.awaitRequest(pattern + `.*\r\nAuthorization: Digest [^\r]*username="voxgate"`)
		if number := regexp.MustCompile(`CSeq: \d+`); number.FindString(first) == number.FindString(second) {
			t.Errorf("both have %s", number.FindString(first))
		}
		return second
	}
	h, o := startCarrier(t, map[string]any{"transferTo": []string{"+49*"}}, map[string]any{"username": "voxgate", "password": "open sesame"})
	caller := startCall(t, o)
	result := o.server.Transfer("+49302")
	caller.respond(prove(caller, "REFER"), "603 Decline", "1")
	if err := <-result; err == nil || !strings.Contains(err.Error(), "603") {
		t.Errorf("%v", err)
	}
	done := o.server.RefreshSession()
	caller.respond(prove(caller, "UPDATE"), "200 OK", "1")
	<-done
	_ = o.awaitSession().Do(bridge.Goodbye{})
	caller.respond(prove(caller, "BYE"), "200 OK", "1")
	called := o.dialNumber()
	invite := h.awaitRequest("INVITE")
	h.respond(invite, "200 OK", "1")
	h.awaitRequest("ACK")
	if err := <-called; err != nil {
		t.Fatal(err)
	}
	_ = o.awaitSession().Do(bridge.Goodbye{})
	h.respond(prove(h, "BYE"), "200 OK", "1")
}

// A challenge from another address is not answered: a caller whose Contact is their own machine could guess the password from the answer.
func TestChallengeByStrangerIgnored(t *testing.T) {
	t.Parallel()
	_, o := startCarrier(t, nil, map[string]any{"username": "voxgate", "password": "open sesame"})
	caller, stranger := newCallerPhone(t, o, "127.0.0.1"), newCallerPhone(t, o, "127.0.0.2")
	headers := strings.Replace(fmt.Sprintf(usualHeaders, "h"), "ada@127.0.0.1", "ada@"+stranger.signals.LocalAddr().String(), 1)
	caller.send(inviteText(caller.signals.LocalAddr().String(), headers, body))
	accepted := caller.awaitResponse("200")
	_, caller.remoteParty, _ = strings.Cut(accepted, "To: ")
	caller.remoteParty, _, _ = strings.Cut(caller.remoteParty, "\r\n")
	caller.sendRequest("ACK", 1, "")
	_ = o.awaitSession().Do(bridge.Goodbye{})
	stranger.respond(stranger.awaitRequest("BYE"), "401 Unauthorized", "1", challenge)
	_ = stranger.signals.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	buf := make([]byte, 2000)
	if n, _, err := stranger.signals.ReadFrom(buf); err == nil {
		t.Errorf("answered: %s", buf[:n])
	}
}

// A registrar lists all phones of a number. The expiry of other phones is not taken for ours.
func TestRegistrarExpiryOfOtherPhones(t *testing.T) {
	t.Parallel()
	h, o := startCarrier(t, nil, map[string]any{"register": true})
	register := h.awaitRequest("REGISTER")
	contact := regexp.MustCompile(`Contact: (<sip:\+49301@[^>]+>)`).FindStringSubmatch(register)
	if contact == nil {
		t.Fatal(register)
	}
	h.respond(register, "200 OK", "r", "Contact: <sip:+49301@192.0.2.9:5060>;expires=3600, "+contact[1]+";expires=10")
	o.awaitLog("msg=registered door=sip trunk=lab for=10s")
	var closing sync.WaitGroup
	closing.Go(o.server.Close)
	h.respond(h.awaitRequest("REGISTER.*Expires: 0"), "200 OK", "r")
	closing.Wait()
}

// Numbers may arrive as tel: URIs (RFC 3966), especially from mobile networks.
func TestTelURIs(t *testing.T) {
	t.Parallel()
	o := startGateway(t, config)
	h := newCallerPhone(t, o, "127.0.0.1")
	for i, test := range []struct{ request, from, asserted string }{
		{"sip:500@127.0.0.1", "sip:anonymous@anonymous.invalid", "<tel:+49-30-2>"},
		{"sip:500@127.0.0.1", "tel:+49302", ""},
		{"tel:500;phone-context=+4930", "sip:+49302@carrier;user=phone", ""},
	} {
		headers := fmt.Sprintf(usualHeaders, strings.Repeat("x", i))
		if test.asserted != "" {
			headers += "P-Asserted-Identity: " + test.asserted + "\r\n"
		}
		text := inviteText(h.signals.LocalAddr().String(), strings.Replace(headers, "<sip:eve@127.0.0.1>", "<"+test.from+">", 1), body)
		h.send(strings.Replace(text, "INVITE sip:500@127.0.0.1", "INVITE "+test.request, 1))
		h.awaitResponse("200")
		o.awaitLogTimes("from=+49302 to=500", i+1)
	}
}

// A peer without UPDATE is refreshed by INVITE from then on. If it cannot refresh now, we try again later.
func TestSessionRefreshByInvite(t *testing.T) {
	t.Parallel()
	o := startGateway(t, config)
	h := startCall(t, o)
	o.awaitSession()
	done := o.server.RefreshSession()
	update := h.awaitRequest("UPDATE.*Session-Expires: 90;refresher=uac")
	h.respond(update, "405 Method Not Allowed", "1")
	for range 2 {
		again := h.awaitRequest("INVITE.*Session-Expires: 90;refresher=uac.*m=audio")
		h.respond(again, "200 OK", "1")
		h.awaitRequest("ACK")
		<-done
		done = o.server.RefreshSession()
	}
	h.respond(h.awaitRequest("INVITE"), "503 Service Unavailable", "1")
	h.awaitRequest("ACK")
	o.awaitLog("not refreshed")
	if len(o.host.Sessions()) != 1 {
		t.Error("the call has ended")
	}
}

// "I'll put you through" is played before the transfer, and the caller stays if the transfer is refused.
func TestTransferAfterPlayout(t *testing.T) {
	t.Parallel()
	o := startGateway(t, trunkConfig(t, map[string]any{"transferTo": []string{"+49*"}}))
	h := startCall(t, o)
	o.sendText(strings.Repeat("I will put you through. ", 3))
	if !h.awaitVoice(time.Now().Add(patience)) {
		t.Fatal("the model says nothing")
	}
	asked := time.Now()
	result := o.server.Transfer("+49302")
	ended := make(chan time.Time, 1)
	go func() {
		last := asked
		for h.awaitVoice(time.Now().Add(500 * time.Millisecond)) {
			last = time.Now()
		}
		ended <- last
	}()
	refer := h.awaitRequest("REFER.*Refer-To: <sip:\\+49302@")
	came, last := time.Now(), <-ended
	spoke := last.Sub(asked)
	if spoke < 500*time.Millisecond {
		t.Errorf("the sentence ended %v after the transfer was asked for: nothing was tested", spoke)
	}
	if early := last.Sub(came); early > spoke/2 { // without the wait, it would be early by all of spoke
		t.Errorf("the other side is asked %v before the sentence ends, of %v", early, spoke)
	}
	h.respond(refer, "603 Decline", "1")
	if err := <-result; err == nil || !strings.Contains(err.Error(), "603") {
		t.Errorf("%v", err)
	}
	if len(o.host.Sessions()) != 1 {
		t.Error("the caller is gone")
	}
}

// If the other side reports the target of a REFER as busy, the agent learns that, and we do not call the target ourselves.
func TestReferToBusyTarget(t *testing.T) {
	t.Parallel()
	colleague, o := startCarrier(t, map[string]any{"transferTo": []string{"+49*"}}, nil)
	h := startCall(t, o)
	events := o.watchEvents()
	o.sendText(`/tool transfer_call {"target":"+49302"}`)
	h.respond(h.awaitRequest("REFER"), "202 Accepted", "1")
	for i, status := range []string{"100 Trying", "180 Ringing", "486 Busy Here"} {
		number := []int{3, 2, 4}[i] // the gateway may reorder two packets that arrive together
		h.sendRequest("NOTIFY", number, "SIP/2.0 "+status, "Event: refer", "Subscription-State: active", "Content-Type: message/sipfrag")
		h.awaitResponse("200")
	}
	end := awaitEvent(t, events, func(e bridge.ToolStatus) bool { return e.Status != bridge.StatusRunning })
	if end.Status != bridge.StatusFailed || !strings.Contains(string(end.Result), "nobody was reached: 486") {
		t.Errorf("%s: %s", end.Status, end.Result)
	}
	if len(o.host.Sessions()) != 1 {
		t.Error("the caller is gone")
	}
	_ = colleague.signals.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, _, err := colleague.signals.ReadFrom(make([]byte, 2000)); err == nil {
		t.Errorf("they are called: %d bytes", n)
	}
}

// A call that the gateway ends while it waits for the target was not transferred. One that the other side ends was.
func TestEndDuringRefer(t *testing.T) {
	t.Parallel()
	limit := errors.New("the time limit is reached")
	for name, test := range map[string]struct {
		end  func(o *testGateway, h *handset)
		want error
	}{
		"by the gateway":    {func(o *testGateway, _ *handset) { o.server.EndCalls(limit) }, limit},
		"by the other side": {func(_ *testGateway, h *handset) { h.sendRequest("BYE", 2, "") }, nil},
	} {
		_, o := startCarrier(t, map[string]any{"transferTo": []string{"+49*"}}, nil)
		h := startCall(t, o)
		result := o.server.Transfer("+49302")
		h.respond(h.awaitRequest("REFER"), "202 Accepted", "1")
		h.sendRequest("NOTIFY", 3, "SIP/2.0 100 Trying", "Event: refer", "Subscription-State: active", "Content-Type: message/sipfrag")
		h.awaitResponse("200")
		test.end(o, h)
		if err := <-result; !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A target that begins like an allowed number must be a number: it cannot lead to another host or add anything to the request.
func TestTransferTargetInjection(t *testing.T) {
	t.Parallel()
	o := startGateway(t, trunkConfig(t, map[string]any{"transferTo": []string{"+4930*"}}))
	startCall(t, o)
	for _, target := range []string{"+4930123@192.0.2.1;x=", "+4930123?Replaces=x", "+4930123>\r\nX-A: b"} {
		if err := <-o.server.Transfer(target); err == nil || !strings.Contains(err.Error(), "is not a number") {
			t.Errorf("%q: %v", target, err)
		}
	}
}

// A phone system may move a caller away for a transfer, fail to reach the target and lose the caller, but keep reporting in the call with
// us. Then the agent would talk to an empty line. The call continues only while the caller is heard.
func TestCallerLostByRefer(t *testing.T) {
	t.Parallel()
	for _, there := range []bool{false, true} {
		t.Run(fmt.Sprint("the caller is there: ", there), func(t *testing.T) {
			t.Parallel()
			_, o := startCarrier(t, map[string]any{"transferTo": []string{"+49*"}, "silenceSeconds": 3}, nil)
			h := startCall(t, o)
			if there {
				defer h.sendPackets(0, 8000, numberedPayload)()
			}
			done := make(chan struct{})
			var running sync.WaitGroup
			defer running.Wait()
			defer close(done)
			running.Go(func() {
				raw, err := rtcp.Marshal([]rtcp.Packet{&rtcp.ReceiverReport{SSRC: 7}})
				to := *h.gateway.(*net.UDPAddr)
				to.Port++
				for err == nil {
					_, err = h.audio.WriteTo(raw, &to)
					select {
					case <-done:
						return
					case <-time.After(100 * time.Millisecond):
					}
				}
			})
			o.sendText(`/tool transfer_call {"target":"+49302"}`)
			h.respond(h.awaitRequest("REFER"), "202 Accepted", "1")
			h.sendRequest("NOTIFY", 2, "SIP/2.0 503 Service Unavailable", "Event: refer", "Subscription-State: terminated",
				"Content-Type: message/sipfrag")
			h.awaitResponse("200")
			if !there {
				h.respond(h.awaitRequest("BYE"), "200 OK", "1")
				o.awaitLog("call ended")
				return
			}
			h.signals.SetReadDeadline(time.Now().Add(5 * time.Second))
			if n, _, err := h.signals.ReadFrom(make([]byte, 4000)); err == nil {
				t.Errorf("%d bytes came for a call that goes on", n)
			}
		})
	}
}

// A trunk that gives up calls without packets gets silence in the agent's pauses, on the timeline of the voice, or comfort noise if that
// was agreed.
func TestSilencePackets(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		silence, formats string
		payload          uint8
		least, most      uint32 // from one packet to the next, in units of 1/8000 s
	}{
		{"send", "0", 0, 80, 8000},
		{"comfort", "0", 0, 80, 8000},
		{"comfort", "0 13", 13, 1200, 16000},
	} {
		t.Run(test.silence+" for "+test.formats, func(t *testing.T) {
			t.Parallel()
			o := startGateway(t, trunkConfig(t, map[string]any{"silence": test.silence}))
			h := startCall(t, o, test.formats)
			var last rtp.Packet
			buf := make([]byte, 1500)
			for i := range 20 {
				h.audio.SetReadDeadline(time.Now().Add(patience))
				n, _, err := h.audio.ReadFrom(buf)
				if err != nil {
					t.Fatal(err)
				}
				var p rtp.Packet
				if err := p.Unmarshal(bytes.Clone(buf[:n])); err != nil || p.PayloadType != test.payload {
					t.Fatalf("%v %v", err, p)
				}
				if noise := p.PayloadType == 13; noise && !bytes.Equal(p.Payload, []byte{65}) ||
					!noise && media.RMS(g711.MuLaw.AppendDecoded(nil, p.Payload)) > 0 {
					t.Fatalf("%v", p)
				}
				step := p.Timestamp - last.Timestamp
				if i > 0 && (p.SequenceNumber != last.SequenceNumber+1 || step < test.least || step > test.most) {
					t.Errorf("after %v comes %v", last.Header, p.Header)
				}
				last = p
			}
			o.sendText("Hello.")
			if !h.awaitVoice(time.Now().Add(patience)) {
				t.Error("the model says nothing")
			}
		})
	}
}

// A trunk may have a certificate of a private authority, and require one of ours. Our listener may require one of peers.
func TestPrivateCertificateAuthorities(t *testing.T) {
	t.Parallel()
	cert, key := writeCertificate(t) // which is its own authority
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	trunk, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert})
	if err != nil {
		t.Fatal(err)
	}
	defer trunk.Close()
	came := make(chan string, 1)
	go func() {
		defer close(came)
		conn, err := trunk.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		buf := make([]byte, 4000)
		n, _ := conn.Read(buf)
		came <- string(buf[:n])
	}()
	o := startGateway(t, configWith(t, func(c map[string]any) {
		c["tls"] = map[string]any{"ca": cert, "cert": cert, "key": key}
		c["listen"] = []any{map[string]any{"transport": "tls", "address": "127.0.0.1:0", "cert": cert, "key": key, "clientCA": cert}}
		c["trunks"].([]any)[0].(map[string]any)["outbound"] = map[string]any{
			"server": "sip:" + trunk.Addr().String() + ";transport=tls", "from": "+49301", "to": []string{"*"},
		}
	}))
	result := o.dialNumber()
	if text := <-came; !strings.HasPrefix(text, "INVITE") {
		t.Errorf("the trunk got %q", text)
	}
	if err := <-result; err == nil {
		t.Error("a call was made of nothing")
	}
	for name, config := range map[string]*tls.Config{"without": {}, "with": {Certificates: []tls.Certificate{pair}}} {
		config.InsecureSkipVerify = true
		conn, err := tls.Dial("tcp", o.server.Addresses()[0].String(), config)
		if err == nil {
			conn.SetReadDeadline(time.Now().Add(time.Second))
			_, err = conn.Read(make([]byte, 1)) // TLS 1.3 refuses a client here
			conn.Close()
		}
		var timeout net.Error
		if let := errors.As(err, &timeout) && timeout.Timeout(); let != (name == "with") {
			t.Errorf("%s a certificate: %v", name, err)
		}
	}
}

// A redirection is followed once, to an allowed number, by the trunk that sent it.
func TestRedirections(t *testing.T) {
	t.Parallel()
	h, o := startCarrier(t, nil, nil)
	for to, final := range map[string]int{"+49303": 486, "+900": 302} {
		result := o.dialNumber()
		invite := h.awaitRequest("INVITE sip:\\+49302@")
		h.respond(invite, "302 Moved Temporarily", "a", "Contact: <sip:"+to+"@elsewhere.example.com>")
		if final == 486 {
			h.respond(h.awaitRequest("INVITE sip:\\+49303@127.0.0.1"), "486 Busy Here", "b")
		}
		if refused := (*ua.RefusedError)(nil); !errors.As(<-result, &refused) || refused.Status != final {
			t.Errorf("to %s: %v", to, refused)
		}
	}
}
