// Package rtvi serves Pipecat's clients for JavaScript, React, React Native, iOS and Android. They speak the protocol
// RTVI over Pipecat's SmallWebRTCTransport: a client posts an offer and gets the answer; all messages use the data
// channel.
//
// Clients may call /start before the offer. The gateway stores nothing for that call. It responds with a session name
// that contains the client's settings, and the client sends this name in the path of the offer.
package rtvi

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"voxgate/bridge"
	"voxgate/media/opus"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/rtc"
	"voxgate/tools"
)

// protocolName identifies this protocol to grants and tools.
var protocolName = bridge.RegisterProtocol("rtvi", bridge.InAgents|bridge.InGrants)

const (
	// maxBody limits a request, in bytes. It is enough for a browser's offer (8 KiB) and a long prompt.
	maxBody = 64 << 10
	// maxSessionData limits the data in the name of a session, in bytes. Encoded in base64, it must fit into a request line.
	maxSessionData = 4 << 10
)

// Server serves Pipecat's clients.
type Server struct {
	Host        *bridge.Host
	RTC         *rtc.API
	OpusDecoder opus.DecoderChoice
	ICEServers  func() []signaling.ICEServer // ICE servers in the response of /start
	Logger      *slog.Logger

	calls signaling.PeerRegistry[*call]
}

// Endpoints returns the endpoints of the protocol.
func (s *Server) Endpoints() (list []signaling.Endpoint) {
	for pattern, serve := range map[string]func(http.ResponseWriter, *http.Request) error{
		"POST /start":                         s.createSession,
		"POST /api/offer":                     s.handleOffer,
		"PATCH /api/offer":                    s.handleCandidates,
		"POST /sessions/{session}/api/offer":  s.handleOffer,
		"PATCH /sessions/{session}/api/offer": s.handleCandidates,
	} {
		list = append(list, signaling.Endpoint{Pattern: pattern, Handler: signaling.NewHandler(s.Logger, protocolName, serve, writeError)})
	}
	return list
}

// badMessage returns the error for invalid input of a client.
func badMessage(format string, args ...any) error {
	return &bridge.Error{Code: bridge.CodeBadMessage, Message: fmt.Sprintf(format, args...)}
}

// newOfferError returns the error for an offer that cannot be answered.
func newOfferError(err error) error {
	var bad *rtc.RefusedError
	if errors.As(err, &bad) {
		return &bridge.Error{Code: bridge.CodeBadOffer, Message: fmt.Sprintf("The offer %v.", bad)}
	}
	return err
}

// errCallNotFound reports that a call has ended. Its status is between 400 and 499, so that clients do not retry.
var errCallNotFound = &bridge.Error{
	Code: bridge.CodeBadMessage, Message: "There is no such conversation, or it has ended.", Status: http.StatusNotFound,
}

// writeError sends an error in the format of FastAPI, the framework of Pipecat's servers, because Pipecat's clients
// show the field "detail".
func writeError(w http.ResponseWriter, err error) {
	e := bridge.AsError(err)
	status := cmp.Or(access.RefusalStatusOrZero(e), e.Status)
	switch {
	case status != 0:
	case errors.Is(err, bridge.ErrShutdown), e.Code == bridge.CodeConnectionFailed, e.Code == bridge.CodeConnectionNotEstablished:
		status = http.StatusServiceUnavailable
	case e.Code == bridge.CodeBadMessage, e.Code == bridge.CodeBadOffer, e.Code == bridge.CodeBadConfig:
		status = http.StatusBadRequest
	default:
		status = http.StatusBadGateway
	}
	if e.Retry > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(access.RetrySeconds(e.Retry)))
	}
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer") // RFC 6750, section 3
	}
	access.WriteJSON(w, status, object{"detail": e.Message, "code": e.Code})
}

// request is the body of every request.
type request struct {
	SDP     string          `json:"sdp"`
	ID      string          `json:"pc_id"` // ID of an existing call, or empty
	Restart bool            `json:"restart_pc"`
	Data    json.RawMessage `json:"request_data"`
	Camel   json.RawMessage `json:"requestData"` // client-js spells request_data this way

	Candidates []candidate     `json:"candidates"`
	Body       json.RawMessage `json:"body"` // body of a request to /start
}

type candidate struct {
	Candidate string `json:"candidate"`
}

// callSettings holds the settings that a client may choose for its conversation.
type callSettings struct {
	Agent  string          `json:"agent"`  // name of an agent, or empty
	Config json.RawMessage `json:"config"` // a LiveConfig
}

// parseRequest reads and parses a request. The body can be read again, so that the request can be proxied to another
// gateway.
func parseRequest(w http.ResponseWriter, r *http.Request) (body request, err error) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var long *http.MaxBytesError
	if errors.As(err, &long) {
		return body, &bridge.Error{
			Code: bridge.CodeBadMessage, Status: http.StatusRequestEntityTooLarge,
			Message: fmt.Sprintf("The body is too long: at most %d bytes are allowed.", long.Limit),
		}
	}
	if err == nil {
		r.Body = io.NopCloser(bytes.NewReader(raw))
		err = json.Unmarshal(bytes.TrimPrefix(raw, []byte("\ufeff")), &body)
	}
	if err != nil {
		return body, badMessage("The body cannot be read: %v.", tools.ExplainJSON(err, ""))
	}
	return body, nil
}

