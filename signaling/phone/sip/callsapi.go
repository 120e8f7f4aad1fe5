package sip

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"voxgate/bridge"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/phone"
	"voxgate/signaling/phone/sip/ua"
	"voxgate/tools"
)

// maxDial limits the body of a request for a call, in bytes.
const maxDial = 64 << 10

// Endpoints returns the HTTP endpoints for outgoing calls, which need a server key.
func (s *Server) Endpoints() []signaling.Endpoint {
	return []signaling.Endpoint{
		{Pattern: "POST /v1/calls", Handler: requireKey(s.serveDial)},
		{Pattern: "GET /v1/calls/{id}", Handler: requireKey(s.withCall(s.serveStatus))},
		{Pattern: "DELETE /v1/calls/{id}", Handler: requireKey(s.withCall(s.serveHangUp))},
	}
}

// requireKey admits only clients whose server key may make calls.
func requireKey(serve func(w http.ResponseWriter, r *http.Request, key string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, err := access.From(r.Context()).RequireKey(access.MayCall)
		if err != nil {
			access.WriteError(w, err)
			return
		}
		serve(w, r, key)
	})
}

// withCall returns a handler that finds the call that the request names and passes it to serve. It answers "not found"
// if the call is unknown or was made with another server key.
func (s *Server) withCall(serve func(http.ResponseWriter, placedCall, CallStatus)) func(http.ResponseWriter, *http.Request, string) {
	return func(w http.ResponseWriter, r *http.Request, key string) {
		c, status, ok := s.registry.findCall(key, r.PathValue("id"))
		if !ok {
			access.WriteNotFound(w, "There is no call with this id.")
			return
		}
		serve(w, c, status)
	}
}

func (s *Server) serveStatus(w http.ResponseWriter, _ placedCall, status CallStatus) {
	access.WriteJSON(w, http.StatusOK, status)
}

// serveHangUp ends a call, or cancels it while it rings.
func (s *Server) serveHangUp(w http.ResponseWriter, c placedCall, _ CallStatus) {
	c.End(errByBackend)
	w.WriteHeader(http.StatusNoContent)
}

// serveDial makes a call. It responds when the phone rings or the call fails.
func (s *Server) serveDial(w http.ResponseWriter, r *http.Request, key string) {
	var what Dial
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxDial))
	if err == nil {
		err = tools.ReadStrictJSON(body, &what)
	}
	if err != nil {
		err = &bridge.Error{Code: bridge.CodeBadMessage, Message: "The body is not a call request: " + err.Error()}
	}
	if err == nil && what.Supervise != "" {
		err = s.authorizeSupervision(r, what.Supervise)
	}
	var id string
	if err == nil {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add((maxRingSeconds + 5) * time.Second))
		id, err = s.CallUntilRinging(r.Context(), key, what)
	}
	var bridgeErr *bridge.Error
	switch {
	case err != nil && id != "" && !errors.As(err, &bridgeErr) && !errors.Is(err, bridge.ErrShutdown) && r.Context().Err() == nil:
		writeNotAnswered(w, id, err)
	case err != nil:
		s.log.Warn("call not made", "key", key, "trunk", phone.SanitizeField(what.Trunk), "to", phone.SanitizeField(what.To), "err", err)
		access.WriteError(w, err)
	default:
		access.WriteJSON(w, http.StatusOK, map[string]string{"id": id})
	}
}

// writeNotAnswered responds that the call was placed but not answered.
func writeNotAnswered(w http.ResponseWriter, id string, err error) {
	why := map[string]any{"code": "not_answered", "message": err.Error()}
	var refused *ua.RefusedError
	if errors.As(err, &refused) {
		why["sip"] = refused.Status
		if seconds := int(refused.RetryAfter.Seconds()); seconds > 0 {
			why["retryAfter"] = seconds
			w.Header().Set("Retry-After", strconv.Itoa(seconds))
		}
	}
	access.WriteJSON(w, http.StatusConflict, map[string]any{"id": id, "error": why})
}

// CallUntilRinging makes a call for a server key. It blocks until the phone rings or the call fails. After that the call
// runs in the background.
func (s *Server) CallUntilRinging(ctx context.Context, key string, what Dial) (id string, err error) {
	what.To, what.From = normalizeNumber(what.To), normalizeNumber(what.From)
	r, fresh := s.registry.addCall(key, what)
	if fresh {
		err = s.dialUntilRinging(ctx, r)
		s.registry.dropCall(r)
	}
	select {
	case <-r.ready:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	s.registry.mu.Lock()
	id, made := r.status.ID, r.call != nil
	s.registry.mu.Unlock()
	if !fresh && !made { // the first request with this idempotency key has failed, so this one may try
		return s.CallUntilRinging(ctx, key, what)
	}
	return id, err
}

// normalizeNumber returns the normal form of a number in a backend's request. It returns a SIP URI unchanged.
func normalizeNumber(text string) string {
	if scheme, _, ok := strings.Cut(strings.ToLower(text), ":"); ok && (scheme == "sip" || scheme == "sips") {
		return text
	}
	return string(phone.ParseNumber(text))
}
