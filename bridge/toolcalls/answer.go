package toolcalls

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"time"

	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/gemini/wire"
	"voxgate/tools"
)

const (
	// maxAnswers limits the answers that are kept because no handle covers them yet.
	maxAnswers = 2 * maxCalls

	// reuseWindow limits how long an answer is reused for an equal call. After a reconnect, the model may repeat a
	// call, and a tool that sends a message, for example, must not run twice.
	reuseWindow = 30 * time.Second

	// answerLatency is the longest time that an answer should take to reach Gemini. A handle that comes sooner after
	// the answer may not cover it.
	answerLatency = time.Second
)

// sendAnswer answers a call. callEvent is the number of the call's arrival.
func (c *Calls) sendAnswer(call tools.Call, callEvent int, r reply) {
	if len(c.answers) == maxAnswers {
		first := max(slices.IndexFunc(c.answers, func(a answer) bool { return a.isCovered }), 0)
		c.answers = slices.Delete(c.answers, first, first+1)
	}
	c.answers = append(c.answers, answer{call: call, reply: r, callEvent: callEvent, answerEvent: c.Handles.RecordEvent(), sentAt: time.Now()})
	c.sendResponse(call, r)
}

// answerCallAndDuplicates sends the same answer to a call and to all its duplicates.
func (c *Calls) answerCallAndDuplicates(o *call, r reply) {
	for _, w := range o.waitingCalls() {
		c.sendAnswer(w.Call, w.event, r)
		r.parts = nil // send pictures only once
	}
}

// isWaiting reports whether a call with this ID awaits an answer.
func (c *Calls) isWaiting(id string) bool {
	if c.openCalls[id] != nil {
		return true
	}
	for _, o := range c.openCalls {
		if slices.ContainsFunc(o.duplicates, func(a duplicateCall) bool { return a.ID == id }) {
			return true
		}
	}
	return false
}

// reuseAnswer looks for an equal call whose result can answer this call, because models sometimes call twice for one
// purpose. event is the number of the call's arrival. isReused means that there is one, so this call need not run.
// isAnswered means that its answer was sent already.
func (c *Calls) reuseAnswer(event int, call tools.Call, f liveconfig.Function) (isAnswered, isReused bool) {
	if f.Repeats || f.Where == liveconfig.OnCanvas {
		return false, false
	}
	for _, o := range c.openCalls {
		if o.Name != call.Name || !sameArgs(o.Args, call.Args) {
			continue
		}
		c.Logger.Warn("tool call repeated with another id", "tool", call.Name)
		if o.isDetached {
			c.sendAnswer(call, event, reply{response: underWayResponse})
			return true, true
		}
		o.duplicates = append(o.duplicates, duplicateCall{call, event})
		return false, true
	}
	for _, a := range c.answers {
		outdated := a.modelSpoke || a.personAsked || !a.orphanedAt.IsZero() || time.Since(a.sentAt) >= reuseWindow
		if a.succeeded && !outdated && a.call.Name == call.Name && sameArgs(a.call.Args, call.Args) {
			c.Logger.Warn("tool call repeated with another id", "tool", call.Name)
			r := a.reply
			r.parts = nil
			c.sendAnswer(call, event, r)
			return true, true
		}
	}
	return false, false
}

// sendResponse sends an answer to the model. It sends the pictures of the answer before or after it.
func (c *Calls) sendResponse(call tools.Call, r reply) {
	if r.parts != nil && !r.picturesAfter {
		c.Notify(Pictures{r.parts})
	}
	response := wire.FunctionResponse{ID: call.ID, Name: c.wireName(call.Name), Response: r.response, Scheduling: string(r.scheduling)}
	if !c.Uplink.QueueToolResponse(response) {
		c.Logger.Error("answer dropped: too many wait", "tool", call.Name)
	}
	// picturesAfter is set for a model that accepts only the answer while it waits for it.
	if r.parts != nil && r.picturesAfter {
		c.Notify(Pictures{r.parts})
	}
}

