package bridge

import (
	"slices"
	"time"

	"voxgate/tools"
)

const (
	// replayEvents and replayBytes limit the events that are kept for a caller that may return: several turns.
	// pruneEvents applies these limits. Between its calls, addEvent keeps twice as many events and bytes. It keeps up
	// to four times the events and eight times the bytes if they belong to tool calls, because it cannot tell which
	// calls are open.
	replayEvents = 256
	replayBytes  = 1 << 20

	// replayTime limits how long events are kept while a caller is connected. The connection may be dead without being
	// noticed: detecting that takes 20 s on a WebSocket, and 30 s on WebRTC.
	replayTime = 40 * time.Second
)

// replayBuffer holds the newest events of a conversation. The zero value is empty.
type replayBuffer struct {
	last   uint64 // number of the newest event
	events []Event
	bytes  int // approximate size of all events
}

// addEvent assigns the next number to an event. If isKept is true, it also stores the event for a caller that may
// return.
func (r *replayBuffer) addEvent(body EventBody, isKept bool) Event {
	r.last++
	e := Event{Number: r.last, Time: time.Now(), Body: body}
	if isKept {
		r.events = append(r.events, e)
		r.bytes += eventSize(body)
		anyCall := func(string) bool { return true }
		r.trim(2*replayEvents, 2*replayBytes, func(e Event) bool { return !belongsToOpenCall(e.Body, anyCall) })
		r.trim(4*replayEvents, 8*replayBytes, func(Event) bool { return true })
	}
	return e
}

// pruneEvents drops the oldest events beyond the limits, except those of open calls. If the conversation has a caller,
// it also drops events older than replayTime.
func (r *replayBuffer) pruneEvents(hasCaller bool, isCallOpen func(id string) bool) {
	closed := func(e Event) bool { return !belongsToOpenCall(e.Body, isCallOpen) }
	if hasCaller {
		r.dropEvents(func(e Event) bool { return time.Since(e.Time) > replayTime && closed(e) })
	}
	r.trim(replayEvents, replayBytes, closed)
}

// trim drops the oldest events until at most maxEvents events with at most maxBytes bytes are left. It keeps events for
// which mayDrop returns false.
func (r *replayBuffer) trim(maxEvents, maxBytes int, mayDrop func(Event) bool) {
	remaining := len(r.events)
	if remaining <= maxEvents && r.bytes <= maxBytes {
		return
	}
	r.dropEvents(func(e Event) bool {
		gone := (remaining > maxEvents || r.bytes > maxBytes) && mayDrop(e)
		if gone {
			remaining--
		}
		return gone
	})
}

// dropEvents drops each event for which isGone returns true. It calls isGone once for each event, in order.
func (r *replayBuffer) dropEvents(isGone func(Event) bool) {
	r.events = slices.DeleteFunc(r.events, func(e Event) bool {
		if !isGone(e) {
			return false
		}
		r.bytes -= eventSize(e.Body)
		return true
	})
}

// eventSize returns approximately how much memory an event needs.
func eventSize(body EventBody) int {
	const least = 128
	switch b := body.(type) {
	case RawServerContent:
		return least + len(b.ServerContent)
	case Grounding:
		return least + len(b.Metadata) + len(b.SuggestionsPage)
	case UserText:
		return least + len(b.Text)
	case AssistantText:
		return least + len(b.Text)
	case Thought:
		return least + len(b.Text)
	case Interrupted:
		return least + len(b.PlayedText)
	case ToolStatus:
		return least + len(b.Args) + len(b.Result) + len(b.Message)
	case ToolCall:
		n := least
		for _, c := range b.Calls {
			n += least + len(c.Args)
		}
		return n
	case ToolLosses:
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

// belongsToOpenCall reports whether an event belongs to a tool call that has not ended.
func belongsToOpenCall(body EventBody, isCallOpen func(id string) bool) bool {
	switch b := body.(type) {
	case ToolCall:
		for _, c := range b.Calls {
			if isCallOpen(c.ID) {
				return true
			}
		}
	case ToolStatus:
		return b.Status == StatusRunning && isCallOpen(b.ID)
	}
	return false
}

// missedEvents returns the events after lastReceived. It leaves out events of ended calls and events that are outdated.
// If lastReceived is 0, it returns only the essential events.
func (r *replayBuffer) missedEvents(lastReceived uint64, isCallOpen func(id string) bool) (missed []Event) {
	reused := map[string]bool{} // IDs of open calls: an earlier end under the same ID is outdated
	for _, e := range slices.Backward(r.events) {
		if e.Number <= lastReceived {
			break
		}
		switch b := e.Body.(type) {
		case ToolCall:
			var calls []tools.Call
			for _, c := range b.Calls {
				if isCallOpen(c.ID) && !reused[c.ID] {
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
			if reused[b.ID] || b.Status == StatusRunning && !isCallOpen(b.ID) {
				continue
			}
		case StateChange, UserSpeaking, InterruptionPending, Thinking, Latency, Move:
			continue
		case SetupComplete:
			if !b.Update {
				continue
			}
		case History:
			if len(b.Entries) > 0 { // answers a GetContext of the previous caller
				continue
			}
		case SetupFailed:
		default:
			if lastReceived == 0 {
				continue
			}
		}
		missed = append(missed, e)
	}
	slices.Reverse(missed)
	return missed
}
