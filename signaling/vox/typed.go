package vox

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"voxgate/bridge"
	"voxgate/tools"
	desk "voxgate/tools/vox"
)

const (
	// maxRounds is how often a model may call tools for one answer.
	maxRounds = 8

	// maxCalls is how many it may call at once; those after it are passed over.
	maxCalls = 16

	// paceOfTexts and textsAtOnce bound how fast a client may type: each text is a request that costs money.
	paceOfTexts = rate.Limit(1)
	textsAtOnce = 10

	// maxHistory bounds what a model gets of the conversation, in bytes: some 100,000 tokens.
	maxHistory = 400 << 10
)

// typed is a conversation with a model that writes: a loop of requests, of which each has all that was said before.
type typed struct {
	*visit
	*assistant
	open  bridge.Open
	id    string
	tools map[string]declared
	head  map[string]any // of each request
	talk  []content      // so far; owned by the running answer, if there is one
	turn  int
	pace  *rate.Limiter // of texts

	answered chan error         // of the running answer; nil: there is none
	stop     context.CancelFunc // of it
	running  sync.WaitGroup     // tools
	phrase   translator         // owned by the running answer

	mu        sync.Mutex
	late      []json.RawMessage      // results that came when the person had gone on
	questions map[string]chan<- bool // that wait for an answer
}

// typed runs a conversation with a model that writes.
func (v *visit) typed(ctx context.Context, open bridge.Open, a *assistant) error {
	if open.Instead != nil {
		return open.Instead
	}
	ctx, leave, err := v.door.Host.Join(ctx, "typed talk with "+open.Agent.Model)
	if err != nil {
		return err
	}
	defer leave()
	if !open.Grant.Allows(open.Agent.Model) {
		return &bridge.Error{Code: bridge.CodeForbidden, Message: fmt.Sprintf("This token does not grant the model %s.", open.Agent.Model)}
	}
	if v.door.Known != nil {
		if err := v.door.Known(ctx, open.Agent.Model); err != nil {
			return err
		}
	}
	if err := open.Account.Begin(bridge.Cost{}); err != nil {
		return err
	}
	defer open.Account.End()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if g := open.Grant; g != nil && g.MaxDuration > 0 {
		limit := time.AfterFunc(g.MaxDuration, func() { cancel(bridge.ErrTimeLimit) })
		defer limit.Stop()
	}
	t := &typed{
		visit: v, assistant: a, open: open, id: rand.Text()[:10], pace: rate.NewLimiter(paceOfTexts, textsAtOnce),
		tools: map[string]declared{}, questions: map[string]chan<- bool{},
	}
	if err := t.declare(); err != nil {
		return err
	}
	v.log.Info("typed talk", "call", t.id, "model", open.Agent.Model)
	v.put(ready{SessionID: t.id, Theme: a.theme, Model: open.Agent.Model, Mode: modeText, Project: a.desk.Project.ID()})
	a.follow(v)
	err = t.serve(ctx)
	cancel(err)
	t.interrupt()
	t.running.Wait()
	return err
}

// declared is a tool, and what its arguments must be.
type declared struct {
	tools.Tool
	schema *tools.Schema
}

// declare makes what each request has.
func (t *typed) declare() error {
	functions := []map[string]any{}
	for _, tool := range t.desk.Tools() {
		parameters, err := tools.Decode(tool.Parameters)
		if err != nil {
			return err
		}
		schema, err := tools.ReadSchema(parameters, nil)
		if err != nil {
			return err
		}
		t.tools[tool.Name] = declared{tool, schema}
		functions = append(functions, map[string]any{"name": tool.Name, "description": tool.Description, "parametersJsonSchema": tool.Parameters})
	}
	t.head = map[string]any{
		"systemInstruction": content{Parts: []json.RawMessage{textPart(t.open.Agent.Prompt)}},
		"tools":             []any{map[string]any{"functionDeclarations": functions}},
	}
	return nil
}

