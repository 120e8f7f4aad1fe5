package geminirest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/goleak"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/emulator"
	"voxgate/bridge/pricing"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/compat/geminirest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// serverTimeout is the server's own deadline for an answer; a slow backend must not exceed it.
const serverTimeout = 100 * time.Millisecond

// startGateway returns a gateway with this backend and without access control.
func startGateway(t testing.TB, backend http.Handler, gate *access.Gate, routes ...geminirest.Route) (url string) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	up := httptest.NewServer(backend)
	client := &api.Client{BaseURL: up.URL, APIKey: "google's secret"}
	one := map[string]float64{"TEXT": 1} // dollar for a million tokens
	host := bridge.NewHost(bridge.Options{Client: client, Prices: pricing.Table{"m": {Input: one, Output: one}}, Logger: log})
	door := geminirest.New(host, client, routes, log)
	server := signaling.NewServer(signaling.Options{Access: gate, Logger: log}, door.Endpoints()...)
	front := httptest.NewUnstartedServer(server)
	front.Config.WriteTimeout = serverTimeout
	front.Start()
	t.Cleanup(func() {
		if err := errors.Join(host.Shutdown(context.Background()), server.Close(context.Background())); err != nil {
			t.Error(err)
		}
		front.Close()
		door.Close()
		up.Close()
	})
	return front.URL
}

func startEmulatedGateway(t testing.TB) string {
	t.Helper()
	e := emulator.New(emulator.Options{Logger: slog.New(slog.DiscardHandler), Espeak: emulator.NoVoice})
	t.Cleanup(e.Close)
	return startGateway(t, e, nil)
}

func postJSON(t testing.TB, url, body string) (int, string) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	return readAnswer(t, resp, err)
}

// readAnswer returns an answer, in one line if it is JSON.
func readAnswer(t testing.TB, resp *http.Response, err error) (int, string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer
	if json.Compact(&compact, text) == nil {
		text = compact.Bytes()
	}
	return resp.StatusCode, string(text)
}

// response contains the fields of an answer that the checklist covers.
type response struct {
	Candidates []struct {
		Content *struct {
			Parts []map[string]json.RawMessage
			Role  string
		}
		FinishReason  *string
		Index         *int
		SafetyRatings []any
	}
	PromptFeedback *struct{ SafetyRatings []any }
	UsageMetadata  *struct{ PromptTokenCount, CandidatesTokenCount, ToolUsePromptTokenCount, ThoughtsTokenCount, TotalTokenCount *int }
	Error          *struct {
		Code            int
		Status, Message string
	}
}

// checkResponse compares an answer with the checklist of the format (docs/rest.md), and returns its text.
func checkResponse(t *testing.T, text string, last bool) (said string) {
	t.Helper()
	var r response
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if len(r.Candidates) == 0 {
		t.Fatalf("no candidates: %s", text)
	}
	for _, c := range r.Candidates {
		switch {
		case c.Content == nil || c.Content.Parts == nil || c.Content.Role != "model":
			t.Errorf("content: %s", text)
			continue
		case c.Index == nil || c.SafetyRatings == nil:
			t.Errorf("no index or ratings: %s", text)
		case last && (c.FinishReason == nil || *c.FinishReason == ""), !last && c.FinishReason != nil:
			t.Errorf("finishReason: %s", text)
		case !strings.Contains(text, `"finishReason"`):
			t.Errorf("no finishReason: %s", text)
		}
		for _, p := range c.Content.Parts {
			var s string
			if json.Unmarshal(p["text"], &s) == nil && p["thought"] == nil {
				said += s
			}
			if call, ok := p["functionCall"]; ok {
				var f struct {
					Name, ID string
					Args     map[string]any
				}
				if err := json.Unmarshal(call, &f); err != nil || f.Name == "" || f.ID == "" || f.Args == nil {
					t.Errorf("functionCall: %v %s", err, call)
				}
			}
		}
	}
	if r.PromptFeedback == nil || r.PromptFeedback.SafetyRatings == nil {
		t.Errorf("no promptFeedback: %s", text)
	}
	u := r.UsageMetadata
	if u == nil || u.PromptTokenCount == nil || u.CandidatesTokenCount == nil || u.TotalTokenCount == nil {
		t.Fatalf("no usageMetadata: %s", text)
	}
	sum := *u.PromptTokenCount + *u.CandidatesTokenCount
	for _, more := range []*int{u.ToolUsePromptTokenCount, u.ThoughtsTokenCount} {
		if more != nil {
			sum += *more
		}
	}
	if sum != *u.TotalTokenCount {
		t.Errorf("the total is not the sum: %s", text)
	}
	return said
}

