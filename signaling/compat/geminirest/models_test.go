package geminirest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"voxgate/signaling/compat/geminirest"
)

// serveModelPages is a Google server with two pages of models.
func serveModelPages(asked *[]string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, r.Method+" "+r.URL.Path+"?"+r.URL.RawQuery)
		switch name, one := strings.CutPrefix(r.URL.Path, "/v1beta/models/"); {
		case one:
			fmt.Fprintf(w, `{"name":"models/%s","inputTokenLimit":7}`, name)
		case r.URL.Query().Get("pageToken") == "":
			fmt.Fprint(w, `{"models":[{"name":"models/gemini-1"},{"name":"models/qwen-1"}],"nextPageToken":"two"}`)
		default:
			fmt.Fprint(w, `{"models":[{"name":"models/gemini-2"}]}`)
		}
	})
}

// listModelNames returns the names of all models, requested page by page like an SDK.
func listModelNames(t *testing.T, url string) (names []string) {
	t.Helper()
	for token, n := "", 0; n < 9; n++ {
		resp, err := http.Get(url + "/v1beta/models?pageSize=2&pageToken=" + token)
		status, text := readAnswer(t, resp, err)
		var page struct {
			Models        []struct{ Name string }
			NextPageToken string
		}
		if err := json.Unmarshal([]byte(text), &page); err != nil || status != http.StatusOK {
			t.Fatal(status, text)
		}
		for _, m := range page.Models {
			names = append(names, m.Name)
		}
		if token = page.NextPageToken; token == "" {
			return names
		}
	}
	t.Error("the list never ends")
	return names
}

// The list has the models of each backend that serves them, and ends.
func TestModelsAreListed(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/v1/models" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		fmt.Fprint(w, `{"object":"list","data":[{"id":"qwen-1","object":"model"},{"id":"qwen-2"},{"id":"llama"},{"id":"gemini-9"}]}`)
	}))
	t.Cleanup(other.Close)
	to := func(model string) geminirest.Route {
		return geminirest.Route{Model: model, OpenAI: &geminirest.OpenAI{URL: other.URL + "/v1"}}
	}
	gone := geminirest.Route{Model: "gone-*", OpenAI: &geminirest.OpenAI{URL: other.URL + "/nothing"}}
	renamed := geminirest.Route{Model: "gpt-*", OpenAI: &geminirest.OpenAI{URL: other.URL + "/v1", Model: "llama"}}
	for name, row := range map[string]struct {
		routes []geminirest.Route
		want   []string
	}{
		"Google alone":     {nil, []string{"gemini-1", "qwen-1", "gemini-2"}},
		"a name":           {[]geminirest.Route{to("local")}, []string{"local", "gemini-1", "qwen-1", "gemini-2"}},
		"a pattern":        {[]geminirest.Route{to("qwen-*"), gone, renamed}, []string{"qwen-1", "qwen-2", "gemini-1", "gemini-2"}},
		"all of another":   {[]geminirest.Route{to("*")}, []string{"qwen-1", "qwen-2", "llama", "gemini-9"}},
		"all but Google's": {[]geminirest.Route{{Model: "gemini-*"}, to("*")}, []string{"qwen-1", "qwen-2", "llama", "gemini-1", "gemini-2"}},
	} {
		var asked []string
		got := listModelNames(t, startGateway(t, serveModelPages(&asked), nil, row.routes...))
		for i := range row.want {
			row.want[i] = "models/" + row.want[i]
		}
		if !slices.Equal(got, row.want) {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
		if name == "Google alone" && (len(asked) != 2 || !strings.Contains(asked[1], "pageSize=2&pageToken=two")) {
			t.Errorf("went up as %v", asked)
		}
	}
}

// Each model is described by its backend.
func TestModelsAreDescribed(t *testing.T) {
	routes, _ := startChatServer(t)
	var asked []string
	url := startGateway(t, serveModelPages(&asked), nil, routes...)
	for model, want := range map[string]string{
		"gemini-1": `"inputTokenLimit":7`, "gpt-x": `"name":"models/gpt-x"`, "gpt-x:7b": `"name":"models/gpt-x:7b"`,
	} {
		resp, err := http.Get(url + "/v1beta/models/" + model)
		if status, text := readAnswer(t, resp, err); status != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", model, status, text)
		}
	}
	if len(asked) != 1 {
		t.Errorf("Google was asked %v", asked)
	}
}

// Lists and descriptions cost nothing, so they need no price.
func TestModelsCostNothing(t *testing.T) {
	var asked []string
	url, key := startLockedGateway(t, `"grant": {}, "dollarsPerDay": 1`, serveModelPages(&asked))
	for path, want := range map[string]string{"": `"models/gemini-1"`, "/gemini-1": `"inputTokenLimit":7`} {
		resp, err := http.Get(strings.TrimSuffix(url, "/m") + path + "?key=" + key)
		if status, text := readAnswer(t, resp, err); status != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%q: %d %s", path, status, text)
		}
	}
}

// Unsupported paths get an error in Google's format, with an alternative.
func TestUnknownPathsAreRejected(t *testing.T) {
	var asked []string
	url := startGateway(t, serveModelPages(&asked), nil)
	for _, row := range []struct{ method, path, says string }{
		{"PUT", "/v1beta/models/gemini-1", "PUT /v1beta/models/gemini-1 is not served"},
		{"GET", "/v1beta/files", "send what they have as inlineData"},
		{"POST", "/upload/v1beta/files", "send what they have as inlineData"},
		{"POST", "/v1beta/cachedContents", "send the whole of them with each call"},
		{"POST", "/v1alpha/interactions", "POST /v1alpha/interactions is not served"},
		{"POST", "/v1/models/gemini-1:predict", "There is no method"},
		{"POST", "/v1/chat/completions", "Use generateContent, or send chat completions to Google's OpenAI-compatible API"},
		{"POST", "/v1beta/openai/chat/completions", "Use generateContent, or send chat completions to"},
		{"GET", "/v1beta/openai/models", "Use generateContent"},
	} {
		r, err := http.NewRequest(row.method, url+row.path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		status, text := readAnswer(t, resp, err)
		if status != http.StatusNotFound || !strings.Contains(text, row.says) || !strings.Contains(text, `"status":"NOT_FOUND"`) {
			t.Errorf("%s %s: %d %s", row.method, row.path, status, text)
		}
	}
	resp, err := http.Head(url + "/v1beta/models/gemini-1")
	if status, text := readAnswer(t, resp, err); status != http.StatusOK || text != "" ||
		len(asked) != 1 || !strings.HasPrefix(asked[0], "GET ") {
		t.Errorf("HEAD: %d %s, went up as %v", status, text, asked)
	}
}

// The emulator also accepts snake_case.
func TestEmulatorInSnakeCase(t *testing.T) {
	_, text := postJSON(t, startEmulatedGateway(t)+"/v1beta/models/gemini-3.8-flash:generateContent",
		`{"contents":[{"role":"user","parts":[{"text":"x"}]}],"generation_config":{"response_mime_type":"application/json"}}`)
	if said := checkResponse(t, text, true); said != "{}" {
		t.Errorf("%s", text)
	}
}
