package sip_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"voxgate/internal/testkit/mediatest"
)

// scenario is a scenario of sipp (Debian's sip-tester), in its XML format.
type scenario struct {
	steps strings.Builder
	book  string // path of the file with all messages
}

// request sends a request of the dialog. A body is SDP unless the headers have another type.
func (s *scenario) request(method string, sequence int, body string, headers ...string) *scenario {
	if method == "INVITE" && sequence == 1 {
		s.steps.WriteString(`<send retrans="500"><![CDATA[` + "\n" + message("INVITE", 1, "", body, headers) + "]]></send>\n")
		return s
	}
	s.steps.WriteString("<send><![CDATA[\n" + message(method, sequence, "[peer_tag_param]", body, headers) + "]]></send>\n")
	return s
}

func message(method string, sequence int, tag, body string, headers []string) string {
	number := fmt.Sprintf("%d %s", sequence, method)
	kind := "application/sdp"
	var rest []string
	for _, h := range headers {
		if value, ok := strings.CutPrefix(h, "Content-Type: "); ok {
			kind = value
			continue
		}
		rest = append(rest, h)
	}
	text := method + ` sip:500@[remote_ip]:[remote_port] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch];rport
From: "Ada" <sip:ada@[local_ip]:[local_port]>;tag=[call_number]x
To: <sip:500@[remote_ip]:[remote_port]>` + tag + `
Call-ID: [call_id]
CSeq: ` + number + `
Contact: <sip:ada@[local_ip]:[local_port]>
Max-Forwards: 70
`
	for _, h := range rest {
		text += h + "\n"
	}
	if body != "" {
		text += "Content-Type: " + kind + "\n"
	}
	return text + "Content-Length: [len]\n\n" + body
}

// expect waits for a response that matches.
func (s *scenario) expect(code int, pattern string) *scenario {
	action := ""
	if pattern != "" {
		action = fmt.Sprintf(`<action><ereg regexp="%s" search_in="msg" check_it="true" assign_to="1"/><log message="[$1]"/></action>`, pattern)
	}
	if code == 200 {
		fmt.Fprintf(&s.steps, `<recv response="200" rtd="true">%s</recv>`+"\n", action)
	} else {
		fmt.Fprintf(&s.steps, `<recv response="%d">%s</recv>`+"\n", code, action)
	}
	return s
}

// rings waits for a reliable provisional response. Then [$2] is its RSeq.
func (s *scenario) rings(code int, pattern string) *scenario {
	more := ""
	if pattern != "" {
		more = fmt.Sprintf(`<ereg regexp="%s" search_in="msg" check_it="true" assign_to="1"/>`, pattern)
	}
	fmt.Fprintf(
		&s.steps,
		`<recv response="100" optional="true"/><recv response="%d"><action>%s`+
			`<ereg regexp="RSeq: *([0-9]+)" search_in="msg" check_it="true" assign_to="1,2"/>`+
			`<log message="[$1][$2]"/></action></recv>`+"\n",
		code,
		more,
	)
	return s
}

// ringing skips provisional responses.
func (s *scenario) ringing() *scenario {
	s.steps.WriteString(
		`<recv response="100" optional="true"/><recv response="180" optional="true"/><recv response="183" optional="true"/>` + "\n",
	)
	return s
}

func (s *scenario) pause(ms int) *scenario {
	fmt.Fprintf(&s.steps, "<pause milliseconds=%q/>\n", fmt.Sprint(ms))
	return s
}

// call returns a scenario that begins with an answered call.
func call(sdp string, headers ...string) *scenario {
	return (&scenario{}).request("INVITE", 1, sdp, headers...).ringing().expect(200, "").request("ACK", 1, "")
}

// bye ends the call.
func (s *scenario) bye(sequence int) *scenario { return s.request("BYE", sequence, "").expect(200, "") }

// await waits for a request that matches.
func (s *scenario) await(method, pattern string) *scenario {
	action := ""
	if pattern != "" {
		action = fmt.Sprintf(`<action><ereg regexp="%s" search_in="msg" check_it="true" assign_to="1"/><log message="[$1]"/></action>`, pattern)
	}
	fmt.Fprintf(&s.steps, "<recv request=%q>%s</recv>\n", method, action)
	return s
}

