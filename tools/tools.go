// Package tools runs the functions a model calls: JSON in, JSON out. It knows neither Gemini nor WebRTC.
package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Func is one tool. It returns when ctx is done, whatever it was doing; args is a JSON object. A tool that runs in the
// caller's browser is just another Func: one that asks the browser and waits.
type Func func(ctx context.Context, args json.RawMessage) (json.RawMessage, error)

// Call is one request of the model to run a tool. ID is unique within a conversation.
type Call struct {
	ID   string          `json:"id"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

// Timeout is how long a call may take before the model is told that it failed. An unanswered call leaves some models
// deaf for good, so every call has one; 30 s covers a person who must answer a question first.
const Timeout = 30 * time.Second

// ErrTimeout is the cause of a call's context when its time is over.
var ErrTimeout = errors.New("the tool did not answer in time")

// ErrCancelled is the cause of a call's context when the model or the conversation no longer wants the answer.
var ErrCancelled = errors.New("the call was cancelled")

// Run runs f for call c and returns the response for the model: always a non-empty JSON object, also when f fails,
// panics or runs out of time. ctx is the call's own; when it was cancelled before f returned, ok is false and nobody
// wants the response.
func Run(ctx context.Context, f Func, c Call, timeout time.Duration) (response json.RawMessage, ok bool) {
	limited, cancel := context.WithTimeoutCause(ctx, timeout, ErrTimeout)
	defer cancel()
	result, err := protect(limited, f, c.Args)
	if ctx.Err() != nil {
		return nil, false
	}
	if err != nil && errors.Is(context.Cause(limited), ErrTimeout) {
		err = fmt.Errorf("%w (%v)", ErrTimeout, timeout)
	}
	return Response(result, err), true
}

// protect turns a tool's panic into its failure: one bad tool must not end anybody's conversation.
func protect(ctx context.Context, f Func, args json.RawMessage) (result json.RawMessage, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the tool crashed: %v", p)
		}
	}()
	return f(ctx, args)
}

// Response gives a tool's outcome the shape the Live API accepts. A failure becomes {"error": …}; a result that is no
// object becomes {"output": …}; an empty one too, because gemini-3.8-live calls a tool again and again on {}.
func Response(result json.RawMessage, err error) json.RawMessage {
	if err != nil {
		return wrap("error", err.Error())
	}
	result = bytes.TrimSpace(result)
	if len(result) == 0 {
		return wrap("output", "done")
	}
	if !json.Valid(result) {
		return wrap("error", "the tool answered with something that is not JSON")
	}
	if result[0] != '{' {
		return wrap("output", result)
	}
	if len(bytes.TrimSpace(result[1:len(result)-1])) == 0 {
		return wrap("output", "done")
	}
	return result
}

func wrap(key string, value any) json.RawMessage {
	b, err := json.Marshal(map[string]any{key: value})
	if err != nil {
		return json.RawMessage(`{"error":"the tool's answer could not be encoded"}`)
	}
	return b
}
