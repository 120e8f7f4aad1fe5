package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/internal/testkit"
	"voxgate/internal/testkit/rtctest"
	"voxgate/media"
	"voxgate/signaling/access"
	"voxgate/signaling/compat/openai/openaitest"
)

// beeps starts a fake Gemini. In each connection it plays one beep when it hears audio. The channel seen receives the setup
// messages of all connections.
func beeps(t *testing.T) (url string, seen chan string) {
	seen = make(chan string, 32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer ws.Close()
		for said := false; ; {
			_, raw, err := ws.ReadMessage()
			if err != nil {
				return
			}
			var m struct {
				Setup, ContextUpdate json.RawMessage
				RealtimeInput        struct{ Audio struct{ Data []byte } }
			}
			if err := json.Unmarshal(raw, &m); err != nil {
				t.Error(err)
			}
			if !said && media.RMS(media.AppendSamples(nil, m.RealtimeInput.Audio.Data)) > 1000 {
				said = true
				_ = ws.WriteMessage(websocket.BinaryMessage, fmt.Appendf(nil, `{"serverContent":{"modelTurn":{"parts":[{"inlineData":`+
					`{"mimeType":"audio/pcm;rate=24000","data":%q}}]},"turnComplete":true}}`, testkit.Base64PCM(
					testkit.MakeTone(beep, time.Second, 24000),
				)))
			}
			if m.Setup != nil || m.ContextUpdate != nil {
				seen <- string(raw)
			}
			if m.Setup != nil {
				_ = ws.WriteMessage(websocket.BinaryMessage, []byte(`{"setupComplete":{}}`))
				_ = ws.WriteMessage(websocket.BinaryMessage, []byte(`{"sessionResumptionUpdate":{"newHandle":"h","resumable":true}}`))
			}
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, seen
}

// writeTempFile writes a JSON text to a temporary file, and returns its path.
func writeTempFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// writeAgents writes agent files, by name, to a temporary folder.
func writeAgents(t *testing.T, files map[string]string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name+".md"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// At each endpoint, the agent's fields in the session webhook's answer apply from the first setup on. Nothing that the
// client configures, then or later, overrides them. Other fields come from the client or from the operator's file.
func TestSessionWebhookSaysHowTheModelIs(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	var asked atomic.Value
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked.Store(string(body))
		io.WriteString(w, `{"agent":{"prompt":"You sell shoes."}}`)
	}))
	defer endpoint.Close()
	model, seen := beeps(t)
	folder := writeAgents(t, map[string]string{"desk": "---\nvoice: Kore\nlanguage: de-DE\nnumbers: ['*']\n---\nYou are a pirate.\n"})
	const config = `"systemInstruction":"You are a pirate.","generationConfig":{"speechConfig":{"languageCode":"de-DE",` +
		`"voiceConfig":{"prebuiltVoiceConfig":{"voiceName":"Kore"}}}`
	p := startGateway(t, []string{"serve", "--log", "text,debug"}, env(
		"VOXGATE_ADDR",
		"127.0.0.1:0",
		"GOOGLE_GEMINI_BASE_URL",
		model,
		"VOXGATE_SESSION_WEBHOOK",
		endpoint.URL,
		"VOXGATE_WEBHOOK_SECRET",
		"top-secret",
		"VOXGATE_TELEPHONY",
		writeTempFile(t, `{"providers":[{"profile":"exotel","password":"shown"}]}`),
		"VOXGATE_AGENTS",
		folder,
		"VOXGATE_SIP",
		writeTempFile(
			t,
			`{"listen":[{"transport":"udp","address":"127.0.0.1:0"}],"trunks":[{"name":"line","from":["127.0.0.1"]}]}`,
		),
	))
	const kore, german = `"voiceName":"Kore"`, `"languageCode":"de-DE"`
	for _, door := range []struct {
		name string
		call func() *testkit.Client
		kept []string // settings in the setup that the webhook leaves unchanged

		update, done string // a change that the client sends, and the type of its answer
	}{
		{
			"web", func() *testkit.Client { return p.openConversation("{" + config + "}}") },
			[]string{kore, german},
			`{"type":"UPDATE_CONFIG","payload":{` + config + `,"temperature":0.5}}}`, "SETUP_COMPLETE",
		},
		{
			"web, a change that says nothing", func() *testkit.Client { return p.openConversation("{" + config + "}}") },
			[]string{kore, german},
			`{"type":"UPDATE_CONFIG","payload":{}}`, "SETUP_COMPLETE",
		},
		{
			"OpenAI's", func() *testkit.Client { return p.dialWebSocket("/v1/realtime?model=gpt-realtime") },
			nil, `{"type":"session.update","session":{"type":"realtime","instructions":"You are a pirate."}}`, "session.updated",
		},
		{"Live", func() *testkit.Client {
			return p.dialWebSocket("/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent",
				`{"setup":{"model":"models/gemini-3.8-live",`+config+"}}}")
		}, []string{kore, german}, "", ""},
		{"VOX", func() *testkit.Client {
			return p.dialWebSocket("/api/vox/live", `{"type":"start","projectContext":{"note":"You are a pirate."}}`)
		}, []string{`"voiceName"`}, "", ""},
		{"telephony", func() *testkit.Client {
			return p.dialWebSocket("/telephony/exotel/stream?token=shown", `{"event":"connected"}`,
				`{"event":"start","sequence_number":"1","stream_sid":"MZ1","start":{`+
					`"stream_sid":"MZ1","call_sid":"CA1","from":"+4917012345","to":"+100","custom_parameters":{"order":"17"},`+
					`"media_format":{"encoding":"audio/x-raw","sample_rate":"8000","bit_rate":"16"}}}`)
		}, []string{kore, german}, "", ""},
		{"WHIP", func() *testkit.Client { p.postOffer("/whip/desk"); return nil }, []string{kore, german}, "", ""},
		{"SIP", func() *testkit.Client { p.ringTrunk(p.awaitLog(`transport=UDP at=(\S+)`), "500"); return nil }, []string{kore, german}, "", ""},
	} {
		c := door.call()
		check := func() {
			t.Helper()
			var raw string
			select {
			case raw = <-seen:
			case <-time.After(patience):
				t.Fatalf("%s: the model gets nothing\n%s", door.name, p.logged())
			}
			for _, want := range append(door.kept, "You sell shoes.") {
				if !strings.Contains(strings.ReplaceAll(raw, ": ", ":"), want) || strings.Contains(raw, "pirate") {
					t.Errorf("%s: the model gets %s, want %s", door.name, raw, want)
				}
			}
		}
		check()
		came := map[string]string{"telephony": `"attributes":{"order":"17"}`, "SIP": `"x-order":"17"`}[door.name]
		if said := asked.Load().(string); !strings.Contains(said, came) || came == "" && strings.Contains(said, "attributes") {
			t.Errorf("%s: the endpoint is asked %s, want %s", door.name, said, came)
		}
		if door.update == "" {
			continue
		}
		c.AwaitEvent(map[string]string{"SETUP_COMPLETE": "SETUP_COMPLETE", "session.updated": "session.created"}[door.done])
		c.SendTextFrame(door.update)
		c.AwaitEvent(door.done)
		door.kept = nil // the change replaces the settings that the client had sent
		for len(seen) > 0 {
			check()
		}
		c.Conn.Close()
	}
}

