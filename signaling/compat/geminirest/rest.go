// Package geminirest serves Gemini's REST API: generateContent and related methods, as Google's SDKs and the Gemini CLI
// call them (https://ai.google.dev/api/generate-content). Old clients may write a slash instead of the colon in paths.
//
// A call is forwarded to the backend. Its answer is completed (complete_response.go): fields that Google omits because
// they are empty are added, and exactly one finishReason is at the end. Unknown fields are forwarded in both
// directions. The client's key is a token of this gateway and is not forwarded; Google's key is never sent to the
// client.
package geminirest

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

	"google.golang.org/genai"

	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/tools"
)

const (
	// maxRequest limits a request, in bytes: Google's limit for inline data (https://ai.google.dev/gemini-api/docs/file-input-methods).
	maxRequest = 20 << 20
	// maxResponse limits a response of Google, or an event of a stream, in bytes. It is large because an image takes
	// several megabytes.
	maxResponse = 64 << 20
	// maxText limits an event in an answer to the gateway's own requests, in bytes. The limit is needed because the
	// time that Google's SDK takes grows with the square of the event's size: 40 s for 64 MB.
	maxText = 4 << 20
	// maxChatResponse limits a response of a server with OpenAI's API, in bytes. It is enough for text, small images,
	// or 100 embeddings of 3,072 numbers.
	maxChatResponse = 16 << 20
	// maxSilence limits how long the backend may send nothing. A thinking model may be silent for a minute or two.
	maxSilence = 3 * time.Minute
	// bodyTimeout limits the time for reading a request.
	bodyTimeout = 30 * time.Second
	// writeTimeout limits the time for writing a part of the response.
	writeTimeout = 30 * time.Second
)

// protocolName identifies this endpoint in tools and grants.
var protocolName = bridge.RegisterProtocol("rest", bridge.InGrants)

// Server serves Gemini's REST API.
type Server struct {
	Host    *bridge.Host // counts the calls; at shutdown, it rejects new calls and waits for the calls in progress
	Logger  *slog.Logger
	client  http.Client
	google  *google
	routes  []route
	cliHint sync.Once // the hint for Gemini CLI is logged only once
}

// New returns a Server that uses the backends of the routes, and Google's backend for all other models.
func New(host *bridge.Host, gemini *api.Client, routes []Route, log *slog.Logger) *Server {
	transport := tools.NewTransport()
	transport.DisableCompression = true // compression would delay the events of a stream
	d := &Server{Host: host, Logger: log, client: http.Client{Transport: transport, CheckRedirect: tools.RefuseRedirect}}
	d.google = &google{gemini, &d.client, sync.OnceValues(func() (*genai.Client, error) { return gemini.SDK(transport, maxText) })}
	d.routes = makeRoutes(routes, d.google, &d.client)
	return d
}

// Close closes idle connections to the backends.
func (s *Server) Close() { s.client.CloseIdleConnections() }

// Endpoints returns the endpoints. All API versions behave the same. Unsupported paths of a version get an error in
// Google's format.
func (s *Server) Endpoints() (list []signaling.Endpoint) {
	for _, version := range []string{"v1", "v1beta", "v1alpha"} {
		for _, p := range []string{"GET /%s/models", "GET /%s/models/{model}", "POST /%s/models/{model}", "POST /%s/models/{model}/{method}"} {
			list = append(list, signaling.Endpoint{Pattern: fmt.Sprintf(p, version), Handler: s})
		}
		list = append(list, signaling.Endpoint{Pattern: "/" + version + "/", Handler: http.HandlerFunc(rejectUnknownPath)})
	}
	return append(list, signaling.Endpoint{Pattern: "/upload/", Handler: http.HandlerFunc(rejectUnknownPath)})
}

// rejectUnknownPath rejects a path that Google or OpenAI serves but this gateway does not.
func rejectUnknownPath(w http.ResponseWriter, r *http.Request) {
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
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
	open, err := s.admitCall(r, model)
	if err != nil {
		signaling.WriteGoogleErrorFor(w, err)
		return
	}
	s.logCLIHint(r)
	c := &restCall{server: s, responseWriter: w, model: model, method: method, open: open}
	c.serveRequest(r)
}

// serveRequest reads the request, answers it, and ends the call.
func (c *restCall) serveRequest(r *http.Request) {
	defer c.open.Account.End()
	ctx, leave, err := c.server.Host.RegisterWork(r.Context(), "a REST call for "+c.model)
	if err != nil {
		signaling.WriteGoogleError(c.responseWriter, http.StatusServiceUnavailable, shutdownMessage, shutdownRetryAfter)
		return
	}
	defer leave()
	c.control = http.NewResponseController(c.responseWriter)
	_ = c.control.SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := readBody(http.MaxBytesReader(c.responseWriter, r.Body, maxRequest), r.ContentLength)
	if err != nil {
		c.writeBodyError(r, err)
		return
	}
	body = tools.TrimBOM(body)
	_ = c.control.SetReadDeadline(time.Time{})
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c.silenceTimer = time.AfterFunc(maxSilence, func() { cancel(errBackendSilent) })
	defer c.silenceTimer.Stop()
	if err := c.forwardCall(ctx, r, body); err != nil && r.Context().Err() == nil {
		c.server.Logger.Warn("REST call failed", "model", c.model, "method", c.method, "err", err)
	}
}

