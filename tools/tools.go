// Package tools runs the functions that a model calls: JSON in, JSON out. It does not depend on Gemini or WebRTC.
package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"
)

// Func is one tool. args is a JSON object. It must return when ctx is done, or it is abandoned. A tool in the caller's
// browser is a Func that asks and waits.
type Func func(ctx context.Context, args json.RawMessage) (json.RawMessage, error)

// WithArgs returns a tool that decodes its arguments into an A.
func WithArgs[A any](run func(context.Context, A) (json.RawMessage, error)) Func {
	return func(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
		var a A
		if len(args) > 0 {
			if err := json.Unmarshal(args, &a); err != nil {
				return nil, fmt.Errorf("the arguments could not be read: %w", err)
			}
		}
		return run(ctx, a)
	}
}

// Call is one request of the model to run a tool. ID is unique within a conversation.
type Call struct {
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Args  json.RawMessage `json:"args"`
	Title string          `json:"title,omitempty"` // title of the tool, for users
}

// Timeout limits how long a call may run. After it, the model gets an error as the result, because some models never speak
// again while a call has no result.
const Timeout = 30 * time.Second

// MaxResult bounds a tool's result for the model, in bytes: 16,000 tokens, an eighth of a session's context
// (https://ai.google.dev/gemini-api/docs/live-guide). More would push out the conversation.
const MaxResult = 64 << 10

// maxFailure bounds an error text for the model, in bytes.
const maxFailure = 2000

// ErrTimeout is the cause of a call's context when its time is over.
var ErrTimeout = errors.New("the tool did not answer in time")

// ErrCancelled is the cause of a call's context when the model or the conversation no longer needs the result.
var ErrCancelled = errors.New("the call was cancelled")

// CrashError reports a panic of a tool.
type CrashError struct {
	Value any
	Stack []byte
}

// Error implements error.
func (e *CrashError) Error() string { return fmt.Sprintf("the tool crashed: %v", e.Value) }

// Outcome is the result of a call.
type Outcome struct {
	Response  json.RawMessage // for the model: always a non-empty JSON object
	Err       error           // reason of a failure, which Response contains, too; nil on success
	Abandoned <-chan struct{} // closed when an abandoned tool returns; nil if it has returned
}

// Run runs f for call c, and blocks until f returns, or until shortly after the timeout or the end of ctx. The call fails if
// f fails, panics or exceeds the timeout. ok is false if ctx was cancelled: then the model does not need the outcome.
func Run(ctx context.Context, f Func, c Call, timeout time.Duration) (o Outcome, ok bool) {
	limited, clock := withClock(ctx, timeout)
	defer clock.stopTimer()
	result, left, err := runWithGrace(limited, f, c.Args)
	if err != nil && errors.Is(context.Cause(limited), ErrTimeout) {
		err = fmt.Errorf("%w (%v)", ErrTimeout, timeout)
	}
	o = BuildOutcome(result, err)
	o.Abandoned = left
	return o, ctx.Err() == nil
}

// grace limits how long a tool may take to return after its time is over, before it is abandoned.
const grace = time.Second

// runWithGrace runs f and returns its result. If f ignores the cancellation of ctx, it returns the cause of ctx, and left,
// which is closed when f returns. In all other cases, left is nil.
func runWithGrace(ctx context.Context, f Func, args json.RawMessage) (result json.RawMessage, left <-chan struct{}, err error) {
	done := make(chan struct{})
	var returned Outcome
	go func() {
		defer close(done)
		returned.Response, returned.Err = runProtected(ctx, f, args)
	}()
	select {
	case <-done:
		return returned.Response, nil, returned.Err
	case <-ctx.Done():
	}
	select {
	case <-done:
		return returned.Response, nil, returned.Err
	case <-time.After(grace):
		return nil, done, context.Cause(ctx)
	}
}

// runProtected runs f, and turns a panic into an error, so that one bad tool does not end a conversation.
func runProtected(ctx context.Context, f Func, args json.RawMessage) (result json.RawMessage, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &CrashError{Value: p, Stack: debug.Stack()}
		}
	}()
	return f(ctx, args)
}

// BuildOutcome converts a tool's result to an object, as the Live API needs it. An object stays as it is. Any other result
// becomes {"output": …}, and a failure becomes {"error": …}.
func BuildOutcome(result json.RawMessage, err error) Outcome {
	// Text that is not UTF-8 would close the connection to the model: RFC 6455, 8.1.
	result = bytes.ToValidUTF8(bytes.TrimSpace(result), []byte("\uFFFD"))
	switch {
	case err != nil:
	case len(result) > MaxResult:
		err = fmt.Errorf("the tool answered with %d bytes; %d are taken at most", len(result), MaxResult)
	case len(result) > 0 && !json.Valid(result):
		err = errors.New("the tool answered with something that is not JSON")
	}
	switch {
	case err != nil:
		return Outcome{Response: wrapObject("error", Truncate(err.Error(), maxFailure)), Err: err}
	// gemini-3.8-live calls a tool again and again if it gets {}.
	case len(result) == 0:
		return Outcome{Response: wrapObject("output", "done")}
	case result[0] != '{':
		return Outcome{Response: wrapObject("output", result)}
	case len(bytes.TrimSpace(result[1:len(result)-1])) == 0:
		return Outcome{Response: wrapObject("output", "done")}
	}
	return Outcome{Response: result}
}

// Truncate returns text, or its beginning and "…" if it has more than limit bytes.
func Truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

func wrapObject(key string, value any) json.RawMessage {
	b, err := json.Marshal(map[string]any{key: value})
	if err != nil {
		return json.RawMessage(`{"error":"the tool's answer could not be encoded"}`)
	}
	return b
}
