package bridge_test

import (
	"context"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/internal/testkit/bridgetest"
)

// elsewhere holds the codes that only other packages return.
var elsewhere = map[bridge.Code]string{
	bridge.CodeInvalidAudioFormat: "signaling: audio that cannot be read",
	bridge.CodeNotConnected:       "signaling: a message before CONNECT_GEMINI",
	bridge.CodeBadOffer:           "signaling: SDP",
	bridge.CodePeerFailed:         "signaling: WebRTC",
	bridge.CodeUnauthorized:       "signaling/access: tokens",
}

// Each code is returned in one of the cases below, or is in the list elsewhere.
func TestEveryCodeHappens(t *testing.T) {
	refusedBy := func(code int, reason string) func(*testing.T, *harness) *bridge.Error {
		return func(t *testing.T, r *harness) *bridge.Error {
			c := r.startCaller(bridge.SessionRequest{})
			r.up.NextConn().CloseWith(code, reason)
			return c.serveError()
		}
	}
	status := func(status int, o bridge.SessionRequest) func(*testing.T, *harness) *bridge.Error {
		return func(t *testing.T, r *harness) *bridge.Error {
			r.up.SetFailure(status, nil)
			return r.startCaller(o).serveError()
		}
	}
	keyed := func(o *bridge.Options) { o.Client.APIKey = "wrong" }
	happens := map[bridge.Code]struct {
		change func(*bridge.Options)
		how    func(*testing.T, *harness) *bridge.Error
	}{
		bridge.CodeBadMessage: {nil, func(t *testing.T, r *harness) *bridge.Error {
			c, _ := r.plain()
			return bridge.AsError(c.session.Do(bridge.Message{Parts: json.RawMessage(`7`)}))
		}},
		bridge.CodeInvalidState: {nil, func(t *testing.T, r *harness) *bridge.Error {
			c, _ := r.plain()
			return bridge.AsError(c.session.Do(bridge.ActivityStart))
		}},
		bridge.CodeBadConfig: {nil, func(t *testing.T,
			r *harness,
		) *bridge.Error {
			return r.startCaller(bridge.SessionRequest{Config: []byte(`[]`)}).serveError()
		}},
		bridge.CodeForbidden: {nil, func(t *testing.T, r *harness) *bridge.Error {
			return r.startCaller(bridge.SessionRequest{
				Config: []byte(`{"model":"gemini-3.8-live"}`),
				Grant:  &bridge.Grant{Models: []string{"gemini-2*"}},
			}).serveError()
		}},
		bridge.CodeConfigUpdateFailed: {nil, func(t *testing.T, r *harness) *bridge.Error {
			c, _ := r.plain()
			c.updateConfig(`[]`)
			return lastEvent[bridge.SetupFailed](c).Err
		}},
		bridge.CodeStreamLimitExceeded: {nil, func(t *testing.T, r *harness) *bridge.Error {
			c := r.startCaller(bridge.SessionRequest{})
			r.up.NextConn()
			<-c.seated
			for range 100 {
				c.doCommand(bridge.Text{Text: "again"})
			}
			return bridge.AsError(c.session.Do(bridge.Text{Text: "again"}))
		}},
		bridge.CodeAPIKeyMissing:        {nil, status(403, bridge.SessionRequest{})},
		bridge.CodeProjectIDMissing:     {func(o *bridge.Options) { o.Client.Vertex = &api.Vertex{} }, status(0, bridge.SessionRequest{})},
		bridge.CodeAuthenticationFailed: {keyed, status(401, bridge.SessionRequest{})},
		bridge.CodeConnectionFailed:     {nil, status(503, bridge.SessionRequest{})},
		bridge.CodeConnectionNotEstablished: {func(o *bridge.Options) {
			o.Client.NetDial = func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
		}, status(0, bridge.SessionRequest{})},
		bridge.CodeRefused: {nil, refusedBy(1007, "Request contains an invalid argument.")},
		bridge.CodeBusy:    {nil, refusedBy(1011, "RESOURCE_EXHAUSTED")},
		bridge.CodeWebSocketError: {nil, func(t *testing.T, r *harness) *bridge.Error {
			c, l := r.plain()
			r.cutNetwork(l)
			return c.serveError()
		}},
		bridge.CodeResumptionFailed: {nil, func(t *testing.T, r *harness) *bridge.Error {
			c, l := r.plain()
			l.DropConnection()
			r.up.NextConn().SendSetupComplete()
			return lastEvent[bridge.ErrorEvent](c).Err
		}},
		bridge.CodeAudioStream: {nil, func(t *testing.T, r *harness) *bridge.Error {
			c, l := r.plain()
			l.SendHandle("h")
			r.cutNetwork(l)
			for range 11 {
				c.sendAudio(loud(time.Second))
				time.Sleep(time.Second)
			}
			return lastEvent[bridge.ErrorEvent](c).Err
		}},
		bridge.CodeAudioProcessing: {nil, func(t *testing.T, r *harness) *bridge.Error {
			c, l := r.plain()
			l.SendContent("%s", strings.Replace(bridgetest.VoiceField(7, time.Second), "24000", "48000", 1))
			return lastEvent[bridge.ErrorEvent](c).Err
		}},
		bridge.CodeSpeakerStream: {nil, func(t *testing.T, r *harness) *bridge.Error {
			c, l := r.plain()
			l.SendVoice(7, 125*time.Second)
			return lastEvent[bridge.ErrorEvent](c).Err
		}},
		bridge.CodeToolExecution: {nil, func(t *testing.T, r *harness) *bridge.Error {
			c, l := r.connectCaller(bridge.SessionRequest{Config: []byte(declare("weather"))})
			l.CallTools("a weather")
			time.Sleep(31 * time.Second)
			return lastEvent[bridge.ErrorEvent](c).Err
		}},
		bridge.CodeToolNotFound: {nil, func(t *testing.T, r *harness) *bridge.Error {
			c, l := r.plain()
			l.CallTools("a weather")
			return lastEvent[bridge.ErrorEvent](c).Err
		}},
		bridge.CodeUnknown: {nil, func(t *testing.T, r *harness) *bridge.Error { return bridge.AsError(errors.New("a bug")) }},
	}
	for _, code := range codes(t) {
		test, ok := happens[code]
		if _, other := elsewhere[code]; ok == other {
			t.Errorf("%s is on both lists or on none", code)
		}
		if !ok {
			continue
		}
		t.Run(string(code), func(t *testing.T) {
			runWithFakeClock(t, func(t *testing.T) {
				change := test.change
				if change == nil {
					change = func(*bridge.Options) {}
				}
				e := test.how(t, newHarness(t, change))
				if e == nil || e.Code != code || !strings.HasSuffix(e.Message, ".") && e.Field == "" {
					t.Errorf("%+v", e)
				}
			})
		})
	}
}

