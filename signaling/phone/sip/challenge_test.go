package sip_test

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pion/rtp"

	"voxgate/bridge"
	"voxgate/internal/testkit/mediatest"
	"voxgate/media/g711"
	"voxgate/signaling/phone/sip"
)

// challengeResponse is a response with challenges.
type challengeResponse struct {
	status  string
	headers []string
}

func digestChallenge(name, realm, nonce, algorithm, more string) string {
	return fmt.Sprintf(`%s: Digest realm="%s", nonce="%s", algorithm=%s, qop="auth"%s`, name, realm, nonce, algorithm, more)
}

// verifyDigests returns the realms and nonces that a request has digest answers for. It checks each answer.
func verifyDigests(t *testing.T, req string) (realms []string) {
	t.Helper()
	method, _, _ := strings.Cut(req, " ")
	for _, line := range regexp.MustCompile(`(?m)^(?:Proxy-)?Authorization: Digest (.*)\r$`).FindAllStringSubmatch(req, -1) {
		field := func(name string) string {
			m := regexp.MustCompile(`(?:^|[ ,])` + name + `="?([^",]*)"?`).FindStringSubmatch(line[1])
			if m == nil {
				return ""
			}
			return m[1]
		}
		hash := func(text string) string {
			if strings.HasPrefix(field("algorithm"), "SHA-256") {
				sum := sha256.Sum256([]byte(text))
				return hex.EncodeToString(sum[:])
			}
			sum := md5.Sum([]byte(text))
			return hex.EncodeToString(sum[:])
		}
		secret := hash("me:" + field("realm") + ":open sesame")
		if strings.HasSuffix(field("algorithm"), "-sess") {
			secret = hash(secret + ":" + field("nonce") + ":" + field("cnonce"))
		}
		middle := ":"
		if field("qop") != "" {
			middle = ":" + field("nc") + ":" + field("cnonce") + ":" + field("qop") + ":"
		}
		if want := hash(secret + ":" + field("nonce") + middle + hash(method+":"+field("uri"))); field("response") != want {
			t.Errorf("the proof is %s, not %s: %s", field("response"), want, line[0])
		}
		realms = append(realms, field("realm")+" "+field("nonce"))
	}
	slices.Sort(realms)
	return realms
}

