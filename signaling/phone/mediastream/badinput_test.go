package mediastream_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge"
)

// Malformed messages are logged, and the call continues.
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
			g := startGateway(t, nil)
			s := wireFormats()[name]
			p := g.dialProvider(s, "+100")
			g.awaitSession()
			for _, text := range bad {
				p.sendText(text)
			}
			if s.media != nil { // for formats with sound in text messages
				p.writeMessage(websocket.BinaryMessage, []byte{1, 2, 3})
			} else {
				p.writeMessage(websocket.BinaryMessage, []byte{1})
				p.writeMessage(websocket.BinaryMessage, nil)
			}
			p.sendSound(makeSentence(440, time.Second, p.rate))
			p.awaitTone(440, 900*time.Millisecond)
			if log := g.logs.String(); !strings.Contains(log, "invalid message from the provider") {
				t.Errorf("the log is %s", log)
			}
		})
	}
}

// A call with a malformed start message begins no conversation.
func TestMalformedStartMessages(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	for name, first := range map[string]string{
		"twilio":            `{"event":"start","start":{"streamSid":"MZ1","mediaFormat":{"encoding":"audio/x-opus","sampleRate":8000}}}`,
		"plivo":             `{"event":"start","start":{"mediaFormat":{"encoding":"audio/x-mulaw","sampleRate":16000}}}`,
		"exotel":            `{"event":"start","start":{"media_format":{"encoding":"audio/x-raw","sample_rate":"-1"}}}`,
		"asterisk in words": "MEDIA_START connection_id:1 format:opus optimal_frame_size:1",
		"jambonz":           `{"sampleRate":64000}`,
		"vonage":            `{"event":"websocket:connected","content-type":"audio/l16;rate=x"}`,
	} {
		s := wireFormats()[name]
		s.begin = func(string, string) []string { return []string{first} }
		g.t = t
		g.dialProvider(s, "+100").awaitClose()
	}
	if n := len(g.host.Sessions()); n != 0 {
		t.Errorf("%d conversations have begun", n)
	}
	g.awaitLog("rule=start", 6)
}

// Before the start message a provider may send sound, as a loaded one does, and unknown messages. They are skipped, and the call is
// accepted.
func TestMessagesBeforeTheStart(t *testing.T) {
	t.Parallel()
	for name, s := range wireFormats() {
		announced := s.provider != "bandwidth" && s.provider != "jambonz" // the start message of these has no event
		for kind, send := range map[string]func(p *providerCall){
			"a message with sound": func(p *providerCall) { p.sendSound(make([]int16, p.rate/50)) },
			"a second of sound":    func(p *providerCall) { p.sendSound(make([]int16, p.rate)) },
			"an unknown event":     func(p *providerCall) { p.sendText(`{"event":"surprise","type":"surprise","eventType":"surprise"}`) },
			"connected":            func(p *providerCall) { p.sendText(`{"event":"connected","protocol":"Call","version":"1.0.0"}`) },
			"an error":             func(p *providerCall) { p.sendText(`{"event":"error","type":"error","payload":{"code":1}}`) },
			"an empty text":        func(p *providerCall) { p.sendText("") },
			"an empty binary":      func(p *providerCall) { p.writeMessage(websocket.BinaryMessage, nil) },
			"no JSON":              func(p *providerCall) { p.sendText("{") },
			"a list":               func(p *providerCall) { p.sendText("[]") },
			"a word":               func(p *providerCall) { p.sendText("HELLO there:1") },
		} {
			if !announced && kind != "an unknown event" && kind != "connected" && kind != "an error" && kind != "no JSON" && kind != "a list" {
				continue // the first message without an event begins the call
			}
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				g := startGateway(t, nil)
				s := s
				s.early = send
				g.dialProvider(s, "+100")
				if session, _ := g.awaitSession(); session == nil {
					t.Error("no conversation has begun")
				}
			})
		}
	}
}