// serve does what the client asks for until it ends the conversation, or is lost.
func (t *typed) serve(ctx context.Context) error {
	for {
		select {
		case m, ok := <-t.in:
			f := t.frame(m)
			switch {
			case !ok:
				return errLost
			case f.err == nil && f.message.Type == typeEnd:
				return bridge.ErrGoodbye
			case f.err == nil:
				f.err = t.do(ctx, f.message)
			}
			t.complain(f.err)
		case err := <-t.answered:
			t.answered = nil
			if err != nil {
				t.put(errorOf(err))
			}
			t.put(stateFrame{State: stateLive})
			if errors.Is(err, bridge.ErrBudget) { // what is said next takes no less
				return bridge.ErrBudget
			}
			if err := t.spent(); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (t *typed) do(ctx context.Context, m clientMessage) error {
	switch m.Type {
	case typeText:
		if !t.pace.Allow() {
			return &bridge.Error{Code: bridge.CodeStreamLimitExceeded, Message: "Too much is typed in too short a time; this was dropped."}
		}
		if t.interrupt() {
			t.put(interrupted{})
		}
		t.countText()
		t.begin(ctx, m.Text)
	case typeAnswer:
		t.mu.Lock()
		defer t.mu.Unlock()
		answer := t.questions[m.ID]
		if answer == nil {
			return noQuestion(m.ID)
		}
		delete(t.questions, m.ID)
		answer <- *m.Yes
	case typeInterrupt:
		if t.interrupt() {
			t.put(interrupted{})
			t.put(stateFrame{State: stateLive})
		}
	case typeVersion:
		return t.use(m)
	case typeStart:
		return errStarted
	}
	return nil // there is no sound, and nothing to mute
}

// interrupt ends the running answer, if there is one, and waits for it.
func (t *typed) interrupt() bool {
	if t.answered == nil {
		return false
	}
	t.stop()
	<-t.answered
	t.answered = nil
	return true
}

// begin begins an answer.
func (t *typed) begin(ctx context.Context, text string) {
	t.mu.Lock()
	parts := append(t.late, textPart(text))
	t.late = nil
	t.mu.Unlock()
	t.turn++
	t.talk = append(shortened(t.talk), content{Role: roleUser, Parts: parts, asked: true})
	answering, stop := context.WithCancel(ctx)
	t.answered, t.stop = make(chan error, 1), stop
	go func() {
		defer stop()
		err := t.answer(ctx, answering)
		if answering.Err() != nil {
			err = nil // it is no longer awaited
		}
		t.answered <- err
	}()
}

// shortened leaves out the oldest questions with their answers, while it is too much.
func shortened(talk []content) []content {
	size := 0
	for i, c := range slices.Backward(talk) {
		for _, p := range c.Parts {
			size += len(p)
		}
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

// answer has the model answer, and call tools until it has. ctx is the conversation's, which tools run in.
func (t *typed) answer(ctx, answering context.Context) error {
	for range maxRounds {
		calls, err := t.round(answering)
		if err != nil || len(calls) == 0 {
			return err
		}
		t.talk = append(t.talk, content{Role: roleUser, Parts: t.call(ctx, answering, calls)})
		if answering.Err() != nil {
			return nil
		}
	}
	return &bridge.Error{
		Code:    bridge.CodeToolExecution,
		Message: fmt.Sprintf("The model has called tools %d times without an answer; it was stopped.", maxRounds),
	}
}

// round is one request. What the model says goes out phrase by phrase.
func (t *typed) round(answering context.Context) (calls []*functionCall, err error) {
	request := map[string]any{"contents": t.talk}
	for name, value := range t.head {
		request[name] = value
	}
	var parts []json.RawMessage
	var text phrases
	err = t.ask(answering, t.open.Agent.Model, desk.JSON(request), func(raw json.RawMessage) error {
		spoken, call := said(raw)
		if call != nil && len(calls) == maxCalls {
			return answering.Err() // it is not run, so the model must not see it: it wants a result of each
		}
		if call != nil {
			calls = append(calls, call)
		}
		parts = append(parts, raw) // as it came: it may be signed
		t.tell(text.add(spoken))
		return answering.Err()
	})
	t.tell(text.end())
	if len(parts) > 0 {
		t.talk = append(t.talk, content{Role: "model", Parts: parts})
	}
	if err != nil && len(calls) > 0 { // they are not run, and a model wants a result of each
		t.talk = append(t.talk, content{Role: roleUser, Parts: results(calls, func(int) json.RawMessage { return cancelled })})
	}
	return calls, err
}

func (t *typed) tell(whole []string) {
	for _, m := range t.phrase.phrases(roleVOX, t.turn, whole...) {
		t.put(m)
	}
}

// results are the results of calls, as a content has them.
func results(calls []*functionCall, of func(i int) json.RawMessage) (parts []json.RawMessage) {
	for i, c := range calls {
		parts = append(parts, desk.JSON(map[string]any{"functionResponse": map[string]any{"id": c.ID, "name": c.Name, "response": of(i)}}))
	}
	return parts
}

// underWay is the result of a call that goes on though the person has.
var underWay = json.RawMessage(`{"status":"not done yet","result":"follows as text; do not call again"}`)

// call runs tools side by side, and returns their results. One that is not done when the person goes on is left
// running; its result goes up with what the person says next.
func (t *typed) call(ctx, answering context.Context, calls []*functionCall) []json.RawMessage {
	type running struct {
		result   json.RawMessage
		left     bool          // the person went on before there was one
		reported chan struct{} // closed when the client knows of the result
	}
	all := make([]running, len(calls)) // guarded by t.mu, but for reported
	for i, c := range calls {
		all[i].reported = make(chan struct{})
		t.running.Go(func() {
			result, began := t.run(ctx, c)
			t.mu.Lock()
			all[i].result = result
			if all[i].left { // before the client knows: what is said next may ask for it
				t.late = append(t.late, textPart(string(desk.JSON(map[string]any{"tool": c.Name, "args": c.Args, "result": result}))))
			}
			t.mu.Unlock()
			if began {
				t.put(toolResult{c.ID, c.Name, result})
			}
			close(all[i].reported)
		})
	}
	return results(calls, func(i int) json.RawMessage {
		select {
		case <-all[i].reported:
		case <-answering.Done():
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if all[i].result == nil {
			all[i].left = true
			return underWay
		}
		return all[i].result
	})
}

// run runs one tool. A call that cannot be run is the model's affair, and the developer's: the client does not know
// that it began.
func (t *typed) run(ctx context.Context, c *functionCall) (result json.RawMessage, began bool) {
	tool, ok := t.tools[c.Name]
	err := fmt.Errorf("there is no tool %.100q", c.Name)
	if ok {
		err = tool.schema.Check(c.Args)
	}
	if err != nil {
		t.warn("The model called %.100q wrongly and got an error: %v.", c.Name, err)
		return tools.Respond(nil, err).Response, false
	}
	args := argsOf(c.Args)
	t.put(toolCall{c.ID, c.Name, tool.Title, args})
	env := &tools.Env{Call: c.ID, Session: t.id, Door: doorName, Caller: t.open.Origin.Identity, Grant: t.open.Origin.Grant}
	if t.open.Origin.Asks {
		env.AskPerson = t.askPerson
	}
	outcome, _ := tools.Run(
		tools.WithEnv(ctx, env),
		tool.Run,
		tools.Call{ID: c.ID, Name: c.Name, Args: args},
		cmp.Or(tool.Timeout, tools.Timeout),
	)
	return outcome.Response, true
}

// askPerson shows a question and waits for the answer. It implements the field of tools.Env.
func (t *typed) askPerson(ctx context.Context, shown json.RawMessage) (json.RawMessage, error) {
	text, ok := confirmation(shown)
	if !ok {
		return dismissed, nil
	}
	id, answer := "ask-"+rand.Text(), make(chan bool, 1)
	t.mu.Lock()
	t.questions[id] = answer
	t.mu.Unlock()
	t.put(question{ID: id, Text: text})
	late := time.NewTimer(tools.PersonTimeout)
	defer late.Stop()
	var err error
	select {
	case yes := <-answer:
		return answerTo(yes), nil
	case <-late.C:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	t.mu.Lock()
	delete(t.questions, id)
	t.mu.Unlock()
	t.put(question{ID: id, Withdrawn: true})
	return dismissed, err
}