// checkStream calls checkResponse for each event of a stream, and returns the whole text. Only the last event must have a
// finishReason.
func checkStream(t *testing.T, events []string) (said string) {
	t.Helper()
	for i, e := range events {
		said += checkResponse(t, e, i == len(events)-1)
	}
	return said
}

func parseEvents(t *testing.T, sse string) (list []string) {
	t.Helper()
	for _, e := range strings.Split(strings.TrimSuffix(sse, "\r\n\r\n"), "\r\n\r\n") {
		data, ok := strings.CutPrefix(e, "data: ")
		if !ok || strings.Contains(data, "\n") {
			t.Fatalf("not an event: %q", e)
		}
		list = append(list, data)
	}
	return list
}

const hello = `{"contents":[{"role":"user","parts":[{"text":"Hello there, how are you?"}]}]}`

func TestAllMethodsAndPaths(t *testing.T) {
	url := startEmulatedGateway(t)
	// The first path has a slash in place of the colon, as in the old guide.
	for _, path := range []string{
		"/v1/models/gemini-2.5-flash/generateContent", "/v1beta/models/gemini-2.5-flash:generateContent",
		"/v1alpha/models/gemini-2.5-flash:generateContent",
	} {
		status, text := postJSON(t, url+path, `{"contents":[{"parts":[{"text":"Hello"}],"role":"user"}]}`)
		if said := checkResponse(t, text, true); status != 200 || said != "You said: Hello" {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	_, sse := postJSON(t, url+"/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse", hello)
	if list := parseEvents(t, sse); len(list) < 3 || checkStream(t, list) != "You said: Hello there, how are you?" {
		t.Errorf("%q", list)
	}
	_, text := postJSON(t, url+"/v1/models/gemini-2.5-flash/streamGenerateContent", hello)
	var list []json.RawMessage
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list) < 3 {
		t.Fatalf("%v: %s", err, text)
	}
	var all []string
	for _, e := range list {
		all = append(all, string(e))
	}
	checkStream(t, all)
	for path, want := range map[string]string{
		"countTokens": `"totalTokens":`, "embedContent": `"values":[`,
	} {
		body := hello
		if path == "embedContent" {
			body = `{"content":{"parts":[{"text":"a b"}]},"outputDimensionality":8}`
		}
		if status, text := postJSON(t, url+"/v1/models/gemini-embedding-001:"+path, body); status != 200 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	const two = `{"requests":[{"content":{"parts":[{"text":"a"}]}},{"content":{"parts":[{"text":"b"}]}}]}`
	if status, text := postJSON(t, url+"/v1/models/gemini-embedding-001:batchEmbedContents", two); status != 200 ||
		strings.Count(text, `"values"`) != 2 {
		t.Errorf("%d %.100s", status, text)
	}
	for path, want := range map[string]string{"": `"models":[`, "/gemini-3.8-flash": `"name":"models/gemini-3.8-flash"`} {
		resp, err := http.Get(url + "/v1beta/models" + path)
		if status, text := readAnswer(t, resp, err); status != 200 || !strings.Contains(text, want) {
			t.Errorf("GET %s: %d %s", path, status, text)
		}
	}
}

func TestToolsAndJSON(t *testing.T) {
	url := startEmulatedGateway(t) + "/v1/models/gemini-3.8-flash:generateContent"
	const tools = `"tools":[{"functionDeclarations":[{"name":"look_up","parametersJsonSchema":{"type":"object"}}]}]`
	_, text := postJSON(t, url, `{"contents":[{"role":"user","parts":[{"text":"/tool look_up {\"n\":9007199254740993}"}]}],`+tools+`}`)
	checkResponse(t, text, true)
	if !strings.Contains(text, `{"n":9007199254740993}`) || !strings.Contains(text, "thoughtSignature") {
		t.Errorf("%s", text)
	}
	for _, role := range []string{"user", "function"} {
		_, text = postJSON(
			t,
			url,
			`{"contents":[{"role":"`+role+`","parts":[{"functionResponse":{"name":"look_up","id":"1","response":{"output":"sunny"}}}]}],`+tools+`}`,
		)
		if said := checkResponse(t, text, true); !strings.Contains(said, "sunny") {
			t.Errorf("%s", text)
		}
	}
	_, text = postJSON(
		t,
		url,
		`{"contents":[{"parts":[{"text":"rate it"}]}],"generationConfig":{"responseMimeType":"application/json",`+
			`"responseJsonSchema":{"type":"object",`+
			`"properties":{"reason":{"type":"string"},"score":{"type":"integer","minimum":3}}}}}`,
	)
	if said := checkResponse(t, text, true); said != `{"reason":"","score":3}` { // the smallest answer that fits the schema
		t.Errorf("%s", said)
	}
}

// Fields that the backend omits are added, and its mistakes are corrected or reported.
func TestMissingFieldsAreCompleted(t *testing.T) {
	var answer string
	url := startGateway(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Goog-Api-Key") != "google's secret" || r.URL.Query().Get("key") != "" {
			t.Errorf("went up with %v %s", r.Header, r.URL)
		}
		head, body, _ := strings.Cut(answer, "|")
		if head == "500" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		if head == "length" {
			w.Header().Set("Content-Length", "100000") // and less is sent
		}
		io.WriteString(w, body)
	}), nil) + "/v1/models/m:"
	for name, test := range map[string]struct{ sse, said string }{
		"no end":       {`data: {"candidates":[{"content":{"parts":[{"text":"a"}]}}]}` + "\n\n", "a"},
		"no last line": {`data: {"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}`, "a"},
		"two ends": {
			`data: {"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}` + "\n\n" +
				`data: {"candidates":[{"content":{"parts":[{"text":"b"}]},"finishReason":"STOP"}]}` + "\n\n",
			"ab",
		},
		"usage at last": {
			`data: {"candidates":[{"content":{"parts":[{"text":"a"}],"role":"assistant"},"finishReason":"MAX_TOKENS"}]}` + "\n\n" +
				`data: {"usageMetadata":{"promptTokenCount":2,"candidatesTokenCount":3,"thoughtsTokenCount":4,"totalTokenCount":5}}` + "\n\n",
			"a",
		},
		"nothing":      {``, ""},
		"flat content": {`data: {"candidates":[{"content":{"text":"a"}}]}` + "\n\n", "a"},
		"a bare call":  {`data: {"candidates":[{"content":{"parts":[{"functionCall":{"name":"f"}}]}}]}` + "\n\n", ""},
	} {
		answer = "200|" + test.sse
		_, sse := postJSON(t, url+"streamGenerateContent?alt=sse&key=ours", hello)
		if said := checkStream(t, parseEvents(t, sse)); said != test.said {
			t.Errorf("%s: %q", name, sse)
		}
	}
	answer = `length|data: {"candidates":[{"content":{"parts":[{"text":"a"}]}}]}` + "\n\n"
	_, sse := postJSON(t, url+"streamGenerateContent?alt=sse", hello)
	if list := parseEvents(t, sse); len(list) != 2 || !strings.Contains(list[1], `"error":{"code":502`) {
		t.Errorf("a broken stream: %q", list)
	}
	for given, status := range map[string]int{
		"500|" + `{"error":{"code":500,"message":"Ours is google's secret.","status":"INTERNAL"}}`: 500, "500|<html>": 502, "200|<html>": 502,
	} {
		answer = given
		got, text := postJSON(t, url+"generateContent", hello)
		var r response
		if err := json.Unmarshal([]byte(text), &r); err != nil || r.Error == nil || got != status || r.Error.Code != status ||
			strings.Contains(text, "secret") {
			t.Errorf("%s: %d %s", given, got, text)
		}
	}
	answer = `200|{"promptFeedback":{"blockReason":"SAFETY"}}`
	if _, text := postJSON(t, url+"generateContent", hello); !strings.Contains(text, "SAFETY") || strings.Contains(text, "candidates\"") {
		t.Errorf("a refused prompt: %s", text)
	}
}

