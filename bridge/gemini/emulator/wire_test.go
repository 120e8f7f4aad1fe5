package emulator_test

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge/gemini/emulator"
)

const livePath = "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent"

func TestPaths(t *testing.T) {
	for path, ok := range map[string]bool{
		livePath:                   true,
		"/" + livePath:             true, // JavaScript and Python
		"/some/prefix/" + livePath: true,
		strings.Replace(livePath, "v1beta", "v1", 1): true,
		alphaPath:  true,
		vertexPath: true,
		strings.Replace(livePath, "v1beta", "v2", 1): false,
		livePath + "Constrained":                     false, // without a token
		"/ws/else":                                   false,
	} {
		synctest.Test(t, func(t *testing.T) {
			client := newPeer(t, silent)
			dialer := websocket.Dialer{NetDialContext: client.NetDial}
			ws, _, err := dialer.DialContext(t.Context(), "ws://gemini.test"+path, http.Header{"Authorization": {"Bearer token"}})
			if (err == nil) != ok {
				t.Errorf("%s: %v", path, err)
			}
			if err == nil {
				_ = ws.Close()
			}
		})
	}
}

func TestKeys(t *testing.T) {
	e := emulator.New(silent)
	defer e.Close()
	const accepted = "Bad Request" // the upgrader's response to a request that does not open a WebSocket
	for _, c := range []struct {
		query, header, value, want string
	}{
		{"", "X-Goog-Api-Key", "any", accepted},
		{"", "Authorization", "Bearer invalid", "401"},
		{"", "Authorization", "Bearer expired-1", "UNAUTHENTICATED"},
		{"?key=any", "", "", accepted},
		{"", "", "", accepted},
		{"", "Authorization", "Bearer any", accepted},
		{"", "X-Goog-Api-Key", "invalid", accepted},
		{"?key=expired", "", "", accepted},
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, livePath+c.query, nil)
		if c.header != "" {
			r.Header.Set(c.header, c.value)
		}
		if e.ServeHTTP(w, r); !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%+v: HTTP %d %s", c, w.Code, w.Body)
		}
	}
}