// reply answers the request that was received last.
func (s *scenario) reply(status string, headers ...string) *scenario {
	s.steps.WriteString(
		"<send><![CDATA[\nSIP/2.0 " + status + "\n[last_Via:]\n[last_From:]\n[last_To:];tag=[call_number]\n[last_Call-ID:]\n[last_CSeq:]\n" +
			strings.Join(append(headers, "Content-Length: 0"), "\n") + "\n\n]]></send>\n",
	)
	return s
}

// run makes sipp run the scenario once, as the caller.
func (s *scenario) run(t *testing.T, o *testGateway) {
	t.Helper()
	s.start(t, mediatest.FreePort(t), 1, o.server.Addresses()[0].String())()
}

// serve makes sipp wait for a number of calls. wait blocks until they have ended, and returns all messages.
func (s *scenario) serve(t *testing.T, port, calls int) (wait func() string) {
	t.Helper()
	return s.start(t, port, calls)
}

func (s *scenario) start(t *testing.T, port, calls int, to ...string) (wait func() string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "scenario.xml")
	text := `<?xml version="1.0" encoding="ISO-8859-1" ?><scenario name="test">` + "\n" + s.steps.String() + "</scenario>\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.book = file + ".msg"
	cmd := exec.Command("sipp", append([]string{
		"-sf", file, "-m", fmt.Sprint(calls), "-i", "127.0.0.1", "-p", fmt.Sprint(port), "-recv_timeout", "8000", "-timeout", "100",
		"-trace_err", "-error_file", file + ".err",
		"-trace_msg", "-message_file", s.book, "-nostdin",
	}, to...)...)
	cmd.Dir = filepath.Dir(file)
	cmd.Env = append(os.Environ(), "TERM=dumb")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return sync.OnceValue(func() string {
		t.Helper()
		err := cmd.Wait()
		said, _ := os.ReadFile(s.book)
		if err != nil {
			wrong, _ := os.ReadFile(file + ".err")
			t.Errorf("sipp: %v\n%s\n%s", err, wrong, said)
		}
		return string(said)
	})
}

// sdp returns a session description with this address, direction and section.
func sdp(address, direction, section string) string {
	return "v=0\no=ada 1 1 IN IP4 [local_ip]\ns=-\nc=IN IP4 " + address + "\nt=0 0\n" + section + "\na=" + direction + "\n"
}

const plain = "m=audio [media_port] RTP/AVP 0 101\na=rtpmap:0 PCMU/8000\na=rtpmap:101 telephone-event/8000"

