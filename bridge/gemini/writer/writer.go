// Package writer lets a model that only writes take part in a conversation. It is the other end of a Live connection, in
// this process: it takes what is typed, and the results of tools, and asks the model by generateContent, each time with all
// that was said. What the model writes and calls goes down as a Live model's words and calls do.
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
	// maxRounds is how often a model may call tools for one answer.
	maxRounds = 8

	// maxCalls is how many it may call at once; those after it are passed over.
	maxCalls = 16

	// maxHistory bounds what a model gets of the conversation, in bytes: some 100,000 tokens.
	maxHistory = 400 << 10
)

// ErrRounds is a model that calls tools again and again.
var ErrRounds = fmt.Errorf("the model has called tools %d times without an answer", maxRounds)

// Generate has a model answer a GenerateContentRequest, and hands on each GenerateContentResponse of its stream. It blocks
// until the answer has ended, piece fails or ctx is done. tokens are those of the whole call, estimated where no piece has
// said how many.
type Generate func(ctx context.Context, model string, request json.RawMessage, piece func(json.RawMessage) error) (tokens int, err error)

// Writer is the models of one conversation, and what they know of it. Its connections come one after the other: the one
// before must be closed.
type Writer struct {
	generate Generate
	saved    []content   // what the newest handle stands for
	owed     wire.Tokens // that no connection has reported
}

// New returns a writer that knows nothing yet.
func New(generate Generate) *Writer { return &Writer{generate: generate} }

// Owed are the tokens of answers that were broken off with their connection. There must be none that is open.
func (w *Writer) Owed() wire.Tokens { return w.owed }

// content is a Content of Google's.
type content struct {
	Role  string          `json:"role"`
	Parts json.RawMessage `json:"parts"` // an array

	asked bool // it is what the person has typed, and no result of a tool
}

// handle stands for what a [Writer] has saved.
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
		in: make(chan wire.ClientMessage), out: make(chan *wire.ServerMessage), over: make(chan struct{}),
	}
	for _, name := range []string{"systemInstruction", "tools"} {
		if head[name] != nil {
			c.request[name] = head[name]
		}
	}
	delete(fields.GenerationConfig, "responseModalities") // it has no other
	delete(fields.GenerationConfig, "speechConfig")
	if len(fields.GenerationConfig) > 0 {
		c.request["generationConfig"] = fields.GenerationConfig
	}
	if s.Handle != "" {
		c.talk = slices.Clone(w.saved)
	}
	for _, t := range s.History {
		c.talk = append(c.talk, content{t.Role, t.Parts, t.Role != "model"})
	}
	ctx, stop := context.WithCancel(context.Background()) // it outlives the dial
	c.stop, c.stopped = stop, ctx.Done()
	go c.run(ctx)
	return c, nil
}
