package assistant_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/tools"
	"voxgate/vox/assistant"
)

const (
	twoFiles = "Here it is:\n<<<file index.html>>>\n<!doctype html><title>Tetris</title>" +
		"<script type=\"module\" src=\"js/app.js\"></script>\n<<<end>>>\n" +
		"<<<file js/app.js>>>\nconsole.log('</html>');\n<<<end>>>\nHave fun!\n"
	oneDocument = "Sure!\n```html\n<!DOCTYPE html>\n<html><body>Hi</body></html>\n```\n"
)

// writes returns a writing model that streams a text in pieces of a few bytes.
func writes(text string) func(context.Context, string, func(string) error) error {
	return func(_ context.Context, _ string, piece func(string) error) error {
		for part := range slices.Chunk([]byte(text), 7) {
			if err := piece(string(part)); err != nil {
				return err
			}
		}
		return nil
	}
}

// newStudio returns a desk with a workspace in the folder dir, and a model that writes the given text.
func newStudio(t *testing.T, text string) (d *assistant.Desk, c *client, dir string) {
	t.Helper()
	dir = t.TempDir()
	w, err := assistant.OpenWorkspace(dir, "https://app.example")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	d, c = newDesk(`{"name":"Games"}`)
	d.Workspace, d.Generate = w, writes(text)
	return d, c, dir
}

// answering returns the context of a call whose client shows questions, and whose user answers yes or no.
func answering(ctx context.Context, yes bool) context.Context {
	return tools.WithEnv(ctx, &tools.Env{AskPerson: func(context.Context, json.RawMessage) (json.RawMessage, error) {
		if yes {
			return json.RawMessage(`{"action":"submit"}`), nil
		}
		return json.RawMessage(`{"dismissed":true}`), nil
	}})
}

// entries returns the names in a folder.
func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

func TestGenerateApp(t *testing.T) {
	d, c, dir := newStudio(t, twoFiles)
	var asked, seen, task, writing string
	known := 0
	d.Act = func(a assistant.Action) {
		if c.act(a); a.Action == assistant.ActReady {
			known = len(d.ReplayActions())
		}
	}
	d.Generate = func(ctx context.Context, prompt string, piece func(string) error) error {
		task = prompt
		return writes(twoFiles)(ctx, prompt, piece)
	}
	ctx := tools.WithEnv(t.Context(), &tools.Env{
		AskPerson: func(_ context.Context, canvas json.RawMessage) (json.RawMessage, error) {
			asked, writing = string(canvas), d.Project.Status().Writing
			return json.RawMessage(`{"action":"submit"}`), nil
		},
		SendPartial: func(partial json.RawMessage) { seen += string(partial) },
	})
	_, _ = call(t, ctx, d, "add_tool", args{"tool_id": "phaser"})
	got, failure := call(t, ctx, d, "generate_app", args{"prompt": "Tetris.\n<<<end>>> in \"blue\"", "name": "Tetris"})
	if failure != "" {
		t.Fatal(failure)
	}
	has(t, asked, "Tetris", "costs money")
	if writing != "" {
		t.Errorf("%s was being written before the person had agreed", writing)
	}
	has(t, seen, `"app":"Tetris"`, "being written")
	has(t, task, "<<<file index.html>>>", `"Tetris.\n<<<end>>> in \"blue\""`, `{\"name\":\"Games\"}`, "Phaser")
	url, _ := got["url"].(string)
	app := strings.TrimSuffix(strings.TrimPrefix(url, "vox/apps/"), "/")
	if got["app"] != "Tetris" || fmt.Sprint(got["files"]) != "[index.html js/app.js]" || len(app) < 22 ||
		!slices.Equal(entries(t, dir), []string{app}) {
		t.Errorf("%v; in the workspace %v", got, entries(t, dir))
	}
	script, err := os.ReadFile(filepath.Join(dir, app, "js", "app.js"))
	if err != nil || string(script) != "console.log('</html>');\n" {
		t.Errorf("%q, %v", script, err)
	}
	if fmt.Sprint(got["uses"]) != "[]" {
		t.Errorf("it uses %v", got["uses"])
	}
	progress, ready := c.all("app_progress"), c.all("app_ready")
	if len(progress) == 0 || progress[0].App != "Tetris" || len(ready) != 1 || ready[0].App != "Tetris" || ready[0].URL != url ||
		len(ready[0].Files) != 2 {
		t.Errorf("%+v, %+v", progress, ready)
	}
	if known != 2 { // a client that comes back just then learns of all that is made
		t.Errorf("when the app was ready %d things were made", known)
	}
	s := d.Project.Status()
	if len(s.Apps) != 1 || s.Apps[0].URL != url || s.Apps[0].Gone || s.Writing != "" || !strings.HasPrefix(s.Apps[0].Prompt, "Tetris") {
		t.Errorf("%+v", s)
	}

	second, failure := call(t, ctx, d, "generate_app", args{"prompt": "Tetris."})
	if second["app"] != "Tetris 2" || second["url"] == url || len(entries(t, dir)) != 2 {
		t.Errorf("%v, %s", second, failure)
	}
	if err := os.RemoveAll(filepath.Join(dir, app)); err != nil {
		t.Fatal(err)
	}
	status, _ := call(t, ctx, d, "get_project_status", args{})
	apps, _ := status["apps"].([]any)
	if len(apps) != 2 || apps[0].(map[string]any)["gone"] != true || apps[1].(map[string]any)["gone"] != nil {
		t.Errorf("%v", status)
	}
}