// A part reaches the client as soon as it arrives, and a client that leaves ends the call.
func TestStreamIsForwardedAtOnce(t *testing.T) {
	more, gone := make(chan struct{}), make(chan struct{})
	url := startGateway(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for n := 0; ; n++ {
			fmt.Fprintf(w, "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"%d\"}]}}]}\n\n", n)
			http.NewResponseController(w).Flush()
			select {
			case <-more:
			case <-r.Context().Done():
				close(gone)
				return
			}
		}
	}), nil)
	ctx, leave := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "POST", url+"/v1/models/m:streamGenerateContent?alt=sse", strings.NewReader(hello))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for n := range 3 {
		line, err := lines.ReadString('\n')
		if err != nil || !strings.Contains(line, fmt.Sprintf(`"text":"%d"`, n)) {
			t.Fatalf("%q %v", line, err)
		}
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		if n < 2 {
			more <- struct{}{}
		}
	}
	leave()
	select {
	case <-gone:
	case <-time.After(10 * time.Second):
		t.Error("the backend goes on")
	}
}

// An answer of a backend is sent even if it takes longer than the server's own deadline.
func TestBackendSlowerThanServerTimeout(t *testing.T) {
	for name, test := range map[string]struct {
		status   int
		body     string
		method   string
		contains string
	}{
		"an answer":  {200, `{"candidates":[{"content":{"parts":[{"text":"late"}]}}]}`, "generateContent", "late"},
		"an error":   {500, `{"error":{"code":500,"message":"too late"}}`, "generateContent", "too late"},
		"nothing":    {500, `<html>`, "generateContent", `"code":502`},
		"no events":  {200, ``, "streamGenerateContent", "STOP"},
		"its events": {200, `data: {"candidates":[{"content":{"parts":[{"text":"late"}]}}]}` + "\n\n", "streamGenerateContent", "late"},
	} {
		t.Run(name, func(t *testing.T) {
			url := startGateway(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				<-time.After(2 * serverTimeout)
				w.WriteHeader(test.status)
				io.WriteString(w, test.body)
			}), nil)
			if _, text := postJSON(t, url+"/v1/models/m:"+test.method, hello); !strings.Contains(text, test.contains) {
				t.Errorf("%s", text)
			}
		})
	}
}