// A conversation that reached a limit, or that was ended on purpose, has not failed.
func TestEndsThatAreNoFailures(t *testing.T) {
	words := map[error]string{
		bridge.ErrGoodbye: "goodbye", bridge.ErrLeft: "left", bridge.ErrShutdown: "shutdown",
		bridge.ErrMoved: "moved", bridge.ErrReplaced: "moved",
		bridge.ErrTimeLimit: "time_limit", bridge.ErrTokenLimit: "token_limit", bridge.ErrBudget: "budget", bridge.ErrSilence: "silence",
	}
	for reason, word := range words {
		if e := (bridge.SessionEnded{Reason: reason}); e.Code() != word || e.HasFailed() {
			t.Errorf("%v: %s, failed %v", reason, e.Code(), e.HasFailed())
		}
	}
	if e := (bridge.SessionEnded{Reason: errors.New("?")}); e.Code() != string(bridge.CodeUnknown) || !e.HasFailed() {
		t.Errorf("another reason: %s, failed %v", e.Code(), e.HasFailed())
	}
	for _, limit := range inErrors(t, func(v *ast.ValueSpec) bool {
		kind, ok := v.Type.(*ast.Ident)
		return ok && kind.Name == "Limit"
	}) {
		if words[bridge.Limit(limit)] == "" {
			t.Errorf("%q is not in this test", limit)
		}
	}
}

// serveError waits for the end of Host.Serve, and returns its error.
func (c *caller) serveError() *bridge.Error {
	c.r.t.Helper()
	select {
	case <-c.over:
	case <-time.After(time.Hour):
		c.r.t.Fatal("Serve does not end")
	}
	return bridge.AsError(c.err)
}

// codes returns all codes, read from the source.
func codes(t *testing.T) (all []bridge.Code) {
	t.Helper()
	for _, text := range inErrors(t, func(v *ast.ValueSpec) bool { return strings.HasPrefix(v.Names[0].Name, "Code") }) {
		all = append(all, bridge.Code(text))
	}
	if len(all) < 26 {
		t.Fatalf("only %d codes were found", len(all))
	}
	return all
}

// inErrors returns the values of the wanted constants in errors.go.
func inErrors(t *testing.T, wanted func(*ast.ValueSpec) bool) (all []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 && wanted(v) {
			if lit, ok := v.Values[0].(*ast.BasicLit); ok {
				text, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, text)
			}
		}
		return true
	})
	return all
}
