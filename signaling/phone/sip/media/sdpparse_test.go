package media

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/pion/sdp/v3"
)

// summary parses a description, and returns the result in one line.
func summary(text string) string {
	d, err := parseSDP([]byte(text))
	if err != nil {
		return "error: " + err.Error()
	}
	return d.summary()
}

func (d *description) summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %v %s %s", d.host, d.remote.Port(), d.profile, d.direction)
	for _, p := range d.payloads {
		fmt.Fprintf(&b, " %d=%s", p.number, p.codec.name)
	}
	for _, e := range d.events {
		fmt.Fprintf(&b, " %d=event/%d", e.number, e.clock)
	}
	if d.comfort != 0 {
		fmt.Fprintf(&b, " %d=CN", d.comfort)
	}
	if len(d.keys) > 0 {
		fmt.Fprintf(&b, " %d keys", len(d.keys))
	}
	fmt.Fprintf(&b, " | %d of %q", d.audio, d.sections)
	return b.String()
}

// Real descriptions of phones, with the expected result.
func TestParseDescriptions(t *testing.T) {
	const head, end = "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\n", `PCMU/8000 | 0 of ["audio 0 RTP/AVP 0"]`
	const audio, plain = "m=audio 4000 RTP/AVP 0\r\n", "192.0.2.1 4000 RTP/AVP sendrecv 0=" + end
	audioWith := func(format, rtpmap string) string {
		return head + "m=audio 4000 RTP/AVP " + format + "\r\na=rtpmap:" + format + " " + rtpmap + "\r\n"
	}
	is := func(format, codec string) string {
		return fmt.Sprintf(`192.0.2.1 4000 RTP/AVP sendrecv %s=%s | 0 of ["audio 0 RTP/AVP %s"]`, format, codec, format)
	}
	none := func(format string) string {
		return fmt.Sprintf(`192.0.2.1 4000 RTP/AVP sendrecv | 0 of ["audio 0 RTP/AVP %s"]`, format)
	}
	const key = "inline:MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkw"
	withKey := func(more string) string {
		return strings.Replace(head+audio, "RTP/AVP", "RTP/SAVP", 1) + "a=crypto:1 AES_CM_128_HMAC_SHA1_80 " + key + more + "\r\n"
	}
	sealed := strings.ReplaceAll(strings.Replace(plain, "PCMU/8000 |", "PCMU/8000 1 keys |", 1), "RTP/AVP", "RTP/SAVP")
	open := strings.ReplaceAll(plain, "RTP/AVP", "RTP/SAVP")
	for text, want := range map[string]string{
		head + audio: plain,
		"v=0\no=- 1 1 IN IP4 192.0.2.1\ns=-\nc=IN IP4 192.0.2.1\nt=0 0\nm=audio 4000 RTP/AVP 0\n": plain,
		"m=audio 4000 RTP/AVP 0\r\nc=IN IP4 192.0.2.1\r\n":                                        plain,
		"m=audio 4000 RTP/AVP 0\r\nc=IN IP4 192.0.2.1":                                            plain,
		"v=0\r\no=My PBX 1 1 IN IP4 192.0.2.1\r\n" + audio:                                        plain, // no c=
		"s=x\r\nt=0 0\r\nc=IN IP4 192.0.2.1\r\na=tool:x\r\nb=AS:84\r\nv=0\r\n" + audio:            plain,
		head + "m=audio 4000/2 RTP/AVP 0\r\n":                                                     plain,
		head + "m=AUDIO 4000 rtp/avp 0 \r\n": strings.NewReplacer("audio 0", "AUDIO 0",
			"RTP/AVP", "rtp/avp").Replace(plain),
		head + "m=audio 4000 RTP/AVP 0\r\n\r\nx\r\ny y\r\n=\r\nk=clear:x\r\n": plain,
		head + audio + "c=IN IP4 192.0.2.9/127/3\r\n": strings.Replace(plain, "192.0.2.1 ",
			"192.0.2.9 ", 1),
		head + audio + "c=IN IP6 [2001:db8::1]\r\n": strings.Replace(plain, "192.0.2.1 ",
			"2001:db8::1 ", 1),
		head + audio + "c=IN IP6 fe80::1%eth0\r\n": strings.Replace(plain, "192.0.2.1 ",
			"fe80::1 ", 1),
		head + audio + "c=IN IP4 media.example.com\r\n": strings.Replace(plain, "192.0.2.1 ",
			"media.example.com ", 1),
		head + audio + "a=inactive\r\n": strings.Replace(plain, "sendrecv", "inactive",
			1),
		strings.Replace(head, "t=0", "a=sendonly\r\nt=0", 1) + audio: strings.Replace(plain, "sendrecv", "sendonly",
			1),
		strings.Replace(head, "t=0", "a=sendonly\r\nt=0", 1) + audio + "a=sendrecv\r\n": plain,
		head + audio + "c=IN IP4 0.0.0.0\r\n": strings.Replace(strings.Replace(plain,
			"192.0.2.1 ", "0.0.0.0 ", 1), "sendrecv", "sendonly", 1),

		audioWith("96", "opus/48000/2"): is("96", "opus/48000/2"), audioWith("96", "OPUS/48000"): is("96", "opus/48000/2"),
		audioWith("96", "opus/48000/1"): is("96", "opus/48000/2"), audioWith("96", " opus/48000/2 "): is("96", "opus/48000/2"),
		audioWith("9", "G722/8000"): is("9", "G722/8000"), audioWith("9", "G722/16000"): is("9", "G722/8000"),
		audioWith("9", "g722/16000/1"): is("9", "G722/8000"), audioWith("0", "PCMU/8000/1"): is("0", "PCMU/8000"), audioWith("8",
			"PCMA"): is("8", "PCMA/8000"),
		audioWith("8", "PCMA/16000"): none("8"), audioWith("8", "PCMA/8000/2"): none("8"), audioWith("96", "opus/8000"): none("96"),
		audioWith("101", "telephone-event/8000/1"): strings.Replace(none("101"), " |", " 101=event/8000 |", 1),
		audioWith("13", "CN/8000"):                 strings.Replace(none("13"), " |", " 13=CN |", 1),

		withKey(""): sealed, withKey("|2^31"): sealed, withKey(" WSH=64"): sealed, withKey(" KDR=0"): sealed, withKey(" -X=1"): sealed,
		withKey(" UNENCRYPTED_SRTP"): open, withKey(" UNAUTHENTICATED_SRTP"): open, withKey(" unencrypted_srtcp WSH=64"): open,
		withKey(" KDR=4"): open,
		withKey(" X"):     open,

		"":                               "error: " + errNoAudio.Error(),
		"<html>":                         "error: " + errNoAudio.Error(),
		head:                             "error: " + errNoAudio.Error(),
		head + "m=audio 0 RTP/AVP 0\r\n": "error: " + errNoAudio.Error(),
		head + "m=audio x RTP/AVP 0\r\n": "error: " + errNoAudio.Error(),
		head + "m=audio 70000 RTP/AVP 0": "error: " + errNoAudio.Error(),
		head + "m=image 9 udptl t38\r\n": "error: " + errNoAudio.Error(),
	} {
		if got := summary(text); got != want {
			t.Errorf("%s\nis read as %s\nnot %s", text, got, want)
		}
	}
}

