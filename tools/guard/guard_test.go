package guard_test

import (
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"voxgate/tools/guard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPublic(t *testing.T) {
	for _, addr := range []string{
		"8.8.8.8", "1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0",
		"168.63.129.17", "169.253.255.255", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255", "198.17.255.255",
		"198.20.0.0", "203.0.114.0", "223.255.255.255", "2000::1", "2001:200::1", "2001:4860:4860::8888", "2003::1",
		"2606:4700:4700::1111", "3ffe::1",
	} {
		if !guard.IsPublic(netip.MustParseAddr(addr)) {
			t.Errorf("%s is public", addr)
		}
	}
	for _, addr := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.0", "10.255.255.255", "100.64.0.0", "100.127.255.255", "127.0.0.1", "127.255.255.255",
		"168.63.129.16", "169.254.169.254", "172.16.0.0", "172.31.255.255", "192.0.0.1", "192.0.0.192", "192.0.2.1", "192.88.99.1",
		"192.168.0.1", "192.168.255.255", "198.18.0.0", "198.19.255.255", "198.51.100.1", "203.0.113.255", "224.0.0.1",
		"239.255.255.255", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::127.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:0:8.8.8.8", "64:ff9b::7f00:1",
		"64:ff9b::808:808", "64:ff9b:1::1", "100::1", "1fff::1", "2001::1", "2001:2::1", "2001:10::1", "2001:20::1", "2001:db8::1",
		"2002:7f00:1::", "2002:808:808::1", "3fff::1", "3fff:fff::1", "4000::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1",
		"fe80::1%eth0", "2606:4700:4700::1111%eth0", "fec0::1", "ff02::1",
	} {
		if guard.IsPublic(netip.MustParseAddr(addr)) {
			t.Errorf("%s is not public", addr)
		}
	}
	if guard.IsPublic(netip.Addr{}) {
		t.Error("no address is not public")
	}
}

// serve starts a server on loopback and returns it with a client that may reach it.
func serve(t *testing.T, handler http.HandlerFunc, timeout time.Duration) (*httptest.Server, *http.Client) {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	client := guard.NewClient(guard.Options{Timeout: timeout, AllowPrivate: true, RootCAs: roots})
	t.Cleanup(client.CloseIdleConnections)
	return server, client
}

// get sends a request that must fail, and returns its error.
func get(t *testing.T, client *http.Client, address string) error {
	t.Helper()
	r, err := client.Get(address)
	if err == nil {
		_ = r.Body.Close()
		t.Errorf("%s was answered", address)
	}
	return err
}

func TestPrivateAddressesAreNotDialled(t *testing.T) {
	asked := false
	server, _ := serve(t, func(http.ResponseWriter, *http.Request) { asked = true }, 0)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := guard.NewClient(guard.Options{})
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]"} {
		if err := get(t, client, "https://"+host+":"+u.Port()); !errors.Is(err, guard.ErrNotPublic) {
			t.Errorf("%s: %v", host, err)
		}
	}
	if asked {
		t.Error("a private address was reached")
	}
}

func TestOnlyHTTPS(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("asked without TLS") }))
	defer plain.Close()
	server, client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
	}, 0)
	for _, address := range []string{plain.URL, server.URL + "?to=" + url.QueryEscape(plain.URL)} {
		if err := get(t, client, address); !errors.Is(err, guard.ErrNotHTTPS) {
			t.Errorf("%s: %v", address, err)
		}
	}
	for _, to := range []string{"file:///etc/passwd", "ftp://127.0.0.1/", "gopher://127.0.0.1/", "data:text/plain,x"} {
		_ = get(t, client, to)
		_ = get(t, client, server.URL+"?to="+url.QueryEscape(to))
	}
}

func TestRedirects(t *testing.T) {
	server, client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		left, _ := strconv.Atoi(r.URL.Query().Get("left"))
		if r.Header.Get("Referer") != "" || r.Header.Get("Cookie") != "" {
			t.Errorf("got %q, %q", r.Header.Get("Referer"), r.Header.Get("Cookie"))
		}
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "b"})
		if left > 0 {
			http.Redirect(w, r, "?left="+strconv.Itoa(left-1), http.StatusFound)
			return
		}
		_, _ = io.WriteString(w, "here")
	}, 0)
	r, err := client.Get(server.URL + "?left=5")
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(r.Body); string(body) != "here" || err != nil {
		t.Errorf("%q, %v", body, err)
	}
	_ = r.Body.Close()
	if err := get(t, client, server.URL+"?left=6"); err == nil || !strings.Contains(err.Error(), "more than 5 redirects") {
		t.Error(err)
	}
}

// stranger is a transport that answers requests for stranger.test, a public host in these tests, with a redirect to a private
// address.
type stranger struct {
	http.RoundTripper
	to string
}

func (s stranger) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != "stranger.test" {
		return s.RoundTripper.RoundTrip(r)
	}
	header := http.Header{"Location": {s.to}}
	return &http.Response{StatusCode: http.StatusFound, Header: header, Body: http.NoBody, Request: r}, nil
}

func TestRedirectToAPrivateAddress(t *testing.T) {
	server, _ := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("reached") }, 0)
	client := guard.NewClient(guard.Options{})
	client.Transport = stranger{client.Transport, server.URL}
	if err := get(t, client, "https://stranger.test/"); !errors.Is(err, guard.ErrNotPublic) {
		t.Error(err)
	}
}

func TestBounds(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	server, client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/header":
			w.Header().Set("X-Long", strings.Repeat("x", 100<<10))
		case "/never":
			<-r.Context().Done()
			panic(http.ErrAbortHandler) // returning would send status 200, which the client might still receive
		case "/endless":
			for r.Context().Err() == nil {
				_, _ = w.Write(make([]byte, 1<<10))
			}
		}
	}, 5*time.Second) // long enough for the TLS handshake on a busy machine
	_ = get(t, client, server.URL+"/header")
	_ = get(t, client, server.URL+"/never")
	r, err := client.Get(server.URL + "/endless")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	if _, err := io.Copy(io.Discard, r.Body); err == nil {
		t.Error("an endless body ends well")
	}
}

func TestNoProxyOfTheEnvironment(t *testing.T) {
	// Requests cannot show this, because Go uses no proxy for addresses of this machine.
	if transport, ok := guard.NewClient(guard.Options{}).Transport.(*http.Transport); !ok || transport.Proxy != nil {
		t.Error("there is a proxy")
	}
}
