package vox

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"

	"voxgate/bridge"
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
	talks   bool         // the model, by its voice
	tokens  atomic.Int64 // of models that write

	mu     sync.Mutex
	client *visit // that is there; nil: none
	said   int    // how often the person has spoken or typed
	heard  int    // the newest turn in which they have spoken
}

func (d *Door) newAssistant(v *visit, theme string, start clientMessage, open bridge.Open) *assistant {
	a := &assistant{
		door: d, theme: theme, grant: open.Grant, account: open.Account, talks: bridge.Talks(open.Agent.Model),
	}
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
		Said: func() int {
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
	for _, made := range a.desk.Made() {
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

// content is a Content of Google's.
type content struct {
	Role  string            `json:"role"`
	Parts []json.RawMessage `json:"parts"`

	asked bool // it is what the person has typed, and no result of a tool
}

func textPart(text string) json.RawMessage { return desk.JSON(map[string]string{"text": text}) }

// answerChunk is what is read of a GenerateContentResponse.
type answerChunk struct {
	Candidates []struct {
		Content      content `json:"content"`
		FinishReason string  `json:"finishReason"`
	} `json:"candidates"`
	PromptFeedback struct {
		BlockReason string `json:"blockReason"`
	} `json:"promptFeedback"`
}

// ask has a model answer, hands on the parts of its answer as they come, and has them paid. It fails if the model has
// not come to its own end.
func (a *assistant) ask(ctx context.Context, model string, request json.RawMessage, take func(part json.RawMessage) error) error {
	if !a.grant.Allows(model) {
		return &bridge.Error{Code: bridge.CodeForbidden, Message: fmt.Sprintf("This token does not grant the model %s.", model)}
	}
	if err := a.spent(); err != nil {
		return err
	}
	ended := "STOP" // some models forget to say it
	cost, err := a.door.Generate(ctx, a.account, model, request, func(raw json.RawMessage) error {
		var c answerChunk
		if err := json.Unmarshal(raw, &c); err != nil {
			return &bridge.Error{Code: bridge.CodeConnectionFailed, Message: "The model's answer cannot be read.", Err: err}
		}
		if c.PromptFeedback.BlockReason != "" {
			ended = c.PromptFeedback.BlockReason
		}
		if len(c.Candidates) == 0 {
			return nil
		}
		if reason := c.Candidates[0].FinishReason; reason != "" {
			ended = reason
		}
		for _, part := range c.Candidates[0].Content.Parts {
			if err := take(part); err != nil {
				return err
			}
		}
		return nil
	})
	a.tokens.Add(int64(cost.Tokens))
	if err == nil && ended != "STOP" {
		err = &bridge.Error{Code: bridge.CodeRefused, Message: "The model has not finished its answer: " + ended + "."}
	}
	return err
}

// spent is the error if nothing is left to spend. A conversation that is spoken sees to that itself, and keeps its turn reserved.
func (a *assistant) spent() error {
	if !a.talks {
		left, most := a.account.Spend(bridge.Cost{}, bridge.Cost{})
		if most.Tokens > 0 && left.Tokens <= 0 || most.Micros > 0 && left.Micros <= 0 {
			return bridge.ErrBudget
		}
	}
	if most := a.door.MaxTokens; most > 0 && int(a.tokens.Load()) >= most {
		return bridge.ErrTokenLimit
	}
	return nil
}

// write has the model for apps write.
func (a *assistant) write(ctx context.Context, prompt string, piece func(string) error) error {
	request := desk.JSON(map[string]any{"contents": []content{{Role: roleUser, Parts: []json.RawMessage{textPart(prompt)}}}})
	return a.ask(ctx, a.door.AppModel, request, func(raw json.RawMessage) error {
		if text, _ := said(raw); text != "" {
			return piece(text)
		}
		return nil
	})
}

// part is what is read of a Part.
type part struct {
	Text         string        `json:"text"`
	Thought      bool          `json:"thought"`
	FunctionCall *functionCall `json:"functionCall"`
}

type functionCall struct {
	ID   string          `json:"id"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

// said is the text of a part, and the call in it; thoughts are neither.
func said(raw json.RawMessage) (text string, call *functionCall) {
	var p part
	if json.Unmarshal(raw, &p) != nil || p.Thought {
		return "", nil
	}
	return p.Text, p.FunctionCall
}
