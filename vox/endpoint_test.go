package vox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge"
	"voxgate/bridge/gemini/emulator"
	"voxgate/internal/testkit"
	"voxgate/media"
	"voxgate/signaling/compat/geminirest"
	"voxgate/vox"
	desk "voxgate/vox/assistant"
	"voxgate/vox/voxtest"
)

// A client that follows only the design has a complete conversation.
func TestVOXClientOfTheDesign(t *testing.T) {
	t.Parallel()
	seen := &testkit.SeenByModel{}
	c := voxtest.Dial(t, testkit.StartGateway(t, voxtest.Serve(t, seen, nil)), nil)
	if r := c.StartConversation(`,"theme":"expert","projectContext":{"name":"shop"}`); r.SessionID == "" || r.Theme != "expert" ||
		r.Model != "gemini-3.8-live" ||
		r.Mode != "live" ||
		r.Resumed ||
		r.Resume != "" {
		t.Errorf("%+v", r)
	}
	c.SendAudio(testkit.MakeSentence(440, time.Second, voxtest.Rate))
	c.AwaitEvent("transcript", func(f voxtest.Fields) bool { return f.Role == "user" && f.Text != "" })
	c.AwaitEvent("transcript", func(f voxtest.Fields) bool { return f.Role == "vox" && f.Text != "" })
	awaitVoice(c, 20000)
	c.Send(`{"type":"end"}`)
	if f := c.AwaitEvent("session_end", nil); f.Reason != "user" {
		t.Errorf("%+v", f)
	}
	if voice := testkit.TrimSilence(c.ReceivedVoice()); !testkit.IsTone(voice, 440) {
		t.Errorf("%d samples, share of 440 Hz %.2f", len(voice), testkit.ToneShare(voice, 440))
	}
	c.Ear.Lock()
	defer c.Ear.Unlock()
	for i, n := range c.Frames {
		if n == 0 || n%2 != 0 || n > 4800 {
			t.Errorf("frame %d has %d bytes", i, n)
		}
	}
	opened := seen.EventsOf(emulator.EventOpened)
	if len(opened) != 1 || !slices.Equal(opened[0].Tools, voxTools) || !strings.Contains(opened[0].Text, `{"name":"shop"}`) ||
		!strings.HasSuffix(opened[0].Text, "Current theme: expert") {
		t.Errorf("the model got %+v", opened)
	}
}

// voxTools are VOX's own tools, without a tool for canvases.
var voxTools = slices.Sorted(slices.Values(desk.Names))

// Each tool does what its declaration describes.
func TestVOXTools(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t, voxtest.Serve(t, nil, nil))
	c := voxtest.Dial(t, g, nil)
	c.StartConversation(`,"projectContext":{"name":"a shop"},"targets":["studio","the till"],"questions":true`)

	type found struct{ Tools []struct{ ID, Name string } }
	var list found
	if err := json.Unmarshal(c.CallFunction("search_tools", `{"query":"payments"}`).Data, &list); err != nil || len(list.Tools) == 0 {
		t.Fatal(err, list)
	}
	c.AwaitEvent("transcript", says(list.Tools[0].Name))
	var better found
	if err := json.Unmarshal(c.CallFunction("recommend_tools", `{"project_summary":"a shop that sells shoes"}`).Data, &better); err != nil ||
		len(better.Tools) == 0 {
		t.Fatal(err, better)
	}
	c.SendText(`/tool add_tool {"tool_id":"` + list.Tools[0].ID + `"}`)
	if a := c.AwaitEvent("ui_action", nil); a.Action != "add_tool" || a.ToolID != list.Tools[0].ID {
		t.Errorf("%+v", a)
	}
	c.AwaitEvent("tool_result", func(f voxtest.Fields) bool { return strings.Contains(string(f.Data), "integration_prompt") })
	c.SendText(`/tool navigate_ui {"target":"the till"}`)
	if a := c.AwaitEvent("ui_action", nil); a.Action != "navigate" || a.Target != "the till" {
		t.Errorf("%+v", a)
	}
	c.AwaitEvent("tool_result", nil)
	c.SendText(`/tool navigate_ui {"target":"elsewhere"}`) // not one of the targets: the model and the developer get an error
	if l := c.AwaitEvent("log", nil); !strings.Contains(l.Message, "'studio', 'the till'") || c.CountMessages("error") != 0 {
		t.Errorf("%+v, %d errors", l, c.CountMessages("error"))
	}
	c.SendText(`/tool generate_app {"prompt":"a counter"}`)
	q := c.AwaitEvent("question", nil)
	if !strings.Contains(q.Text, "Generate this app?") || !strings.Contains(q.Text, "a counter") {
		t.Errorf("%+v", q)
	}
	c.Send(`{"type":"answer","id":"` + q.ID + `","yes":true}`)
	made := c.AwaitEvent("ui_action", func(f voxtest.Fields) bool { return f.Action == "app_ready" })
	c.AwaitEvent("tool_result", func(f voxtest.Fields) bool {
		return f.Name == "generate_app" && strings.Contains(string(f.Data), made.URL)
	})
	resp, err := http.Get(g.HTTP + "/" + made.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if page, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK || !strings.Contains(string(page), "A counter") ||
		!slices.Contains(made.Files, "index.html") {
		t.Errorf("%d %s, %v", resp.StatusCode, page, made)
	}
	status := string(c.CallFunction("get_project_status", `{}`).Data)
	for _, part := range []string{"a shop", list.Tools[0].ID, made.URL, "the till"} {
		if !strings.Contains(status, part) {
			t.Errorf("the project lacks %q: %s", part, status)
		}
	}
	c.SendText(`/tool generate_app {"prompt":"another counter"}`)
	q = c.AwaitEvent("question", nil)
	c.Send(`{"type":"answer","id":"` + q.ID + `","yes":false}`)
	c.AwaitEvent("tool_result", func(f voxtest.Fields) bool { return strings.Contains(string(f.Data), `"error"`) })
}

