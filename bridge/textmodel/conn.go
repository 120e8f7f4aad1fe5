package textmodel

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"net"
	"slices"

	"voxgate/bridge/gemini/wire"
	"voxgate/internal/crash"
)

// conn is a connection to a text model. It behaves like a [voxgate/bridge/gemini.Conn] to a Live model.
type conn struct {
	dialer       *Dialer
	onLateTokens func(wire.Tokens) // see gemini.Setup.OnLateTokens

	model   string
	request map[string]any // fields common to all requests
	input   chan wire.ClientMessage
	output  chan *wire.ServerMessage
	stop    func()
	stopped <-chan struct{}
	done    chan struct{} // closed when run has ended

	// Only the goroutine of runLoop uses these fields.
	history      []content         // the conversation so far
	queued       []content         // input during an answer, to be answered afterwards
	rounds       int               // number of requests made for this answer
	answer       chan answer       // receives the result of the current request; nil if there is none
	cancel       func()            // cancels the current request
	pendingCalls []call            // calls that the model waits for
	results      []json.RawMessage // results of pendingCalls, in the same order; nil for a call without a result yet
}

// call is a function call of the model. If the model has assigned no ID, the connection assigns one.
type call struct {
	wire.FunctionCall
	modelID string // the model's own ID, or ""
}

// answer is the model's response to one request.
type answer struct {
	parts  []json.RawMessage
	calls  []call
	tokens wire.Tokens
	err    error
}

// Recv returns the next message. Its error is that of ctx, or net.ErrClosed.
func (c *conn) Recv(ctx context.Context) (*wire.ServerMessage, error) {
	select {
	case m := <-c.output:
		return m, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.stopped:
		return nil, net.ErrClosed
	}
}

// Send sends one message. It blocks while the previous message is processed.
func (c *conn) Send(ctx context.Context, m wire.ClientMessage) error {
	select {
	case c.input <- m:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.stopped:
		return net.ErrClosed
	}
}

// SendAudio does nothing, because a text model accepts no audio.
func (c *conn) SendAudio(context.Context, []int16, int) error { return nil }

// LastSentIndex returns 0. Only connections on which messages can be lost in transit need an index.
func (c *conn) LastSentIndex() int64 { return 0 }

// Close aborts the current answer. It blocks until the answer has stopped.
func (c *conn) Close() error {
	c.stop()
	<-c.done
	return nil
}

// runLoop handles messages until the connection is closed.
func (c *conn) runLoop(ctx context.Context) {
	defer close(c.done)
	defer crash.Recover(nil, "model connection", nil) // to the reader, a panic looks like a lost connection
	for {
		select {
		case m := <-c.input:
			c.handleMessage(ctx, m)
		case a := <-c.answer:
			c.answer = nil
			c.handleAnswer(ctx, a)
		case <-ctx.Done():
			if c.answer != nil {
				c.saveAnswer(ctx, <-c.answer)
			}
			return
		}
	}
}

// handleMessage handles a message of the session. Real-time text is queued until the current answer ends. Content stops
// the answer only if it is a complete turn or has no turns. In the Live API, any content stops the answer.
func (c *conn) handleMessage(ctx context.Context, m wire.ClientMessage) {
	switch {
	case m.ClientContent != nil:
		content := m.ClientContent
		if content.TurnComplete || len(content.Turns) == 0 {
			c.interrupt(ctx)
		}
		for _, t := range content.Turns {
			c.addContent(t.Role, t.Parts, t.Role != "model")
		}
		if content.TurnComplete {
			c.startAnswer(ctx)
		}
	case m.RealtimeInput != nil && m.RealtimeInput.Text != "":
		c.queued = truncateHistory(append(c.queued, content{"user", wire.TextPart(m.RealtimeInput.Text).JSON(), true}))
		if c.answer == nil && c.pendingCalls == nil {
			c.startAnswer(ctx)
		}
	case m.ToolResponse != nil:
		for _, r := range m.ToolResponse.FunctionResponses {
			if i := slices.IndexFunc(c.pendingCalls, func(o call) bool { return o.ID == r.ID }); i >= 0 {
				c.results[i] = r.Response
			}
		}
		if c.pendingCalls != nil && !slices.ContainsFunc(c.results, func(r json.RawMessage) bool { return r == nil }) {
			c.addCallResults()
			c.startRequest(ctx)
		}
	}
}

