package webhook_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"voxgate/tools"
	"voxgate/tools/guard"
	"voxgate/tools/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" // from the tests of Standard Webhooks

// endpoint starts a server, and returns a tool that calls it. The test closes both at its end.
func endpoint(t testing.TB, handler http.HandlerFunc, change func(*webhook.Options)) tools.Tool {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return toolFor(t, server.URL, nil, change)
}

func toolFor(t testing.TB, url string, roots *x509.CertPool, change func(*webhook.Options)) tools.Tool {
	t.Helper()
	pool := webhook.NewPool(roots)
	t.Cleanup(pool.Close)
	o := webhook.Options{Declaration: tools.Declaration{Name: "order"}, URL: url, Secret: secret, Pool: pool}
	if change != nil {
		change(&o)
	}
	tool, err := webhook.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return tool
}

func answer(kind, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, body)
	}
}

func TestRequest(t *testing.T) {
	var got *http.Request
	var body []byte
	tool := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		_, _ = io.WriteString(w, ` {"id":9007199254740993} `)
	}, func(o *webhook.Options) { o.Headers = map[string]string{"authorization": "Bearer x"} })
	ctx := tools.WithEnv(t.Context(), &tools.Env{
		Call: "call.1", SessionInfo: tools.SessionInfo{Session: "s1", Protocol: "sip", Caller: "+41", Grant: json.RawMessage(`{"orders":true}`)},
	})
	result, err := tool.Run(ctx, json.RawMessage(`{"n":9007199254740993,"text":"a<b"}`))
	if err != nil || string(result) != `{"id":9007199254740993}` {
		t.Fatalf("%s, %v", result, err)
	}
	const want = `{"id":"call.1","name":"order","args":{"n":9007199254740993,"text":"a<b"},` +
		`"session":{"id":"s1","door":"sip","caller":"+41","grant":{"orders":true}}}`
	if strings.TrimSpace(string(body)) != want {
		t.Errorf("body\n%s, want\n%s", body, want)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "Authorization": "Bearer x",
	} {
		if got.Header.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, got.Header.Get(name), want)
		}
	}
	sent, err := strconv.ParseInt(got.Header.Get("Webhook-Timestamp"), 10, 64)
	if age := time.Since(time.Unix(sent, 0)); err != nil || age < -time.Second || age > time.Minute {
		t.Errorf("timestamp %d, %v", sent, err)
	}
	verify(t, got.Header, body)
}

// TestMessageIDs: message IDs are unique, whatever IDs the model gives its calls. They contain no characters that a signature
// or a header does not allow.
func TestMessageIDs(t *testing.T) {
	var ids []string
	tool := endpoint(t, func(_ http.ResponseWriter, r *http.Request) { ids = append(ids, r.Header.Get("webhook-id")) }, nil)
	calls := []string{"a.b", "a_b", "a", "a", "ü\n"}
	for _, call := range calls {
		if _, err := tool.Run(tools.WithEnv(t.Context(), &tools.Env{Call: call, SessionInfo: tools.SessionInfo{Session: "s"}}), nil); err != nil {
			t.Fatal(err)
		}
	}
	for i, id := range ids {
		if slices.Contains(ids[:i], id) || !regexp.MustCompile(`^s-[A-Za-z0-9_-]+-0$`).MatchString(id) {
			t.Errorf("call %q has the id %q, after %q", calls[i], id, ids[:i])
		}
	}
}

// verify checks a signature as a receiver would, with the key written out by another program:
// printf MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw | base64 -d | xxd -p.
func verify(t *testing.T, h http.Header, body []byte) {
	t.Helper()
	mac := hmac.New(sha256.New, []byte("\x31\xf2\x90\xf6\xbf\x06\x29\x8a\xab\x4f\x08\xd4\x3c\x3f\x08\x2c\xf6\x48\xa3\x62\xda\x2d\xa4\xb0"))
	_, _ = io.WriteString(mac, h.Get("webhook-id")+"."+h.Get("webhook-timestamp")+"."+string(body))
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	if got := h.Get("webhook-signature"); got != want {
		t.Errorf("signature %s, want %s", got, want)
	}
}

func TestAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		want    string
		err     string
	}{
		"object":     {handler: answer("application/json", "{\"a\":1}\n"), want: `{"a":1}`},
		"array":      {handler: answer("text/plain", "[1]"), want: `[1]`},
		"empty":      {handler: answer("", ""), want: ``},
		"no content": {handler: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, want: ``},
		"largest":    {handler: answer("", `"`+strings.Repeat("x", 1<<20-2)+`"`), want: `"` + strings.Repeat("x", 1<<20-2) + `"`},
		"too large":  {handler: answer("", `"`+strings.Repeat("x", 1<<20-1)+`"`), err: "the webhook's answer is larger than 1048576 bytes"},
		"too many lines": {
			handler: answer("application/x-ndjson", strings.Repeat("{\"a\":1}\n", 1<<18)),
			err:     "the webhook's answer is larger than 1048576 bytes",
		},
		"html":       {handler: answer("text/html", "<html>"), err: "the webhook answered with something that is not JSON"},
		"not a line": {handler: answer("application/x-ndjson", "{\n{}\n"), err: "the webhook answered with something that is not JSON"},
		"question":   {handler: answer("", `{"voxgate":{}}`), err: "the webhook's question is neither"},
		"two":        {handler: answer("", `{"voxgate":{"confirm":"?","ask":{}}}`), err: "the webhook's question is neither"},
		"nobody":     {handler: answer("", `{"voxgate":{"confirm":"?"}}`), err: tools.ErrNobody.Error()},
		"fails":      {handler: status(500, `no`), err: "the webhook answered 500 Internal Server Error"},
		"says why":   {handler: status(409, `{"error":"sold out"}`), err: "the webhook answered 409 Conflict: sold out"},
		"at length": {
			handler: status(400, `{"error":"`+strings.Repeat("ü", 300)+`"}`),
			err:     "400 Bad Request: " + strings.Repeat("ü", 200) + "…",
		},
		"of its own":  {handler: status(499, `{"error":7}`), err: "the webhook answered 499"},
		"moved":       {handler: redirectTo("/new", http.StatusFound), err: "the webhook answered 302 Found"},
		"to http":     {handler: redirectTo("http://example.com/", 307), err: "only https URLs are allowed"},
		"to nowhere":  {handler: status(307, ``), err: "the webhook answered 307 without saying where to"},
		"to loopback": {handler: redirectTo("https://127.0.0.1:9/token", 308), err: guard.ErrNotPublic.Error()},
		"breaks off": {handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "{}")
		}, err: "the webhook's response ended early: unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := endpoint(t, test.handler, nil).Run(t.Context(), json.RawMessage(`{}`))
			if test.err == "" && (err != nil || string(result) != test.want) {
				t.Errorf("%.100s, %v", result, err)
			}
			if test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err) || strings.Contains(err.Error(), "token")) {
				t.Errorf("%v, want %s", err, test.err)
			}
		})
	}
}

func status(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func redirectTo(url string, code int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, url, code) }
}

func TestRedirects(t *testing.T) {
	var paths, keys []string
	handler := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		verify(t, r.Header, body)
		paths, keys = append(paths, r.URL.Path), append(keys, r.Header.Get("X-Api-Key"))
		switch r.URL.Path {
		case "/0", "/1", "/2", "/3":
			n, _ := strconv.Atoi(r.URL.Path[1:])
			http.Redirect(w, r, "/"+strconv.Itoa(n+1), http.StatusTemporaryRedirect)
		default:
			_, _ = io.WriteString(w, `{"ok":true}`)
		}
	}
	server := httptest.NewTLSServer(http.HandlerFunc(handler))
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	for _, test := range []struct {
		path, paths, keys string
		private           bool
		err               string
	}{
		{path: "/1", paths: "/1 /2 /3 /4", keys: "k k k k", private: true},
		{path: "/0", paths: "/0 /1 /2 /3", keys: "k k k k", private: true, err: "the webhook redirects more than 3 times"},
		{path: "/3", paths: "/3", keys: "k", err: "the webhook cannot be reached: " + guard.ErrNotPublic.Error()},
	} {
		paths, keys = nil, nil
		tool := toolFor(t, server.URL+test.path, roots, func(o *webhook.Options) {
			o.Headers, o.AllowPrivate = map[string]string{"X-Api-Key": "k"}, test.private
		})
		_, err := tool.Run(t.Context(), nil)
		if test.err == "" && err != nil || test.err != "" && (err == nil || err.Error() != test.err) {
			t.Errorf("%s: %v, want %s", test.path, err, test.err)
		}
		if strings.Join(paths, " ") != test.paths || strings.Join(keys, " ") != test.keys {
			t.Errorf("%s: went to %v with the keys %v", test.path, paths, keys)
		}
	}
}

// TestRedirectElsewhere: headers configured for the webhook's host are not sent to another host after a redirect.
func TestRedirectElsewhere(t *testing.T) {
	var key string
	var body []byte
	second := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key = r.Header.Get("X-Api-Key")
		body, _ = io.ReadAll(r.Body)
		verify(t, r.Header, body)
	}))
	defer second.Close()
	first := httptest.NewServer(redirectTo(second.URL+"/end", 308))
	defer first.Close()
	roots := x509.NewCertPool()
	roots.AddCert(second.Certificate())
	tool := toolFor(t, first.URL, roots, func(o *webhook.Options) {
		o.Headers, o.AllowPrivate = map[string]string{"X-Api-Key": "k"}, true
	})
	if _, err := tool.Run(t.Context(), nil); err != nil || key != "" || len(body) == 0 {
		t.Errorf("%v, key %q, body %s", err, key, body)
	}
}

