package emulator_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge/gemini/emulator"
	"voxgate/bridge/gemini/traces"
)

// TestRecordedKinds: the emulator, driven by the client's side of a recorded session, sends messages of the same kinds
// in the same order as Google, so that the gateway is tested against realistic behaviour.
func TestRecordedKinds(t *testing.T) {
	list, err := traces.ReadTests("../traces/testdata")
	if err != nil {
		t.Fatal(err)
	}
	driven, messages := 0, 0
	for _, trace := range list {
		model, ok := emulatedModel(trace)
		if !ok || !canDrive(trace) {
			continue
		}
		t.Run(trace.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := drive(t, trace, model)
				recorded := recordedKinds(trace)
				if !slices.ContainsFunc(recorded, isActivity) && strings.HasPrefix(model, gemini38) { // it came in October 2026
					d.kinds = slices.DeleteFunc(d.kinds, isActivity)
				}
				want, got := phases(recorded), phases(d.kinds)
				if isCut(trace) && len(got) > len(want) {
					got = got[:len(want)] // the recording ends before the session did
				}
				if !slices.Equal(got, want) {
					t.Errorf("the emulator sent\n  %s\nGoogle\n  %s", strings.Join(got, ", "), strings.Join(want, ", "))
				}
				checkShapes(t, recorded, d.kinds)
			})
		})
		driven++
		messages += len(recordedKinds(trace))
	}
	t.Logf("%d sessions with %d messages", driven, messages)
}

// isActivity reports whether a message is a voiceActivity.
func isActivity(kind string) bool { return strings.HasPrefix(kind, "ACTIVITY") }

// emulatedModel returns the emulator's model for a recording. A model that was shut down is replaced by its successor.
func emulatedModel(trace traces.Trace) (model string, ok bool) {
	switch name := trace.ModelName(); {
	case strings.HasPrefix(name, "gemini-2.0-flash-live"), strings.HasPrefix(name, "gemini-live-2.5-flash-preview"):
		return vertexOld, trace.IsVertex() // on the Gemini API, no remaining model behaves in the same way
	case strings.Contains(name, " "):
		return "", false
	default:
		return name, true
	}
}

// deviations lists the recordings from which the emulator deviates on purpose, or because it must, each with the reason.
var deviations = map[string]string{
	"oc-38et-answer-after-a-filler":                        "the emulator speaks no fillers",
	"oc-38et-two-turns-and-a-tool":                         "the same",
	"oc-38et-scheduling-refused":                           "the same: the refusal has a test of its own",
	"oc-31-audiostreamend-ends-the-turn":                   "its setup is not known: 3.1 may end a turn that calls NON_BLOCKING",
	"pyd-asap-enqueue-waits-for-response-boundary":         "the emulator refuses parameters without properties, which this model took",
	"oc-38et-no-speech-turn":                               "the emulator always has something to say",
	"js-vertex-return-error-for-invalid-input":             "the recorded model speaks when it gets an answer to no call",
	"js-vertex-send-tool-response-with-function-responses": "the same",
	"blog-38-vertex-resumed-twice":                         "a summary without messages",
	"pyd-history-seeding-parity-google-current":            "a turn without voice; and 3.1 took clientContent in July",
	"pyd-text-tool-round-parity-google-current":            "3.1 took clientContent in mid-session in July 2026; since then 1007 was reported",
}

// canDrive reports whether a recording has the client's input, and is not in deviations.
func canDrive(trace traces.Trace) bool {
	if _, known := deviations[trace.Name]; known {
		return false
	}
	return slices.ContainsFunc(trace.Lines, func(l traces.Line) bool {
		m, err := traces.ParseClient(l.Msg)
		return l.Dir == traces.Up && err == nil && (m.RealtimeInput != nil || m.ClientContent != nil && len(m.ClientContent.Turns) > 0)
	})
}

// isCut reports whether a recording ends in the middle of a session.
func isCut(trace traces.Trace) bool {
	last := trace.Lines[len(trace.Lines)-1]
	for _, l := range trace.Lines {
		if m, err := traces.ParseClient(l.Msg); err == nil && l.Dir == traces.Up && m.RealtimeInput != nil && l.MS != nil && last.MS != nil &&
			len(m.RealtimeInput.Audio) > 0 && *last.MS-*l.MS < 1500 {
			return true // the recording ends before the answer to the last speech
		}
	}
	return last.Dir == traces.Down && !traces.ParseAnswer(last.Msg).TurnComplete
}

// recordedKinds are the kinds of the server's messages.
func recordedKinds(trace traces.Trace) (kinds []string) {
	for _, l := range trace.Lines {
		if l.Dir == traces.Down {
			for range l.MessageCount() {
				kinds = append(kinds, traces.Kind(l.Msg))
			}
		}
	}
	return kinds
}