// Genesys tests the connection without a call: it gets "opened" and "closed", whatever numbers the agents have, and no conversation begins.
// After "closed" the protocol permits no further messages, in calls either.
func TestConnectionProbe(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		call, to string
		sessions int
	}{
		"a probe": {"00000000-0000-0000-0000-000000000000", "", 0},
		"a call":  {"4b6d45f7-f43c-41c9-9c4c-4c1b1c1c1c1c", "+100", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := startGateway(t, nil)
			s := wireFormats()["genesys"]
			begin := s.begin
			s.begin = func(string, string) []string {
				return []string{strings.Replace(begin(test.call, test.to)[0], "+4917012345", "", 1-test.sessions)}
			}
			p := g.dialProvider(s, test.to)
			p.awaitState("opened", func() bool { return len(p.texts) > 0 && strings.Contains(p.texts[0], `"type":"opened"`) })
			if test.sessions > 0 {
				g.awaitSession()
			}
			p.sendText(`{"version":"2","id":"S1","type":"ping","seq":2,"serverseq":1,"position":"PT1S","parameters":{"rtt":"PT0.1S"}}`)
			p.sendText(`{"version":"2","id":"S1","type":"close","seq":3,"serverseq":1,"position":"PT1S","parameters":{"reason":"end"}}`)
			var types []string
			for _, text := range p.awaitClose() {
				if _, kind, ok := strings.Cut(text, `"type":"`); ok {
					kind, _, _ = strings.Cut(kind, `"`)
					types = append(types, kind)
				}
			}
			if n := len(types); n < 3 || types[0] != "opened" || types[n-1] != "closed" || !slices.Contains(types, "pong") {
				t.Errorf("it got %q", types)
			}
			if n := len(g.host.Sessions()); test.sessions == 0 && n != 0 {
				t.Errorf("%d conversations", n)
			}
		})
	}
}

// Providers that send international numbers without "+" reach an agent whose number has it, and vice versa. The caller's number becomes
// international, too. Short and national numbers are unchanged.
func TestNumbersWithoutPlus(t *testing.T) {
	t.Parallel()
	g := startGateway(t, func(config map[string]any) {
		config["agents"] = json.RawMessage(`[{"numbers":["+4930123456"],"prompt":"Hi."},{"numbers":["4940*"],"prompt":"Hi."}]`)
		config["callsPerSecond"] = 100
	})
	for to, taken := range map[string]bool{
		"+4930123456": true, "4930123456": true, "+4940777": true, "4940777": true, "49301234567": false, "30123456": false, "500": false,
	} {
		for _, provider := range []string{"plivo", "twilio", "telnyx", "signalwire"} {
			form := incomingForm(provider, g.nextCallID(), to)
			status, text := g.postForm(provider, "/telephony/"+provider+"/answer", form, nil)
			if status != 200 || strings.Contains(text, "tream") != taken {
				t.Errorf("%s, %s: %d %s", provider, to, status, text)
			}
		}
	}
}

// While Asterisk has paused the voice nothing is sent, and after that all of it.
func TestVoiceWaitsWhileAsteriskPauses(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	p := g.dialProvider(wireFormats()["asterisk in words"], "+100")
	_, ear := g.awaitSession()
	p.sendText("MEDIA_XOFF")
	p.sendSound(makeSentence(440, time.Second, p.rate))
	ear.awaitEvent(t, "end of the turn", func(b bridge.EventBody) bool { _, ok := b.(bridge.TurnComplete); return ok })
	p.Lock()
	if len(p.texts) > 0 {
		t.Errorf("it was sent %q", p.texts)
	}
	p.Unlock()
	p.sendText("MEDIA_XON")
	p.awaitTone(440, 900*time.Millisecond)
}

