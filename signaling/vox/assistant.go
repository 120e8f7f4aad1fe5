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

// assistant is what belongs to one conversation and not to the client that carries it: the project its tools work on,
// and who pays.
type assistant struct {
	door    *Door
	theme   string
	desk    *desk.Desk
	grant   *bridge.Grant
	account bridge.Account
	tokens  atomic.Int64 // of apps

	mu     sync.Mutex
	client *visit // that is there; nil: none
	said   int    // how often the person has spoken or typed
	heard  int    // the newest turn in which they have spoken
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

// act sends the client an action.
func (a *assistant) act(what desk.Action) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client != nil {
		a.client.put(uiAction(what))
	}
}

// follow sends to this client from now on. It gets the whole project: what was lost with another socket is not known.
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

// use has an app be what it was in a version, as the client wants it.
func (a *assistant) use(m clientMessage) error {
	if _, err := a.desk.Use(m.App, m.Version); err != nil {
		return bad("%v.", err)
	}
	return nil
}

// leave removes this client, unless another one has taken its place.
func (a *assistant) leave(v *visit) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client == v {
		a.client = nil
	}
}

// countText counts that the person has typed something.
func (a *assistant) countText() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.said++
}

// countSpeech counts a turn in which the person speaks, once.
func (a *assistant) countSpeech(turn int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if turn > a.heard {
		a.heard = turn
		a.said++
	}
}

// write has the model for apps write. The account pays for that beside what the conversation costs.
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
