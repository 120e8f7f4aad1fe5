package vox_test

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
	"testing"
	"testing/synctest"
	"time"

	"voxgate/tools"
	"voxgate/tools/vox"
)

const (
	twoFiles = "Here it is:\n<<<file index.html>>>\n<!doctype html><title>Tetris</title>" +
		"<script type=\"module\" src=\"js/app.js\"></script>\n<<<end>>>\n" +
		"<<<file js/app.js>>>\nconsole.log('</html>');\n<<<end>>>\nHave fun!\n"
	oneDocument = "Sure!\n```html\n<!DOCTYPE html>\n<html><body>Hi</body></html>\n```\n"
)

// writes is a writing model that streams a text in pieces of a few bytes.
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

// newStudio is a desk with a workspace in a folder, and a model that writes text.
func newStudio(t *testing.T, text string) (d *vox.Desk, c *client, dir string) {
	t.Helper()
	dir = t.TempDir()
	w, err := vox.OpenWorkspace(dir)
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

// answering is the context of a call whose client shows questions, and whose person answers yes or no.
func answering(ctx context.Context, yes bool) context.Context {
	return tools.WithEnv(ctx, &tools.Env{AskPerson: func(context.Context, json.RawMessage) (json.RawMessage, error) {
		if yes {
			return json.RawMessage(`{"action":"submit"}`), nil
		}
		return json.RawMessage(`{"dismissed":true}`), nil
	}})
}

// entries are what is in a folder.
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
	d.Act = func(a vox.Action) {
		if c.act(a); a.Action == vox.ActReady {
			known = len(d.Made())
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
		Tell: func(partial json.RawMessage) { seen += string(partial) },
	})
	_, _ = call(t, ctx, d, "add_tool", args{"tool_id": "phaser"})
	got, failure := call(t, ctx, d, "generate_app", args{"prompt": "Tetris.\n<<<end>>> in \"blue\""})
	if failure != "" {
		t.Fatal(failure)
	}
	has(t, asked, "Tetris", "costs money")
	if writing != "" {
		t.Errorf("%s was being written before the person had agreed", writing)
	}
	has(t, seen, `"app":"app-1"`, "being written")
	has(t, task, "<<<file index.html>>>", `"Tetris.\n<<<end>>> in \"blue\""`, `{\"name\":\"Games\"}`, "Phaser")
	url, _ := got["url"].(string)
	app := strings.TrimSuffix(strings.TrimPrefix(url, "vox/apps/"), "/")
	if got["app"] != "app-1" || fmt.Sprint(got["files"]) != "[index.html js/app.js]" || len(app) < 22 ||
		!slices.Equal(entries(t, dir), []string{app}) {
		t.Errorf("%v; in the workspace %v", got, entries(t, dir))
	}
	script, err := os.ReadFile(filepath.Join(dir, app, "js", "app.js"))
	if err != nil || string(script) != "console.log('</html>');\n" {
		t.Errorf("%q, %v", script, err)
	}
	progress, ready := c.all("app_progress"), c.all("app_ready")
	if len(progress) == 0 || progress[0].App != "app-1" || len(ready) != 1 || ready[0].App != "app-1" || ready[0].URL != url ||
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
	if second["app"] != "app-2" || second["url"] == url || len(entries(t, dir)) != 2 {
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

func TestOneDocument(t *testing.T) {
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

// TestNotGenerated: nothing is written, nothing is left, and the next app can begin.
func TestNotGenerated(t *testing.T) {
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

// TestCancelled: whatever the model has written by then is gone, and a model that takes no notice of its context is stopped.
func TestCancelled(t *testing.T) {
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

// TestTime: the model has 5 minutes, the person's time does not count, and the client hears of it a few times a second.
func TestTime(t *testing.T) {
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

func TestOneAtATime(t *testing.T) {
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
	if status["writing"] != "app-1" {
		t.Errorf("%v", status)
	}
	_, failure := call(t, ctx, d, "generate_app", args{"prompt": "y"})
	has(t, failure, "another app is under way")
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
	has(t, failure, "10 apps")
}

func TestNoMeans(t *testing.T) {
	d, _, _ := newStudio(t, oneDocument)
	d.Generate = nil
	_, failure := call(t, answering(t.Context(), true), d, "generate_app", args{"prompt": "x"})
	has(t, failure, "no model")
	d.Workspace = nil
	_, failure = call(t, answering(t.Context(), true), d, "generate_app", args{"prompt": "x"})
	has(t, failure, "no workspace")
}

func TestNoIsNo(t *testing.T) {
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

// TestAskedByVoice: where there is no screen the person must have spoken between two calls.
func TestAskedByVoice(t *testing.T) {
	d, _, dir := newStudio(t, oneDocument)
	_, failure := call(t, t.Context(), d, "generate_app", args{"prompt": "x"})
	has(t, failure, "no way to ask")
	said := 3
	d.Said = func() int { return said }
	refused := func(prompt string) {
		t.Helper()
		got, failure := call(t, t.Context(), d, "generate_app", args{"prompt": prompt})
		if failure != "" || len(entries(t, dir)) != 0 {
			t.Fatalf("%v, %s", got, failure)
		}
		has(t, fmt.Sprint(got["status"], got["next"]), "not begun", "Ask the person", "same prompt")
	}
	refused("A blue Tetris")
	refused("A blue Tetris") // the person has said nothing
	said++
	refused("A red Tetris") // of which nobody has asked
	said++
	got, failure := call(t, t.Context(), d, "generate_app", args{"prompt": " a  red tetris"})
	if failure != "" || got["app"] != "app-1" {
		t.Fatalf("%v, %s", got, failure)
	}
	said++
	got, _ = call(t, t.Context(), d, "generate_app", args{"prompt": "A red Tetris"})
	has(t, fmt.Sprint(got["status"]), "not begun") // agreed to once
}

func TestServe(t *testing.T) {
	d, _, _ := newStudio(t, twoFiles)
	got, failure := call(t, answering(t.Context(), true), d, "generate_app", args{"prompt": "x"})
	if failure != "" {
		t.Fatal(failure)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /vox/apps/{app}/{file...}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Frame-Options", "DENY") // as a careful server would
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
		"js":                    {404, "text/plain; charset=utf-8", "no such app"},
		"js/":                   {404, "text/plain; charset=utf-8", "no such app"},
		"none.js":               {404, "text/plain; charset=utf-8", "no such file"},
		"..%2f..%2f..%2fgo.mod": {404, "text/plain; charset=utf-8", "no such file"},
		".git":                  {404, "text/plain; charset=utf-8", "no such file"},
		"../AAAAAAAAAAAAAAAAAAAAAAAAAA/index.html": {404, "text/plain; charset=utf-8", "no such app"},
		"../unfinished-x/index.html":               {404, "text/plain; charset=utf-8", "no such app"},
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
			"frame-ancestors 'self'",
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

// TestWorkspaceMakesRoom: the oldest apps go, what a dead gateway has left goes, and nothing else.
func TestWorkspaceMakesRoom(t *testing.T) {
	dir := t.TempDir()
	open := func() {
		t.Helper()
		w, err := vox.OpenWorkspace(dir)
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
	if _, err := vox.OpenWorkspace(filepath.Join(dir, young, "index.html")); err == nil {
		t.Error("a file was taken for a folder")
	}
}
