// Package rest is the door for programs that speak the REST API of Gemini: generateContent and its sisters, as Google's SDKs and the
// Gemini CLI call them (https://ai.google.dev/api/generate-content), and as seed-old clients do that write a slash for the colon.
//
// A call goes up to the backend and what comes down is completed: every answer has the fields that Google leaves out where they
// are empty, and exactly one finishReason at its end (shape.go). Unknown fields pass through both ways. The client's key is a
// token of this gateway and goes no further; Google's key comes no nearer.
package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/signaling"
	"voxgate/signaling/access"
)

const (
	// maxBody bounds a request, in bytes: what Google takes inline (https://ai.google.dev/gemini-api/docs/file-input-methods).
	maxBody = 20 << 20
	// maxAnswer bounds an answer that is not a stream, and an event of one: a picture is some megabytes.
	maxAnswer = 64 << 20
	// silence is how long the backend may send nothing: a model that thinks hard takes a minute or two.
	silence = 3 * time.Minute
	// bodyTime is how long a client may take to send its request.
	bodyTime = 30 * time.Second
	// writeTime is how long a client may take to read a piece.
	writeTime = 30 * time.Second
)

// doorName is what tools and grants know this door by.
const doorName = "rest"

// Door serves the REST API.
type Door struct {
	Gemini *api.Client
	Logger *slog.Logger
	client http.Client
}

// New returns a door to a backend.
func New(gemini *api.Client, log *slog.Logger) *Door {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableCompression = true // events are flushed as they come
	if gemini.NetDial != nil {
		transport.DialContext = gemini.NetDial
	}
	// A redirect would carry the key to another host.
	return &Door{gemini, log, http.Client{
		Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close ends the connections that are idle.
func (d *Door) Close() { d.client.CloseIdleConnections() }

// Doors are its addresses: each version that a client may ask for is the same.
func (d *Door) Doors() (list []signaling.Door) {
	for _, version := range []string{"v1", "v1beta", "v1alpha"} {
		for _, p := range []string{"GET /%s/models", "GET /%s/models/{model}", "POST /%s/models/{model}", "POST /%s/models/{model}/{method}"} {
			list = append(list, signaling.Door{Pattern: fmt.Sprintf(p, version), Handler: d})
		}
	}
	return list
}

// methods are those that are served, and what a client is answered with who streams.
var methods = []string{"generateContent", "streamGenerateContent", "countTokens", "embedContent", "batchEmbedContents"}

// ServeHTTP runs one call.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	model, method := r.PathValue("model"), r.PathValue("method")
	if method == "" {
		model, method, _ = strings.Cut(model, ":")
	}
	if r.Method == http.MethodPost && !slices.Contains(methods, method) {
		refuse(w, http.StatusNotFound, fmt.Sprintf("There is no method %q; there are %s.", method, strings.Join(methods, ", ")), 0)
		return
	}
	account, err := d.authorize(r, model)
	if err != nil {
		refuseError(w, err)
		return
	}
	defer account.End()
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTime))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		refuse(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("The request is too large: %d bytes are the most.", maxBody), 0)
		return
	} else if err != nil {
		refuse(w, http.StatusRequestTimeout, "The request did not come in time.", 0)
		return
	}
	_ = control.SetReadDeadline(time.Time{})
	ctx, leave := signaling.Outlive(r.Context()) // ends with the server
	if leave == nil {
		refuse(w, http.StatusServiceUnavailable, "The gateway is shutting down.", 0)
		return
	}
	defer leave()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.Context(), func() { cancel(context.Cause(r.Context())) })() // a client that leaves ends the call
	watch := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer watch.Stop()
	c := &call{door: d, w: w, control: control, model: model, method: method, account: account, watch: watch}
	if err := c.run(ctx, r, body); err != nil && r.Context().Err() == nil {
		d.Logger.Warn("REST call failed", "model", model, "method", method, "err", err)
	}
}

