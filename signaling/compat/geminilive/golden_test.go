package geminilive

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"voxgate/bridge"
	"voxgate/tools"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares the output with a file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	wanted, lines := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	for i, line := range lines {
		if i >= len(wanted) || line != wanted[i] {
			t.Fatalf("%s:%d: got\n%s", file, i+1, line)
		}
	}
	if len(wanted) > len(lines) {
		t.Fatalf("%s: only the first %d lines came", file, len(lines))
	}
}

func raw(fields string) bridge.RawServerContent {
	return bridge.RawServerContent{ServerContent: json.RawMessage(fields)}
}

// TestMessagesOfEvents translates events into messages for a client.
func TestMessagesOfEvents(t *testing.T) {
	var b strings.Builder
	for _, c := range []struct {
		name   string
		events []bridge.EventBody
	}{
		{"an answer", []bridge.EventBody{
			raw(`{"inputTranscription":{"text":"Hi"}}`),
			bridge.UserText{Turn: 1, Text: "Hi"},
			bridge.Speaking{Turn: 1},
			raw(`{"outputTranscription":{"text":"Hello","newField":1}}`),
			bridge.AssistantText{Turn: 1, Text: "Hello"},
			raw(`{"generationComplete":true}`), raw(`{"turnComplete":true,"usageMetadata":{"totalTokenCount":7},"newField":{"a_b":1}}`),
			bridge.TurnComplete{Turn: 1},
		}},
		{"interrupted by the voice", []bridge.EventBody{
			bridge.Speaking{Turn: 1}, bridge.Interrupted{Turn: 1, By: bridge.ByVoice}, raw(`{"interrupted":true}`), raw(`{"turnComplete":true}`),
		}},
		{"interrupted here before the model knows", []bridge.EventBody{
			bridge.Speaking{Turn: 1},
			bridge.Interrupted{Turn: 1, By: bridge.ByText},
			raw(`{"interrupted":true,"newField":1}`), raw(`{"turnComplete":true}`),
			bridge.Speaking{Turn: 2},
			bridge.Interrupted{Turn: 2, By: bridge.ByClient},
			bridge.Speaking{Turn: 3},
			bridge.Interrupted{Turn: 3, By: bridge.ByClient},
		}},
		{"interrupted in silence", []bridge.EventBody{raw(`{"interrupted":true}`), raw(`{"turnComplete":true}`)}},
		{"the connection to the model is lost in an answer", []bridge.EventBody{
			bridge.Speaking{Turn: 1},
			bridge.Interrupted{Turn: 1, By: bridge.ByConnectionLoss},
			bridge.TurnComplete{Turn: 1},
		}},
		{"and between its voice and its end", []bridge.EventBody{
			raw(`{"modelTurn":{"parts":[{"text":"Hi"}]}}`),
			raw(`{"generationComplete":true}`),
			bridge.TurnComplete{Turn: 1},
		}},
		{"a tool", []bridge.EventBody{
			bridge.ToolCall{Calls: []tools.Call{{ID: "1", Name: "weather", Args: json.RawMessage(`{"my_city":"Röm<>"}`), Title: "The weather"}}},
			bridge.ToolCallCancellation{IDs: []string{"1"}},
		}},
		{"beside", []bridge.EventBody{
			bridge.RawServerContent{ServerContent: json.RawMessage(`{"usageMetadata":{"totalTokenCount":7}}`), TopLevel: true},
			bridge.RawServerContent{ServerContent: json.RawMessage(`{"voiceActivity":{"type":"ACTIVITY_START"}}`), TopLevel: true},
		}},
		{"nothing that Google knows", []bridge.EventBody{
			bridge.ToolStatus{},
			bridge.StateChange{},
			bridge.UserSpeaking{},
			bridge.Thinking{},
			bridge.Usage{},
			bridge.Log{},
			bridge.Grounding{},
			bridge.Thought{},
			bridge.Latency{},
			bridge.History{},
		}},
	} {
		fmt.Fprintf(&b, "# %s\n", c.name)
		var tr translator
		for _, e := range c.events {
			for _, m := range tr.translateEvent(e) {
				fmt.Fprintf(&b, "%s\n", m)
			}
		}
	}
	b.WriteString("# ready\n")
	for _, m := range append(setupMessages("", -1), setupMessages("t", -1)...) {
		fmt.Fprintf(&b, "%s\n", m)
	}
	fmt.Fprintf(&b, "# voice\n%s\n", encodeVoice([]int16{1, -1}))
	golden(t, "events.golden", b.String())
}