func TestSingleHTMLDocument(t *testing.T) {
	d, _, dir := newStudio(t, oneDocument)
	got, failure := call(t, answering(t.Context(), true), d, "generate_app", args{"prompt": "Hi"})
	if failure != "" || fmt.Sprint(got["files"]) != "[index.html]" {
		t.Fatalf("%v, %s", got, failure)
	}
	page, err := os.ReadFile(filepath.Join(dir, entries(t, dir)[0], "index.html"))
	if err != nil || string(page) != "<!DOCTYPE html>\n<html><body>Hi</body></html>\n" {
		t.Errorf("%q, %v", page, err)
	}
}

// TestInvalidAnswersOfTheModel: an invalid answer leaves no files, and the next app can be generated.
func TestInvalidAnswersOfTheModel(t *testing.T) {
	megabyte := strings.Repeat("x", 1<<20)
	marked := func(path, text string) string { return "<<<file " + path + ">>>\n" + text + "\n<<<end>>>\n" }
	deep := "<<<file index.html>>>\nx\n<<<end>>>\n"
	for i := range 40 {
		deep += marked(fmt.Sprintf("f%d.txt", i), "x")
	}
	for name, c := range map[string]struct{ text, want string }{
		"a word":         {"I would rather not.", "without an app"},
		"nothing":        {"", "without an app"},
		"broken off":     {"<<<file index.html>>>\n<p>", `broke off in the file "index.html"`},
		"half a page":    {"```html\n<!doctype html><p>", "broke off in its HTML"},
		"within another": {"<<<file index.html>>>\n<<<file b.html>>>\n<<<end>>>\n", "within"},
		"parent":         {marked("index.html", "x") + marked("../x", "x"), `"../x"`},
		"parent below":   {marked("index.html", "x") + marked("a/../../x", "x"), "../x"},
		"absolute":       {marked("index.html", "x") + marked("/etc/x", "x"), "/etc/x"},
		"hidden":         {marked("index.html", "x") + marked(".htaccess", "x"), ".htaccess"},
		"hidden folder":  {marked("index.html", "x") + marked("a/.git/config", "x"), ".git"},
		"backslash":      {marked("index.html", "x") + marked(`a\..\x`, "x"), `\\x`},
		"colon":          {marked("index.html", "x") + marked("c:x", "x"), "c:x"},
		"empty name":     {marked("index.html", "x") + marked("", "x"), `""`},
		"unicode":        {marked("index.html", "x") + marked("ä.js", "x"), "ä.js"},
		"deep":           {marked("index.html", "x") + marked("a/b/c/d/e.js", "x"), "deeper than 3"},
		"long":           {marked("index.html", "x") + marked(strings.Repeat("a", 65), "x"), "longer than 64"},
		"twice":          {marked("index.html", "x") + marked("Index.html", "x"), "twice"},
		"file as folder": {marked("index.html", "x") + marked("a", "x") + marked("a/b", "x"), "could not be kept"},
		"many":           {deep, "41 files"},
		"capital index":  {marked("Index.html", "x"), "no index.html"},
		"no index":       {marked("main.html", "x"), "no index.html"},
		"too big":        {marked("index.html", megabyte) + marked("a.js", megabyte), "2 MB"},
		"endless":        {strings.Repeat(megabyte, 4), "2 MB"},
	} {
		d, client, dir := newStudio(t, c.text)
		got, failure := call(t, answering(t.Context(), true), d, "generate_app", args{"prompt": "x"})
		if failure == "" || !strings.Contains(failure, c.want) || strings.Contains(failure, dir) {
			t.Errorf("%s: %v, %q; want %q", name, got, failure, c.want)
		}
		if s := d.Project.Status(); len(entries(t, dir)) != 0 || len(s.Apps) != 0 || s.Writing != "" || client.all("app_ready") != nil {
			t.Errorf("%s left %v, %+v", name, entries(t, dir), s)
		}
		d.Generate = writes(oneDocument)
		if _, failure := call(t, answering(t.Context(), true), d, "generate_app", args{"prompt": "x"}); failure != "" {
			t.Errorf("after %s: %s", name, failure)
		}
	}
}