// If the client cannot show questions, the model asks, and the user must have said something before an app is
// written.
func TestVOXAsksByVoice(t *testing.T) {
	t.Parallel()
	c := voxtest.Dial(t, testkit.StartGateway(t, voxtest.Serve(t, nil, nil)), nil)
	c.StartConversation("")
	c.SendText(`/tool generate_app {"prompt":"a counter"}`)
	c.AwaitEvent("transcript", says("must agree first"))
	c.SendText(`/tool answer_question {"yes":true}`)
	c.AwaitEvent("ui_action", func(f voxtest.Fields) bool { return f.Action == "app_ready" })
}

// An unknown model is rejected at once, and not only with the first question.
func TestVOXRefusesUnknownModels(t *testing.T) {
	t.Parallel()
	c := voxtest.Dial(t, testkit.StartGateway(t, voxtest.Serve(t, nil, nil)), nil)
	c.Send(`{"type":"start","model":"qwerty-7"}`)
	c.AwaitEvent("error", func(f voxtest.Fields) bool {
		return f.Code == "bad_message" && strings.Contains(f.Message, "no model qwerty-7")
	})
	c.AwaitEvent("session_end", nil)
}

// A project outlives its conversation, and its apps have versions, from which the client may choose.
func TestVOXKeepsItsProject(t *testing.T) {
	t.Parallel()
	c := voxtest.Dial(t, testkit.StartGateway(t, voxtest.Serve(t, nil, nil)), nil)
	var ready struct{ Project string }
	c.Send(`{"type":"start","questions":true}`)
	begun, _ := c.AwaitMatch(0, "ready", func(testkit.Message) bool { return true })
	begun.DecodePayload(t, &ready)
	version := func(n int) func(voxtest.Fields) bool {
		return func(f voxtest.Fields) bool { return f.Action == "app_ready" && f.Version == n }
	}
	c.SendText("A list for my family")
	c.AwaitEvent("tool_result", func(f voxtest.Fields) bool { return f.Name == "recommend_tools" })
	c.CallFunction("add_tool", `{"tool_id":"vue"}`)
	c.SendText("Build it")
	c.AwaitEvent("question", nil)
	c.SendText("Yes")
	c.AwaitEvent("question", func(f voxtest.Fields) bool { return f.Withdrawn })
	first := c.AwaitEvent("ui_action", version(1))
	c.SendText("Make the button green")
	second := c.AwaitEvent("ui_action", version(2))
	if first.App != "Family list" || second.App != first.App || second.URL == first.URL {
		t.Errorf("%+v, %+v", first, second)
	}
	c.SendText("Undo")
	if undone := c.AwaitEvent("ui_action", version(1)); undone.URL != first.URL {
		t.Errorf("%+v", undone)
	}
	c.Send(`{"type":"version","version":2}`)
	c.AwaitEvent("ui_action", version(2))
	c.Send(`{"type":"version","version":7}`)
	c.AwaitEvent("error", func(f voxtest.Fields) bool { return strings.Contains(f.Message, "no version 7") })
	c.Send(`{"type":"end"}`)
	c.AwaitEvent("session_end", nil)
	for _, model := range []string{"", "gemini-3.8-flash"} {
		c.Send(`{"type":"start","model":"` + model + `","project":"` + ready.Project + `"}`)
		c.AwaitEvent("ready", nil)
		c.AwaitEvent("ui_action", func(f voxtest.Fields) bool { return f.ToolID == "vue" })
		c.AwaitEvent("ui_action", version(2))
		c.Send(`{"type":"end"}`)
		c.AwaitEvent("session_end", nil)
	}
	c.Send(`{"type":"start","project":"` + strings.Repeat("A", 26) + `"}`)
	c.AwaitEvent("log", func(f voxtest.Fields) bool { return strings.Contains(f.Message, "no longer stored here") })
	c.AwaitEvent("ready", nil)
}

