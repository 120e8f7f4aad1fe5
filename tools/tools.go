// Package tools runs the functions that a model calls. Their arguments and results are JSON. The package does not
// depend on Gemini or WebRTC.
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

// Func is one tool. args is a JSON object. When ctx is done, the function must return; otherwise it is abandoned. A
// tool in the caller's browser is a Func, too: it sends a request to the browser and waits.
type Func func(ctx context.Context, args json.RawMessage) (json.RawMessage, error)

// WithDecodedArgs returns a tool that decodes its arguments into a value of type A and calls run with it.
func WithDecodedArgs[A any](run func(context.Context, A) (json.RawMessage, error)) Func {
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

// Timeout limits how long a call may run. After this time, the model gets an error as the result, because some models
// do not speak any more until a call has a result.
const Timeout = 30 * time.Second

// MaxResult bounds a tool's result for the model, in bytes. It is about 16,000 tokens, an eighth of a session's context
// (https://ai.google.dev/gemini-api/docs/live-guide). A longer result would push the conversation out of the context.
const MaxResult = 64 << 10

// maxFailure bounds an error text for the model, in bytes.
const maxFailure = 2000

// ErrTimeout is the cause of a call's context if the call exceeds its time limit.
var ErrTimeout = errors.New("the tool did not answer in time")

// ErrCancelled is the cause of a call's context if the result is no longer needed by the model or the conversation.
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

// Run runs f for call c, and blocks until f returns, or until shortly after the timeout or the end of ctx. The call
// fails if f fails, panics or exceeds the timeout. ok is false if ctx was cancelled, because the model then does not
// need the outcome.
func Run(ctx context.Context, f Func, c Call, timeout time.Duration) (o Outcome, ok bool) {
	limited, timer := withPausableTimeout(ctx, timeout)
	defer timer.stopAndCancel()
	result, abandoned, err := runWithGrace(limited, f, c.Args)
	if err != nil && errors.Is(context.Cause(limited), ErrTimeout) {
		err = fmt.Errorf("%w (%v)", ErrTimeout, timeout)
	}
	o = BuildOutcome(result, err)
	o.Abandoned = abandoned
	return o, ctx.Err() == nil
}

// grace limits how long a tool may take to return after its context is done. Then the tool is abandoned.
const grace = time.Second

// runWithGrace runs f and returns its result. If f ignores that ctx is done, it returns the cause of ctx, and a channel
// (abandoned) that is closed when f returns. In all other cases, abandoned is nil.
func runWithGrace(ctx context.Context, f Func, args json.RawMessage) (result json.RawMessage, abandoned <-chan struct{}, err error) {
	done := make(chan struct{})
	var returned Outcome
	go func() {
		defer close(done)
		returned.Response, returned.Err = runRecovered(ctx, f, args)
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

// runRecovered runs f, and turns a panic into an error, so that one bad tool does not end a conversation.
func runRecovered(ctx context.Context, f Func, args json.RawMessage) (result json.RawMessage, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &CrashError{Value: p, Stack: debug.Stack()}
		}
	}()
	return f(ctx, args)
}

// BuildOutcome converts a tool's result to an object, because the Live API requires one. A result that is an object is
// not changed. Any other result becomes {"output": …}, and a failure becomes {"error": …}.
func BuildOutcome(result json.RawMessage, err error) Outcome {
	// Invalid UTF-8 is replaced, because it would close the connection to the model: RFC 6455, 8.1.
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
	// The result must not be {}, because gemini-3.8-live would call the tool again and again.
	case len(result) == 0:
		return Outcome{Response: wrapObject("output", "done")}
	case result[0] != '{':
		return Outcome{Response: wrapObject("output", result)}
	case len(bytes.TrimSpace(result[1:len(result)-1])) == 0:
		return Outcome{Response: wrapObject("output", "done")}
	}
	return Outcome{Response: result}
}

// Truncate returns text unchanged if it has at most limit bytes. Otherwise it returns the beginning of the text and
// "…".
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