func TestTheModelFails(t *testing.T) {
	d, _, dir := newStudio(t, "")
	d.Generate = func(_ context.Context, _ string, piece func(string) error) error {
		return errors.Join(piece(oneDocument), errors.New("the quota is spent"))
	}
	_, failure := call(t, answering(t.Context(), true), d, "generate_app", args{"prompt": "x"})
	has(t, failure, "the quota is spent")
	d.Generate = func(context.Context, string, func(string) error) error { panic("oh") }
	_, failure = call(t, answering(t.Context(), true), d, "generate_app", args{"prompt": "x"})
	has(t, failure, "crashed")
	if s := d.Project.Status(); s.Writing != "" || len(entries(t, dir)) != 0 {
		t.Errorf("%+v, %v", s, entries(t, dir))
	}
}

// TestGenerateAppCancelled: the model's text so far is discarded, and a model that ignores its context is stopped.
func TestGenerateAppCancelled(t *testing.T) {
	d, _, dir := newStudio(t, "")
	ctx, cancel := context.WithCancel(answering(t.Context(), true))
	d.Generate = func(_ context.Context, _ string, piece func(string) error) error {
		if err := piece(oneDocument); err != nil {
			return err
		}
		cancel()
		return piece("more")
	}
	if _, failure := call(t, ctx, d, "generate_app", args{"prompt": "x"}); failure == "" {
		t.Error("it was not cancelled")
	}
	ctx, cancel = context.WithCancel(answering(t.Context(), true))
	d.Generate = func(_ context.Context, _ string, piece func(string) error) error {
		defer cancel()
		return piece(oneDocument)
	}
	if _, failure := call(t, ctx, d, "generate_app", args{"prompt": "x"}); failure == "" {
		t.Error("it was not cancelled at the end")
	}
	if s := d.Project.Status(); s.Writing != "" || len(s.Apps) != 0 || len(entries(t, dir)) != 0 {
		t.Errorf("%+v, %v", s, entries(t, dir))
	}
}

