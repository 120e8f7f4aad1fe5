// Package webhook provides tools that are HTTP endpoints. A call is sent to the endpoint as a signed POST request, and
// the response is the tool's result.
//
// The request has the headers webhook-id, webhook-timestamp and webhook-signature of Standard Webhooks
// (https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md) and the body
//
//	{"id","name","args","session":{"id","door","caller"?,"grant"?},"input"?}
//
// A response with a 2xx status is the result, as JSON. An empty response means "done". A response of type
// application/x-ndjson is read line by line, and every line but the last is progress. The responses
// {"voxgate":{"confirm":"text"}} and {"voxgate":{"ask":{"elements":[…]}}} make the gateway ask the user. It then sends
// the same call again, with the user's input: "input": {"confirmed":true}, or the map that [tools.AskPerson] returns.
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"voxgate/tools"
	"voxgate/tools/guard"
)

const (
	maxAnswer    = 1 << 20 // bytes read of a response; the model gets less
	maxRounds    = 8       // questions to the user within a call: an endpoint that keeps asking is broken
	maxRedirects = 3
	maxErrorText = 400 // bytes of an endpoint's error text that the model gets

	// connsPerHost limits the connections to an endpoint, so that a slow endpoint does not use up the sockets. Further
	// calls have to wait. The limit is high enough, because a conversation rarely calls more than a few tools at once.
	connsPerHost     = 64
	idleConnsPerHost = 8

	// clientTimeout is the timeout of the HTTP client. It must be longer than the timeout of any call, because the
	// call's own timeout limits the request.
	clientTimeout = 24 * time.Hour
)

// Options configures a webhook tool.
type Options struct {
	tools.Declaration
	URL          string            // http or https, without a user; trusted, so it may be private
	Secret       string            // "whsec_" and base64, or the key itself
	Headers      map[string]string // added to requests, but only to those for the host of URL
	AllowPrivate bool              // redirects may lead to private addresses
	Pool         *Pool
}

// New returns the tool. A call of the tool makes one request and never retries it, because the tool may have side
// effects.
func New(o Options) (tools.Tool, error) {
	to, err := url.Parse(o.URL)
	if err != nil {
		return tools.Tool{}, errors.New("url: is invalid") // the original error contains the URL, which may hold a token
	}
	if (to.Scheme != "http" && to.Scheme != "https") || to.Host == "" || to.User != nil {
		return tools.Tool{}, errors.New("url: must be http://host/… or https://host/…, without a user")
	}
	key, err := parseSigningKey(o.Secret)
	if err != nil {
		return tools.Tool{}, err
	}
	for name := range o.Headers {
		if slices.Contains(reservedHeaders, http.CanonicalHeaderKey(name)) {
			return tools.Tool{}, fmt.Errorf("headers: %s is set by the gateway", name)
		}
	}
	w := &webhook{name: o.Name, url: to, key: key, headers: o.Headers, allowPrivate: o.AllowPrivate, pool: o.Pool}
	return tools.Tool{Declaration: o.Declaration, Run: w.callEndpoint}, nil
}

// reservedHeaders are the headers that options must not set.
var reservedHeaders = []string{"Content-Type", "Content-Length", "Host", "Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"}

// Pool keeps the connections of the webhooks that share it.
type Pool struct {
	trusted *http.Client // for the operator's URLs
	public  *http.Client // for targets of redirects
	private *http.Client // for targets of redirects if Options.AllowPrivate is set
}

// NewPool returns a pool that trusts the certificate authorities in roots. nil means those of the system.
func NewPool(roots *x509.CertPool) *Pool {
	transport := tools.NewTransport()
	transport.MaxConnsPerHost, transport.MaxIdleConnsPerHost = connsPerHost, idleConnsPerHost
	transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	p := &Pool{
		trusted: &http.Client{Transport: transport},
		public:  guard.NewClient(guard.Options{Timeout: clientTimeout, RootCAs: roots}),
		private: guard.NewClient(guard.Options{Timeout: clientTimeout, RootCAs: roots, AllowPrivate: true}),
	}
	for _, c := range p.allClients() {
		c.CheckRedirect = tools.RefuseRedirect // the method post follows redirects itself
	}
	return p
}

// Close closes idle connections. Running calls continue until their contexts are done.
func (p *Pool) Close() {
	for _, c := range p.allClients() {
		c.CloseIdleConnections()
	}
}

func (p *Pool) allClients() []*http.Client { return []*http.Client{p.trusted, p.public, p.private} }

type webhook struct {
	name         string
	url          *url.URL
	key          []byte
	headers      map[string]string
	allowPrivate bool
	pool         *Pool
}

// request is the body of a POST.
type request struct {
	ID      string            `json:"id"`
	Name    string            `json:"name"`
	Args    json.RawMessage   `json:"args"`
	Session tools.SessionInfo `json:"session"`
	Input   json.RawMessage   `json:"input,omitempty"`
}

