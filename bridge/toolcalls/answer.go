package toolcalls

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"time"

	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/gemini/wire"
	"voxgate/tools"
)

const (
	// maxAnswers bounds the answers that are kept.
	maxAnswers = 2 * maxCalls

	// sameCall is how long a call's answer is reused after a session that never saw the call has taken over: that session
	// asks again, and a tool that sends a message must not send it twice.
	sameCall = 30 * time.Second

	// travelTime is how long an answer may take to Gemini. A handle that comes sooner may have been given before it.
	travelTime = time.Second
)

// respond answers the call that came at the time came.
func (c *Calls) respond(call tools.Call, came int, r reply) {
	if len(c.answers) == maxAnswers {
		first := max(slices.IndexFunc(c.answers, func(a answer) bool { return a.known }), 0)
		c.answers = slices.Delete(c.answers, first, first+1)
	}
	c.answers = append(c.answers, answer{call: call, reply: r, came: came, sent: c.Model.Happened(), at: time.Now()})
	c.send(call, r)
}

// respondAll answers a call, and the others that wait for the same answer.
func (c *Calls) respondAll(o *call, r reply) {
	for _, w := range o.wanted() {
		c.respond(w.Call, w.when, r)
		r.parts = nil // they are seen once
	}
}

// waits reports whether a call of this id waits for an answer.
func (c *Calls) waits(id string) bool {
	if c.open[id] != nil {
		return true
	}
	for _, o := range c.open {
		if slices.ContainsFunc(o.again, func(a again) bool { return a.ID == id }) {
			return true
		}
	}
	return false
}

// answerAsBefore answers a call from another one with the same name and arguments that is open, or was answered and not
// yet spoken of: models call twice for one thing. It reports whether the call has its answer already (done), and
// whether it need not run (ok).
func (c *Calls) answerAsBefore(when int, call tools.Call, f setup.Function) (done, ok bool) {
	if f.Repeats || f.Where == setup.OnCanvas {
		return false, false
	}
	for _, o := range c.open {
		if o.Name != call.Name || !sameArgs(o.Args, call.Args) {
			continue
		}
		c.Logger.Warn("tool call repeated with another id", "tool", call.Name)
		if o.detached {
			c.respond(call, when, reply{response: underWayResponse})
			return true, true
		}
		o.again = append(o.again, again{call, when})
		return false, true
	}
	for _, a := range c.answers {
		said := a.spoken || a.asked || !a.orphaned.IsZero() || time.Since(a.at) >= sameCall
		if a.whole && !said && a.call.Name == call.Name && sameArgs(a.call.Args, call.Args) {
			c.Logger.Warn("tool call repeated with another id", "tool", call.Name)
			r := a.reply
			r.parts = nil
			c.respond(call, when, r)
			return true, true
		}
	}
	return false, false
}

// send sends an answer up. Pictures go before it, or behind it where the model takes nothing else while it waits.
func (c *Calls) send(call tools.Call, r reply) {
	if r.parts != nil && !r.behind {
		c.Model.Pictures(r.parts)
	}
	response := wire.FunctionResponse{ID: call.ID, Name: c.wireName(call.Name), Response: r.response, Scheduling: string(r.scheduling)}
	if !c.Uplink.QueueToolResponse(response) {
		c.Logger.Error("answer dropped: too many wait", "tool", call.Name)
	}
	if r.parts != nil && r.behind {
		c.Model.Pictures(r.parts)
	}
}

// wireName returns the name by which the model knows a function.
func (c *Calls) wireName(name string) string {
	if f, ok := c.Model.Find(name); ok && f.WireName != "" {
		return f.WireName
	}
	return name
}

// forgetDetached drops the promise of a result that a cancelled call has made: none follows, not even for a session
// that asks again.
func (c *Calls) forgetDetached(o *call) {
	if o.detached {
		c.answers = slices.DeleteFunc(c.answers, func(a answer) bool { return a.call.ID == o.ID && a.came == o.when })
	}
}

// answeredBefore is the answer that the same question got from the session before, if the person has not heard of it
// yet.
func (c *Calls) answeredBefore(call tools.Call) (reply, bool) {
	for i, a := range c.answers {
		if !a.orphaned.IsZero() && !a.spoken && time.Since(a.orphaned) < sameCall && a.call.Name == call.Name &&
			sameArgs(a.call.Args, call.Args) {
			c.answers = slices.Delete(c.answers, i, i+1)
			return a.reply, true
		}
	}
	return reply{}, false
}

// sameArgs compares arguments, whose fields come in any order.
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

// SendAgain sends a new connection the answers that its session waits for: it knows the call, and the answer went to
// the connection before. The uplink sends the pictures of an answer again.
func (c *Calls) SendAgain() {
	c.Uplink.DropToolResponses() // those that were not sent are among them
	for _, a := range c.answers {
		if c.Model.Knows(a.came) && a.orphaned.IsZero() && !a.known {
			c.send(a.call, reply{response: a.response, scheduling: a.scheduling})
		}
	}
	c.Gate()
}

// Spoken notes that the model has gone on to speak.
func (c *Calls) Spoken() {
	for i := range c.answers {
		c.answers[i].spoken = true
	}
}

// Asked notes that the person asks for something: an earlier answer need not be the answer to that.
func (c *Calls) Asked() {
	for i := range c.answers {
		c.answers[i].asked = true
	}
}

// HandleChanged forgets the answers that the session behind the newest handle knows, except those that it may ask for
// again.
func (c *Calls) HandleChanged() {
	c.answers = slices.DeleteFunc(c.answers, func(a answer) bool {
		if !a.orphaned.IsZero() {
			return time.Since(a.orphaned) >= sameCall
		}
		return c.arrived(a) && (a.spoken || a.asked || !a.whole || time.Since(a.at) >= sameCall)
	})
	for i, a := range c.answers {
		c.answers[i].known = c.arrived(a)
	}
}

// arrived reports whether the session behind the newest handle knows of an answer.
func (c *Calls) arrived(a answer) bool {
	return c.Model.Knows(a.sent) && (a.spoken || time.Since(a.at) >= travelTime)
}

// Orphan cancels the calls that the session behind the newest handle has never seen: the one that knew of them is gone.
// Their answers are kept in case it asks again.
func (c *Calls) Orphan() {
	var ids []string
	for id, o := range c.open {
		if !c.Model.Knows(o.when) {
			ids = append(ids, id)
		}
		for _, a := range o.again {
			if !c.Model.Knows(a.when) {
				ids = append(ids, a.ID)
			}
		}
	}
	slices.Sort(ids)
	c.Cancel(ids)
	for i, a := range c.answers {
		if !c.Model.Knows(a.came) && a.orphaned.IsZero() {
			c.answers[i].orphaned = time.Now()
		}
	}
}