func TestProgress(t *testing.T) {
	seen := make(chan string)
	tool := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/x-ndjson; charset=utf-8")
		for _, line := range []string{`{"step":1}`, "", `"half"`, `{"step":3}`} {
			_, _ = io.WriteString(w, line+"\n")
			if line == `"half"` { // sends the first lines before the answer is complete
				_ = http.NewResponseController(w).Flush()
				if got := <-seen; got != `{"step":1}` {
					t.Errorf("got %s", got)
				}
			}
		}
		_, _ = io.WriteString(w, `{"done":true}`)
	}, nil)
	var rest []string
	first := true
	ctx := tools.WithEnv(t.Context(), &tools.Env{SendPartial: func(partial json.RawMessage) {
		if first {
			first = false
			seen <- string(partial)
			return
		}
		rest = append(rest, string(partial))
	}})
	result, err := tool.Run(ctx, nil)
	if err != nil || string(result) != `{"done":true}` || strings.Join(rest, " ") != `{"output":"half"} {"step":3}` {
		t.Errorf("%s, %v, got %q", result, err, rest)
	}
}

func TestQuestions(t *testing.T) {
	var ids, inputs []string
	rounds := []string{
		`{"voxgate":{"confirm":"Buy <2>?"}}`, `{"voxgate":{"confirm":"Sure?"}}`,
		`{"voxgate":{"ask":{"elements":[{"type":"input","id":"n"}]}}}`, `{"ok":1}`,
	}
	tool := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		verify(t, r.Header, body)
		var q struct{ Input json.RawMessage }
		_ = json.Unmarshal(body, &q)
		_, _ = io.WriteString(w, rounds[len(ids)])
		ids, inputs = append(ids, r.Header.Get("webhook-id")), append(inputs, string(q.Input))
	}, nil)
	var canvases []string
	answers := []string{`{"action":"submit"}`, `{"dismissed":true}`, `{"n":9007199254740993,"action":"submit"}`}
	ctx := tools.WithEnv(t.Context(), &tools.Env{
		Call: "c", SessionInfo: tools.SessionInfo{Session: "s"},
		AskPerson: func(_ context.Context, canvas json.RawMessage) (json.RawMessage, error) {
			canvases = append(canvases, string(canvas))
			return json.RawMessage(answers[len(canvases)-1]), nil
		},
	})
	if result, err := tool.Run(ctx, nil); err != nil || string(result) != `{"ok":1}` {
		t.Fatalf("%s, %v", result, err)
	}
	call := strings.TrimSuffix(ids[0], "-0")
	if got := strings.Join(ids, " "); got != call+"-0 "+call+"-1 "+call+"-2 "+call+"-3" {
		t.Errorf("ids %s", got)
	}
	if got := strings.Join(inputs, " "); got != ` {"confirmed":true} {"confirmed":false} `+answers[2] {
		t.Errorf("inputs %s", got)
	}
	if canvases[2] != `{"elements":[{"type":"input","id":"n"}]}` {
		t.Errorf("canvas %s", canvases[2])
	}

	asks := endpoint(t, answer("application/json", rounds[0]), nil)
	ctx = tools.WithEnv(t.Context(), &tools.Env{AskPerson: func(context.Context, json.RawMessage) (json.RawMessage, error) {
		return json.RawMessage(answers[0]), nil
	}})
	if _, err := asks.Run(ctx, nil); err == nil || err.Error() != "the webhook asked 8 questions and did not answer" {
		t.Errorf("asked for ever: %v", err)
	}
}

func TestTimeout(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	tool := endpoint(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(arrived)
		select {
		case <-r.Context().Done(): // the client has disconnected
		case <-release:
		}
	}, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-arrived
		cancel(tools.ErrTimeout)
	}()
	if _, err := tool.Run(ctx, nil); !errors.Is(err, tools.ErrTimeout) {
		t.Errorf("%v", err)
	}
}

func TestUnreachable(t *testing.T) {
	server := httptest.NewServer(nil)
	server.Close()
	_, err := toolFor(t, server.URL+"/?key=hidden", nil, nil).Run(t.Context(), nil)
	if err == nil || err.Error() != "the webhook cannot be reached: connect: connection refused" || strings.Contains(err.Error(), "hidden") {
		t.Errorf("%v", err)
	}
}

func TestOptions(t *testing.T) {
	good := webhook.Options{URL: "http://localhost/", Secret: "raw"}
	for want, change := range map[string]func(*webhook.Options){
		"url: must be":                      func(o *webhook.Options) { o.URL = "ftp://localhost/" },
		"url: is invalid":                   func(o *webhook.Options) { o.URL = "http://[hidden" },
		"without a user":                    func(o *webhook.Options) { o.URL = "https://u:hidden@localhost/" },
		"secret: must not be empty":         func(o *webhook.Options) { o.Secret = "whsec_" },
		`secret: what follows "whsec_"`:     func(o *webhook.Options) { o.Secret = "whsec_hidden!" },
		"headers: webhook-ID is set by the": func(o *webhook.Options) { o.Headers = map[string]string{"webhook-ID": "hidden"} },
	} {
		o := good
		change(&o)
		if _, err := webhook.New(o); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