// All challenges are answered with the trunk's password: of several realms, together or in turn, stale ones, in all forms, for the INVITE
// and within the call. A wrong password is tried only a few times.
func TestDigestChallenges(t *testing.T) {
	t.Parallel()
	const proxy, server = "Proxy-Authenticate", "WWW-Authenticate"
	for name, c := range map[string]struct {
		chain []challengeResponse
		want  []string // expected digest answers in the end; nil if the call fails
	}{
		"401":         {[]challengeResponse{{"401 No", []string{digestChallenge(server, "a", "1", "MD5", "")}}}, []string{"a 1"}},
		"407":         {[]challengeResponse{{"407 No", []string{digestChallenge(proxy, "a", "1", "SHA-256", "")}}}, []string{"a 1"}},
		"without qop": {[]challengeResponse{{"401 No", []string{server + `: Digest realm="a", nonce="1"`}}}, []string{"a 1"}},
		"407, then 401": {[]challengeResponse{
			{"407 No", []string{digestChallenge(proxy, "p", "1", "MD5", "")}}, {"401 No", []string{digestChallenge(server, "a", "2", "MD5", "")}},
		}, []string{"a 2", "p 1"}},
		"two proxies, then the system": {[]challengeResponse{
			{"407 No", []string{digestChallenge(proxy, "p", "1", "MD5", "")}},
			{"407 No", []string{digestChallenge(proxy, "q", "2", "MD5", "")}},
			{"401 No", []string{digestChallenge(server, "a", "3", "MD5", "")}},
		}, []string{"a 3", "p 1", "q 2"}},
		"stale": {[]challengeResponse{
			{"401 No", []string{digestChallenge(server, "a", "1", "MD5", "")}},
			{"401 No", []string{digestChallenge(server, "a", "2", "MD5", ", stale=TRUE")}},
		}, []string{"a 2"}},
		"stale at a proxy, then the system": {[]challengeResponse{
			{"407 No", []string{digestChallenge(proxy, "p", "1", "MD5", "")}},
			{"407 No", []string{digestChallenge(proxy, "p", "2", "MD5", `, stale="true"`)}},
			{"401 No", []string{digestChallenge(server, "a", "3", "MD5", "")}},
		}, []string{"a 3", "p 2"}},
		"two realms at once": {[]challengeResponse{
			{"407 No", []string{digestChallenge(proxy, "p", "1", "MD5", ""), digestChallenge(proxy, "q", "2", "MD5", "")}},
		}, []string{"p 1", "q 2"}},
		"both kinds at once": {[]challengeResponse{
			{"401 No", []string{digestChallenge(proxy, "p", "1", "MD5", ""), digestChallenge(server, "a", "2", "MD5", "")}},
		}, []string{"a 2", "p 1"}},
		"two algorithms in one line": {[]challengeResponse{{"401 No", []string{
			digestChallenge(server, "a", "1", "SHA-256", "") + `, Digest realm="a", nonce="2", algorithm=MD5, qop="auth"`,
		}}}, []string{"a 1"}},
		"an unknown algorithm first": {[]challengeResponse{{"401 No", []string{
			digestChallenge(server, "a", "1", "AKAv1-MD5", ""), digestChallenge(server, "a", "2", "MD5", ""),
		}}}, []string{"a 2"}},
		"another scheme first, in one line": {[]challengeResponse{{"401 No", []string{
			server + `: Bearer realm="b, c", Basic realm="d", digest REALM=a,  nonce="1",qop="auth-int, auth"`,
		}}}, []string{"a 1"}},
		"MD5-sess": {[]challengeResponse{{"401 No", []string{digestChallenge(server, "a", "1", "MD5-sess", "")}}}, []string{"a 1"}},
		"SHA-256-sess": {
			[]challengeResponse{{"407 No", []string{digestChallenge(proxy, "a", "1", "SHA-256-sess", `, opaque="x"`)}}}, []string{"a 1"},
		},
		"a wrong password": {[]challengeResponse{
			{"401 No", []string{digestChallenge(server, "a", "1", "MD5", "")}}, {"401 No", []string{digestChallenge(server, "a", "2", "MD5", "")}},
		}, nil},
		"stale for ever": {slices.Repeat([]challengeResponse{
			{"401 No", []string{digestChallenge(server, "a", "{n}", "MD5", ", stale=true")}},
		}, 5), nil},
		"nothing that is known": {[]challengeResponse{{"401 No", []string{server + `: Basic realm="a"`}}}, nil},
	} {
		for _, method := range []string{"INVITE", "BYE"} {
			t.Run(method+" "+name, func(t *testing.T) {
				t.Parallel()
				states := make(chan sip.CallStatus, 64)
				h, o := startCarrier(t, nil, map[string]any{"username": "me", "password": "open sesame"}, func(s sip.CallStatus) { states <- s })
				o.dialNumber()
				p := &rawPhone{t: t, conn: h.signals, to: h.to}
				req := h.awaitRequest("INVITE")
				if method == "BYE" {
					p.respond(req, "200 OK", body, "Content-Type: application/sdp", "Contact: <sip:x@"+h.signals.LocalAddr().String()+">")
					h.awaitRequest("ACK")
					h.sendInDialog(req, "a", "OPTIONS", 1, "", "")
					h.awaitResponse("200")
					o.server.HangUp()
					req = h.awaitRequest("BYE")
				}
				for i, one := range c.chain {
					var headers []string
					for _, header := range one.headers {
						headers = append(headers, strings.ReplaceAll(header, "{n}", fmt.Sprint(i)))
					}
					p.respond(req, one.status, "", headers...)
					if method == "BYE" && c.want == nil && i == len(c.chain)-1 {
						break
					}
					again := p.awaitMessage(patience, func(text string) bool {
						return strings.HasPrefix(text, method+" ") && !strings.Contains(text, cseqOf(req)) || strings.HasPrefix(text, "ACK ") &&
							c.want == nil && i == len(c.chain)-1
					})
					if strings.HasPrefix(again, "ACK ") {
						break
					}
					req = again
				}
				if c.want == nil {
					for {
						select {
						case s := <-states:
							if s.EndedAt != nil {
								return
							}
						case <-time.After(patience):
							t.Fatal("the call goes on")
						}
					}
				}
				if got := verifyDigests(t, req); !slices.Equal(got, c.want) {
					t.Errorf("proved to %q, not %q, in\n%s", got, c.want, req)
				}
				p.respond(req, "486 Busy Here", "")
			})
		}
	}
}

func cseqOf(message string) string {
	_, rest, _ := strings.Cut(message, "CSeq: ")
	line, _, _ := strings.Cut(rest, "\r\n")
	return "CSeq: " + line
}

