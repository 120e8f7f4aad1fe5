package gemini_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/auth"

	"voxgate/bridge/gemini"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/emulator"
)

const vertexPath = "/ws/google.cloud.aiplatform.v1beta1.LlmBidiService/BidiGenerateContent"

// adc makes Application Default Credentials: a service account whose tokens come from h. It returns the private key,
// which must never be printed.
func adc(t *testing.T, h http.HandlerFunc) (private string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	private = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}))
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		server.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	file, err := json.Marshal(map[string]string{
		"type": "service_account", "project_id": "other-project", "private_key_id": "1", "private_key": private,
		"client_email": "robot@example.test", "client_id": "1", "token_uri": server.URL,
	})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "account.json")
	if err := os.WriteFile(name, file, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", name)
	return private
}

// TestVertexWithDefaultCredentials dials the emulator with a token that a service account was given.
func TestVertexWithDefaultCredentials(t *testing.T) {
	var fetched atomic.Int32
	adc(t, func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("assertion") == "" {
			t.Errorf("asked with %v", r.Form)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token":"ya29.token-%d","token_type":"Bearer","expires_in":3600}`, fetched.Add(1))
	})
	e := emulator.New(emulator.Options{Espeak: emulator.NoVoice})
	var paths []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.URL.Path)
		if got := r.Header.Get("Authorization"); got != "Bearer ya29.token-1" || r.Header.Get("X-Goog-Api-Key") != "" {
			t.Errorf("%s with %q", r.URL.Path, got)
		}
		e.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { server.Close(); e.Close() })
	client := &api.Client{APIKey: testKey, BaseURL: server.URL + "/prefix", Vertex: &api.Vertex{Project: "a-project"}}
	for range 2 {
		dial(t, client)
	}
	if err := client.Check(t.Context(), "gemini-3.8-live"); err != nil {
		t.Errorf("check: %v", err)
	}
	if n := fetched.Load(); n != 1 {
		t.Errorf("%d tokens were fetched", n)
	}
	if want := "/prefix/v1beta1/publishers/google/models/gemini-3.8-live"; len(paths) != 3 || paths[0] != "/prefix"+vertexPath ||
		paths[2] != want {
		t.Errorf("paths %q", paths)
	}
}

