// Package geminilive serves clients of Google's Live API (https://ai.google.dev/api/live): its SDKs, and software built
// on them. It implements the API's WebSocket, with a token of the gateway in place of Google's key. docs/clients.md
// describes which line of a client must be changed, and what is not supported.
//
// A call is one socket and a [bridge.Caller]. A translator converts events to Google's messages, and a reader parses a
// client's messages to commands; both are independent of the socket. A client does not notice when a connection to
// Google ends. The gateway gives it resumption handles of its own, so that it can continue its conversation after its
// socket was lost.
package geminilive

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/tools"
)

// protocolName identifies this endpoint in grants and tools.
var protocolName = bridge.RegisterProtocol("live", bridge.InAgents|bridge.InGrants)

// Server serves the Live API.
type Server struct {
	Host    *bridge.Host
	Agents  *agents.Folder  // a client selects an agent by "models/NAME"
	Secrets *access.Secrets // stores the ephemeral tokens
	Logger  *slog.Logger
}

// Endpoints returns the endpoints. All API versions behave the same, also for ephemeral tokens.
func (srv *Server) Endpoints() (list []signaling.Endpoint) {
	for _, version := range []string{"v1", "v1beta", "v1alpha"} {
		mint := signaling.NewHandler(srv.Logger, protocolName, srv.serveTokenRequest, signaling.WriteGoogleErrorFor)
		list = append(list, signaling.Endpoint{Pattern: "POST /" + version + "/auth_tokens", Handler: mint})
		for _, method := range []string{"BidiGenerateContent", "BidiGenerateContentConstrained"} {
			list = append(
				list,
				signaling.Endpoint{Pattern: "GET /ws/google.ai.generativelanguage." + version + ".GenerativeService." + method, Socket: srv},
			)
		}
	}
	return list
}

// ServeHTTP serves one WebSocket until it is closed.
func (srv *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{server: srv, setupSent: make(chan struct{}), failed: make(chan error, 1)}
	o := signaling.SocketOptions{Limit: maxMessage, CloseReason: closeReason, OnRoundTrip: c.onRoundTrip}
	signaling.ServeSocket(w, r, o, func(ctx context.Context, s *signaling.Socket) error {
		c.Socket, c.log = s, srv.Logger.With("remote", s.Remote())
		err := c.run(ctx, tokenFromRequest(r))
		if code, _ := closeReason(err); code != signaling.CloseNormal {
			c.log.Info("live client refused or lost", "close", code, "err", tools.Truncate(err.Error(), maxLogged))
		}
		return err
	})
}

// tokenFromRequest returns the token from the places that only Google's clients use, or "". Package access reads the common headers.
func tokenFromRequest(r *http.Request) string {
	query := r.URL.Query()
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Token ")
	if !ok {
		token = ""
	}
	return strings.TrimPrefix(cmp.Or(token, query.Get("access_token"), query.Get("key")), ephemeralPrefix)
}

// setupFieldNames translates the field names in errors of package bridge to those of this API.
var setupFieldNames = strings.NewReplacer("initialConfig.", "setup.", "payload.", "setup.")

// closeReason returns the close code and reason of Google's server for err. The code decides whether clients retry; see
// bridge/gemini/wire/cause.go.
func closeReason(err error) (code int, reason string) {
	code, reason = signaling.CloseReason(err)
	if code == signaling.CloseNormal || code == signaling.CloseGoingAway || errors.Is(err, signaling.ErrSlow) ||
		errors.Is(err, signaling.ErrNoFirstMessage) {
		return code, reason
	}
	reason = setupFieldNames.Replace(reason)
	e := bridge.AsError(err)
	if e.Field == agents.ErrorField { // an error of the agent closes the socket like an unknown model
		return signaling.ClosePolicy, reason
	}
	switch e.Code {
	case bridge.CodeBadMessage,
		bridge.CodeBadConfig,
		bridge.CodeInvalidAudioFormat,
		bridge.CodeConfigUpdateFailed,
		bridge.CodeInvalidState,
		bridge.CodeRefused:
		return signaling.CloseInvalid, reason
	case bridge.CodeResumptionFailed:
		return signaling.ClosePolicy, "BidiGenerateContent session not found" // SDKs and frameworks look for this text
	case bridge.CodeBusy, bridge.CodeStreamLimitExceeded:
		return signaling.CloseFailed, "RESOURCE_EXHAUSTED: " + reason
	}
	return code, reason
}
