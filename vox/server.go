// Package vox serves the VOX assistant: a conversation over one WebSocket, with audio in binary frames and JSON in text
// frames. PROTOCOL.md describes the protocol for client authors. docs/vox.md is for operators.
//
// A socket (clientConn) may have several conversations, one after the other. Each conversation has a caller, which is a
// [bridge.Caller], and a Live model or a text model. Package bridge implements the connections to both kinds of models.
// An assistant is the state that a conversation keeps when its socket is lost. A translator converts events to
// messages, and parseMessage parses a client's messages. Neither of them uses the socket.
package vox

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"

	"golang.org/x/time/rate"

	"voxgate/bridge"
	"voxgate/signaling"
	desk "voxgate/vox/assistant"
)

// protocolName identifies this endpoint in grants and tools.
var protocolName = bridge.RegisterProtocol("vox", bridge.InGrants)

// Generate requests an answer of a text model: see [Server.Generate].
type Generate func(
	ctx context.Context, account bridge.Account, model string, request json.RawMessage, piece func(json.RawMessage) error,
) (cost bridge.Cost, err error)

// Server serves the VOX assistant.
type Server struct {
	Host *bridge.Host

	// Generate sends a request to a text model, and calls piece with each GenerateContentResponse of the answer. It
	// blocks until the answer has ended. It charges the cost to the account. If the account's budget is too low, the
	// error wraps [bridge.ErrBudget].
	Generate Generate

	// CheckModel returns an error if the text model does not exist. It may be nil. An unknown model is then reported
	// only by Generate.
	CheckModel func(ctx context.Context, model string) error

	AppModel  string          // model that writes apps; empty to disable them
	Workspace *desk.Workspace // stores apps; nil to disable storage
	MaxTokens int             // limit on the tokens for apps per conversation, checked before each app; 0 for no limit
	Logger    *slog.Logger
}

// Endpoints returns the endpoints.
func (srv *Server) Endpoints() []signaling.Endpoint {
	list := []signaling.Endpoint{{Pattern: "GET /api/vox/live", Socket: srv}}
	if srv.Workspace != nil {
		list = append(list, signaling.Endpoint{Pattern: "GET /vox/apps/{app}/{file...}", Handler: srv.Workspace, Public: true})
	}
	return list
}

// ServeHTTP serves one WebSocket until it is closed.
func (srv *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := &clientConn{server: srv, errorLimiter: rate.NewLimiter(errorRate, errorBurst)}
	o := signaling.SocketOptions{Read: readFrame, CloseReason: signaling.CloseReason, OnRoundTrip: v.onRoundTrip}
	signaling.ServeSocket(w, r, o, func(ctx context.Context, s *signaling.Socket) error {
		v.Socket, v.log, v.messages = s, srv.Logger.With("remote", s.Remote()), s.Messages()
		return v.run(ctx)
	})
}
