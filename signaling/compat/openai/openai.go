// Package openai serves clients of OpenAI's Realtime API (https://platform.openai.com/docs/guides/realtime): its SDKs,
// its agents, and software built on them. It implements the API's WebSocket and WebRTC calls in the format of the
// general availability, with a token of the gateway in place of OpenAI's key. docs/clients.md describes which line of a
// client must be changed, and what is not supported.
//
// A dialogue translates events of the conversation (the engine) to OpenAI's, and a client's events to commands. It does
// not depend on the kind of connection. A call is one dialogue and a [bridge.Caller]. Audio and events use a WebSocket,
// or a WebRTC peer with a data channel for the events.
package openai

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strings"

	"github.com/gorilla/websocket"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/media/opus"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/rtc"
	"voxgate/tools"
)

// protocolName identifies this protocol to grants and tools.
var protocolName = bridge.RegisterProtocol("openai", bridge.InAgents|bridge.InGrants)

const (
	// subprotocol is OpenAI's WebSocket subprotocol. keyPrefix precedes the key in the list of subprotocols, because
	// browsers cannot send headers.
	subprotocol = "realtime"
	keyPrefix   = "openai-insecure-api-key."

	// maxOffer and maxBody limit requests, in bytes.
	maxOffer = 64 << 10
	maxBody  = maxOffer + maxSession
)

// Server serves the Realtime API.
type Server struct {
	Host        *bridge.Host
	Agents      *agents.Folder // a client selects one by the field "prompt" of its session
	RTC         *rtc.API
	OpusDecoder opus.DecoderChoice
	Secrets     *access.Secrets // keeps the client secrets
	Logger      *slog.Logger

	calls signaling.PeerRegistry[*peerCall]
}

// Endpoints returns the endpoints of the API.
func (srv *Server) Endpoints() (list []signaling.Endpoint) {
	newEndpoint := func(pattern string, serve func(http.ResponseWriter, *http.Request) error) signaling.Endpoint {
		return signaling.Endpoint{Pattern: pattern, Handler: signaling.NewHandler(srv.Logger, protocolName, serve, writeError)}
	}
	for _, at := range []string{"/v1", "/openai/v1", "/openai"} { // path prefix of OpenAI, of Azure, and of Azure's former API
		at += "/realtime"
		list = append(list,
			signaling.Endpoint{Pattern: "GET " + at, Socket: http.HandlerFunc(srv.serveSocket)},
			newEndpoint("POST "+at, rejectBetaPath),
			newEndpoint("POST "+at+"/calls", srv.startCall),
			newEndpoint("POST "+at+"/calls/{id}/{verb}", srv.handleCallAction),
			newEndpoint("POST "+at+"/client_secrets", srv.createClientSecret),
			newEndpoint("POST "+at+"/sessions", rejectBetaPath),
			newEndpoint(at, rejectUnknownPath),
			newEndpoint(at+"/{rest...}", rejectUnknownPath),
		)
	}
	return append(list, newEndpoint("POST /openai/realtimeapi/sessions", rejectBetaPath), newEndpoint("/openai/", rejectUnknownPath))
}

// rejectUnknownPath rejects a request to an unsupported path of OpenAI's API.
func rejectUnknownPath(_ http.ResponseWriter, r *http.Request) error {
	if strings.HasSuffix(r.URL.Path, "/transcription_sessions") {
		return newError("not_found", "", "Transcription sessions are not supported.")
	}
	return newError("not_found", "", "%s %s is not supported.", r.Method, clip(r.URL.Path))
}

// modelOf returns the model that a request names; Azure's clients call it the deployment.
func modelOf(r *http.Request) string {
	query := r.URL.Query()
	return cmp.Or(query.Get("model"), query.Get("deployment"))
}

// newID returns a random id in OpenAI's format.
func newID(prefix string) string { return prefix + "_" + rand.Text()[:24] }

// tokenOf returns the token of a request, or "". OpenAI's clients send it in the Api-Key header, a WebSocket
// subprotocol or the Authorization header.
func tokenOf(r *http.Request) string {
	if key := r.Header.Get("Api-Key"); key != "" {
		return key
	}
	for _, offered := range websocket.Subprotocols(r) {
		if key, ok := strings.CutPrefix(offered, keyPrefix); ok {
			return key
		}
	}
	return access.BearerToken(r.Header.Get("Authorization"))
}