// TestCommandsOfMessages parses client messages. A line continues the messages of the lines before it with the same
// name.
func TestCommandsOfMessages(t *testing.T) {
	const setup = `{"setup":{"model":"models/gemini-3.8-live"}}`
	var b strings.Builder
	for _, c := range []struct {
		name     string
		messages []string
	}{
		{"setups", []string{
			`{"setup":{"model":"m","session_resumption":{"handle":"h"},"system_instruction":{"parts":[{"text":"x"}]},` +
				`"history_config":{},"newField":1}}`,
			`{"setup":{}}`,
		}},
		{"refused setups", []string{
			`{"setup":[]}`, `{"setup":null}`, `{}`, `{"setup":{"sessionResumption":7}}`, `{"setup":{"historyConfig":7}}`, `[`,
		}},
		{"transparent resumption", []string{`{"setup":{"sessionResumption":{"transparent":true}}}`}},
		{"typed", []string{
			setup, `{"clientContent":{"turns":[{"role":"user","parts":[{"text":"a"}]}],"turnComplete":true}}`,
			`{"clientContent":{"turns":[{"parts":[{"text":"a"}]},{"parts":[{"text":"b"}]}]}}`,
			`{"client_content":{"turns":[{"role":"user","parts":[{"inline_data":{"mime_type":"audio/pcm","data":"_-8"}}]}],` +
				`"turn_complete":true}}`,
			`{"clientContent":{"turnComplete":true}}`, `{"clientContent":{}}`,
			`{"clientContent":{"turns":[{"parts":[{"text":"a","thoughtSignature":"eA=="}]}]}}`,
		}},
		{"turns of the model", []string{
			setup,
			`{"clientContent":{"turns":[{"role":"user","parts":[{"text":"a"}]},{"role":"model","parts":[{"text":"b"}]},` +
				`{"role":"user","parts":[{"text":"c"}]}],"turnComplete":true}}`,
			`{"clientContent":{"turns":[{"role":"model","parts":[{"text":"b"}]}],"turnComplete":true}}`,
			`{"clientContent":{"turns":[{"role":"model","parts":[{"text":"b"}]}]}}`,
		}},
		{"initial history", []string{
			`{"setup":{"historyConfig":{"initialHistoryInClientContent":true}}}`,
			`{"clientContent":{"turns":[{"role":"user","parts":[{"text":"a"}]}]}}`,
			`{"clientContent":{"turns":[{"role":"user","parts":[{"text":"b"}]}],"turnComplete":true}}`,
			`{"clientContent":{"turns":[{"role":"user","parts":[{"text":"c"}]}],"turnComplete":true}}`,
		}},
		{"refused turns", []string{
			setup, `{"clientContent":{"turns":{}}}`, `{"clientContent":{"turns":[{"role":"tool","parts":[{"text":"a"}]}]}}`,
			`{"clientContent":{"turns":[{"parts":[{"functionCall":{}}]}]}}`, `{"clientContent":{"turns":[{}]}}`,
		}},
		{"real time", []string{
			setup,
			`{"realtimeInput":{"audio":{"mimeType":"audio/pcm;rate=24000","data":"AQD//w=="}}}`,
			`{"realtime_input":{"audio":{"mime_type":"audio/pcm","data":"AQD__w=="}}}`,
			`{"realtimeInput":{"mediaChunks":[{"mimeType":"audio/pcm","data":"AQD//w=="}]}}`,
			`{"realtimeInput":{"text":"a_b"}}`, `{"realtimeInput":{"activityStart":{}}}`, `{"realtimeInput":{"audioStreamEnd":true}}`,
			`{"realtimeInput":{"audio":{"mimeType":"audio/pcm","data":"AQD"}}}`, `{"realtimeInput":{}}`,
			`{"realtimeInput":{"video":{"mimeType":"image/gif","data":"AQD//w=="}}}`,
		}},
		{"answers of tools", []string{
			setup,
			`{"toolResponse":{"functionResponses":[` +
				`{"id":"1","name":"n","response":{"my_field":"a-b"},"scheduling":"INTERRUPT","will_continue":true}]}}`,
			`{"toolResponse":{}}`, `{"toolResponse":{"functionResponses":[{"response":{}}]}}`,
		}},
		{"what proto3 JSON may be", []string{
			"\ufeff" + setup, `{"realtimeInput":{"audioStreamEnd":"true"}}`, `{"realtimeInput":{"text":"a","audioStreamEnd":"false"}}`,
			`{"realtimeInput":{"mediaChunks":{"mimeType":"audio/pcm","data":"AQD//w=="}}}`, `{"realtimeInput":{"audio":null,"mediaChunks":null}}`,
			`{"realtimeInput":{"audioStreamEnd":7}}`, `{"realtimeInput":{"audio":[1]}}`, `{"realtimeInput":{"audio":{"mimeType":{}}}}`,
			`{"clientContent":{"turns":{"role":"user","parts":{"text":"a"}},"turnComplete":"true"}}`, `{"clientContent":{"turns":7}}`,
			`{"toolResponse":{"functionResponses":{"id":"1","name":"n","response":{"z_a":1},"scheduling":1,"willContinue":"true"}}}`,
			`{"tool_response":{"function_responses":[{"id":7,"response":{},"scheduling":"when_idle"}]}}`,
			`{"toolResponse":{"functionResponses":[{"id":"1","scheduling":"SCHEDULING_UNSPECIFIED"}]}}`,
			`{"toolResponse":{"functionResponses":null}}`, `{"toolResponse":null}`,
			`{"toolResponse":{"functionResponses":[{"id":{}}]}}`, `{"toolResponse":{"functionResponses":[{"id":"1","scheduling":9}]}}`,
			`{"toolResponse":{"functionResponses":7}}`,
		}},
		{"changes", []string{
			setup, `{"contextUpdate":{"systemInstruction":{"parts":[{"text":"x"}]}}}`,
			`{"contextUpdate":{"tools":{"tools":[{"googleSearch":{}}]}}}`, `{"contextUpdate":{"tools":{}}}`, `{"contextUpdate":{"tools":7}}`,
		}},
		{"no messages", []string{setup, `{"nonsense":{}}`, `{"clientContent":{},"toolResponse":{}}`, `7`}},
	} {
		fmt.Fprintf(&b, "# %s\n", c.name)
		var r messageReader
		for _, m := range c.messages {
			q, err := r.parseMessage([]byte(m))
			fmt.Fprintf(&b, "%s\n\t%s\n", m, describe(r, q, err))
		}
	}
	golden(t, "messages.golden", b.String())
}