// The answer to our INVITE may be in a provisional response, and need not be repeated. It must be of the phone that takes the call.
func TestProvisionalSDPAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		early  []string // the tags of 183s with SDP
		tag    string   // of the 200
		body   string
		stands bool
	}{
		"in the 183 alone":            {[]string{"a"}, "a", "", true},
		"in both":                     {[]string{"a"}, "a", body, true},
		"in the 200 alone":            {nil, "a", body, true},
		"of the one that takes it":    {[]string{"a", "b"}, "a", "", true},
		"of another one":              {[]string{"b"}, "a", "", false},
		"of another one, but its own": {[]string{"b"}, "a", body, true},
		"nowhere":                     {nil, "a", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, o := startCarrier(t, nil, nil)
			rings := o.dialNumber()
			p := &rawPhone{t: t, conn: h.signals, to: h.to}
			invite := h.awaitRequest("INVITE")
			const kind = "Content-Type: application/sdp"
			contact := "Contact: <sip:x@" + h.signals.LocalAddr().String() + ">"
			for i, tag := range c.early {
				p.tag = tag
				p.respond(invite, "183 Session Progress", body, kind, contact)
				if i == 0 { // what follows must not overtake it
					if err := <-rings; err != nil {
						t.Fatal(err)
					}
				}
			}
			p.tag = c.tag
			headers := []string{contact}
			if c.body != "" {
				headers = append(headers, kind)
			}
			p.respond(invite, "200 OK", c.body, headers...)
			h.awaitRequest("ACK")
			if !c.stands {
				p.respond(h.awaitRequest("BYE"), "200 OK", "")
				return
			}
			o.awaitLog("msg=sound ")
			done := o.server.RefreshSession()
			update := h.awaitRequest("UPDATE")
			p.respond(update, "405 Method Not Allowed", "")
			p.respond(h.awaitRequest("INVITE"), "200 OK", "", contact) // without a description: nothing has changed
			h.awaitRequest("ACK")
			<-done
			h.sendInDialog(invite, c.tag, "OPTIONS", 1, "", "")
			h.awaitResponse("200")
			h.sendInDialog(invite, c.tag, "BYE", 2, "", "")
			h.awaitResponse("200")
		})
	}
}

// The answer to our offer may have its own payload types and key tags, and list several codecs. The peer may send either side's payload
// types, and switch between codecs without signalling (RFC 3264, section 6.1).
func TestAnswerPayloadTypes(t *testing.T) {
	t.Parallel()
	const laws = "a=rtpmap:0 PCMU/8000\r\na=rtpmap:8 PCMA/8000\r\n"
	keyNumber := func(n int) string { return fmt.Sprintf("a=rtpmap:%d telephone-event/8000\r\n", n) }
	for name, c := range map[string]struct {
		formats, maps string
		sound, keys   uint8 // payload types that the other side sends
		ours          uint8 // payload type that it expects
	}{
		"as offered":                      {"0 101", laws + keyNumber(101), 0, 101, 0},
		"keys renumbered, by the answer":  {"0 96", laws + keyNumber(96), 0, 96, 0},
		"keys renumbered, by the offer":   {"0 127", laws + keyNumber(127), 0, 101, 0},
		"keys not in the answer":          {"0", laws, 0, 101, 0},
		"sound renumbered, by the answer": {"110 101", "a=rtpmap:110 PCMU/8000\r\n" + keyNumber(101), 110, 101, 110},
		"sound renumbered, by the offer":  {"110 101", "a=rtpmap:110 PCMU/8000\r\n" + keyNumber(101), 0, 101, 110},
		"both swapped, by the offer":      {"101 96", "a=rtpmap:101 PCMU/8000\r\n" + keyNumber(96), 0, 96, 101},
		"several codecs, the first":       {"8 0 101", laws + keyNumber(101), 8, 101, 8},
		"several codecs, the last":        {"8 0 101", laws + keyNumber(101), 0, 101, 0},
		"several codecs, not the best":    {"96 9 8 0 101", "a=rtpmap:96 opus/48000/2\r\n" + laws + keyNumber(101), 8, 101, 8},
		"several codecs, renumbered, the last": {
			"96 110 101", "a=rtpmap:96 opus/48000/2\r\na=rtpmap:110 PCMU/8000\r\n" + keyNumber(101), 0, 101, 110,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, o := startCarrier(t, nil, nil)
			h.openAudio("0")
			h.sdp = strings.Replace(h.audioSDP(c.formats), "a=rtpmap:96 opus/48000/2\r\na=rtpmap:101 telephone-event/8000\r\n", c.maps, 1)
			o.dialNumber()
			invite := h.awaitRequest("INVITE")
			h.respond(invite, "200 OK", "a")
			h.awaitRequest("ACK")
			h.setAudioAddr(invite)
			events := o.watchEvents()
			speech := mediatest.SynthesizeSpeech(time.Second, 8000)
			law := g711.MuLaw
			if c.sound == 8 {
				law = g711.ALaw
			}
			stop := h.sendPackets(c.sound, 8000, func(i int) []byte {
				frame := make([]int16, 160)
				if i > 25 { // after a codec was followed
					copy(frame, speech[min(160*(i-25), len(speech)):])
				}
				return law.AppendEncoded(nil, frame)
			})
			awaitEvent(t, events, func(e bridge.UserText) bool { return e.Final })
			stop()
			h.awaitPacket(func(p *rtp.Packet) bool { return p.PayloadType == c.ours })
			stop = h.sendPackets(c.keys, 0, func(int) []byte { return []byte{7, 10, 0, 160} })
			defer stop()
			awaitEvent(t, events, func(e bridge.UserText) bool { return strings.HasSuffix(e.Text, "keys of the telephone: 7") })
		})
	}
}
