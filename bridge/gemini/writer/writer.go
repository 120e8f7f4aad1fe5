// Package writer adapts a text model to the interface of a Live connection. It collects typed input and tool results, and calls
// generateContent each time with the whole conversation. The model's text and calls are delivered like those of a Live model.
package writer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"voxgate/bridge/gemini"
	"voxgate/bridge/gemini/wire"
)

const (
	// maxRounds limits how often a model may call tools for one answer.
	maxRounds = 8

	// maxCalls is the maximum number of simultaneous calls; further ones are ignored.
	maxCalls = 16

	// maxHistory bounds the conversation in a request, in bytes: about 100,000 tokens.
	maxHistory = 400 << 10
)

// ErrRounds means that a model calls tools again and again.
var ErrRounds = fmt.Errorf("the model has called tools %d times without an answer", maxRounds)

// Generate calls a model with a GenerateContentRequest, and passes each GenerateContentResponse of its stream to piece. It blocks
// until the response has ended, piece fails or ctx is done. tokens counts the whole call, estimated if no response reports it.
type Generate func(ctx context.Context, model string, request json.RawMessage, piece func(json.RawMessage) error) (tokens int, err error)

// Writer holds the text models' state of one conversation. Only one of its connections may be open at a time.
type Writer struct {
	generate   Generate
	saved      []content   // conversation of the newest handle
	unreported wire.Tokens // tokens that no connection has reported
}

// New returns a writer without a conversation.
func New(generate Generate) *Writer { return &Writer{generate: generate} }

// UnreportedTokens returns the tokens of answers that were aborted with their connection. No connection may be open.
func (w *Writer) UnreportedTokens() wire.Tokens { return w.unreported }

// content is a Content of Google's API.
type content struct {
	Role  string          `json:"role"`
	Parts json.RawMessage `json:"parts"` // an array

	isQuestion bool // typed by the user, not a result of a tool
}

// handle is the resumption handle of what a [Writer] has saved.
const handle = "saved"

// Dial opens a connection. It does not block.
func (w *Writer) Dial(s gemini.Setup) (*Conn, error) {
	var fields struct {
		Model            string
		GenerationConfig map[string]json.RawMessage
	}
	head := map[string]json.RawMessage{}
	if err := errors.Join(json.Unmarshal(s.Object, &fields), json.Unmarshal(s.Object, &head)); err != nil {
		return nil, fmt.Errorf("writer: setup: %w", err)
	}
	c := &Conn{
		writer: w, model: strings.TrimPrefix(fields.Model, "models/"), request: map[string]any{},
		input: make(chan wire.ClientMessage), output: make(chan *wire.ServerMessage), done: make(chan struct{}),
	}
	for _, name := range []string{"systemInstruction", "tools"} {
		if head[name] != nil {
			c.request[name] = head[name]
		}
	}
	delete(fields.GenerationConfig, "responseModalities") // text only
	delete(fields.GenerationConfig, "speechConfig")
	if len(fields.GenerationConfig) > 0 {
		c.request["generationConfig"] = fields.GenerationConfig
	}
	if s.Handle != "" {
		c.history = slices.Clone(w.saved)
	}
	for _, t := range s.History {
		c.history = append(c.history, content{t.Role, t.Parts, t.Role != "model"})
	}
	ctx, stop := context.WithCancel(context.Background()) // it outlives the dial
	c.stop, c.stopped = stop, ctx.Done()
	go c.run(ctx)
	return c, nil
}
