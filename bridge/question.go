package bridge

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"voxgate/bridge/gemini/setup/declaration"
	"voxgate/tools"
	"voxgate/tools/canvas"
)

const (
	// maxReplies bounds the answers of a client to one call that wait for it.
	maxReplies = maxPartial + 1

	// maxShown is how many canvases that the model need not wait for the client may still answer.
	maxShown = 32
)

// question is what the client was asked and has not answered: to run a tool of its own, or to show a canvas.
type question struct {
	call   tools.Call // as the client gets it
	of     *openCall
	person bool // a canvas: the answer is a person's
	reply  chan ToolResponse
	gone   chan struct{} // closed when the answer is not wanted any more

	// Guarded by broker.mu.
	number   int  // the order in which they came
	told     bool // the client got it
	answered bool

	// acked is a canvas whose call was answered when it was shown; what a person puts into it goes up as text if it is
	// interactive.
	acked, interactive bool
}

// ask is a question of a tool in the gateway, or its end.
type ask struct {
	*question
	over bool
}

var (
	// dismissed is what a canvas answers that the person has put away, or has not answered.
	dismissed = json.RawMessage(`{"dismissed":true}`)

	// onScreen is what it answers at once, and onScreenOpen where the model cannot wait for the person.
	onScreen     = json.RawMessage(`{"shown":true}`)
	onScreenOpen = json.RawMessage(`{"shown":true,"input":"what the person puts in follows as text"}`)
)

// askClient notes what the client is asked; put tells it.
func (b *broker) askClient(q *question) *question {
	q.reply, q.gone = make(chan ToolResponse, maxReplies), make(chan struct{})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	q.number = b.asked
	b.questions[q.call.ID] = q
	return q
}

// put tells the client what it is asked, in order. One that is away is told when it is back.
func (b *broker) put(list ...*question) {
	if len(list) == 0 || !b.s.attended() {
		return
	}
	var calls []tools.Call
	b.mu.Lock()
	for _, q := range list {
		calls, q.told = append(calls, q.call), true
	}
	b.mu.Unlock()
	b.s.notify(ToolCall{calls})
}

