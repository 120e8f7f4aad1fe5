package wire_test

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"voxgate/bridge/gemini/traces"
	"voxgate/bridge/gemini/wire"
)

// recorded is a message of a recording, decoded by encoding/json for comparison.
type recorded struct {
	SetupComplete *struct{ SessionID string }
	ServerContent *struct {
		ModelTurn struct {
			Parts []struct {
				Text       string
				Thought    bool
				InlineData *struct{ MIMEType, Data string }
			}
		}
		InputTranscription, OutputTranscription       struct{ Text string }
		Interrupted, GenerationComplete, TurnComplete bool
		InteractionStatus                             string
	}
	ToolCall                struct{ FunctionCalls []struct{ ID, Name string } }
	UsageMetadata           map[string]any
	GoAway                  *struct{ TimeLeft string }
	SessionResumptionUpdate *struct {
		NewHandle string
		Resumable bool
	}
	VoiceActivity json.RawMessage
}

// The decoder reads all recorded messages of Google: no part of a conversation is lost or invented.
func TestRecordings(t *testing.T) {
	list, err := traces.ReadTests("../traces/testdata")
	if err != nil {
		t.Fatal(err)
	}
	sessions, messages, closes := 0, 0, 0
	for _, trace := range list {
		t.Run(trace.Name, func(t *testing.T) {
			d := wire.NewDecoder()
			for i, l := range trace.Lines {
				switch l.Dir {
				case traces.Down:
					for range l.MessageCount() {
						checkMessage(t, i, d, traces.FillSound(l.Msg, 1000, wire.OutputRate))
						messages++
					}
				case traces.EndClose:
					checkClose(t, i, l)
					closes++
				}
			}
			sessions++
		})
	}
	t.Logf("%d recordings, %d messages, %d closes", sessions, messages, closes)
}

func checkMessage(t *testing.T, line int, d *wire.Decoder, msg json.RawMessage) {
	t.Helper()
	var want recorded
	if err := json.Unmarshal(msg, &want); err != nil {
		t.Fatalf("line %d: %v", line, err)
	}
	m, err := d.Decode(msg)
	if err != nil {
		t.Errorf("line %d: %v", line, err)
		return
	}
	check := func(what string, ok bool) {
		if !ok {
			t.Errorf("line %d: %s is not as in %.200s", line, what, msg)
		}
	}
	check("setupComplete", m.SetupComplete == (want.SetupComplete != nil))
	if want.SetupComplete != nil {
		check("sessionId", m.SessionID == want.SetupComplete.SessionID)
	}
	check("serverContent", (m.Content != nil) == (want.ServerContent != nil))
	if m.Content != nil {
		checkContent(check, m.Content, want)
	}
	var calls []string
	for _, c := range m.ToolCalls {
		calls = append(calls, c.ID+" "+c.Name)
	}
	var wantCalls []string
	for _, c := range want.ToolCall.FunctionCalls {
		wantCalls = append(wantCalls, c.ID+" "+c.Name)
	}
	check("toolCall", slices.Equal(calls, wantCalls))
	if check("usageMetadata", (m.Tokens != nil) == (want.UsageMetadata != nil)); m.Tokens != nil {
		checkTokens(check, *m.Tokens, want.UsageMetadata)
	}
	if check("goAway", (m.GoAway != nil) == (want.GoAway != nil)); m.GoAway != nil {
		left, err := time.ParseDuration(want.GoAway.TimeLeft)
		check("timeLeft", err == nil && left == *m.GoAway)
	}
	check("sessionResumptionUpdate", (m.Resumption != nil) == (want.SessionResumptionUpdate != nil))
	if r := m.Resumption; r != nil {
		check("newHandle", r.Handle == want.SessionResumptionUpdate.NewHandle && r.Resumable == want.SessionResumptionUpdate.Resumable)
	}
	check("voiceActivity", (m.VoiceActivity != nil) == (want.VoiceActivity != nil))
}

func checkContent(check func(string, bool), c *wire.ServerContent, want recorded) {
	w := want.ServerContent
	text, thoughts, bytes := "", "", 0
	for _, p := range w.ModelTurn.Parts {
		switch {
		case p.InlineData != nil && strings.HasPrefix(p.InlineData.MIMEType, "audio/"):
			raw, err := base64.StdEncoding.DecodeString(p.InlineData.Data)
			check("base64", err == nil)
			bytes += len(raw)
			check("rate", c.AudioRate == 24000)
		case p.Thought:
			thoughts += p.Text
		default:
			text += p.Text
		}
	}
	// A byte may complete the sample of the piece before, or wait for that of the next.
	check("voice", 2*len(c.Audio) >= bytes-1 && 2*len(c.Audio) <= bytes+1)
	check("text", c.Text == text)
	check("thoughts", c.Thoughts == thoughts)
	check("transcripts", c.InputTranscription == w.InputTranscription.Text && c.OutputTranscription == w.OutputTranscription.Text)
	check("flags", c.Interrupted == w.Interrupted && c.GenerationComplete == w.GenerationComplete && c.TurnComplete == w.TurnComplete)
	check("interactionStatus", c.Interaction == w.InteractionStatus)
}

// checkTokens checks that every token of the report is in a count, and in the shares by modality.
func checkTokens(check func(string, bool), tokens wire.Tokens, usage map[string]any) {
	count := func(names ...string) (n int) {
		for _, name := range names {
			if v, ok := usage[name].(float64); ok {
				n += int(v)
			}
		}
		return n
	}
	prompt, response := count("promptTokenCount"), count("responseTokenCount", "candidatesTokenCount")
	thoughts := count("thoughtsTokenCount")
	check("prompt", tokens.Prompt == prompt)
	check("response", tokens.Response == response)
	check("thoughts", tokens.Thoughts == thoughts)
	all := 0
	for _, n := range tokens.SplitByModality(wire.Tokens{}) {
		all += n
	}
	// Tokens of which Google says no modality (4 to 15 % of the prompt on 3.x) are unknown, and not lost.
	check("sum of the shares", all == tokens.Total && all >= prompt+response+thoughts)
}

// recordedCauses is what the ends of connections mean for the next dial, by code and beginning of the reason.
var recordedCauses = []struct {
	code   int
	reason string
	cause  wire.Cause
}{
	{1007, "API key expired", wire.Auth},
	{1007, "", wire.Fatal},
	{1008, "Connection aborted", wire.Lost},
	{1008, "The operation was aborted", wire.Lost},
	{1008, "Requested entity was not found", wire.StaleHandle},
	{1008, "", wire.Fatal},
	{1011, "", wire.Lost},
	{0, "", wire.Lost},
}

func checkClose(t *testing.T, line int, l traces.Line) {
	t.Helper()
	end, err := l.CloseFrame()
	if err != nil {
		t.Fatalf("line %d: %v", line, err)
	}
	for _, known := range recordedCauses {
		if (known.code == 0 || known.code == end.Code) && strings.HasPrefix(end.Reason, known.reason) {
			if got := (&wire.CloseError{Code: end.Code, Reason: end.Reason}).Cause(); got != known.cause {
				t.Errorf("line %d: %d %q is %v, want %v", line, end.Code, end.Reason, got, known.cause)
			}
			return
		}
	}
}
