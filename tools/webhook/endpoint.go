package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"voxgate/tools"
)

// Endpoint is an operator's URL to which the gateway sends messages. They are signed in the same way as calls of
// webhook tools.
type Endpoint struct {
	url    string
	key    []byte
	client *http.Client
}

// NewEndpoint returns an endpoint. secret is the signing key itself, or "whsec_" followed by the key in base64.
func NewEndpoint(address, secret string) (*Endpoint, error) {
	to, err := url.Parse(address)
	if err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Host == "" || to.User != nil {
		return nil, errors.New("must be http://host/… or https://host/…, without a user") // the error text may contain a token
	}
	key, err := parseSigningKey(secret)
	if err != nil {
		return nil, err
	}
	transport := tools.NewTransport()
	transport.MaxConnsPerHost = connsPerHost
	return &Endpoint{address, key, &http.Client{Transport: transport, CheckRedirect: tools.RefuseRedirect}}, nil
}

// Close closes idle connections.
func (e *Endpoint) Close() { e.client.CloseIdleConnections() }

// Post sends body as JSON and returns the response. A response of more than 1 MiB is an error. id must be globally
// unique, so that the endpoint can detect repetitions.
func (e *Endpoint) Post(ctx context.Context, id string, body any) (status int, answer []byte, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	r.Header = signedHeader(e.key, id, text)
	response, err := e.client.Do(r)
	if err != nil {
		return 0, nil, fmt.Errorf("the webhook cannot be reached: %w", tools.WithoutAddress(err))
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return response.StatusCode, nil, fmt.Errorf("the webhook's response ended early: %w", tools.WithoutAddress(err))
	case len(answer) > maxAnswer:
		return response.StatusCode, nil, errTooLarge
	}
	return response.StatusCode, answer, nil
}

// signedHeader returns the headers of a message: Content-Type, and the headers of Standard Webhooks.
func signedHeader(key []byte, id string, body []byte) http.Header {
	stamp := strconv.FormatInt(time.Now().Unix(), 10)
	return http.Header{
		"Content-Type": {"application/json"}, "User-Agent": {"voxgate"},
		"Webhook-Id": {id}, "Webhook-Timestamp": {stamp}, "Webhook-Signature": {signMessage(key, id, stamp, body)},
	}
}