// startLockedGateway returns an endpoint with a backend, and a key with these fields in the keys file.
func startLockedGateway(t *testing.T, fields string, backend http.Handler, routes ...geminirest.Route) (url, key string) {
	t.Helper()
	return startLockedGatewayWithAgents(t, nil, fields, backend, routes...)
}

func startLockedGatewayWithAgents(
	t *testing.T, answers *agents.Folder, fields string, backend http.Handler, routes ...geminirest.Route,
) (url, key string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys.json")
	key, err := access.NewKey(file, "app", []string{access.MayTalk})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, []byte(`"grant": {}`), []byte(fields), 1)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	gate, err := access.New(access.Options{Required: true, Keys: file, Agents: answers, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gate.Close)
	return startGateway(t, backend, gate, routes...) + "/v1/models/m", key
}

// tokenBudget returns the fields of a key with a daily budget of this number of tokens.
func tokenBudget(tokens int) string { return fmt.Sprintf(`"grant": {}, "tokensPerDay": %d`, tokens) }

// testBothBudgets runs a test with a budget in tokens, and with a budget in dollars of the same value.
func testBothBudgets(t *testing.T, test func(t *testing.T, budget func(tokens int) string)) {
	t.Run("tokens", func(t *testing.T) { test(t, tokenBudget) })
	t.Run("dollars", func(t *testing.T) {
		test(t, func(tokens int) string { return fmt.Sprintf(`"grant": {}, "dollarsPerDay": %f`, float64(tokens)/1e6) })
	})
}

// The cost of an answer is counted, also if it breaks off.
func TestInterruptedAnswersAreCharged(t *testing.T) { testBothBudgets(t, whatBreaksOffIsCounted) }

func whatBreaksOffIsCounted(t *testing.T, budget func(tokens int) string) {
	url, key := startLockedGateway(t, budget(60), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100000") // and less is sent
		io.WriteString(w, `data: {"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"totalTokenCount":30}}`+"\n\n")
		io.WriteString(w, `data: {"candidates":[{"content":{"parts":[{"text":"b"}]}}],"usageMetadata":{"totalTokenCount":42}}`+"\n\n")
	}))
	url += ":streamGenerateContent?alt=sse&key=" + key
	for n, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		if status, text := postJSON(t, url, hello); status != want {
			t.Errorf("call %d: %d %s", n, status, text)
		}
	}
}

// The client cannot change what a grant prescribes of the agent, in any spelling.
func TestGrantedAgentIsApplied(t *testing.T) {
	var asked string
	backend := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		asked = string(raw)
		io.WriteString(w, `{}`)
	})
	const agent = `"grant": {"agent": {"prompt": "Sell shoes.", "voice": "Puck", "language": "de-DE", "model": "m"}}`
	url, key := startLockedGateway(t, agent, backend)
	const prompt = `"systemInstruction":{"parts":[{"text":"Sell shoes."}]}`
	const speech = `"generationConfig":{"speechConfig":{"languageCode":"de-DE","voiceConfig":{"prebuiltVoiceConfig":{"voiceName":"Puck"}}}}`
	for _, test := range []struct{ name, body, asked string }{
		{"no prompt", `{"contents":[1.50]}`, `{"contents":[1.50],` + prompt + `}`},
		{"another prompt", `{"systemInstruction":{"parts":[{"text":"Be a pirate."}]}}`, `{` + prompt + `}`},
		{"in snake_case", `{"system_instruction":{"parts":[{"text":"Be a pirate."}]}}`, `{` + prompt + `}`},
		{
			"in all spellings",
			`{"SYSTEM_instruction":1,"systeminstruction":2,"systemInstruction":3,"\u017fystemInstruction":4}`,
			`{` + prompt + `}`,
		},
		{"twice", `{"systemInstruction":1,"systemInstruction":2}`, `{` + prompt + `}`},
		{
			"a voice",
			`{"generationConfig":{"speechConfig":{"voiceConfig":{"prebuiltVoiceConfig":{"voiceName":"Kore"}}}}}`,
			`{` + speech + `,` + prompt + `}`,
		},
		{"two voices", `{"generation_config":{"speech_config":{"multi_speaker_voice_config":{}}}}`, `{` + speech + `,` + prompt + `}`},
		{
			"speech", `{"generationConfig":{"response_modalities":["AUDIO"]}}`,
			`{` + strings.Replace(speech, `{"speech`, `{"response_modalities":["AUDIO"],"speech`, 1) + `,` + prompt + `}`,
		},
		{"no object", `[]`, ""},
		{"no JSON", `{"contents":`, ""},
	} {
		asked = ""
		status, text := postJSON(t, url+":generateContent?key="+key, test.body)
		if asked != test.asked || (status == 200) != (test.asked != "") || status != 200 && status != 400 {
			t.Errorf("%s: %d %s, asked %s", test.name, status, text, asked)
		}
	}
	for _, method := range []string{"generateContent", "embedContent", "countTokens"} {
		asked = ""
		if status, text := postJSON(t, url+"-pro:"+method+"?key="+key, hello); status != 403 || asked != "" {
			t.Errorf("%s of another model: %d %s", method, status, text)
		}
	}
}

