package mcp

import (
	"errors"
	"fmt"
	"net/http"
)

// sessionHeader names the session of a request over HTTP; a server that does not know it answers 404 (Model Context Protocol,
// Transports, Session Management).
const sessionHeader = "Mcp-Session-Id"

// httpClient returns a client that sends headers along, and does not leave the host of endpoint.
func httpClient(endpoint string, headers map[string]string) *http.Client {
	return &http.Client{
		Transport: &headerTransport{http.DefaultTransport.(*http.Transport).Clone(), headers},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if r.URL.Scheme != via[0].URL.Scheme || r.URL.Host != via[0].URL.Host {
				return fmt.Errorf("it redirects to another host, %s", r.URL.Host)
			}
			if len(via) > 3 {
				return errors.New("it redirects more than 3 times")
			}
			return nil
		},
	}
}

type headerTransport struct {
	*http.Transport
	headers map[string]string
}

func (t *headerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	c, _ := r.Context().Value(callKey{}).(*call)
	r = r.Clone(r.Context())
	for name, value := range t.headers {
		r.Header.Set(name, value)
	}
	response, err := t.Transport.RoundTrip(r)
	switch {
	case err != nil || c == nil || r.Method != http.MethodPost: // a GET asks for the rest of an answer
	case response.StatusCode == http.StatusNotFound && r.Header.Get(sessionHeader) != "":
		c.forgotten.Store(true)
	case response.StatusCode < http.StatusMultipleChoices:
		c.accepted.Store(true)
	}
	return response, err
}