// After an interruption there is less than 200 ms of the old voice, and the transcript has only what was heard.
func TestVOXInterruption(t *testing.T) {
	t.Parallel()
	c := voxtest.Dial(t, testkit.StartGateway(t, voxtest.Serve(t, nil, nil)), nil)
	c.StartConversation("")
	c.SendAudio(testkit.MakeSentence(440, 4*time.Second, voxtest.Rate))
	awaitVoice(c, 12000)
	c.SendAudio(testkit.MakeTone(880, 500*time.Millisecond, voxtest.Rate))
	c.AwaitEvent("interrupted", nil)
	before := len(c.ReceivedVoice())
	c.SendAudio(testkit.MakeSilence(time.Second, voxtest.Rate))
	awaitVoice(c, before+6000)
	after := c.ReceivedVoice()[before:]
	old := 0
	for part := range slices.Chunk(after, 480) {
		if len(testkit.TrimSilence(part)) > 240 && testkit.IsTone(part, 440) {
			old += len(part)
		}
	}
	if old > bridge.VoiceRate/5 {
		t.Errorf("%v of the old voice came after the interruption", media.Duration(old, bridge.VoiceRate))
	}
}

// An interrupted answer is reported up to the position that was heard.
func TestVOXTellsWhatWasHeard(t *testing.T) {
	t.Parallel()
	const long = "One thing. Two things. Three things are more than two things. Four things, five things, six things and so on until " +
		"there are twelve of them. The end."
	c := voxtest.Dial(t, testkit.StartGateway(t, voxtest.Serve(t, nil, nil)), nil)
	c.StartConversation("")
	c.SendText(long)
	c.AwaitEvent("transcript", nil)
	c.SendText("stop")
	c.AwaitEvent("interrupted", nil)
	c.AwaitEvent("transcript", says("stop"))
	c.SendText("again")
	c.AwaitEvent("transcript", says("again"))
	turns := transcriptOf(c, "vox")
	if len(turns) != 3 || !strings.HasPrefix("You said: "+long, strings.TrimSpace(turns[0])) || strings.Contains(turns[0], "The end.") ||
		turns[1] != "You said: stop" ||
		turns[2] != "You said: again" {
		t.Errorf("%q", turns)
	}
	c.SendText(long)
	c.AwaitEvent("transcript", says("The end."))
	if turns := transcriptOf(c, "vox"); turns[3] != "You said: "+long {
		t.Errorf("%q", turns[3])
	}
	if n := c.CountMessages("transcript"); n > 15 {
		t.Errorf("%d phrases: they are words", n)
	}
}

// While the client is muted, no audio is sent to the model, and the model is informed.
func TestVOXMute(t *testing.T) {
	t.Parallel()
	seen := &testkit.SeenByModel{}
	c := voxtest.Dial(t, testkit.StartGateway(t, voxtest.Serve(t, seen, nil)), nil)
	c.StartConversation("")
	c.SendAudio(append(testkit.MakeSilence(300*time.Millisecond, voxtest.Rate), testkit.MakeTone(440, time.Second, voxtest.Rate)...))
	c.Send(`{"type":"mute","muted":true}`) // this ends the sentence
	c.SendAudio(testkit.MakeSentence(880, 2*time.Second, voxtest.Rate))
	c.AwaitEvent("transcript", func(f voxtest.Fields) bool { return f.Role == "vox" })
	c.Send(`{"type":"mute","muted":false}`)
	awaitVoice(c, 20000)
	c.SendAudio(testkit.MakeSentence(300, time.Second, voxtest.Rate))
	c.AwaitEvent("transcript", func(f voxtest.Fields) bool { return f.Role == "vox" })
	c.Send(`{"type":"end"}`)
	c.AwaitEvent("session_end", nil)
	for i, hz := range []float64{440, 300} {
		if heard := seen.EventsOf(emulator.EventUserTurn); len(heard) != 2 {
			t.Fatalf("the model has heard %d turns", len(heard))
		} else if pcm := media.NewResampler(heard[i].Rate, bridge.VoiceRate).Resample(heard[i].PCM); !testkit.IsTone(
			testkit.TrimSilence(pcm), hz,
		) {
			t.Errorf("turn %d is not of %v Hz", i, hz)
		}
	}
}

// With push-to-talk a pause ends no turn, and the end that the client marks does. Without it, marks are refused.
func TestVOXPushToTalk(t *testing.T) {
	t.Parallel()
	seen := &testkit.SeenByModel{}
	c := voxtest.Dial(t, testkit.StartGateway(t, voxtest.Serve(t, seen, nil)), nil)
	c.StartConversation(`,"pushToTalk":true`)
	for _, hz := range []float64{440, 300} {
		c.Send(`{"type":"talk","talking":true}`)
		c.SendAudio(testkit.MakeSentence(hz, time.Second, voxtest.Rate))
		c.SendAudio(testkit.MakeSilence(2*time.Second, voxtest.Rate))
		c.SendAudio(testkit.MakeTone(hz, time.Second, voxtest.Rate))
		c.Send(`{"type":"talk","talking":false}`)
		c.Send(`{"type":"mute","muted":true}`) // with push-to-talk, this does not end the turn
		c.Send(`{"type":"mute","muted":false}`)
		for _, kind := range []string{"usage", "latency", "transcript"} {
			c.AwaitEvent(kind, nil)
		}
	}
	if heard := seen.EventsOf(emulator.EventUserTurn); len(heard) != 2 {
		t.Errorf("the model has heard %d turns", len(heard))
	}
	c.Send(`{"type":"end"}`)
	c.AwaitEvent("session_end", nil)
	c.StartConversation("")
	c.Send(`{"type":"talk","talking":true}`)
	if f := c.AwaitEvent("error", nil); f.Code != "bad_message" {
		t.Errorf("%+v", f)
	}
}