// An agent that a grant prescribes determines the model, if that is not a Live model, and the maximum cost of a call.
func TestGrantedAgentFileLimits(t *testing.T) {
	var asked string
	backend := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		asked = string(raw)
		io.WriteString(w, `{}`)
	})
	for _, test := range []struct{ name, file, fields, want string }{
		{"its model", "---\nmodel: m\n---", `"grant": {"agent": "desk"}`, "200 false"},
		{"another model", "---\nmodel: m-pro\n---", `"grant": {"agent": "desk"}`, "403 false"},
		{"a Live model", "---\nmodel: gemini-3.8-live\n---", `"grant": {"agent": "desk"}`, "200 false"},
		{"dollars", "---\nlimits: {dollars: 0.0001}\n---", `"grant": {"agent": "desk"}`, "200 true"},
		{"few dollars", "---\nlimits: {dollars: 0.000001}\n---", `"grant": {"agent": "desk"}`, "429 false"},
		{"the grant's dollars", "", `"grant": {"dollars": 0.0001}`, "200 true"},
		{"few dollars of the grant", "---\nlimits: {dollars: 1}\n---", `"grant": {"agent": "desk", "dollars": 0.000001}`, "429 false"},
		{"dollars of one that it does not fix", "---\nlimits: {dollars: 0.0001}\n---", `"grant": {}`, "200 false"},
	} {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, "desk.md"), []byte(test.file), 0o600); err != nil {
			t.Fatal(err)
		}
		answers, err := agents.Open(folder, "", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		url, key := startLockedGatewayWithAgents(t, answers, test.fields, backend)
		asked = ""
		status, text := postJSON(t, url+":generateContent?key="+key, hello)
		if got := fmt.Sprint(status, " ", strings.Contains(asked, "maxOutputTokens")); got != test.want {
			t.Errorf("%s: %s, want %s: %s %s", test.name, got, test.want, text, asked)
		}
	}
}

// Concurrent calls cost no more than the budget: the backend is asked for no longer answers than the budget permits.
func TestConcurrentCallsKeepToTheBudget(t *testing.T) { testBothBudgets(t, callsAtOnceKeepToTheBudget) }

func callsAtOnceKeepToTheBudget(t *testing.T, budget func(tokens int) string) {
	const calls = 90
	var paid, settled atomic.Int64
	all := make(chan struct{})
	settle := func() { // the backend answers when each call has reached it or was rejected
		if settled.Add(1) == calls {
			close(all)
		}
	}
	url, key := startLockedGateway(t, budget(1500), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct{ GenerationConfig struct{ MaxOutputTokens int } }
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			t.Error(err)
		}
		settle()
		<-all
		cost := 1000
		if most := q.GenerationConfig.MaxOutputTokens; most > 0 {
			cost = min(cost, most)
		}
		paid.Add(int64(cost))
		fmt.Fprintf(w, `{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"totalTokenCount":%d}}`, cost)
	}))
	statuses := make(chan int, calls)
	for n := range calls {
		go func() {
			body := hello
			if n%2 == 0 {
				body = `{"generationConfig":{"maxOutputTokens":1000},` + hello[1:]
			}
			status, text := postJSON(t, url+":generateContent?key="+key, body)
			if statuses <- status; status == http.StatusTooManyRequests {
				settle()
				if !strings.Contains(text, "RetryInfo") && !strings.Contains(text, "is left") {
					t.Errorf("%s", text)
				}
			}
		}()
	}
	counts := map[int]int{}
	for range calls {
		counts[<-statuses]++
	}
	if ok := counts[http.StatusOK]; paid.Load() > 1500 || ok == 0 || ok+counts[http.StatusTooManyRequests] != calls {
		t.Errorf("%d tokens were paid: %v", paid.Load(), counts)
	}
}