// describe returns a request in the format of the golden file.
func describe(r messageReader, q clientRequest, err error) string {
	if err != nil {
		e := bridge.AsError(err)
		return fmt.Sprintf("%s %q: %s", e.Code, e.Field, e.Message)
	}
	var words []string
	if q.setup != nil {
		words = append(words, fmt.Sprintf("open %+v with %s", *q.setup, tools.EncodeOrEmpty(r.config)))
	}
	if in := q.input; in != nil {
		words = append(
			words,
			fmt.Sprintf("pcm %v at %d, pauses %v, %d bytes of picture, then %+v", in.PCM, in.Rate, in.Pauses, len(in.Picture), in.Commands),
		)
	}
	for _, command := range q.commands {
		switch c := command.(type) {
		case bridge.Message:
			words = append(words, fmt.Sprintf("message %s, complete %v", c.Parts, c.TurnComplete))
		case bridge.PrefillTurns:
			for _, turn := range c.Turns {
				words = append(words, fmt.Sprintf("seed %s, model %v", turn.Parts, turn.Model))
			}
		case bridge.UpdateConfig:
			words = append(words, "update "+string(c.Config))
		}
	}
	for _, a := range q.answers {
		words = append(words, fmt.Sprintf("answer %s %s %s %s continues %v", a.ID, a.Name, a.Response, a.Scheduling, a.WillContinue))
	}
	if q.dropWarning != "" {
		words = append(words, q.dropWarning)
	}
	return strings.Join(words, "; ")
}