var errSilent = errors.New("the backend has sent nothing for too long")

// authorize lets the client in, and counts the call.
func (d *Door) authorize(r *http.Request, model string) (bridge.Account, error) {
	open := bridge.Open{Origin: bridge.Origin{Door: doorName}}
	if err := access.From(r.Context()).Authorize(&open, r.URL.Query().Get("key")); err != nil {
		return nil, err
	}
	if g := open.Grant; g != nil && model != "" && len(g.Models) > 0 && !slices.ContainsFunc(g.Models, func(p string) bool {
		ok, _ := path.Match(p, model)
		return ok
	}) {
		return nil, &bridge.Error{Code: bridge.CodeForbidden, Message: fmt.Sprintf("This token does not grant the model %s.", model)}
	}
	if open.Account == nil {
		open.Account = bridge.Unlimited
	}
	return open.Account, open.Account.Begin()
}

// call is one call on its way.
type call struct {
	door    *Door
	w       http.ResponseWriter
	control *http.ResponseController
	model   string
	method  string
	account bridge.Account
	watch   *time.Timer
	last    object // of a stream: the newest event that was passed on
}

// run passes the call on and the answer back.
func (c *call) run(ctx context.Context, r *http.Request, body []byte) error {
	streams := c.method == "streamGenerateContent"
	query := ""
	if streams {
		query = "alt=sse" // whatever the client reads
	}
	up, secret, err := c.door.Gemini.Request(ctx, r.Method, c.model, c.method, query, strings.NewReader(string(body)))
	if err != nil {
		refuse(c.w, http.StatusServiceUnavailable, err.Error(), 0)
		return err
	}
	if r.Method == http.MethodPost {
		up.Header.Set("Content-Type", "application/json")
	}
	if agent := r.UserAgent(); agent != "" {
		up.Header.Set("X-Goog-Api-Client", agent)
	}
	resp, err := c.door.client.Do(up)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		refuse(c.w, http.StatusBadGateway, "The backend cannot be reached.", 0)
		return errors.New(secret.Hide(err.Error()))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		c.door.Gemini.Refused(secret, resp.StatusCode)
		return c.passError(resp, secret)
	}
	if streams {
		return c.stream(ctx, r, resp.Body)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		refuse(c.w, http.StatusBadGateway, "The backend's answer broke off.", 0)
		return err
	}
	if c.method == "generateContent" {
		var answer object
		if err := decode(text, &answer); err != nil {
			refuse(c.w, http.StatusBadGateway, "The backend's answer cannot be read.", 0)
			return err
		}
		complete(answer, true)
		c.spend(answer)
		text = encode(answer)
	}
	c.w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	_ = c.control.SetWriteDeadline(time.Now().Add(writeTime))
	_, err = c.w.Write(text)
	return err
}

// passError passes the backend's own error on, if it is one; the secret does not come down with it.
func (c *call) passError(resp *http.Response, secret api.Secret) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	told := secret.Hide(string(text))
	var shape struct {
		Error *struct{ Message string } `json:"error"`
	}
	if json.Unmarshal([]byte(told), &shape) != nil || shape.Error == nil {
		refuse(c.w, http.StatusBadGateway, fmt.Sprintf("The backend answered %d.", resp.StatusCode), 0)
		return fmt.Errorf("the backend answered %d: %.200s", resp.StatusCode, told)
	}
	if after := resp.Header.Get("Retry-After"); after != "" {
		c.w.Header().Set("Retry-After", after)
	}
	c.w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	c.w.WriteHeader(resp.StatusCode)
	_, err := io.WriteString(c.w, told)
	return err
}

// spend counts the tokens that an answer tells of. A stream tells of all so far, so its last counts.
func (c *call) spend(answer object) {
	usage, _ := answer["usageMetadata"].(object)
	if n := number(usage["totalTokenCount"]); n > 0 {
		c.account.Spend(n)
	}
}