// Typical behaviours of phone systems, one call each.
func TestSIPpScenarios(t *testing.T) {
	offer := func(media string) string { return sdp("[media_ip]", "sendrecv", media) }
	usual := offer(plain)
	for name, s := range map[string]*scenario{
		"a call": call(usual).bye(2),
		"mirrors a payload type": (&scenario{}).request("INVITE", 1, offer(
			"m=audio [media_port] RTP/AVP 111 96\na=rtpmap:111 OPUS/48000/2\na=rtpmap:96 telephone-event/48000",
		)).ringing().
			expect(200, "m=audio [0-9]+ RTP/AVP 111 96").request("ACK", 1, "").bye(2),
		"comfort noise": (&scenario{}).request("INVITE", 1, offer(
			"m=audio [media_port] RTP/AVP 8 13 101\na=rtpmap:101 telephone-event/8000",
		)).ringing().
			expect(200, "m=audio [0-9]+ RTP/AVP 8 13 101.*a=rtpmap:13 CN/8000").request("ACK", 1, "").bye(2),
		"no comfort noise beside G.722": (&scenario{}).request("INVITE", 1, offer("m=audio [media_port] RTP/AVP 9 13")).ringing().
			expect(200, "m=audio [0-9]+ RTP/AVP 9").request("ACK", 1, "").bye(2),
		"refuses a video section": (&scenario{}).request("INVITE", 1, usual+"m=video 40000 RTP/AVP 96\na=rtpmap:96 VP8/90000\n").ringing().
			expect(200, "m=video 0 RTP/AVP 96").request("ACK", 1, "").bye(2),
		"no codec": (&scenario{}).request("INVITE", 1, offer("m=audio [media_port] RTP/AVP 18\na=rtpmap:18 G729/8000")).ringing().
			expect(488, "Warning").request("ACK", 1, ""),
		"late offer": (&scenario{}).request("INVITE", 1, "").ringing().expect(200, "m=audio [0-9]+ RTP/AVP 96 9 0 8 13 101").
			request("ACK", 1, usual).pause(200).bye(2),
		"held three ways": call(usual).
			request("INVITE", 2, sdp("[media_ip]", "sendonly", plain)).ringing().expect(200, "a=recvonly").request("ACK", 2, "").
			request("INVITE", 3, sdp("[media_ip]", "inactive", plain)).ringing().expect(200, "a=inactive").request("ACK", 3, "").
			request("INVITE", 4, sdp("0.0.0.0", "sendrecv", plain)).ringing().expect(200, "a=recvonly").request("ACK", 4, "").
			request("INVITE", 5, usual).ringing().expect(200, "a=sendrecv").request("ACK", 5, "").bye(6),
		"held, and back without a description": call(usual).
			request("INVITE", 2, sdp("[media_ip]", "inactive", plain)).ringing().expect(200, "a=inactive").request("ACK", 2, "").
			request("INVITE", 3, "").ringing().expect(200, "a=sendrecv").request("ACK", 3, usual).bye(4),
		"changes without a description": call(usual).request("INVITE", 2, "").ringing().expect(200, "m=audio").request("ACK", 2, usual).bye(3),
		"a change that is not served": call(usual).
			request("INVITE", 2, offer("m=audio [media_port] RTP/AVP 18")).ringing().expect(488, "").request("ACK", 2, "").bye(3),
		"another codec": call(usual).
			request("INVITE", 2, offer("m=audio [media_port] RTP/AVP 9")).ringing().expect(200, "RTP/AVP 9").request("ACK", 2, "").bye(3),
		"updates": call(usual).
			request("UPDATE", 2, "").expect(200, "").
			request("UPDATE", 3, sdp("[media_ip]", "inactive", plain)).expect(200, "a=inactive").bye(4),
		"a timer": (&scenario{}).request("INVITE", 1, usual, "Supported: timer", "Session-Expires: 300;refresher=uac").ringing().
			expect(200, "Session-Expires: 300;refresher=uac").request("ACK", 1, "").bye(2),
		"a timer too short": (&scenario{}).request("INVITE", 1, usual, "Supported: timer", "Session-Expires: 30").ringing().
			expect(422, "Min-SE: 90").request("ACK", 1, ""),
		"an extension": (&scenario{}).request("INVITE", 1, usual, "Require: precondition").ringing().
			expect(420, "Unsupported: precondition").request("ACK", 1, ""),
		"acknowledges ringing": (&scenario{}).request("INVITE", 1, usual, "Require: 100rel").rings(180, "").
			request("PRACK", 2, "", "RAck: [$2] 1 INVITE").expect(200, "CSeq: 2 PRACK").
			expect(200, "Supported: timer, 100rel, replaces").request("ACK", 1, "").bye(3),
		"acknowledges something else": (&scenario{}).request("INVITE", 1, usual, "Require: 100rel").rings(180, "").
			request("PRACK", 2, "", "RAck: 7 1 INVITE").expect(481, "").
			request("PRACK", 3, "", "RAck: [$2] 1 INVITE").expect(200, "").
			expect(200, "").request("ACK", 1, "").bye(4),
		"BYE while it rings": (&scenario{}).request("INVITE", 1, usual, "Require: 100rel").rings(180, "").
			request("BYE", 2, "").expect(200, "BYE").expect(487, "").request("ACK", 1, ""),
		"acknowledges no ringing": (&scenario{}).request("INVITE", 1, usual, "Require: 100rel").rings(180, "").
			expect(504, "").request("ACK", 1, ""),
		"late offer, requires 100rel": (&scenario{}).request("INVITE", 1, "", "Require: 100rel").ringing().
			expect(200, "").request("ACK", 1, usual).pause(200).bye(2),
		"replaces nobody": (&scenario{}).request("INVITE", 1, usual, "Replaces: x;to-tag=y;from-tag=z").ringing().
			expect(481, "").request("ACK", 1, ""),
		"replaces nonsense": (&scenario{}).request("INVITE", 1, usual, "Replaces: x").ringing().
			expect(400, "").request("ACK", 1, ""),
		"keys by INFO": call(usual).
			request("INFO", 2, "Signal=5\nDuration=160\n", "Content-Type: application/dtmf-relay").expect(200, "").bye(3),
		"an INFO of nothing": call(usual).request("INFO", 2, "").expect(200, "").bye(3),
		"another INFO":       call(usual).request("INFO", 2, "x", "Content-Type: text/plain").expect(415, "").bye(3),
		"is it there":        (&scenario{}).request("OPTIONS", 1, "").expect(200, "Allow: INVITE"),
		"no such method":     (&scenario{}).request("SUBSCRIBE", 1, "", "Event: presence").expect(405, "Allow: INVITE"),
		"BYE of nobody":      (&scenario{}).request("BYE", 1, "").expect(481, ""),
		"CANCEL of nobody":   (&scenario{}).request("CANCEL", 1, "").expect(481, ""),
		"CSeq that is old":   call(usual).request("UPDATE", 5, "").expect(200, "").request("UPDATE", 4, "").expect(500, "").bye(6),
		"no ACK":             (&scenario{}).request("INVITE", 1, usual).ringing().expect(200, "").await("BYE", "").reply("200 OK"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.run(t, startGateway(t, config))
		})
	}
}

