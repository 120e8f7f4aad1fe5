package protocol

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"voxgate/bridge"
)

func TestEventsAsMessages(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_790_000_000_123)
	for _, test := range []struct {
		name  string
		event bridge.EventBody
		want  string // empty means no message
	}{
		{
			"state",
			bridge.StateChange{State: bridge.StateLive},
			`{"type":"SESSION_STATE","payload":{"state":"live"},"seq":1}`,
		},
		{
			"state with a sentence",
			bridge.StateChange{State: bridge.StateResuming, Message: "One moment."},
			`{"type":"SESSION_STATE","payload":{"state":"resuming","message":"One moment."},"seq":1}`,
		},
		{
			"a step",
			bridge.StepChange{Step: "book", Fields: map[string]any{"guests": 2.0}},
			`{"type":"AGENT_STEP","payload":{"step":"book","fields":{"guests":2}},"seq":1}`,
		},
		{"the end", bridge.StateChange{State: bridge.StateEnded}, ``},
		{
			"the person begins",
			bridge.UserSpeaking{Speaking: true},
			`{"type":"USER_SPEAKING","payload":{"speaking":true},"seq":1}`,
		},
		{
			"the person stops",
			bridge.UserSpeaking{},
			`{"type":"USER_SPEAKING","payload":{"speaking":false},"seq":1}`,
		},
		{
			"log with details",
			bridge.Log{Level: "warn", Message: "<b>", Details: map[string]any{"n": 1}},
			`{"type":"LOG_MESSAGE","payload":{"type":"warn","message":"<b>","details":{"n":1}},"seq":1}`,
		},
		{
			"failure",
			bridge.ErrorEvent{Err: &bridge.Error{Code: bridge.CodeResumptionFailed, Message: "Forgotten."}},
			`{"type":"GEMINI_ERROR","payload":{"message":"Forgotten.","details":{"code":"session_resumption_failed"}},"seq":1}`,
		},
		{
			"busy",
			bridge.ErrorEvent{Err: &bridge.Error{Code: bridge.CodeBusy, Message: "Later.", Retry: 2100 * time.Millisecond}},
			`{"type":"GEMINI_ERROR","payload":{"message":"Later.","details":{"code":"busy","retryAfter":3,"retryAfterMs":2100}},"seq":1}`,
		},
		{
			"history",
			bridge.History{Entries: []bridge.Entry{
				{Role: "user", Content: "Hi", Time: at},
				{Role: "assistant", Content: "Hel", Time: at.Add(time.Second), Played: 1500 * time.Millisecond, Interrupted: true},
			}},
			`{"type":"CONTEXT","payload":{"entries":[{"role":"user","content":"Hi","timestamp":1790000000123},` +
				`{"role":"assistant","content":"Hel","timestamp":1790000001123,"playedMs":1500,"cut":true}]},"seq":1}`,
		},
		{
			"a refused change",
			bridge.SetupFailed{Err: &bridge.Error{
				Code: bridge.CodeConfigUpdateFailed, Message: "No.", Field: "payload.x", Status: 1007, Retry: time.Minute,
			}},
			`{"type":"SETUP_COMPLETE","payload":{"success":false,"error":{"code":1007,"message":"No.",` +
				`"details":{"code":"session_config_update_failed","field":"payload.x","retryAfter":60,"retryAfterMs":60000}}},"seq":1}`,
		},
		{"empty history", bridge.History{}, `{"type":"CONTEXT","payload":{"entries":[]},"seq":1}`},
		{
			"resumed",
			bridge.SetupComplete{SessionID: "s", Resumed: true, ReceivedIDs: []string{"a", "b"}},
			`{"type":"SETUP_COMPLETE","payload":{"success":true,"sessionId":"s","resumed":true,"recording":false,"tools":[],` +
				`"received":["a","b"]},"seq":1}`,
		},
		{
			"resumed, nothing had come",
			bridge.SetupComplete{SessionID: "s", Resumed: true},
			`{"type":"SETUP_COMPLETE","payload":{"success":true,"sessionId":"s","resumed":true,"recording":false,"tools":[],"received":[]},"seq":1}`,
		},
		{
			"fresh",
			bridge.SetupComplete{SessionID: "s", ReceivedIDs: []string{"a"}},
			`{"type":"SETUP_COMPLETE","payload":{"success":true,"sessionId":"s","resumed":false,"recording":false,"tools":[]},"seq":1}`,
		},
		{
			"tools",
			bridge.SetupComplete{SessionID: "s", Update: true, Tools: []bridge.Tool{
				{Name: "a", Behavior: "BLOCKING", Where: "client"},
				{Name: "b", Title: "B…", Behavior: "NON_BLOCKING", Scheduling: "SILENT", Where: "gateway"},
			}},
			`{"type":"SETUP_COMPLETE","payload":{"success":true,"sessionId":"s","recording":false,` +
				`"tools":[{"name":"a","behavior":"BLOCKING","where":"client"},` +
				`{"name":"b","title":"B…","behavior":"NON_BLOCKING","scheduling":"SILENT","where":"gateway"}]},"seq":1}`,
		},
		{
			"a tool runs here",
			bridge.ToolStatus{ID: "1", Name: "b", Title: "B…", Status: bridge.StatusRunning},
			`{"type":"TOOL_STATUS","payload":{"id":"1","name":"b","title":"B…","status":"running"},"seq":1}`,
		},
		{
			"a tool has failed",
			bridge.ToolStatus{ID: "1", Name: "b", Status: bridge.StatusFailed, Took: 1500 * time.Millisecond, Message: "No."},
			`{"type":"TOOL_STATUS","payload":{"id":"1","name":"b","status":"failed","ms":1500,"error":"No."},"seq":1}`,
		},
		{
			"search",
			bridge.Grounding{Metadata: json.RawMessage(`{"x":1}`), SuggestionsPage: "canvas/chips?id=7"},
			`{"type":"groundingMetadata","payload":{"groundingMetadata":{"x":1},"chips":"canvas/chips?id=7"},"seq":1}`,
		},
	} {
		got := ""
		if m, ok := EventMessage(bridge.Event{Body: test.event}); ok {
			got = string(m.Encode(1))
		}
		if got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, got, test.want)
		}
	}
}

