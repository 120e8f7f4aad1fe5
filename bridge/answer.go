package bridge

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"time"

	"voxgate/tools"
)

const (
	// maxAnswers bounds the answers that are kept.
	maxAnswers = 2 * maxCalls

	// sameCall is how long after a session took over that never saw a call the same question gets the same answer: it asks
	// again what the one before has asked, and a tool that sends a message must not send it twice.
	sameCall = 30 * time.Second

	// underWay is how long an answer may take to Gemini. A handle that comes sooner may have been given before it.
	underWay = time.Second
)

// answered is a call with its answer, kept until a handle knows of both.
type answered struct {
	call tools.Call
	reply
	came     int       // ticks
	sent     int       //
	at       time.Time // when it was sent
	spoken   bool      // the model has gone on to speak: the person knows of it
	orphaned time.Time // when a session took over that never saw the call; zero: none has
}

// respond answers a call that came at a tick.
func (b *broker) respond(call tools.Call, came int, r reply) {
	b.s.ticks++
	b.s.dirty = b.s.ticks
	if len(b.answers) == maxAnswers {
		b.answers = slices.Delete(b.answers, 0, 1)
	}
	b.answers = append(b.answers, answered{call: call, reply: r, came: came, sent: b.s.ticks, at: time.Now()})
	b.send(call, r)
}

// forgetDetached drops what a cancelled call has said of its result: none follows, also not to a session that asks again.
func (b *broker) forgetDetached(open *openCall) {
	if open.detached { // by this goroutine only
		b.answers = slices.DeleteFunc(b.answers, func(a answered) bool { return a.call.ID == open.call.ID && a.came == open.tick })
	}
}

// first is the answer that the same question got from the session before, if the person has not heard of it yet.
func (b *broker) first(call tools.Call) (reply, bool) {
	for i, a := range b.answers {
		if !a.orphaned.IsZero() && !a.spoken && time.Since(a.orphaned) < sameCall && a.call.Name == call.Name && sameArgs(a.call.Args, call.Args) {
			b.answers = slices.Delete(b.answers, i, i+1)
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
	x, y := decoded(a), decoded(b)
	return x != nil && reflect.DeepEqual(x, y)
}

// decoded is what a text says, with its numbers as they are written; nil if it is not JSON.
func decoded(text json.RawMessage) (value any) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&value) != nil {
		return nil
	}
	return value
}

// repeatAnswers sends a new link the answers that its session waits for: it knows of the call, and the answer went to the
// link before. Pictures that went with one are said again by the uplink.
func (b *broker) repeatAnswers() {
	b.s.up.TakeBack() // those that were not sent are among them
	for _, a := range b.answers {
		if b.s.handle.text != "" && a.came < b.s.handle.tick && a.orphaned.IsZero() {
			b.send(a.call, reply{response: a.response, scheduling: a.scheduling})
		}
	}
}

// forgetAnswers drops those that the session behind the newest handle knows.
func (b *broker) forgetAnswers() {
	b.answers = slices.DeleteFunc(b.answers, func(a answered) bool {
		known := a.sent < b.s.handle.tick && (a.spoken || time.Since(a.at) >= underWay)
		return a.orphaned.IsZero() && known || !a.orphaned.IsZero() && time.Since(a.orphaned) >= sameCall
	})
}

// settleAnswers notes that the model has gone on to speak.
func (b *broker) settleAnswers() {
	for i := range b.answers {
		b.answers[i].spoken = true
	}
}

// orphanCalls cancels the calls that the session behind the newest handle has never seen. What was answered of those is
// kept for when it asks again.
func (b *broker) orphanCalls() {
	unseen := func(tick int) bool { return b.s.handle.text == "" || tick > b.s.handle.tick }
	var ids []string
	b.mu.Lock()
	for id, open := range b.calls {
		if unseen(open.tick) {
			ids = append(ids, id)
		}
	}
	b.mu.Unlock()
	slices.Sort(ids)
	b.cancelCalls(ids)
	for i, a := range b.answers {
		if unseen(a.came) && a.orphaned.IsZero() {
			b.answers[i].orphaned = time.Now()
		}
	}
}