// addContent adds parts to the conversation. isQuestion means that the user has typed them.
func (c *conn) addContent(role string, parts any, isQuestion bool) {
	raw, err := json.Marshal(parts)
	if err == nil { // cannot fail: the parts were JSON before
		c.history = append(c.history, content{role, raw, isQuestion})
	}
}

// startAnswer makes the model answer everything that was said so far.
func (c *conn) startAnswer(ctx context.Context) {
	c.history = truncateHistory(append(c.history, c.queued...))
	c.queued, c.rounds = nil, 0
	c.startRequest(ctx)
}

// startRequest sends the conversation to the model, in the background.
func (c *conn) startRequest(ctx context.Context) {
	c.rounds++
	c.request["contents"] = c.history
	request, err := json.Marshal(c.request)
	ctx, c.cancel = context.WithCancel(ctx)
	c.answer = make(chan answer, 1)
	go func(done chan<- answer, cancel func()) {
		defer cancel()
		defer crash.Recover(nil, "model request", func(err error) { done <- answer{err: err} })
		crash.RunTestHook("model request")
		if err != nil {
			done <- answer{err: err}
			return
		}
		done <- c.generate(ctx, request)
	}(c.answer, c.cancel)
}

// generate requests a response of the model and emits its text as it arrives.
func (c *conn) generate(ctx context.Context, request json.RawMessage) (a answer) {
	var reply wire.Reply
	tokens, err := c.dialer.generate(ctx, c.model, request, func(raw json.RawMessage) error {
		parts, err := reply.AddChunk(raw)
		for _, raw := range parts {
			p := wire.ReadPart(raw)
			if p.FunctionCall != nil {
				if len(a.calls) == maxCalls {
					continue // the call is not run, so it must not be in the history: the model expects a result of each call there
				}
				one := call{*p.FunctionCall, p.FunctionCall.ID}
				one.ID = cmp.Or(one.ID, "call-"+rand.Text())
				a.calls = append(a.calls, one)
			}
			a.parts = append(a.parts, raw) // unchanged, because the part may be signed
			switch {
			case p.Text == "":
			case p.Thought:
				c.emit(ctx, wire.ServerMessage{Content: &wire.ServerContent{HasThought: true, Thoughts: p.Text}})
			default:
				c.emit(ctx, wire.ServerMessage{Content: &wire.ServerContent{Fields: wire.ServerTextContent(p.Text), Text: p.Text, HasText: true}})
			}
		}
		return cmp.Or(err, ctx.Err())
	})
	if a.tokens = reply.Tokens; a.tokens.Total == 0 {
		a.tokens = wire.Tokens{Prompt: tokens, Total: tokens}
	}
	a.err = cmp.Or(err, reply.CheckComplete())
	return a
}

// handleAnswer handles a finished request. It passes on the tool calls of the model or, if there are none, ends the
// model's turn.
func (c *conn) handleAnswer(ctx context.Context, a answer) {
	c.saveAnswer(ctx, a)
	switch {
	case a.err == nil && len(a.calls) > 0 && c.rounds < maxRounds:
		c.setPendingCalls(a.calls)
		var calls []wire.FunctionCall
		for _, o := range a.calls {
			calls = append(calls, o.FunctionCall)
		}
		c.emit(ctx, wire.ServerMessage{ToolCalls: calls})
		return
	case len(a.calls) > 0:
		c.setPendingCalls(a.calls)
		c.addCallResults()
		a.err = cmp.Or(a.err, error(&wire.UnfinishedError{Reason: "TOO_MANY_TOOL_CALLS"})) // the API's own finish reason for this
	}
	if a.err != nil {
		c.emit(ctx, wire.ServerMessage{Failed: a.err})
	}
	c.endTurn(ctx, wire.ServerContent{GenerationComplete: true, TurnComplete: true})
}