// oddSections are m= lines with unsupported media, transports and formats, and the m= values that refuse them.
var oddSections = map[string]string{
	"m=image 9996 udptl t38": "image 0 udptl t38", "m=image 0 UDPTL t38": "image 0 UDPTL t38", "m=application 0 * *": "application 0 * *",
	"m=application 0 *": "application 0 * 0", "m=application 9994 TCP/BFCP *": "application 0 TCP/BFCP *",
	"m=message 9992 TCP/MSRP *": "message 0 TCP/MSRP *",
	"m=audio 9990 RTP/XYZ 0":    "audio 0 RTP/XYZ 0", "m=hologram 9988 RTP/AVP 99": "hologram 0 RTP/AVP 99",
	"m=text 9986 RTP/AVP 98":                           "text 0 RTP/AVP 98",
	"m=video 5000 RTP/SAVPF 96 97":                     "video 0 RTP/SAVPF 96 97",
	"m=application 9 UDP/DTLS/SCTP webrtc-datachannel": "application 0 UDP/DTLS/SCTP webrtc-datachannel",
	"m=audio 9 DTLS/UDP/TLS 0":                         "audio 0 DTLS/UDP/TLS 0", "m=x": "x 0 RTP/AVP 0", "m=": "audio 0 RTP/AVP 0",
	"m=video 99999 RTP/AVP 31": "video 0 RTP/AVP 31",
	"m=audio 0 RTP/AVP 0":      "audio 0 RTP/AVP 0", "m=control 10000 H323 mc": "control 0 H323 mc", "m=data 9 TCP 1": "data 0 TCP 1",
}

