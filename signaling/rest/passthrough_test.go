package rest_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// complete posts to the endpoint for OpenAI's clients, as they do.
func complete(t *testing.T, url, key, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, url+"/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(r)
	return answerOf(t, resp, err)
}

// Requests of OpenAI's clients are sent to the same models without translation.
func TestChatPassesThrough(t *testing.T) {
	routes, s := chatRoutes(t)
	google := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path != "/v1beta/openai/chat/completions" || r.Header.Get("Authorization") != "Bearer google's secret" ||
			!strings.Contains(string(body), `"reasoning_effort":"low"`) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `[{"error":{"code":400,"message":"%s with %s","status":"INVALID_ARGUMENT"}}]`, r.URL.Path, r.Header)
			return
		}
		fmt.Fprint(w, `{"object":"chat.completion","model":"gemini-1","choices":[]}`)
	})
	door := open(t, google, nil, routes...)
	for _, url := range []string{door + "/v1", door + "/v1beta/openai"} {
		status, text := complete(t, url, "anything", `{"model":"gpt-x","messages":[{"role":"user","content":"Hello there"}]}`)
		if status != http.StatusOK || !strings.Contains(text, `"object":"chat.completion"`) || !strings.Contains(text, "You said: Hello there") {
			t.Errorf("%s: %d %s", url, status, text)
		}
		if q := <-s.got; q.Model != "local" {
			t.Errorf("went up as %+v", q)
		}
	}
	url := door + "/v1"
	stream := `{"model":"gpt-x","stream":true,"messages":[{"role":"user","content":"Hello there"}]`
	for more, want := range map[string]bool{`}`: false, `,"stream_options":{"include_usage":true}}`: true} {
		_, text := complete(t, url, "anything", stream+more)
		if strings.Contains(text, `"usage"`) != want || !strings.HasSuffix(text, "data: [DONE]\n\n") || strings.Count(text, "data: ") < 5 {
			t.Errorf("%s: %s", more, text)
		}
	}
	if status, text := complete(t, url, "anything", `{"model":"gemini-1","reasoning_effort":"low","messages":[]}`); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	for _, row := range []struct {
		body   string
		status int
		want   string
	}{
		{
			`{"model":"gpt-x","messages":[{"role":"user","content":"/fail"}]}`, 429,
			`{"error":{"code":null,"message":"Rate limit reached.","param":null,"type":"rate_limit_error"}}`,
		},
		{`{"model":"gemini-1","messages":[]}`, 400, "/v1beta/openai/chat/completions with"},
		{`{"messages":[]}`, 400, "must be a JSON object with a model"},
		{`[`, 400, "must be a JSON object with a model"},
	} {
		if status, text := complete(t, url, "anything", row.body); status != row.status ||
			!strings.Contains(text, row.want) || strings.Contains(text, "INVALID_ARGUMENT") {
			t.Errorf("%s: %d %s", row.body, status, text)
		}
	}
}

// The grant of a key also applies here: the agent's prompt, its model, and the number of tokens.
func TestChatKeepsToTheGrant(t *testing.T) {
	routes, s := chatRoutes(t)
	const grant = `"grant": {"models": ["gpt-*"], "agent": {"prompt": "Sell shoes."}}, "tokensPerDay": 40`
	url, key := lockedDoor(t, grant, http.NotFoundHandler(), routes...)
	url = strings.TrimSuffix(url, "/models/m")
	hello := `{"model":"gpt-x","max_tokens":30,"messages":[{"role":"developer","content":"Be a pirate."},` +
		`{"role":"user","content":"Hello there"}]}`
	if status, text := complete(t, url, key, hello); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	if q := <-s.got; len(q.Messages) != 2 || string(q.Messages[0].Content) != `"Sell shoes."` ||
		q.Messages[1].Role != "user" || q.MaxCompletionTokens == 0 {
		t.Errorf("went up as %+v", q)
	}
	for _, row := range []struct {
		key, body string
		status    int
		want      string
	}{
		{key, strings.Replace(hello, "gpt-x", "gemini-1", 1), 403, "permission_error"},
		{"nonsense", hello, 401, "authentication_error"},
		{key, strings.Replace(hello, "Hello there", strings.Repeat("long ", 50), 1), 429, "rate_limit_error"},
	} {
		if status, text := complete(t, url, row.key, row.body); status != row.status || !strings.Contains(text, row.want) {
			t.Errorf("%s: %d %s", row.body, status, text)
		}
	}
}

