package vox

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"

	"voxgate/bridge"
	"voxgate/bridge/gemini/wire"
	"voxgate/tools"
	desk "voxgate/vox/assistant"
)

// assistant holds the state that survives when the client's connection is lost: the project with which the tools work,
// and the client's account.
type assistant struct {
	server     *Server
	theme      string
	pushToTalk bool // the client marks the user's speech
	desk       *desk.Desk
	grant      *bridge.Grant
	account    bridge.Account
	tokens     atomic.Int64 // tokens used for writing apps

	mu             sync.Mutex
	client         *clientConn // the current client, or nil
	inputCount     int         // how often the user has spoken or typed
	lastSpeechTurn int         // the newest turn in which the user has spoken
}

func (srv *Server) newAssistant(v *clientConn, theme string, start clientMessage, open bridge.SessionRequest) *assistant {
	a := &assistant{server: srv, theme: theme, pushToTalk: start.PushToTalk, grant: open.Grant, account: open.Account}
	project := desk.NewProject(start.ProjectContext)
	if srv.Workspace != nil {
		known := false
		if project, known = srv.Workspace.OpenProject(start.Project, start.ProjectContext); start.Project != "" && !known {
			v.sendWarning("The project is no longer stored here; this is a new one.")
		}
	}
	a.desk = &desk.Desk{
		Project: project, Targets: start.Targets, Workspace: srv.Workspace, Act: a.sendAction,
		Free: srv.Host.Backend() == "emulator",
		InputCount: func() int {
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.inputCount
		},
	}
	if srv.AppModel != "" {
		a.desk.Generate = a.generateApp
	}
	return a
}

// costlyAppModel returns the name of the text model that writes apps. It returns "" if apps cannot be written, or cost
// nothing.
func (a *assistant) costlyAppModel() string {
	if a.desk.Generate == nil || a.desk.Workspace == nil || a.desk.Free {
		return ""
	}
	return a.server.AppModel
}

// sendAction sends an action to the client.
func (a *assistant) sendAction(action desk.Action) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client != nil {
		a.client.sendMessage(uiAction(action))
	}
}

// attachClient makes v the current client. It sends v the actions that show the whole project, because messages on the
// previous socket may have been lost.
func (a *assistant) attachClient(v *clientConn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client == v {
		return
	}
	a.client = v
	for _, action := range a.desk.ReplayActions() {
		v.sendMessage(uiAction(action))
	}
}

// selectVersion switches an app to a version that the client has selected.
func (a *assistant) selectVersion(m clientMessage) error {
	if _, err := a.desk.SwitchVersion(m.App, m.Version); err != nil {
		return badMessage("%v.", err)
	}
	return nil
}

// detachClient removes the client v, unless another client has already replaced it.
func (a *assistant) detachClient(v *clientConn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client == v {
		a.client = nil
	}
}

// countTypedInput counts a text that the user has typed.
func (a *assistant) countTypedInput() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inputCount++
}

// countSpokenInput counts a turn in which the user speaks. It counts each turn only once.
func (a *assistant) countSpokenInput(turn int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if turn > a.lastSpeechTurn {
		a.lastSpeechTurn = turn
		a.inputCount++
	}
}

// generateApp sends a prompt to the model that writes apps, and passes the text of its answer to onText. The cost is
// charged to the account, in addition to the cost of the conversation.
func (a *assistant) generateApp(ctx context.Context, prompt string, onText func(string) error) error {
	if model := a.server.AppModel; !a.grant.AllowsModel(model) {
		return &bridge.Error{Code: bridge.CodeForbidden, Message: fmt.Sprintf("This token does not grant the model %s.", model)}
	}
	if most := a.server.MaxTokens; most > 0 && int(a.tokens.Load()) >= most {
		return bridge.ErrTokenLimit
	}
	userTurn := map[string]any{"role": "user", "parts": []any{map[string]string{"text": prompt}}}
	request := tools.EncodeOrEmpty(map[string]any{"contents": []any{userTurn}})
	var reply wire.Reply
	cost, err := a.server.Generate(ctx, a.account, a.server.AppModel, request, func(raw json.RawMessage) error {
		text, err := reply.AddText(raw)
		if err != nil || text == "" {
			return err
		}
		return onText(text)
	})
	a.tokens.Add(int64(cost.Tokens))
	if err == nil {
		err = reply.CheckComplete()
	}
	return err
}
