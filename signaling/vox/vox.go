// Package vox is the door of the VOX assistant: a conversation over one WebSocket, on which binary frames are sound and
// text frames are JSON. PROTOCOL.md describes it for client authors, docs/vox.md for operators.
//
// A visit is a socket, which may carry several conversations, one after the other (caller.go, a [bridge.Caller]): with a
// Live model, or with one that writes, for which bridge has a connection of its own. An assistant is what a conversation
// keeps when its socket is lost. A translator makes messages of events, and parse makes commands of messages; both know no
// socket.
package vox

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"

	"golang.org/x/time/rate"

	"voxgate/bridge"
	"voxgate/signaling"
	desk "voxgate/tools/vox"
)

// doorName is what grants and tools know this door by.
const doorName = "vox"

// Generate is how a model that writes is asked.
type Generate func(
	ctx context.Context, account bridge.Account, model string, request json.RawMessage, piece func(json.RawMessage) error,
) (cost bridge.Cost, err error)

// Door serves the VOX assistant.
type Door struct {
	Host *bridge.Host

	// Generate has a model that writes answer a GenerateContentRequest, and hands on each GenerateContentResponse of
	// its stream. It blocks until the answer has ended. Account pays what it costs, in tokens. An error with
	// [bridge.ErrBudget] beneath it says that nothing like it can be paid any more.
	Generate Generate

	// Known fails if there is no such model that writes. Nil: each answer says so.
	Known func(ctx context.Context, model string) error

	AppModel  string          // writes apps; empty: none does
	Workspace *desk.Workspace // keeps apps; nil: there is no room for any
	MaxTokens int             // no app is begun in a conversation whose apps have taken so many; 0: no limit
	Logger    *slog.Logger
}

// Doors are its addresses.
func (d *Door) Doors() []signaling.Endpoint {
	doors := []signaling.Endpoint{{Pattern: "GET /api/vox/live", Socket: d}}
	if d.Workspace != nil {
		doors = append(doors, signaling.Endpoint{Pattern: "GET /vox/apps/{app}/{file...}", Handler: d.Workspace, Public: true})
	}
	return doors
}

// ServeHTTP serves one socket until it is lost or closed.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := &visit{door: d, wrong: rate.NewLimiter(complaints, complaintsAtOnce)}
	o := signaling.SocketOptions{Read: readFrame, CloseReason: signaling.CloseReason, OnRoundTrip: v.onRoundTrip}
	signaling.ServeSocket(w, r, o, func(ctx context.Context, s *signaling.Socket) error {
		v.Socket, v.log, v.in = s, d.Logger.With("remote", s.Remote()), s.Messages()
		return v.run(ctx)
	})
}
