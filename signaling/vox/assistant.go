package vox

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"voxgate/bridge"
	desk "voxgate/tools/vox"
)

const (
	// maxKept is how many actions are kept for a client that may come back.
	maxKept = 32

	// repeated is for how long an action may have gone to a socket that was dead already: it is given up after 20 s.
	repeated = 40 * time.Second
)

// assistant is what belongs to one conversation and not to the client that carries it: the project its tools work on, and who pays.
type assistant struct {
	door    *Door
	theme   string
	desk    *desk.Desk
	grant   *bridge.Grant
	account bridge.Account
	said    atomic.Int64 // how often the person has spoken or typed
	tokens  atomic.Int64 // of models that write

	mu      sync.Mutex
	client  *visit // who is told; nil: nobody is there
	kept    []action
	session *bridge.Session // nil before it has begun, and in typed talk
}

func (d *Door) newAssistant(v *visit, theme string, start clientMessage, open bridge.Open) *assistant {
	a := &assistant{door: d, theme: theme, grant: open.Grant, account: open.Account, client: v}
	a.desk = &desk.Desk{
		Project: desk.NewProject(start.ProjectContext), Targets: start.Targets, Workspace: d.Workspace,
		Act: a.act, Said: func() int { return int(a.said.Load()) },
	}
	if d.AppModel != "" {
		a.desk.Generate = a.write
	}
	return a
}

// action is something that the client was to do.
type action struct {
	desk.Action
	at     time.Time
	missed bool // nobody was there
}

// act tells the client what to do, and keeps it for one that comes back.
func (a *assistant) act(what desk.Action) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client != nil {
		a.client.put(uiAction{what})
	}
	if what.Action == desk.ActProgress {
		return
	}
	if len(a.kept) == maxKept {
		a.kept = a.kept[1:]
	}
	a.kept = append(a.kept, action{what, time.Now(), a.client == nil})
}

// follow has this client told from now on. One that is back is told again of what it may not know; where to go, only if it cannot.
func (a *assistant) follow(v *visit) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client == v {
		return
	}
	a.client = v
	for i, k := range a.kept {
		if k.missed || time.Since(k.at) < repeated && k.Action.Action != desk.ActNavigate {
			v.put(uiAction{k.Action})
		}
		a.kept[i].missed = false
	}
}

// begun notes the conversation.
func (a *assistant) begun(s *bridge.Session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.session = s
}

// leave has nobody told, unless another client is.
func (a *assistant) leave(v *visit) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client == v {
		a.client = nil
	}
}

// over tells whether its conversation has ended.
func (a *assistant) over() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.session == nil {
		return false
	}
	select {
	case <-a.session.Done():
		return true
	default:
		return false
	}
}

// assistantOf finds the assistant of a conversation, which is own if it has just begun.
func (d *Door) assistantOf(id string, own *assistant) *assistant {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.assistants == nil {
		d.assistants = map[string]*assistant{}
	}
	if d.assistants[id] == nil {
		d.assistants[id] = own
	}
	return d.assistants[id]
}

// sweep forgets the assistants of conversations that are over. Who is not waited for any more is found at the end of another one.
func (d *Door) sweep() {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.assistants, func(_ string, a *assistant) bool { return a.over() })
}

// content is a Content of Google's.
type content struct {
	Role  string            `json:"role"`
	Parts []json.RawMessage `json:"parts"`
}

func textPart(text string) json.RawMessage { return encoded(map[string]string{"text": text}) }

// encoded is a value as JSON. What it is called with always has one.
func encoded(value any) json.RawMessage {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return raw
}

// answerChunk is what is read of a GenerateContentResponse.
type answerChunk struct {
	Candidates []struct {
		Content      content `json:"content"`
		FinishReason string  `json:"finishReason"`
	} `json:"candidates"`
	PromptFeedback struct {
		BlockReason string `json:"blockReason"`
	} `json:"promptFeedback"`
	UsageMetadata struct {
		TotalTokenCount int `json:"totalTokenCount"`
	} `json:"usageMetadata"`
}

// ask has a model answer, hands on the parts of its answer as they come, and has them paid. It fails if the model has not come to its
// own end.
func (a *assistant) ask(ctx context.Context, model string, request json.RawMessage, take func(part json.RawMessage) error) error {
	if !a.grant.Allows(model) {
		return &bridge.Error{Code: bridge.CodeForbidden, Message: fmt.Sprintf("This token does not grant the model %s.", model)}
	}
	if err := a.spend(0); err != nil {
		return err
	}
	tokens, ended := 0, "STOP" // some models forget to say it
	err := a.door.Generate(ctx, model, request, func(raw json.RawMessage) error {
		var c answerChunk
		if err := json.Unmarshal(raw, &c); err != nil {
			return &bridge.Error{Code: bridge.CodeConnectionFailed, Message: "The model's answer cannot be read.", Err: err}
		}
		if n := c.UsageMetadata.TotalTokenCount; n > 0 {
			tokens = n // each piece tells of all so far
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
	a.tokens.Add(int64(tokens))
	_ = a.spend(tokens) // what follows is refused
	if err == nil && ended != "STOP" {
		err = &bridge.Error{Code: bridge.CodeRefused, Message: "The model has not finished its answer: " + ended + "."}
	}
	return err
}

// spend counts tokens with who pays. The error is that nothing is left to spend.
func (a *assistant) spend(tokens int) error {
	if left, most := a.account.Spend(tokens); most > 0 && left <= 0 {
		return bridge.ErrBudget
	}
	if most := a.door.MaxTokens; most > 0 && int(a.tokens.Load()) >= most {
		return bridge.ErrTokenLimit
	}
	return nil
}

// write has the model for apps write.
func (a *assistant) write(ctx context.Context, prompt string, piece func(string) error) error {
	request := encoded(map[string]any{"contents": []content{{roleUser, []json.RawMessage{textPart(prompt)}}}})
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