func TestUsageInWordsAndNumbers(t *testing.T) {
	t.Parallel()
	var e bridge.Usage
	e.Turn.Prompt, e.Turn.Response, e.Turn.Total = 80, 40, 120
	e.Turn.PromptBy = map[string]int{"AUDIO": 70, "TEXT": 10}
	e.Total.Prompt, e.Total.Response, e.Total.Total = 2_000, 1_400, 1_003_400
	e.Total.Cached, e.Total.ToolUse, e.Total.Thoughts = 5, 6, 7
	e.Total.ResponseBy = map[string]int{"AUDIO": 1_400}
	m, ok := EventMessage(bridge.Event{Body: e})
	want := `{"type":"LOG_MESSAGE","payload":{"type":"info","message":"This turn took 120 tokens, the conversation 1003400.",` +
		`"details":{"usage":{"total":{"inputTokens":2000,"outputTokens":1400,"totalTokens":1003400,"cachedTokens":5,"toolUseTokens":6,` +
		`"thoughtsTokens":7,"output":{"AUDIO":1400}},"turn":{"inputTokens":80,"outputTokens":40,"totalTokens":120,` +
		`"input":{"AUDIO":70,"TEXT":10}}}}},"seq":1}`
	if got := string(m.Encode(1)); !ok || got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestEveryEventIsTold fails if bridge has an event that Event, or this test, does not handle.
func TestEveryEventIsTold(t *testing.T) {
	t.Parallel()
	failed := &bridge.Error{Code: bridge.CodeUnknown, Message: "x"}
	source, err := os.ReadFile("../../../bridge/event.go")
	if err != nil {
		t.Fatal(err)
	}
	missing := map[string]bool{}
	for _, m := range regexp.MustCompile(`func \((\w+)\) +event\(\)`).FindAllSubmatch(source, -1) {
		missing["bridge."+string(m[1])] = true
	}
	for _, e := range []bridge.EventBody{bridge.UserText{}, bridge.AssistantText{}, bridge.Thought{}} { // reported by CONTENT_MESSAGE
		delete(missing, fmt.Sprintf("%T", e))
	}
	for _, e := range []bridge.EventBody{
		bridge.SetupComplete{},
		bridge.SetupFailed{Err: failed},
		bridge.RawServerContent{ServerContent: json.RawMessage("{}")},
		bridge.Grounding{Metadata: json.RawMessage("{}")},
		bridge.Speaking{},
		bridge.Thinking{},
		bridge.Interrupted{},
		bridge.TurnComplete{},
		bridge.ToolCall{},
		bridge.ToolCallCancellation{},
		bridge.ToolStatus{},
		bridge.Log{},
		bridge.StateChange{},
		bridge.UserSpeaking{},
		bridge.Move{},
		bridge.Usage{},
		bridge.Latency{},
		bridge.ErrorEvent{Err: failed},
		bridge.History{},
	} {
		delete(missing, fmt.Sprintf("%T", e))
		if m, ok := EventMessage(bridge.Event{Body: e}); !ok || !json.Valid(m.Encode(1)) {
			t.Errorf("%T is sent as %s", e, m.Encode(1))
		}
	}
	for name := range missing {
		t.Errorf("%s is not in this test", name)
	}
}

// TestProtocolListsCodesAndStates compares PROTOCOL.md with bridge, in both directions.
func TestProtocolListsCodesAndStates(t *testing.T) {
	t.Parallel()
	read := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	find := func(text, pattern string) []string {
		var found []string
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			found = append(found, m[1])
		}
		slices.Sort(found)
		return found
	}
	section := func(heading string) string {
		_, text, _ := strings.Cut(read("../PROTOCOL.md"), "\n"+heading+"\n")
		text, _, _ = strings.Cut(text, "\n#")
		return text
	}
	const row = "(?m)^\\| `(\\w+)` \\|"
	codes := find(read("../../../bridge/errors.go"), `Code\w+ +Code += "(\w+)"`)
	if listed := find(section("## Errors"), row); len(codes) < 20 || !slices.Equal(listed, codes) {
		t.Errorf("PROTOCOL.md lists the codes\n%q, bridge has\n%q", listed, codes)
	}
	nobodyIsThere := func(s string) bool {
		return s == string(bridge.StateParked) || s == string(bridge.StateEnded)
	}
	states := slices.DeleteFunc(find(read("../../../bridge/state.go"), `State\w+ +State += "(\w+)"`), nobodyIsThere)
	if listed := find(section("### States"), row); len(states) < 5 || !slices.Equal(listed, states) {
		t.Errorf("PROTOCOL.md lists the states\n%q, bridge has\n%q", listed, states)
	}
}