// TestGenerateAppTimeout: the model has 5 minutes, the user's time to answer does not count, and the client gets
// progress a few times a second.
func TestGenerateAppTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, c, dir := newStudio(t, "")
		ctx := tools.WithEnv(t.Context(), &tools.Env{AskPerson: func(context.Context, json.RawMessage) (json.RawMessage, error) {
			time.Sleep(4 * time.Minute)
			return json.RawMessage(`{"action":"submit"}`), nil
		}})
		d.Generate = func(_ context.Context, _ string, piece func(string) error) error {
			for range 4 * 60 * 100 {
				time.Sleep(10 * time.Millisecond)
				if err := piece(" "); err != nil {
					return err
				}
			}
			return piece(oneDocument)
		}
		if _, failure := call(t, ctx, d, "generate_app", args{"prompt": "x"}); failure != "" {
			t.Error(failure)
		}
		progress := c.all("app_progress")
		if n := len(progress); n < 240 || n > 4*240 || progress[n-1].Bytes <= progress[n-2].Bytes {
			t.Errorf("the client got %d times in 240 s", n)
		}
		began := time.Now()
		d.Generate = func(ctx context.Context, _ string, _ func(string) error) error {
			<-ctx.Done()
			return ctx.Err()
		}
		_, failure := call(t, ctx, d, "generate_app", args{"prompt": "x"})
		has(t, failure, "did not answer in time")
		if took := time.Since(began); took != 9*time.Minute {
			t.Errorf("it took %v", took)
		}
		if s := d.Project.Status(); s.Writing != "" || len(s.Apps) != 1 || len(entries(t, dir)) != 1 {
			t.Errorf("%+v, %v", s, entries(t, dir))
		}
	})
}

func TestOneGenerationAtATime(t *testing.T) {
	d, _, _ := newStudio(t, "")
	begun, end := make(chan struct{}), make(chan struct{})
	d.Generate = func(_ context.Context, _ string, piece func(string) error) error {
		close(begun)
		<-end
		return piece(oneDocument)
	}
	ctx := answering(t.Context(), true)
	first := make(chan string)
	go func() {
		_, failure := call(t, ctx, d, "generate_app", args{"prompt": "x"})
		first <- failure
	}()
	<-begun
	status, _ := call(t, ctx, d, "get_project_status", args{})
	if status["writing"] != "x" {
		t.Errorf("%v", status)
	}
	_, failure := call(t, ctx, d, "generate_app", args{"prompt": "y"})
	has(t, failure, "another app is being written")
	close(end)
	if failure := <-first; failure != "" {
		t.Error(failure)
	}
	d.Generate = writes(oneDocument)
	for range 9 {
		if _, failure := call(t, ctx, d, "generate_app", args{"prompt": "x"}); failure != "" {
			t.Fatal(failure)
		}
	}
	_, failure = call(t, ctx, d, "generate_app", args{"prompt": "x"})
	has(t, failure, "10 apps", "change_app")
}

// A client may request the next version as soon as it is told that a version is ready.
func TestChangeAsSoonAsReady(t *testing.T) {
	d, _, _ := newStudio(t, oneDocument)
	act, failure := d.Act, "not asked"
	ctx := answering(t.Context(), true)
	d.Act = func(a assistant.Action) {
		act(a)
		if a.Action == assistant.ActReady && a.Version == 1 {
			d.Generate = writes(strings.Replace(oneDocument, "<body>", "<body>new", 1))
			_, failure = call(t, ctx, d, "change_app", args{"change": "y"})
		}
	}
	if _, failed := call(t, ctx, d, "generate_app", args{"prompt": "x"}); failed != "" || failure != "" {
		t.Errorf("%q, %q", failed, failure)
	}
}

func TestGenerateWithoutModelOrWorkspace(t *testing.T) {
	d, _, _ := newStudio(t, oneDocument)
	d.Generate = nil
	_, failure := call(t, answering(t.Context(), true), d, "generate_app", args{"prompt": "x"})
	has(t, failure, "no model")
	d.Workspace = nil
	_, failure = call(t, answering(t.Context(), true), d, "generate_app", args{"prompt": "x"})
	has(t, failure, "no workspace")
}