// dropQuestions takes back what a call still asks the client, and returns the ids that the client knows.
func (b *broker) dropQuestions(of *openCall) []string {
	var ids []string
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, q := range b.questions {
		if q.of == of && !q.acked {
			delete(b.questions, id)
			close(q.gone)
			if !q.answered && q.told {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// forgetShown drops the oldest of the acknowledged canvases when there are too many.
func (b *broker) forgetShown() {
	b.mu.Lock()
	defer b.mu.Unlock()
	var shown []*question
	for _, q := range b.questions {
		if q.acked {
			shown = append(shown, q)
		}
	}
	if len(shown) > maxShown {
		oldest := slices.MinFunc(shown, byNumber)
		delete(b.questions, oldest.call.ID)
	}
}

func byNumber(a, b *question) int { return a.number - b.number }

// withPerson tells whether a call waits for a person. Needs mu.
func (b *broker) withPerson(open *openCall) bool {
	for _, q := range b.questions {
		if q.of == open && q.person && !q.answered {
			return true
		}
	}
	return false
}

// replied waits for a client's answer to its own tool.
func (b *broker) replied(parent context.Context, open *openCall, q *question) runner {
	return func(ctx context.Context, r *reply) (json.RawMessage, error) {
		for {
			select {
			case a := <-q.reply:
				if !a.WillContinue {
					r.scheduling, r.parts = a.Scheduling, a.Parts
					return a.Response, nil
				}
				partial := reply{response: tools.Respond(a.Response, nil).Response, scheduling: a.Scheduling, parts: a.Parts}
				b.result(parent, result{call: open, reply: partial, partial: true})
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
	}
}

// show has the client show a canvas. Where nobody is to answer, or the model would wait, the call is answered at once.
func (b *broker) show(ctx context.Context, open *openCall) *question {
	clean, interactive, err := b.board.Put(open.call.Name, open.call.Args)
	if err != nil {
		b.respond(open.call, b.s.ticks, reply{response: tools.Respond(nil, err).Response})
		b.s.warn(fmt.Sprintf("Gemini called %q wrongly and was told so: %s.", open.call.Name, tools.Cut(err.Error(), maxReason)))
		b.observe(open, StatusFailed)
		return nil
	}
	call := open.call
	call.Args = clean
	q := b.askClient(&question{call: call, of: open, person: true, interactive: interactive, acked: !interactive || open.function.Blocking})
	if !q.acked {
		b.start(ctx, open, answerOfPerson(q), tools.PersonTimeout)
		return q
	}
	b.forgetShown()
	response := onScreen
	if interactive {
		response = onScreenOpen
	}
	b.observe(open, StatusDone)
	b.respond(open.call, b.s.ticks, b.fit(open, reply{response: response}))
	return q
}

// answerOfPerson waits for what a person puts into a canvas, as long as a person may take.
func answerOfPerson(q *question) runner {
	return func(ctx context.Context, r *reply) (json.RawMessage, error) {
		select {
		case a := <-q.reply:
			r.scheduling, r.parts = a.Scheduling, a.Parts
			return a.Response, nil
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), tools.ErrTimeout) {
				return dismissed, nil
			}
			return nil, context.Cause(ctx)
		}
	}
}

// canShow tells whether the client has a canvas.
func (b *broker) canShow() bool {
	return b.s.from.Screen && (b.s.config.Options.Canvas ||
		slices.ContainsFunc(b.s.config.Functions, func(f declaration.Function) bool { return f.Where == declaration.OnCanvas }))
}

// asker lets a tool in the gateway ask the person.
func (b *broker) asker(parent context.Context, open *openCall) func(context.Context, json.RawMessage) (json.RawMessage, error) {
	return func(ctx context.Context, picture json.RawMessage) (json.RawMessage, error) {
		args, err := b.board.Question(picture)
		if err != nil {
			return nil, err
		}
		// Random, because the model names its calls itself.
		call := tools.Call{ID: "ask-" + rand.Text(), Name: canvas.Show, Args: args, Title: cmp.Or(open.call.Title, open.call.Name)}
		q := b.askClient(&question{call: call, of: open, person: true})
		b.result(parent, result{call: open, detach: true})
		tell := func(over bool) {
			select {
			case b.asks <- ask{q, over}:
			case <-parent.Done():
			}
		}
		tell(false)
		timer := time.NewTimer(tools.PersonTimeout)
		defer timer.Stop()
		select {
		case a := <-q.reply:
			return a.Response, nil
		case <-q.gone:
			return nil, tools.ErrCancelled
		case <-timer.C:
			tell(true)
			return dismissed, nil
		case <-ctx.Done():
			tell(true)
			return nil, context.Cause(ctx)
		}
	}
}

// onAsk puts a tool's question to the client, or takes it back.
func (b *broker) onAsk(a ask) {
	over := a.over || !b.isCurrent(a.of)
	b.mu.Lock()
	_, known := b.questions[a.call.ID]
	open := known && !a.answered
	told := a.told
	if over && known {
		delete(b.questions, a.call.ID)
		close(a.gone)
	}
	b.mu.Unlock()
	switch {
	case !open:
	case !over && !told: // one that is back may have been told in repeatCalls
		b.put(a.question)
	case over && told:
		b.takeBack([]string{a.call.ID})
	}
}

// answer takes a client's answer to a call.
func (b *broker) answer(r ToolResponse) error {
	b.mu.Lock()
	q := b.questions[r.ID]
	if r.ID == "" {
		q = b.questionNamed(r.Name)
	}
	if q != nil && q.acked {
		input := q.interactive && isInput(r.Response)
		if input && len(r.Response) > tools.MaxResult {
			b.mu.Unlock()
			return &Error{Code: CodeBadMessage, Message: fmt.Sprintf("The input has %d bytes; %d are taken at most.", len(r.Response), tools.MaxResult)}
		}
		delete(b.questions, q.call.ID)
		b.mu.Unlock()
		if input {
			return b.s.Do(Text{string(r.Response)})
		}
		return nil
	}
	if q != nil && !q.answered {
		defer b.mu.Unlock()
		select {
		case q.reply <- r:
			q.answered = q.person || !r.WillContinue // a person answers once
			return nil
		default:
			return &Error{Code: CodeStreamLimitExceeded, Message: fmt.Sprintf("The call %q has answered too often without an end.", r.ID)}
		}
	}
	b.mu.Unlock()
	b.late.Add(1)
	return &Error{Code: CodeInvalidState, Message: fmt.Sprintf("No tool call with the id %q waits for an answer.", r.ID)}
}

// isInput tells whether a canvas answers with what a person has put in, and not that it was put away or went on: then a button
// was pressed.
func isInput(response json.RawMessage) bool {
	var fields struct{ Action string }
	return json.Unmarshal(response, &fields) == nil && fields.Action != ""
}

// questionNamed finds the only unanswered question of a name, for clients of the old protocol that answer without an id. What is
// only shown is meant if there is none. Needs mu.
func (b *broker) questionNamed(name string) *question {
	var found, shown *question
	for _, q := range b.questions {
		switch {
		case q.call.Name != name || q.answered:
		case q.acked && !q.interactive:
			shown = q
		case found != nil:
			return nil
		default:
			found = q
		}
	}
	return cmp.Or(found, shown)
}

// repeatCalls asks a client that is back for the answers it still owes, and tells it of the tools that run here. It may have been
// told of them, and not have heard it.
func (b *broker) repeatCalls() {
	var owed []*question
	b.mu.Lock()
	for _, q := range b.questions {
		if !q.answered {
			owed = append(owed, q)
		}
	}
	b.mu.Unlock()
	slices.SortFunc(owed, byNumber)
	b.put(owed...)
	for _, open := range b.openCalls() {
		if open.function.Where == declaration.InGateway {
			b.s.notify(statusOf(open, StatusRunning, ""))
		}
	}
}