// A call that costs more than the rest of the budget is rejected before it is sent, or its answer is limited; unused
// reservations are returned.
func TestCallCostIsReserved(t *testing.T) { testBothBudgets(t, whatACallMayCost) }

func whatACallMayCost(t *testing.T, budget func(tokens int) string) {
	var asked string
	url, key := startLockedGateway(t, budget(10_000), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		asked = string(raw)
		io.WriteString(w, `{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"totalTokenCount":100}}`)
	}))
	text := func(bytes int) string {
		return `"contents":[{"parts":[{"text":"` + strings.Repeat("a", bytes) + `"}]}]`
	}
	media := func(field, kind, mime string) string {
		return fmt.Sprintf(`"contents":[{"parts":[{%q:{%q:%q,"data":%q}}]}]`, field, kind, mime, strings.Repeat("A", 100_000))
	}
	for _, test := range []struct {
		name, method, body string
		status             int
		asked              string
	}{
		{"a limit", "generateContent", `{"generationConfig":{"maxOutputTokens":50},` + text(100) + `}`, 200, `"maxOutputTokens":50}`},
		{"no limit", "generateContent", `{` + text(100) + `}`, 200, `"maxOutputTokens":98`},
		{
			"a limit in snake_case", "streamGenerateContent",
			`{"generation_config":{"max_output_tokens":20000,"temperature":1},` + text(100) + `}`,
			200, `"generationConfig":{"maxOutputTokens":9`,
		},
		{
			"two limits", "generateContent",
			`{"generationConfig":{"maxOutputTokens":5},"generation_config":{"max_output_tokens":20000},` + text(100) + `}`,
			200, `"maxOutputTokens":9`,
		},
		{"more than there is", "generateContent", `{` + text(80_000) + `}`, 429, ""},
		{"a picture", "generateContent", `{` + media("inlineData", "mimeType", "image/png") + `}`, 200, `"maxOutputTokens":8`},
		{"a picture in snake_case", "generateContent", `{` + media("inline_data", "mime_type", "image/png") + `}`, 200, `"maxOutputTokens":8`},
		{"a recording", "generateContent", `{` + media("inlineData", "mimeType", "audio/mp3") + `}`, 200, `"maxOutputTokens":9`},
		{"many to embed", "batchEmbedContents", `{"requests":[{"content":{"parts":[{"text":"` + strings.Repeat("a", 80_000) + `"}]}}]}`, 429, ""},
		{"many to count", "countTokens", `{"generateContentRequest":{` + text(80_000) + `}}`, 429, ""},
	} {
		asked = ""
		status, answer := postJSON(t, url+":"+test.method+"?key="+key, test.body)
		if status != test.status || !strings.Contains(asked, test.asked) || status != 200 && asked != "" ||
			strings.Contains(asked, "max_output") {
			t.Errorf("%s: %d %.200s, asked %.200s", test.name, status, answer, asked)
		}
	}
}

// Embeddings and token counts are charged by their length.
func TestAllMethodsAreCharged(t *testing.T) { testBothBudgets(t, allCallsArePaid) }

