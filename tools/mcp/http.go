package mcp

import (
	"errors"
	"fmt"
	"net/http"
)

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
	r = r.Clone(r.Context())
	for name, value := range t.headers {
		r.Header.Set(name, value)
	}
	return t.Transport.RoundTrip(r)
}
