package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit"
)

// TestEndedConversations: the list has the newest hundred conversations, with the reasons of failures, latencies and orders.
func TestEndedConversations(t *testing.T) {
	h := NewHistory("")
	host := bridge.NewHost(bridge.Options{Logger: slog.New(slog.DiscardHandler)})
	defer host.Shutdown(t.Context())
	c := &Console{Options: Options{Host: host, History: h}}
	url := serveConsole(t, c, http.HandlerFunc(c.serveHistory))
	cost := 0.25
	end := func(id string, reason error) {
		info := bridge.Info{
			ID: id, Protocol: "web", Agent: "desk", Address: "192.0.2.7", Device: "Firefox", Model: "m", Started: time.Now(), Dollars: &cost,
		}
		h.Observe(id, bridge.SessionStarted{Info: info})
		if reason != nil {
			h.Observe(id, bridge.DialOutcome{Cause: "lost", Err: reason})
		}
		for _, took := range []time.Duration{time.Second, 2 * time.Second} {
			h.Observe(id, bridge.TurnEnd{Latency: bridge.Latency{Model: took}})
		}
		h.Observe(id, bridge.SpendingReport{Dollars: 0.25})
		h.Observe(id, bridge.Steered{By: "support", What: "instruct", Text: "Offer a call back"})
		if reason == nil {
			reason = bridge.ErrGoodbye
		}
		h.Observe(id, bridge.SessionEnded{Info: info, At: time.Now(), Reason: reason})
	}
	end("FIRST", nil)
	for i := range 99 {
		end(fmt.Sprint("NEXT", i), nil)
	}
	end("LAST", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)})
	_, body := testkit.SendHTTP(t, http.MethodGet, url+"/ended", "")
	var got historyAnswer
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err, body)
	}
	list := got.Conversations
	if len(list) != 100 || list[0].ID != "LAST" || list[99].ID != "NEXT0" {
		t.Fatalf("%d conversations: %+v", len(list), list)
	}
	if l := list[0]; !l.Failed || !strings.HasSuffix(l.Reason, ": connection refused.") || l.Address != "192.0.2.7" || l.Device != "Firefox" {
		t.Errorf("%+v", l)
	}
	n := list[1]
	if n.Failed || n.Reason != "" || n.Outcome != "goodbye" || n.LatencyMs != 1500 || *n.Dollars != 0.25 || len(n.Orders) != 1 ||
		n.Orders[0].By != "support" || n.Orders[0].Text != "Offer a call back" {
		t.Errorf("%+v", n)
	}
	begun, failures := 0, 0 // in an hour, or in two if one ends during the test
	for _, hour := range got.Hours {
		begun, failures = begun+hour.SessionsBegun, failures+hour.Failures
	}
	if hours := got.Hours; len(hours) == 0 || hours[len(hours)-1].LatencyMs != 1500 || hours[len(hours)-1].Dollars < 0.25 ||
		begun != 101 || failures != 1 {
		t.Errorf("%+v", hours)
	}
	if failures, unreached, _ := h.dialErrors(); failures["connection refused"] != 1 || unreached != "connection refused" ||
		len(h.running) != 0 {
		t.Errorf("%v, %q, %d", failures, unreached, len(h.running))
	}
	h.Observe("LATER", bridge.DialOutcome{})
	if _, unreached, _ := h.dialErrors(); unreached != "" {
		t.Errorf("reached, and still %q", unreached)
	}
}

