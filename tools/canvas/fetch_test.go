package canvas_test

import (
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/tools/canvas"
	"voxgate/tools/guard"
)

const (
	png  = "\x89PNG\r\n\x1a\n rest"
	jpeg = "\xff\xd8\xff rest"
	svg  = `<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>`
)

// outside starts a third party's server, and a gateway whose fetcher can reach the server although it is on the loopback.
func outside(t *testing.T, handler http.HandlerFunc) (stranger, gateway *httptest.Server, fetcher *canvas.Fetcher) {
	t.Helper()
	stranger = httptest.NewTLSServer(handler)
	t.Cleanup(stranger.Close)
	roots := x509.NewCertPool()
	roots.AddCert(stranger.Certificate())
	client := guard.NewClient(guard.Options{AllowPrivate: true, RootCAs: roots})
	t.Cleanup(client.CloseIdleConnections)
	fetcher = canvas.NewFetcher(client)
	gateway = httptest.NewServer(http.StripPrefix("/canvas/image", fetcher))
	t.Cleanup(gateway.Close)
	return stranger, gateway, fetcher
}

// load requests a path of the gateway, and returns the response and its body. It returns an error if the body is cut off.
func load(t *testing.T, gateway *httptest.Server, path string) (*http.Response, string, error) {
	t.Helper()
	response, err := gateway.Client().Get(gateway.URL + "/" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if h := response.Header; h.Get("X-Content-Type-Options") != "nosniff" ||
		h.Get("Content-Security-Policy") != "default-src 'none'; sandbox" || h.Get("Cross-Origin-Resource-Policy") != "cross-origin" {
		t.Errorf("%s has the header %v", path, h)
	}
	return response, string(body), err
}

func TestFetch(t *testing.T) {
	stranger, gateway, fetcher := outside(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("User-Agent") != "Voxgate" || r.Header.Get("Cookie") != "" || r.Header.Get("Referer") != "" {
			t.Errorf("the stranger gets %v", r.Header)
		}
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("Content-Type", r.URL.Query().Get("type"))
		_, _ = io.WriteString(w, r.URL.Query().Get("body"))
	})
	for _, test := range []struct {
		kind, body string
		good       bool
	}{
		{"image/png", png, true},
		{"image/jpeg; charset=x", jpeg, true},
		{"IMAGE/GIF", "GIF89a", true},
		{"image/webp", "RIFF\x00\x00\x00\x00WEBPVP8", true},
		{"audio/mpeg", "ID3\x04", true},
		{"audio/wav", "RIFF\x00\x00\x00\x00WAVE", true},
		{"audio/ogg", "OggS\x00", true},
		{"audio/mp4", "\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00mp42isom", true},
		{"video/webm", "\x1a\x45\xdf\xa3", true},
		{"image/png", jpeg, false},
		{"image/png", svg, false},
		{"image/svg+xml", svg, false},
		{"image/svg+xml", png, false},
		{"text/html", "<!doctype html><script>alert(1)</script>", false},
		{"image/png", "<!doctype html><script>alert(1)</script>", false},
		{"video/mp4", "<html>", false},
		{"video/mp4", png, false},
		{"audio/mpeg", "#EXTM3U\nhttp://127.0.0.1/", false},
		{"application/pdf", "%PDF-", false},
		{"image/png", "", false},
		{"", png, false},
	} {
		query := url.Values{"type": {test.kind}, "body": {test.body}}
		response, body, err := load(t, gateway, fetcher.SignURL(stranger.URL+"/?"+query.Encode()))
		want, _, _ := strings.Cut(strings.ToLower(test.kind), ";")
		switch {
		case err != nil:
			t.Errorf("%s: %v", test.kind, err)
		case test.good && (response.StatusCode != http.StatusOK || body != test.body || response.Header.Get("Content-Type") != want ||
			response.Header.Get("Cache-Control") != "private, max-age=3600" || response.Header.Get("Set-Cookie") != ""):
			t.Errorf("%s %.10q: %v %q", test.kind, test.body, response, body)
		case !test.good && (response.StatusCode != http.StatusBadGateway || test.body != "" && strings.Contains(body, test.body) ||
			response.Header.Get("Cache-Control") != "no-store"):
			t.Errorf("%s %.10q: %v %q", test.kind, test.body, response, body)
		}
	}
}