// postOffer calls an agent as clients of WHIP do. The call stays open until the end of the test.
func (p *program) postOffer(path string) {
	p.t.Helper()
	caller, err := rtctest.New(rtctest.Options{})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(caller.Close)
	offer, err := caller.Offer(p.t.Context(), false)
	if err != nil {
		p.t.Fatal(err)
	}
	status, answer := p.post(path, "application/sdp", offer)
	if status != http.StatusCreated {
		p.t.Fatalf("%d: %s", status, answer)
	}
	if err := caller.SetAnswer(answer); err != nil {
		p.t.Error(err)
	}
}

// post sends a POST request with a body of the given media type, and returns the status and body of the answer.
func (p *program) post(path, kind, body string) (status int, answer string) {
	p.t.Helper()
	resp, err := http.Post(p.url+path, kind, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(raw)
}

// buildOffer returns the SDP offer of a WebRTC caller, which is closed at the end of the test.
func (p *program) buildOffer() (sdp string) {
	p.t.Helper()
	caller, err := rtctest.New(rtctest.Options{})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(caller.Close)
	if sdp, err = caller.Offer(p.t.Context(), false); err != nil {
		p.t.Fatal(err)
	}
	return sdp
}

// ringTrunk calls a number from the trunk by SIP, and acknowledges an answer or a BYE of the gateway.
func (p *program) ringTrunk(trunk, number string) {
	p.t.Helper()
	conn, err := net.Dial("udp", trunk)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { conn.Close() })
	sdp := "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 9 RTP/AVP 0\r\n"
	fmt.Fprintf(conn, "INVITE sip:%[4]s@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP %[1]s;branch=z9hG4bK1;rport\r\n"+
		"From: <sip:ada@127.0.0.1>;tag=1\r\nTo: <sip:%[4]s@127.0.0.1>\r\nCall-ID: a-%[4]s\r\nX-Order: 17\r\n"+
		"History-Info: <sip:desk@192.0.2.1>;index=1\r\nCSeq: 1 INVITE\r\nContact: <sip:ada@%[1]s>\r\n"+
		"Content-Type: application/sdp\r\nContent-Length: %[2]d\r\n\r\n%[3]s", conn.LocalAddr(), len(sdp), sdp, number)
	go func() { // ends when the test closes conn
		b := make([]byte, 2000)
		for {
			n, err := conn.Read(b)
			if err != nil {
				return
			}
			head, _, _ := strings.Cut(string(b[:n]), "\r\n\r\n")
			first, fields, _ := strings.Cut(head, "\r\n")
			switch {
			case strings.HasPrefix(first, "BYE "):
				fmt.Fprintf(conn, "SIP/2.0 200 OK\r\n%s\r\n\r\n", fields)
			case first == "SIP/2.0 200 OK":
				to := regexp.MustCompile(`To: [^\r]*`).FindString(fields)
				fmt.Fprintf(conn, "ACK sip:500@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP %s;branch=z9hG4bK2;rport\r\nFrom: <sip:ada@127.0.0.1>;tag=1\r\n"+
					"%s\r\nCall-ID: a-%s\r\nCSeq: 1 ACK\r\nContent-Length: 0\r\n\r\n", conn.LocalAddr(), to, number)
			}
		}
	}()
}