func allCallsArePaid(t *testing.T, budget func(tokens int) string) {
	url, key := startLockedGateway(t, budget(1000), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{}`) }))
	url += ":embedContent?key=" + key
	body := `{"content":{"parts":[{"text":"` + strings.Repeat("a", 1600) + `"}]}}` // 400 tokens and a few more
	for n, want := range []int{200, 200, 429} {
		if n == 1 {
			url = strings.Replace(url, "embedContent", "countTokens", 1)
		}
		if status, text := postJSON(t, url, body); status != want {
			t.Errorf("call %d: %d %s", n, status, text)
		}
	}
}

// A single-use token is consumed only after all checks of the gateway have passed, so that only the backend can still reject the
// call.
func TestSingleUseToken(t *testing.T) {
	file, secret := filepath.Join(t.TempDir(), "keys.json"), strings.Repeat("s", 32)
	text := fmt.Sprintf(`{"secret":%q,"issuers":[{"name":"backend","algorithm":"HS256","key":%q,"audience":"voxgate","once":true,`+
		`"grant":{"tokens":1000}}]}`, strings.Repeat("A", 43), secret)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	gate, err := access.New(access.Options{Required: true, Keys: file, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gate.Close)
	url := startGateway(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"models":[]}`) }), gate)
	long := strings.Repeat("a", 8000) // 2000 tokens
	for name, ask := range map[string]func(token, text string) (int, string){
		"generate": func(token, text string) (int, string) {
			return postJSON(t, url+"/v1/models/m:generateContent?key="+token, `{"contents":[{"parts":[{"text":"`+text+`"}]}]}`)
		},
		"list": func(token, text string) (int, string) {
			if text == long {
				return http.StatusTooManyRequests, "" // the gateway never rejects a list, so the row needs its expected status
			}
			resp, err := http.Get(url + "/v1/models?key=" + token)
			return readAnswer(t, resp, err)
		},
	} {
		token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
			"aud": "voxgate", "jti": name, "exp": jwt.NewNumericDate(time.Now().Add(time.Hour)),
		}).SignedString([]byte(secret))
		if err != nil {
			t.Fatal(err)
		}
		for n, row := range []struct {
			text   string
			status int
		}{{long, http.StatusTooManyRequests}, {"Hello", http.StatusOK}, {"Hello", http.StatusUnauthorized}} {
			if status, text := ask(token, row.text); status != row.status {
				t.Errorf("%s, call %d: %d %s", name, n, status, text)
			}
		}
	}
}

// Bytes of requests in progress are limited: a later client waits, and then gets a time to retry. Small requests are
// always read.
func TestConcurrentBodySizeIsLimited(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	refused := make(chan string, 4)
	gate, err := access.New(access.Options{
		Limits: access.Limits{BodyMegabytes: 2}, OnRefused: func(rule string) { refused <- rule }, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gate.Close)
	url := startGateway(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n, err := io.Copy(io.Discard, r.Body); err != nil || n != r.ContentLength {
			t.Errorf("%d of %d bytes came to the backend: %v", n, r.ContentLength, err)
		}
		io.WriteString(w, `{}`)
	}), gate) + "/v1/models/m:generateContent"
	big := `{"contents":[{"parts":[{"text":"` + strings.Repeat("a", 1<<20-1000) + `"}]}]}`
	statuses := make(chan int)
	end := make(chan struct{})
	for range 4 { // each client holds back the end of its body
		go func() {
			begin := io.MultiReader(strings.NewReader(big[:len(big)-10]), blockingReader(end), strings.NewReader(big[len(big)-10:]))
			r, err := http.NewRequest("POST", url, begin)
			if err != nil {
				t.Error(err)
			}
			r.ContentLength = int64(len(big))
			resp, err := http.DefaultClient.Do(r)
			status, text := readAnswer(t, resp, err)
			if status == 503 &&
				(resp.Header.Get("Retry-After") != "5" || !strings.Contains(text, "UNAVAILABLE") || !strings.Contains(text, "RetryInfo")) {
				t.Errorf("%v %s", resp.Header, text)
			}
			statuses <- status
		}()
	}
	for range 2 {
		if rule := <-refused; rule != "bodies" {
			t.Error(rule)
		}
	}
	if status, text := postJSON(t, url, hello); status != 200 {
		t.Errorf("a small one: %d %s", status, text)
	}
	close(end)
	counts := map[int]int{}
	for range 4 {
		counts[<-statuses]++
	}
	if counts[200] != 2 || counts[503] != 2 {
		t.Errorf("answered %v", counts)
	}
	if status, text := postJSON(t, url, big); status != 200 {
		t.Errorf("when they are gone: %d %s", status, text)
	}
}

// blockingReader is an empty reader that ends when c is closed.
type blockingReader chan struct{}

func (b blockingReader) Read([]byte) (int, error) {
	<-b
	return 0, io.EOF
}