// Telnyx does not guarantee the order of messages: sound is reordered, and lost sound is replaced by silence.
func TestSoundOutOfOrder(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	s := wireFormats()["telnyx"]
	p := g.dialProvider(s, "+100")
	g.awaitSession()
	pcm := makeSentence(440, time.Second, p.rate)
	order := []int{}
	for n := range len(pcm) / 160 {
		switch {
		case n%10 == 3:
			order = append(order, n+1)
		case n%10 == 4:
			order = append(order, n-1)
		case n == 25: // lost
		default:
			order = append(order, n, n)[:len(order)+1+n%2] // every second one is duplicated
		}
	}
	for _, n := range order {
		if n < len(pcm)/160 {
			p.sendText(s.media(n+1, base64.StdEncoding.EncodeToString(s.encodeSound(pcm[160*n:160*n+160]))))
		}
	}
	p.awaitTone(440, 900*time.Millisecond)
	p.Lock()
	defer p.Unlock()
	if share := toneShare(trimSilence(p.pcm), p.rate, 440); share < 0.97 {
		t.Errorf("the share of the tone is %.3f", share)
	}
}

// Messages with sound are accepted with any counter, and with any other fields.
func TestSoundMessageCounters(t *testing.T) {
	t.Parallel()
	counted := func(chunk func(n int) any) func(n int, payload string) map[string]any {
		return func(n int, payload string) map[string]any {
			return map[string]any{"payload": payload, "chunk": chunk(n)}
		}
	}
	beside := func(name string, value any) func(n int, payload string) map[string]any {
		return func(n int, payload string) map[string]any {
			return map[string]any{"payload": payload, "chunk": n, name: value}
		}
	}
	encoded := func(encode func(raw []byte) string) func(n int, payload string) map[string]any {
		return func(n int, payload string) map[string]any {
			raw, _ := base64.StdEncoding.DecodeString(payload)
			return map[string]any{"payload": encode(raw)}
		}
	}
	for name, media := range map[string]func(n int, payload string) map[string]any{
		"counted from 1":           counted(func(n int) any { return n }),
		"counted from 0":           counted(func(n int) any { return n - 1 }),
		"as a text":                counted(func(n int) any { return fmt.Sprint(n) }),
		"not counted":              counted(func(int) any { return nil }),
		"always 1":                 counted(func(int) any { return 1 }),
		"always 2":                 counted(func(int) any { return "2" }),
		"anew after 25":            counted(func(n int) any { return n%25 + 1 }),
		"anew after 4":             counted(func(n int) any { return n%4 + 1 }),
		"anew after 300":           counted(func(n int) any { return (n+270)%300 + 1 }),
		"both tracks together":     counted(func(n int) any { return 2 * n }),
		"in milliseconds":          counted(func(n int) any { return 20 * n }),
		"in bytes":                 counted(func(n int) any { return 160 * n }),
		"backwards":                counted(func(n int) any { return 1000 - n }),
		"with a fraction":          counted(func(n int) any { return fmt.Sprintf("%d.5", n) }),
		"larger than any number":   counted(func(n int) any { return fmt.Sprint("1", strings.Repeat("0", 30), n) }),
		"an object for the count":  counted(func(int) any { return map[string]any{} }),
		"an empty count":           counted(func(int) any { return "" }),
		"a number for the track":   beside("track", 1),
		"an object for the track":  beside("track", map[string]any{}),
		"a list for the timestamp": beside("timestamp", []any{}),
		"base64 for URLs":          encoded(base64.URLEncoding.EncodeToString),
		"base64 without padding":   encoded(base64.RawStdEncoding.EncodeToString),
		"base64 in lines": encoded(func(raw []byte) string {
			return base64.StdEncoding.EncodeToString(raw[:60]) + "\r\n" + base64.StdEncoding.EncodeToString(raw[60:])
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := startGateway(t, nil)
			s := wireFormats()["telnyx"]
			s.media = func(n int, payload string) string {
				text, err := json.Marshal(map[string]any{"event": "media", "payload": 7, "data": "x", "media": media(n, payload)})
				if err != nil {
					t.Error(err)
				}
				return string(text)
			}
			p := g.dialProvider(s, "+100")
			g.awaitSession()
			p.sendSound(makeSentence(440, time.Second, p.rate))
			p.awaitTone(440, 900*time.Millisecond)
			p.Lock()
			defer p.Unlock()
			if share := toneShare(trimSilence(p.pcm), p.rate, 440); share < 0.9 {
				t.Errorf("the share of the tone is %.3f", share)
			}
		})
	}
}