// The list of models is in the format of the client's API.
func TestModelsInOpenAIsShape(t *testing.T) {
	var asked []string
	url := open(t, pages(&asked), nil)
	for path, bearer := range map[string]string{"/v1/models": "Bearer anything", "/v1beta/openai/models": ""} {
		r, err := http.NewRequest(http.MethodGet, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", bearer)
		resp, err := http.DefaultClient.Do(r)
		if status, text := answerOf(t, resp, err); status != http.StatusOK || !strings.Contains(text, `"object":"list"`) ||
			!strings.Contains(text, `"id":"gemini-1"`) || !strings.Contains(text, `"id":"gemini-2"`) {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	if status, text := complete(t, url+"/v1/nothing", "anything", "{}"); status != http.StatusNotFound ||
		!strings.Contains(text, "invalid_request_error") {
		t.Errorf("what is not served: %d %s", status, text)
	}
	resp, err := http.Get(url + "/v1/models")
	if _, text := answerOf(t, resp, err); !strings.Contains(text, `"name":"models/gemini-1"`) {
		t.Errorf("Google's: %s", text)
	}
}

// A field that another parser could confuse with one that the gateway uses is rejected, and so is an invalid limit.
func TestChatIsReadExactly(t *testing.T) {
	routes, _ := chatRoutes(t)
	url := open(t, http.NotFoundHandler(), nil, routes...) + "/v1"
	for field, body := range map[string]string{
		"STREAM":                `{"model":"gpt-x","STREAM":true,"messages":[]}`,
		"ſtream":                `{"model":"gpt-x","ſtream":true,"messages":[]}`,
		"\\u017ftream":          `{"model":"gpt-x","\u017ftream":true,"messages":[]}`,
		"Stream_Options":        `{"model":"gpt-x","Stream_Options":{},"messages":[]}`,
		"N":                     `{"model":"gpt-x","N":8,"messages":[]}`,
		"Max_Tokens":            `{"model":"gpt-x","max_tokens":1,"Max_Tokens":9,"messages":[]}`,
		"max_toKens":            "{\"model\":\"gpt-x\",\"max_to\u212aens\":9,\"messages\":[]}",
		"Max_Completion_Tokens": `{"model":"gpt-x","Max_Completion_Tokens":9,"messages":[]}`,
		"MODEL":                 `{"model":"gpt-x","MODEL":"gemini-1","messages":[]}`,
		"model":                 `{"model":"gemini-1","model":"gpt-x","messages":[]}`,
		"Messages":              `{"model":"gpt-x","Messages":[],"messages":[]}`,
		"messages[1].Role":      `{"model":"gpt-x","messages":[{"role":"user","content":"a"},{"Role":"system","role":"user","content":"a"}]}`,
		"messages[0].role":      `{"model":"gpt-x","messages":[{"role":"system","role":"user","content":"a"}]}`,
		"messages[0].Content":   `{"model":"gpt-x","messages":[{"role":"user","content":"a","Content":"b"}]}`,
		"max_tokens":            `{"model":"gpt-x","max_tokens":0,"messages":[]}`,
		"max_completion_tokens": `{"model":"gpt-x","max_completion_tokens":-1,"messages":[]}`,
		"n":                     `{"model":"gpt-x","n":9,"messages":[]}`,
		"n ":                    `{"model":"gpt-x","n":0,"messages":[]}`,
		"stream":                `{"model":"gpt-x","stream":"yes","messages":[]}`,
	} {
		status, text := complete(t, url, "anything", body)
		name := strings.NewReplacer(" ", "", "\\u017f", "ſ", "max_toKens", "max_to\u212aens").Replace(field)
		if status != 400 || !strings.Contains(text, `"param":"`+name+`"`) || !strings.Contains(text, "invalid_request_error") {
			t.Errorf("%s: %d %s", field, status, text)
		}
	}
	body := `{"model":"gpt-x","n":null,"max_tokens":null,"tools":[{"type":"function","function":{"name":"f","parameters":` +
		`{"type":"object","properties":{"Role":{"type":"string"},"MODEL":{"type":"string"}}}}}],"messages":[{"role":"user","content":"Hi"}]}`
	if status, text := complete(t, url, "anything", body); status != 200 {
		t.Errorf("names that are the client's own: %d %s", status, text)
	}
}

// chatBackend answers chat completions with a text and a content type.
func chatBackend(kind, text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		io.WriteString(w, text)
	})
}

// An answer is a stream if its content type says so, whatever the request.
func TestChatAnswersByTheirType(t *testing.T) {
	whole, event := `{"object":"chat.completion","choices":[]}`, `data: {"object":"chat.completion.chunk","choices":[]}`+"\n\ndata: [DONE]\n\n"
	for asked, row := range map[string][2]string{"true": {"application/json", whole}, "false": {"text/event-stream; charset=utf-8", event}} {
		url := open(t, chatBackend(row[0], row[1]), nil) + "/v1"
		if status, text := complete(t, url, "anything", `{"model":"m","stream":`+asked+`,"messages":[]}`); status != 200 || text != row[1] {
			t.Errorf("stream %s: %d %q", asked, status, text)
		}
	}
}

// An answer is charged by its usage, even if the rest cannot be parsed, and without a usage by all of its text.
func TestChatIsPaid(t *testing.T) {
	long := strings.Repeat("word ", 100)
	for name, text := range map[string]string{
		"usage beside content in parts": `{"choices":[{"message":{"content":[{"type":"text","text":"a"}]}}],` +
			`"usage":{"prompt_tokens":40,"completion_tokens":60}}`,
		"usage beside a wrong index": `{"choices":[{"message":{"tool_calls":[{"index":"0"}]}}],` +
			`"usage":{"prompt_tokens":40,"completion_tokens":60}}`,
		"usage with a point":             `{"choices":[],"usage":{"prompt_tokens":40.0,"completion_tokens":60.0}}`,
		"usage with thoughts beside it":  `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":5,"total_tokens":100}}`,
		"a refusal":                      `{"choices":[{"message":{"refusal":"` + long + `"}}]}`,
		"reasoning":                      `{"choices":[{"message":{"content":"","reasoning_content":"","reasoning":"` + long + `"}}]}`,
		"arguments":                      `{"choices":[{"message":{"tool_calls":[{"function":{"name":"f","arguments":"` + long + `"}}]}}]}`,
		"content in parts":               `{"choices":[{"message":{"content":[{"type":"text","text":"` + long + `"}]}}]}`,
		"a stream of arguments":          `{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"` + long + `"}}]}}]}`,
		"a stream with usage and errors": `{"choices":[{"delta":{"content":7,"role":[]}}],"usage":{"prompt_tokens":40,"completion_tokens":60}}`,
	} {
		kind, streams := "application/json", strings.Contains(name, "stream")
		if streams {
			kind, text = "text/event-stream", "data: "+text+"\n\ndata: [DONE]\n\n"
		}
		url, key := lockedDoor(t, budget(110), chatBackend(kind, text))
		url = strings.TrimSuffix(url, "/models/m")
		body := fmt.Sprintf(`{"model":"m","stream":%v,"max_tokens":20,"messages":[]}`, streams)
		for n, want := range []int{200, 429} {
			if status, text := complete(t, url, key, body); status != want {
				t.Errorf("%s, call %d: %d %.200s", name, n, status, text)
			}
		}
	}
}

// A stream without text is charged for its request.
func TestChatStreamThatSaysNothingIsPaid(t *testing.T) {
	url, key := lockedDoor(t, budget(1000), chatBackend("text/event-stream", "data: [DONE]\n\n"))
	url = strings.TrimSuffix(url, "/models/m")
	body := `{"model":"m","stream":true,"messages":[{"role":"user","content":"` + strings.Repeat("a", 2400) + `"}]}`
	for n, want := range []int{200, 429} {
		if status, text := complete(t, url, key, body); status != want {
			t.Errorf("call %d: %d %.200s", n, status, text)
		}
	}
}

// A limit below one is invalid.
func TestALimitBelowOneIsNone(t *testing.T) {
	asked := ""
	url, key := lockedDoor(t, budget(10_000), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		asked = string(raw)
		io.WriteString(w, `{"candidates":[]}`)
	}))
	for _, limit := range []string{"0", "-5"} {
		post(t, url+":generateContent?key="+key, `{"generationConfig":{"maxOutputTokens":`+limit+`},"contents":[]}`)
		if !strings.Contains(asked, `"maxOutputTokens":9`) {
			t.Errorf("%s: asked %s", limit, asked)
		}
	}
}

// The gateway's key is hidden in a backend's answers, also in the middle of a stream.
func TestChatHidesTheKey(t *testing.T) {
	const echo = `{"error":{"message":"Overloaded, by google's secret.","code":502}}`
	for kind, text := range map[string]string{"application/json": echo, "text/event-stream": "data: " + echo + "\n\n"} {
		url := open(t, chatBackend(kind, text), nil) + "/v1"
		_, text := complete(t, url, "anything", `{"model":"m","stream":true,"messages":[]}`)
		if strings.Contains(text, "google's secret") || !strings.Contains(text, "Overloaded") {
			t.Errorf("Google's, %s: %s", kind, text)
		}
	}
	routes, _ := chatRoutes(t)
	url := open(t, http.NotFoundHandler(), nil, routes...) + "/v1"
	_, text := complete(t, url, "anything", `{"model":"gpt-x","stream":true,"messages":[{"role":"user","content":"/overload"}]}`)
	if strings.Contains(text, "sk-test") || !strings.Contains(text, "Overloaded") {
		t.Errorf("OpenAI's: %s", text)
	}
}
