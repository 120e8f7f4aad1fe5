// Package rest serves Gemini's REST API: generateContent and related methods, as Google's SDKs and the Gemini CLI call them
// (https://ai.google.dev/api/generate-content), also with a slash in place of the colon, as old clients do.
//
// A call is forwarded to the backend, and its answer is completed (shape.go): it gets the fields that Google omits if they are
// empty, and exactly one finishReason, at its end. Unknown fields are forwarded in both directions. The client's key is a token
// of this gateway and is not forwarded; Google's key is never sent to the client.
package rest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/tools"
)

const (
	// maxBody limits a request, in bytes: Google's limit for inline data (https://ai.google.dev/gemini-api/docs/file-input-methods).
	maxBody = 20 << 20
	// maxAnswer limits a response of Google, or an event of a stream, in bytes: an image takes some megabytes.
	maxAnswer = 64 << 20
	// maxChat is maxAnswer for servers with OpenAI's API: text, small images, or 100 embeddings of 3,072 numbers.
	maxChat = 16 << 20
	// silence limits the time in which the backend sends nothing. A thinking model may need a minute or two.
	silence = 3 * time.Minute
	// bodyTime limits the time for reading a request.
	bodyTime = 30 * time.Second
	// writeTime limits the time for writing a part of the response.
	writeTime = 30 * time.Second
)

// doorName identifies this endpoint in tools and grants.
const doorName = "rest"

// Door serves Gemini's REST API.
type Door struct {
	Host   *bridge.Host // tracks calls, waits for them at shutdown, and then accepts no more
	Logger *slog.Logger
	client http.Client
	google *google
	routes []route
	cli    sync.Once // the hint for Gemini CLI is logged only once
}

// New returns a Door that uses Google's backend, or those of the routes.
func New(host *bridge.Host, gemini *api.Client, routes []Route, log *slog.Logger) *Door {
	transport := tools.NewTransport()
	transport.DisableCompression = true // compression would delay the events of a stream
	d := &Door{Host: host, Logger: log, client: http.Client{Transport: transport, CheckRedirect: tools.RefuseRedirect}}
	d.google = &google{gemini, &d.client}
	d.routes = makeRoutes(routes, d.google, &d.client)
	return d
}

// Close closes idle connections to the backends.
func (d *Door) Close() { d.client.CloseIdleConnections() }

// Doors returns the endpoints. All API versions behave the same. Other paths below them get an error in Google's format.
func (d *Door) Doors() (list []signaling.Endpoint) {
	for _, version := range []string{"v1", "v1beta", "v1alpha"} {
		for _, p := range []string{"GET /%s/models", "GET /%s/models/{model}", "POST /%s/models/{model}", "POST /%s/models/{model}/{method}"} {
			list = append(list, signaling.Endpoint{Pattern: fmt.Sprintf(p, version), Handler: d})
		}
		list = append(list, signaling.Endpoint{Pattern: "/" + version + "/", Handler: http.HandlerFunc(notServed)})
	}
	return append(list, signaling.Endpoint{Pattern: "/upload/", Handler: http.HandlerFunc(notServed)})
}

// notServed rejects a path that Google or OpenAI serves and this gateway does not.
func notServed(w http.ResponseWriter, r *http.Request) {
	what := ""
	switch {
	case strings.Contains(r.URL.Path, "/files"):
		what = " Files are not kept here: send what they have as inlineData."
	case strings.HasSuffix(r.URL.Path, "/chat/completions"), strings.Contains(r.URL.Path, "/openai/"):
		what = " Use generateContent, or send chat completions to Google's OpenAI-compatible API or to a proxy such as LiteLLM."
	case strings.Contains(r.URL.Path, "/cachedContents"):
		what = " Contexts are not kept here: send the whole of them with each call."
	}
	message := fmt.Sprintf("%s %s is not served by this gateway.%s", r.Method, tools.Truncate(r.URL.Path, 200), what)
	signaling.WriteGoogleError(w, http.StatusNotFound, message, 0)
}

// methods lists the supported methods of a model.
var methods = []string{"generateContent", "streamGenerateContent", "countTokens", "embedContent", "batchEmbedContents"}

// ServeHTTP handles one call.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	model, method := r.PathValue("model"), r.PathValue("method")
	if r.Method == http.MethodPost && method == "" { // split at the last colon: some model names contain a colon, such as qwen-2.5:7b
		if i := strings.LastIndexByte(model, ':'); i >= 0 {
			model, method = model[:i], model[i+1:]
		}
	}
	if r.Method == http.MethodPost && (model == "" || !slices.Contains(methods, method)) {
		message := fmt.Sprintf("There is no method %q; there are %s.", method, strings.Join(methods, ", "))
		signaling.WriteGoogleError(w, http.StatusNotFound, message, 0)
		return
	}
	open, err := d.authorize(r, model)
	if err != nil {
		signaling.WriteGoogleErrorFor(w, err)
		return
	}
	d.helpCLI(r)
	c := &call{door: d, w: w, model: model, method: method, open: open}
	c.serve(r)
}

