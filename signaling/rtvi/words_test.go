package rtvi

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"voxgate/bridge"
)

// What a person has said is told while it grows, and once when it is final, also when more of the turn comes after that.
func TestTranscriptions(t *testing.T) {
	w := words{ready: true}
	for _, b := range []bridge.UserText{
		{Turn: 1, Text: "Yes"},
		{Turn: 1, Text: ", please"},
		{Turn: 1, Text: "Yes, please", Final: true},
		{Turn: 1, Text: " now"},
		{Turn: 1, Text: "Yes, please now", Final: true},
		{Turn: 2, Text: "Yes, please now or"},
		{Turn: 2, Text: "Yes, please now or never", Final: true},
	} {
		w.happen(time.Time{}, b)
	}
	var got []string
	for _, raw := range w.drain() {
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
