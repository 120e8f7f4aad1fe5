package bridge

import (
	"slices"
	"time"

	"voxgate/tools"
)

const (
	// ringSize bounds the events that are kept for a caller that may come back: those of some turns.
	ringSize = 256

	// ringTime is for how long they are kept while there is a caller: as long as its connection may be dead before it is given
	// up (20 s by socket, 30 s by WebRTC), and a little more.
	ringTime = 40 * time.Second
)

// ring is the newest events of a conversation. The zero ring is empty.
type ring struct {
	last   uint64 // number of the newest event
	events []Event
}

// add numbers an event. It is kept if the caller may come back.
func (r *ring) add(body Body, keep bool) Event {
	r.last++
	e := Event{Number: r.last, Time: time.Now(), Body: body}
	if keep {
		if len(r.events) == ringSize {
			r.events = slices.Delete(r.events, 0, 1)
		}
		r.events = append(r.events, e)
	}
	return e
}

// forgetOld drops what a caller that is there must have got. What is open stays, until it is not.
func (r *ring) forgetOld(open func(id string) bool) {
	if len(r.events) == 0 || time.Since(r.events[0].Time) <= ringTime {
		return
	}
	r.events = slices.DeleteFunc(r.events, func(e Event) bool {
		return time.Since(e.Time) > ringTime && !isOpen(e.Body, open)
	})
}

// isOpen tells whether an event is of a call that has not ended.
func isOpen(body Body, open func(id string) bool) bool {
	switch b := body.(type) {
	case ToolCall:
		for _, c := range b.Calls {
			if open(c.ID) {
				return true
			}
		}
	case ToolStatus:
		return b.Status == StatusRunning && open(b.ID)
	}
	return false
}

// missed is what a caller has missed that is back, and has the events up to a number. It is told of calls only as long as they
// are open, and not of what has passed. Without a number it is told what it must know, whatever it had before.
func (r *ring) missed(after uint64, open func(id string) bool) (missed []Event) {
	reused := map[string]bool{} // ids of open calls: what ended before under the same id is no news
	for _, e := range slices.Backward(r.events) {
		if e.Number <= after {
			break
		}
		switch b := e.Body.(type) {
		case ToolCall:
			var calls []tools.Call
			for _, c := range b.Calls {
				if open(c.ID) && !reused[c.ID] {
					reused[c.ID] = true
					calls = append(calls, c)
				}
			}
			if calls == nil {
				continue
			}
			e.Body = ToolCall{calls}
		case ToolCallCancellation:
			ids := slices.DeleteFunc(slices.Clone(b.IDs), func(id string) bool { return reused[id] })
			if len(ids) == 0 {
				continue
			}
			e.Body = ToolCallCancellation{ids}
		case ToolStatus:
			if reused[b.ID] || b.Status == StatusRunning && !open(b.ID) {
				continue
			}
		case StateChange, UserSpeaking, Latency:
			continue
		case SetupComplete:
			if !b.Update {
				continue
			}
		case SetupFailed, History:
		default:
			if after == 0 {
				continue
			}
		}
		missed = append(missed, e)
	}
	slices.Reverse(missed)
	return missed
}
