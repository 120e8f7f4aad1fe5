package console

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"voxgate/bridge"
	"voxgate/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serveConsole serves a console with the handler page in place of its real page, and returns the URL.
func serveConsole(t *testing.T, c *Console, page http.Handler) (url string) {
	t.Helper()
	c.Admission.Hosts = []string{"gateway-1"}
	c.Metrics = prometheus.NewRegistry()
	c.IsStoreDown = func() bool { return false }
	if c.IsReady == nil {
		c.IsReady = func() bool { return true }
	}
	server := httptest.NewServer(c.newHandler(page))
	t.Cleanup(func() {
		server.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	return server.URL
}

// /readyz tells a load balancer when the gateway accepts no more calls.
func TestReady(t *testing.T) {
	ready := true
	url := serveConsole(t, &Console{Options: Options{IsReady: func() bool { return ready }}}, http.NotFoundHandler())
	for _, want := range []struct {
		ready  bool
		status int
	}{{true, 200}, {false, 503}} {
		ready = want.ready
		if resp, body := testkit.SendHTTP(t, http.MethodGet, url+"/readyz", ""); resp.StatusCode != want.status {
			t.Errorf("ready %v: %s %s", ready, resp.Status, body)
		}
		if resp, _ := testkit.SendHTTP(t, http.MethodGet, url+"/healthz", ""); resp.StatusCode != http.StatusOK {
			t.Errorf("healthy: %s", resp.Status)
		}
	}
}

// Pages of other origins cannot send orders to the private listener, and requests with an unknown host name are rejected.
func TestThePrivateListenerAndBrowsers(t *testing.T) {
	host := bridge.NewHost(bridge.Options{Logger: slog.New(slog.DiscardHandler)})
	defer host.Shutdown(t.Context())
	url := serveConsole(t, &Console{Options: Options{Host: host}}, http.NotFoundHandler())
	for _, test := range []struct {
		method, path, host, origin string
		status                     int
	}{
		{"GET", "/healthz", "evil.com", "", http.StatusMisdirectedRequest},
		{"GET", "/debug/pprof/", "evil.com:9090", "", http.StatusMisdirectedRequest},
		{"POST", "/v1/drain", "evil.com", "", http.StatusMisdirectedRequest},
		{"POST", "/v1/drain", "", "https://evil.com", http.StatusForbidden},
		{"POST", "/v1/drain", "", "null", http.StatusForbidden},
		{"POST", "/v1/drain", "localhost", "http://localhost", http.StatusForbidden},
		{"POST", "/debug/pprof/symbol", "", "https://evil.com", http.StatusForbidden},
		{"GET", "/healthz", "gateway-1:9090", "", http.StatusOK},
		{"GET", "/healthz", "localhost", "", http.StatusOK},
		{"GET", "/healthz", "10.0.0.7:9090", "", http.StatusOK},
		{"POST", "/v1/drain", "gateway-1:9090", "", http.StatusOK},
	} {
		r, err := http.NewRequest(test.method, url+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.Host = test.host; test.origin != "" {
			r.Header.Set("Origin", test.origin)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		drained := test.path == "/v1/drain" && test.status == http.StatusOK
		if resp.StatusCode != test.status || host.IsReady() == drained {
			t.Errorf("%+v: %s, drained %v", test, resp.Status, !host.IsReady())
		}
	}
}

// TestForeignPagesAndThePrivateListener sends requests like pages of other origins. They cannot reach the profiler, but they
// may link to the other pages.
func TestForeignPagesAndThePrivateListener(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	page := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	url := serveConsole(t, &Console{}, page)
	const link, frame, picture, script = "navigate document", "navigate iframe", "no-cors image", "cors empty"
	profiles := []string{"/debug/pprof/", "/debug/pprof/heap?gc=1", "/debug/pprof/trace?seconds=0", "/debug/pprof/symbol"}
	others := []string{"/", "/metrics", "/healthz", "/readyz", "/status", "/v1/sessions"}
	for _, test := range []struct {
		site, how, origin, referer string
		profiles, others           int // expected status for the profiler, and for other paths
	}{
		{"", "", "", "", 200, 200},                                                 // not a browser
		{"none", link, "", "", 200, 200},                                           // a URL that a person has typed
		{"same-origin", script, "", "OWN", 200, 200},                               // our own page
		{"cross-site", script, "https://evil.com", "https://evil.com/x", 403, 403}, // fetch
		{"cross-site", picture, "", "", 403, 403},                                  // an image, without a Referer
		{"cross-site", frame, "", "https://evil.com/", 403, 403},                   //
		{"cross-site", link, "", "", 403, 200},                                     //
		{"same-site", script, "http://127.0.0.1:8000", "", 403, 403},               // another port of the machine
		{"same-site", link, "", "", 403, 200},                                      //
		{"", "", "https://evil.com", "", 403, 200},                                 // over plain HTTP, browsers do not send Sec-Fetch-Site
		{"", "", "null", "", 403, 200},                                             //
		{"", "", "", "https://evil.com/x", 403, 200},                               //
		{"", "", "", "OWN", 200, 200},                                              //
		{"", "", "OWN", "", 200, 200},                                              //
		{"anything", "", "", "", 403, 403},                                         //
	} {
		for i, path := range append(slices.Clone(profiles), others...) {
			want := test.profiles
			if i >= len(profiles) {
				want = test.others
			}
			for _, method := range []string{http.MethodGet, http.MethodHead} {
				r, err := http.NewRequest(method, url+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				mode, dest, _ := strings.Cut(test.how, " ")
				for header, value := range map[string]string{
					"Sec-Fetch-Site": test.site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest, "Origin": test.origin, "Referer": test.referer,
				} {
					if value != "" {
						r.Header.Set(header, strings.ReplaceAll(value, "OWN", url))
					}
				}
				resp, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if method == http.MethodHead && test.how == link && test.site != "none" { // a link never sends HEAD
					continue
				}
				if resp.StatusCode != want {
					t.Errorf("%s %s of %+v: %s", method, path, test, resp.Status)
				}
			}
		}
	}
}