func TestFetchOfHostileServers(t *testing.T) {
	var elsewhere string
	stranger, gateway, fetcher := outside(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "image/png")
		switch r.URL.Path {
		case "/missing":
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, png)
		case "/redirect":
			http.Redirect(w, r, elsewhere, http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/large":
			w.Header().Set("Content-Length", "8388609")
			_, _ = io.WriteString(w, png)
		case "/most", "/endless":
			_, _ = io.WriteString(w, png)
			left := 8<<20 - len(png)
			_, _ = io.CopyN(w, zeros{}, int64(left))
			if r.URL.Path == "/endless" {
				_, _ = io.Copy(w, zeros{})
			}
		case "/breaks":
			_, _ = io.WriteString(w, png)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
	})
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("asked without TLS") }))
	defer plain.Close()
	elsewhere = plain.URL
	for _, path := range []string{"/missing", "/redirect", "/loop", "/large", "/nothing", "/breaks"} {
		response, body, _ := load(t, gateway, fetcher.SignURL(stranger.URL+path))
		if response.StatusCode != http.StatusBadGateway || strings.Contains(body, "127.0.0.1") {
			t.Errorf("%s: %d %q", path, response.StatusCode, body)
		}
	}
	if _, body, err := load(t, gateway, fetcher.SignURL(stranger.URL+"/most")); len(body) != 8<<20 || err != nil {
		t.Errorf("%d bytes, %v", len(body), err)
	}
	if _, body, err := load(t, gateway, fetcher.SignURL(stranger.URL+"/endless")); err == nil || len(body) > 8<<20 {
		t.Errorf("an endless one ends well after %d bytes", len(body))
	}
}

// zeros is an endless reader of zero bytes.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// Private addresses are rejected. Redirects to them are tested in package guard.
func TestFetchRefusesPrivateAddresses(t *testing.T) {
	inside := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("reached") }))
	defer inside.Close()
	fetcher := canvas.NewFetcher(guard.NewClient(guard.Options{}))
	gateway := httptest.NewServer(http.StripPrefix("/canvas/image", fetcher))
	defer gateway.Close()
	for _, address := range []string{inside.URL, "http://127.0.0.1/", "file:///etc/passwd", "\x7f"} {
		if response, body, _ := load(t, gateway, fetcher.SignURL(address)); response.StatusCode != http.StatusBadGateway ||
			strings.Contains(body, "127") {
			t.Errorf("%s: %d %q", address, response.StatusCode, body)
		}
	}
}

func TestFetchRequiresSignature(t *testing.T) {
	stranger, gateway, fetcher := outside(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "image/png")
		_, _ = io.WriteString(w, png)
	})
	good := fetcher.SignURL(stranger.URL + "/a?b=c&d")
	if response, _, _ := load(t, gateway, good); response.StatusCode != http.StatusOK ||
		!strings.HasPrefix(good, "canvas/image?u=https%3A%2F%2F") {
		t.Errorf("%s: %d", good, response.StatusCode)
	}
	values, err := url.ParseQuery(strings.TrimPrefix(good, "canvas/image?"))
	if err != nil {
		t.Fatal(err)
	}
	for field, bad := range map[string]string{"u": stranger.URL + "/b", "x": "99999999999", "s": strings.Repeat("0", 64)} {
		for _, bad := range []string{bad, ""} {
			forged := url.Values{"u": values["u"], "x": values["x"], "s": values["s"]}
			forged.Set(field, bad)
			if response, _, _ := load(t, gateway, "canvas/image?"+forged.Encode()); response.StatusCode != http.StatusForbidden {
				t.Errorf("%s=%s: %d", field, bad, response.StatusCode)
			}
		}
	}
	other := canvas.NewFetcher(http.DefaultClient).SignURL(stranger.URL)
	if response, _, _ := load(t, gateway, other); response.StatusCode != http.StatusForbidden {
		t.Errorf("signed by another: %d", response.StatusCode)
	}
}

func TestSignatureExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fetcher := canvas.NewFetcher(&http.Client{Transport: refusing{}})
		path := "/" + fetcher.SignURL("https://a.test/")
		status := func() int {
			recorder := httptest.NewRecorder()
			fetcher.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
			return recorder.Code
		}
		time.Sleep(time.Hour)
		if code := status(); code != http.StatusBadGateway {
			t.Errorf("%d within the hour", code)
		}
		time.Sleep(time.Second)
		if code := status(); code != http.StatusForbidden {
			t.Errorf("%d after it", code)
		}
	})
}

// refusing is a transport on which every request fails, as if the network were down.
type refusing struct{}

func (refusing) RoundTrip(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }

func TestConcurrentFetchLimit(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	stranger, gateway, fetcher := outside(t, func(w http.ResponseWriter, _ *http.Request) {
		entered <- struct{}{}
		<-leave
		w.Header().Set("Content-Type", "image/png")
		_, _ = io.WriteString(w, png)
	})
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			if response, _, _ := load(t, gateway, fetcher.SignURL(fmt.Sprint(stranger.URL, "/", i))); response.StatusCode != http.StatusOK {
				t.Errorf("%d", response.StatusCode)
			}
		})
	}
	for range 16 {
		<-entered
	}
	response, _, _ := load(t, gateway, fetcher.SignURL(stranger.URL))
	if response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") == "" {
		t.Errorf("the 17th: %d", response.StatusCode)
	}
	close(leave)
	all.Wait()
	go func() { <-entered }()
	if response, _, _ := load(t, gateway, fetcher.SignURL(stranger.URL)); response.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %d", response.StatusCode)
	}
}