// Another theme is another conversation on the same socket, with another voice.
func TestVOXChangesItsTheme(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t, voxtest.Serve(t, nil, nil))
	c := voxtest.Dial(t, g, nil)
	for theme, voice := range map[string]string{"warm": "Aoede", "retro": "Charon", "": "Orus", "gothic": "Orus"} {
		r := c.StartConversation(`,"theme":"` + theme + `"`)
		effective := make(chan json.RawMessage, 1)
		stop, err := g.Host.Session(r.SessionID).Watch(func(e bridge.Event) {
			if done, ok := e.Body.(bridge.SetupComplete); ok {
				select {
				case effective <- done.EffectiveConfig:
				default:
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if config := string(<-effective); !strings.Contains(config, `"voiceName":"`+voice+`"`) ||
			!strings.Contains(config, `"inputAudioTranscription"`) {
			t.Errorf("%q: %s", theme, config)
		}
		stop()
		if known := theme == "warm" || theme == "retro"; known != (r.Theme == theme) || !known && r.Theme != "expert" {
			t.Errorf("%q became %q", theme, r.Theme)
		}
		c.Send(`{"type":"end"}`) // the next start follows without waiting for the reply
	}
	c.StartConversation("")
	if n := c.CountMessages("session_end"); n != 4 || c.CountMessages("error") != 0 {
		t.Errorf("%d conversations have ended, %d errors", n, c.CountMessages("error"))
	}
	logs := 0
	for _, m := range c.Messages() {
		if m.Type == "log" && strings.Contains(string(m.Payload), "gothic") {
			logs++
		}
	}
	if logs != 1 {
		t.Errorf("%d logs of the theme that there is not", logs)
	}
}

// The Live models: the one of the design, one that was shut down, and the default.
func TestVOXModels(t *testing.T) {
	t.Parallel()
	c := voxtest.Dial(t, testkit.StartGateway(t, voxtest.Serve(t, nil, nil)), nil)
	for asked, want := range map[string]string{
		"gemini-2.5-flash-native-audio-preview-12-2025": "gemini-2.5-flash-native-audio-preview-12-2025",
		"gemini-2.0-flash-live-001":                     "gemini-3.8-live",
		"":                                              "gemini-3.8-live",
	} {
		if r := c.StartConversation(`,"model":"` + asked + `"`); r.Model != want || r.Mode != "live" {
			t.Errorf("%q became %+v", asked, r)
		}
		c.SendText("hello")
		c.AwaitEvent("transcript", says("hello"))
		c.Send(`{"type":"end"}`)
		c.AwaitEvent("session_end", nil)
	}
	c.AwaitMatch(0, "a log of the model", func(m testkit.Message) bool {
		return m.Type == "log" && strings.Contains(string(m.Payload), "shut down")
	})
}

// The loss of a socket loses nothing else: the project is kept, and what was made meanwhile is sent.
func TestVOXResume(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t, voxtest.Serve(t, nil, nil))
	first := voxtest.Dial(t, g, nil)
	r := first.StartConversation(`,"theme":"warm","projectContext":{"name":"a shop"},"resume":true,"questions":true`)
	if r.Resume == "" {
		t.Fatal("no token")
	}
	added := first.CallFunction("add_tool", `{"tool_id":"stripe"}`)
	first.SendText(`/tool generate_app {"prompt":"a counter"}`)
	q := first.AwaitEvent("question", nil)
	first.Conn.Close()
	<-first.Done

	// Other endpoints do not accept this endpoint's resume token, and this one does not accept theirs.
	web := testkit.DialWebSocket(t, g.URL)
	web.Send("CONNECT_GEMINI", `{"initialConfig":{},"resumable":true,"resumeToken":"`+r.Resume+`"}`)
	_, theirs := testkit.ParseSetup(t, web.AwaitEvent("SETUP_COMPLETE"), false)
	stranger := voxtest.Dial(t, g, nil)
	if s := stranger.StartConversation(`,"resume":"` + theirs + `"`); s.Resumed {
		t.Error("a token for another protocol was good here")
	}

	second := voxtest.Dial(t, g, nil)
	again := second.StartConversation(`,"theme":"retro","resume":"` + r.Resume + `"`)
	if again.SessionID != r.SessionID || !again.Resumed || again.Theme != "warm" || again.Resume == "" || again.Resume == r.Resume {
		t.Errorf("%+v became %+v", r, again)
	}
	second.AwaitEvent("ui_action", func(f voxtest.Fields) bool { return f.Action == "add_tool" && f.ToolID == "stripe" }) // sent again
	if asked := second.AwaitEvent("question", nil); asked.ID != q.ID {
		t.Errorf("%+v became %+v", q, asked)
	}
	second.Send(`{"type":"answer","id":"` + q.ID + `","yes":true}`)
	second.AwaitEvent("ui_action", func(f voxtest.Fields) bool { return f.Action == "app_ready" })
	status := string(second.CallFunction("get_project_status", `{}`).Data)
	for _, part := range []string{"a shop", "stripe", "vox/apps/"} {
		if !strings.Contains(status, part) || !strings.Contains(string(added.Data), "stripe") {
			t.Errorf("the project lacks %q: %s", part, status)
		}
	}
	// A second socket takes over the conversation.
	third := voxtest.Dial(t, g, nil)
	third.StartConversation(`,"resume":"` + again.Resume + `"`)
	if f := second.AwaitEvent("session_end", nil); f.Reason != "error" || !strings.Contains(f.Message, "Another connection") {
		t.Errorf("%+v", f)
	}
	if code := second.AwaitCloseCode(); code != websocket.CloseNormalClosure {
		t.Errorf("closed with %d", code)
	}
	third.SendText("hello")
	third.AwaitEvent("transcript", says("hello"))
}

// A client that resumes gets what was made while it was away.
func TestVOXTellsWhatWasMissed(t *testing.T) {
	t.Parallel()
	write := make(chan struct{})
	g := testkit.StartGateway(t, voxtest.Serve(t, nil, func(d *vox.Server) {
		generate := d.Generate
		d.Generate = func(
			ctx context.Context, account bridge.Account, model string, request json.RawMessage, piece func(json.RawMessage) error,
		) (bridge.Cost, error) {
			<-write
			return generate(ctx, account, model, request, piece)
		}
	}))
	first := voxtest.Dial(t, g, nil)
	r := first.StartConversation(`,"resume":true,"questions":true`)
	first.SendText(`/tool generate_app {"prompt":"a counter"}`)
	q := first.AwaitEvent("question", nil)
	first.Send(`{"type":"answer","id":"` + q.ID + `","yes":true}`)
	first.AwaitEvent("ui_action", func(f voxtest.Fields) bool { return f.Action == "app_progress" })
	parked, done := make(chan struct{}), make(chan struct{})
	stop, err := g.Host.Session(r.SessionID).Watch(func(e bridge.Event) {
		switch b := e.Body.(type) {
		case bridge.StateChange:
			if b.State == bridge.StateParked {
				close(parked)
			}
		case bridge.ToolStatus:
			if b.Status == bridge.StatusDone {
				close(done)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	first.Conn.Close()
	<-parked
	close(write)
	<-done
	for range 2 { // the first of them may have been lost with its socket
		c := voxtest.Dial(t, g, nil)
		r = c.StartConversation(`,"resume":"` + r.Resume + `"`)
		if a := c.AwaitEvent("ui_action", nil); a.Action != "app_ready" || a.URL == "" {
			t.Errorf("%+v", a)
		}
	}
}

// An invalid message gets an error, and the conversation continues.
func TestVOXBadFrames(t *testing.T) {
	t.Parallel()
	c := voxtest.Dial(t, testkit.StartGateway(t, voxtest.Serve(t, nil, nil)), nil)
	refusals := 0
	try := func(name string, kind int, raw, code string) {
		t.Helper()
		c.SendFrame(kind, []byte(raw))
		if e := c.AwaitEvent("error", nil); e.Code != code || e.Message == "" {
			t.Errorf("%s: %+v, want %s", name, e, code)
		}
		if refusals++; c.CountMessages("error") != refusals {
			t.Errorf("%s: %d errors for %d frames", name, c.CountMessages("error"), refusals)
		}
	}
	text, binary := websocket.TextMessage, websocket.BinaryMessage
	try("sound before start", binary, "ab", "not_started")
	c.SendFrame(binary, []byte("ab")) // gets one error
	for _, m := range []string{
		`{"type":"mute","muted":true}`, `{"type":"end"}`, `{"type":"text","text":"hi"}`, `{"type":"answer","id":"a","yes":true}`,
	} {
		try("before start: "+m, text, m, "not_started")
	}
	for name, fields := range map[string]string{
		"a context that is a list":  `"projectContext":[1]`,
		"a context that is a text":  `"projectContext":"x"`,
		"a context that is too big": `"projectContext":{"a":"` + strings.Repeat("x", 64<<10) + `"}`,
		"a theme that is a number":  `"theme":1`,
		"no name of a model":        `"model":"a b"`,
		"an empty target":           `"targets":["a",""]`,
		"a target of two lines":     `"targets":["a\nb"]`,
		"a target that is too long": `"targets":["` + strings.Repeat("x", 65) + `"]`,
		"too many targets":          `"targets":["` + strings.Repeat(`a","`, 32) + `a"]`,
		"targets that are numbers":  `"targets":[1]`,
		"resume that is a number":   `"resume":1`,
		"questions that are a text": `"questions":"yes"`,
	} {
		try(name, text, `{"type":"start",`+fields+`}`, "bad_message")
	}
	c.StartConversation(`,"projectContext":null`)
	for name, raw := range map[string]string{
		"no JSON": `{"type":`, "a list": `[]`, "null": `null`, "nothing": ``, "no type": `{}`, "another type": `{"type":"sing"}`,
		"a type that is a number": `{"type":1}`,
		"what the gateway sends":  `{"type":"ready","sessionId":"a"}`, "mute without muted": `{"type":"mute"}`,
		"muted as a text": `{"type":"mute","muted":"yes"}`,
		"no text":         `{"type":"text"}`, "a text that is too long": `{"type":"text","text":"` + strings.Repeat("x", 20_001) + `"}`,
		"an answer without yes": `{"type":"answer","id":"a"}`, "an answer to nothing": `{"type":"answer","id":"a","yes":true}`,
	} {
		try(name, text, raw, "bad_message")
	}
	try("too long", text, `{"type":"text","text":"`+strings.Repeat("x", 128<<10)+`"}`, "too_large")
	try("too much sound", binary, strings.Repeat("a", 8194), "invalid_audio_format")
	try("a second start", text, `{"type":"start"}`, "already_started")
	c.SendText("hello")
	c.AwaitEvent("transcript", says("hello"))
	for range 2000 { // a flood does not fill the queue: only a few of the errors are sent
		c.SendFrame(text, []byte("{}"))
	}
	c.SendText("still here")
	c.AwaitEvent("transcript", says("still here"))
	if n := c.CountMessages("error") - refusals; n > 100 {
		t.Errorf("%d errors were sent", n)
	}
	c.Send(`{"type":"end"}`)
	c.AwaitEvent("session_end", nil)
}

// If a token is required, it is accepted in three places, and the client learns when its time ends.
func TestVOXWantsAToken(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, nil, voxtest.Serve(t, nil, nil))
	refused := func(c *voxtest.Client, start, code string) {
		t.Helper()
		c.Send(start)
		if e := c.AwaitEvent("error", nil); e.Code != code {
			t.Errorf("%+v", e)
		}
		if e := c.AwaitEvent("session_end", nil); e.Reason != "error" {
			t.Errorf("%+v", e)
		}
		if n := c.AwaitCloseCode(); n != websocket.ClosePolicyViolation {
			t.Errorf("closed with %d", n)
		}
	}
	refused(voxtest.Dial(t, l.Gateway, nil), `{"type":"start"}`, "unauthorized")
	refused(voxtest.Dial(t, l.Gateway, nil), `{"type":"start","token":"nonsense"}`, "unauthorized")
	refused(voxtest.Dial(t, l.Gateway, nil), `{"type":"start","token":"`+l.MintToken(`{"grant":{"doors":["web"]}}`)+`"}`, "forbidden")
	refused(
		voxtest.Dial(t, l.Gateway, nil),
		`{"type":"start","model":"models/gemini-3.8-flash","token":"`+l.MintToken(`{"grant":{"models":["*-live"]}}`)+`"}`,
		"forbidden",
	)
	voxtest.Dial(t, l.Gateway, http.Header{"Authorization": {"Bearer " + l.MintToken(`{}`)}}).StartConversation("")
	header := http.Header{"Sec-Websocket-Protocol": {"voxgate, voxgate.token." + l.MintToken(`{}`)}}
	voxtest.Dial(t, l.Gateway, header).StartConversation("")
	voxtest.Dial(t, l.Gateway, nil).StartConversation(`,"token":"` + l.MintToken(`{"grant":{"doors":["vox"]}}`) + `"`)

	for _, model := range []string{"gemini-3.8-live", "gemini-3.8-flash"} {
		c := voxtest.Dial(t, l.Gateway, nil)
		c.StartConversation(`,"model":"` + model + `","token":"` + l.MintToken(`{"once":false,"grant":{"maxSeconds":5}}`) + `"`)
		if f := c.AwaitEvent("session_end", nil); f.Reason != "timeout" || f.Message == "" {
			t.Errorf("%s: %+v", model, f)
		}
		c.StartConversation("") // with the token of the earlier start
	}
	// The client cannot change what the token prescribes.
	c := voxtest.Dial(t, l.Gateway, nil)
	l.EditKeys(testkit.SetGrants(map[string]any{}))
	token := l.MintToken(`{"grant":{"agent":{"model":"gemini-3.8-flash"}}}`)
	if r := c.StartConversation(`,"model":"gemini-3.8-live","token":"` + token + `"`); r.Mode != "text" {
		t.Errorf("%+v", r)
	}
}

// Tokens of text models count for the budget, too, and the end of a budget ends the conversation.
func TestVOXBudget(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, nil, voxtest.Serve(t, nil, nil))
	c := voxtest.Dial(t, l.Gateway, nil)
	c.StartConversation(`,"model":"gemini-3.8-flash","token":"` + l.MintToken(`{"grant":{"tokens":2500}}`) + `"`)
	c.SendText("How many words are there in this sentence, and what do they cost?")
	c.AwaitEvent("transcript", nil)
	c.AwaitEvent("state", func(f voxtest.Fields) bool { return f.State == "live" })
	c.SendText(strings.Repeat("As many as it takes. ", 400)) // more tokens than the budget has left
	if f := c.AwaitEvent("session_end", nil); f.Reason != "error" || !strings.Contains(f.Message, "used up") {
		t.Errorf("%+v", f)
	}
	c.AwaitCloseCode()
}

// A client that stops each answer before the model has reported its usage is charged all the same.
func TestVOXBudgetOfStoppedAnswers(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 4)
	chat := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // without this, the server does not detect the end of the connection
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(chat.Close)
	l := testkit.StartLockedGateway(
		t, nil, voxtest.Serve(t, nil, nil, geminirest.Route{Model: "gpt-*", OpenAI: &geminirest.OpenAI{URL: chat.URL + "/v1"}}),
	)
	c := voxtest.Dial(t, l.Gateway, nil)
	c.StartConversation(`,"model":"gpt-6-astra","token":"` + l.MintToken(`{"grant":{"tokens":2500}}`) + `"`)
	c.SendText("What is this?")
	<-asked
	for range 4 { // each request takes about 900 tokens, with the system instruction
		c.SendText("Something else.")
	}
	if f := c.AwaitEvent("session_end", nil); f.Reason != "error" || !strings.Contains(f.Message, "used up") {
		t.Errorf("%+v", f)
	}
	c.AwaitCloseCode()
}

// A client learns that the conversation is recorded, and which model writes apps for money.
func TestVOXTellsOfTheRecording(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	recorded := func(_ *testkit.Endpoints, o *bridge.Options) {
		o.Recordings, o.RecordAll, o.Backend = folder, true, "gemini"
	}
	c := voxtest.Dial(t, testkit.StartGateway(t, voxtest.Serve(t, nil, nil), recorded), nil)
	if r := c.StartConversation(""); !r.Recording || r.AppModel != "gemini-3.8-flash" {
		t.Errorf("%+v", r)
	}
	c.Send(`{"type":"end"}`)
	c.AwaitEvent("session_end", nil)
	if r := c.StartConversation(`,"model":"gemini-3.8-flash"`); !r.Recording {
		t.Errorf("typed talk: %+v", r)
	}
}

// Typed conversations have the same tools, and the next text stops what runs.
func TestVOXTypedTalk(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t, voxtest.Serve(t, nil, nil))
	c := voxtest.Dial(t, g, nil)
	if r := c.StartConversation(`,"model":"gemini-3.8-flash","projectContext":{"name":"a shop"},"questions":true`); r.Mode != "text" ||
		r.Model != "gemini-3.8-flash" {
		t.Fatalf("%+v", r)
	}
	c.SendText("Hello there. How are you?")
	c.AwaitEvent("transcript", says("How are you?"))
	if s := c.AwaitEvent("state", nil); s.State != "live" {
		t.Errorf("after an answer: %+v", s)
	}
	if found := c.CallFunction("search_tools", `{"query":"payments"}`); !strings.Contains(string(found.Data), "stripe") {
		t.Errorf("%s", found.Data)
	}
	c.AwaitEvent("transcript", says("search_tools says"))
	c.SendText(`/tool add_tool {"tool_id":"stripe"}`)
	if a := c.AwaitEvent("ui_action", nil); a.Action != "add_tool" || a.ToolID != "stripe" {
		t.Errorf("%+v", a)
	}
	c.AwaitEvent("transcript", says("add_tool says"))
	c.SendText(`/tool navigate_ui {"target":"nowhere"}`)
	if l := c.AwaitEvent("log", nil); !strings.Contains(l.Message, "'welcome', 'studio'") {
		t.Errorf("%+v", l)
	}
	c.AwaitEvent("transcript", says("navigate_ui says"))
	c.SendText(`/tool generate_app {"prompt":"a counter"}`)
	q := c.AwaitEvent("question", nil)
	c.SendText("Meanwhile something else.") // the tool continues
	c.AwaitEvent("transcript", says("something else"))
	c.Send(`{"type":"answer","id":"` + q.ID + `","yes":true}`)
	c.AwaitEvent("ui_action", func(f voxtest.Fields) bool { return f.Action == "app_ready" })
	c.AwaitEvent("tool_result", func(f voxtest.Fields) bool { return f.Name == "generate_app" && f.ID != "" })
	c.AwaitEvent("transcript", says("<!doctype html>")) // the model gets the result: the emulator writes an app if it reads about HTML
	if status := string(c.CallFunction("get_project_status", `{}`).Data); !strings.Contains(status, "vox/apps/") ||
		!strings.Contains(status, "stripe") {
		t.Errorf("%s", status)
	}
	c.Send(`{"type":"end"}`)
	c.StartConversation(`,"model":"a/../v1/files/x"`)
	c.SendText("Whose path is this?")
	if e := c.AwaitEvent("error", nil); e.Code != "refused" || !strings.Contains(e.Message, "slash") {
		t.Errorf("%+v", e)
	}
	c.Send(`{"type":"end"}`)
	c.StartConversation(`,"model":"models/gemini-3.8-flash"`)
	c.SendText("/status 429")
	if e := c.AwaitEvent("error", nil); e.Code != "busy" || e.Message == "" {
		t.Errorf("%+v", e)
	}
	c.AwaitEvent("state", nil) // it has ended all the same
	c.Send(`{"type":"answer","id":"` + q.ID + `","yes":true}`)
	if e := c.AwaitEvent("error", nil); e.Code != "bad_message" {
		t.Errorf("%+v", e)
	}
	c.SendText("On it goes.")
	c.AwaitEvent("transcript", says("On it goes."))
	c.Send(`{"type":"end"}`)
	if f := c.AwaitEvent("session_end", nil); f.Reason != "user" {
		t.Errorf("%+v", f)
	}
	c.StartConversation("") // now with a voice model
	if n := c.CountMessages("error"); n != 3 {
		t.Errorf("%d errors", n)
	}
}

// A model that calls tools in a loop is stopped.
func TestVOXTypedTalkHasABoundOnCalls(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	chat := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(
			w,
			`data: {"choices":[{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0,"id":"c","type":"function",`+
				`"function":{"name":"get_project_status","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`+"\n\ndata: [DONE]\n\n",
		)
	}))
	t.Cleanup(chat.Close)
	route := geminirest.Route{Model: "gpt-*", OpenAI: &geminirest.OpenAI{URL: chat.URL + "/v1"}}
	c := voxtest.Dial(t, testkit.StartGateway(t, voxtest.Serve(t, nil, nil, route)), nil)
	c.StartConversation(`,"model":"gpt-6-astra"`)
	c.SendText("Go on.")
	if e := c.AwaitEvent("error", nil); e.Code != "refused" || asked.Load() != 8 {
		t.Errorf("%+v after %d requests", e, asked.Load())
	}
}