// TestBadKeysAreRefusedAtTheSetup: a bad key is refused after the setup of an accepted upgrade, as recorded.
func TestBadKeysAreRefusedAtTheSetup(t *testing.T) {
	for key, reason := range map[string]string{
		"invalid-1": "API key not valid. Please pass a valid API key.",
		"expired-1": "API key expired. Please renew the API key.",
	} {
		synctest.Test(t, func(t *testing.T) {
			client := newPeer(t, silent)
			ws, _, err := (&websocket.Dialer{NetDialContext: client.NetDial}).Dial("ws://gemini.test"+livePath+"?key="+key, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer ws.Close()
			if err := ws.WriteMessage(websocket.TextMessage, []byte(`{"setup":{"model":"models/gemini-3.8-live"}}`)); err != nil {
				t.Fatal(err)
			}
			_, _, err = ws.ReadMessage()
			if end, ok := errors.AsType[*websocket.CloseError](err); !ok || end.Code != 1007 || end.Text != reason {
				t.Errorf("%s: %v", key, err)
			}
		})
	}
}

// TestStrict sends raw messages and wants the close that Google would send.
func TestStrict(t *testing.T) {
	const setup = `{"setup":{"model":"models/gemini-3.8-live"}}`
	for _, c := range []struct {
		send   []string
		code   int
		reason string
	}{
		{[]string{`{"realtimeInput":{"text":"x"}}`}, 1007, "must be a setup message"},
		{[]string{`hello`}, 1007, "Invalid JSON payload"},
		{[]string{`[]`}, 1007, "Invalid JSON payload"},
		{[]string{`{"setup":{"model":"models/gemini-3.8-live","colour":1}}`}, 1007, `Unknown name "colour" at 'setup': Cannot find field.`},
		{
			[]string{`{"setup":{"model":"models/gemini-3.8-live","generationConfig":{"topKK":1}}}`},
			1007,
			`Unknown name "topKK" at 'setup.generation_config'`,
		},
		{[]string{`{"setup":{"model":7}}`}, 1007, `Invalid value at 'setup.model'`},
		{[]string{`{"setup":{}}`}, 1008, `not found`},
		{[]string{`{"setup":{"model":"models/gemini-2.0-flash-live-001"}}`}, 1008, `not supported for bidiGenerateContent`},
		{[]string{`{"setup":{"model":"gemini-3.8-live"}}`}, 1007, `models/NAME`},
		{
			[]string{`{"setup":{"model":"models/gemini-3.8-live","tools":[{"functionDeclarations":[{"name":"f","parameters":{"$ref":"x"}}]}]}}`},
			1007, `Unknown name "$ref"`,
		},
		{
			[]string{`{"setup":{"model":"models/gemini-3.8-live","tools":[{"googleSearch":{},"functionDeclarations":[{"name":"f"}]}]}}`},
			1011,
			"Internal error",
		},
		{[]string{setup, setup}, 1007, "Setup message must be the first"},
		{[]string{setup, `{"setup":{},"realtimeInput":{}}`}, 1007, "Setup"},
		{[]string{setup, `{"toolResponse":{},"realtimeInput":{}}`}, 1007, "exactly one"},
		{[]string{setup, `{}`}, 1007, "exactly one"},
		{[]string{setup, `{"realtimeInput":{},"type":"x"}`}, 1007, `Unknown name "type": Cannot find field.`},
		{
			[]string{setup, `{"contextUpdate":{"tools":{"tools":[{"functionDeclarations":[{}]}]}}}`},
			1007,
			`'context_update.tools.tools[0].function_declarations[0]'`,
		},
		{[]string{setup, `{"contextUpdate":{"tools":[]}}`}, 1007, `Invalid value at 'context_update.tools' (TOOLSUPDATE), "[]"`},
		{[]string{setup, `{"clientContent":{"turns":[{"role":{"a":[1]}}]}}`}, 1007, `'client_content.turns[0].role' (STRING), "{\"a\":[1]}"`},
		{[]string{setup, `{"clientContent":{"turns":7}}`}, 1007, `Invalid value at 'client_content.turns' (CONTENT), "7"`},
		{[]string{
			setup,
			`{"clientContent":{"turns":[{"role":"user","parts":[{"inlineData":{"mimeType":"audio/pcm;rate=24000","data":"AAAA"}}]}]}}`,
		}, 1008, "not implemented, or supported"},
		{
			[]string{setup, `{"realtimeInput":{"audio":{"data":"AAAA","mimeType":"audio/pcm;rate=16000","x":1}}}`},
			1007,
			`Unknown name "x" at 'realtime_input.audio'`,
		},
		{
			[]string{setup, `{"realtimeInput":{"audio":{"data":"????","mimeType":"audio/pcm"}}}`},
			1007,
			`Invalid value at 'realtime_input.audio.data'`,
		},
		{[]string{setup, `{"realtimeInput":{"audio":{"data":"AAAA","mimeType":"audio/opus"}}}`}, 1007, `Unsupported MIME type`},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRaw(t, newPeer(t, silent), livePath, nil)
			for _, m := range c.send {
				_ = r.ws.WriteMessage(websocket.TextMessage, []byte(m))
			}
			r.closes(c.code, c.reason)
		})
	}
}

