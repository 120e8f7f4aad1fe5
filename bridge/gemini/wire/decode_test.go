package wire_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"voxgate/bridge/gemini/wire"
)

// golden is a line of testdata/server.jsonl: a message in one of the documented shapes, and what it means.
type golden struct {
	Name  string
	Frame string
	Want  json.RawMessage
}

func goldens(t testing.TB) []golden {
	t.Helper()
	file, err := os.Open("testdata/server.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var all []golden
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var g golden
		if err := json.Unmarshal(lines.Bytes(), &g); err != nil {
			t.Fatalf("%v in %s", err, lines.Text())
		}
		all = append(all, g)
	}
	if lines.Err() != nil || len(all) == 0 {
		t.Fatal("no golden messages", lines.Err())
	}
	return all
}

// view is a message as the golden file writes it.
type view struct {
	Error         string              `json:"error,omitempty"`
	SetupComplete bool                `json:"setupComplete,omitempty"`
	Calls         []wire.FunctionCall `json:"calls,omitempty"`
	Cancelled     []string            `json:"cancelled,omitempty"`
	Usage         json.RawMessage     `json:"usage,omitempty"`
	GoAway        string              `json:"goAway,omitempty"`
	Handle        *string             `json:"handle,omitempty"`
	Resumable     *bool               `json:"resumable,omitempty"`
	Covered       int64               `json:"covered,omitempty"`
	VoiceActivity json.RawMessage     `json:"voiceActivity,omitempty"`
	Beside        json.RawMessage     `json:"beside,omitempty"`
	Tokens        int                 `json:"tokens,omitempty"`
	Content       *contentView        `json:"content,omitempty"`
}

type contentView struct {
	Audio              []int16         `json:"audio,omitempty"`
	Rate               int             `json:"rate,omitempty"`
	Interrupted        bool            `json:"interrupted,omitempty"`
	TurnComplete       bool            `json:"turnComplete,omitempty"`
	GenerationComplete bool            `json:"generationComplete,omitempty"`
	Input              string          `json:"input,omitempty"`
	Output             string          `json:"output,omitempty"`
	Grounding          json.RawMessage `json:"grounding,omitempty"`
	Fields             json.RawMessage `json:"fields,omitempty"`
	Transcript         json.RawMessage `json:"transcript,omitempty"`
	Text               string          `json:"text,omitempty"`
	Thoughts           string          `json:"thoughts,omitempty"`
	Written            bool            `json:"written,omitempty"`
	Thought            bool            `json:"thought,omitempty"`
	Interaction        string          `json:"interaction,omitempty"`
	Suggestions        string          `json:"suggestions,omitempty"`
}

func viewOf(m *wire.ServerMessage, err error) view {
	if err != nil {
		return view{Error: err.Error()}
	}
	v := view{
		SetupComplete: m.SetupComplete, Calls: m.ToolCalls, Cancelled: m.Cancelled,
		Usage: m.Usage, VoiceActivity: m.VoiceActivity, Beside: m.Beside,
	}
	if m.Tokens != nil {
		v.Tokens = m.Tokens.Total
	}
	if m.GoAway != nil {
		v.GoAway = m.GoAway.String()
	}
	if m.Resumption != nil {
		v.Handle, v.Resumable = &m.Resumption.Handle, &m.Resumption.Resumable
		v.Covered = m.Resumption.Covered
	}
	if c := m.Content; c != nil {
		v.Content = &contentView{
			c.Audio, c.AudioRate, c.Interrupted, c.TurnComplete, c.GenerationComplete,
			c.InputTranscription, c.OutputTranscription, c.Grounding, c.Fields,
			c.Transcript, c.Text, c.Thoughts, c.HasText, c.HasThought, c.Interaction, c.Suggestions,
		}
	}
	return v
}

func encode(t *testing.T, v any) string {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(b.String())
}

func TestGoldenMessages(t *testing.T) {
	for _, g := range goldens(t) {
		t.Run(g.Name, func(t *testing.T) {
			// The buffer is overwritten after Decode, as Recv does.
			frame := []byte(g.Frame)
			m, err := wire.NewDecoder().Decode(frame)
			for i := range frame {
				frame[i] = '#'
			}
			got := viewOf(m, err)
			for i, c := range got.Calls {
				if strings.HasPrefix(c.ID, "call-") {
					got.Calls[i].ID = "made up"
				}
			}
			if strings.HasPrefix(got.Error, "malformed") {
				got.Error = "malformed"
			}
			// Decoded into a view and encoded again, so that the order of the names is the same.
			var want view
			if err := json.Unmarshal(g.Want, &want); err != nil {
				t.Fatal(err)
			}
			if a, b := encode(t, got), encode(t, want); a != b {
				t.Errorf("got  %s\nwant %s", a, b)
			}
		})
	}
}

// TestAudioDoesNotAllocate: decoding the voice allocates nothing, in any of the forms in which it arrives.
func TestAudioDoesNotAllocate(t *testing.T) {
	const part = `{"inlineData":{"mimeType":"audio/pcm;rate=24000","data":"AQACAAMABAA="}}`
	for _, turn := range []string{
		`{"parts":[` + part + `]}`, `{"role":"model","parts":[` + part + `]}`, "{\n  \"parts\": [\n" + part + " ,\n" + part + "\n]\n}",
	} {
		decode, frame := wire.NewDecoder().Decode, []byte(`{"serverContent":{"modelTurn":`+turn+`}}`)
		if n := testing.AllocsPerRun(100, func() {
			if m, err := decode(frame); err != nil || len(m.Content.Audio)%4 != 0 || m.Content.Fields != nil {
				t.Fatal(m, err)
			}
		}); n > 0 {
			t.Errorf("%v allocations for %s", n, turn)
		}
	}
}

// FuzzDecode holds the decoder against encoding/json: it may not panic, what it accepts must be usable, and what
// encoding/json reads as a message of audio must give that audio.
func FuzzDecode(f *testing.F) {
	for _, g := range goldens(f) {
		f.Add([]byte(g.Frame))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := wire.NewDecoder().Decode(data)
		if (m == nil) == (err == nil) {
			t.Fatal("neither or both of message and error")
		}
		if err != nil {
			return
		}
		if _, err := json.Marshal(viewOf(m, nil)); err != nil {
			t.Fatalf("kept something that is not JSON: %v", err)
		}
		for _, c := range m.ToolCalls {
			if c.ID == "" || !json.Valid(c.Args) || c.Args[0] != '{' {
				t.Fatalf("call %+v", c)
			}
		}
		if m.Content != nil && m.Content.Fields != nil && m.Content.Fields[0] != '{' {
			t.Fatalf("fields %s", m.Content.Fields)
		}
		if m.GoAway != nil && *m.GoAway < 0 {
			t.Fatal("time left is negative")
		}
	})
}
