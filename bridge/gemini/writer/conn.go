package writer

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"net"
	"slices"

	"voxgate/bridge/gemini/wire"
	"voxgate/crash"
)

// Conn is a connection, as [voxgate/bridge/gemini.Conn] is one to a Live model.
type Conn struct {
	writer  *Writer
	model   string
	request map[string]any // what each has, besides what was said
	in      chan wire.ClientMessage
	out     chan *wire.ServerMessage
	stop    func()
	stopped <-chan struct{}
	over    chan struct{} // closed when nothing of it runs any more

	// Owned by run.
	talk   []content         // so far
	late   []content         // that came during an answer, and is answered after it
	rounds int               // of this answer
	answer chan answer       // of the request that is under way; nil: there is none
	cancel func()            // of it
	open   []call            // that the model waits for
	said   []json.RawMessage // their results, in the same order; nil: not yet
}

// call is a function call of the model's. A connection gives it an id if the model has not.
type call struct {
	wire.FunctionCall
	theirs string // the id as it came
}

// answer is what has come of a request.
type answer struct {
	parts  []json.RawMessage
	calls  []call
	tokens wire.Tokens
	err    error
}

// Recv returns the next message. The error is ctx's, or net.ErrClosed.
func (c *Conn) Recv(ctx context.Context) (*wire.ServerMessage, error) {
	select {
	case m := <-c.out:
		return m, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.stopped:
		return nil, net.ErrClosed
	}
}

// Send takes one message. It blocks while the one before is acted on.
func (c *Conn) Send(ctx context.Context, m wire.ClientMessage) error {
	select {
	case c.in <- m:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.stopped:
		return net.ErrClosed
	}
}

// SendAudio does nothing: there is nobody to hear it.
func (c *Conn) SendAudio(context.Context, []int16, int) error { return nil }

// Sent is 0: nothing is lost on the way.
func (c *Conn) Sent() int64 { return 0 }

// Close ends the answer that is under way, and waits for that.
func (c *Conn) Close() error {
	c.stop()
	<-c.over
	return nil
}

// run acts on what comes until the connection is closed.
func (c *Conn) run(ctx context.Context) {
	defer close(c.over)
	defer crash.Recover(nil, "model connection", nil) // the reader finds it lost
	for {
		select {
		case m := <-c.in:
			c.take(ctx, m)
		case a := <-c.answer:
			c.answer = nil
			c.answered(ctx, a)
		case <-ctx.Done():
			if c.answer != nil {
				c.keep(ctx, <-c.answer)
			}
			return
		}
	}
}

// take acts on a message. Content without turns stops an answer, as any does at the Live API; text waits for its end.
func (c *Conn) take(ctx context.Context, m wire.ClientMessage) {
	switch {
	case m.ClientContent != nil:
		content := m.ClientContent
		if content.TurnComplete || len(content.Turns) == 0 {
			c.interrupt(ctx)
		}
		for _, t := range content.Turns {
			c.add(t.Role, t.Parts, t.Role != "model")
		}
		if content.TurnComplete {
			c.ask(ctx)
		}
	case m.RealtimeInput != nil && m.RealtimeInput.Text != "":
		c.late = shortened(append(c.late, content{"user", wire.TextPart(m.RealtimeInput.Text).JSON(), true}))
		if c.answer == nil && c.open == nil {
			c.ask(ctx)
		}
	case m.ToolResponse != nil:
		for _, r := range m.ToolResponse.FunctionResponses {
			if i := slices.IndexFunc(c.open, func(o call) bool { return o.ID == r.ID }); i >= 0 {
				c.said[i] = r.Response
			}
		}
		if c.open != nil && !slices.ContainsFunc(c.said, func(r json.RawMessage) bool { return r == nil }) {
			c.results()
			c.begin(ctx)
		}
	}
}

// add adds parts to what was said.
func (c *Conn) add(role string, parts any, asked bool) {
	raw, err := json.Marshal(parts)
	if err == nil { // they were JSON before
		c.talk = append(c.talk, content{role, raw, asked})
	}
}

// ask begins an answer to all that was said.
func (c *Conn) ask(ctx context.Context) {
	c.talk = shortened(append(c.talk, c.late...))
	c.late, c.rounds = nil, 0
	c.begin(ctx)
}

// begin sends a request.
func (c *Conn) begin(ctx context.Context) {
	c.rounds++
	c.request["contents"] = c.talk
	request, err := json.Marshal(c.request)
	ctx, c.cancel = context.WithCancel(ctx)
	c.answer = make(chan answer, 1)
	go func(done chan<- answer, cancel func()) {
		defer cancel()
		defer crash.Recover(nil, "model request", func(err error) { done <- answer{err: err} })
		crash.CallInjected("model request")
		if err != nil {
			done <- answer{err: err}
			return
		}
		done <- c.generate(ctx, request)
	}(c.answer, c.cancel)
}

