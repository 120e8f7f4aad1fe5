// Package textmodel makes a text model usable through the interface of a Live connection. It collects typed input and
// tool results, and calls generateContent with the whole conversation each time. It delivers the model's text and calls
// like those of a Live model.
package textmodel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"voxgate/bridge/gemini"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/upstream"
)

const (
	// maxRounds limits how often a model may call tools for one answer.
	maxRounds = 8

	// maxCalls limits the function calls in one response. Further calls are ignored.
	maxCalls = 16

	// maxHistory limits the size of the conversation in a request, in bytes. The limit is about 100,000 tokens.
	maxHistory = 400 << 10
)

// Generate calls a model, and passes each GenerateContentResponse of its stream to piece. It blocks until the response
// has ended, piece fails, or ctx is done. tokens is the number of tokens of the whole call. It is estimated if no
// response reports it.
type Generate func(ctx context.Context, model string, request json.RawMessage, piece func(json.RawMessage) error) (tokens int, err error)

// Dialer opens the connections of one conversation, one at a time.
type Dialer struct {
	generate Generate
	saved    []content // conversation of the newest handle
}

// NewDialer returns a dialer for a conversation that begins.
func NewDialer(generate Generate) *Dialer { return &Dialer{generate: generate} }

// content is a Content of Google's API.
type content struct {
	Role  string          `json:"role"`
	Parts json.RawMessage `json:"parts"` // JSON array of Part

	isQuestion bool // typed by the user, not a result of a tool
}

// handle is the only resumption handle that this package issues. It stands for the conversation that a [Dialer] has
// saved.
const handle = "saved"

// Dial opens a connection. It does not block. It can be used as [upstream.Options].Dial, like [gemini.Dial].
func (d *Dialer) Dial(_ context.Context, s gemini.Setup) (upstream.Conn, error) {
	var fields struct {
		Model            string
		GenerationConfig map[string]json.RawMessage
	}
	head := map[string]json.RawMessage{}
	if err := errors.Join(json.Unmarshal(s.Object, &fields), json.Unmarshal(s.Object, &head)); err != nil {
		return nil, fmt.Errorf("textmodel: setup: %w", err)
	}
	c := &conn{
		dialer: d, onLateTokens: s.OnLateTokens, model: strings.TrimPrefix(fields.Model, "models/"), request: map[string]any{},
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
		c.history = slices.Clone(d.saved)
	}
	for _, t := range s.History {
		c.history = append(c.history, content{t.Role, t.Parts, t.Role != "model"})
	}
	ctx, stop := context.WithCancel(context.Background()) // not derived from the dial's context, because the connection outlives the dial
	c.stop, c.stopped = stop, ctx.Done()
	go c.runLoop(ctx)
	return c, nil
}
