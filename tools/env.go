package tools

import (
	"context"
	"encoding/json"
	"errors"
	"html"
	"time"
)

// PersonTimeout is how long a person may take to answer a question: long enough to look a number up.
const PersonTimeout = 5 * time.Minute

// ErrNobody is returned by [Ask] and [Confirm] where nobody can be asked: there is no conversation, or its caller has no screen.
var ErrNobody = errors.New("there is nobody with a screen to ask")

// Env is what a running call may know of its conversation, and whom it may ask.
type Env struct {
	Call string // the id of the call
	Who

	// AskPerson shows a canvas and returns what the person has put in, or {"dismissed":true}. It waits PersonTimeout at most.
	// Nil: nobody can be asked.
	AskPerson func(ctx context.Context, canvas json.RawMessage) (json.RawMessage, error)

	// PauseRecording pauses the recording of the conversation, or goes on with it. Nil: nothing is recorded here.
	PauseRecording func(on bool) error

	// Tell sends the model an answer before the last one, where the model takes such.
	Tell func(partial json.RawMessage)
}

// Who is what a tool outside of the gateway learns of the conversation.
type Who struct {
	Session string          `json:"id"`               // of the conversation
	Door    string          `json:"door"`             // which the caller came through: "web", "sip", …
	Caller  string          `json:"caller,omitempty"` // their identity, as the door knows it; empty: unknown
	Grant   json.RawMessage `json:"grant,omitempty"`  // what the door says the caller may do; nil: nothing was said

	Attributes map[string]string `json:"attributes,omitempty"` // what came with the caller: headers of a telephone call
}

type envKey struct{}

// WithEnv returns a context in which a tool finds env.
func WithEnv(ctx context.Context, env *Env) context.Context {
	return context.WithValue(ctx, envKey{}, env)
}

// EnvOf returns what the call of ctx may know; an empty Env where there is none.
func EnvOf(ctx context.Context) *Env {
	if env, ok := ctx.Value(envKey{}).(*Env); ok {
		return env
	}
	return &Env{}
}

// Ask shows the person a canvas, {"elements":[…]} as the canvas tools take it, and returns what was put in: an object of the
// inputs' ids with their values and the button's "action", or {"dismissed":true}. The time it takes is not the tool's.
func Ask(ctx context.Context, canvas json.RawMessage) (json.RawMessage, error) {
	env := EnvOf(ctx)
	if env.AskPerson == nil {
		return nil, ErrNobody
	}
	defer pause(ctx)()
	return env.AskPerson(ctx, canvas)
}

// Confirm asks the person to agree to something.
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

// Progress reports to the model how far the call is: an object. Models that take no such reports get none.
func Progress(ctx context.Context, partial json.RawMessage) {
	if tell := EnvOf(ctx).Tell; tell != nil {
		tell(partial)
	}
}
