package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"voxgate/vox/assistant"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestCheck queries fake registries, whose answers have the form of those of the four real ones.
func TestCheck(t *testing.T) {
	answers := map[string]string{
		"/npm/@stripe%2Fstripe-js/latest": `{"homepage":"https://stripe.com/docs/js/",` +
			`"repository":{"type":"git","url":"git+https://github.com/stripe/stripe-js.git"}}`,
		"/npm/htmx.org/latest":  `{"homepage":"https://htmx.example","repository":"github:bigskysoftware/htmx"}`,
		"/pypi/pypi/Flask/json": `{"info":{"home_page":null,"project_urls":{"Documentation":"https://flask.palletsprojects.com/"}}}`,
		"/go/github.com/!burnt!sushi/toml/@latest": `{"Version":"v1.5.0",` +
			`"Origin":{"VCS":"git","URL":"https://github.com/BurntSushi/toml"}}`,
		"/crates/api/v1/crates/axum": `{"crate":{"homepage":"https://github.com/tokio-rs/axum","repository":null}}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := answers[r.URL.EscapedPath()]
		switch {
		case r.UserAgent() == "" || strings.HasPrefix(r.UserAgent(), "Go-http-client"):
			w.WriteHeader(http.StatusForbidden)
		case strings.Contains(r.URL.Path, "broken"):
			w.WriteHeader(http.StatusBadGateway)
		case !ok:
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, body)
	}))
	defer server.Close()
	defer server.Client().CloseIdleConnections()
	var out bytes.Buffer
	c := checker{hosts: map[string]string{}, client: server.Client(), out: &out}
	for _, name := range []string{"npm", "pypi", "go", "crates"} {
		c.hosts[name] = server.URL + "/" + name
	}
	good := []assistant.Entry{
		{ID: "stripe-js", Registry: "npm", Package: "@stripe/stripe-js", Homepage: "https://stripe.com"},
		{ID: "flask", Registry: "pypi", Package: "Flask", Homepage: "https://flask.palletsprojects.com"},
		{ID: "toml", Registry: "go", Package: "github.com/BurntSushi/toml", Homepage: "https://github.com/burntsushi/toml"},
		{ID: "axum", Registry: "crates", Package: "axum", Homepage: "https://github.com/tokio-rs/axum"},
	}
	if err := c.checkAll(t.Context(), good); err != nil ||
		out.String() != "4 entries: 0 that do not exist or could not be asked for, 0 with another homepage\n" {
		t.Errorf("%v\n%s", err, &out)
	}
	out.Reset()
	bad := []assistant.Entry{
		{ID: "invented", Registry: "npm", Package: "@no/such", Homepage: "https://a.example"},
		{ID: "htmx", Registry: "npm", Package: "htmx.org", Homepage: "https://htmx.org"},
		{ID: "broken", Registry: "pypi", Package: "broken", Homepage: "https://a.example"},
		{ID: "gem", Registry: "rubygems", Package: "rails", Homepage: "https://a.example"},
	}
	const want = `invented: npm @no/such: does not exist
htmx: the homepage is https://htmx.org; the package says https://htmx.example, github:bigskysoftware/htmx
broken: pypi broken: the registry answered 502 Bad Gateway
gem: rubygems rails: there is no registry "rubygems"
4 entries: 3 that do not exist or could not be asked for, 1 with another homepage
`
	if err := c.checkAll(t.Context(), bad); err == nil || out.String() != want {
		t.Errorf("%v\n%s\nwant\n%s", err, &out, want)
	}
	c.hosts["crates"] = ""
	if err := c.checkAll(t.Context(), good); err == nil || !strings.Contains(err.Error(), "-crates is missing") {
		t.Errorf("without a registry's URL: %v", err)
	}
}

func TestRead(t *testing.T) {
	all, err := readEntries("../registry.json", nil)
	if err != nil || len(all) < 100 {
		t.Fatalf("%d, %v", len(all), err)
	}
	if some, err := readEntries("../registry.json", []string{"vue", "react"}); err != nil || len(some) != 2 || some[0].ID != "react" {
		t.Errorf("%v, %v", some, err)
	}
	if _, err := readEntries("../registry.json", []string{"no-such"}); err == nil || !strings.Contains(err.Error(), "no entry no-such") {
		t.Errorf("%v", err)
	}
}
