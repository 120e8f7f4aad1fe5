package tools

import (
	"context"
	"encoding/json"
	"errors"
	"html"
	"time"
)

// PersonTimeout limits how long a user may take to answer a question: long enough to look up a number.
const PersonTimeout = 5 * time.Minute

// ErrNobody is returned by [Ask] and [Confirm] if no user can be asked: outside a conversation, or if the client has no screen.
var ErrNobody = errors.New("no user with a screen can be asked")

// Env gives a running call access to its conversation.
type Env struct {
	Call string // the ID of the call
	SessionInfo

	// AskPerson shows a canvas and returns the user's input, or {"dismissed":true}. It blocks for at most
	// PersonTimeout. It is nil if no user can be asked.
	AskPerson func(ctx context.Context, canvas json.RawMessage) (json.RawMessage, error)

	// PauseRecording pauses or resumes the recording of the conversation. It is nil without a recording.
	PauseRecording func(on bool) error

	// SendPartial sends the model an interim response, if the model supports that.
	SendPartial func(partial json.RawMessage)
}

// SessionInfo describes the conversation to a tool outside the gateway.
type SessionInfo struct {
	Session  string          `json:"id"`               // ID of the conversation
	Protocol string          `json:"door"`             // protocol of the caller: "web", "sip", …
	Caller   string          `json:"caller,omitempty"` // the caller's identity, if known
	Grant    json.RawMessage `json:"grant,omitempty"`  // the caller's permissions, if its protocol has grants

	Attributes map[string]string `json:"attributes,omitempty"` // attributes of the caller, such as headers of a phone call
}

type envKey struct{}

// WithEnv returns a context that carries env.
func WithEnv(ctx context.Context, env *Env) context.Context {
	return context.WithValue(ctx, envKey{}, env)
}

// EnvOf returns the Env of the call that ctx belongs to, or an empty one.
func EnvOf(ctx context.Context) *Env {
	if env, ok := ctx.Value(envKey{}).(*Env); ok {
		return env
	}
	return &Env{}
}

// Ask shows the user a canvas, {"elements":[…]} as for the canvas tools, and blocks. It returns {"dismissed":true}, or
// an object with the inputs by ID and the button's "action". The tool's timeout pauses.
func Ask(ctx context.Context, canvas json.RawMessage) (json.RawMessage, error) {
	env := EnvOf(ctx)
	if env.AskPerson == nil {
		return nil, ErrNobody
	}
	defer pauseClock(ctx)()
	return env.AskPerson(ctx, canvas)
}

// Confirm shows the user a text with the buttons Yes and No, and blocks like [Ask]. It returns true only for Yes.
func Confirm(ctx context.Context, text string) (bool, error) {
	type element map[string]string
	question, err := json.Marshal(map[string]any{"type": "canvas", "elements": []element{
		{"type": "text", "value": html.EscapeString(text)},
		{"type": "button", "label": "Yes", "action": "submit"},
		{"type": "button", "label": "No", "action": "dismiss"},
	}})
	if err != nil {
		return false, err
	}
	answer, err := Ask(ctx, question)
	if err != nil {
		return false, err
	}
	var put struct {
		Dismissed bool   `json:"dismissed"`
		Action    string `json:"action"`
	}
	return json.Unmarshal(answer, &put) == nil && !put.Dismissed && put.Action == "submit", nil
}

// Progress reports the progress of a call to models that support it. partial is a JSON object.
func Progress(ctx context.Context, partial json.RawMessage) {
	if tell := EnvOf(ctx).SendPartial; tell != nil {
		tell(partial)
	}
}
