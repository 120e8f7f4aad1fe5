package toolcalls

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"voxgate/tools"
	"voxgate/tools/canvas"
)

// maxShown is how many canvases that the model need not wait for the client may still answer.
const maxShown = 32

// personAnswer is what a person has answered, or why not.
type personAnswer struct {
	response json.RawMessage
	err      error
}

var (
	// dismissed is the answer of a canvas that the person has closed or not answered.
	dismissed = json.RawMessage(`{"dismissed":true}`)

	// onScreen is its answer when it is shown, and onScreenOpen that where the model cannot wait for the person.
	onScreen     = json.RawMessage(`{"shown":true}`)
	onScreenOpen = json.RawMessage(`{"shown":true,"input":"what the person puts in follows as text"}`)
)

// ask notes what the client is asked.
func (c *Calls) ask(q *question) *question {
	c.asked++
	q.number, q.backend = c.asked, c.Client.IsBackends(q.Name)
	c.questions[q.ID] = q
	return q
}

// withdraw cancels questions to the client.
func (c *Calls) withdraw(ids []string) {
	if len(ids) > 0 {
		c.Client.Withdraw(ids)
	}
}

// dropQuestions cancels what a call still asks the client, and returns the ids.
func (c *Calls) dropQuestions(of *call) (ids []string) {
	for id, q := range c.questions {
		if q.of == of {
			delete(c.questions, id)
			ids = append(ids, id)
			if q.tool != nil {
				q.tool <- personAnswer{err: tools.ErrCancelled}
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// withPerson reports whether a call waits for a person.
func (c *Calls) withPerson(o *call) bool {
	for _, q := range c.questions {
		if q.of == o && q.person {
			return true
		}
	}
	return false
}

// show asks the client to show a canvas. A canvas without input, or one that would block the model, is answered at
// once.
func (c *Calls) show(o *call) (q *question, answered bool) {
	clean, interactive, err := c.board.Put(o.Name, o.Args)
	if err != nil {
		c.respond(o.Call, o.when, reply{response: tools.Respond(nil, err).Response})
		c.Client.Warn(fmt.Sprintf("Gemini called %q wrongly and got an error: %s.", o.Name, tools.Cut(err.Error(), maxReason)))
		c.observe(o, Failed)
		return nil, true
	}
	q = &question{Call: o.Call, person: true, interactive: interactive}
	q.Args = clean
	if interactive && !o.function.Blocking {
		q.of = o
		c.open[o.ID] = o
		c.after(o, tools.PersonTimeout, func() { c.finish(o, reply{response: dismissed}, nil) })
		return c.ask(q), false
	}
	c.ask(q)
	c.forgetShown()
	response := onScreen
	if interactive {
		response = onScreenOpen
	}
	c.observe(o, Done)
	c.respond(o.Call, o.when, c.schedule(o, reply{response: response}))
	return q, true
}

// forgetShown drops the oldest of the canvases that the model does not wait for, when there are too many.
func (c *Calls) forgetShown() {
	var oldest *question
	shown := 0
	for _, q := range c.questions {
		if q.of == nil {
			if shown++; oldest == nil || q.number < oldest.number {
				oldest = q
			}
		}
	}
	if shown > maxShown {
		delete(c.questions, oldest.ID)
	}
}

// askPerson asks the person something for a tool of the gateway, in the tool's goroutine. It blocks until there is an
// answer.
func (c *Calls) askPerson(ctx context.Context, o *call, picture json.RawMessage) (json.RawMessage, error) {
	answer := make(chan personAnswer, 1)
	// Random, because the model names its calls itself.
	id := "ask-" + rand.Text()
	asked := c.post(func() {
		args, err := c.board.Question(picture)
		if !c.isCurrent(o) {
			err = tools.ErrCancelled
		}
		if err != nil {
			answer <- personAnswer{err: err}
			return
		}
		c.detach(o)
		call := tools.Call{ID: id, Name: canvas.Show, Args: args, Title: cmp.Or(o.Title, o.Name)}
		c.ask(&question{Call: call, of: o, person: true, tool: answer})
		c.Client.Ask([]tools.Call{call})
	})
	if !asked {
		return nil, tools.ErrCancelled
	}
	withdraw := func() {
		c.post(func() {
			if c.questions[id] != nil {
				delete(c.questions, id)
				c.withdraw([]string{id})
			}
		})
	}
	select {
	case a := <-answer:
		return a.response, a.err
	case <-time.After(tools.PersonTimeout):
		withdraw()
		return dismissed, nil
	case <-ctx.Done():
		withdraw()
		return nil, context.Cause(ctx)
	case <-c.over:
		return nil, tools.ErrCancelled
	}
}

// Answer takes a client's answer. An error is an [*Error]: the answer was dropped.
func (c *Calls) Answer(r Response) error {
	q := c.questions[r.ID]
	if r.ID == "" {
		q = c.questionNamed(r.Name)
	}
	switch {
	case q == nil, q.backend && !r.Backend:
		return &Error{NotOpen, fmt.Sprintf("No tool call with the id %q waits for an answer.", r.ID)}
	case q.of == nil:
		return c.answerShown(q, r)
	case q.tool != nil:
		delete(c.questions, q.ID)
		q.tool <- personAnswer{response: r.Response}
	case r.WillContinue && !q.person: // a person answers once
		if q.of.partial > maxPartial {
			return &Error{TooMany, fmt.Sprintf("The call %q has answered too often without an end.", q.ID)}
		}
		c.onPartial(q.of, reply{response: tools.Respond(r.Response, nil).Response, scheduling: r.Scheduling, parts: r.Parts})
	default:
		delete(c.questions, q.ID)
		outcome := tools.Respond(r.Response, nil)
		c.finish(q.of, reply{response: outcome.Response, scheduling: r.Scheduling, parts: r.Parts}, outcome.Err)
	}
	return nil
}

// answerShown takes a person's input into a canvas that the model did not wait for.
func (c *Calls) answerShown(q *question, r Response) error {
	input := q.interactive && isInput(r.Response)
	if input && len(r.Response) > tools.MaxResult {
		return &Error{TooLong, fmt.Sprintf("The input has %d bytes; %d are taken at most.", len(r.Response), tools.MaxResult)}
	}
	delete(c.questions, q.ID)
	if input && !c.Model.Text(string(r.Response)) {
		return &Error{TooMany, "Too many messages wait for Gemini; this one was dropped."}
	}
	return nil
}

// isInput reports whether a canvas answers with a person's input, and not only that it was closed or continued by a
// button.
func isInput(response json.RawMessage) bool {
	var fields struct{ Action string }
	return json.Unmarshal(response, &fields) == nil && fields.Action != ""
}

// questionNamed finds the only question of a name, for clients of the old protocol that answer without an id. A canvas
// that is only shown matches if there is no other.
func (c *Calls) questionNamed(name string) *question {
	var found, shown *question
	for _, q := range c.questions {
		switch {
		case q.Name != name:
		case q.of == nil && !q.interactive:
			shown = q
		case found != nil:
			return nil
		default:
			found = q
		}
	}
	return cmp.Or(found, shown)
}
