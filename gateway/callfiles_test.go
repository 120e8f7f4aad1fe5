package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// callFile has the fields of a call file, as docs/sideband.md names them.
type callFile struct {
	Type, Step   string
	Session      struct{ Door string }
	Turns        int
	Dollars      *float64
	Fields       map[string]any
	Recordings   []string
	Transcript   []struct{ Role, Text, At string }
	Outcome      json.RawMessage
	OutcomeError string

	RecordingPauses []struct{ From, To time.Time }
}

// awaitCallFile waits for the only call file in a folder.
func (p *program) awaitCallFile(folder string) (file callFile) {
	p.t.Helper()
	var name string
	p.awaitCondition(func() bool {
		names := listFileNames(p.t, folder)
		if len(names) == 1 {
			name = names[0]
		}
		return strings.HasSuffix(name, ".json")
	})
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err == nil {
		err = json.Unmarshal(text, &file)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return file
}

// runShortConversation holds a conversation of one typed turn, and waits until the gateway has logged its end.
func (p *program) runShortConversation() {
	c := p.openConversation(`{}`)
	c.AwaitEvent("SETUP_COMPLETE")
	c.SendText("hello")
	c.AwaitEvent("TURN_COMPLETE")
	c.Send("DISCONNECT_GEMINI", "")
	c.AwaitEvent("GEMINI_DISCONNECTED")
	c.Conn.Close()
}

// A call file has the transcript, the cost and the recordings of a conversation. Old files of the gateway are deleted,
// other files are not. Files that cannot be written are counted.
func TestFilesOfCalls(t *testing.T) {
	t.Parallel()
	calls, recordings := t.TempDir(), t.TempDir()
	const day = "2026-01-02T03-04-05.006Z-ABC"
	longAgo := time.Now().AddDate(0, 0, -8)
	for name, old := range map[string]bool{
		day + ".json": true, day + ".json.tmp": true, day + "-bridged.ogg": true, day + "D.json": false, day + ".txt": true,
		"notes.json": true, "x" + day + ".json": true,
	} {
		path := filepath.Join(calls, name)
		if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		if old {
			if err := os.Chtimes(path, longAgo, longAgo); err != nil {
				t.Fatal(err)
			}
		}
	}
	p := startGateway(t, []string{"serve"}, env(
		"VOXGATE_ADDR", "127.0.0.1:0", "VOXGATE_PRIVATE_ADDR", "127.0.0.1:0", "VOXGATE_CALLS", calls, "VOXGATE_RECORDINGS", recordings,
		"VOXGATE_RECORD_ALL", "1", "VOXGATE_KEEP", "7"))
	p.awaitLog(`msg="expired files deleted" folder=\S+ files=(3) `)
	before := listFileNames(t, calls)
	if want := []string{day + ".txt", day + "D.json", "notes.json", "x" + day + ".json"}; !slices.Equal(before, want) {
		t.Errorf("%v are left", before)
	}
	p.runShortConversation()
	var file string
	p.awaitCondition(func() bool {
		added := slices.DeleteFunc(listFileNames(t, calls), func(name string) bool {
			return slices.Contains(before, name) || strings.HasSuffix(name, ".tmp")
		})
		if len(added) > 0 {
			file = filepath.Join(calls, added[0])
		}
		return file != ""
	})
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got callFile
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.Type != "session.end" || got.Session.Door != "web" || got.Turns != 1 || got.Dollars == nil || *got.Dollars == 0 ||
		len(got.Transcript) != 2 || got.Transcript[0].Role != "user" || got.Transcript[0].Text != "hello" || got.Transcript[1].At == "" ||
		len(got.Recordings) != 1 || filepath.Dir(got.Recordings[0]) != recordings {
		t.Errorf("%s", text)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if err := os.RemoveAll(calls); err != nil {
		t.Fatal(err)
	}
	p.runShortConversation()
	awaitMetric(t, p.awaitLog(`msg=private at=(\S+)`), "voxgate_call_files_failed_total 1")
	p.awaitLog(`msg="call file not written" call=(\S+)`)
}

// The client, the backend and a tool can pause a recording. The report of the end has the times of the pauses.
func TestTheRecordingPauses(t *testing.T) {
	t.Parallel()
	calls, recordings := t.TempDir(), t.TempDir()
	tools := filepath.Join(t.TempDir(), "tools.json")
	if err := os.WriteFile(tools, []byte(`{"builtin":["pause_recording"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startGateway(t, []string{"serve"}, env("VOXGATE_ADDR", "127.0.0.1:0", "VOXGATE_CALLS", calls, "VOXGATE_RECORDINGS", recordings,
		"VOXGATE_RECORD_ALL", "1", "VOXGATE_TOOLS", tools))
	c := p.openConversation(`{}`)
	c.AwaitEventWith("SETUP_COMPLETE", `"recording":true`)
	c.Send("PAUSE_RECORDING", `{}`)
	c.AwaitEventWith("GEMINI_ERROR", "payload.paused")
	c.Send("PAUSE_RECORDING", `{"paused":true}`)
	c.AwaitEventWith("LOG_MESSAGE", `"recording":false`)
	c.SendText(`/tool pause_recording {"paused":false}`)
	c.AwaitEventWith("LOG_MESSAGE", `The recording continues.","details":{"recording":true}`)
	c.AwaitEvent("TURN_COMPLETE")
	c.Send("DISCONNECT_GEMINI", "")
	c.AwaitEvent("GEMINI_DISCONNECTED")
	c.Conn.Close()
	got := p.awaitCallFile(calls)
	if len(got.RecordingPauses) != 1 || !got.RecordingPauses[0].To.After(got.RecordingPauses[0].From) {
		t.Errorf("%+v", got)
	}
}

// The agent desk of examples/agents goes through its steps. The client is told of each step, and the report of the end has
// the collected values.
func TestTheDeskGoesThroughItsSteps(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	calls := t.TempDir()
	p := startGateway(t, []string{"serve"}, env("VOXGATE_ADDR", "127.0.0.1:0", "VOXGATE_CALLS", calls, "VOXGATE_AGENTS", "../examples/agents"))
	c := p.dialWebSocket("/ws", `{"type":"CONNECT_GEMINI","payload":{"agent":"desk"}}`)
	c.AwaitEventWith("SETUP_COMPLETE", `"step":"greet"`)
	for _, turn := range []struct{ args, step string }{
		{`{}`, `{"step":"identify"}`},
		{`{"name":"Ada","phone":"030 1234"}`, `{"step":"book","fields":{"name":"Ada","phone":"0301234"}}`},
		{`{"step":"confirm","room":"Double","arrival":"2027-05-01","nights":31}`, ""},
		{
			`{"step":"confirm","nights":2}`,
			`{"step":"confirm","fields":{"arrival":"2027-05-01","name":"Ada","nights":2,"phone":"0301234","room":"double"}}`,
		},
	} {
		c.SendText("/tool next_step " + turn.args)
		if turn.step != "" {
			c.AwaitEventWith("AGENT_STEP", turn.step)
		}
		c.AwaitEvent("TURN_COMPLETE")
	}
	c.Send("DISCONNECT_GEMINI", "")
	c.AwaitEvent("GEMINI_DISCONNECTED")
	if got := p.awaitCallFile(calls); got.Step != "confirm" || got.Fields["nights"] != 2.0 || got.Fields["room"] != "double" {
		t.Errorf("%+v", got)
	}
}

func listFileNames(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