// Authentication: the client's key is a token of this gateway.
func TestCallersAreAuthorized(t *testing.T) {
	e := emulator.New(emulator.Options{Logger: slog.New(slog.DiscardHandler), Espeak: emulator.NoVoice})
	t.Cleanup(e.Close)
	url, key := startLockedGateway(t, `"grant": {}`, e)
	url = strings.Replace(url, "/v1/models/m", "/v1beta/models/gemini-3.8-flash:generateContent", 1)
	for name, test := range map[string]struct {
		header http.Header
		query  string
		status int
		named  string
	}{
		"nothing":          {http.Header{}, "", 401, "UNAUTHENTICATED"},
		"a key":            {http.Header{"X-Goog-Api-Key": {key}}, "", 200, ""},
		"a key in the URL": {http.Header{}, "?key=" + key, 200, ""},
		"a bearer":         {http.Header{"Authorization": {"Bearer " + key}}, "", 200, ""},
		"another":          {http.Header{"X-Goog-Api-Key": {"AIza"}}, "", 401, "UNAUTHENTICATED"},
		"a page of strangers": {
			http.Header{"X-Goog-Api-Key": {key}, "Origin": {"https://evil.example"}, "Content-Type": {"text/plain"}},
			"", 403, "",
		},
	} {
		r, err := http.NewRequest("POST", url+test.query, strings.NewReader(hello))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = test.header
		resp, err := http.DefaultClient.Do(r)
		if status, text := readAnswer(t, resp, err); status != test.status || !strings.Contains(text, test.named) {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
}

// An address may call often, but not without limit.
func TestCallsPerAddressAreLimited(t *testing.T) {
	began := time.Now()
	gate, err := access.New(access.Options{
		Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Limits: access.Limits{CallsPerMinute: 40},
		Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return began },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gate.Close)
	e := emulator.New(emulator.Options{Logger: slog.New(slog.DiscardHandler), Espeak: emulator.NoVoice})
	t.Cleanup(e.Close)
	url := startGateway(t, e, gate) + "/v1beta/models/gemini-3.8-flash:countTokens"
	for n := range 41 {
		r, err := http.NewRequest("POST", url, strings.NewReader(hello))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Forwarded-For", "198.51.100.7")
		resp, err := http.DefaultClient.Do(r)
		status, text := readAnswer(t, resp, err)
		if n < 40 && status != 200 || n == 40 && (status != 429 || !strings.Contains(text, "RetryInfo") || resp.Header.Get("Retry-After") == "") {
			t.Fatalf("call %d: %d %s", n+1, status, text)
		}
	}
}

// Google's key is not used for methods that are not on the list, nor for paths other than those of a model.
func TestOtherGooglePathsAreUnreachable(t *testing.T) {
	url, key := startLockedGateway(t, tokenBudget(1000), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("Google was asked: %s %s", r.Method, r.URL)
	}))
	for _, row := range []struct {
		method, model string
		status        int
	}{
		{"GET", "m:batchGenerateContent", 400},
		{"HEAD", "m:batchGenerateContent", 400},
		{"GET", "m%3AbatchGenerateContent", 400},
		{"GET", "m:generateContent", 400},
		{"GET", "%2e%2e", 400},
		{"GET", "m%2F..%2F..%2Ffiles", 400},
		{"POST", "m:batchGenerateContent", 404},
		{"POST", "m:generateContent%2F..%2Ffiles", 404},
		{"POST", "m%2F..%2F..%2Ffiles:generateContent", 400},
		{"POST", "..%2Fm:generateContent", 400},
		{"POST", "%2e%2e:generateContent", 400},
		{"POST", ":generateContent", 404},
	} {
		r, err := http.NewRequest(row.method, strings.TrimSuffix(url, "m")+row.model+"?key="+key, strings.NewReader(hello))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if status, text := readAnswer(t, resp, err); status != row.status {
			t.Errorf("%s %s: %d %s", row.method, row.model, status, text)
		}
	}
}

func TestRefusals(t *testing.T) {
	url := startEmulatedGateway(t) + "/v1/models/"
	for call, want := range map[string]struct {
		body   string
		status int
		says   string
	}{
		"gemini-3.8-flash:sing":            {hello, 404, "no method"},
		"gemini-3.8-flash":                 {hello, 404, "no method"},
		"other:generateContent":            {hello, 404, "not found"},
		"gemini-3.8-flash:generateContent": {`{`, 400, "Invalid JSON"},
		"gemini-3.5-flash:generateContent": {`{}`, 400, "contents is not specified"},
		"gemini-x:generateContent":         {`{"contents":[{"parts":[{"text":"/status 429"}]}]}`, 429, "RetryInfo"},
		"gemini-y:generateContent":         {strings.Repeat(" ", 21<<20), 413, "too large"},
	} {
		status, text := postJSON(t, url+call, want.body)
		if status != want.status || !strings.Contains(text, want.says) || !strings.Contains(text, fmt.Sprintf(`"code":%d`, want.status)) {
			t.Errorf("%s: %d %.300s", call, status, text)
		}
	}
}

// A limit below one is invalid.
func TestNonPositiveOutputLimitIsIgnored(t *testing.T) {
	asked := ""
	url, key := startLockedGateway(t, tokenBudget(10_000), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		asked = string(raw)
		io.WriteString(w, `{"candidates":[]}`)
	}))
	for _, limit := range []string{"0", "-5"} {
		postJSON(t, url+":generateContent?key="+key, `{"generationConfig":{"maxOutputTokens":`+limit+`},"contents":[]}`)
		if !strings.Contains(asked, `"maxOutputTokens":9`) {
			t.Errorf("%s: asked %s", limit, asked)
		}
	}
}