// Without a workspace the tool reports that.
func TestVOXWithoutAWorkspace(t *testing.T) {
	t.Parallel()
	c := voxtest.Dial(t, testkit.StartGateway(t, voxtest.Serve(t, nil, func(d *vox.Server) { d.Workspace = nil })), nil)
	if r := c.StartConversation(""); r.AppModel != "" {
		t.Errorf("apps are written by %s", r.AppModel)
	}
	if r := c.CallFunction("generate_app", `{"prompt":"a counter"}`); !strings.Contains(string(r.Data), "workspace") {
		t.Errorf("%s", r.Data)
	}
}

// A client without a start message is disconnected, and a gateway that shuts down reports that.
func TestVOXClosesIdleAndBusyConnections(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t, voxtest.Serve(t, nil, nil))
	idle, busy := voxtest.Dial(t, g, nil), voxtest.Dial(t, g, nil)
	busy.StartConversation("")
	if code := idle.AwaitCloseCode(); code != websocket.ClosePolicyViolation {
		t.Errorf("a client that never began was closed with %d", code)
	}
	if err := g.Host.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if f := busy.AwaitEvent("session_end", nil); f.Reason != "error" || !strings.Contains(f.Message, "shutting down") {
		t.Errorf("%+v", f)
	}
	if code := busy.AwaitCloseCode(); code != websocket.CloseGoingAway {
		t.Errorf("closed with %d", code)
	}
}

// transcriptOf returns the text of a role, turn by turn.
func transcriptOf(c *voxtest.Client, role string) (turns []string) {
	last := ""
	for _, m := range c.Messages() {
		var f voxtest.Fields
		if m.Type != "sound" {
			m.DecodePayload(c.T, &f)
		}
		if f.Type != "transcript" {
			continue
		}
		switch {
		case f.Role == role && last == role && !f.NewTurn:
			turns[len(turns)-1] += f.Text
		case f.Role == role:
			turns = append(turns, f.Text)
		}
		last = f.Role
	}
	return turns
}

// says returns a predicate for transcripts of vox with these words.
func says(words string) func(voxtest.Fields) bool {
	return func(f voxtest.Fields) bool { return f.Role == "vox" && strings.Contains(f.Text, words) }
}

// awaitVoice waits until more than this number of samples has arrived, without the silence at both ends.
func awaitVoice(c *voxtest.Client, samples int) {
	c.T.Helper()
	c.AwaitMatch(0, "sound", func(m testkit.Message) bool {
		return m.Type == "sound" && len(testkit.TrimSilence(c.ReceivedVoice())) > samples
	})
}