// A call replaces another (RFC 3891): the first one gets a BYE, and the conversation continues.
func TestReplaces(t *testing.T) {
	t.Parallel()
	o := startGateway(t, config)
	s := call(sdp("[media_ip]", "sendrecv", plain))
	s.steps.WriteString(
		`<nop><action><assignstr assign_to="3" value="[last_To:]"/>` +
			`<ereg regexp="tag=([^;]+)" search_in="var" variable="3" check_it="true" assign_to="1,4"/></action></nop>` + "\n",
	)
	invite := message(
		"INVITE",
		1,
		"",
		sdp("[media_ip]", "sendrecv", plain),
		[]string{"Replaces: [call_id];to-tag=[$4];from-tag=[call_number]x"},
	)
	invite = strings.NewReplacer(
		"Call-ID: [call_id]", "Call-ID: second///[call_id]",
		`"Ada"`, `"Grace"`,
		"tag=[call_number]x\nTo", "tag=[call_number]y\nTo",
	).Replace(invite)
	fmt.Fprintf(&s.steps, "<send retrans=\"500\"><![CDATA[\n%s]]></send>\n", invite)
	second := func(method string, sequence int) {
		text := message(method, sequence, "[peer_tag_param]", "", nil)
		text = strings.NewReplacer("Call-ID: [call_id]", "Call-ID: second///[call_id]", "tag=[call_number]x", "tag=[call_number]y").Replace(text)
		fmt.Fprintf(&s.steps, "<send><![CDATA[\n%s]]></send>\n", text)
	}
	s.ringing().expect(200, "")
	second("ACK", 1)
	s.await("BYE", "Replaced")
	s.steps.WriteString(
		"<send><![CDATA[\nSIP/2.0 200 OK\n[last_Via:]\n[last_From:]\n[last_To:]\n[last_Call-ID:]\n[last_CSeq:]\n" +
			"Content-Length: 0\n\n]]></send>\n",
	)
	s.pause(3000)
	second("BYE", 2)
	s.expect(200, "")
	wait := s.start(t, mediatest.FreePort(t), 1, o.server.Addresses()[0].String())
	defer wait() // if the next line fails, it says why
	o.awaitLog("call replaced")
	o.awaitTurns(1) // to the caller who took over the call
	wait()
	o.awaitLogTimes("call ended", 2)
	if begun := strings.Count(o.logs.String(), "conversation started"); begun != 1 {
		t.Errorf("%d conversations", begun)
	}
}