// resolveToken returns the data that belongs to a client secret. If the request has another token, the returned data
// contains only that token.
func (srv *Server) resolveToken(r *http.Request) (bound boundToken, err error) {
	token := tokenOf(r)
	if !strings.HasPrefix(token, secretPrefix) {
		return boundToken{Token: token}, nil
	}
	err = srv.Secrets.LookUp(r.Context(), token, &bound)
	return bound, err
}

// admittedClient is a client that was admitted to open a conversation.
type admittedClient struct {
	open       *bridge.SessionRequest
	boundToken // result of resolveToken; its session is nil unless the client sent a client secret
}

// admitClient authorizes a client to open a conversation. It must be called before the request's body is read.
func (srv *Server) admitClient(r *http.Request) (g admittedClient, err error) {
	g.open = &bridge.SessionRequest{Origin: bridge.Origin{Protocol: protocolName}, MaxPreRoll: maxUncommitted}
	if g.boundToken, err = srv.resolveToken(r); err != nil {
		return g, err
	}
	return g, access.From(r.Context()).Admit(g.open, g.Token)
}

// selectAgent returns the client's request with the agent that a session's prompt selects. It returns an error if the
// client may not choose that agent.
func (srv *Server) selectAgent(g admittedClient, prompt json.RawMessage) (bridge.SessionRequest, error) {
	name, values, err := parsePrompt(prompt)
	if err != nil {
		return bridge.SessionRequest{}, err
	}
	open := *g.open
	open.Agent, open.AgentLocked, open.Origin.Agent = bridge.Agent{}, false, name
	return open, srv.Agents.Select(&open, values)
}

// configureDialogue sets the session of a dialogue, and returns the request for its conversation. It begins with the
// session that belongs to the client's secret, if there is one. Then it applies sessionJSON, the session in the HTTP
// request, which may be nil.
func (srv *Server) configureDialogue(g admittedClient, dialogue *dialogue, sessionJSON json.RawMessage) (*bridge.SessionRequest, error) {
	if g.Session != nil {
		g.Session.ID = dialogue.session.ID
		g.Session.Model = cmp.Or(g.Session.Model, dialogue.session.Model)
		dialogue.session = *g.Session
	}
	dialogue.session.Model = cmp.Or(dialogue.session.Model, defaultModel)
	if sessionJSON != nil {
		next, err := dialogue.session.withChange(sessionJSON)
		if err != nil {
			return nil, err
		}
		dialogue.session = next
	}
	if err := dialogue.session.checkModel("model"); err != nil {
		return nil, err
	}
	dialogue.config = dialogue.session.engineConfig()
	dialogue.selectAgent = func(prompt json.RawMessage) (bridge.SessionRequest, error) { return srv.selectAgent(g, prompt) }
	open, err := dialogue.selectAgent(dialogue.session.Prompt)
	if err != nil {
		return nil, err
	}
	open.Config, open.DeferDial = dialogue.config, g.Session == nil && sessionJSON == nil
	return &open, nil
}

// findCall returns the call with an ID if the client may control it. A client with the secret that started the call may
// control it even after the secret has expired.
func (srv *Server) findCall(r *http.Request, id string) (*call, error) {
	on := bridge.Origin{Protocol: protocolName}
	c, there := srv.calls.FindCall(id)
	if there {
		if c.secretHash == sha256.Sum256([]byte(tokenOf(r))) && strings.HasPrefix(tokenOf(r), secretPrefix) {
			return c.call, nil
		}
		on = c.origin
	}
	token, err := srv.resolveToken(r)
	if err == nil {
		err = access.From(r.Context()).AuthorizeControl(on, token.Token)
	}
	if !there && err == nil || access.IsOtherCallerError(err) {
		return nil, callNotFound(id)
	}
	if err != nil {
		return nil, err
	}
	return c.call, nil
}

// proxyToOwner proxies a request to the gateway that owns the call. It returns false if the owner is this gateway or is
// unknown.
func (srv *Server) proxyToOwner(w http.ResponseWriter, r *http.Request, id string) (isProxied bool) {
	token, _ := srv.resolveToken(r) // if the token is unknown here, the other gateway checks the request
	return signaling.ProxyToOwner(w, r, srv.Host, id, token.Token, func(err error) {
		srv.Logger.Warn("another gateway does not answer", "err", err)
		writeError(w, callNotFound(id))
	})
}