// generate has the model answer a request. What it writes goes down at once.
func (c *Conn) generate(ctx context.Context, request json.RawMessage) (a answer) {
	var reply wire.Reply
	tokens, err := c.writer.generate(ctx, c.model, request, func(raw json.RawMessage) error {
		parts, err := reply.Add(raw)
		for _, raw := range parts {
			p := wire.ReadPart(raw)
			if p.FunctionCall != nil {
				if len(a.calls) == maxCalls {
					continue // it is not run, so the model must not see it: it wants a result of each
				}
				one := call{*p.FunctionCall, p.FunctionCall.ID}
				one.ID = cmp.Or(one.ID, "call-"+rand.Text())
				a.calls = append(a.calls, one)
			}
			a.parts = append(a.parts, raw) // as it came: it may be signed
			switch {
			case p.Text == "":
			case p.Thought:
				c.emit(ctx, wire.ServerMessage{Content: &wire.ServerContent{Thought: true, Thoughts: p.Text}})
			default:
				c.emit(ctx, wire.ServerMessage{Content: &wire.ServerContent{Fields: wire.TextTurn(p.Text), Text: p.Text, Written: true}})
			}
		}
		return cmp.Or(err, ctx.Err())
	})
	if a.tokens = reply.Tokens; a.tokens.Total == 0 {
		a.tokens = wire.Tokens{Prompt: tokens, Total: tokens}
	}
	a.err = cmp.Or(err, reply.End())
	return a
}

// answered acts on the end of a request: it ends the answer, or has tools run.
func (c *Conn) answered(ctx context.Context, a answer) {
	c.keep(ctx, a)
	switch {
	case a.err == nil && len(a.calls) > 0 && c.rounds < maxRounds:
		c.await(a.calls)
		var calls []wire.FunctionCall
		for _, o := range a.calls {
			calls = append(calls, o.FunctionCall)
		}
		c.emit(ctx, wire.ServerMessage{ToolCalls: calls})
		return
	case len(a.calls) > 0:
		c.await(a.calls)
		c.results()
		a.err = cmp.Or(a.err, ErrRounds)
	}
	if a.err != nil {
		c.emit(ctx, wire.ServerMessage{Failed: a.err})
	}
	c.end(ctx, wire.ServerContent{GenerationComplete: true, TurnComplete: true})
}

// keep keeps what the model has said, and reports what that has cost. Each request counts anew, which a count that falls says.
func (c *Conn) keep(ctx context.Context, a answer) {
	if len(a.parts) > 0 {
		c.add("model", a.parts, false)
	}
	if a.tokens.Total > 0 && !(c.emit(ctx, wire.ServerMessage{Tokens: &wire.Tokens{}}) && c.emit(ctx, wire.ServerMessage{Tokens: &a.tokens})) {
		c.writer.owed = c.writer.owed.Plus(a.tokens)
	}
}

// await notes calls that want a result.
func (c *Conn) await(calls []call) { c.open, c.said = calls, make([]json.RawMessage, len(calls)) }

// cancelled is the result of a call that was not run, or is not awaited any more.
var cancelled = json.RawMessage(`{"error":"the call was cancelled"}`)

// results gives the model the results of the calls that are open.
func (c *Conn) results() {
	var parts []any
	for i, o := range c.open {
		response := map[string]any{"name": o.Name, "response": cancelled}
		if c.said[i] != nil {
			response["response"] = c.said[i]
		}
		if o.theirs != "" {
			response["id"] = o.theirs
		}
		parts = append(parts, map[string]any{"functionResponse": response})
	}
	c.add("user", parts, false)
	c.open, c.said = nil, nil
}

// interrupt stops what is under way: the person goes on.
func (c *Conn) interrupt(ctx context.Context) {
	switch {
	case c.answer != nil:
		c.cancel()
		a := <-c.answer
		c.answer = nil
		c.keep(ctx, a)
		if len(a.calls) > 0 {
			c.await(a.calls)
			c.results()
		}
	case c.open != nil:
		var ids []string
		for i, o := range c.open {
			if c.said[i] == nil {
				ids = append(ids, o.ID)
			}
		}
		c.results()
		c.emit(ctx, wire.ServerMessage{Cancelled: ids})
	default:
		return
	}
	c.end(ctx, wire.ServerContent{Interrupted: true, TurnComplete: true})
}

// end ends the model's turn, saves what was said, and goes on with what came meanwhile.
func (c *Conn) end(ctx context.Context, how wire.ServerContent) {
	c.writer.saved = slices.Clone(c.talk)
	c.emit(ctx, wire.ServerMessage{Content: &how})
	c.emit(ctx, wire.ServerMessage{Resumption: &wire.Resumption{Handle: handle, Resumable: true}})
	if c.late != nil && !how.Interrupted {
		c.ask(ctx)
	}
}

// emit sends a message down, unless the connection is closed or what it belongs to is over.
func (c *Conn) emit(ctx context.Context, m wire.ServerMessage) bool {
	select {
	case c.out <- &m:
		return true
	case <-ctx.Done():
		return false
	}
}

// shortened leaves out the oldest questions with their answers, while it is too much.
func shortened(talk []content) []content {
	size := 0
	for i, c := range slices.Backward(talk) {
		size += len(c.Parts)
		if size > maxHistory {
			next := slices.IndexFunc(talk[i+1:], func(c content) bool { return c.asked })
			if next < 0 {
				return nil
			}
			return talk[i+1+next:]
		}
	}
	return talk
}