// phases returns the order of a session's messages. Repeated kinds become one, and so do the pieces of a voice and its transcript. Handles,
// empty messages and a few others are left out; checkShapes compares some of them.
func phases(kinds []string) (order []string) {
	for _, kind := range kinds {
		switch kind {
		case "{}", "handle", "no handle", "setupComplete", "serverContent {}", "thought", "code":
			continue
		case "voice", "voice+transcript", "transcript", "transcript begins", "transcript finished", "text":
			kind = "answer"
		}
		kind = strings.TrimSuffix(kind, "+groundingMetadata")
		kind = strings.Replace(strings.Replace(kind, "+groundingMetadata", "", 1), "+usage", "", 1)
		if len(order) == 0 || order[len(order)-1] != kind {
			order = append(order, kind)
		}
	}
	return order
}

// checkShapes checks that the emulator sends certain small messages if and only if Google has sent them.
func checkShapes(t *testing.T, recorded, emulated []string) {
	t.Helper()
	for _, kind := range []string{
		"{}", "serverContent {}", "transcript begins", "transcript finished", "ACTIVITY_START", "ACTIVITY_START+serverContent {}",
	} {
		if was, is := slices.Contains(recorded, kind), slices.Contains(emulated, kind); was && !is {
			t.Errorf("Google sends %s, and the emulator does not", kind)
		}
	}
	for _, kind := range []string{"ACTIVITY_START", "ACTIVITY_START+serverContent {}", "transcript finished"} {
		if was, is := slices.Contains(recorded, kind), slices.Contains(emulated, kind); is && !was && len(recorded) > 20 {
			t.Errorf("the emulator sends %s, and Google does not", kind)
		}
	}
}

// driver is the client of a recording.
type driver struct {
	t     *testing.T
	trace traces.Trace
	ws    *websocket.Conn

	failed bool // a message could not be sent

	mu    sync.Mutex // guards kinds and calls
	kinds []string
	calls []string // ids, in order
}

// drive repeats the actions of the recorded client, and returns the driver with the received messages.
func drive(t *testing.T, trace traces.Trace, model string) *driver {
	hears := []string{}
	for i, l := range trace.Lines {
		if strings.Contains(traces.Kind(l.Msg), "inputTranscription") {
			hears = append(hears, wordsFor(trace, i, "Some words."))
		}
	}
	o := silent
	o.Scenario = emulator.Scenario{Hears: hears}
	path, name := livePath, "models/"+model
	if trace.IsVertex() {
		path, name = vertexPath, "projects/p/locations/l/publishers/google/models/"+model
	}
	dialer := websocket.Dialer{NetDialContext: newPeer(t, o).NetDial}
	ws, _, err := dialer.DialContext(t.Context(), "ws://gemini.test"+path, http.Header{"Authorization": {"Bearer token"}})
	if err != nil {
		t.Fatal(err)
	}
	d := &driver{t: t, trace: trace, ws: ws}
	var reading sync.WaitGroup
	reading.Go(d.read)
	d.write(d.setup(name))
	time.Sleep(time.Second)
	for i, l := range trace.Lines {
		if l.Dir == traces.Up {
			for range l.MessageCount() {
				d.act(i, l)
			}
			if l.MessageCount() > 1 {
				d.sound(make([]int16, 32000)) // sound whose length is not known, and its end
			}
			time.Sleep(300 * time.Millisecond)
			switch next := d.untilNext(i); {
			case next > 0:
				d.pause(next)
			case d.isLastUp(i) || d.waits(i):
				d.pause(20 * time.Second) // for the answer
			}
		}
	}
	_ = ws.Close()
	reading.Wait()
	return d
}

// pause waits. If the recorded client has a microphone that sends all the time, pause sends silence meanwhile.
func (d *driver) pause(length time.Duration) {
	hasSound := slices.ContainsFunc(d.trace.Lines, func(l traces.Line) bool {
		m, err := traces.ParseClient(l.Msg)
		return l.Dir == traces.Up && err == nil && m.RealtimeInput != nil && len(m.RealtimeInput.Audio) > 0
	})
	if !hasSound || d.trace.Comment.Microphone != "" {
		time.Sleep(length)
		return
	}
	d.sound(make([]int16, int(length.Seconds()*16000)))
}

// untilNext returns the time from the end of the client's speech to its next message; 0 if it is unknown.
func (d *driver) untilNext(at int) time.Duration {
	l := d.trace.Lines[at]
	m, err := traces.ParseClient(l.Msg)
	if err != nil || l.MS == nil || m.RealtimeInput == nil || len(m.RealtimeInput.Audio) == 0 {
		return 0
	}
	s, _ := traces.ParseSoundPlaceholder(m.RealtimeInput.Audio[0].Data)
	for _, next := range d.trace.Lines[at+1:] {
		if next.Dir == traces.Up && next.MS != nil {
			return time.Duration((*next.MS-*l.MS)*float64(time.Millisecond)) - s.Length
		}
	}
	return 0
}

// isLastUp reports whether no message of the client follows.
func (d *driver) isLastUp(at int) bool {
	return !slices.ContainsFunc(d.trace.Lines[at+1:], func(l traces.Line) bool { return l.Dir == traces.Up })
}