func callNotFound(id string) error {
	return newError("call_not_found", "call_id", "There is no call %q.", clip(id))
}

// startCall answers an offer and starts a call.
func (srv *Server) startCall(w http.ResponseWriter, r *http.Request) error {
	if err := rejectBeta(r); err != nil {
		return err
	}
	guest, err := srv.admitClient(r)
	if err != nil {
		return err
	}
	sdp, session, err := readOffer(w, r)
	if err != nil {
		return err
	}
	offer, err := rtc.ParseOffer(sdp)
	if err != nil {
		return newOfferError(err)
	}
	if !offer.SendsAudio() && !offer.ReceivesAudio() { // an audio track in one direction is enough, because text uses the data channel
		return newError("invalid_offer", "sdp", "The offer has no audio section that sends or receives.")
	}
	filter, err := parseFilter(r)
	if err != nil {
		return err
	}
	dialogue := newDialogue(modelOf(r), true, newID)
	open, err := srv.configureDialogue(guest, dialogue, session)
	if err != nil {
		return err
	}
	log := srv.Logger.With("door", protocolName, "remote", access.From(r.Context()).Address())
	c := &peerCall{call: newCall(log, dialogue), server: srv, origin: open.Origin, secretHash: sha256.Sum256([]byte(tokenOf(r)))}
	c.Offer, c.filtered = offer, filter
	id := signaling.OwnedID(srv.Host, newID("rtc"))
	if sdp, err = srv.calls.StartCall(r, srv.Host, id, c, *open); err != nil {
		return err
	}
	w.Header().Set("Content-Type", sdpType)
	w.Header().Set("Location", "/v1/realtime/calls/"+id)
	w.Header().Set("Access-Control-Expose-Headers", "Location")
	w.WriteHeader(http.StatusCreated)
	io.WriteString(w, sdp)
	return nil
}

const sdpType = "application/sdp"

// readOffer reads a request for a call. The body is an offer, or a form with an offer and a session.
func readOffer(w http.ResponseWriter, r *http.Request) (sdp string, session json.RawMessage, err error) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err == nil && kind == sdpType:
		raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxOffer))
		return string(raw), nil, toBodyError(err)
	case err != nil || kind != "multipart/form-data":
		return "", nil, newError("unsupported_content_type", "",
			"The body must be application/sdp, or multipart/form-data with the parts sdp and session.")
	}
	form, err := r.MultipartReader()
	if err != nil {
		return "", nil, toBodyError(err)
	}
	for range 16 { // the parts sdp and session may be anywhere among other parts
		part, err := form.NextPart()
		if err == io.EOF {
			break
		}
		if err != nil {
			return "", nil, toBodyError(err)
		}
		raw, err := io.ReadAll(part)
		if err != nil {
			return "", nil, toBodyError(err)
		}
		switch part.FormName() {
		case "sdp":
			sdp = string(raw)
		case "session":
			session = raw
		}
	}
	return sdp, session, nil
}

// toBodyError returns the error for a request body that cannot be read. It returns nil if err is nil.
func toBodyError(err error) error {
	var long *http.MaxBytesError
	var engineErr *bridge.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &engineErr):
		return engineErr
	case errors.As(err, &long):
		return newError("request_too_large", "", "The body is too long: at most %d bytes are allowed.", long.Limit)
	}
	err, field := tools.ExplainJSON(err, ""), ""
	if place, ok := errors.AsType[*tools.JSONError](err); ok {
		field = place.Field
	}
	return newError("invalid_body", field, "The body cannot be read: %v.", err)
}

// handleCallAction handles an action on a call. Only hangup is supported, because the other actions are for telephone
// calls.
func (srv *Server) handleCallAction(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	if srv.proxyToOwner(w, r, id) {
		return nil
	}
	if _, err := srv.findCall(r, id); err != nil {
		return err
	}
	if verb := r.PathValue("verb"); verb != "hangup" {
		return newError("call_not_found", "", "%q is not supported: this is not a telephone call.", clip(verb))
	}
	srv.calls.HangUp(id)
	w.WriteHeader(http.StatusOK)
	return nil
}
