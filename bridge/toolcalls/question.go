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

// maxOpenCanvases limits the canvases for which the client may still send input although the model does not wait for
// it.
const maxOpenCanvases = 32

// personAnswer is a person's answer to a question, or an error.
type personAnswer struct {
	response json.RawMessage
	err      error
}

var (
	// dismissedResponse is the answer to a call if the person has closed the canvas or not answered it.
	dismissedResponse = json.RawMessage(`{"dismissed":true}`)

	// shownResponse is the answer to a call that shows a canvas without input fields.
	shownResponse = json.RawMessage(`{"shown":true}`)
	// shownWithInput is the answer to a call that shows a canvas with input fields, if the model cannot wait for the
	// input.
	shownWithInput = json.RawMessage(`{"shown":true,"input":"what the person puts in follows as text"}`)
)

// addQuestion registers a question to the client.
func (c *Calls) addQuestion(q *question) *question {
	c.questionCount++
	q.number, q.forBackend = c.questionCount, c.Functions.RunsInBackend(q.Name)
	c.questions[q.ID] = q
	return q
}

// notifyWithdrawn tells the client that it need not answer these questions any more.
func (c *Calls) notifyWithdrawn(ids []string) {
	if len(ids) > 0 {
		c.Notify(CallsWithdrawn{ids})
	}
}

