package geminirest_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"voxgate/bridge/gemini/emulator"
	"voxgate/signaling/compat/geminirest"
)

// checkJSONOrEvents checks that the client can parse an answer: JSON, or server-sent events of JSON.
func checkJSONOrEvents(t *testing.T, status int, text string) {
	t.Helper()
	if strings.HasPrefix(text, "data: ") {
		for _, line := range strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }) { // each event ends the line
			if data, ok := strings.CutPrefix(line, "data: "); ok && !json.Valid([]byte(data)) {
				t.Fatalf("answered %d with the event %q", status, data)
			}
		}
		return
	}
	if text != "" && !json.Valid([]byte(text)) {
		t.Fatalf("answered %d with %q", status, text)
	}
}

// methods lists the called methods and their queries.
var methods = []string{
	"generateContent",
	"streamGenerateContent?alt=sse",
	"streamGenerateContent",
	"countTokens",
	"embedContent",
	"batchEmbedContents",
}

// FuzzRequests sends arbitrary bodies, for the built-in emulator and for a server of chat completions.
func FuzzRequests(f *testing.F) {
	for i, body := range []string{
		`{"contents":[{"role":"user","parts":[{"text":"/tool f {}"}]}],` +
			`"tools":[{"functionDeclarations":[{"name":"f","parameters":{"type":"OBJECT"}}]}]}`,
		`{"system_instruction":{"parts":{"text":"x"}},"contents":{"parts":{"text":"x"}},` +
			`"generation_config":{"max_output_tokens":5,"stop_sequences":["x"]}}`,
		`{"contents":[{"parts":[{"text":"x"}]}],"generationConfig":{"responseMimeType":"application/json",` +
			`"responseJsonSchema":{"type":["array"],"items":{"anyOf":[{"enum":[1]}]}}}}`,
		`{"contents":[{"role":"model","parts":[{"functionCall":{"name":"f","args":{}}}]},` +
			`{"parts":[{"functionResponse":{"name":"f","response":{"a":1}}},{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]}]}`,
		`{"content":{"parts":[{"text":"x"}]},"outputDimensionality":-5}`,
		`{"requests":[{"content":{"parts":[{"text":"x"}]}}]}`, `[`, `{}`,
	} {
		f.Add(i, []byte(body))
	}
	e := emulator.New(emulator.Options{Logger: slog.New(slog.DiscardHandler), Espeak: emulator.NoVoice})
	f.Cleanup(e.Close)
	chat := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var q struct {
			Stream bool
			Input  []any
		}
		if json.Unmarshal(body, &q) != nil {
			f.Errorf("the server of chat completions is sent %q", body)
		}
		if strings.HasSuffix(r.URL.Path, "/embeddings") {
			var list []string
			for i := range q.Input {
				list = append(list, fmt.Sprintf(`{"index":%d,"embedding":[0.5]}`, i))
			}
			fmt.Fprintf(w, `{"data":[%s]}`, strings.Join(list, ","))
			return
		}
		if w.Header().Set("Content-Type", "application/json"); !q.Stream {
			_, _ = io.WriteString(w, `{"model":"x","choices":[{"message":{"role":"assistant","content":"Hi."},"finish_reason":"stop"}]}`)
			return
		}
		_, _ = io.WriteString(w, `data: {"choices":[{"delta":{"content":"Hi."},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
	}))
	f.Cleanup(chat.Close)
	url := startGateway(f, e, nil, geminirest.Route{Model: "gpt-*", OpenAI: &geminirest.OpenAI{URL: chat.URL}})
	f.Fuzz(func(t *testing.T, method int, body []byte) {
		for _, model := range []string{"gemini-x", "gpt-x"} {
			at := url + "/v1beta/models/" + model + ":" + methods[uint(method)%uint(len(methods))]
			status, text := postJSON(t, at, string(body))
			if status != 200 && status != 400 && status != 501 {
				t.Fatalf("%s answered %d %s", model, status, text)
			}
			checkJSONOrEvents(t, status, text)
		}
	})
}

// FuzzAnswers lets the backend send arbitrary answers, whole or as events.
func FuzzAnswers(f *testing.F) {
	for i, answer := range []string{
		`{"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":"STOP"}],"usageMetadata":{"totalTokenCount":1}}`,
		"data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"x\"}]}}]}\n\ndata: {\"error\":{\"code\":500}}\n\n",
		`data: {"choices":[{"delta":{"tool_calls":[{"index":1,"id":"a","function":{"name":"f","arguments":"{"}}]}}]}` +
			"\n\ndata: [DONE]\n\n",
		`{"choices":[{"message":{"content":null,"tool_calls":[{"function":{"name":"f","arguments":"{"}}]}}],"usage":{"prompt_tokens":-1}}`,
		`{"error":{"message":"no","code":"x"}}`, `{"data":[{"index":9,"embedding":[1]}]}`, "data: {\n\n", ":\n\n", "[", "",
		"data: {\"candidates\":[]}\r\rdata: {}\r\n\r\ndata: [\rdata: ]\n\n", "{\r}",
	} {
		f.Add(i, i%3 == 0, []byte(answer))
	}
	var answer atomic.Pointer[[]byte]
	var refuses atomic.Bool
	backend := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if refuses.Load() {
			w.WriteHeader(429)
		}
		_, _ = w.Write(*answer.Load())
	})
	chat := httptest.NewServer(backend)
	f.Cleanup(chat.Close)
	url := startGateway(f, backend, nil, geminirest.Route{Model: "gpt-*", OpenAI: &geminirest.OpenAI{URL: chat.URL}})
	const request = `{"contents":[{"parts":[{"text":"x"}]}],"content":{"parts":[{"text":"x"}]},` +
		`"requests":[{"content":{"parts":[{"text":"x"}]}}]}`
	f.Fuzz(func(t *testing.T, method int, fails bool, said []byte) {
		answer.Store(&said)
		refuses.Store(fails)
		for _, model := range []string{"gemini-x", "gpt-x"} {
			called := methods[uint(method)%uint(len(methods))]
			status, text := postJSON(t, url+"/v1beta/models/"+model+":"+called, request)
			if model == "gpt-x" || strings.Contains(called, "enerate") { // all other answers of Google's are forwarded unchanged
				checkJSONOrEvents(t, status, text)
			}
		}
	})
}
