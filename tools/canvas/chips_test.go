package canvas_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/tools/canvas"
)

// suggestions is HTML with the structure of Google's search suggestions.
const suggestions = `<style>.container{display:flex} @media (prefers-color-scheme: dark){.chip{color:#fff}}</style>
<div class="container"><svg class="logo-light" viewBox="0 0 24 24"></svg>
<a class="chip" href="https://www.google.com/search?q=parrots">parrots</a></div>`

func page(t *testing.T, chips *canvas.Chips, path string) (*http.Response, string) {
	t.Helper()
	recorder := httptest.NewRecorder()
	chips.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/"+path, nil))
	response := recorder.Result()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

func TestChips(t *testing.T) {
	chips := canvas.NewChips()
	hostile := `<script>alert(1)</script><script nonce="">alert(2)</script><base href="https://evil.test"><!-- `
	path := chips.AddPage(suggestions + hostile)
	if !regexp.MustCompile(`^canvas/chips\?id=[A-Z2-7]{26}$`).MatchString(path) {
		t.Errorf("the path is %q", path)
	}
	response, body := page(t, chips, path)
	csp := response.Header.Get("Content-Security-Policy")
	nonce := regexp.MustCompile(`script-src 'nonce-([A-Z2-7]{26})'$`).FindStringSubmatch(csp)
	if nonce == nil || response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Fatalf("%d %v", response.StatusCode, response.Header)
	}
	for _, directive := range []string{
		"default-src 'none'", "style-src 'unsafe-inline'", "img-src data:", "base-uri 'none'", "form-action 'none'",
		"sandbox allow-scripts allow-popups allow-popups-to-escape-sandbox",
	} {
		if !strings.Contains(csp, directive+";") {
			t.Errorf("%s is not in %s", directive, csp)
		}
	}
	ours, theirs, found := strings.Cut(body, suggestions)
	if !found || theirs != hostile {
		t.Errorf("Google's HTML was changed: %s", body)
	}
	if strings.Count(body, nonce[1]) != 1 || !strings.Contains(ours, `<script nonce="`+nonce[1]+`">`) ||
		!strings.Contains(ours, `<base target="_blank">`) ||
		!strings.Contains(ours, "{voxgate: 'chip'}") ||
		!strings.Contains(ours, "{voxgate: 'height', height: ") {
		t.Errorf("ours is %s", ours)
	}
	if again, _ := page(t, chips, path); strings.Contains(again.Header.Get("Content-Security-Policy"), nonce[1]) {
		t.Error("the nonce is used twice")
	}
}

func TestChipsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chips := canvas.NewChips()
		if chips.AddPage("") != "" || chips.AddPage(strings.Repeat("a", 64<<10+1)) != "" {
			t.Error("something was kept that cannot be shown")
		}
		status := func(path string) int {
			response, _ := page(t, chips, path)
			return response.StatusCode
		}
		if status("canvas/chips") != http.StatusNotFound || status("canvas/chips?id=") != http.StatusNotFound {
			t.Error("there is a page without an id")
		}
		first := chips.AddPage(suggestions)
		second := chips.AddPage(suggestions)
		for range 255 {
			chips.AddPage(suggestions)
		}
		if first == second || status(first) != http.StatusNotFound || status(second) != http.StatusOK {
			t.Error("not the 256 newest are kept")
		}
		time.Sleep(30*time.Minute - 1)
		if status(second) != http.StatusOK {
			t.Error("gone too early")
		}
		time.Sleep(time.Nanosecond)
		if status(second) != http.StatusNotFound {
			t.Error("kept too long")
		}
	})
}