// TestLenient sends variants of proto3 JSON that Google accepts. The last message is refused, which shows that the
// others were not.
func TestLenient(t *testing.T) {
	const setup = `{"setup":{"model":"models/gemini-3.8-live"}}`
	for _, c := range [][]string{
		{"\ufeff" + setup},
		{`{"setup":{"model":"models/gemini-3.8-live","generationConfig":{"responseModalities":"AUDIO"}}}`},
		{`{"setup":{"model":"models/gemini-3.8-live","generation_config":{"response_modalities":[3],"top_k":"7","temperature":"0.5"}}}`},
		{`{"setup":{"model":"models/gemini-3.8-live","systemInstruction":{"parts":{"text":"x"}}}}`},
		{`{"setup":{"model":"models/gemini-3.8-live","tools":{"functionDeclarations":{"name":"f","behavior":2,` +
			`"parameters":{"type":6,"properties":{"a":{"type":1,"nullable":"true"}},"required":"a"}}}}}`},
		{`{"setup":{"model":"models/gemini-3.8-live","realtimeInputConfig":{"activityHandling":1,` +
			`"automaticActivityDetection":{"disabled":"false","prefixPaddingMs":"20","startOfSpeechSensitivity":1}}}}`},
		{`{"setup":{"model":"models/gemini-3.8-live","tools":null,"generationConfig":null,"sessionResumption":null}}`},
		{setup, `{"clientContent":{"turns":{"role":"user","parts":{"text":"x"}},"turnComplete":"false"}}`},
		{setup, "\ufeff" + `{"realtimeInput":{"mediaChunks":{"mimeType":"audio/pcm","data":"__-_"},"text":null}}`},
		{setup, `{"realtimeInput":{"audioStreamEnd":"true"}}`},
		{setup, `{"toolResponse":{"functionResponses":{"id":"1","name":"f","response":{},"scheduling":1,"willContinue":"false"}}}`},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRaw(t, newPeer(t, silent), livePath, nil)
			for _, m := range append(c, `{"realtimeInput":{"last":1}}`) {
				_ = r.ws.WriteMessage(websocket.TextMessage, []byte(m))
			}
			r.closes(1007, `Unknown name "last"`)
		})
	}
}

// TestSnakeCaseInBinary is Mastra's dialect: snake_case, mediaChunks without a rate; in binary frames on top.
func TestSnakeCaseInBinary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRaw(t, newPeer(t, silent), alphaPath, nil)
		speech := base64.StdEncoding.EncodeToString(littleEndian(slices.Concat(tone(16000, 440, time.Second), make([]int16, 16000))))
		for _, text := range []string{
			`{"setup":{"model":"models/gemini-3.8-live","output_audio_transcription":{},"generation_config":{"response_modalities":["AUDIO"]}}}`,
			`{"realtime_input":{"media_chunks":[{"mime_type":"audio/pcm","data":"` + speech + `"}]}}`,
		} {
			if err := r.ws.WriteMessage(websocket.BinaryMessage, []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		if said := r.turn(); !strings.HasPrefix(said, "You said: 1.") {
			t.Errorf("%.200s", said)
		}
	})
}

// littleEndian is audio as it is on the wire.
func littleEndian(pcm []int16) []byte {
	raw := make([]byte, 0, 2*len(pcm))
	for _, s := range pcm {
		raw = binary.LittleEndian.AppendUint16(raw, uint16(s))
	}
	return raw
}

func TestREST(t *testing.T) {
	e := emulator.New(silent)
	defer e.Close()
	for _, c := range []struct{ method, path, want string }{
		{"GET", "/v1beta/models/gemini-3.8-live", `"name": "models/gemini-3.8-live"`},
		{"GET", "/p//v1beta1/publishers/google/models/gemini-3.8-live?key=any", "bidiGenerateContent"},
		{"GET", "/v1beta/models/gemini-3.8-live?key=invalid", "API key not valid"},
		{"GET", "/v1beta/models/nothing", "NOT_FOUND"},
		{"POST", "/v1beta/models/gemini-3.8-live", "NOT_FOUND"},
		{"GET", "/", "NOT_FOUND"},
	} {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), c.method, c.path, nil))
		if body := w.Body.String(); !strings.Contains(body, c.want) || strings.Contains(body, `"error"`) != (w.Code >= 400) {
			t.Errorf("%s %s: HTTP %d %s", c.method, c.path, w.Code, body)
		}
	}
}
