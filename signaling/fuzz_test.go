package signaling_test

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"voxgate/internal/testkit"
	"voxgate/signaling"
)

// FuzzHost sends requests with arbitrary host names and origins. Unknown hosts and origins are rejected.
func FuzzHost(f *testing.F) {
	for _, seed := range []string{
		"localhost", "LOCALHOST.:80", "voice.example.", "evil.example", "voice.example.evil.example", "[::1]:3001", "127.0.0.1.evil.example",
		"", ".", "a:b:c", "localhost\x00",
		"http://app.example.", "null",
	} {
		f.Add(seed, "https://"+seed)
		f.Add("voice.example", seed)
	}
	served := false
	server := signaling.NewServer(signaling.Options{
		Hosts: []string{"voice.example"}, Origins: []signaling.Origin{testkit.Must(signaling.ParseOrigin("https://app.example"))},
		Logger: slog.New(slog.DiscardHandler),
	}, signaling.Endpoint{Pattern: "/", Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true })})
	f.Fuzz(func(t *testing.T, host, origin string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		r.Header["Origin"] = []string{origin}
		served = false
		server.ServeHTTP(httptest.NewRecorder(), r)
		if !served {
			return
		}
		name := host
		if h, _, err := net.SplitHostPort(host); err == nil {
			name = h
		}
		name = strings.TrimSuffix(strings.ToLower(strings.Trim(name, "[]")), ".")
		if name != "localhost" && name != "voice.example" && net.ParseIP(name) == nil {
			t.Errorf("served as %q", host)
		}
		_, page, _ := strings.Cut(strings.ToLower(origin), "//")
		if page = strings.TrimRight(page, "/"); !strings.HasPrefix(page, "app.example") && !strings.Contains(page, name) {
			t.Errorf("served %q to a page of %q", host, origin)
		}
	})
}