// waits reports whether the client waits for the end of a turn before its next message.
func (d *driver) waits(at int) bool {
	for _, l := range d.trace.Lines[at+1:] {
		switch {
		case l.Dir == traces.Up:
			return false
		case traces.ParseAnswer(l.Msg).TurnComplete && len(traces.CallIDs(l.Msg)) == 0:
			return true
		}
	}
	return false
}

// wordsFor returns the words to which the emulator reacts as the recorded model did: it calls the same function, or answers.
func wordsFor(trace traces.Trace, at int, words string) string {
	for _, l := range trace.Lines[at+1:] {
		if l.Dir == traces.Up && (strings.Contains(string(l.Msg), "toolResponse") || strings.Contains(string(l.Msg), `"audio"`)) {
			continue
		}
		if names := traces.CallNames(l.Msg); len(names) > 0 {
			return fmt.Sprintf("/tool %s {}", names[0])
		}
		if traces.ParseAnswer(l.Msg).Interrupted {
			return "" // the echo of the whole speech is long enough to be interrupted
		}
		if a := traces.ParseAnswer(l.Msg); a.TurnComplete || l.Dir == traces.Up {
			return words
		}
	}
	return words
}

// setup is the recorded setup for a model of the emulator.
func (d *driver) setup(name string) map[string]any {
	setup := map[string]any{}
	if raw := d.trace.Setup(); raw != nil {
		if err := json.Unmarshal(raw, &setup); err != nil {
			d.t.Fatal(err)
		}
	} else {
		setup["inputAudioTranscription"], setup["outputAudioTranscription"] = map[string]any{}, map[string]any{}
		for _, l := range d.trace.Lines {
			if names := traces.CallNames(l.Msg); len(names) > 0 {
				setup["tools"] = []any{map[string]any{"functionDeclarations": []any{
					map[string]any{"name": names[0], "description": "A function.", "behavior": "NON_BLOCKING"},
				}}}
			}
		}
		if strings.Contains(name, "extended") {
			setup["generationConfig"] = map[string]any{"thinkingConfig": map[string]any{"thinkingLevel": "LOW"}}
		}
	}
	setup["model"] = name
	return map[string]any{"setup": setup}
}

func (d *driver) write(message map[string]any) {
	encoded, err := json.Marshal(message)
	if err == nil {
		err = d.ws.WriteMessage(websocket.TextMessage, encoded)
	}
	if err != nil && !d.failed {
		d.failed = true
		d.t.Errorf("%.200s: %v", encoded, err)
	}
}

// sound sends sound in real time.
func (d *driver) sound(pcm []int16) {
	for piece := range slices.Chunk(pcm, 320) {
		raw := make([]byte, 0, 640)
		for _, s := range piece {
			raw = append(raw, byte(s), byte(uint16(s)>>8))
		}
		d.write(map[string]any{"realtimeInput": map[string]any{"audio": map[string]any{
			"mimeType": "audio/pcm;rate=16000", "data": base64.StdEncoding.EncodeToString(raw),
		}}})
		time.Sleep(20 * time.Millisecond)
	}
}

// act does what the client did.
func (d *driver) act(at int, l traces.Line) {
	m, err := traces.ParseClient(l.Msg)
	if err != nil {
		d.t.Fatal(err)
	}
	switch {
	case m.RealtimeInput != nil:
		for _, blob := range m.RealtimeInput.Audio {
			s, _ := traces.ParseSoundPlaceholder(blob.Data)
			d.sound(s.PCM(16000))
			if behind, err := time.ParseDuration(d.trace.Comment.Microphone); err == nil {
				d.sound(make([]int16, int(behind.Seconds()*16000)))
			}
		}
		if m.RealtimeInput.AudioStreamEnd {
			d.write(map[string]any{"realtimeInput": map[string]any{"audioStreamEnd": true}})
		}
	case m.ClientContent != nil:
		var turns []any
		for _, turn := range m.ClientContent.Turns {
			text := "Some words."
			if m.ClientContent.TurnComplete {
				text = wordsFor(d.trace, at, text)
			}
			turns = append(turns, map[string]any{"role": turn.Role, "parts": []any{map[string]any{"text": text}}})
		}
		d.write(map[string]any{"clientContent": map[string]any{"turns": turns, "turnComplete": m.ClientContent.TurnComplete}})
	case m.ToolResponse != nil:
		d.mu.Lock()
		calls := d.calls
		d.mu.Unlock()
		for i, r := range m.ToolResponse.FunctionResponses {
			if i < len(calls) {
				r.ID = calls[len(calls)-1-i]
			}
			d.write(map[string]any{"toolResponse": map[string]any{"functionResponses": []any{
				map[string]any{"id": r.ID, "name": r.Name, "response": map[string]any{"output": "It is done."}},
			}}})
		}
	}
}

// read notes what comes.
func (d *driver) read() {
	for {
		_, data, err := d.ws.ReadMessage()
		if err != nil {
			return
		}
		d.mu.Lock()
		d.kinds = append(d.kinds, traces.Kind(data))
		d.calls = append(d.calls, traces.CallIDs(data)...)
		d.mu.Unlock()
	}
}