// serve reads the request, answers it, and ends the call.
func (c *call) serve(r *http.Request) {
	defer c.open.Account.End()
	ctx, leave, err := c.door.Host.RegisterWork(r.Context(), "a REST call for "+c.model)
	if err != nil {
		signaling.WriteGoogleError(c.w, http.StatusServiceUnavailable, stopping, stoppingRetry)
		return
	}
	defer leave()
	c.control = http.NewResponseController(c.w)
	_ = c.control.SetReadDeadline(time.Now().Add(bodyTime))
	body, err := readBody(http.MaxBytesReader(c.w, r.Body, maxBody), r.ContentLength)
	if err != nil {
		c.refuseBody(r, err)
		return
	}
	body = tools.TrimBOM(body)
	_ = c.control.SetReadDeadline(time.Time{})
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c.watch = time.AfterFunc(silence, func() { cancel(errSilent) })
	defer c.watch.Stop()
	if err := c.run(ctx, r, body); err != nil && r.Context().Err() == nil {
		c.door.Logger.Warn("REST call failed", "model", c.model, "method", c.method, "err", err)
	}
}

// helpCLI logs, once, the setting that Gemini CLI requires. With only a base URL, it exits with status 41 (google-gemini/gemini-cli
// #27550).
func (d *Door) helpCLI(r *http.Request) {
	if strings.HasPrefix(r.UserAgent(), "GeminiCLI") {
		d.cli.Do(func() {
			d.Logger.Info(`The Gemini CLI is here. Where it ends with "Invalid auth method selected", ~/.gemini/settings.json wants ` + cliSettings)
		})
	}
}

const cliSettings = `{"security":{"auth":{"selectedType":"gemini-api-key"}}}`

var errSilent = errors.New("the backend has sent nothing for too long")

// authorize authenticates the client and counts the call. If the grant names a model, only this model is permitted.
func (d *Door) authorize(r *http.Request, model string) (bridge.SessionRequest, error) {
	open := bridge.SessionRequest{Origin: bridge.Origin{Protocol: doorName}, Account: bridge.Unlimited}
	if err := access.From(r.Context()).AuthorizeShortCall(&open, r.URL.Query().Get("key")); err != nil {
		return open, err
	}
	if model != "" && !grants(open, model) {
		return open, &bridge.Error{Code: bridge.CodeForbidden, Message: fmt.Sprintf("This token does not grant the model %s.", model)}
	}
	return open, open.Account.BeginSession(bridge.Cost{})
}

// grants reports whether a model may be used. The Live model in an agent's file applies only to conversations, not to REST calls.
func grants(o bridge.SessionRequest, model string) bool {
	fixed := o.FixedAgent().Model
	if o.Grant == nil || o.Grant.Agent.Model == "" && bridge.IsLiveModel(fixed) {
		fixed = ""
	}
	return o.Grant.AllowsModel(model) && (fixed == "" || fixed == model)
}

// call is the state of one request.
type call struct {
	door    *Door
	w       http.ResponseWriter
	control *http.ResponseController
	model   string
	method  string
	open    bridge.SessionRequest
	watch   *time.Timer
	bill    *bill
	last    object // in a stream, the newest event sent to the client
}

// run forwards the call and sends the response.
func (c *call) run(ctx context.Context, r *http.Request, body []byte) error {
	if c.method == "" { // reading the list of models costs nothing
		if err := c.open.Account.ConsumeToken(); err != nil {
			return c.failed(ctx, err)
		}
		return c.list(ctx, r)
	}
	if generates(c.method) {
		var err error
		if body, err = withAgent(body, c.open.FixedAgent()); err != nil {
			return c.failed(ctx, err)
		}
	}
	bill, body, err := charge(c.door.Host, c.open.Account, c.open.MaxDollars(), c.model, c.method, body)
	request := upload{body, func() { r.Body.Close() }}
	if err != nil {
		return c.failed(ctx, err)
	}
	c.bill = bill
	answered := false
	defer func() { bill.pay(ctx, answered) }()
	if err := c.open.Account.ConsumeToken(); err != nil { // last check before the request is sent
		return c.failed(ctx, err)
	}
	to := c.door.backend(c.model)
	if generates(c.method) {
		streams := c.method == "streamGenerateContent"
		next, err := to.generate(ctx, c.model, request, streams)
		if err != nil {
			return c.failed(ctx, err)
		}
		if streams {
			return c.stream(ctx, r, next)
		}
		answer, err := next()
		if err != nil {
			return c.failed(ctx, err)
		}
		bill.note(answer)
		complete(answer, true)
		return c.answer(tools.Encode(answer))
	}
	text, err := to.ask(ctx, c.model, c.method, request)
	if err != nil {
		return c.failed(ctx, err)
	}
	answered = true
	return c.answer(text)
}

func (c *call) answer(text []byte) error {
	c.w.Header().Set("Content-Type", jsonType)
	_ = c.control.SetWriteDeadline(time.Now().Add(writeTime))
	_, err := c.w.Write(text)
	return err
}

// failed sends the response for a call that failed before its answer began.
func (c *call) failed(ctx context.Context, err error) error {
	var r *refused
	var own *bridge.Error
	switch {
	case errors.As(err, &r):
		if r.after != "" {
			c.w.Header().Set("Retry-After", r.after)
		}
		reply(c.w, r.status, r.body)
		return nil // the backend's own error was sent
	case errors.Is(context.Cause(ctx), bridge.ErrShutdown):
		signaling.WriteGoogleError(c.w, http.StatusServiceUnavailable, stopping, stoppingRetry)
		return nil
	case errors.Is(context.Cause(ctx), errSilent):
		signaling.WriteGoogleError(c.w, http.StatusGatewayTimeout, "The backend has sent nothing for too long.", 0)
		return errSilent
	case errors.As(err, &own):
		signaling.WriteGoogleErrorFor(c.w, err)
		return nil
	}
	signaling.WriteGoogleError(c.w, http.StatusBadGateway, "The backend cannot be reached, or its answer cannot be read.", 0)
	return err
}