// The agents of examples/agents answer at every endpoint with the settings of their files. Where audio goes by RTP, or in
// Twilio's stream, caller and model hear each other. An unknown agent is rejected in the form of the protocol, before a
// session with the model begins.
func TestAgentsAtEveryEndpoint(t *testing.T) {
	t.Parallel()
	model, seen := beeps(t)
	p := startGateway(t, []string{"serve", "--log", "text,debug"}, env(
		"VOXGATE_ADDR", "127.0.0.1:0", "GOOGLE_GEMINI_BASE_URL", model, "VOXGATE_AGENTS", "../examples/agents",
		"VOXGATE_TELEPHONY", writeTempFile(t, `{"publicURL":"`+twilioAt+`","providers":[{"profile":"twilio","verify":"`+twilioSecret+`"}]}`),
		"VOXGATE_SIP", writeTempFile(t,
			`{"listen":[{"transport":"udp","address":"127.0.0.1:0"}],"trunks":[{"name":"line","from":["127.0.0.1"]}]}`),
	))
	trunk := p.awaitLog(`transport=UDP at=(\S+)`)
	const live = "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent"
	// Each function calls an agent. refused is the answer of the endpoint, which is a rejection for an unknown agent. back
	// receives the model's voice; it hears nothing in calls without RTP.
	doors := map[string]func(agent, number string) (refused string, back *voiceReceiver){
		"web": func(agent, _ string) (string, *voiceReceiver) {
			c := p.dialWebSocket("/ws", `{"type":"CONNECT_GEMINI","payload":{"agent":"`+agent+`"}}`)
			return without(c, awaitEitherText(c, "SETUP_COMPLETE", "GEMINI_ERROR"))
		},
		"web, WebRTC": func(agent, _ string) (string, *voiceReceiver) {
			var c *testkit.Client
			said, back := p.callByWebRTC(func(sdp string) string {
				offer, _ := json.Marshal(map[string]any{"type": "WEBRTC_OFFER", "payload": map[string]string{"sdp": sdp}})
				c = p.dialWebSocket("/ws", string(offer), `{"type":"CONNECT_GEMINI","payload":{"agent":"`+agent+`"}}`)
				return awaitEitherText(c, "WEBRTC_ANSWER", "GEMINI_ERROR")
			})
			back.ends = append(back.ends, func() { c.Conn.Close() })
			return said, back
		},
		"Google's Live API": func(agent, _ string) (string, *voiceReceiver) {
			c := p.dialWebSocket(live, `{"setup":{"model":"models/`+agent+`"}}`)
			return without(c, awaitEitherText(c, "setupComplete", ""))
		},
		"OpenAI's": func(agent, _ string) (string, *voiceReceiver) {
			c := p.dialWebSocket("/v1/realtime?model=gpt-realtime",
				`{"type":"session.update","session":{"type":"realtime","prompt":{"id":"`+agent+`"}}}`)
			return without(c, awaitEitherText(c, "session.updated", `"error"`))
		},
		"OpenAI's, WebRTC": func(agent, _ string) (string, *voiceReceiver) {
			return p.callByWebRTC(func(sdp string) string {
				kind, body := openaitest.FormRequest(`{"type":"realtime","prompt":{"id":"` + agent + `"}}`)(sdp)
				raw, _ := io.ReadAll(body)
				_, answer := p.post("/v1/realtime/calls", kind, string(raw))
				return answer
			})
		},
		"RTVI": func(agent, _ string) (string, *voiceReceiver) {
			status, answer := p.post("/start", "application/json", `{"body":{"agent":"`+agent+`"}}`)
			if status != http.StatusOK {
				return answer, &voiceReceiver{}
			}
			return p.callByWebRTC(func(sdp string) string {
				offer, _ := json.Marshal(map[string]any{"sdp": sdp, "type": "offer", "requestData": map[string]string{"agent": agent}})
				_, answer := p.post("/api/offer", "application/json", string(offer))
				return answer
			})
		},
		"WHIP": func(agent, _ string) (string, *voiceReceiver) {
			return p.callByWebRTC(func(sdp string) string {
				_, answer := p.post("/whip/"+agent, "application/sdp", sdp)
				return answer
			})
		},
		"SIP, sipp": func(_, number string) (string, *voiceReceiver) {
			sound := newLine(t)
			if !p.callByTrunk(trunk, number, sound) {
				return "no agent", nil
			}
			return "", sound.back
		},
		"Twilio": func(_, number string) (string, *voiceReceiver) { return p.callAsTwilio(number) },
	}
	for door, dial := range doors {
		for _, agent := range []struct{ name, number, prompt, voice, next string }{
			{"desk", "+49301234", "front desk of the hotel", "Kore", `the step \"greet\"`},
			{"interpreter", "interpreter", "You are an interpreter", "Aoede", ""},
		} {
			_, back := dial(agent.name, agent.number)
			select {
			case raw := <-seen:
				for !strings.Contains(raw, "systemInstruction") { // skip an OpenAI client's setup without an agent
					raw = <-seen
				}
				for _, want := range []string{agent.prompt, `"voiceName":"` + agent.voice, agent.next} {
					if !strings.Contains(strings.ReplaceAll(raw, ": ", ":"), want) {
						t.Errorf("%s: %s gets %s, want %s", door, agent.name, raw, want)
					}
				}
			case <-time.After(patience):
				t.Fatalf("%s: the model gets nothing for %s\n%s", door, agent.name, p.logged())
			}
			if back.heard != nil {
				select {
				case <-back.heard:
				case <-time.After(patience):
					t.Fatalf("%s: the voice of %s is not heard\n%s", door, agent.name, p.logged())
				}
			}
			back.hangUp()
		}
		refused, _ := dial("nobody", "+1")
		if !strings.Contains(refused, "no agent") && !strings.Contains(refused, "not taken") && !strings.Contains(refused, "<Reject") {
			t.Errorf("%s: an agent that there is not: %s", door, refused)
		}
	}
	for len(seen) > 0 {
		if raw := <-seen; strings.Contains(raw, "systemInstruction") {
			t.Errorf("the model gets %s", raw)
		}
	}
}

