package rest_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// complete posts to the door for OpenAI's clients, as they do.
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

// What OpenAI's clients send goes to the same models, and is translated nowhere.
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
		{`{"model":"gpt-x","messages":[{"role":"user","content":"/fail"}]}`, 429, `{"error":{"code":null,"message":"Rate limit reached.","param":null,"type":"rate_limit_error"}}`},
		{`{"model":"gemini-1","messages":[]}`, 400, "/v1beta/openai/chat/completions with"},
		{`{"messages":[]}`, 400, "must be a JSON object with a model"},
		{`[`, 400, "must be a JSON object with a model"},
	} {
		if status, text := complete(t, url, "anything", row.body); status != row.status || !strings.Contains(text, row.want) || strings.Contains(text, "INVALID_ARGUMENT") {
			t.Errorf("%s: %d %s", row.body, status, text)
		}
	}
}

// A key has what it grants there, too: the agent's prompt, its model, and so many tokens.
func TestChatKeepsToTheGrant(t *testing.T) {
	routes, s := chatRoutes(t)
	url, key := lockedDoor(t, `"grant": {"models": ["gpt-*"], "agent": {"prompt": "Sell shoes."}}, "tokensPerDay": 40`, http.NotFoundHandler(), routes...)
	url = strings.TrimSuffix(url, "/models/m")
	hello := `{"model":"gpt-x","max_tokens":30,"messages":[{"role":"developer","content":"Be a pirate."},{"role":"user","content":"Hello there"}]}`
	if status, text := complete(t, url, key, hello); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	if q := <-s.got; len(q.Messages) != 2 || string(q.Messages[0].Content) != `"Sell shoes."` || q.Messages[1].Role != "user" || q.MaxCompletionTokens == 0 {
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

// The list of models is in the shape of whose client asks.
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
	if status, text := complete(t, url+"/v1/nothing", "anything", "{}"); status != http.StatusNotFound || !strings.Contains(text, "invalid_request_error") {
		t.Errorf("what is not served: %d %s", status, text)
	}
	resp, err := http.Get(url + "/v1/models")
	if _, text := answerOf(t, resp, err); !strings.Contains(text, `"name":"models/gemini-1"`) {
		t.Errorf("Google's: %s", text)
	}
}
