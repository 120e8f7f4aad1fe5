package traces_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"voxgate/bridge/gemini/traces"
)

// What a recorder writes can be read, and has no key, handle, name of a project or sound in it.
func TestRecorder(t *testing.T) {
	var b bytes.Buffer
	r := traces.NewRecorder(&b, traces.Comment{Source: "a test", Model: "gemini-3.8-live"})
	sound := func(pcm []byte) string {
		return fmt.Sprintf(`{"realtimeInput":{"audio":{"data":%q,"mimeType":"audio/pcm;rate=16000"}}}`, base64.StdEncoding.EncodeToString(pcm))
	}
	loud := bytes.Repeat([]byte{1, 2}, 320)
	r.Add(true, []byte(`{"setup":{"model":"projects/mine/locations/here/publishers/google/models/m",`+
		`"sessionResumption":{"handle":"mysecret"}}}`))
	r.Add(false, []byte(`{"setupComplete":{"sessionId":"mysession"}}`))
	for range 50 {
		r.Add(true, []byte(sound(loud)))
	}
	r.Add(true, []byte(sound(make([]byte, 640))))
	r.Add(false, []byte(`{"serverContent":{"modelTurn":{"parts":[{"inlineData":{"mimeType":"audio/pcm;rate=24000","data":"`+
		base64.StdEncoding.EncodeToString(loud)+`"}},{"inlineData":{"mimeType":"audio/pcm","data":"AAA="}}]}}}`))
	r.Add(false, []byte(`{"sessionResumptionUpdate":{"newHandle":"mysecret","resumable":true}}`))
	r.Add(false, []byte(`{"sessionResumptionUpdate":{"newHandle":"othersecret"},"key":"AIzaSyA1234567890abcdefg"}`))
	r.Add(false, []byte(`not JSON with mysecret`))
	if err := r.Close(1007, "API key AIzaSyA1234567890abcdefg expired."); err != nil {
		t.Fatal(err)
	}
	for _, private := range []string{"mine", "mysecret", "othersecret", "mysession", "AIza", "AQIB"} {
		if strings.Contains(b.String(), private) {
			t.Errorf("the recording has %q:\n%s", private, b.String())
		}
	}
	trace, err := traces.Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, l := range trace.Lines {
		kinds = append(kinds, l.Dir+" "+traces.Kind(l.Msg))
	}
	want := "up {}, down setupComplete, up {}, down voice, down handle, down handle, down unreadable, up {}, close {}"
	if got := strings.Join(kinds, ", "); got != want {
		t.Errorf("the recording has\n%s, want\n%s", got, want)
	}
	first, second := handleOf(trace.Lines[4].Msg), handleOf(trace.Lines[5].Msg)
	if !strings.Contains(string(trace.Setup()), first) || first == second {
		t.Errorf("handles are not told apart: %q, %q, in the setup %s", first, second, trace.Setup())
	}
	for i, length := range map[int]time.Duration{2: time.Second, 7: 20 * time.Millisecond} {
		m, err := traces.ParseClient(trace.Lines[i].Msg)
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := traces.ParseSoundPlaceholder(m.RealtimeInput.Audio[0].Data); !ok || s.Length != length || s.Silent != (i == 7) {
			t.Errorf("line %d is %+v, want %v", i, s, length)
		}
	}
	if voice := traces.ParseAnswer(trace.Lines[3].Msg).Voice; voice.Round(time.Millisecond) != 13*time.Millisecond {
		t.Errorf("the voice lasts %v", voice)
	}
}

func handleOf(msg json.RawMessage) string {
	var m struct {
		SessionResumptionUpdate struct{ NewHandle string }
	}
	_ = json.Unmarshal(msg, &m)
	return m.SessionResumptionUpdate.NewHandle
}

// TestReadRefuses: a file that is not a recording is refused with the line and the reason.
func TestReadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "no messages",
		`{"comment":{}}`:                    "no messages",
		"{}":                                `line 1: dir "" must be`,
		"{\"comment\":{}}\n{\"dir\":\"a\"}": `line 2: dir "a" must be`,
		`{"dir":"up"}`:                      "line 1: msg is missing",
		"nothing":                           "line 1: ",
	} {
		if _, err := traces.Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