// An unsupported section is refused alone, at any position, and a supported one is chosen among several.
func TestUnsupportedSections(t *testing.T) {
	const head, audio = "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\n", "m=audio 4000 RTP/AVP 0\r\n"
	check := func(text string, at int, rule string, lines ...string) {
		t.Helper()
		d, err := parseSDP([]byte(text))
		if err != nil {
			t.Errorf("%v in\n%s", err, text)
			return
		}
		d, agreed, err := d.negotiateSection(rule, nil)
		if err != nil || d.audio != at {
			t.Errorf("%v, section %v, in\n%s", err, d, text)
			return
		}
		answer := string(d.buildAnswer(local{address: netip.MustParseAddr("192.0.2.9"), port: 4002}, agreed))
		var got []string
		for line := range strings.Lines(answer) {
			if m, ok := strings.CutPrefix(strings.TrimSpace(line), "m="); ok {
				got = append(got, m)
			}
		}
		if !slices.Equal(got, lines) {
			t.Errorf("answered %q, not %q, for\n%s", got, lines, text)
		}
	}
	for odd, refused := range oddSections {
		check(head+audio+odd+"\r\na=x\r\nc=IN IP4 x\r\n", 0, "", "audio 4002 RTP/AVP 0", refused)
		check(head+odd+"\r\na=sendonly\r\n"+audio, 1, "", refused, "audio 4002 RTP/AVP 0")
		check(head+odd+"\r\n"+audio+odd, 1, "", refused, "audio 4002 RTP/AVP 0", refused)
	}
	const sealed = "m=audio 4000 RTP/SAVP 0\r\na=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkw\r\n"
	check(head+sealed+audio, 0, "", "audio 4002 RTP/SAVP 0", "audio 0 RTP/AVP 0")
	check(head+sealed+audio, 1, srtpOff, "audio 0 RTP/SAVP 0", "audio 4002 RTP/AVP 0")
	check(head+audio+sealed, 1, srtpRequired, "audio 0 RTP/AVP 0", "audio 4002 RTP/SAVP 0")
	check(head+"m=audio 4000 RTP/AVP 18\r\n"+audio, 1, "", "audio 0 RTP/AVP 18", "audio 4002 RTP/AVP 0")
}

