package bridge

import (
	"fmt"
	"strings"
	"testing"

	"voxgate/tools"
)

func nothingOpen(string) bool { return false }

// seen returns events in a short form.
func seen(events []Event) (list []string) {
	for _, e := range events {
		list = append(list, fmt.Sprintf("%d %v", e.Number, e.Body))
	}
	return list
}

func TestRingKeepsTheNewest(t *testing.T) {
	var r replayBuffer
	for i := range 2 * replayEvents {
		r.addEvent(ToolCallCancellation{[]string{fmt.Sprint(i)}}, true)
	}
	r.pruneEvents(true, nothingOpen)
	missed := r.missedEvents(0, nothingOpen)
	if n := len(missed); n != replayEvents || missed[n-1].Number != 2*replayEvents {
		t.Errorf("%d events, the last is %d", n, missed[n-1].Number)
	}
	if missed := r.missedEvents(2*replayEvents-2, nothingOpen); len(missed) != 2 {
		t.Errorf("after the last but two: %v", seen(missed))
	}
	if missed := r.missedEvents(2*replayEvents, nothingOpen); len(missed) != 0 {
		t.Errorf("after the last: %v", seen(missed))
	}
}

// TestReplayBufferIsBounded checks that a page of megabytes is dropped, and that open calls are kept whatever follows.
func TestReplayBufferIsBounded(t *testing.T) {
	var r replayBuffer
	r.addEvent(ToolCall{[]tools.Call{{ID: "a"}}}, true)
	for range 100 {
		r.addEvent(RawServerContent{ServerContent: make([]byte, 100<<10)}, true)
		if r.bytes > 2*replayBytes+100<<10 {
			t.Fatalf("%d bytes are kept", r.bytes)
		}
	}
	r = replayBuffer{}
	for range 100 {
		r.addEvent(StepChange{"a", map[string]any{"text": strings.Repeat("a", 100<<10), "number": 1.0}}, true)
	}
	if n := len(r.events); n > 2*replayBytes/(100<<10)+1 {
		t.Errorf("%d events of 100 KiB are kept", n)
	}
	r = replayBuffer{}
	r.addEvent(ToolCall{[]tools.Call{{ID: "a"}}}, true)
	for range replayEvents + 10 {
		r.addEvent(RawServerContent{ServerContent: make([]byte, 6<<10)}, true)
	}
	r.pruneEvents(true, func(id string) bool { return id == "a" })
	if r.bytes > replayBytes || len(r.events) > replayEvents || r.events[0].Number != 1 {
		t.Errorf("%d events, %d bytes, the first is %d", len(r.events), r.bytes, r.events[0].Number)
	}
	r.dropEvents(func(Event) bool { return true })
	if r.bytes != 0 {
		t.Errorf("%d bytes are left of nothing", r.bytes)
	}
}
