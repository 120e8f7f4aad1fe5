package testkit

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// PostAs sends a POST request with a token.
func PostAs(t *testing.T, url, token, contentType string, body io.Reader) *http.Response {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// BuildOffer returns an SDP offer with an audio section.
func BuildOffer(t *testing.T) string {
	t.Helper()
	p := NewPhone(t, &Client{Inbox: NewInbox(t)}, PhoneOptions{})
	offer, err := p.PC.CreateOffer(nil)
	if err != nil {
		t.Fatal(err)
	}
	return offer.SDP
}

// SendHTTP sends a request, and returns the response and its body.
func SendHTTP(t *testing.T, method, url, body string, header ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp, string(text)
}
