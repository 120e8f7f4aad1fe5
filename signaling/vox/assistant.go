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
	desk "voxgate/tools/vox"
)

// assistant holds the parts of a conversation that survive the client's connection: the project of its tools, and the account that pays.
type assistant struct {
	door    *Door
	theme   string
	desk    *desk.Desk
	grant   *bridge.Grant
	account bridge.Account
	tokens  atomic.Int64 // used by apps

	mu     sync.Mutex
	client *visit // the current client, or nil
	said   int    // how often the user has spoken or typed
	heard  int    // the newest turn in which the user has spoken
}

func (d *Door) newAssistant(v *visit, theme string, start clientMessage, open bridge.SessionRequest) *assistant {
	a := &assistant{door: d, theme: theme, grant: open.Grant, account: open.Account}
	project := desk.NewProject(start.ProjectContext)
	if d.Workspace != nil {
		known := false
		if project, known = d.Workspace.Project(start.Project, start.ProjectContext); start.Project != "" && !known {
			v.warn("The project is not kept here any more; this is a new one.")
		}
	}
	a.desk = &desk.Desk{
		Project: project, Targets: start.Targets, Workspace: d.Workspace, Act: a.act,
		Free: d.Host.Backend() == "emulator",
		InputCount: func() int {
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.said
		},
	}
	if d.AppModel != "" {
		a.desk.Generate = a.write
	}
	return a
}

// act sends an action to the client.
func (a *assistant) act(what desk.Action) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client != nil {
		a.client.put(uiAction(what))
	}
}

// follow makes v the current client and sends it the whole project, because it is unknown what the previous socket has lost.
func (a *assistant) follow(v *visit) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client == v {
		return
	}
	a.client = v
	for _, made := range a.desk.ReplayActions() {
		v.put(uiAction(made))
	}
}

// use switches an app to a version that the client has selected.
func (a *assistant) use(m clientMessage) error {
	if _, err := a.desk.Use(m.App, m.Version); err != nil {
		return bad("%v.", err)
	}
	return nil
}

// leave removes the client, unless another one has replaced it.
func (a *assistant) leave(v *visit) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client == v {
		a.client = nil
	}
}

// countText counts a text that the user has typed.
func (a *assistant) countText() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.said++
}

// countSpeech counts a turn in which the user speaks, once per turn.
func (a *assistant) countSpeech(turn int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if turn > a.heard {
		a.heard = turn
		a.said++
	}
}

// write lets the model for apps answer a prompt. The account pays for it in addition to the conversation.
func (a *assistant) write(ctx context.Context, prompt string, piece func(string) error) error {
	if model := a.door.AppModel; !a.grant.AllowsModel(model) {
		return &bridge.Error{Code: bridge.CodeForbidden, Message: fmt.Sprintf("This token does not grant the model %s.", model)}
	}
	if most := a.door.MaxTokens; most > 0 && int(a.tokens.Load()) >= most {
		return bridge.ErrTokenLimit
	}
	asked := map[string]any{"role": "user", "parts": []any{map[string]string{"text": prompt}}}
	request := tools.Encode(map[string]any{"contents": []any{asked}})
	var reply wire.Reply
	cost, err := a.door.Generate(ctx, a.account, a.door.AppModel, request, func(raw json.RawMessage) error {
		text, err := reply.AddText(raw)
		if err != nil || text == "" {
			return err
		}
		return piece(text)
	})
	a.tokens.Add(int64(cost.Tokens))
	if err == nil {
		err = reply.End()
	}
	return err
}