// shapes are descriptions of known clients. The test reorders and omits their lines.
var shapes = map[string]string{
	"a telephone": "v=0\no=- 3784 1 IN IP4 192.0.2.1\ns=pjmedia\nb=AS:84\nt=0 0\na=X-nat:0\nm=audio 4000 RTP/AVP 96 9 8 0 101\n" +
		"c=IN IP4 192.0.2.1\n" +
		"b=TIAS:64000\na=rtcp:4001 IN IP4 192.0.2.1\na=sendrecv\na=rtpmap:96 opus/48000/2\na=fmtp:96 useinbandfec=1\na=rtpmap:9 G722/8000\n" +
		"a=rtpmap:8 PCMA/8000\na=rtpmap:0 PCMU/8000\na=rtpmap:101 telephone-event/8000\na=fmtp:101 0-16\na=ssrc:1 cname:x",
	"a PBX": "v=0\no=- 1 2 IN IP4 192.0.2.1\ns=Asterisk\nc=IN IP4 192.0.2.1\nt=0 0\nm=audio 10002 RTP/AVP 0 8 3 101\na=rtpmap:0 PCMU/8000\n" +
		"a=rtpmap:8 PCMA/8000\na=rtpmap:3 GSM/8000\na=rtpmap:101 telephone-event/8000\na=ptime:20\na=maxptime:150\na=sendrecv\n" +
		"m=video 9 RTP/AVP 99\na=rtpmap:99 H264/90000",
	"with SRTP": "v=0\no=root 5 5 IN IP4 192.0.2.1\ns=call\nc=IN IP4 192.0.2.1\nt=0 0\nm=audio 5000 RTP/SAVP 9 101\na=rtpmap:9 G722/8000\n" +
		"a=rtpmap:101 telephone-event/8000\na=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkw|2^31\na=sendonly",
	"with fax": "v=0\no=x 1 1 IN IP4 192.0.2.1\ns=-\nc=IN IP4 192.0.2.1\nt=0 0\nm=audio 4000 RTP/AVP 8\na=ptime:20\n" +
		"m=application 5000 UDP/BFCP *\na=x",
	"of IPv6": "v=0\no=- 1 1 IN IP6 2001:db8::1\ns=-\ne=a@b\np=+1\nu=http://x\ni=x\nc=IN IP6 2001:db8::1\nt=1 2\nr=7d 1h 0 25h\nz=0 0\n" +
		"a=recvonly\nm=audio 4000 RTP/AVP 0 13",
}

// Line order and omissions do not matter: thousands of variants give the same result as their template, and as pion/sdp where that can
// parse them.
func TestReorderedDescriptions(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for name, shape := range shapes {
		want := summary(strings.ReplaceAll(shape, "\n", "\r\n"))
		if strings.HasPrefix(want, "error") {
			t.Errorf("%s: %s", name, want)
		}
		for range 700 {
			lines := strings.Split(shape, "\n")
			first := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "m=") })
			head, sections := slices.Clone(lines[:first]), lines[first:]
			random.Shuffle(len(head), func(i, j int) { head[i], head[j] = head[j], head[i] })
			head = slices.DeleteFunc(head, func(l string) bool { // c= lines and attributes are kept
				return !strings.HasPrefix(l, "c=") && !strings.HasPrefix(l, "a=") && random.IntN(3) == 0
			})
			var rest []string
			for begin := 0; begin < len(sections); {
				end := begin + 1
				for end < len(sections) && !strings.HasPrefix(sections[end], "m=") {
					end++
				}
				section := slices.Clone(sections[begin+1 : end])
				random.Shuffle(len(section), func(i, j int) { section[i], section[j] = section[j], section[i] })
				rest, begin = append(append(rest, sections[begin]), section...), end
			}
			lineEnd := []string{"\r\n", "\n", " \r\n", "\r\n\r\n"}[random.IntN(4)]
			text := strings.Join(append(head, rest...), lineEnd) + []string{"", lineEnd}[random.IntN(2)]
			if got := summary(text); got != want {
				t.Fatalf("%s\nis read as %s\nnot %s", text, got, want)
			}
			var theirs sdp.SessionDescription
			if theirs.UnmarshalString(text) == nil {
				if m := theirs.MediaDescriptions; len(m) != strings.Count(shape, "\nm=") || m[0].MediaName.Port.Value == 0 {
					t.Fatalf("pion/sdp reads it otherwise:\n%s", text)
				}
			}
		}
	}
}
