package bridge

import (
	"fmt"
	"strings"
	"testing"

	"voxgate/tools"
)

func nothingOpen(string) bool { return false }

// seen is events in short.
func seen(events []Event) (list []string) {
	for _, e := range events {
		list = append(list, fmt.Sprintf("%d %v", e.Number, e.Body))
	}
	return list
}

func TestRingKeepsTheNewest(t *testing.T) {
	var r ring
	for i := range 2 * ringSize {
		r.add(ToolCallCancellation{[]string{fmt.Sprint(i)}}, true)
	}
	r.forget(true, nothingOpen)
	missed := r.missed(0, nothingOpen)
	if n := len(missed); n != ringSize || missed[n-1].Number != 2*ringSize {
		t.Errorf("%d events, the last is %d", n, missed[n-1].Number)
	}
	if missed := r.missed(2*ringSize-2, nothingOpen); len(missed) != 2 {
		t.Errorf("after the last but two: %v", seen(missed))
	}
	if missed := r.missed(2*ringSize, nothingOpen); len(missed) != 0 {
		t.Errorf("after the last: %v", seen(missed))
	}
}

// A page of megabytes does not stay, and what is open stays however much comes after it.
func TestRingIsBounded(t *testing.T) {
	var r ring
	r.add(ToolCall{[]tools.Call{{ID: "a"}}}, true)
	for range 100 {
		r.add(Raw{ServerContent: make([]byte, 100<<10)}, true)
		if r.bytes > 2*ringBytes+100<<10 {
			t.Fatalf("%d bytes are kept", r.bytes)
		}
	}
	r = ring{}
	for range 100 {
		r.add(StepChange{"a", map[string]any{"text": strings.Repeat("a", 100<<10), "number": 1.0}}, true)
	}
	if n := len(r.events); n > 2*ringBytes/(100<<10)+1 {
		t.Errorf("%d events of 100 KiB are kept", n)
	}
	r = ring{}
	r.add(ToolCall{[]tools.Call{{ID: "a"}}}, true)
	for range ringSize + 10 {
		r.add(Raw{ServerContent: make([]byte, 6<<10)}, true)
	}
	r.forget(true, func(id string) bool { return id == "a" })
	if r.bytes > ringBytes || len(r.events) > ringSize || r.events[0].Number != 1 {
		t.Errorf("%d events, %d bytes, the first is %d", len(r.events), r.bytes, r.events[0].Number)
	}
	r.drop(func(Event) bool { return true })
	if r.bytes != 0 {
		t.Errorf("%d bytes are left of nothing", r.bytes)
	}
}
