package bridge

import (
	"slices"
	"time"

	"voxgate/tools"
)

const (
	// ringSize and ringBytes bound what is kept for a caller that may come back: the events of some turns. Within a turn
	// there may be twice as much, and also calls, as the ring does not know which are open.
	ringSize  = 256
	ringBytes = 1 << 20

	// ringTime is how long events are kept while there is a caller: a little longer than its dead connection may go
	// unnoticed (20 s by socket, 30 s by WebRTC).
	ringTime = 40 * time.Second
)

// ring is the newest events of a conversation. The zero ring is empty.
type ring struct {
	last   uint64 // number of the newest event
	events []Event
	bytes  int // of all of them, roughly
}

// add numbers an event. It is kept if the caller may come back.
func (r *ring) add(body Body, keep bool) Event {
	r.last++
	e := Event{Number: r.last, Time: time.Now(), Body: body}
	if keep {
		r.events = append(r.events, e)
		r.bytes += bytesOf(body)
		anybody := func(string) bool { return true }
		r.trim(2*ringSize, 2*ringBytes, func(e Event) bool { return !isOpen(e.Body, anybody) })
		r.trim(4*ringSize, 8*ringBytes, func(Event) bool { return true })
	}
	return e
}

// forget drops what a connected caller must have got, and what exceeds the bounds. Open calls stay.
func (r *ring) forget(attended bool, open func(id string) bool) {
	closed := func(e Event) bool { return !isOpen(e.Body, open) }
	if attended {
		r.drop(func(e Event) bool { return time.Since(e.Time) > ringTime && closed(e) })
	}
	r.trim(ringSize, ringBytes, closed)
}

// trim drops the oldest events that may go, until there are few enough.
func (r *ring) trim(size, bytes int, may func(Event) bool) {
	left := len(r.events)
	if left <= size && r.bytes <= bytes {
		return
	}
	r.drop(func(e Event) bool {
		gone := (left > size || r.bytes > bytes) && may(e)
		if gone {
			left--
		}
		return gone
	})
}

// drop drops events, one after the other.
func (r *ring) drop(gone func(Event) bool) {
	r.events = slices.DeleteFunc(r.events, func(e Event) bool {
		if !gone(e) {
			return false
		}
		r.bytes -= bytesOf(e.Body)
		return true
	})
}

// bytesOf is about what an event keeps in memory.
func bytesOf(body Body) int {
	const least = 128
	switch b := body.(type) {
	case Raw:
		return least + len(b.ServerContent)
	case Grounding:
		return least + len(b.Metadata) + len(b.Chips)
	case UserText:
		return least + len(b.Text)
	case AssistantText:
		return least + len(b.Text)
	case Thought:
		return least + len(b.Text)
	case Interrupted:
		return least + len(b.Heard)
	case ToolStatus:
		return least + len(b.Args) + len(b.Result) + len(b.Message)
	case ToolCall:
		n := least
		for _, c := range b.Calls {
			n += least + len(c.Args)
		}
		return n
	case ToolsLost:
		n := least
		for _, l := range b.Losses {
			n += least + len(l.Function) + len(l.Reason)
		}
		return n
	case StepChange:
		n := least
		for name, value := range b.Fields {
			text, _ := value.(string)
			n += least + len(name) + len(text)
		}
		return n
	case SetupComplete:
		return least + len(b.EffectiveConfig)
	case History:
		n := least
		for _, e := range b.Entries {
			n += least + len(e.Content)
		}
		return n
	}
	return least
}

// isOpen reports whether an event is of a call that has not ended.
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

// missed is what a caller that is back has missed since the event of this number: of calls only open ones, and nothing
// outdated. With 0 it is what any caller must know.
func (r *ring) missed(after uint64, open func(id string) bool) (missed []Event) {
	reused := map[string]bool{} // ids of open calls: an earlier end under the same id is no news
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
		case StateChange, UserSpeaking, Thinking, Latency, Move:
			continue
		case SetupComplete:
			if !b.Update {
				continue
			}
		case History:
			if len(b.Entries) > 0 { // the answer to a GetContext, whose asker is gone
				continue
			}
		case SetupFailed:
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
