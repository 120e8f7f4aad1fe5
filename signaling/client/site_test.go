package client_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"voxgate/signaling/client"
)

// The files of a page are sent compressed, once, and scripts may be read by pages of other origins.
func TestPage(t *testing.T) {
	script := "export const a=[" + strings.Repeat("1,", 300) + "1]"
	status := client.Status{Backend: "emulator", Models: []string{"gemini-x"}, HasAgent: func(name string) bool { return name == "desk" }}
	site, err := client.ReadSite(nil, fstest.MapFS{
		"index.html": {Data: []byte(`<!doctype html><html lang="en"><title>page</title>` +
			`<script src="a.js"></script><script src="not-here.js"></script>`)},
		"a.js":            {Data: []byte("// A comment.\n" + script + ";\n")},
		"vox/index.html":  {Data: []byte(`<link href="../a.js"><link href="https://example.com/a.js"><script src="b.js">`)},
		"vox/b.js":        {Data: []byte("b()")},
		"app.webmanifest": {Data: []byte("{}")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.ReadSite(nil, fstest.MapFS{"a.js": {Data: []byte("export const")}}); err == nil {
		t.Error("a script is served that cannot be read")
	}
	server := httptest.NewServer(site.Handler(status, nil))
	defer server.Close()
	ask := func(method, path string, headers ...string) (*http.Response, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept-Encoding", "identity")
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		res, err := (&http.Transport{}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var in io.Reader = res.Body
		if res.Header.Get("Content-Encoding") == "gzip" && method == "GET" && res.StatusCode == 200 {
			if in, err = gzip.NewReader(res.Body); err != nil {
				t.Fatal(err)
			}
		}
		body, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		return res, string(body)
	}

	plain, body := ask("GET", "/a.js")
	if body != script || plain.Header.Get("Content-Encoding") != "" || plain.Header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("%v %q", plain.Header, body)
	}
	small, body := ask("GET", "/a.js", "Accept-Encoding", "br, gzip;q=0.8")
	if body != script || small.Header.Get("Content-Encoding") != "gzip" || small.ContentLength >= plain.ContentLength ||
		small.Header.Get("Vary") != "Accept-Encoding" {
		t.Errorf("%v %q", small.Header, body)
	}
	if one, other := plain.Header.Get("ETag"), small.Header.Get("ETag"); one == "" || one == other {
		t.Errorf("tags %q and %q", one, other)
	}
	if res, body := ask("GET", "/a.js", "Accept-Encoding", "gzip", "If-None-Match", small.Header.Get("ETag")); res.StatusCode != 304 ||
		body != "" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	if res, _ := ask("GET", "/a.js", "Accept-Encoding", "gzip;q=0"); res.Header.Get("Content-Encoding") != "" {
		t.Error("compressed for a client that does not take it")
	}
	// The files that a page loads may be cached permanently, because their address changes with them.
	_, body = ask("GET", "/")
	m := regexp.MustCompile(`^<!doctype html><html data-backend="emulator" lang="en"><title>page</title>` +
		`<script src="(v/[0-9a-f]{12}/)a.js"></script><script src="not-here.js"></script>$`).FindStringSubmatch(body)
	if m == nil {
		t.Fatalf("%q", body)
	}
	index, version := m[0], m[1]
	want := `<link href="../` + version + `a.js"><link href="https://example.com/a.js"><script src="../` + version + `vox/b.js">`
	if _, body := ask("GET", "/vox/"); body != want {
		t.Errorf("%q", body)
	}
	for path, kept := range map[string]string{
		"/" + version + "a.js": "public, max-age=31536000, immutable", "/v/0123456789ab/a.js": "no-cache", "/a.js": "no-cache", "/": "no-cache",
		"/" + version + "nothing.js": "no-cache", "/" + version + "vox": "no-cache",
	} {
		if res, _ := ask("GET", path); res.Header.Get("Cache-Control") != kept {
			t.Errorf("%s: %q", path, res.Header.Get("Cache-Control"))
		}
	}
	if res, _ := ask("GET", "/app.webmanifest"); res.Header.Get("Content-Type") != "application/manifest+json" {
		t.Errorf("%v", res.Header)
	}
	for _, c := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/", 200, index},
		{"HEAD", "/", 200, ""},
		{"GET", "/v/0123456789ab/a.js", 200, script},
		{"GET", "/vox", 301, ""},
		{"GET", "/nothing", 404, "404 page not found\n"},
		{"GET", "/../a.js", 200, script},
		{"POST", "/", 405, "Only GET is supported.\n"},
		{"GET", "/status", 200, `{"backend":"emulator","models":["gemini-x"]}` + "\n"},
		{"GET", "/status?agent=desk", 200, `{"backend":"emulator","models":["gemini-x"],"agent":true}` + "\n"},
		{"GET", "/status?agent=nobody", 200, `{"backend":"emulator","models":["gemini-x"],"agent":false}` + "\n"},
	} {
		res, body := ask(c.method, c.path)
		if res.StatusCode != c.status || (c.status != 301 && body != c.body) {
			t.Errorf("%s %s: %d %q", c.method, c.path, res.StatusCode, body)
		}
	}
	if res, _ := ask("GET", "/vox?transport=websocket"); res.Header.Get("Location") != "/vox/?transport=websocket" {
		t.Errorf("goes to %q", res.Header.Get("Location"))
	}
	if res, _ := ask("GET", "/"); res.Header.Get("Access-Control-Allow-Origin") != "" ||
		!strings.Contains(res.Header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("%v", res.Header)
	}
}

// The page is read at the start of each gateway, and the memory for that stays with the process: a compressor for
// each file took 18 MB.
func TestPageTakesLittleMemory(t *testing.T) {
	files := fstest.MapFS{}
	for i := range 30 {
		files[fmt.Sprintf("%d.js", i)] = &fstest.MapFile{Data: []byte("export const a=[" + strings.Repeat("1,", 3000) + "1]")}
	}
	took := uint64(math.MaxUint64)
	for range 3 { // the measurement includes other work of this process, but not each time
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := client.ReadSite(nil, files); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		took = min(took, after.TotalAlloc-before.TotalAlloc)
	}
	if took > 14<<20 {
		t.Errorf("reading 30 files of 6 KB allocated %d MB", took>>20)
	}
}
