// Package webhook makes a tool of an HTTP endpoint: a call is sent as a signed POST, and the response is the tool's result.
//
// The request has the headers webhook-id, webhook-timestamp and webhook-signature of Standard Webhooks
// (https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md) and the body
//
//	{"id","name","args","session":{"id","door","caller"?,"grant"?},"input"?}
//
// A 2xx response is the result, as JSON; an empty one means "done". A response of type application/x-ndjson is read line by line,
// and every line but the last is progress. {"voxgate":{"confirm":"text"}} and {"voxgate":{"ask":{"elements":[…]}}} ask the user,
// and the same call is POSTed again with the user's input: "input": {"confirmed":true}, or the map that [tools.Ask] returns.
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
	// calls wait. A conversation rarely calls more than a few tools at once.
	connsPerHost     = 64
	idleConnsPerHost = 8

	// clientTimeout must be longer than the timeout of any call, which limits the request.
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

// New returns the tool. A call makes one request and never retries, because the tool may have side effects.
func New(o Options) (tools.Tool, error) {
	to, err := url.Parse(o.URL)
	if err != nil {
		return tools.Tool{}, errors.New("url: is invalid") // the original error contains the URL, which may hold a token
	}
	if (to.Scheme != "http" && to.Scheme != "https") || to.Host == "" || to.User != nil {
		return tools.Tool{}, errors.New("url: must be http://host/… or https://host/…, without a user")
	}
	key, err := signingKey(o.Secret)
	if err != nil {
		return tools.Tool{}, err
	}
	for name := range o.Headers {
		if slices.Contains(reservedHeaders, http.CanonicalHeaderKey(name)) {
			return tools.Tool{}, fmt.Errorf("headers: %s is set by the gateway", name)
		}
	}
	w := &webhook{name: o.Name, url: to, key: key, headers: o.Headers, allowPrivate: o.AllowPrivate, pool: o.Pool}
	return tools.Tool{Declaration: o.Declaration, Run: w.call}, nil
}

// reservedHeaders are the headers that options must not set.
var reservedHeaders = []string{"Content-Type", "Content-Length", "Host", "Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"}

// Pool keeps the connections of the webhooks that share it.
type Pool struct {
	trusted *http.Client // for the operator's URLs
	public  *http.Client // for targets of redirects
	private *http.Client // for targets of redirects if Options.AllowPrivate is set
}

// NewPool returns a pool that trusts the certificate authorities in roots (nil: the system's).
func NewPool(roots *x509.CertPool) *Pool {
	transport := tools.NewTransport()
	transport.MaxConnsPerHost, transport.MaxIdleConnsPerHost = connsPerHost, idleConnsPerHost
	transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	p := &Pool{
		trusted: &http.Client{Transport: transport},
		public:  guard.Client(guard.Options{Timeout: clientTimeout, RootCAs: roots}),
		private: guard.Client(guard.Options{Timeout: clientTimeout, RootCAs: roots, AllowPrivate: true}),
	}
	for _, c := range p.clients() {
		c.CheckRedirect = tools.RefuseRedirect // the method post follows redirects itself
	}
	return p
}

// Close closes idle connections. Running calls end with their contexts.
func (p *Pool) Close() {
	for _, c := range p.clients() {
		c.CloseIdleConnections()
	}
}

func (p *Pool) clients() []*http.Client { return []*http.Client{p.trusted, p.public, p.private} }

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

func (w *webhook) call(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
	env := tools.EnvOf(ctx)
	r := request{
		ID: env.Call, Name: w.name, Args: args, Session: env.SessionInfo,
	}
	if len(args) == 0 {
		r.Args = json.RawMessage("{}")
	}
	id := messageID(env)
	for round := range maxRounds {
		answer, err := w.post(ctx, id+"-"+strconv.Itoa(round), r)
		if err != nil {
			return nil, err
		}
		var isQuestion bool
		if r.Input, isQuestion, err = askPerson(ctx, answer); err != nil {
			return nil, err
		}
		if !isQuestion {
			return answer, nil
		}
	}
	return nil, fmt.Errorf("the webhook asked %d questions and did not answer", maxRounds)
}

// messageID returns a globally unique ID of a call, because a model may repeat an ID. It replaces full stops, which
// separate the signed parts. It also replaces characters that a header cannot hold.
func messageID(env *tools.Env) string {
	return strings.Map(func(r rune) rune {
		if r < 0x80 && (r == '-' || r == '_' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z') {
			return r
		}
		return '_'
	}, env.Session+"-"+env.Call+"-"+rand.Text())
}

// askPerson asks the user if the webhook's answer is a question, and returns the user's input. asked is false if the answer
// is not a question.
func askPerson(ctx context.Context, answer json.RawMessage) (input json.RawMessage, asked bool, err error) {
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
		input, err := tools.Ask(ctx, q.Ask)
		return input, true, err
	default:
		return nil, false, errors.New(`the webhook's question is neither {"voxgate":{"confirm":"text"}} nor {"voxgate":{"ask":{…}}}`)
	}
}

// post sends r, follows redirects and returns the response.
func (w *webhook) post(ctx context.Context, id string, r request) (json.RawMessage, error) {
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
		response, err := w.send(ctx, client, to, header, body.Bytes())
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

func (w *webhook) send(ctx context.Context, client *http.Client, to *url.URL, header http.Header, body []byte) (*http.Response, error) {
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
	return nil, fmt.Errorf("the webhook cannot be reached: %w", tools.Unaddressed(err))
}

// signingKey returns the key for a secret. Standard Webhooks serializes it as base64 after "whsec_".
func signingKey(secret string) ([]byte, error) {
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

// sign returns the webhook-signature header of Standard Webhooks, version 1: HMAC-SHA256 of id, timestamp (seconds
// since 1970) and body, separated by full stops.
func sign(key []byte, id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