// saveAnswer adds the model's response to the conversation, and reports its tokens. It reports zero tokens first, so
// that [wire.TokenMeter] adds these tokens to those of the previous request instead of replacing them.
func (c *conn) saveAnswer(ctx context.Context, a answer) {
	if len(a.parts) > 0 {
		c.addContent("model", a.parts, false)
	}
	if a.tokens.Total > 0 && !(c.emit(ctx, wire.ServerMessage{Tokens: &wire.Tokens{}}) && c.emit(ctx, wire.ServerMessage{Tokens: &a.tokens})) {
		c.onLateTokens(a.tokens)
	}
}

// setPendingCalls stores the calls whose results the connection waits for.
func (c *conn) setPendingCalls(calls []call) {
	c.pendingCalls, c.results = calls, make([]json.RawMessage, len(calls))
}

// cancelled is the result of a call that was not run, or was abandoned.
var cancelled = json.RawMessage(`{"error":"the call was cancelled"}`)

// addCallResults adds the results of the pending calls to the conversation.
func (c *conn) addCallResults() {
	var parts []any
	for i, o := range c.pendingCalls {
		response := map[string]any{"name": o.Name, "response": cancelled}
		if c.results[i] != nil {
			response["response"] = c.results[i]
		}
		if o.modelID != "" {
			response["id"] = o.modelID
		}
		parts = append(parts, map[string]any{"functionResponse": response})
	}
	c.addContent("user", parts, false)
	c.pendingCalls, c.results = nil, nil
}

// interrupt stops the current answer, because the user has sent something new. It blocks until the request for the
// answer has ended.
func (c *conn) interrupt(ctx context.Context) {
	switch {
	case c.answer != nil:
		c.cancel()
		a := <-c.answer
		c.answer = nil
		c.saveAnswer(ctx, a)
		if len(a.calls) > 0 {
			c.setPendingCalls(a.calls)
			c.addCallResults()
		}
	case c.pendingCalls != nil:
		var ids []string
		for i, o := range c.pendingCalls {
			if c.results[i] == nil {
				ids = append(ids, o.ID)
			}
		}
		c.addCallResults()
		c.emit(ctx, wire.ServerMessage{Cancelled: ids})
	default:
		return
	}
	c.endTurn(ctx, wire.ServerContent{Interrupted: true, TurnComplete: true})
}

// endTurn saves the conversation, and ends the model's turn by sending end. If the turn was not interrupted and input
// has arrived meanwhile, it starts an answer to that input.
func (c *conn) endTurn(ctx context.Context, end wire.ServerContent) {
	c.dialer.saved = slices.Clone(c.history)
	c.emit(ctx, wire.ServerMessage{Content: &end})
	c.emit(ctx, wire.ServerMessage{Resumption: &wire.Resumption{Handle: handle, Resumable: true}})
	if c.queued != nil && !end.Interrupted {
		c.startAnswer(ctx)
	}
}

// emit sends a message to the session. It blocks until Recv takes the message. isSent is false if the connection is
// closed or ctx is done.
func (c *conn) emit(ctx context.Context, m wire.ServerMessage) (isSent bool) {
	select {
	case c.output <- &m:
		return true
	case <-ctx.Done():
		return false
	}
}

// truncateHistory removes the oldest questions, each with its answers, until the rest has at most maxHistory bytes.
func truncateHistory(history []content) []content {
	size := 0
	for i, c := range slices.Backward(history) {
		size += len(c.Parts)
		if size > maxHistory {
			next := slices.IndexFunc(history[i+1:], func(c content) bool { return c.isQuestion })
			if next < 0 {
				return nil
			}
			return history[i+1+next:]
		}
	}
	return history
}