func (w *webhook) callEndpoint(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
	env := tools.EnvOf(ctx)
	r := request{
		ID: env.Call, Name: w.name, Args: args, Session: env.SessionInfo,
	}
	if len(args) == 0 {
		r.Args = json.RawMessage("{}")
	}
	id := newMessageID(env)
	for round := range maxRounds {
		answer, err := w.postFollowingRedirects(ctx, id+"-"+strconv.Itoa(round), r)
		if err != nil {
			return nil, err
		}
		var isQuestion bool
		if r.Input, isQuestion, err = askIfQuestion(ctx, answer); err != nil {
			return nil, err
		}
		if !isQuestion {
			return answer, nil
		}
	}
	return nil, fmt.Errorf("the webhook asked %d questions and did not answer", maxRounds)
}

// newMessageID returns a globally unique ID for a call. The model's own ID is not enough, because a model may use it
// again. Full stops are replaced, because they separate the signed parts of a message. Characters that a header cannot
// contain are replaced, too.
func newMessageID(env *tools.Env) string {
	return strings.Map(func(r rune) rune {
		if r < 0x80 && (r == '-' || r == '_' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z') {
			return r
		}
		return '_'
	}, env.Session+"-"+env.Call+"-"+rand.Text())
}

// askIfQuestion checks whether the webhook's answer is a question. If so, it asks the user, and returns the user's
// input. Otherwise isQuestion is false.
func askIfQuestion(ctx context.Context, answer json.RawMessage) (input json.RawMessage, isQuestion bool, err error) {
	var question struct {
		Voxgate *struct {
			Confirm *string         `json:"confirm"`
			Ask     json.RawMessage `json:"ask"`
		} `json:"voxgate"`
	}
	if json.Unmarshal(answer, &question) != nil || question.Voxgate == nil {
		return nil, false, nil
	}
	switch q := question.Voxgate; {
	case q.Confirm != nil && q.Ask == nil:
		yes, err := tools.Confirm(ctx, *q.Confirm)
		return json.RawMessage(fmt.Sprintf(`{"confirmed":%t}`, yes)), true, err
	case q.Ask != nil && q.Confirm == nil:
		input, err := tools.AskPerson(ctx, q.Ask)
		return input, true, err
	default:
		return nil, false, errors.New(`the webhook's question is neither {"voxgate":{"confirm":"text"}} nor {"voxgate":{"ask":{…}}}`)
	}
}

// postFollowingRedirects sends r, follows redirects and returns the response.
func (w *webhook) postFollowingRedirects(ctx context.Context, id string, r request) (json.RawMessage, error) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(r); err != nil {
		return nil, fmt.Errorf("the call could not be encoded: %w", err)
	}
	header := signedHeader(w.key, id, body.Bytes())
	header.Set("Accept", "application/json, application/x-ndjson")
	to, client := w.url, w.pool.trusted
	for range maxRedirects + 1 {
		response, err := w.sendOnce(ctx, client, to, header, body.Bytes())
		if err != nil {
			return nil, err
		}
		if response.StatusCode != http.StatusTemporaryRedirect && response.StatusCode != http.StatusPermanentRedirect {
			defer response.Body.Close()
			return readResult(ctx, response)
		}
		response.Body.Close()
		if to, err = response.Location(); err != nil {
			return nil, fmt.Errorf("the webhook answered %d without saying where to", response.StatusCode)
		}
		if client = w.pool.public; w.allowPrivate {
			client = w.pool.private
		}
	}
	return nil, fmt.Errorf("the webhook redirects more than %d times", maxRedirects)
}

func (w *webhook) sendOnce(ctx context.Context, client *http.Client, to *url.URL, header http.Header, body []byte) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the webhook redirects to an invalid address")
	}
	q.Header = header.Clone()
	if to.Scheme == w.url.Scheme && to.Host == w.url.Host {
		for name, value := range w.headers {
			q.Header.Set(name, value)
		}
	}
	response, err := client.Do(q)
	if err == nil {
		return response, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, fmt.Errorf("the webhook cannot be reached: %w", tools.WithoutAddress(err))
}

// parseSigningKey returns the key for a secret. In Standard Webhooks, a secret is "whsec_" followed by the key in
// base64.
func parseSigningKey(secret string) ([]byte, error) {
	key := []byte(secret)
	if text, ok := strings.CutPrefix(secret, "whsec_"); ok {
		var err error
		if key, err = base64.StdEncoding.DecodeString(text); err != nil {
			return nil, errors.New(`secret: what follows "whsec_" is not base64`)
		}
	}
	if len(key) == 0 {
		return nil, errors.New("secret: must not be empty")
	}
	return key, nil
}

// signMessage returns the webhook-signature header of Standard Webhooks, version 1. The signature is the HMAC-SHA256 of
// id, timestamp (seconds since 1970) and body, separated by full stops.
func signMessage(key []byte, id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