func TestConsentRefused(t *testing.T) {
	d, c, dir := newStudio(t, oneDocument)
	_, failure := call(t, answering(t.Context(), false), d, "generate_app", args{"prompt": "x"})
	has(t, failure, "does not want it")
	lost := errors.New("the question was lost")
	ctx := tools.WithEnv(
		t.Context(),
		&tools.Env{AskPerson: func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, lost }},
	)
	_, failure = call(t, ctx, d, "generate_app", args{"prompt": "x"})
	has(t, failure, lost.Error())
	if len(entries(t, dir)) != 0 || c.all("app_progress") != nil {
		t.Error("it was generated all the same")
	}
}

// telling returns the context of a call, and a channel that receives the interim responses to the model.
func telling(ctx context.Context) (told chan string, _ context.Context) {
	told = make(chan string, 10)
	return told, tools.WithEnv(ctx, &tools.Env{SendPartial: func(partial json.RawMessage) { told <- string(partial) }})
}

// TestConsentByVoice: without a screen the user must have spoken since the question, and the model passes the answer
// on.
func TestConsentByVoice(t *testing.T) {
	d, c, dir := newStudio(t, oneDocument)
	_, failure := call(t, t.Context(), d, "generate_app", args{"prompt": "x"})
	has(t, failure, "no way to ask")
	_, failure = call(t, t.Context(), d, "answer_question", args{"yes": true})
	has(t, failure, "screen")
	var said atomic.Int64
	d.InputCount = func() int { return int(said.Load()) }
	_, failure = call(t, t.Context(), d, "answer_question", args{"yes": true})
	has(t, failure, "no question is open")
	for _, yes := range []bool{false, true} {
		told, ctx := telling(t.Context())
		ended := make(chan string)
		go func() {
			_, failure := call(t, ctx, d, "generate_app", args{"prompt": "A blue Tetris"})
			ended <- failure
		}()
		has(t, <-told, "not begun", "Ask the person", "answer_question")
		_, failure = call(t, t.Context(), d, "answer_question", args{"yes": yes})
		has(t, failure, "said nothing")
		said.Add(1)
		if _, failure = call(t, t.Context(), d, "answer_question", args{"yes": yes}); failure != "" {
			t.Fatal(failure)
		}
		if failure := <-ended; (failure == "") != yes {
			t.Errorf("yes %v: %s", yes, failure)
		}
	}
	if len(entries(t, dir)) != 1 || len(c.all("app_ready")) != 1 {
		t.Errorf("%v", entries(t, dir))
	}
}

// TestFirstConsentWins: a question on the screen is withdrawn when the user has answered by voice, and vice versa.
func TestFirstConsentWins(t *testing.T) {
	d, _, _ := newStudio(t, oneDocument)
	said := 0
	d.InputCount = func() int { return said }
	asked, withdrawn := make(chan struct{}), make(chan struct{})
	ctx := tools.WithEnv(t.Context(), &tools.Env{AskPerson: func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
		close(asked)
		<-ctx.Done()
		close(withdrawn)
		return nil, ctx.Err()
	}})
	ended := make(chan string)
	go func() {
		_, failure := call(t, ctx, d, "generate_app", args{"prompt": "x"})
		ended <- failure
	}()
	<-asked
	said++
	if _, failure := call(t, t.Context(), d, "answer_question", args{"yes": true}); failure != "" {
		t.Fatal(failure)
	}
	<-withdrawn
	if failure := <-ended; failure != "" {
		t.Error(failure)
	}
	if _, failure := call(t, answering(t.Context(), true), d, "generate_app", args{"prompt": "y"}); failure != "" {
		t.Error(failure)
	}
	said++
	_, failure := call(t, t.Context(), d, "answer_question", args{"yes": true})
	has(t, failure, "no question is open")
}