// createSession handles /start, for clients that request a session first.
func (s *Server) createSession(w http.ResponseWriter, r *http.Request) error {
	body, bad := parseRequest(w, r)
	settings, unclear := parseSettings(r, request{Data: body.Body})
	if _, err := admitClient(r, settings); err != nil {
		return err
	}
	if err := cmp.Or(bad, unclear); err != nil {
		return err
	}
	if len(body.Body) > maxSessionData {
		return badMessage("body has %d bytes; at most %d are allowed. Send it as requestData with the offer.", len(body.Body), maxSessionData)
	}
	name := rand.Text()[:8] + "." + base64.RawURLEncoding.EncodeToString(body.Body)
	servers := s.ICEServers()
	if servers == nil {
		servers = []signaling.ICEServer{} // without a list, the Android client uses Google's servers
	}
	access.WriteJSON(w, http.StatusOK, object{"sessionId": name, "iceConfig": object{"iceServers": servers}})
	return nil
}

// admitClient checks that a client may begin a conversation.
func admitClient(r *http.Request, settings callSettings) (open bridge.SessionRequest, err error) {
	open.Origin, open.Config = bridge.Origin{Protocol: protocolName, Agent: settings.Agent}, settings.Config
	err = access.From(r.Context()).Authorize(&open, "")
	return open, err
}

// parseSettings returns the client's settings for the conversation, from /start and from the offer.
func parseSettings(r *http.Request, body request) (settings callSettings, err error) {
	var sessionData []byte
	if _, text, ok := strings.Cut(r.PathValue("session"), "."); ok {
		if sessionData, err = base64.RawURLEncoding.DecodeString(text); err != nil {
			return settings, errCallNotFound
		}
	}
	for _, raw := range [][]byte{sessionData, body.Data, body.Camel} {
		if len(raw) == 0 {
			continue
		}
		if err := json.Unmarshal(raw, &settings); err != nil {
			return settings, badMessage("The settings of a call must be an object like {\"config\": {…}}: %v.", tools.ExplainJSON(err, ""))
		}
	}
	return settings, nil
}

// handleOffer starts a call, or continues one. The id of a call is a secret of 128 bits, and the only credential of its
// client.
func (s *Server) handleOffer(w http.ResponseWriter, r *http.Request) error {
	body, bad := parseRequest(w, r)
	if bad == nil && s.proxyToOwner(w, r, body.ID) {
		return nil
	}
	c, exists := s.calls.FindCall(body.ID)
	if !exists && r.Header.Get(signaling.ProxiedHeader) != "" { // proxied here to continue a call, which has ended
		return errCallNotFound
	}
	var open bridge.SessionRequest
	settings, unclear := parseSettings(r, body)
	if !exists {
		var err error
		if open, err = admitClient(r, settings); err != nil {
			return err
		}
	}
	switch err := cmp.Or(bad, unclear); {
	case err != nil:
		return err
	case !exists && s.calls.HasEnded(body.ID):
		return errCallNotFound
	}
	offer, err := rtc.ParseOffer(body.SDP)
	if err != nil {
		return newOfferError(err)
	}
	if !exists && !offer.SendsAudio() && !offer.ReceivesAudio() {
		return &bridge.Error{Code: bridge.CodeBadOffer, Message: "The offer has no audio section that sends or receives."}
	}
	id, sdp := body.ID, ""
	if exists {
		err = c.RunInCall(r.Context(), errCallNotFound, func() (err error) {
			sdp, err = c.answerOffer(offer, body.Restart)
			return err
		})
	} else {
		id = signaling.OwnedID(s.Host, rand.Text())
		sdp, err = s.startCall(r, id, offer, open)
	}
	if err != nil {
		return err
	}
	access.WriteJSON(w, http.StatusOK, object{"sdp": sdp, "type": "answer", "pc_id": id})
	return nil
}

func (s *Server) startCall(r *http.Request, id string, offer rtc.Offer, open bridge.SessionRequest) (sdp string, err error) {
	c := &call{
		HTTPCall: signaling.HTTPCall{Offer: offer}, server: s, offerLimiter: rtc.NewOfferLimiter(),
		log:    s.Logger.With("door", protocolName, "remote", access.From(r.Context()).Address()),
		events: eventWriter{pendingCalls: map[string]string{}},
	}
	return s.calls.StartCall(r, s.Host, id, c, open)
}

// handleCandidates adds the client's candidates.
func (s *Server) handleCandidates(w http.ResponseWriter, r *http.Request) error {
	body, err := parseRequest(w, r)
	if err != nil || s.proxyToOwner(w, r, body.ID) {
		return err
	}
	c, ok := s.calls.FindCall(body.ID)
	if !ok {
		return errCallNotFound
	}
	if err := c.RunInCall(r.Context(), errCallNotFound, func() error { return c.addCandidates(body.Candidates) }); err != nil {
		return err
	}
	access.WriteJSON(w, http.StatusOK, object{"status": "success"})
	return nil
}

// proxyToOwner proxies a request to the gateway that owns the call. It returns false if no other gateway owns it.
func (s *Server) proxyToOwner(w http.ResponseWriter, r *http.Request, id string) (isProxied bool) {
	return signaling.ProxyToOwner(w, r, s.Host, id, "", func(err error) {
		s.Logger.Warn("another gateway does not answer", "err", err)
		writeError(w, errCallNotFound)
	})
}