// awaitEitherText waits until a message contains one of two texts, or the connection ends. It returns all messages so far,
// and the error that ended the connection. An empty text matches nothing.
func awaitEitherText(c *testkit.Client, one, other string) string {
	contains := func(m testkit.Message, text string) bool {
		return text != "" && strings.Contains(string(m.Payload), text)
	}
	_, _, ok := c.AwaitMatchOrEnd(0, one, func(m testkit.Message) bool { return contains(m, one) || contains(m, other) })
	if !ok {
		return c.Text() + c.EndError.Error()
	}
	return c.Text()
}

// The precedence of settings is that of the table in docs/agents.md, for each field separately. The test uses the
// endpoints whose clients can configure the model.
func TestPrecedenceOfAgents(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked struct{ Session struct{ Identity string } }
		_ = json.NewDecoder(r.Body).Decode(&asked)
		io.WriteString(w, map[string]string{"fields": `{"agent":{"prompt":"Webhook."}}`, "name": `{"agent":"night"}`}[asked.Session.Identity])
	}))
	defer endpoint.Close()
	model, seen := beeps(t)
	keys := filepath.Join(t.TempDir(), "keys.json")
	key, err := access.NewKey(keys, "shop", []string{access.MayMint})
	if err != nil {
		t.Fatal(err)
	}
	p := startGateway(t, []string{"serve"}, env(
		"VOXGATE_ADDR", "127.0.0.1:0", "GOOGLE_GEMINI_BASE_URL", model, "VOXGATE_KEYS", keys, "VOXGATE_LIMITS", "new-per-second-per-key=0",
		"VOXGATE_SESSION_WEBHOOK", endpoint.URL, "VOXGATE_WEBHOOK_SECRET", "top-secret",
		"VOXGATE_AGENTS", writeAgents(t, map[string]string{
			"desk":  "---\nvoice: Kore\nlanguage: de-DE\n---\nFile.",
			"night": "---\nvoice: Puck\n---\nNight.",
		}),
	))
	mint := func(wanted string) string {
		r, _ := http.NewRequest(http.MethodPost, p.url+"/v1/tokens", strings.NewReader(wanted))
		r.Header.Set("Authorization", "Bearer "+key)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var minted struct{ Token string }
		if err := json.NewDecoder(resp.Body).Decode(&minted); err != nil || minted.Token == "" {
			t.Fatalf("%s: %v", resp.Status, err)
		}
		return minted.Token
	}
	// Each function opens a conversation with the agent desk, and sends a prompt of the client unless it is empty.
	doors := map[string]func(token, prompt string){
		"web": func(token, prompt string) {
			config := filled(map[string]any{"systemInstruction": prompt})
			p.dialWebSocket("/ws", fmt.Sprintf(`{"type":"CONNECT_GEMINI","payload":{"agent":"desk","token":%q,"initialConfig":%s}}`, token, config))
		},
		"Google's Live API": func(token, prompt string) {
			config := filled(map[string]any{"model": "models/desk", "systemInstruction": prompt})
			p.dialWebSocket("/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent?key="+token,
				fmt.Sprintf(`{"setup":%s}`, config))
		},
		"OpenAI's": func(token, prompt string) {
			session := filled(map[string]any{"type": "realtime", "prompt": map[string]string{"id": "desk"}, "instructions": prompt})
			kind, body := openaitest.FormRequest(string(session))(p.buildOffer())
			r, _ := http.NewRequest(http.MethodPost, p.url+"/v1/realtime/calls", body)
			r.Header.Set("Content-Type", kind)
			r.Header.Set("Authorization", "Bearer "+token)
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		},
	}
	for name, test := range map[string]struct{ token, says, prompt, voice, language string }{
		"the file":                {`{}`, "", "File.", "Kore", "de-DE"},
		"the client":              {`{}`, "Client.", "Client.", "Kore", "de-DE"},
		"the grant":               {`{"grant":{"agent":{"prompt":"Grant."}}}`, "Client.", "Grant.", "Kore", "de-DE"},
		"the grant, by name":      {`{"grant":{"agent":"desk"}}`, "Client.", "File.", "Kore", "de-DE"},
		"the grant, with a list":  {`{"grant":{"agents":["night","d*"]}}`, "Client.", "File.", "Kore", "de-DE"},
		"the webhook":             {`{"identity":"fields","grant":{"agent":{"prompt":"Grant."}}}`, "Client.", "Webhook.", "Kore", "de-DE"},
		"the webhook, by name":    {`{"identity":"name"}`, "Client.", "Night.", "Puck", ""},
		"the webhook, over names": {`{"identity":"name","grant":{"agent":"desk"}}`, "Client.", "Night.", "Puck", ""},
	} {
		for door, open := range doors {
			open(mint(test.token), test.says)
			var raw string
			select {
			case raw = <-seen:
			case <-time.After(patience):
				t.Fatalf("%s, %s: the model gets nothing\n%s", door, name, p.logged())
			}
			var got struct {
				Setup struct {
					SystemInstruction struct{ Parts []struct{ Text string } }
					GenerationConfig  struct {
						SpeechConfig struct {
							LanguageCode string
							VoiceConfig  struct{ PrebuiltVoiceConfig struct{ VoiceName string } }
						}
					}
				}
			}
			if err := json.Unmarshal([]byte(raw), &got); err != nil || len(got.Setup.SystemInstruction.Parts) != 1 {
				t.Fatalf("%s, %s: %s", door, name, raw)
			}
			speech := got.Setup.GenerationConfig.SpeechConfig
			have := fmt.Sprint(got.Setup.SystemInstruction.Parts[0].Text, speech.VoiceConfig.PrebuiltVoiceConfig.VoiceName, speech.LanguageCode)
			if have != test.prompt+test.voice+test.language {
				t.Errorf("%s, %s: %s, want %s", door, name, have, test.prompt+test.voice+test.language)
			}
		}
	}
}

// filled returns a JSON object with the fields whose value is not "".
func filled(fields map[string]any) []byte {
	maps.DeleteFunc(fields, func(_ string, value any) bool { return value == "" })
	raw, _ := json.Marshal(fields)
	return raw
}
