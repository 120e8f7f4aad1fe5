package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"voxgate/internal/testkit"
)

// voxMessage has the fields of VOX's messages that describe a project and its apps.
type voxMessage struct {
	Type, ID, Project, Action, App, URL, Name string
	ToolID                                    string `json:"tool_id"`
	Files                                     []string
	Version                                   int
	Versions                                  []struct {
		URL, Wish string
		Files     []string
	}
	Data json.RawMessage
}

// awaitVOXEvent waits for the next message for which fits returns true.
func awaitVOXEvent(c *testkit.Client, fits func(voxMessage) bool) (found voxMessage) {
	c.T.Helper()
	_, c.At = c.AwaitMatch(c.At, "message of VOX", func(m testkit.Message) bool {
		found = voxMessage{}
		return json.Unmarshal(m.Payload, &found) == nil && fits(found)
	})
	return found
}

// A VOX project survives when the gateway stops or is killed: its tools, all versions of its apps with their files, and the
// model's knowledge of it.
func TestVOXProjectOutlivesTheGateway(t *testing.T) {
	t.Parallel()
	workspace := t.TempDir()
	run := func() (*exec.Cmd, *program) {
		return startProcess(t, "VOXGATE_WORKSPACE="+workspace, "VOXGATE_DRAIN=0")
	}
	version := func(n int) func(voxMessage) bool {
		return func(m voxMessage) bool { return m.Action == "app_ready" && m.Version == n }
	}
	of := func(kind string) func(voxMessage) bool { return func(m voxMessage) bool { return m.Type == kind } }

	cmd, p := run()
	c := p.dialWebSocket("/api/vox/live", `{"type":"start","questions":true,"projectContext":{"name":"a shop","summary":"It sells shoes.",`+
		`"earlier":[{"role":"user","text":"Blue ones."}]}}`)
	project := awaitVOXEvent(c, of("ready")).Project
	c.SendTextFrame(`{"type":"text","text":"A list for my family"}`)
	awaitVOXEvent(c, of("tool_result"))
	c.SendTextFrame(`{"type":"text","text":"/tool add_tool {\"tool_id\":\"stripe\"}"}`)
	awaitVOXEvent(c, of("tool_result"))
	c.SendTextFrame(`{"type":"text","text":"Build it"}`)
	c.SendTextFrame(`{"type":"answer","id":"` + awaitVOXEvent(c, of("question")).ID + `","yes":true}`)
	awaitVOXEvent(c, version(1))
	c.SendTextFrame(`{"type":"text","text":"Make the button green"}`)
	made := awaitVOXEvent(c, version(2))
	files := appFiles(t, p, made)

	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // fails for a killed process
		cmd, p = run()
		c = p.dialWebSocket("/api/vox/live", `{"type":"start","project":"`+project+`"}`)
		if again := awaitVOXEvent(c, of("ready")).Project; again != project {
			t.Errorf("after %v the project is %q, and was %q", signal, again, project)
		}
		awaitVOXEvent(c, func(m voxMessage) bool { return m.Action == "add_tool" && m.ToolID == "stripe" })
		if back := awaitVOXEvent(c, version(2)); !reflect.DeepEqual(back, made) {
			t.Errorf("after %v the app is\n%+v, and was\n%+v", signal, back, made)
		}
		if now := appFiles(t, p, made); !reflect.DeepEqual(now, files) {
			t.Errorf("after %v its files are\n%q, and were\n%q", signal, now, files)
		}
		c.SendTextFrame(`{"type":"text","text":"/tool get_project_status {}"}`)
		status := string(awaitVOXEvent(c, of("tool_result")).Data)
		for _, part := range []string{"It sells shoes.", "Blue ones.", "stripe", "Family list"} {
			if !strings.Contains(status, part) {
				t.Errorf("after %v the model does not learn of %q: %s", signal, part, status)
			}
		}
	}
	c.SendTextFrame(`{"type":"version","version":0}`) // returning to an earlier version is still possible
	awaitVOXEvent(c, version(1))
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("ended with %v\n%s", err, p.logged())
	}
}

// appFiles returns the contents of the files of all versions of an app, as the gateway serves them.
func appFiles(t *testing.T, p *program, app voxMessage) (files []string) {
	t.Helper()
	for _, v := range app.Versions {
		for _, name := range v.Files {
			resp, err := http.Get(p.url + "/" + v.URL + name)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != http.StatusOK || len(text) == 0 {
				t.Errorf("%s%s: %s, %d bytes, %v", v.URL, name, resp.Status, len(text), err)
			}
			files = append(files, string(text))
		}
	}
	return files
}
