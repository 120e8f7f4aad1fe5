package openai

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/bridge/gemini/wire"
	"voxgate/internal/testkit/mediatest"
	"voxgate/tools"
)

var update = flag.Bool("update", false, "write the golden files")

// compareGolden compares the output with a file.
func compareGolden(t *testing.T, name, got string) {
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

// newCountingIDs returns ids that are the same in each run.
func newCountingIDs() func(string) string {
	counts := map[string]int{}
	return func(prefix string) string {
		if prefix == "event" {
			return "event"
		}
		counts[prefix]++
		return fmt.Sprintf("%s%d", prefix, counts[prefix])
	}
}

// playSteps passes steps to a dialogue, and writes its output: events to the client, and commands to the engine. A step is
// a client event in JSON, an engine event, or [audioStep].
func playSteps(b *strings.Builder, d *dialogue, steps ...any) {
	var updates []any // ReplyTo of the changes that the engine has not answered
	for _, step := range steps {
		event := clientEvent{}
		var commands []bridge.Command
		switch s := step.(type) {
		case string:
			fmt.Fprintf(b, "> %s\n", strings.ReplaceAll(s, "\n", " "))
			var err error
			if event, err = parseEvent([]byte(s)); err == nil {
				commands, err = d.handleClientEvent(event)
			}
			if err != nil {
				d.emitError(event.EventID, err)
			}
		case []int16:
			fmt.Fprintf(b, "> %v in one piece\n", time.Duration(len(s))*time.Second/16000)
			commands = d.receiveAudio(s, 16000)
		case audioStep:
			fmt.Fprintf(b, "> %v of %v Hz\n", s.lasts, s.hz)
			pcm := make([]int16, int(s.lasts.Seconds()*16000))
			if s.hz > 0 {
				pcm = mediatest.Tone(s.lasts, 16000, s.hz, 12000)
			}
			for len(pcm) > 0 {
				n := min(len(pcm), 1600)
				commands = append(commands, d.receiveAudio(pcm[:n], 16000)...)
				pcm = pcm[n:]
			}
		case time.Duration:
			d.addVoice([]byte{1, 2}, s)
		case bridge.UserSpeaking:
			fmt.Fprintf(b, "! %T\n", s)
			s.At = cmp.Or(s.At, d.userSpeech.received)
			commands = d.handleEngineEvent(bridge.Event{Body: s})
		default: // an event's body
			fmt.Fprintf(b, "! %T\n", s)
			e := bridge.Event{Body: s}
			if len(updates) > 0 && answersUpdate(s) {
				e.ReplyTo, updates = updates[0], updates[1:]
			}
			commands = d.handleEngineEvent(e)
		}
		for _, m := range d.drainEvents() {
			fmt.Fprintf(b, "%s\n", m.data)
		}
		for _, c := range commands {
			if update, ok := c.(bridge.UpdateConfig); ok {
				updates = append(updates, update.ReplyTo)
			}
			raw, _ := json.Marshal(c)
			fmt.Fprintf(b, "  %T %s\n", c, raw)
			d.onCommandDone(event.EventID, c, nil)
		}
	}
}

// answersUpdate reports whether an event answers a change of the configuration.
func answersUpdate(body bridge.EventBody) bool {
	done, ok := body.(bridge.SetupComplete)
	_, failed := body.(bridge.SetupFailed)
	return ok && done.Update || failed
}

// audioStep is audio of a client, at 16 kHz.
type audioStep struct {
	hz    float64
	lasts time.Duration
}

const (
	typed  = `{"type":"conversation.item.create","item":{"type":"message","role":"user","content":[{"type":"input_text","text":"Hi <you>"}]}}`
	create = `{"type":"response.create"}`
	cancel = `{"type":"response.cancel","event_id":"mine"}`
)

func modelText(turn int, text string) bridge.EventBody {
	return bridge.AssistantText{Turn: turn, Text: text}
}

func modelToolCall(id, name, args string) bridge.EventBody {
	return bridge.ToolCall{Calls: []tools.Call{{ID: id, Name: name, Args: json.RawMessage(args)}}}
}

// sentence contains one second of a tone, which counts as speech, and one second of silence.
var sentence = append(mediatest.Tone(time.Second, 16000, 440, 12000), make([]int16, 16000)...)

var (
	began   = bridge.UserSpeaking{Speaking: true}
	stopped = bridge.UserSpeaking{}
	spent   = bridge.Usage{
		Turn: wire.Tokens{
			Prompt:     10,
			Response:   5,
			Thoughts:   2,
			Total:      17,
			PromptBy:   map[string]int{"AUDIO": 10},
			ResponseBy: map[string]int{"AUDIO": 5},
		},
	}
)

// updateDetection returns a session.update with a turn detection.
func updateDetection(detection string) string {
	return `{"type":"session.update","session":{"audio":{"input":{"turn_detection":` + detection + `}}}}`
}

// TestDialogueEvents plays conversations over a WebSocket, and those of WebRTC calls.
func TestDialogueEvents(t *testing.T) {
	for _, file := range []struct {
		name  string
		calls bool
		cases []dialogueCase
	}{{"socket.golden", false, socketCases}, {"call.golden", true, callCases}, {"refused.golden", false, refusedCases}} {
		var b strings.Builder
		for _, c := range file.cases {
			fmt.Fprintf(&b, "# %s\n", c.name)
			d := newDialogue("gpt-realtime", file.calls, newCountingIDs())
			if c.session != "" {
				playSteps(
					&strings.Builder{},
					d,
					`{"type":"session.update","session":`+c.session+`}`,
					bridge.SetupComplete{},
					bridge.SetupComplete{Update: true},
				)
			}
			playSteps(&b, d, c.steps...)
		}
		compareGolden(t, file.name, b.String())
	}
}

// A change by the operator's backend does not confirm the client's session update, and does not reject it.
func TestSessionUpdateBesideBackendChange(t *testing.T) {
	d := newDialogue("gpt-realtime", false, newCountingIDs())
	event, err := parseEvent([]byte(`{"type":"session.update","session":{"type":"realtime","instructions":"Be brief."}}`))
	if err != nil {
		t.Fatal(err)
	}
	commands, err := d.handleClientEvent(event)
	if err != nil || len(commands) != 1 {
		t.Fatalf("%d commands, %v", len(commands), err)
	}
	d.handleEngineEvent(bridge.Event{Body: bridge.SetupComplete{Update: true}})
	d.handleEngineEvent(bridge.Event{Body: bridge.SetupFailed{Err: &bridge.Error{Message: "no"}}})
	if d.pendingUpdates != 1 || d.session.Instructions != "Be brief." {
		t.Errorf("%d updates wait for an answer, with the instructions %q", d.pendingUpdates, d.session.Instructions)
	}
	d.handleEngineEvent(bridge.Event{Body: bridge.SetupComplete{Update: true}, ReplyTo: commands[0].(bridge.UpdateConfig).ReplyTo})
	if d.pendingUpdates != 0 {
		t.Errorf("%d updates wait for an answer", d.pendingUpdates)
	}
}

type dialogueCase struct {
	name    string
	session string // the client's earlier update; empty means none
	steps   []any
}

const transcribed = `{"audio":{"input":{"transcription":{"model":"whisper-1"}}}}`

var socketCases = []dialogueCase{
	{"spoken to", transcribed, []any{
		audioStep{440, time.Second},
		began,
		audioStep{0, time.Second},
		bridge.UserText{Turn: 1, Text: "Good "},
		stopped,
		bridge.UserText{Turn: 1, Text: "day"},
		bridge.UserText{Turn: 1, Text: "Good day", Final: true},
		bridge.Speaking{Turn: 1},
		modelText(1, "Good "), 100 * time.Millisecond, modelText(1, "day."),
		100 * time.Millisecond, spent,
		bridge.AssistantText{Turn: 1, Text: "Good day.", Final: true},
		bridge.TurnComplete{Turn: 1},
	}},
	{"pieces behind the end", transcribed, []any{
		bridge.Speaking{Turn: 1},
		modelText(1, "Good day"), 100 * time.Millisecond,
		bridge.TurnComplete{Turn: 1},
		modelText(1, "."),
		bridge.AssistantText{Turn: 1, Text: "Good day.", Final: true},
		bridge.Thought{Turn: 1, Text: "Hm"},
		bridge.UserText{Turn: 1, Text: "Hello?"},
		bridge.UserText{Turn: 1, Text: "Hello?", Final: true},
		`{"type":"conversation.item.retrieve","item_id":"item1"}`,
		bridge.Speaking{Turn: 2},
		modelText(2, "And you"), 100 * time.Millisecond,
		bridge.Interrupted{Turn: 2, By: bridge.ByVoice},
		modelText(2, "?"),
	}},
	{"found late in a burst", "", []any{
		audioStep{440, time.Second},
		audioStep{0, 2 * time.Second},
		bridge.UserSpeaking{Speaking: true, At: 80 * time.Millisecond},
		bridge.UserSpeaking{At: 1300 * time.Millisecond},
	}},
	{"what calls and cuts cost", "", []any{
		bridge.Speaking{Turn: 1},
		modelToolCall("c1", "weather", `{}`), spent,
		bridge.TurnComplete{Turn: 1},
		`{"type":"conversation.item.create","item":{"type":"function_call_output","call_id":"c1","output":"1"}}`, create,
		bridge.Speaking{Turn: 2},
		cancel, spent,
		bridge.TurnComplete{Turn: 2},
		typed, create,
		bridge.Speaking{Turn: 3},
		spent,
		bridge.TurnComplete{Turn: 3},
	}},
	{"one answer in text", "", []any{
		typed, `{"type":"response.create","response":{"output_modalities":["text"]}}`,
		bridge.Speaking{Turn: 1},
		modelText(1, "Hi"), 100 * time.Millisecond,
		bridge.TurnComplete{Turn: 1},
		typed, create,
		bridge.Speaking{Turn: 2},
		modelText(2, "Hi"), 100 * time.Millisecond,
		bridge.TurnComplete{Turn: 2},
		`{"type":"response.create","response":{"output_modalities":["audio","text"]}}`,
	}},
	{
		"the model is sooner than our ear",
		transcribed,
		[]any{audioStep{440, time.Second}, began, bridge.UserText{Turn: 1, Text: "Hi", Final: true}, bridge.Speaking{Turn: 1}, stopped},
	},
	{"typed", "", []any{
		typed, `{"type":"response.create","response":{"metadata":{"client_event_id":"7"},"instructions":"Be brief."}}`,
		bridge.Speaking{Turn: 1},
		modelText(1, "Hi"), 100 * time.Millisecond,
		bridge.TurnComplete{Turn: 1},
	}},
	{
		"asked for an answer that is due",
		"",
		[]any{
			audioStep{440, time.Second},
			began,
			audioStep{0, time.Second},
			stopped,
			create,
			bridge.Speaking{Turn: 1},
			modelText(1, "Hi"),
			bridge.TurnComplete{Turn: 1},
		},
	},
	{"asked for a beginning", "", []any{create, bridge.Speaking{Turn: 1}, modelText(1, "Hello"), bridge.TurnComplete{Turn: 1}}},
	{
		"interrupted by the voice",
		"",
		[]any{
			bridge.Speaking{Turn: 1},
			modelText(1, "A long "),
			time.Second,
			began,
			bridge.Interrupted{Turn: 1, By: bridge.ByVoice},
			bridge.TurnComplete{Turn: 1},
		},
	},
	{"heard in part", "", []any{
		bridge.Speaking{Turn: 1},
		modelText(1, "One "), time.Second, modelText(1, "two "), time.Second, modelText(1, "three"), time.Second,
		bridge.TurnComplete{Turn: 1},
		`{"type":"conversation.item.truncate","item_id":"item1","content_index":0,"audio_end_ms":1500}`,
		`{"type":"conversation.item.truncate","item_id":"item1","content_index":0,"audio_end_ms":99999}`,
		`{"type":"conversation.item.retrieve","item_id":"item1"}`,
	}},
	{"cancelled", "", []any{typed, create, bridge.Speaking{Turn: 1}, modelText(1, "Hi"), cancel, cancel}},
	{
		"cancelled before it begins",
		"",
		[]any{
			typed,
			create,
			cancel,
			bridge.Speaking{Turn: 1},
			bridge.Interrupted{Turn: 1, By: bridge.ByClient},
			typed,
			create,
			bridge.Speaking{Turn: 2},
			modelText(2, "Hi"),
		},
	},
	{"a function", "", []any{
		bridge.Speaking{Turn: 1},
		modelText(1, "Let me see."), 100 * time.Millisecond, modelToolCall("c1", "weather", `{"city":"Röm<>"}`),
		bridge.TurnComplete{Turn: 1},
		`{"type":"conversation.item.create","item":{"type":"function_call_output","call_id":"c1","output":"{\"sun\":true}"}}`, create,
		bridge.TurnComplete{Turn: 2},
		bridge.Speaking{Turn: 3},
		modelText(3, "Sun."),
		bridge.TurnComplete{Turn: 3},
	}},
	{"two functions, and an answer in the same turn", "", []any{
		bridge.ToolCall{
			Calls: []tools.Call{{ID: "c1", Name: "a", Args: json.RawMessage(`{}`)}, {ID: "c2", Name: "b", Args: json.RawMessage(`{}`)}},
		},
		`{"type":"conversation.item.create","item":{"id":"o1","type":"function_call_output","call_id":"c1","output":"1"}}`,
		`{"type":"conversation.item.create","item":{"id":"o2","type":"function_call_output","call_id":"c2","output":"two"}}`, create,
		bridge.Speaking{Turn: 1},
		modelText(1, "Done."),
		bridge.TurnComplete{Turn: 1},
	}},
	{"a function, and nothing to say", "", []any{
		modelToolCall(
			"c1",
			"a",
			`{}`,
		), `{"type":"conversation.item.create","item":{"type":"function_call_output","call_id":"c1","output":"1"}}`, create,
		bridge.TurnComplete{Turn: 1},
		typed, create,
	}},
	{"seeded", "", []any{
		`{"type":"conversation.item.create","item":{"id":"a","type":"message","role":"system",` +
			`"content":[{"type":"input_text","text":"It is Monday."}]}}`,
		`{"type":"conversation.item.create","item":{"id":"b","type":"message","role":"assistant",` +
			`"content":[{"type":"output_text","text":"Good morning."}]}}`,
		`{"type":"conversation.item.create","previous_item_id":"root",` +
			`"item":{"id":"c","type":"function_call","call_id":"1","name":"f","arguments":"{}"}}`,
		`{"type":"conversation.item.create","previous_item_id":"c","item":{"id":"d","type":"function_call_output","call_id":"1","output":"x"}}`,
		`{"type":"conversation.item.create","item":{"id":"e","type":"message","role":"user","content":[` +
			`{"type":"input_image","image_url":"data:image/png;base64,iVBORw=="},{"type":"input_text","text":"What is it?"}]}}`,
		create,
	}},
	{"seeded, and spoken to", "", []any{typed, began, audioStep{440, time.Second}, stopped}},
	{
		"deleted",
		"",
		[]any{typed, `{"type":"conversation.item.delete","item_id":"item1"}`, `{"type":"conversation.item.delete","item_id":"item1"}`, create},
	},
	{"push to talk", `{"audio":{"input":{"turn_detection":null}}}`, []any{
		audioStep{440, 200 * time.Millisecond},
		began, `{"type":"input_audio_buffer.commit"}`, create, stopped,
		bridge.Speaking{Turn: 1},
		modelText(1, "Yes?"),
		bridge.TurnComplete{Turn: 1},
		`{"type":"input_audio_buffer.commit","event_id":"mine"}`, `{"type":"input_audio_buffer.clear"}`,
	}},
	{
		"no answer but on request",
		`{"audio":{"input":{"turn_detection":{"type":"semantic_vad","eagerness":"high","create_response":false}}}}`,
		[]any{
			audioStep{
				440,
				time.Second,
			},
			audioStep{0, time.Second},
			audioStep{440, time.Second},
			audioStep{0, time.Second},
			create,
			bridge.Speaking{Turn: 1},
			modelText(1, "Yes?"),
			bridge.TurnComplete{Turn: 1},
		},
	},
	{
		"a sentence in one piece, and no answer but on request",
		`{"audio":{"input":{"turn_detection":{"type":"server_vad","create_response":false}}}}`,
		[]any{sentence, create},
	},
	{"patient", "", []any{updateDetection(`{"type":"semantic_vad","eagerness":"low"}`)}},
	{"a silence of its own", "", []any{updateDetection(`{"type":"server_vad","silence_duration_ms":800}`)}},
	{"the default silence", "", []any{updateDetection(`{"type":"server_vad","silence_duration_ms":200}`)}},
	{"written", `{"output_modalities":["text"]}`, []any{
		typed, create, modelText(1, "Hi "), modelText(1, "you."), bridge.TurnComplete{Turn: 1},
	}},
	{
		"the connection to the model is lost",
		"",
		[]any{bridge.Speaking{Turn: 1}, modelText(1, "Hi"), bridge.Interrupted{Turn: 1, By: bridge.ByConnectionLoss}},
	},
	{"the model does not answer", "", []any{typed, create, bridge.StateChange{Unanswered: true}}},
	{"a session", "", []any{
		`{"type":"session.update","session":{"type":"realtime","tracing":"auto"}}`, `{"type":"session.update","session":{"tracing":null}}`,
		bridge.SetupComplete{},
		bridge.SetupComplete{Update: true},
		`{"type":"session.update","event_id":"mine","session":{"instructions":"Be brief.","unknown":1,` +
			`"audio":{"output":{"voice":{"id":"Puck"}}},` +
			`"tools":[{"type":"mcp"},{"type":"function","name":"f","parameters":{"type":"object"}}]}}`,
		bridge.SetupFailed{Err: &bridge.Error{Message: "No.", Field: "payload.tools"}},
		`{"type":"session.update","session":{"tool_choice":"none","max_output_tokens":100,"reasoning":{"effort":"low"},` +
			`"audio":{"input":{"format":{"type":"audio/pcmu"},"turn_detection":{"type":"semantic_vad"}}}}}`,
	}},
	{
		"nothing that OpenAI knows",
		"",
		[]any{
			bridge.ToolStatus{},
			bridge.StateChange{},
			bridge.Log{},
			bridge.Grounding{},
			bridge.Thought{},
			bridge.Latency{},
			bridge.History{},
			bridge.RawServerContent{},
		},
	},
}

var callCases = []dialogueCase{
	{"spoken to", "", []any{
		began, stopped, bridge.Speaking{Turn: 1}, modelText(1, "Hi"), 100 * time.Millisecond, bridge.TurnComplete{Turn: 1},
	}},
	{
		"interrupted by the voice",
		"",
		[]any{
			bridge.Speaking{Turn: 1},
			modelText(1, "A long "),
			began,
			bridge.Interrupted{Turn: 1, By: bridge.ByVoice, PlayedText: "A", Played: time.Second},
		},
	},
	{"interrupted by the client", "", []any{bridge.Speaking{Turn: 1}, modelText(1, "A long "), cancel}},
	{
		"its voice cleared",
		"",
		[]any{bridge.Speaking{Turn: 1}, modelText(1, "A long "), `{"type":"output_audio_buffer.clear"}`, `{"type":"output_audio_buffer.clear"}`},
	},
	{"a call whose voice goes on", "", []any{
		bridge.Speaking{Turn: 1},
		modelText(1, "Let me "), modelToolCall("c1", "weather", `{}`), modelText(1, "see. "),
		`{"type":"conversation.item.create","item":{"type":"function_call_output","call_id":"c1","output":"x"}}`, create, modelText(1, "Sun."),
		bridge.TurnComplete{Turn: 1},
	}},
}

var refusedCases = []dialogueCase{
	{"events", "", []any{
		`{`, `[]`, `{}`, `{"type":"sing","event_id":"mine"}`, `{"type":7,"event_id":"mine"}`,
		`{"type":"input_audio_buffer.append","audio":"?"}`, `{"type":"output_audio_buffer.clear"}`,
		`{"type":"session.update","event_id":"mine"}`, `{"type":"response.create","response":7}`,
	}},
	{"sessions", "", []any{
		`{"type":"session.update","session":{"type":"transcription"}}`, `{"type":"session.update","session":{"instructions":7}}`,
		`{"type":"session.update","session":[]}`,
		`{"type":"session.update","session":{"audio":{"input":{"format":{"type":"audio/opus"}}}}}`,
		`{"type":"session.update","session":{"audio":{"output":{"format":{"rate":16000}}}}}`,
		`{"type":"session.update","session":{"audio":{"input":{"turn_detection":{"type":"magic"}}}}}`,
		`{"type":"session.update","session":{"audio":{"input":{"turn_detection":{"threshold":2}}}}}`,
		`{"type":"session.update","session":{"output_modalities":["audio","text"]}}`,
		`{"type":"session.update","session":{"max_output_tokens":"many"}}`, `{"type":"session.update","session":{"tools":[{"type":"function"}]}}`,
	}},
	{"items", "", []any{
		`{"type":"conversation.item.create"}`, `{"type":"conversation.item.create","item":{"type":"mcp_call"}}`,
		`{"type":"conversation.item.create","item":{"type":"message","role":"robot"}}`,
		`{"type":"conversation.item.create","item":{"type":"message","role":"user",` +
			`"content":[{"type":"input_image","image_url":"https://example.com/a.png"}]}}`,
		`{"type":"conversation.item.create","item":{"type":"message","role":"user","content":[{"type":"input_audio","audio":"AAAA"}]}}`,
		`{"type":"conversation.item.create","previous_item_id":"none","item":{"type":"message","role":"user","content":[]}}`,
		`{"type":"conversation.item.create","item":{"id":"a","type":"message","role":"user","content":[]}}`,
		`{"type":"conversation.item.create","item":{"id":"a","type":"message","role":"user","content":[]}}`,
		`{"type":"conversation.item.retrieve","item_id":"none"}`, `{"type":"conversation.item.truncate","item_id":"none"}`,
	}},
	{
		"responses",
		"",
		[]any{
			`{"type":"response.create","response":{"conversation":"none"}}`,
			`{"type":"response.create","response":{"input":[{}]}}`,
			create,
			`{"type":"response.create","event_id":"mine"}`,
			cancel,
		},
	},
}

// A picture does not evict other items, and is kept until the model receives it; text is limited in all types of
// items.
func TestRecordLimits(t *testing.T) {
	d := newDialogue("", false, newCountingIDs())
	adds := func(part string) error {
		item := `{"type":"message","role":"user","content":[` + part + `]}`
		return d.createItem(clientEvent{Item: json.RawMessage(item)})
	}
	does := func(event string) string {
		var b strings.Builder
		playSteps(&b, d, event)
		return b.String()
	}
	data := strings.Repeat("A", 9<<19) // 4.5 MiB
	picture := `{"type":"input_image","image_url":"data:image/png;base64,` + data + `"}`
	const retrieve = `{"type":"conversation.item.retrieve","item_id":"item1"}`
	does(typed)
	first, second, third := adds(picture), adds(picture), adds(picture)
	if first != nil || second != nil || third == nil {
		t.Errorf("of three pictures that wait are refused: %v, %v, %v", first, second, third)
	}
	if got := does(retrieve); !strings.Contains(got, `"conversation.item.retrieved"`) {
		t.Errorf("behind pictures the first item is not there: %s", got)
	}
	commands, err := d.handleClientEvent(clientEvent{Type: "response.create"})
	if err != nil || len(commands) != 1 {
		t.Fatalf("%d commands, %v", len(commands), err)
	}
	if got := commands[0].(bridge.Message).Parts; len(got) < 2*len(data) {
		t.Errorf("the model gets %.200s", got)
	}
	for _, i := range d.items {
		if _, pictures := i.textAndPictureSize(); pictures > 0 {
			t.Errorf("%s still has its picture", i.ID)
		}
	}
	for range 5 { // items of 1 MB each
		if err := adds(`{"type":"input_audio","transcript":"` + strings.Repeat("a", 1_000_000) + `"}`); err != nil {
			t.Error(err)
		}
	}
	if got := does(retrieve); strings.Contains(got, `"conversation.item.retrieved"`) {
		t.Errorf("behind 5 MB of text the first item is still there: %s", got)
	}
}

// FuzzClientEvents passes arbitrary client events to a dialogue, which must continue: its output is JSON, and rejections
// are reported.
func FuzzClientEvents(f *testing.F) {
	for _, list := range [][]dialogueCase{socketCases, refusedCases} {
		for _, c := range list {
			for _, s := range c.steps {
				if text, ok := s.(string); ok {
					f.Add(text, text)
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		d := newDialogue("", false, newCountingIDs())
		for _, text := range []string{first, second} {
			var b strings.Builder
			playSteps(&b, d, text, bridge.Speaking{Turn: 1}, modelText(1, "x"), bridge.TurnComplete{Turn: 1}, began, stopped)
			for line := range strings.Lines(b.String()) {
				if line[0] == '{' && !json.Valid([]byte(line)) {
					t.Fatalf("sent %s", line)
				}
			}
		}
		if !json.Valid(d.session.engineConfig()) || len(tools.EncodeOrEmpty(d.session)) > maxSession || len(d.items) > maxItems {
			t.Fatalf("the session became %s", tools.EncodeOrEmpty(d.session))
		}
	})
}
