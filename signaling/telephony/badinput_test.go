package telephony_test

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge"
)

// Messages that cannot be read are logged, and the call goes on.
func TestMalformedMessages(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string][]string{
		"twilio": {
			``, `{`, `[]`, `null`, `"media"`, `{}`, `{"event":5}`, `{"event":{}}`, `{"event":"media"}{"event":"media"}`, `{"event":"media"}`,
			`{"event":"media","media":"x"}`, `{"event":"media","media":{"payload":"%%%"}}`, `{"event":"media","media":{"payload":5,"chunk":"x"}}`,
			`{"event":"media","media":{"chunk":"99999999999999999999","payload":""}}`, `{"event":"media","media":{"chunk":"-5","payload":""}}`,
			`{"event":"media","media":{"chunk":"9223372036854775807","payload":"AAAA"}}`, `{"event":"media","media":{"chunk":"1","payload":"AAAA"}}`,
			`{"event":"dtmf"}`, `{"event":"dtmf","dtmf":{"digit":"12"}}`, `{"event":"dtmf","dtmf":{"digit":"x"}}`,
			`{"event":"mark","mark":{"name":"99999999999999999999"}}`,
			`{"event":"mark"}`, `{"event":"start"}`, `{"event":"unheard of"}`, strings.Repeat("x", 200<<10), "\xff\xfe",
			strings.Repeat(`{"a":`, 1000),
		},
		"asterisk in words": {
			``, ` `, `DTMF_END`, `DTMF_END digit:`, `DTMF_END digit:12`, `MEDIA_START`, `{`, `{"event":"DTMF_END"}`, `STATUS queue_length:x`,
			`:::`, "\x00",
		},
		"vonage": {`{}`, `{"event":"websocket:dtmf","digit":5000}`, `{"event":"websocket:notify","payload":7}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, nil)
			s := styles()[name]
			p := g.dialPhone(s, "+100")
			g.session()
			for _, text := range bad {
				p.text(text)
			}
			if s.media != nil { // where sound is text
				p.write(websocket.BinaryMessage, []byte{1, 2, 3})
			} else {
				p.write(websocket.BinaryMessage, []byte{1})
				p.write(websocket.BinaryMessage, nil)
			}
			p.say(sentence(440, time.Second, p.rate))
			p.hears(440, 900*time.Millisecond)
			if log := g.logs.String(); !strings.Contains(log, "a message that cannot be read") {
				t.Errorf("the log is %s", log)
			}
		})
	}
}

// A call whose beginning cannot be read begins no conversation.
func TestMalformedBeginnings(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	for name, first := range map[string]string{
		"twilio":            `{"event":"start","start":{"streamSid":"MZ1","mediaFormat":{"encoding":"audio/x-opus","sampleRate":8000}}}`,
		"plivo":             `{"event":"start","start":{"mediaFormat":{"encoding":"audio/x-mulaw","sampleRate":16000}}}`,
		"telnyx":            `{"event":"media","media":{"payload":"AAAA"}}`,
		"exotel":            `{"event":"start","start":{"media_format":{"encoding":"audio/x-raw","sample_rate":"-1"}}}`,
		"asterisk in words": "MEDIA_START connection_id:1 format:opus optimal_frame_size:1",
		"jambonz":           `{"sampleRate":64000}`,
		"vonage":            `{"event":"websocket:connected","content-type":"audio/l16;rate=x"}`,
	} {
		s := styles()[name]
		s.begin = func(string, string) []string { return []string{first} }
		g.t = t
		g.dialPhone(s, "+100").closed()
	}
	s := styles()["asterisk in words"]
	s.begin = func(string, string) []string { return nil }
	p := g.dialPhone(s, "+100")
	p.write(websocket.BinaryMessage, make([]byte, 160)) // sound before anything
	p.closed()
	for _, bytes := range [][]byte{
		{},
		{1},
		{0x01, 0, 15},
		append([]byte{0x01, 0, 15}, make([]byte, 15)...),
		append([]byte{0x10, 0, 16}, make([]byte, 16)...),
		{0x01, 0xff, 0xff},
		[]byte("GET / HTTP/1.1\r\n\r\n"),
	} {
		a := g.dialAsterisk("", 0x10, 8000) // which says 0x01 of no length
		_, _ = a.conn.Write(bytes)
		a.closed()
	}
	if n := len(g.host.Sessions()); n != 0 {
		t.Errorf("%d conversations have begun", n)
	}
	g.logged("rule=start", 15)
}

// Sound in a call over AudioSocket that has another kind, or none that is known, is left out.
func TestMalformedAudioSocket(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	_, uuid := g.announce(g.key, `{"to":"+100"}`)
	a := g.dialAsterisk(uuid, 0x10, 8000)
	a.say(make([]int16, 160))
	g.session()
	for _, m := range []struct {
		kind    byte
		payload []byte
	}{
		{0x12, make([]byte, 640)},
		{0x02, nil},
		{0x7f, make([]byte, 65535)},
		{0x03, nil},
		{0x03, []byte("12")},
		{0xff, []byte{1}},
		{0xff, nil},
		{0x10, []byte{1}},
		{0x10, nil},
		{0x01, make([]byte, 16)},
	} {
		a.send(m.kind, m.payload)
	}
	a.say(sentence(440, time.Second, 8000))
	a.hears(440, 900*time.Millisecond)
}

// Asterisk is sent nothing while it can take nothing, and then all.
func TestAsteriskIsFull(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	p := g.dialPhone(styles()["asterisk in words"], "+100")
	_, ear := g.session()
	p.text("MEDIA_XOFF")
	p.say(sentence(440, time.Second, p.rate))
	ear.hears(t, "end of the turn", func(b bridge.Body) bool { _, ok := b.(bridge.TurnComplete); return ok })
	p.mu.Lock()
	if len(p.texts) > 0 {
		t.Errorf("it was sent %q", p.texts)
	}
	p.mu.Unlock()
	p.text("MEDIA_XON")
	p.hears(440, 900*time.Millisecond)
}

// Telnyx does not promise any order: sound is put in it, and where some is lost there is silence.
func TestSoundOutOfOrder(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	s := styles()["telnyx"]
	p := g.dialPhone(s, "+100")
	g.session()
	pcm := sentence(440, time.Second, p.rate)
	order := []int{}
	for n := range len(pcm) / 160 {
		switch {
		case n%10 == 3:
			order = append(order, n+1)
		case n%10 == 4:
			order = append(order, n-1)
		case n == 25: // lost
		default:
			order = append(order, n, n)[:len(order)+1+n%2] // every second one comes twice
		}
	}
	for _, n := range order {
		if n < len(pcm)/160 {
			p.text(s.media(n+1, base64.StdEncoding.EncodeToString(s.encode(pcm[160*n:160*n+160]))))
		}
	}
	p.hears(440, 900*time.Millisecond)
	p.mu.Lock()
	defer p.mu.Unlock()
	if share := toneShare(loud(p.pcm), p.rate, 440); share < 0.97 {
		t.Errorf("the share of the tone is %.3f", share)
	}
}
