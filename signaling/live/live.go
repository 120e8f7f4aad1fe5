// Package live is the door for clients of Google's Live API: its SDKs, and what is built on them, find here the WebSocket that
// they know (https://ai.google.dev/api/live), with a token of the gateway in place of Google's key. docs/clients.md says which line
// of a client changes, and what is not served.
//
// A call is one socket and a [bridge.Caller]. A translator makes Google's messages of events, and parse makes commands of a client's
// messages; both know no socket. The end of a connection to Google never reaches a client: it is told handles of the gateway's own,
// and goes on with its conversation by one of these when its socket is lost.
package live

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/gorilla/websocket"

	"voxgate/bridge"
	"voxgate/signaling"
	"voxgate/tools"
)

// doorName is what grants and tools know this door by.
const doorName = "live"

// Door serves the Live API.
type Door struct {
	Host   *bridge.Host
	Logger *slog.Logger
}

// Doors are its addresses: each version that a client may ask for is the same, and so is the method for ephemeral tokens.
func (d *Door) Doors() (list []signaling.Door) {
	for _, version := range []string{"v1", "v1beta", "v1alpha"} {
		for _, method := range []string{"BidiGenerateContent", "BidiGenerateContentConstrained"} {
			list = append(list, signaling.Door{Pattern: "GET /ws/google.ai.generativelanguage." + version + ".GenerativeService." + method, Socket: d})
		}
	}
	return list
}

// ServeHTTP serves one socket until it is lost or closed.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := newCall(d)
	line, err := signaling.Accept(w, r, c.onRoundTrip)
	if err != nil {
		return // Accept has answered
	}
	defer line.Close()
	c.line, c.log = line, d.Logger.With("remote", line.Remote())
	ctx, cancel := context.WithCancelCause(r.Context())
	var running sync.WaitGroup
	over, written, gone := make(chan struct{}), make(chan struct{}), make(chan struct{})
	running.Go(func() { line.Ping(ctx) })
	running.Go(func() { c.read(gone) })
	running.Go(func() {
		defer close(written)
		if err := c.send(over); err != nil {
			cancel(err)
		}
	})
	err = c.run(ctx, tokenOf(r))
	close(over)
	c.out.Close()
	<-written
	code, reason := goodbye(err)
	if code != websocket.CloseNormalClosure {
		c.log.Info("live client refused or lost", "close", code, "err", tools.Cut(err.Error(), maxLogged))
	}
	line.Goodbye(code, reason) // which ends read
	close(gone)
	cancel(nil)
	running.Wait()
}

// ephemeral begins the names of Google's ephemeral tokens. SDKs send what begins so in another way than a key.
const ephemeral = "auth_tokens/"

// tokenOf is the token in one of the forms that are Google's alone; empty: there is none. Other headers the kit has read.
func tokenOf(r *http.Request) string {
	query := r.URL.Query()
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Token ")
	if !ok {
		token = ""
	}
	return strings.TrimPrefix(cmp.Or(token, query.Get("access_token"), query.Get("key")), ephemeral)
}

// errNoSetup is the end of a socket that never sent a setup.
var errNoSetup = errors.New("no setup came in time")

// inSetup gives the names of a config's fields, as the engine has them, those that they have here.
var inSetup = strings.NewReplacer("initialConfig.", "setup.", "payload.", "setup.")

// goodbye is the close code and the reason by which Google's server would say why it is over. The codes are those of
// bridge/gemini/wire/cause.go, by which clients tell what is worth another try.
func goodbye(err error) (code int, reason string) {
	code, reason = signaling.Goodbye(err)
	if errors.Is(err, errNoSetup) {
		return websocket.ClosePolicyViolation, err.Error()
	}
	if code == websocket.CloseNormalClosure || code == websocket.CloseGoingAway || errors.Is(err, signaling.ErrSlow) {
		return code, reason
	}
	reason = inSetup.Replace(reason)
	switch e := bridge.AsError(err); e.Code {
	case bridge.CodeBadMessage, bridge.CodeBadConfig, bridge.CodeInvalidAudioFormat, bridge.CodeConfigUpdateFailed, bridge.CodeInvalidState, bridge.CodeRefused:
		return websocket.CloseInvalidFramePayloadData, reason
	case bridge.CodeResumptionFailed:
		return websocket.ClosePolicyViolation, "BidiGenerateContent session not found" // by which SDKs and frameworks know it
	case bridge.CodeBusy, bridge.CodeStreamLimitExceeded:
		return websocket.CloseInternalServerErr, "RESOURCE_EXHAUSTED: " + reason
	}
	return code, reason
}
