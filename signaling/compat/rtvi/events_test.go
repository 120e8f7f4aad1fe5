package rtvi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"voxgate/bridge"
)

// A person's text is reported while it grows, and once when it is final, also if more of the turn follows.
func TestTranscriptionMessages(t *testing.T) {
	w := eventWriter{clientReady: true}
	for _, b := range []bridge.UserText{
		{Turn: 1, Text: "Yes"},
		{Turn: 1, Text: ", please"},
		{Turn: 1, Text: "Yes, please", Final: true},
		{Turn: 1, Text: " now"},
		{Turn: 1, Text: "Yes, please now", Final: true},
		{Turn: 2, Text: "Yes, please now or"},
		{Turn: 2, Text: "Yes, please now or never", Final: true},
	} {
		w.handleEvent(time.Time{}, b)
	}
	var got []string
	for _, raw := range w.drainQueue() {
		var m struct {
			Type string
			Data struct {
				Text  string
				Final bool
			}
		}
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatal(err)
		}
		if m.Type == "user-transcription" {
			got = append(got, fmt.Sprint(m.Data.Text, m.Data.Final))
		}
	}
	want := "Yes false|Yes, please false|Yes, please true|now false|now true|Yes, please now or false|Yes, please now or never true"
	if text := strings.ReplaceAll(strings.ReplaceAll(strings.Join(got, "|"), "false", " false"), "true", " true"); text != want {
		t.Errorf("told %s", text)
	}
}

// A client learns that a tool of the operator runs and why it failed, but not its arguments and results.
func TestToolMessages(t *testing.T) {
	args := json.RawMessage(`{"customer":1}`)
	result := json.RawMessage(`{"secret":1}`)
	for _, row := range []struct {
		body bridge.EventBody
		want string
	}{
		{
			bridge.ToolStatus{ID: "a", Name: "f", Status: bridge.StatusRunning, Args: args},
			`{"data":{"function_name":"f"},"label":"rtvi-ai","type":"llm-function-call-started"}` +
				`{"data":{"arguments":{},"function_name":"f","tool_call_id":"a"},"label":"rtvi-ai","type":"llm-function-call-in-progress"}`,
		},
		{
			bridge.ToolStatus{ID: "a", Name: "f", Status: bridge.StatusDone, Args: args, Result: result},
			`{"data":{"cancelled":false,"function_name":"f","tool_call_id":"a"},"label":"rtvi-ai","type":"llm-function-call-stopped"}`,
		},
		{
			bridge.ToolStatus{ID: "a", Name: "f", Status: bridge.StatusFailed, Args: args, Result: result, Message: "It is closed."},
			`{"data":{"cancelled":false,"function_name":"f","result":{"error":"It is closed."},"tool_call_id":"a"},` +
				`"label":"rtvi-ai","type":"llm-function-call-stopped"}`,
		},
		{
			bridge.ToolStatus{ID: "a", Name: "f", Status: bridge.StatusCancelled, Args: args},
			`{"data":{"cancelled":true,"function_name":"f","tool_call_id":"a"},"label":"rtvi-ai","type":"llm-function-call-stopped"}`,
		},
	} {
		w := eventWriter{clientReady: true, pendingCalls: map[string]string{}}
		w.handleEvent(time.Time{}, row.body)
		if got := string(bytes.Join(w.drainQueue(), nil)); got != row.want {
			t.Errorf("%+v is told as\n%s, want\n%s", row.body, got, row.want)
		}
	}
}
