package mediastream_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/bridge/gemini/emulator"
	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
)

// Keys pressed for a collection reach only the operator's webhook, in any form: the test looks for the digits and their tones in everything
// that the gateway sends or stores.
func TestCollectedDigitsStayPrivate(t *testing.T) {
	t.Parallel()
	const wrong, right = "4012888888881882", "4012888888881881"
	var mu sync.Mutex
	var seen []emulator.Event
	var observed strings.Builder
	posted := make(chan string, 8)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		posted <- string(body)
		_, _ = w.Write(body) // must not reach the model
	}))
	defer server.Close()
	folder := t.TempDir()
	g := startGateway(t, func(config map[string]any) {
		config["collect"] = []any{map[string]any{
			"name": "card number", "max": 19, "check": "luhn", "attempts": 2, "url": server.URL, "secret": "s",
		}}
		config["agents"] = []any{map[string]any{
			"numbers": []string{"+500"}, "greeting": `/tool collect_digits {"what":"card number"}`, "collect": []string{"card number"},
		}}
	}, func(host *bridge.Options, model *emulator.Options) {
		host.Recordings, host.RecordAll = folder, true
		observe := host.Observe
		host.Observe = func(id string, o bridge.Observation) {
			mu.Lock()
			fmt.Fprintf(&observed, "%T%+v\n", o, o)
			mu.Unlock()
			observe(id, o)
		}
		model.Observe = func(e emulator.Event) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, e)
		}
	})
	p := g.dialProvider(wireFormats()["twilio"], "+500")
	session, ear := g.awaitSession()
	hears := func(result string) {
		t.Helper()
		g.awaitLog(fmt.Sprintf("result=%q", result), 1)
		ear.awaitEvent(t, result, func(b bridge.EventBody) bool {
			s, ok := b.(bridge.ToolStatus)
			return ok && strings.Contains(string(s.Result), result)
		})
	}
	enter := func(keys string) {
		for _, key := range keys {
			p.sendSound(keySound(key, p.rate))
			p.sendText(p.keys(string(key)))
			p.sendSound(make([]int16, p.rate/10))
		}
	}
	g.awaitLog("collecting keys", 1)
	enter(wrong + "#")
	hears("not valid")
	if err := session.Do(bridge.Message{Text: `/tool collect_digits {"what":"card number"}`, TurnComplete: true}); err != nil {
		t.Fatal(err)
	}
	g.awaitLog("collecting keys", 2)
	enter(right[:5])
	if err := session.Do(bridge.Message{Text: `/tool collect_digits {"what":"card number"}`, TurnComplete: true}); err != nil {
		t.Fatal(err)
	}
	ear.awaitEvent(t, "refusal of a second collection", func(b bridge.EventBody) bool {
		s, ok := b.(bridge.ToolStatus)
		return ok && strings.Contains(string(s.Result), "another number")
	})
	enter(right[5:] + "#")
	hears("entered, valid")
	select {
	case body := <-posted:
		if !strings.Contains(body, `"digits":"`+right+`"`) || !strings.Contains(body, `"name":"card number"`) {
			t.Errorf("the endpoint got %s", body)
		}
	default:
		t.Error("the endpoint got nothing")
	}
	if err := session.Do(bridge.GetContext{}); err != nil {
		t.Fatal(err)
	}
	ear.awaitEvent(t, "history", func(b bridge.EventBody) bool { _, ok := b.(bridge.History); return ok })
	p.conn.Close()
	g.awaitIdle()
	if err := g.host.Shutdown(t.Context()); err != nil { // waits for the end of the recording
		t.Fatal(err)
	}

	mu.Lock()
	defer mu.Unlock()
	all := g.logs.String() + observed.String() + strings.Join(p.awaitClose(), "\n")
	for _, e := range ear.events {
		all += fmt.Sprintf("%T%+v%s\n", e, e, e.Body)
		if s, ok := e.Body.(bridge.ToolStatus); ok {
			all += string(s.Result) + string(s.Args)
		}
	}
	for _, e := range seen {
		if len(e.PCM) > 0 && media.RMS(e.PCM) > 50 {
			t.Errorf("the model has heard the keys: %s of %d samples", e.Kind, len(e.PCM))
		}
		e.PCM = nil
		all += fmt.Sprintf("%+v\n", e)
	}
	for _, digits := range []string{wrong, right} {
		for at := range len(digits) - 7 {
			if part := digits[at : at+8]; strings.Contains(all, part) {
				i := strings.Index(all, part)
				t.Errorf("%s in %s", part, all[max(0, i-200):i+100])
			}
		}
	}
	if strings.Contains(all, "pressed these keys") {
		t.Error("the model was told of keys")
	}
	checkCallerIsSilent(t, folder)
}

// keySound returns the DTMF tone of a key (ITU-T Q.23).
func keySound(key rune, rate int) []int16 {
	at := strings.IndexRune("123A456B789C*0#D", key)
	pcm := mediatest.Tone(80*time.Millisecond, rate, []float64{697, 770, 852, 941}[at/4], 8000)
	for i, s := range mediatest.Tone(80*time.Millisecond, rate, []float64{1209, 1336, 1477, 1633}[at%4], 8000) {
		pcm[i] += s
	}
	return pcm
}

// checkCallerIsSilent checks that the only recording in a folder has no sound of the caller, on its left channel.
func checkCallerIsSilent(t *testing.T, folder string) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(folder, "*"))
	if len(files) != 1 {
		t.Fatalf("recordings: %v", files)
	}
	raw, err := exec.Command("opusdec", "--quiet", "--force-wav", files[0], "-").Output()
	if err != nil {
		t.Fatalf("%v: %s", err, err.(*exec.ExitError).Stderr)
	}
	both := media.AppendSamples(nil, raw[44:]) // behind the header
	var left []int16
	for frame := range slices.Chunk(both, 2) {
		left = append(left, frame[0])
	}
	if len(left) == 0 {
		t.Error("nothing was recorded")
	}
	for block := range slices.Chunk(left, 480) {
		if media.RMS(block) > 30 {
			t.Fatalf("the recording has a sound of the caller's of %.0f", media.RMS(block))
		}
	}
}