// dropQuestions removes the open questions of a call, and returns their IDs. If a tool is waiting for an answer, it
// gets an error.
func (c *Calls) dropQuestions(owner *call) (ids []string) {
	for id, q := range c.questions {
		if q.call == owner {
			delete(c.questions, id)
			ids = append(ids, id)
			if q.toolAnswer != nil {
				q.toolAnswer <- personAnswer{err: tools.ErrCancelled}
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// waitsForPerson reports whether a call waits for a person.
func (c *Calls) waitsForPerson(o *call) bool {
	for _, q := range c.questions {
		if q.call == o && q.forPerson {
			return true
		}
	}
	return false
}

// showCanvas shows a canvas. If the canvas has no input fields, or if waiting for input would block the model, the call
// is answered at once.
func (c *Calls) showCanvas(o *call) (q *question, isAnswered bool) {
	clean, interactive, err := c.board.HandleCall(o.Name, o.Args)
	if err != nil {
		c.sendAnswer(o.Call, o.event, reply{response: tools.BuildOutcome(nil, err).Response})
		c.Notify(Warning{fmt.Sprintf("Gemini called %q wrongly and got an error: %s.", o.Name, tools.Truncate(err.Error(), maxReason))})
		c.reportEnd(o, Failed)
		return nil, true
	}
	q = &question{Call: o.Call, forPerson: true, hasInput: interactive}
	q.Args = clean
	if interactive && !o.function.Blocking {
		q.call = o
		c.openCalls[o.ID] = o
		c.runAfter(o, tools.PersonTimeout, func() {
			c.Notify(PersonAnswered{})
			c.finishCall(o, reply{response: dismissedResponse}, nil)
		})
		return c.addQuestion(q), false
	}
	c.addQuestion(q)
	c.dropOldestCanvas()
	response := shownResponse
	if interactive {
		response = shownWithInput
	}
	c.reportEnd(o, Done)
	c.sendAnswer(o.Call, o.event, c.withScheduling(o, reply{response: response}))
	return q, true
}

// dropOldestCanvas drops the oldest of the canvases that the model does not wait for, if they are more than
// maxOpenCanvases.
func (c *Calls) dropOldestCanvas() {
	var oldest *question
	count := 0
	for _, q := range c.questions {
		if q.call == nil {
			if count++; oldest == nil || q.number < oldest.number {
				oldest = q
			}
		}
	}
	if count > maxOpenCanvases {
		delete(c.questions, oldest.ID)
	}
}

// askPerson asks the person a question for a tool of the gateway. It is called in the tool's goroutine. canvasArgs
// describes the canvas with the question. It blocks until the person has answered, but at most for tools.PersonTimeout.
func (c *Calls) askPerson(ctx context.Context, o *call, canvasArgs json.RawMessage) (json.RawMessage, error) {
	answer := make(chan personAnswer, 1)
	// The ID is random, so that it differs from the IDs that the model chooses for its calls.
	id := "ask-" + rand.Text()
	posted := c.runInLoop(func() {
		args, err := c.board.BuildQuestion(canvasArgs)
		if !c.isStillOpen(o) {
			err = tools.ErrCancelled
		}
		if err != nil {
			answer <- personAnswer{err: err}
			return
		}
		c.detachCall(o)
		call := tools.Call{ID: id, Name: canvas.Show, Args: args, Title: cmp.Or(o.Title, o.Name)}
		c.addQuestion(&question{Call: call, call: o, forPerson: true, toolAnswer: answer})
		c.Notify(ClientCalls{[]tools.Call{call}})
	})
	if !posted {
		return nil, tools.ErrCancelled
	}
	withdraw := func() {
		c.runInLoop(func() {
			if c.questions[id] != nil {
				delete(c.questions, id)
				c.notifyWithdrawn([]string{id})
			}
		})
	}
	select {
	case a := <-answer:
		return a.response, a.err
	case <-time.After(tools.PersonTimeout):
		withdraw()
		return dismissedResponse, nil
	case <-ctx.Done():
		withdraw()
		return nil, context.Cause(ctx)
	case <-c.done:
		return nil, tools.ErrCancelled
	}
}

// HandleResponse processes a client's answer. If it drops the answer, it returns an [*Error].
func (c *Calls) HandleResponse(r Response) error {
	q := c.questions[r.ID]
	if r.ID == "" {
		q = c.findOnlyQuestion(r.Name)
	}
	switch {
	case q == nil, q.forBackend && !r.Backend:
		return &Error{NoOpenCall, fmt.Sprintf("No tool call with the ID %q is waiting for an answer.", r.ID)}
	case q.call == nil:
		return c.handleCanvasInput(q, r)
	case q.toolAnswer != nil:
		delete(c.questions, q.ID)
		c.Notify(PersonAnswered{})
		q.toolAnswer <- personAnswer{response: r.Response}
	case r.WillContinue && !q.forPerson: // a partial answer; a person gives only one answer
		if q.call.partialCount > maxPartial {
			return &Error{TooMany, fmt.Sprintf("The call %q has answered too often without an end.", q.ID)}
		}
		c.onPartialAnswer(q.call, reply{response: tools.BuildOutcome(r.Response, nil).Response, scheduling: r.Scheduling, parts: r.Parts})
	default:
		delete(c.questions, q.ID)
		if q.forPerson {
			c.Notify(PersonAnswered{})
		}
		outcome := tools.BuildOutcome(r.Response, nil)
		c.finishCall(q.call, reply{response: outcome.Response, scheduling: r.Scheduling, parts: r.Parts}, outcome.Err)
	}
	return nil
}

// handleCanvasInput handles a person's input into a canvas for which the model did not wait. It sends the input to the
// model as text.
func (c *Calls) handleCanvasInput(q *question, r Response) error {
	input := q.hasInput && hasCanvasInput(r.Response)
	if input && len(r.Response) > tools.MaxResult {
		return &Error{ResponseTooLong, fmt.Sprintf("The input has %d bytes; the limit is %d.", len(r.Response), tools.MaxResult)}
	}
	delete(c.questions, q.ID)
	if !input {
		return nil
	}
	if !c.Uplink.HasRoom() {
		return &Error{TooMany, "Too many messages are queued for Gemini; this one was dropped."}
	}
	c.Notify(Text{Text: string(r.Response)})
	return nil
}

// hasCanvasInput reports whether a canvas response has input. It has no input if the person has only closed the canvas
// or pressed its button to continue.
func hasCanvasInput(response json.RawMessage) bool {
	var fields struct{ Action string }
	return json.Unmarshal(response, &fields) == nil && fields.Action != ""
}

// findOnlyQuestion returns the question with this name, if only one is open. It serves old clients, which answer
// without an ID. A canvas without input fields is returned only if no other question has the name.
func (c *Calls) findOnlyQuestion(name string) *question {
	var found, shown *question
	for _, q := range c.questions {
		switch {
		case q.Name != name:
		case q.call == nil && !q.hasInput:
			shown = q
		case found != nil:
			return nil
		default:
			found = q
		}
	}
	return cmp.Or(found, shown)
}