// TestReasonsOfFailures: what Google says and why the conversation ended is one sentence if it is the same one.
func TestReasonsOfFailures(t *testing.T) {
	refused := &bridge.Error{Message: "Gemini does not accept the gateway's key or token."}
	gone := &bridge.Error{Message: "Gemini cannot be reached."}
	for _, c := range []struct {
		reason, dial error
		want         string
	}{
		{refused, refused, "Gemini does not accept the gateway's key or token."},
		{gone, refused, "Gemini cannot be reached: Gemini does not accept the gateway's key or token."},
		{gone, syscall.ECONNREFUSED, "Gemini cannot be reached: connection refused."},
		{gone, nil, "Gemini cannot be reached."},
	} {
		h := NewHistory("")
		h.Observe("A", bridge.SessionStarted{})
		h.Observe("A", bridge.DialOutcome{Cause: "lost", Err: c.dial})
		h.Observe("A", bridge.SessionEnded{Reason: c.reason})
		if got := h.pastCalls[0].Reason; got != c.want {
			t.Errorf("%v, %v: %q, want %q", c.reason, c.dial, got, c.want)
		}
	}
}

// TestKeyRefused: one refusal may be of a model that the key does not have, and any other outcome takes it back.
func TestKeyRefused(t *testing.T) {
	h := NewHistory("")
	for i, c := range []struct {
		cause string
		want  bool
	}{{"auth", false}, {"auth", true}, {"auth", true}, {"", false}, {"auth", false}, {"lost", false}, {"auth", false}} {
		h.Observe("A", bridge.DialOutcome{Cause: c.cause, Err: errors.New("why")})
		if _, _, got := h.dialErrors(); got != c.want {
			t.Errorf("%d: %q: %v, want %v", i, c.cause, got, c.want)
		}
	}
}

// TestWordsAndRecordings: transcripts come from memory or from call files. Recordings are served, also in ranges; other files
// are not.
func TestWordsAndRecordings(t *testing.T) {
	calls, recordings := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		filepath.Join(calls, "2026-11-26T10-00-00.000Z-FILE.json"): `{"session":{"id":"FILE","door":"sip"},"endedAt":"2026-11-26T10:01:00Z",
			"transcript":[{"role":"assistant","at":"2026-11-26T10:00:02Z","text":"Good morning.","cut":true}],
			"recordings":["/elsewhere/a.ogg","../../etc/passwd"]}`,
		filepath.Join(recordings, "a.ogg"): "OggS and so on",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := NewHistory(calls)
	long := strings.Repeat("a", maxWords-10)
	h.Observe("MEMORY", bridge.SessionStarted{})
	h.Observe("MEMORY", bridge.SessionEnded{Info: bridge.Info{ID: "MEMORY"}, Reason: bridge.ErrGoodbye, Transcript: []bridge.Entry{
		{Role: "user", Content: "dropped, because it is too old"}, {Role: "user", Content: long}, {Role: "assistant", Content: "Yes."},
	}})
	for i, want := range []string{"Good morning.", "Yes."} {
		if newest := h.pastCalls[i].Newest; newest == nil || newest.Role != "assistant" || newest.Text != want {
			t.Errorf("%+v, want %q", newest, want)
		}
	}
	c := &Console{Options: Options{History: h, RecordingFolder: recordings}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ended/{id}/words", c.serveTranscript)
	mux.HandleFunc("GET /ended/{id}/recordings/{number}", c.serveRecording)
	url := serveConsole(t, c, mux)
	for _, test := range []struct {
		path   string
		status int
		want   string
	}{
		{"FILE/words", 200, `{"transcript":[{"role":"assistant","at":"2026-11-26T10:00:02Z","text":"Good morning.","cut":true}]}`},
		{"MEMORY/words", 200, `"text":"` + long + `"},{"role":"assistant","at":"0001-01-01T00:00:00Z","text":"Yes."}]}`},
		{"NONE/words", 404, "not kept"},
		{"FILE/recordings/0", 200, "OggS and so on"},
		{"FILE/recordings/1", 404, "not in the folder"},
		{"FILE/recordings/2", 404, "recording does not exist"},
		{"FILE/recordings/-1", 404, "recording does not exist"},
		{"MEMORY/recordings/0", 404, "recording does not exist"},
	} {
		resp, body := testkit.SendHTTP(t, http.MethodGet, url+"/ended/"+test.path, "")
		if resp.StatusCode != test.status || !strings.Contains(body, test.want) || strings.Contains(body, "dropped") {
			t.Errorf("%s: %s %.200s", test.path, resp.Status, body)
		}
	}
}

// TestHistoryIsBounded: an order that is reported after the end of its conversation is not kept. Beyond maxReasons, different
// reasons of failed dials share one count.
func TestHistoryIsBounded(t *testing.T) {
	h := NewHistory("")
	h.Observe("A", bridge.SessionStarted{})
	h.Observe("A", bridge.SessionEnded{Reason: bridge.ErrGoodbye})
	h.Observe("A", bridge.Steered{What: "end"})
	if len(h.running) != 0 || len(h.pastCalls) != 1 {
		t.Errorf("%d running, %d ended", len(h.running), len(h.pastCalls))
	}
	for i := range maxReasons + 5 {
		h.Observe("B", bridge.DialOutcome{Err: &bridge.Error{Message: fmt.Sprint("refused: ", i)}})
	}
	if got, _, _ := h.dialErrors(); len(got) != maxReasons+1 || got[otherReasons] != 5 || got["refused: 0"] != 1 {
		t.Error(got)
	}
}

// TestHoursOfTheLastDay: hours without a conversation are not stored, and hours older than a day are dropped.
func TestHoursOfTheLastDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHistory("")
		for _, wait := range []time.Duration{0, 4 * time.Hour, 23 * time.Hour, 30 * time.Minute} {
			time.Sleep(wait)
			h.Observe("A", bridge.SpendingReport{Dollars: 1})
		}
		if len(h.hours) != 2 || h.hours[0].Dollars != 1 || h.hours[1].Dollars != 2 {
			t.Errorf("%+v", h.hours)
		}
		time.Sleep(24 * time.Hour)
		if h.dropOldHours(); len(h.hours) != 0 {
			t.Errorf("a day later: %+v", h.hours)
		}
	})
}

