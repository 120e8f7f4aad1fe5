package signaling_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"voxgate/internal/testkit"
	"voxgate/signaling"
	"voxgate/signaling/access"
)

// Host, Origin and the headers of a reverse proxy have many forms. Each pair that means the same host is accepted,
// and no other.
func TestOriginsBehindProxies(t *testing.T) {
	t.Parallel()
	gate := testkit.Must(access.New(access.Options{
		Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Logger: slog.New(slog.DiscardHandler),
	}))
	defer gate.Close()
	o := signaling.Options{Access: gate, Logger: slog.New(slog.DiscardHandler)}
	for _, text := range []string{"https://app.example:443/", "http://[2001:DB8:0::1]:80", "capacitor://localhost", "file://", "app://."} {
		o.Origins = append(o.Origins, testkit.Must(signaling.ParseOrigin(text)))
	}
	for _, text := range []string{"Voice.Example.", "2001:db8::2"} {
		o.Hosts = append(o.Hosts, testkit.Must(signaling.ParseHost(text)))
	}
	server := signaling.NewServer(o, signaling.Endpoint{Pattern: "/", Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})})
	const direct, proxy = "192.0.2.1:5000", "10.0.0.1:5000"
	type header = map[string]string
	for _, test := range []struct {
		name, from, host, origin string
		header                   header
		status                   int
	}{
		{"the same", direct, "voice.example", "https://voice.example", nil, 200},
		{"default port in Host", direct, "voice.example:443", "https://voice.example", nil, 200},
		{"default port of http in Host", direct, "voice.example:80", "http://voice.example", nil, 200},
		{"default port in Origin", direct, "voice.example", "https://voice.example:443", nil, 200},
		{"port of another scheme", direct, "voice.example:443", "http://voice.example", nil, 403},
		{"other port in both", direct, "voice.example:8443", "https://voice.example:8443", nil, 200},
		{"other port in Origin alone", direct, "voice.example", "https://voice.example:8443", nil, 403},
		{"other port in Host alone", direct, "voice.example:8443", "https://voice.example", nil, 403},
		{"capitals and a dot", direct, "VOICE.example.:443", "https://Voice.Example.", nil, 200},
		{"a long IPv6 address", direct, "[2001:db8:0:0::7]:3001", "http://[2001:db8::7]:3001", nil, 200},
		{"another host", direct, "voice.example", "https://evil.example", nil, 403},
		{"a listed origin", direct, "voice.example", "https://APP.example", nil, 200},
		{"a listed origin, another scheme", direct, "voice.example", "http://app.example", nil, 403},
		{"a listed origin, another port", direct, "voice.example", "https://app.example:8443", nil, 403},
		{"a listed IPv6 origin", direct, "voice.example", "http://[2001:db8::1]", nil, 200},
		{"a listed app shell", direct, "voice.example", "capacitor://localhost", nil, 200},
		{"another app shell", direct, "voice.example", "ionic://localhost", nil, 403},
		{"a listed shell without a name", direct, "voice.example", "app://.", nil, 200},
		{"listed files", direct, "voice.example", "file://", nil, 200},
		{"a sandboxed frame that is not listed", direct, "voice.example", "null", nil, 403},
		{"an origin with a user", direct, "voice.example", "https://voice.example@evil.example", nil, 403},
		{"an origin with a path", direct, "voice.example", "https://voice.example/x", nil, 403},
		{"no origin at all", direct, "voice.example", "", nil, 200},

		{"the port by the proxy", proxy, "voice.example", "https://voice.example:8443", header{"X-Forwarded-Port": "8443"}, 200},
		{"the port of its own by the proxy", proxy, "voice.example:3001", "https://voice.example", header{"X-Forwarded-Port": "443"}, 200},
		{
			"host and port by the proxy", proxy, "127.0.0.1:3001", "https://voice.example:8443",
			header{"X-Forwarded-Host": "voice.example:8443"},
			200,
		},
		{"host by the proxy", proxy, "127.0.0.1:3001", "https://voice.example", header{"X-Forwarded-Host": "voice.example"}, 200},
		{"host and port apart", proxy, "gateway.internal", "https://voice.example", header{"X-Forwarded-Host": "voice.example"}, 421},
		{
			"host and port apart, by address", proxy, "10.0.0.9:3001", "https://voice.example:444",
			header{"X-Forwarded-Host": "voice.example", "X-Forwarded-Port": "444"},
			200,
		},
		{
			"the port of a container behind a chosen one", proxy, "voice.example", "https://voice.example:30443",
			header{"X-Forwarded-Host": "voice.example:30443", "X-Forwarded-Port": "443"},
			200,
		},
		{"two proxies", proxy, "127.0.0.1", "https://voice.example", header{"X-Forwarded-Host": "voice.example, inner.example"}, 200},
		{"https by the proxy, a page of http", proxy, "voice.example", "http://voice.example", header{"X-Forwarded-Proto": "https"}, 403},
		{"a port that is none", proxy, "voice.example", "https://voice.example", header{"X-Forwarded-Port": "https"}, 200},
		{"another page by the proxy", proxy, "voice.example", "https://evil.example", header{"X-Forwarded-Host": "voice.example"}, 403},
		{"a rebound name by the proxy", proxy, "127.0.0.1", "https://evil.example", header{"X-Forwarded-Host": "evil.example"}, 421},
		{"the port by a stranger", direct, "voice.example", "https://voice.example:8443", header{"X-Forwarded-Port": "8443"}, 403},
		{"the host by a stranger", direct, "127.0.0.1", "https://voice.example", header{"X-Forwarded-Host": "voice.example"}, 403},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr, r.Host = test.from, test.host
		if test.origin != "" {
			r.Header.Set("Origin", test.origin)
		}
		for name, value := range test.header {
			r.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		if w.Code != test.status {
			t.Errorf("%s: %d, want %d: %s", test.name, w.Code, test.status, w.Body)
		}
	}
}

// A setting that could never match a browser's Origin, or a request's Host, is rejected.
func TestOriginsAndHostsThatCannotMatch(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "*", "app.example.com", "//app.example", "https://", "https://*.example.com", "https://app.example/page", "https://app.example?x",
		"https://user@app.example", "https://app.example:99999", "https://app.example:0", "https:app.example",
		`"https://app.example"`, "localhost:3000",
	} {
		if o, err := signaling.ParseOrigin(text); err == nil {
			t.Errorf("origin %q is read as %v", text, o)
		}
	}
	for _, text := range []string{
		"", "*", "*.example.com", "https://voice.example", "voice.example:443", "voice.example/", `"voice.example"`, "voice example", "[::1]:80",
	} {
		if host, err := signaling.ParseHost(text); err == nil {
			t.Errorf("host %q is read as %q", text, host)
		}
	}
}
