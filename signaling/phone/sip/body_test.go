package sip_test

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
)

// wraps are the ways to send a body of a type, and whether it is understood.
var wraps = []struct {
	name       string
	understood bool
	wrap       func(kind, text string) (body string, headers []string)
}{
	{"alone", true, func(kind, text string) (string, []string) { return text, []string{"Content-Type: " + kind} }},
	{"in capitals, with parameters", true, func(kind, text string) (string, []string) {
		return text, []string{"Content-Type: " + strings.ToUpper(kind) + " ; charset=utf-8"}
	}},
	{"in the short form", true, func(kind, text string) (string, []string) { return text, []string{"c: " + kind} }},
	{"before ISUP", true, multipart("mixed;boundary=b",
		"--b\r\nContent-Type: {kind}\r\nContent-Disposition: session;handling=required\r\n\r\n{text}\r\n"+isup+"--b--\r\n")},
	{"behind ISUP", true, multipart(`mixed; boundary="b"`, isup+"--b\r\nContent-Type: {kind}\r\n\r\n{text}\r\n--b--\r\n")},
	{"behind a preamble, before an epilogue", true, multipart("mixed;boundary=b",
		"Hello\r\n--b\r\nContent-Type: {kind}\r\n\r\n{text}\r\n--b--\r\nBye")},
	{"with a place", true, multipart("related; type=x; boundary=b",
		"--b\r\ncontent-type: application/pidf+xml\r\nContent-ID: <a@b>\r\n\r\n<presence/>\r\n"+
			"--b\r\nContent-Type: {kind}\r\n\r\n{text}\r\n--b--\r\n")},
	{"nested", true, multipart("mixed;boundary=b",
		"--b\r\nContent-Type: multipart/mixed;boundary=c\r\n\r\n--c\r\nContent-Type: {kind}\r\n\r\n{text}\r\n"+
			"--c--\r\n\r\n"+isup+"--b--\r\n")},
	{"the last alternative", true, multipart("alternative;boundary=b",
		"--b\r\nContent-Type: text/plain\r\nContent-Disposition: render;handling=required\r\n\r\nx\r\n"+
			"--b\r\nContent-Type: {kind}\r\n\r\n{text}\r\n--b--\r\n")},
	{"base64", true, multipart("mixed;boundary=b",
		"--b\r\nContent-Type: {kind}\r\nContent-Transfer-Encoding: base64\r\n\r\n{base64}\r\n--b--\r\n")},
	{"binary", true, multipart("mixed;boundary=b",
		"--b\r\nContent-Type:\r\n {kind}\r\nContent-Transfer-Encoding: binary\r\n\r\n{text}\r\n"+
			"--b\r\nContent-Type: a/b\r\n\r\n\x00\xff--b\r\n--b--\r\n")},
	{"without the last boundary", true, multipart("mixed;boundary=b", "--b\r\nContent-Type: {kind}\r\n\r\n{text}\r\n")},
	{"with lines that end in LF", true, multipart("mixed;boundary=b", "--b\nContent-Type: {kind}\n\n{text}\n--b--\n")},
	{"without a boundary in the header", true, multipart("mixed", "--b\r\nContent-Type: {kind}\r\n\r\n{text}\r\n--b--\r\n")},
	{"packed", false, func(kind, text string) (string, []string) {
		return text, []string{"Content-Type: " + kind, "Content-Encoding: gzip"}
	}},
	{"packed, by the short form", false, func(kind, text string) (string, []string) {
		return text, []string{"Content-Type: " + kind, "e: deflate"}
	}},
	{"as another type", false, func(_, text string) (string, []string) { return text, []string{"Content-Type: text/plain"} }},
	{"with a part that is required and unknown", false, multipart("mixed;boundary=b", "--b\r\nContent-Type: {kind}\r\n\r\n{text}\r\n"+
		"--b\r\nContent-Type: a/b\r\nContent-Disposition: signal; handling=required\r\n\r\nx\r\n--b--\r\n")},
}

const isup = "--b\r\nContent-Type: application/isup;version=itu-t92+\r\n" +
	"Content-Disposition: signal;handling=optional\r\n\r\n\x01\x11\x48\x00\x0a\r\n"

