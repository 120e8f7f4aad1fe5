package main

import (
	"encoding/json"
	"fmt"
	"io"
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

	"voxgate/signaling/rtc/rtctest"
)

// listensOnly is a Gemini that says nothing. Its setups come by the channel.
func listensOnly(t *testing.T) (url string, seen chan string) {
	seen = make(chan string, 32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer ws.Close()
		for {
			_, raw, err := ws.ReadMessage()
			if err != nil {
				return
			}
			var m struct{ Setup, ContextUpdate json.RawMessage }
			if err := json.Unmarshal(raw, &m); err != nil {
				t.Error(err)
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

// socket is a client of a door that talks by WebSocket.
func (p *program) socket(path string, first ...string) *conversation {
	p.t.Helper()
	conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(p.url, "http")+path, nil)
	if err != nil {
		p.t.Fatal(path, err)
	}
	p.t.Cleanup(func() { conn.Close() })
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	c := &conversation{t: p.t, conn: conn}
	for _, m := range first {
		c.send(m)
	}
	return c
}

// written is a file of JSON.
func written(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// At each door, what the session webhook says of the agent counts from the first set-up on, whatever the client
// configures then and later, and what it does not say is left as the client or the operator's file has it.
func TestSessionWebhookSaysHowTheModelIs(t *testing.T) {
	t.Parallel()
	var asked atomic.Value
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked.Store(string(body))
		io.WriteString(w, `{"agent":{"prompt":"You sell shoes."}}`)
	}))
	defer endpoint.Close()
	model, seen := listensOnly(t)
	const agent = `"prompt":"You are a pirate.","voice":"Kore","language":"de-DE"`
	const config = `"systemInstruction":"You are a pirate.","generationConfig":{"speechConfig":{"languageCode":"de-DE","voiceConfig":{"prebuiltVoiceConfig":{"voiceName":"Kore"}}}`
	p := start(t, []string{"serve", "--log", "text,debug"}, env(
		"VOXGATE_ADDR",
		"127.0.0.1:0",
		"GOOGLE_GEMINI_BASE_URL",
		model,
		"VOXGATE_SESSION_WEBHOOK",
		endpoint.URL,
		"VOXGATE_WEBHOOK_SECRET",
		"top-secret",
		"VOXGATE_TELEPHONY",
		written(t, `{"providers":[{"profile":"exotel","password":"shown"}],"agents":[{"to":["*"],`+agent+`}]}`),
		"VOXGATE_WHIP",
		written(t, `{"agents":{"desk":{`+agent+`}}}`),
		"VOXGATE_SIP",
		written(
			t,
			`{"listen":[{"transport":"udp","address":"127.0.0.1:0"}],"trunks":[{"name":"line","from":["127.0.0.1"]}],"agents":[{"to":["*"],`+agent+`}]}`,
		),
	))
	const kore, german = `"voiceName":"Kore"`, `"languageCode":"de-DE"`
	for _, door := range []struct {
		name string
		call func() *conversation
		kept []string // of what the webhook does not say

		update, done string // that the client sends, and the type of what answers it
	}{
		{
			"web", func() *conversation { return p.converse("{" + config + "}}") },
			[]string{kore, german},
			`{"type":"UPDATE_CONFIG","payload":{` + config + `,"temperature":0.5}}}`, "SETUP_COMPLETE",
		},
		{
			"web, a change that says nothing", func() *conversation { return p.converse("{" + config + "}}") },
			[]string{kore, german},
			`{"type":"UPDATE_CONFIG","payload":{}}`, "SETUP_COMPLETE",
		},
		{
			"OpenAI's", func() *conversation { return p.socket("/v1/realtime?model=gpt-realtime") },
			nil, `{"type":"session.update","session":{"type":"realtime","instructions":"You are a pirate."}}`, "session.updated",
		},
		{"Live", func() *conversation {
			return p.socket("/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent",
				`{"setup":{"model":"models/gemini-3.8-live",`+config+"}}}")
		}, []string{kore, german}, "", ""},
		{"VOX", func() *conversation {
			return p.socket("/api/vox/live", `{"type":"start","projectContext":{"note":"You are a pirate."}}`)
		}, []string{`"voiceName"`}, "", ""},
		{"telephony", func() *conversation {
			return p.socket("/telephony/exotel/stream?token=shown", `{"event":"connected"}`,
				`{"event":"start","sequence_number":"1","stream_sid":"MZ1","start":{`+
					`"stream_sid":"MZ1","call_sid":"CA1","from":"+4917012345","to":"+100","custom_parameters":{"order":"17"},"media_format":{"encoding":"audio/x-raw","sample_rate":"8000","bit_rate":"16"}}}`)
		}, []string{kore, german}, "", ""},
		{"WHIP", func() *conversation { p.postOffer("/whip/desk"); return nil }, []string{kore, german}, "", ""},
		{"SIP", func() *conversation { p.invite(p.waitFor(`transport=UDP at=(\S+)`)); return nil }, []string{kore, german}, "", ""},
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
		if !c.until(map[string]string{"SETUP_COMPLETE": "SETUP_COMPLETE", "session.updated": "session.created"}[door.done], "") {
			t.Fatalf("%s: %s", door.name, c.all.String())
		}
		c.send(door.update)
		if !c.until(door.done, "") {
			t.Fatalf("%s: %s", door.name, c.all.String())
		}
		door.kept = nil // a change replaces what the client had
		for len(seen) > 0 {
			check()
		}
		c.conn.Close()
	}
}

// postOffer calls an agent as clients of WHIP do, and stays.
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
	resp, err := http.Post(p.url+path, "application/sdp", strings.NewReader(offer))
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusCreated {
		p.t.Fatalf("%s: %s", resp.Status, answer)
	}
	if err := caller.Answer(string(answer)); err != nil {
		p.t.Error(err)
	}
}

// invite rings a telephone line, and lets it hang up.
func (p *program) invite(line string) {
	p.t.Helper()
	conn, err := net.Dial("udp", line)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { conn.Close() })
	sdp := "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 9 RTP/AVP 0\r\n"
	fmt.Fprintf(conn, "INVITE sip:500@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP %s;branch=z9hG4bK1;rport\r\nFrom: <sip:ada@127.0.0.1>;tag=1\r\n"+
		"To: <sip:500@127.0.0.1>\r\nCall-ID: a\r\nX-Order: 17\r\nCSeq: 1 INVITE\r\nContact: <sip:ada@%[1]s>\r\nContent-Type: application/sdp\r\n"+
		"Content-Length: %d\r\n\r\n%s", conn.LocalAddr(), len(sdp), sdp)
	go func() { // until the test ends
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
					"%s\r\nCall-ID: a\r\nCSeq: 1 ACK\r\nContent-Length: 0\r\n\r\n", conn.LocalAddr(), to)
			}
		}
	}()
}
