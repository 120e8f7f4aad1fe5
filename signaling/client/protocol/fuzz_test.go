package protocol

import (
	"bytes"
	"encoding/json"
	"testing"

	"voxgate/media"
)

// FuzzMessage parses arbitrary messages of a client, up to the point at which a session would get them.
func FuzzMessage(f *testing.F) {
	for _, seed := range []string{
		`{"type":"CONNECT_GEMINI","payload":{"initialConfig":{},"resumeToken":"x"}}`,
		`{"type":"SEND_MESSAGE","payload":{"parts":[{"text":"a"},{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]}}`,
		`{"type":"SEND_REALTIME_INPUT","payload":{"audio":{"mimeType":"audio/pcm;rate=8000","data":"AAA="}}}`,
		`{"type":"SEND_REALTIME_INPUT","payload":{"mediaChunks":[{"mimeType":"image/jpeg","data":"AAAA"}]}}`,
		`{"type":"SEND_TOOL_RESPONSE","payload":{"toolResponse":{"parts":[{"functionResponse":{"name":"f","response":1}}]}}}`,
		`{"type":"SEND_TOOL_RESPONSE","payload":{"toolResponse":{"functionResponses":[` +
			`{"id":"1","response":{"role":"user","parts":[{"functionResponse":{"response":1}}]}}]}}}`,
		`{"type":"GET_CONTEXT","id":"7"}`, `{"type":"PING"}`,
		`{"type":"PIECE","payload":{"id":"1","index":0,"count":1,"data":"{}"}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := ParseMessage(raw)
		if err != nil {
			return
		}
		if m.ID != nil && (*m.ID == "" || len(*m.ID) > maxID) {
			t.Errorf("id %q", *m.ID)
		}
		_, _, _ = m.ParseConnect()
		if turn, _, err := m.ParseTurn(); err == nil && !json.Valid(turn.Parts) {
			t.Errorf("parts that are not JSON: %q", turn.Parts)
		}
		if input, err := m.ParseRealtimeInput(&media.SampleReader{}); err == nil {
			if input.PCM != nil && (len(input.PCM) == 0 || input.Rate < 8000 || input.Rate > 48000) {
				t.Errorf("%d samples at %d Hz", len(input.PCM), input.Rate)
			}
		}
		_, _ = m.ParseToolResponses()
		if whole, err := (&Joiner{}).AddPiece(m); err == nil && len(whole) > maxLarge {
			t.Errorf("a message of %d bytes", len(whole))
		}
	})
}

func TestPiecesAreCutBetweenCharacters(t *testing.T) {
	text := []byte("aé漢字🙂z")
	for size := 4; size < 20; size++ {
		var joined []byte
		for _, p := range splitText(text, size) {
			if len(p) == 0 || len(p) > size || string(p) != string([]rune(string(p))) {
				t.Errorf("size %d: piece %q", size, p)
			}
			joined = append(joined, p...)
		}
		if string(joined) != string(text) {
			t.Errorf("size %d: %q", size, joined)
		}
	}
}

// FuzzHead finds the type in the beginning of a message: wherever that is cut off, the result is the type or nothing.
func FuzzHead(f *testing.F) {
	for _, seed := range []string{
		`{"type":"SEND_MESSAGE","payload":{"type":"x"}}`, ` { "id":"1" , "t\u0079pe" : "PING" }`, `{"payload":["}"],"type":7}`,
		`{"type":"a","type":"b"}`, `[1]`, `{"type":"SEND_`, `null`,
	} {
		f.Add([]byte(seed), 10)
	}
	f.Fuzz(func(t *testing.T, raw []byte, cut int) {
		whole := typeIn(raw)
		if head := typeIn(raw[:min(max(cut, 0), len(raw))]); head != "" && head != whole {
			t.Fatalf("the type %q became %q", whole, head)
		}
		text, err := ReadMessage(bytes.NewReader(raw), true)
		if len(raw) <= MaxControl && (err != nil || !bytes.Equal(text, raw)) {
			t.Fatalf("%d bytes became %d, %v", len(raw), len(text), err)
		}
		if m, err := ParseMessage(raw); err == nil && whole == "" && m.Type != "" {
			t.Fatalf("the type %q was not found", m.Type)
		}
	})
}