// TestChangeApp: a change creates a new version. The old versions stay, and the user can return to them.
func TestChangeApp(t *testing.T) {
	d, c, dir := newStudio(t, twoFiles)
	ctx := answering(t.Context(), true)
	_, failure := call(t, ctx, d, "change_app", args{"change": "green"})
	has(t, failure, "no app yet")
	said := 1
	d.InputCount = func() int { return said }
	first, failure := call(t, ctx, d, "generate_app", args{"prompt": "Tetris", "name": "Tetris"})
	if failure != "" {
		t.Fatal(failure)
	}
	_, failure = call(t, ctx, d, "change_app", args{"change": "green"})
	has(t, failure, "said nothing since")
	said++
	var task string
	d.Generate = func(ctx context.Context, prompt string, piece func(string) error) error {
		task = prompt
		return writes("<<<file js/app.js>>>\nconsole.log('green');\n<<<end>>>")(ctx, prompt, piece)
	}
	second, failure := call(t, ctx, d, "change_app", args{"change": "Make it green"})
	if failure != "" || second["version"] != 2.0 || second["app"] != "Tetris" || second["url"] == first["url"] ||
		fmt.Sprint(second["changes"]) != "[map[added:1 file:js/app.js removed:1]]" {
		t.Fatal(second, failure)
	}
	has(t, task, "<title>Tetris</title>", "console.log('</html>');", `"Make it green"`, "Leave out those that stay")
	app := c.all("app_ready")[1]
	if app.Version != 2 || len(app.Versions) != 2 || app.Versions[1].From != 1 || app.Versions[1].Wish != "Make it green" ||
		len(app.Files) != 2 || len(entries(t, dir)) != 2 {
		t.Errorf("%+v", app)
	}
	undone, failure := call(t, ctx, d, "undo_change", args{"app": "tetris"})
	if failure != "" || undone["url"] != first["url"] || d.Project.Status().Apps[0].Version != 1 {
		t.Error(undone, failure)
	}
	_, failure = call(t, ctx, d, "undo_change", args{})
	has(t, failure, "no earlier version")
	_, failure = call(t, ctx, d, "undo_change", args{"app": "Chess"})
	has(t, failure, "no app", "Tetris")
	said++
	third, failure := call(t, ctx, d, "change_app", args{"change": "green after all"})
	if failure != "" || third["version"] != 3.0 || d.Project.Status().Apps[0].Versions[2].From != 1 {
		t.Error(third, failure)
	}
	if _, err := d.SwitchVersion("Tetris", 2); err != nil || d.Project.Status().Apps[0].URL != second["url"] {
		t.Error(err)
	}
	said++
	d.Generate = writes("<<<file index.html>>>\n<!doctype html><title>\n Blocks &amp; Rows </title>\n<<<end>>>")
	fourth, failure := call(t, ctx, d, "change_app", args{"change": "Call it Blocks & Rows"})
	if app := d.Project.Status().Apps[0]; failure != "" || fourth["title"] != "Blocks & Rows" ||
		app.Name != "Tetris" || app.Title != "Blocks & Rows" {
		t.Error(fourth, failure, app)
	}
	said++
	d.Generate = writes("<<<file js/app.js>>>\nconsole.log('red');\n<<<end>>>")
	fifth, failure := call(t, ctx, d, "change_app", args{"app": "blocks & rows", "change": "Make it red"})
	if failure != "" || fifth["title"] != "Blocks & Rows" || fifth["version"] != 5.0 {
		t.Error("a change keeps the title:", fifth, failure)
	}
	if app, err := d.SwitchVersion("Tetris", 3); err != nil || app.Title != "" {
		t.Error("an earlier version has its earlier title:", app, err)
	}
	if _, err := d.SwitchVersion("Tetris", 6); err == nil {
		t.Error("there is no sixth version")
	}
	said++
	d.Generate = writes("<<<file js/app.js>>>\nconsole.log('green');\n<<<end>>>")
	_, failure = call(t, ctx, d, "change_app", args{"change": "nothing"})
	has(t, failure, "changed nothing")
}