// TestHistoryOfEarlierRuns: conversations from before the start come from the call files.
func TestHistoryOfEarlierRuns(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"2026-11-26T10-00-00.000Z-A.json": `{"type":"session.end","session":{"id":"A","door":"sip","identity":"+43"},
			"startedAt":"2026-11-26T10:00:00Z","endedAt":"2026-11-26T10:01:00Z","reason":"Gemini cannot be reached.","model":"m",
			"turns":3,"recordings":["a.ogg"],"transcript":[]}`,
		"2026-11-26T11-00-00.000Z-B.json": `{"session":{"id":"B","door":"web"},"endedAt":"2026-11-26T11:01:00Z","reason":""}`,
		"2026-11-26T12-00-00.000Z-C.json": `no JSON`,
		"notes.txt":                       `{}`,
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := NewHistory(folder)
	if len(h.pastCalls) != 2 {
		t.Fatalf("%+v", h.pastCalls)
	}
	if a := h.pastCalls[0]; a.ID != "A" || a.Protocol != "sip" || a.Identity != "+43" || a.Turns != 3 ||
		a.Reason != "Gemini cannot be reached." || a.Recordings[0] != "a.ogg" || h.pastCalls[1].ID != "B" {
		t.Errorf("%+v", h.pastCalls)
	}
	if len(NewHistory(filepath.Join(folder, "missing")).pastCalls) != 0 {
		t.Error("conversations without files")
	}
}

func TestDialErrorsInWords(t *testing.T) {
	for want, err := range map[string]error{
		"":                                      nil,
		"connection refused":                    fmt.Errorf("dial: %w", syscall.ECONNREFUSED),
		"host not found: gemini.invalid":        &net.DNSError{Name: "gemini.invalid"},
		"no answer in time":                     context.DeadlineExceeded,
		"no route to the host":                  syscall.ENETUNREACH,
		"connection closed by the other side":   syscall.ECONNRESET,
		bridge.AsError(errors.New("x")).Message: errors.New("x"),
	} {
		if got := describeDialError(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
