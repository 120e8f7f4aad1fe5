package tools

import (
	"context"
	"encoding/json"
	"errors"
	"html"
	"time"
)

// PersonTimeout limits how long a user may take to answer a question. It is long enough to look up a number.
const PersonTimeout = 5 * time.Minute

// ErrNobody is returned by [AskPerson] and [Confirm] if no user can be asked: outside a conversation, or if the client
// has no screen.
var ErrNobody = errors.New("no user with a screen can be asked")

// Env gives a running call access to its conversation.
type Env struct {
	Call string // the ID of the call
	SessionInfo

	// AskPerson shows a canvas and returns the user's input, or {"dismissed":true}. It blocks for at most
	// PersonTimeout. AskPerson is nil if no user can be asked.
	AskPerson func(ctx context.Context, canvas json.RawMessage) (json.RawMessage, error)

	// PauseRecording pauses or resumes the recording of the conversation. It is nil without a recording.
	PauseRecording func(on bool) error

	// SendPartial sends the model an interim response, if the model supports that.
	SendPartial func(partial json.RawMessage)
}

// SessionInfo describes the conversation to tools that run outside the gateway.
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

// EnvOf returns the Env of the call that ctx belongs to. If ctx belongs to no call, it returns an empty Env.
func EnvOf(ctx context.Context) *Env {
	if env, ok := ctx.Value(envKey{}).(*Env); ok {
		return env
	}
	return &Env{}
}

// AskPerson shows the user a canvas, and blocks until the user answers. canvas is {"elements":[…]}, as for the canvas
// tools. The result is an object with the inputs by ID and the button's "action", or {"dismissed":true}. Meanwhile the
// tool's timeout is paused.
func AskPerson(ctx context.Context, canvas json.RawMessage) (json.RawMessage, error) {
	env := EnvOf(ctx)
	if env.AskPerson == nil {
		return nil, ErrNobody
	}
	defer pauseClock(ctx)()
	return env.AskPerson(ctx, canvas)
}

// Confirm shows the user a text with the buttons Yes and No, and blocks like [AskPerson]. It returns true only if the
// user chooses Yes.
func Confirm(ctx context.Context, text string) (isConfirmed bool, err error) {
	type element map[string]string
	question, err := json.Marshal(map[string]any{"type": "canvas", "elements": []element{
		{"type": "text", "value": html.EscapeString(text)},
		{"type": "button", "label": "Yes", "action": "submit"},
		{"type": "button", "label": "No", "action": "dismiss"},
	}})
	if err != nil {
		return false, err
	}
	answer, err := AskPerson(ctx, question)
	if err != nil {
		return false, err
	}
	var put struct {
		Dismissed bool   `json:"dismissed"`
		Action    string `json:"action"`
	}
	return json.Unmarshal(answer, &put) == nil && !put.Dismissed && put.Action == "submit", nil
}

// ReportProgress reports the progress of a call to models that support it. partial is a JSON object.
func ReportProgress(ctx context.Context, partial json.RawMessage) {
	if tell := EnvOf(ctx).SendPartial; tell != nil {
		tell(partial)
	}
}
