package geminirest_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"voxgate/signaling/compat/geminirest"
)

// chatRequest is a request as in the reference: https://platform.openai.com/docs/api-reference/chat/create.
type chatRequest struct {
	Model    string
	Messages []struct {
		Role       string
		Content    json.RawMessage
		ToolCallID string `json:"tool_call_id"`
		ToolCalls  []struct {
			ID, Type string
			Function struct{ Name, Arguments string }
		} `json:"tool_calls"`
	}
	Stream        bool
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Tools []struct {
		Type     string
		Function struct {
			Name       string
			Parameters map[string]any
		}
	}
	ToolChoice     json.RawMessage `json:"tool_choice"`
	ResponseFormat *struct {
		Type       string
		JSONSchema struct {
			Name   string
			Schema map[string]any
		} `json:"json_schema"`
	} `json:"response_format"`
	Temperature         *float64
	MaxCompletionTokens int `json:"max_completion_tokens"`
	Stop                []string
}

// check rejects what a strict server would reject.
func (cr *chatRequest) check() error {
	open := map[string]bool{}
	for i, m := range cr.Messages {
		if m.Role != "tool" && len(open) > 0 {
			return fmt.Errorf("messages[%d]: calls without an answer: %v", i, open)
		}
		if m.Role == "assistant" && len(m.Content) == 0 && len(m.ToolCalls) == 0 {
			return fmt.Errorf("messages[%d] is empty", i)
		}
		switch m.Role {
		case "system", "user":
		case "assistant":
			for _, c := range m.ToolCalls {
				if c.ID == "" || c.Type != "function" || !json.Valid([]byte(c.Function.Arguments)) {
					return fmt.Errorf("messages[%d].tool_calls: %+v", i, c)
				}
				open[c.ID] = true
			}
		case "tool":
			if !open[m.ToolCallID] {
				return fmt.Errorf("messages[%d]: the id %q is that of no call", i, m.ToolCallID)
			}
			delete(open, m.ToolCallID)
		default:
			return fmt.Errorf("messages[%d].role %q", i, m.Role)
		}
	}
	for _, t := range cr.Tools {
		if kind, _ := t.Function.Parameters["type"].(string); t.Type != "function" || t.Function.Name == "" || kind != "object" {
			return fmt.Errorf("tools: %+v", t)
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("calls without an answer: %v", open)
	}
	return nil
}

// chatServer is a server of chat completions that repeats its input, calls tools at "/tool", and rejects fields that
// are not in the reference.
type chatServer struct {
	t   *testing.T
	got chan chatRequest
}

func (s *chatServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	fail := func(status int, message string) {
		w.Header().Set("Retry-After", "3")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"error":{"message":%q,"type":"t","param":null,"code":null}}`, message)
	}
	if r.Header.Get("Authorization") != "Bearer sk-test" || r.Header.Get("X-Goog-Api-Key") != "" {
		fail(401, "Incorrect API key provided.")
		return
	}
	body, _ := io.ReadAll(r.Body)
	if r.URL.Path == "/v1/embeddings" {
		var q struct{ Input []string }
		_ = json.Unmarshal(body, &q)
		var list []string
		for i := range q.Input {
			list = append(list, fmt.Sprintf(`{"object":"embedding","index":%d,"embedding":[0.5,%d]}`, i, i))
		}
		fmt.Fprintf(w, `{"object":"list","data":[%s],"model":"e","usage":{"prompt_tokens":1,"total_tokens":1}}`, strings.Join(list, ","))
		return
	}
	var q chatRequest
	if err := json.Unmarshal(body, &q); err != nil || r.URL.Path != "/v1/chat/completions" {
		fail(400, fmt.Sprint(err, r.URL.Path))
		return
	}
	if err := q.check(); err != nil {
		fail(400, err.Error())
		return
	}
	s.got <- q
	last := q.Messages[len(q.Messages)-1]
	var text string
	if json.Unmarshal(last.Content, &text) != nil {
		text = "a picture"
	}
	const usage = `"usage":{"prompt_tokens":7,"completion_tokens":9,"total_tokens":16,"completion_tokens_details":{"reasoning_tokens":4}}`
	word, rest, _ := strings.Cut(text, " ")
	name, args, _ := strings.Cut(rest, " ")
	switch {
	case word == "/fail":
		fail(429, "Rate limit reached.")
	case word == "/think" && !q.Stream:
		fmt.Fprint(w, `{"model":"m","choices":[{"index":0,"finish_reason":"stop",`+
			`"message":{"role":"assistant","reasoning_content":"Hm.","content":"So."}}],`+
			`"usage":{"prompt_tokens":7,"completion_tokens":2,"completion_tokens_details":{"reasoning_tokens":4}}}`)
	case !q.Stream && word == "/tool":
		fmt.Fprintf(
			w,
			`{"id":"1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"tool_calls",`+
				`"message":{"role":"assistant","content":null,"tool_calls":[`+
				`{"id":"call_a","type":"function","function":{"name":%q,"arguments":%q}}]}}],%s}`,
			name,
			args,
			usage,
		)
	case !q.Stream:
		if q.ResponseFormat != nil {
			text = `{"n":1}`
		}
		fmt.Fprintf(
			w,
			`{"id":"1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop",`+
				`"message":{"role":"assistant","content":%q}}],%s}`,
			"You said: "+text,
			usage,
		)
	default:
		w.Header().Set("Content-Type", "text/event-stream")
		chunk := func(delta, finish string) {
			fmt.Fprintf(
				w,
				`data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m",`+
					`"choices":[{"index":0,"delta":%s,"finish_reason":%s}]}`+"\n\n",
				delta,
				finish,
			)
			http.NewResponseController(w).Flush()
		}
		chunk(`{"role":"assistant","content":""}`, "null")
		if word == "/think" {
			chunk(`{"reasoning":"Hm."}`, "null")
		}
		if word == "/tool" {
			for i, id := range []string{"call_a", "call_b"} { // two concurrent calls, their arguments in pieces
				chunk(fmt.Sprintf(`{"tool_calls":[{"index":%d,"id":%q,"type":"function","function":{"name":%q,"arguments":""}}]}`, i, id, name), "null")
			}
			for i := range 2 {
				for _, part := range []string{args[:len(args)/2], args[len(args)/2:]} {
					chunk(fmt.Sprintf(`{"tool_calls":[{"index":%d,"function":{"arguments":%q}}]}`, i, part), "null")
				}
			}
			chunk(`{}`, `"tool_calls"`)
		} else {
			for _, piece := range strings.SplitAfter("You said: "+text, " ") {
				chunk(fmt.Sprintf(`{"content":%q}`, piece), "null")
				switch strings.TrimSpace(piece) {
				case "/die":
					panic(http.ErrAbortHandler)
				case "/overload": // how servers end a stream after a failure
					fmt.Fprint(w, "data: {\"error\":{\"message\":\"Overloaded, by sk-test.\",\"code\":502}}\n\n")
					return
				}
			}
			chunk(`{}`, map[bool]string{true: `"length"`, false: `"stop"`}[word == "/long"])
		}
		if q.StreamOptions.IncludeUsage {
			fmt.Fprintf(w, "data: {\"id\":\"1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[],%s}\n\n", usage)
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
	}
}

// startChatGateway returns a gateway that routes all models to a server of chat completions.
func startChatGateway(t *testing.T) (url string, s *chatServer) {
	t.Helper()
	routes, s := startChatServer(t)
	return startGateway(t, http.NotFoundHandler(), nil, routes...) + "/v1beta/models/gpt-x:", s
}

func startChatServer(t *testing.T) ([]geminirest.Route, *chatServer) {
	t.Helper()
	s := &chatServer{t: t, got: make(chan chatRequest, 16)}
	up := httptest.NewServer(s)
	t.Cleanup(up.Close)
	file := filepath.Join(t.TempDir(), "models.json")
	text := `{"models":[{"model":"gpt-*","openai":{"url":"` + up.URL + `/v1","key":"${VOXGATE_TEST_OPENAI_KEY}","model":"local"}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("VOXGATE_TEST_OPENAI_KEY", "sk-test")
	routes, err := geminirest.ReadRoutes(file)
	if err != nil {
		t.Fatal(err)
	}
	return routes, s
}

func TestChatCompletions(t *testing.T) {
	url, s := startChatGateway(t)
	body := `{"systemInstruction":{"parts":[{"text":"Be brief."}]},"contents":[{"role":"user","parts":[{"text":"Hello there"}]}],
		"generationConfig":{"temperature":0.5,"maxOutputTokens":99,"stopSequences":["END"]}}`
	status, text := postJSON(t, url+"generateContent", body)
	if said := checkResponse(t, text, true); status != 200 || said != "You said: Hello there" ||
		!strings.Contains(text, `"thoughtsTokenCount":4,"totalTokenCount":16`) {
		t.Errorf("%d %s", status, text)
	}
	q := <-s.got
	if q.Model != "local" || q.Messages[0].Role != "system" || q.Messages[1].Role != "user" || *q.Temperature != 0.5 ||
		q.MaxCompletionTokens != 99 ||
		q.Stop[0] != "END" {
		t.Errorf("went up as %+v", q)
	}
	_, sse := postJSON(t, url+"streamGenerateContent?alt=sse", body)
	list := parseEvents(t, sse)
	if said := checkStream(t, list); said != "You said: Hello there" || len(list) < 4 ||
		!strings.Contains(list[len(list)-1], `"totalTokenCount":16`) {
		t.Errorf("%q", list)
	}
	_, sse = postJSON(t, url+"streamGenerateContent?alt=sse", `{"contents":[{"parts":[{"text":"/long story"}]}]}`)
	if list := parseEvents(t, sse); !strings.Contains(list[len(list)-1], "MAX_TOKENS") {
		t.Errorf("%q", list)
	}
	_, sse = postJSON(t, url+"streamGenerateContent?alt=sse", `{"contents":[{"parts":[{"text":"I /die now"}]}]}`)
	if list := parseEvents(t, sse); !strings.Contains(list[len(list)-1], `"error":{"code":502`) {
		t.Errorf("%q", list)
	}
	_, sse = postJSON(t, url+"streamGenerateContent?alt=sse", `{"contents":[{"parts":[{"text":"I /overload it"}]}]}`)
	if list := parseEvents(t, sse); !strings.Contains(list[len(list)-1], `"error":{"code":502`) || !strings.Contains(sse, "Overloaded") ||
		strings.Contains(sse, "sk-test") {
		t.Errorf("an error in a stream: %q", list)
	}
	status, text = postJSON(t, url+"generateContent", `{"contents":[{"parts":[{"text":"/fail"}]}]}`)
	if status != 429 || !strings.Contains(text, "Rate limit reached.") || !strings.Contains(text, "RESOURCE_EXHAUSTED") {
		t.Errorf("%d %s", status, text)
	}
	_, text = postJSON(t, url+"batchEmbedContents", `{"requests":[{"content":{"parts":[{"text":"a"}]}},{"content":{"parts":[{"text":"b"}]}}]}`)
	if text != `{"embeddings":[{"values":[0.5,0]},{"values":[0.5,1]}]}` {
		t.Errorf("%s", text)
	}
	if status, text = postJSON(t, url+"countTokens", body); status != 501 || !strings.Contains(text, "UNIMPLEMENTED") {
		t.Errorf("%d %s", status, text)
	}
	const recording = `{"contents":[{"parts":[{"inlineData":{"mimeType":"audio/wav","data":"AA=="}}]}]}`
	if status, text = postJSON(t, url+"generateContent", recording); status != 400 || !strings.Contains(text, "audio/wav") {
		t.Errorf("%d %s", status, text)
	}
}

// Model names may contain colons, like Ollama's; the method follows the last colon.
func TestModelNameWithColon(t *testing.T) {
	routes, s := startChatServer(t)
	routes[0].OpenAI.Model = ""
	url := startGateway(t, http.NotFoundHandler(), nil, routes...)
	for _, path := range []string{"/v1beta/models/gpt-2.5:7b:generateContent", "/v1/models/gpt-2.5:7b/generateContent"} {
		status, text := postJSON(t, url+path, hello)
		if status != http.StatusOK {
			t.Fatalf("%s: %d %s", path, status, text)
		}
		if q := <-s.got; q.Model != "gpt-2.5:7b" {
			t.Errorf("%s went up to %s", path, q.Model)
		}
	}
}

// Google's own curl examples use snake_case, and names of properties that are the client's own.
func TestChatCompletionsInSnakeCase(t *testing.T) {
	url, s := startChatGateway(t)
	status, text := postJSON(t, url+"generateContent", `{"system_instruction":{"parts":[{"text":"Be brief."}]},
		"contents":[{"role":"user","parts":[{"text":"look"},{"inline_data":{"mime_type":"image/png","data":"_-8"}}]}],
		"tools":[{"function_declarations":[{"name":"look_up",
			"parameters":{"type":"object","properties":{"any_of_them":{"type":"string","max_length":9}}}}]}],
		"tool_config":{"function_calling_config":{"mode":"ANY","allowed_function_names":["look_up"]}},
		"generation_config":{"max_output_tokens":99,"stop_sequences":["END"],"response_mime_type":"application/json"}}`)
	if status != 200 {
		t.Fatal(status, text)
	}
	q := <-s.got
	properties, _ := q.Tools[0].Function.Parameters["properties"].(map[string]any)
	if q.Messages[0].Role != "system" || !strings.Contains(string(q.Messages[1].Content), "data:image/png;base64,/+8=") ||
		properties["any_of_them"] == nil || q.MaxCompletionTokens != 99 || q.Stop[0] != "END" || q.ResponseFormat == nil ||
		!strings.Contains(string(q.ToolChoice), "look_up") {
		t.Errorf("went up as %+v", q)
	}
}

// A request must not contain parts that strict servers reject. These are empty turns, turns with only thoughts, calls without a
// response, and responses without a call.
func TestChatCompletionsForStrictServers(t *testing.T) {
	url, s := startChatGateway(t)
	ask := func(contents string) (int, string) {
		return postJSON(t, url+"generateContent", `{"contents":[`+contents+`]}`)
	}
	const user = `{"role":"user","parts":[{"text":"go"}]}`
	const called = `{"role":"model","parts":[{"functionCall":{"name":"f","id":"1"}},{"functionCall":{"name":"g"}}]}`
	const answered = `{"role":"user","parts":[{"functionResponse":{"id":"1","name":"f","response":{}}}]}`
	for name, contents := range map[string]string{
		"an empty turn":           user + `,{"role":"model","parts":[]},` + user,
		"thoughts alone":          user + `,{"role":"model","parts":[{"text":"hm","thought":true}]},` + user,
		"calls without an answer": user + `,` + called + `,` + user,
		"one without an answer":   user + `,` + called + `,` + answered,
		"an answer too late":      user + `,` + called + `,` + user + `,` + answered,
		"an answer to no call":    user + `,{"role":"user","parts":[{"functionResponse":{"id":"9","name":"f","response":{"a":1}}}]}`,
	} {
		status, text := ask(contents)
		if status != 200 {
			t.Errorf("%s: %d %s", name, status, text)
			continue
		}
		checkResponse(t, text, true)
		<-s.got
	}
	for contents, want := range map[string]string{
		`{"role":"model","parts":[{"text":"hm","thought":true}]}`: "nothing that could be answered",
		`{"parts":[{"text":"x"},{"file_data":{"file_uri":"x"}}]}`: "contents[0].parts[1].fileData",
	} {
		if status, text := ask(contents); status != 400 || !strings.Contains(text, want) {
			t.Errorf("%d %s", status, text)
		}
	}
}

// Thoughts are separate parts, an invalid usage is never below 0, and arguments that are not JSON end the answer.
func TestChatCompletionsAnswers(t *testing.T) {
	url, _ := startChatGateway(t)
	thinks := `{"contents":[{"parts":[{"text":"/think"}]}]}`
	_, text := postJSON(t, url+"generateContent", thinks)
	if said := checkResponse(t, text, true); said != "So." || !strings.Contains(text, `{"text":"Hm.","thought":true}`) ||
		!strings.Contains(text, `"candidatesTokenCount":0`) {
		t.Errorf("%s", text)
	}
	_, sse := postJSON(t, url+"streamGenerateContent?alt=sse", thinks)
	if list := parseEvents(t, sse); checkStream(t, list) != "You said: /think" || !strings.Contains(sse, `{"text":"Hm.","thought":true}`) {
		t.Errorf("%s", sse)
	}
	broken := `{"contents":[{"parts":[{"text":"/tool f {\"n\":"}]}]}`
	_, text = postJSON(t, url+"generateContent", broken)
	if checkResponse(t, text, true); !strings.Contains(text, `"finishReason":"MALFORMED_FUNCTION_CALL"`) ||
		strings.Contains(text, "functionCall\"") {
		t.Errorf("%s", text)
	}
	_, sse = postJSON(t, url+"streamGenerateContent?alt=sse", broken)
	list := parseEvents(t, sse)
	if checkStream(t, list); !strings.Contains(list[len(list)-1], `"finishReason":"MALFORMED_FUNCTION_CALL"`) {
		t.Errorf("%s", sse)
	}
	_, text = postJSON(t, url+"generateContent", `{"contents":[{"parts":[{"text":"/fail"}]}]}`)
	if !strings.Contains(text, "RetryInfo") || !strings.Contains(text, `"retryDelay":"3s"`) {
		t.Errorf("%s", text)
	}
}

// Functions that are not allowed are not declared to the server.
func TestChatCompletionsAllowedFunctions(t *testing.T) {
	url, s := startChatGateway(t)
	postJSON(t, url+"generateContent", `{"contents":[{"parts":[{"text":"x"}]}],"tools":[{"functionDeclarations":[
		{"name":"a","parameters":{"type":"OBJECT"}},{"name":"b","parameters":{"type":"OBJECT"}},{"name":"c","parameters":{"type":"OBJECT"}}]}],
		"toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["a","c"]}}}`)
	if q := <-s.got; len(q.Tools) != 2 || q.Tools[1].Function.Name != "c" || string(q.ToolChoice) != `"required"` {
		t.Errorf("%+v", q)
	}
}

// The model's earlier text is returned to it unchanged, in however many pieces it came.
func TestChatCompletionsEarlierAnswers(t *testing.T) {
	url, s := startChatGateway(t)
	postJSON(
		t,
		url+"generateContent",
		`{"contents":[{"role":"user","parts":[{"text":"a"}]},`+
			`{"role":"model","parts":[{"text":"Hel"},{"text":"hm","thought":true},{"text":"lo."}]},`+
			`{"role":"user","parts":[{"text":"b"}]}]}`,
	)
	if q := <-s.got; string(q.Messages[1].Content) != `"Hello."` {
		t.Errorf("%s", q.Messages[1].Content)
	}
}

// A stream that breaks off before it has reported its usage is charged by its length.
func TestChatCompletionsThatBreakOffAreCounted(t *testing.T) {
	routes, _ := startChatServer(t)
	url, key := startLockedGateway(t, tokenBudget(150), http.NotFoundHandler(), routes...)
	url = strings.TrimSuffix(url, "m") + "gpt-x"
	body := `{"contents":[{"parts":[{"text":"` + strings.Repeat("word ", 100) + `/die"}]}]}`
	for n, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		if status, text := postJSON(t, url+":streamGenerateContent?alt=sse&key="+key, body); status != want {
			t.Errorf("call %d: %d %.200s", n, status, text)
		}
	}
}

func TestChatCompletionsWithTools(t *testing.T) {
	url, s := startChatGateway(t)
	const declared = `"tools":[{"functionDeclarations":[{"name":"look_up","description":"d",
		"parameters":{"type":"OBJECT","properties":{"n":{"type":"INTEGER"}}}}]}],
		"toolConfig":{"functionCallingConfig":{"mode":"ANY"}}`
	_, text := postJSON(t, url+"generateContent", `{"contents":[{"role":"user","parts":[{"text":"/tool look_up {\"n\":1}"}]}],`+declared+`}`)
	checkResponse(t, text, true)
	if !strings.Contains(text, `"functionCall":{"args":{"n":1},"id":"call_a","name":"look_up"}`) {
		t.Errorf("%s", text)
	}
	if q := <-s.got; string(q.ToolChoice) != `"required"` ||
		q.Tools[0].Function.Parameters["properties"].(map[string]any)["n"].(map[string]any)["type"] != "integer" {
		t.Errorf("%+v", q)
	}
	_, sse := postJSON(
		t,
		url+"streamGenerateContent?alt=sse",
		`{"contents":[{"role":"user","parts":[{"text":"/tool look_up {\"n\":1}"}]}],`+declared+`}`,
	)
	list := parseEvents(t, sse)
	checkStream(t, list)
	if last := list[len(list)-1]; strings.Count(last, `{"args":{"n":1},"id":"call_`) != 2 {
		t.Errorf("%s", last)
	}
	// Function responses in a request: with ids, without them, and in the role function.
	for name, ids := range map[string][2]string{"ids": {`"id":"call_a",`, `"id":"call_b",`}, "no ids": {"", ""}} {
		for _, role := range []string{"user", "function"} {
			body := fmt.Sprintf(`{"contents":[{"role":"user","parts":[{"text":"go"}]},
				{"role":"model","parts":[{"text":"hm","thought":true},
					{"functionCall":{%s"name":"look_up","args":{"n":1}}},
					{"functionCall":{%s"name":"look_up","args":{"n":2}}}]},
				{"role":%q,"parts":[
					{"functionResponse":{%s"name":"look_up","response":{"output":"one"}}},
					{"functionResponse":{%s"name":"look_up","response":{"error":"no two"}}}]}],%s}`,
				ids[0], ids[1], role, ids[0], ids[1], declared)
			status, text := postJSON(t, url+"generateContent", body)
			if said := checkResponse(t, text, true); status != 200 || !strings.Contains(said, "no two") {
				t.Errorf("%s, %s: %d %s", name, role, status, text)
			}
		}
	}
	for range 5 {
		<-s.got
	}
	_, text = postJSON(t, url+"generateContent",
		`{"contents":[{"parts":[{"text":"rate"},{"inlineData":{"mimeType":"image/png","data":"AA=="}}]}],
		"generationConfig":{"responseMimeType":"application/json",
			"responseSchema":{"type":"OBJECT","properties":{"n":{"type":"INTEGER","nullable":true}}}}}`)
	checkResponse(t, text, true)
	q := <-s.got
	schema, _ := json.Marshal(q.ResponseFormat.JSONSchema.Schema)
	if want := `{"properties":{"n":{"type":["integer","null"]}},"type":"object"}`; string(schema) != want {
		t.Errorf("schema %s, want %s", schema, want)
	}
	if q.ResponseFormat.Type != "json_schema" || !strings.Contains(string(q.Messages[0].Content), "data:image/png;base64,AA==") {
		t.Errorf("%+v", q)
	}
}

func TestBadModelsFiles(t *testing.T) {
	for text, says := range map[string]string{
		`{"models":[{"model":""}]}`:                             "models[0].model",
		`{"models":[{"model":"["}]}`:                            "models[0].model",
		`{"models":[{"modle":"x"}]}`:                            "modle",
		`{"models":[{"model":"x","openai":{"url":"ftp://x"}}]}`: "models[0].openai.url",
		`{"models":[{"model":"x","openai":{"url":"http://x","key":"${NOT_THERE}"}}]}`: "models[0].openai.key: " +
			"environment variable NOT_THERE is not set",
	} {
		file := filepath.Join(t.TempDir(), "models.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := geminirest.ReadRoutes(file); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