func TestVertexWithoutCredentials(t *testing.T) {
	for name, c := range map[string]struct {
		answer      http.HandlerFunc
		credentials bool // the error must be api.ErrCredentials
	}{
		"refused": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"error":"invalid_grant","error_description":"Invalid JWT Signature.","echo":%q}`, r.FormValue("assertion"))
		}, true},
		"no token": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{}`)
		}, true},
		"broken": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "oh no", http.StatusServiceUnavailable) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			var assertion string
			private := adc(t, func(w http.ResponseWriter, r *http.Request) {
				assertion = r.FormValue("assertion")
				c.answer(w, r)
			})
			client := &api.Client{BaseURL: "http://nowhere.test", Vertex: &api.Vertex{Project: "p"}}
			_, err := gemini.Dial(t.Context(), client, gemini.Setup{})
			if err == nil || errors.Is(err, api.ErrCredentials) != c.credentials {
				t.Fatalf("%v", err)
			}
			if text := err.Error(); strings.Contains(text, assertion) || strings.Contains(text, private[40:80]) {
				t.Errorf("too much is shown: %s", text)
			}
			if err := client.Check(t.Context(), ""); errors.Is(err, api.ErrCredentials) != c.credentials {
				t.Errorf("check: %v", err)
			}
		})
	}
	for _, c := range []struct {
		name, file  string
		credentials bool
	}{
		{"no file", "", true},
		{"not JSON", "planted", true},
		{"a key that is none", `{"type":"service_account","client_email":"a@b","private_key":"planted","token_uri":"http://127.0.0.1:1"}`, true},
		{
			"nobody there",
			`{"type":"authorized_user","client_id":"a","client_secret":"planted","refresh_token":"planted","token_uri":"http://127.0.0.1:1"}`, false,
		},
	} {
		name := filepath.Join(t.TempDir(), "account.json")
		if c.file != "" {
			if err := os.WriteFile(name, []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", name)
		_, err := gemini.Dial(t.Context(), &api.Client{Vertex: &api.Vertex{Project: "p"}}, gemini.Setup{})
		if err == nil || errors.Is(err, api.ErrCredentials) != c.credentials || strings.Contains(err.Error(), "planted") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestMissingCredentials(t *testing.T) {
	refuse := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer refuse.Close()
	for _, c := range []struct {
		name   string
		client *api.Client
		want   error
		says   string
	}{
		{"no key", &api.Client{}, api.ErrNoKey, "key"},
		{"no key, refused", &api.Client{BaseURL: refuse.URL}, api.ErrNoKey, "HTTP 403"},
		{"no project", &api.Client{Vertex: &api.Vertex{}}, api.ErrNoProject, "project"},
		{"no project elsewhere", &api.Client{BaseURL: refuse.URL, Vertex: &api.Vertex{Location: "us"}}, api.ErrNoProject, "project"},
		{"a path as project", &api.Client{Vertex: &api.Vertex{Project: "a/../b"}}, nil, "project"},
		{"a host as location", &api.Client{Vertex: &api.Vertex{Project: "p", Location: "evil.test/"}}, nil, "location"},
	} {
		_, err := gemini.Dial(t.Context(), c.client, gemini.Setup{})
		if err == nil || !strings.Contains(err.Error(), c.says) || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.name != "no key, refused" {
			if err := c.client.Check(t.Context(), ""); err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%s: check: %v", c.name, err)
			}
		}
	}
	keyed := &api.Client{APIKey: testKey, BaseURL: refuse.URL}
	if _, err := gemini.Dial(t.Context(), keyed, gemini.Setup{}); err == nil || errors.Is(err, api.ErrNoKey) {
		t.Errorf("with a key: %v", err)
	}
}

// vertexOn makes a client use the tokens token-1, token-2 … from now on, each valid for the time live. It returns the number of
// tokens that were fetched.
func vertexOn(client *api.Client, live time.Duration) *atomic.Int32 {
	var fetched atomic.Int32
	client.Vertex = &api.Vertex{Project: "a-project", Location: "us", Fetch: func(context.Context) (*auth.Token, error) {
		return &auth.Token{Value: fmt.Sprintf("token-%d", fetched.Add(1)), Expiry: time.Now().Add(live)}, nil
	}}
	return &fetched
}

// bouncer answers upgrades with 401 unless they carry the token, and counts them.
func bouncer(t testing.TB, token *atomic.Value, tries *atomic.Int32) http.Handler {
	inner := live(untilGone).handler(t)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tries.Add(1)
		if r.Header.Get("Authorization") != "Bearer "+token.Load().(string) {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, "not with "+r.Header.Get("Authorization"))
			return
		}
		inner.ServeHTTP(w, r)
	})
}

func TestARefusedTokenIsReplacedOnce(t *testing.T) {
	var token atomic.Value
	var tries atomic.Int32
	token.Store("token-1")
	client := tcpClient(t, bouncer(t, &token, &tries))
	fetched := vertexOn(client, time.Hour)
	dial(t, client)
	token.Store("token-2") // the first was withdrawn
	dial(t, client)
	if fetched.Load() != 2 || tries.Load() != 3 {
		t.Errorf("%d tokens, %d dials", fetched.Load(), tries.Load())
	}
	token.Store("another")
	_, err := gemini.Dial(t.Context(), client, gemini.Setup{})
	wantStatus(t, err, http.StatusUnauthorized)
	if strings.Contains(err.Error(), "token-") {
		t.Errorf("the token is in %v", err)
	}
	if fetched.Load() != 3 || tries.Load() != 5 {
		t.Errorf("%d tokens, %d dials", fetched.Load(), tries.Load())
	}
	token.Store("token-4")
	dial(t, client)
}