// logCLIHint logs once which other setting Gemini CLI needs. With only a base URL, it exits with status 41
// (google-gemini/gemini-cli #27550).
func (s *Server) logCLIHint(r *http.Request) {
	if strings.HasPrefix(r.UserAgent(), "GeminiCLI") {
		s.cliHint.Do(func() {
			s.Logger.Info(`Gemini CLI connected. If it exits with "Invalid auth method selected", add to ~/.gemini/settings.json: ` + cliSettings)
		})
	}
}

const cliSettings = `{"security":{"auth":{"selectedType":"gemini-api-key"}}}`

var errBackendSilent = errors.New("the backend has sent nothing for too long")

// admitCall authenticates the client, and counts the call until [bridge.Account].End is called. If the grant names a
// model, the client may use only that model.
func (s *Server) admitCall(r *http.Request, model string) (bridge.SessionRequest, error) {
	open := bridge.SessionRequest{Origin: bridge.Origin{Protocol: protocolName}, Account: bridge.Unlimited}
	if err := access.From(r.Context()).AuthorizeShortCall(&open, r.URL.Query().Get("key")); err != nil {
		return open, err
	}
	if model != "" && !isModelAllowed(open, model) {
		return open, &bridge.Error{Code: bridge.CodeForbidden, Message: fmt.Sprintf("This token does not grant the model %s.", model)}
	}
	return open, open.Account.BeginSession(bridge.Cost{})
}

// isModelAllowed reports whether a model may be used. The Live model in an agent's file applies only to conversations, not to REST calls.
func isModelAllowed(o bridge.SessionRequest, model string) bool {
	fixed := o.FixedAgent().Model
	if o.Grant == nil || o.Grant.Agent.Model == "" && bridge.IsLiveModel(fixed) {
		fixed = ""
	}
	return o.Grant.AllowsModel(model) && (fixed == "" || fixed == model)
}

// restCall is the state of one request.
type restCall struct {
	server         *Server
	responseWriter http.ResponseWriter
	control        *http.ResponseController
	model          string
	method         string
	open           bridge.SessionRequest
	silenceTimer   *time.Timer
	bill           *bill
	lastEvent      object // in a stream, the newest event sent to the client
}

// forwardCall forwards the call and sends the response.
func (c *restCall) forwardCall(ctx context.Context, r *http.Request, body []byte) error {
	if c.method == "" { // a request for the list of models, which no backend bills
		if err := c.open.Account.ConsumeToken(); err != nil {
			return c.writeFailure(ctx, err)
		}
		return c.serveModels(ctx, r)
	}
	if isGenerateMethod(c.method) {
		var err error
		if body, err = applyAgent(body, c.open.FixedAgent()); err != nil {
			return c.writeFailure(ctx, err)
		}
	}
	bill, body, err := reserveCallCost(c.server.Host, c.open.Account, c.open.MaxDollars(), c.model, c.method, body)
	request := requestBody{body, func() { r.Body.Close() }}
	if err != nil {
		return c.writeFailure(ctx, err)
	}
	c.bill = bill
	isAnswered := false
	defer func() { bill.settleCost(ctx, isAnswered) }()
	if err := c.open.Account.ConsumeToken(); err != nil { // last check before the request is sent
		return c.writeFailure(ctx, err)
	}
	to := c.server.backendFor(c.model)
	if isGenerateMethod(c.method) {
		streams := c.method == "streamGenerateContent"
		next, err := to.startGeneration(ctx, c.model, request, streams)
		if err != nil {
			return c.writeFailure(ctx, err)
		}
		if streams {
			return c.streamEvents(ctx, r, next)
		}
		answer, err := next()
		if err != nil {
			return c.writeFailure(ctx, err)
		}
		bill.recordAnswer(answer)
		completeResponse(answer, true)
		return c.writeResponse(tools.EncodeOrEmpty(answer))
	}
	text, err := to.callMethod(ctx, c.model, c.method, request)
	if err != nil {
		return c.writeFailure(ctx, err)
	}
	isAnswered = true
	return c.writeResponse(text)
}

func (c *restCall) writeResponse(text []byte) error {
	c.responseWriter.Header().Set("Content-Type", jsonContentType)
	_ = c.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err := c.responseWriter.Write(text)
	return err
}

// writeFailure sends the response for a call that failed before its answer began. It returns the error to log, or nil.
func (c *restCall) writeFailure(ctx context.Context, err error) error {
	var r *backendError
	var gatewayErr *bridge.Error
	switch {
	case errors.As(err, &r):
		if r.retryAfter != "" {
			c.responseWriter.Header().Set("Retry-After", r.retryAfter)
		}
		writeErrorBody(c.responseWriter, r.status, r.body)
		return nil // the client was sent the backend's error
	case errors.Is(context.Cause(ctx), bridge.ErrShutdown):
		signaling.WriteGoogleError(c.responseWriter, http.StatusServiceUnavailable, shutdownMessage, shutdownRetryAfter)
		return nil
	case errors.Is(context.Cause(ctx), errBackendSilent):
		signaling.WriteGoogleError(c.responseWriter, http.StatusGatewayTimeout, "The backend has sent nothing for too long.", 0)
		return errBackendSilent
	case errors.As(err, &gatewayErr):
		signaling.WriteGoogleErrorFor(c.responseWriter, err)
		return nil
	}
	signaling.WriteGoogleError(c.responseWriter, http.StatusBadGateway, "The backend cannot be reached, or its answer cannot be read.", 0)
	return err
}
