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
	// maxAnswers limits the answers that are kept until a handle covers them.
	maxAnswers = 2 * maxCalls

	// reuseWindow is how long an answer is reused for an equal call. A fresh session may call again, and a tool that sends
	// a message, for example, must not run twice.
	reuseWindow = 30 * time.Second

	// answerLatency is the longest time that an answer should take to reach Gemini. A handle that comes earlier may lack the
	// answer.
	answerLatency = time.Second
)

// sendAnswer answers the call that arrived with event callEvent.
func (c *Calls) sendAnswer(call tools.Call, callEvent int, r reply) {
	if len(c.answers) == maxAnswers {
		first := max(slices.IndexFunc(c.answers, func(a answer) bool { return a.isCovered }), 0)
		c.answers = slices.Delete(c.answers, first, first+1)
	}
	c.answers = append(c.answers, answer{call: call, reply: r, callEvent: callEvent, answerEvent: c.Handles.RecordEvent(), sentAt: time.Now()})
	c.sendResponse(call, r)
}

// answerAll answers a call and its duplicates.
func (c *Calls) answerAll(o *call, r reply) {
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

// reuseAnswer answers a call with the result of an equal call, because models call twice for one purpose. event is the
// number of the call's arrival. ok means that the call need not run. done means that it is answered already.
func (c *Calls) reuseAnswer(event int, call tools.Call, f liveconfig.Function) (done, ok bool) {
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

// sendResponse sends an answer to the model, with its pictures before or after it.
func (c *Calls) sendResponse(call tools.Call, r reply) {
	if r.parts != nil && !r.picturesAfter {
		c.Notify(Pictures{r.parts})
	}
	response := wire.FunctionResponse{ID: call.ID, Name: c.wireName(call.Name), Response: r.response, Scheduling: string(r.scheduling)}
	if !c.Uplink.QueueToolResponse(response) {
		c.Logger.Error("answer dropped: too many wait", "tool", call.Name)
	}
	// picturesAfter is set for a model that accepts nothing else while it waits for the answer.
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

// dropDetachedAnswer drops the interim answer of a cancelled call. A repeated call must not get it, because no result
// will follow.
func (c *Calls) dropDetachedAnswer(o *call) {
	if o.isDetached {
		c.answers = slices.DeleteFunc(c.answers, func(a answer) bool { return a.call.ID == o.ID && a.callEvent == o.event })
	}
}

// takeOrphanedAnswer removes and returns the answer that an earlier session got to the same call. It returns false if there
// is none, or if the model has told the person about it.
func (c *Calls) takeOrphanedAnswer(call tools.Call) (reply, bool) {
	for i, a := range c.answers {
		if !a.orphanedAt.IsZero() && !a.modelSpoke && time.Since(a.orphanedAt) < reuseWindow && a.call.Name == call.Name &&
			sameArgs(a.call.Args, call.Args) {
			c.answers = slices.Delete(c.answers, i, i+1)
			return a.reply, true
		}
	}
	return reply{}, false
}

// sameArgs reports whether arguments are equal, regardless of the order of their fields.
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

// ResendAnswers sends a resumed session the answers that were lost with the connection. The uplink sends their pictures
// again.
func (c *Calls) ResendAnswers() {
	c.Uplink.DropToolResponses() // the loop below queues them again, with the others
	for _, a := range c.answers {
		if c.Handles.HandleCovers(a.callEvent) && a.orphanedAt.IsZero() && !a.isCovered {
			c.sendResponse(a.call, reply{response: a.response, scheduling: a.scheduling})
		}
	}
	c.UpdateGate()
}

// MarkSpoken records that the model has spoken since its calls were answered.
func (c *Calls) MarkSpoken() {
	for i := range c.answers {
		c.answers[i].modelSpoke = true
	}
}

// MarkAsked records a new request of the person. Earlier answers may not fit that request.
func (c *Calls) MarkAsked() {
	for i := range c.answers {
		c.answers[i].personAsked = true
	}
}

// OnHandleChanged drops the answers that the newest handle covers, except those that the session may request again.
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
	return c.Handles.HandleCovers(a.answerEvent) && (a.modelSpoke || time.Since(a.sentAt) >= answerLatency)
}

// CancelOrphans cancels the open calls that the newest handle does not cover, because their session is gone. It keeps the
// answers to such calls in case the next session calls again.
func (c *Calls) CancelOrphans() {
	var ids []string
	for id, o := range c.openCalls {
		if !c.Handles.HandleCovers(o.event) {
			ids = append(ids, id)
		}
		for _, a := range o.duplicates {
			if !c.Handles.HandleCovers(a.event) {
				ids = append(ids, a.ID)
			}
		}
	}
	slices.Sort(ids)
	c.Cancel(ids)
	for i, a := range c.answers {
		if !c.Handles.HandleCovers(a.callEvent) && a.orphanedAt.IsZero() {
			c.answers[i].orphanedAt = time.Now()
		}
	}
}