// TestVersionsAreBounded: the number of versions is limited, so the project's file never becomes too large to be read.
func TestVersionsAreBounded(t *testing.T) {
	d, _, _ := newStudio(t, twoFiles)
	d.Project, _ = d.Workspace.OpenProject("", nil)
	ctx := answering(t.Context(), true)
	if _, failure := call(t, ctx, d, "generate_app", args{"prompt": "Tetris"}); failure != "" {
		t.Fatal(failure)
	}
	for n := range 29 {
		d.Generate = writes(fmt.Sprintf("<<<file js/app.js>>>\n%d\n<<<end>>>", n))
		if _, failure := call(t, ctx, d, "change_app", args{"change": "x"}); failure != "" {
			t.Fatal(n, failure)
		}
	}
	_, failure := call(t, ctx, d, "change_app", args{"change": "x"})
	has(t, failure, "Tetris has 30 versions")
	_, failure = call(t, ctx, d, "generate_app", args{"prompt": "y"})
	has(t, failure, "this conversation has written 30 versions")
	if again, known := d.Workspace.OpenProject(d.Project.ID(), nil); !known || len(again.Status().Apps[0].Versions) != 30 {
		t.Errorf("%v", known)
	}
}

// TestProjectIsKept: a project outlives its conversation, and two conversations may share it. A project without changes is
// not stored.
func TestProjectIsKept(t *testing.T) {
	d, _, dir := newStudio(t, twoFiles)
	w := d.Workspace
	p, known := w.OpenProject("", json.RawMessage(`{"summary":"Games"}`))
	if known || len(p.ID()) != 26 || len(entries(t, dir)) != 0 {
		t.Fatal(p.ID(), known, entries(t, dir))
	}
	d.Project = p
	ctx := answering(t.Context(), true)
	for name, a := range map[string]args{
		"generate_app": {"prompt": "Tetris"}, "navigate_ui": {"target": "files"}, "add_tool": {"tool_id": "vue"},
	} {
		if _, failure := call(t, ctx, d, name, a); failure != "" {
			t.Fatal(failure)
		}
	}
	again, known := w.OpenProject(p.ID(), nil)
	if got, want := fmt.Sprint(again.Status()), fmt.Sprint(p.Status()); !known || got != want {
		t.Errorf("%v, want %v", got, want)
	}
	beside := &assistant.Desk{Project: again, Workspace: w, Act: func(assistant.Action) {}}
	if _, failure := call(t, ctx, beside, "add_tool", args{"tool_id": "react"}); failure != "" {
		t.Fatal(failure)
	}
	if _, failure := call(t, ctx, d, "add_tool", args{"tool_id": "stripe"}); failure != "" {
		t.Fatal(failure)
	}
	if n := len(d.Project.Status().Tools); n != 3 {
		t.Errorf("%d tools: what the other conversation added is lost", n)
	}
	for _, id := range []string{"", "../x", strings.Repeat("A", 26)} {
		if other, known := w.OpenProject(id, nil); known || other.ID() == id {
			t.Errorf("%q: %v", id, known)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "project-"+p.ID()+".json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, known := w.OpenProject(p.ID(), nil); known {
		t.Error("a file that cannot be read is a project")
	}
}

// TestProjectCannotBeKept: if the workspace cannot store a change, the tool reports a failure.
func TestProjectCannotBeKept(t *testing.T) {
	d, c, _ := newStudio(t, twoFiles)
	d.Project, _ = d.Workspace.OpenProject("", nil)
	if err := d.Workspace.Close(); err != nil {
		t.Fatal(err)
	}
	_, failure := call(t, t.Context(), d, "add_tool", args{"tool_id": "vue"})
	has(t, failure, "could not be kept")
	if len(d.Project.Status().Tools) != 0 || len(c.all("add_tool")) != 0 {
		t.Error("it is in the project")
	}
}

func TestServeAppFiles(t *testing.T) {
	d, _, _ := newStudio(t, twoFiles)
	got, failure := call(t, answering(t.Context(), true), d, "generate_app", args{"prompt": "x"})
	if failure != "" {
		t.Fatal(failure)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /vox/apps/{app}/{file...}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Frame-Options", "DENY") // like a server with strict defaults
		d.Workspace.ServeHTTP(w, r)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	root := server.URL + "/" + got["url"].(string)
	for path, want := range map[string]struct {
		status     int
		kind, body string
	}{
		"":                      {200, "text/html; charset=utf-8", "<title>Tetris"},
		"index.html":            {200, "text/html; charset=utf-8", "<title>Tetris"},
		"js/app.js":             {200, "text/javascript; charset=utf-8", "console.log"},
		"js":                    {404, "text/plain; charset=utf-8", "No such app"},
		"js/":                   {404, "text/plain; charset=utf-8", "No such app"},
		"none.js":               {404, "text/plain; charset=utf-8", "No such app or file"},
		"..%2f..%2f..%2fgo.mod": {404, "text/plain; charset=utf-8", "No such app or file"},
		".git":                  {404, "text/plain; charset=utf-8", "No such app or file"},
		"../AAAAAAAAAAAAAAAAAAAAAAAAAA/index.html": {404, "text/plain; charset=utf-8", "No such app"},
		"../unfinished-x/index.html":               {404, "text/plain; charset=utf-8", "No such app"},
	} {
		response, err := server.Client().Get(root + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		h := response.Header
		if err != nil || response.StatusCode != want.status || h.Get("Content-Type") != want.kind || !strings.Contains(string(body), want.body) {
			t.Errorf("%q: %d %s %s, %v", path, response.StatusCode, h.Get("Content-Type"), body, err)
		}
		policy := h.Get("Content-Security-Policy")
		has(
			t,
			policy,
			"sandbox allow-scripts allow-forms allow-modals allow-popups allow-pointer-lock",
			"frame-ancestors 'self' https://app.example",
			"object-src 'none'",
		)
		if strings.Contains(policy, "allow-same-origin") || strings.Contains(policy, "escape-sandbox") ||
			strings.Contains(policy, "allow-top-navigation") {
			t.Errorf("%q: %s", path, policy)
		}
		has(t, h.Get("Permissions-Policy"), "camera=()", "microphone=()", "geolocation=()")
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-store" || h.Get("Referrer-Policy") != "no-referrer" ||
			h.Get("X-Frame-Options") != "" || h.Get("Set-Cookie") != "" || h.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%q: %v", path, h)
		}
	}
}

// TestWorkspaceRemovesOldest: the oldest apps and the remains of a dead gateway are removed, and nothing else.
func TestWorkspaceRemovesOldest(t *testing.T) {
	dir := t.TempDir()
	open := func() {
		t.Helper()
		w, err := assistant.OpenWorkspace(dir)
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	app := func(name string, size int64, age time.Duration) {
		t.Helper()
		path := filepath.Join(dir, name)
		page := filepath.Join(path, "index.html")
		made := time.Now().Add(-age)
		if err := errors.Join(os.Mkdir(path, 0o750), os.WriteFile(page, nil, 0o640), os.Truncate(page, size),
			os.Chtimes(path, made, made)); err != nil {
			t.Fatal(err)
		}
	}
	oldest, old, young := strings.Repeat("A", 26), strings.Repeat("B", 26), strings.Repeat("C", 26)
	app(young, 100<<20, time.Minute)
	app(oldest, 100<<20, time.Hour)
	app(old, 100<<20, 30*time.Minute)
	app("unfinished-"+oldest, 1, 2*time.Hour)
	app("unfinished-"+young, 1, time.Minute)
	app("somebody-elses", 1<<30, 100*time.Hour)
	open()
	if got, want := entries(t, dir), []string{old, young, "somebody-elses", "unfinished-" + young}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for i := range 1000 {
		app(
			strings.NewReplacer("0", "A", "1", "B", "8", "W", "9", "X").Replace(fmt.Sprintf("%s%04d", strings.Repeat("D", 22), i)),
			0,
			10*time.Minute,
		)
	}
	open()
	if got := entries(t, dir); slices.Contains(got, old) || !slices.Contains(got, young) || len(got) != 1000+2 {
		t.Errorf("%d entries", len(got))
	}
	if _, err := assistant.OpenWorkspace(filepath.Join(dir, young, "index.html")); err == nil {
		t.Error("a file was taken for a folder")
	}
}