// wireName returns the name under which a function is declared to the model.
func (c *Calls) wireName(name string) string {
	if f, ok := c.Functions.FindFunction(name); ok && f.WireName != "" {
		return f.WireName
	}
	return name
}

// dropDetachedAnswer drops the interim answer of a cancelled call. The interim answer promises a result, which will not
// follow, so it must not answer a repeated call.
func (c *Calls) dropDetachedAnswer(o *call) {
	if o.isDetached {
		c.answers = slices.DeleteFunc(c.answers, func(a answer) bool { return a.call.ID == o.ID && a.callEvent == o.event })
	}
}

// takeOrphanedAnswer removes and returns the answer that an earlier session of the model got to an equal call. ok is
// false if there is none that can be used, or if the model has already told the person about it.
func (c *Calls) takeOrphanedAnswer(call tools.Call) (r reply, ok bool) {
	for i, a := range c.answers {
		if !a.orphanedAt.IsZero() && !a.modelSpoke && time.Since(a.orphanedAt) < reuseWindow && a.call.Name == call.Name &&
			sameArgs(a.call.Args, call.Args) {
			c.answers = slices.Delete(c.answers, i, i+1)
			return a.reply, true
		}
	}
	return reply{}, false
}

// sameArgs reports whether two calls have equal arguments. The order of the fields does not matter.
func sameArgs(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, err := tools.Decode(a)
	if err != nil {
		return false
	}
	y, err := tools.Decode(b)
	return err == nil && reflect.DeepEqual(x, y)
}

// ResendAnswers sends the answers that were lost with the connection to the resumed session. The uplink sends their
// pictures again.
func (c *Calls) ResendAnswers() {
	c.Uplink.DropToolResponses() // the loop below queues them again, with the others
	for _, a := range c.answers {
		if c.Handles.IsCoveredByHandle(a.callEvent) && a.orphanedAt.IsZero() && !a.isCovered {
			c.sendResponse(a.call, reply{response: a.response, scheduling: a.scheduling})
		}
	}
	c.UpdateAudioGate()
}

// MarkModelSpoke records that the model has spoken after its calls were answered.
func (c *Calls) MarkModelSpoke() {
	for i := range c.answers {
		c.answers[i].modelSpoke = true
	}
}

// MarkPersonAsked records that the person has made a new request. Earlier answers may not fit it, so they are not
// reused.
func (c *Calls) MarkPersonAsked() {
	for i := range c.answers {
		c.answers[i].personAsked = true
	}
}

// OnHandleChanged drops the answers that the newest handle covers. It keeps those that the model may request again by
// an equal call.
func (c *Calls) OnHandleChanged() {
	c.answers = slices.DeleteFunc(c.answers, func(a answer) bool {
		if !a.orphanedAt.IsZero() {
			return time.Since(a.orphanedAt) >= reuseWindow
		}
		return c.isCovered(a) && (a.modelSpoke || a.personAsked || !a.succeeded || time.Since(a.sentAt) >= reuseWindow)
	})
	for i, a := range c.answers {
		c.answers[i].isCovered = c.isCovered(a)
	}
}

// isCovered reports whether the newest handle covers an answer.
func (c *Calls) isCovered(a answer) bool {
	return c.Handles.IsCoveredByHandle(a.answerEvent) && (a.modelSpoke || time.Since(a.sentAt) >= answerLatency)
}

// CancelOrphans cancels the open calls that the newest handle does not cover, because the session of the model that
// made them is gone. It keeps the answers to such calls, because the next session may call again.
func (c *Calls) CancelOrphans() {
	var ids []string
	for id, o := range c.openCalls {
		if !c.Handles.IsCoveredByHandle(o.event) {
			ids = append(ids, id)
		}
		for _, a := range o.duplicates {
			if !c.Handles.IsCoveredByHandle(a.event) {
				ids = append(ids, a.ID)
			}
		}
	}
	slices.Sort(ids)
	c.Cancel(ids)
	for i, a := range c.answers {
		if !c.Handles.IsCoveredByHandle(a.callEvent) && a.orphanedAt.IsZero() {
			c.answers[i].orphanedAt = time.Now()
		}
	}
}