func multipart(kind, form string) func(kind, text string) (string, []string) {
	return func(inner, text string) (string, []string) {
		encoded := base64.StdEncoding.EncodeToString([]byte(text))
		encoded = encoded[:10] + "\r\n" + encoded[10:]
		return strings.NewReplacer("{kind}", inner, "{text}", text, "{base64}", encoded).Replace(form),
			[]string{"Content-Type: Multipart/" + kind}
	}
}

// A body is found by its type, at any position and among other parts. Unsupported required parts get 415.
func TestRequestBodies(t *testing.T) {
	t.Parallel()
	o := startGateway(t, trunkConfig(t, map[string]any{"callsPerCaller": 100, "callsPerSecond": 1000}))
	for _, w := range wraps {
		want := map[bool]int{true: 200, false: 415}[w.understood]
		offer, headers := w.wrap("application/sdp", body)
		p := newRawPhone(t, o, "127.0.0.1")
		status, text := p.placeCall(offer, headers...)
		if status != want || !w.understood && !strings.Contains(text, "\r\nAccept: application/sdp") {
			t.Errorf("INVITE with SDP %s: %s", w.name, text)
		}
		if !w.understood {
			p.send(p.buildRequest("ACK", ""))
			if status, text := p.placeCall(body); status != 200 {
				t.Fatal(text)
			}
		}
		for _, r := range []struct{ method, kind, body, header string }{
			{"INVITE", "application/sdp", body, ""},
			{"UPDATE", "application/sdp", body, ""},
			{"INFO", "application/dtmf-relay", "Signal=5\r\nDuration=160", ""},
			{
				"NOTIFY", "message/sipfrag", "SIP/2.0 100 Trying\r\n",
				"Event: refer",
			},
		} {
			text, headers := w.wrap(r.kind, r.body)
			if r.header != "" {
				headers = append(headers, r.header)
			}
			if status, answer := p.sendRequest(r.method, text, headers...); status != want {
				t.Errorf("%s with a body %s: %s", r.method, w.name, answer)
			}
			if r.method == "INVITE" {
				p.send(p.buildRequest("ACK", ""))
			}
		}
		if status, text := p.sendRequest("BYE", ""); status != 200 {
			t.Errorf("BYE after bodies %s: %s", w.name, text)
		}
	}
}

// The answer to our INVITE may come with other body parts, and with media sections that we have not offered.
func TestAnswerBodies(t *testing.T) {
	t.Parallel()
	h, o := startCarrier(t, nil, nil)
	for i, w := range wraps {
		if !w.understood {
			continue
		}
		o.dialNumber()
		p := &rawPhone{t: t, conn: h.signals, to: h.to}
		invite := h.awaitRequest("INVITE")
		text, headers := w.wrap("application/sdp", body+"m=image 0 udptl t38\r\n")
		p.respond(invite, "200 OK", text, append(headers, fmt.Sprintf("Contact: <sip:a%d@%s>", i, h.signals.LocalAddr()))...)
		h.awaitRequest("ACK")
		h.sendInDialog(invite, "a", "OPTIONS", 1, "", "")
		if answer := h.awaitResponse(""); !strings.HasPrefix(answer, "SIP/2.0 200") {
			t.Errorf("after an answer with SDP %s the call is over: %s", w.name, answer)
			continue
		}
		h.sendInDialog(invite, "a", "BYE", 2, "", "")
		h.awaitResponse("200")
	}
}

// respond answers a request of the gateway. If the request has no tag in To, the answer has the phone's, or "a".
func (p *rawPhone) respond(req, status, body string, headers ...string) {
	p.t.Helper()
	text := "SIP/2.0 " + status + "\r\n"
	for line := range strings.SplitSeq(req, "\r\n") {
		switch name, _, _ := strings.Cut(line, ":"); name {
		case "Via", "From", "Call-ID", "CSeq", "Record-Route":
			text += line + "\r\n"
		case "To":
			if !strings.Contains(line, "tag=") {
				line += ";tag=" + cmp.Or(p.tag, "a")
			}
			text += line + "\r\n"
		}
	}
	for _, h := range headers {
		text += h + "\r\n"
	}
	p.send(text + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body))
}