// TestTokensAreRenewedAhead lets the hours pass in a bubble.
func TestTokensAreRenewedAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var token atomic.Value
		var tries atomic.Int32
		token.Store("token-1")
		client := pipeClient(t, bouncer(t, &token, &tries))
		fetched := vertexOn(client, time.Hour)
		var down atomic.Bool
		fetch := client.Vertex.Fetch
		client.Vertex.Fetch = func(ctx context.Context) (*auth.Token, error) {
			if down.Load() {
				return nil, errors.New("down")
			}
			return fetch(ctx)
		}
		use := func(now string, want int32) {
			t.Helper()
			token.Store(now)
			dial(t, client)
			synctest.Wait()
			if got := fetched.Load(); got != want {
				t.Errorf("after %v: %d tokens were fetched, want %d", time.Since(start), got, want)
			}
		}
		use("token-1", 1)
		time.Sleep(55*time.Minute - time.Second)
		use("token-1", 1)
		time.Sleep(2 * time.Second)
		use("token-2", 2)
		time.Sleep(56 * time.Minute)
		down.Store(true)
		use("token-2", 2) // there is no other, and it is good for some minutes
		down.Store(false)
		use("token-3", 3)
		if tries.Load() != 5 {
			t.Errorf("%d dials", tries.Load())
		}
	})
}

var start = time.Now()

// TestOneFetchForAll: many callers wait for the same fetch of a token, and some of them give up.
func TestOneFetchForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := pipeClient(t, live(untilGone).handler(t))
		var fetched atomic.Int32
		client.Vertex = &api.Vertex{Project: "p", Fetch: func(context.Context) (*auth.Token, error) {
			fetched.Add(1)
			time.Sleep(3 * time.Second)
			return &auth.Token{Value: "t"}, nil
		}}
		try := func(n int, patience time.Duration) (failed int) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var all sync.WaitGroup
			var bad atomic.Int32
			for range n {
				all.Go(func() {
					conn, err := gemini.Dial(ctx, client, gemini.Setup{})
					if err != nil {
						if !errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("%v", err)
						}
						bad.Add(1)
						return
					}
					_ = conn.Close()
				})
			}
			all.Wait()
			return int(bad.Load())
		}
		var waits sync.WaitGroup
		waits.Go(func() { // these give up before the token is fetched
			if failed := try(5, time.Second); failed != 5 {
				t.Errorf("%d of 5 failed", failed)
			}
		})
		if failed := try(5, 5*time.Second); failed != 0 {
			t.Errorf("%d of 5 failed", failed)
		}
		waits.Wait()
		if fetched.Load() != 1 {
			t.Errorf("%d fetches", fetched.Load())
		}
	})
}

func TestTheTokenServerThatNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		client := &api.Client{Vertex: &api.Vertex{Project: "p", Fetch: func(context.Context) (*auth.Token, error) {
			<-release // ignores its context
			return nil, errors.New("too late")
		}}}
		begin := time.Now()
		_, err := gemini.Dial(t.Context(), client, gemini.Setup{})
		if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took != 10*time.Second {
			t.Errorf("%v after %v", err, took)
		}
		close(release)
	})
}

// TestEphemeralToken: a token uses the path and the header for tokens, and sends no REST request, because REST rejects tokens.
func TestEphemeralToken(t *testing.T) {
	e := emulator.New(emulator.Options{Espeak: emulator.NoVoice})
	var paths []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.URL.Path)
		if got := r.Header.Get("Authorization"); got != "Token auth_tokens/mine" || r.Header.Get("X-Goog-Api-Key") != "" {
			t.Errorf("%s with %q", r.URL.Path, got)
		}
		e.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { server.Close(); e.Close() })
	client := &api.Client{APIKey: "auth_tokens/mine", BaseURL: server.URL}
	dial(t, client)
	if want := "/ws/google.ai.generativelanguage.v1alpha.GenerativeService.BidiGenerateContentConstrained"; paths[0] != want {
		t.Errorf("path %s", paths[0])
	}
	if err := client.Check(t.Context(), ""); err != nil || len(paths) != 1 {
		t.Errorf("check: %v, %q", err, paths)
	}
}
