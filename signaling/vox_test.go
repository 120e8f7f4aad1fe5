package signaling_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/emulator"
	"voxgate/media"
	"voxgate/signaling"
	"voxgate/signaling/rest"
	"voxgate/signaling/rtc"
	"voxgate/signaling/vox"
	desk "voxgate/tools/vox"
)

const voxRate = 16000

// seenByModel is what the emulator was told.
type seenByModel struct {
	mu     sync.Mutex
	events []emulator.Event
}

func (s *seenByModel) add(e emulator.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}

func (s *seenByModel) all(what emulator.What) (list []emulator.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.What == what {
			list = append(list, e)
		}
	}
	return list
}

// withVOX opens the door of the VOX assistant, with a workspace, beside those that there are.
func withVOX(t *testing.T, seen *seenByModel, change func(*vox.Door), routes ...rest.Route) option {
	t.Helper()
	o := emulator.Options{Espeak: emulator.NoVoice}
	if seen != nil {
		o.Observe = seen.add
	}
	model := emulator.New(o)
	up := httptest.NewServer(model)
	workspace, err := desk.OpenWorkspace(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	client := &api.Client{BaseURL: up.URL}
	models := rest.New(nil, client, routes, log) // which serves no calls itself
	t.Cleanup(func() {
		models.Close()
		workspace.Close()
		model.Close()
		up.Close()
	})
	return func(d *doors, ho *bridge.Options) {
		ho.Client = client
		before := d.more
		d.more = func(host *bridge.Host, api *rtc.API) []signaling.Door {
			door := &vox.Door{Host: host, Generate: models.Generate, AppModel: "gemini-3.8-flash", Workspace: workspace, Logger: log}
			if change != nil {
				change(door)
			}
			list := door.Doors()
			if before != nil {
				list = append(list, before(host, api)...)
			}
			return list
		}
	}
}

// voxClient is a client as the design of the VOX assistant describes it: binary frames are sound, text frames have a type.
type voxClient struct {
	*client
	ear    sync.Mutex
	pcm    []int16
	frames []int // bytes of each
}

func dialVOX(t *testing.T, g *gateway, header http.Header) *voxClient {
	t.Helper()
	c := &voxClient{}
	c.client = dialDoor(t, strings.TrimSuffix(g.url, "/")+"/api/vox/live", header, func(kind int, raw []byte) message {
		if kind == websocket.BinaryMessage {
			c.ear.Lock()
			defer c.ear.Unlock()
			c.pcm = media.AppendSamples(c.pcm, raw)
			c.frames = append(c.frames, len(raw))
			return message{Type: "sound"} // so that it can be waited for
		}
		m := message{Payload: raw}
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Errorf("not JSON: %s", raw)
		}
		m.Payload = raw
		return m
	})
	return c
}

// voxFields are those of all messages.
type voxFields struct {
	Type, SessionID, Theme, Model, Mode, Resume string
	Role, Text                                  string
	ID, Name, Title                             string
	Args, Data                                  json.RawMessage
	Action, Target, URL, App                    string
	ToolID                                      string `json:"tool_id"`
	Message, Code, Reason, State, Level         string
	Resumed, NewTurn, Withdrawn, Recording      bool
	RetryAfterMs                                int
	Files                                       []string
}

func (c *voxClient) send(text string) { c.t.Helper(); c.raw(websocket.TextMessage, []byte(text)) }

func (c *voxClient) say(pcm []int16) {
	c.t.Helper()
	for part := range slices.Chunk(pcm, voxRate/50) {
		c.raw(websocket.BinaryMessage, media.AppendBytes(nil, part))
	}
}

// live says in real time, as a microphone does.
func (c *voxClient) sayLive(pcm []int16) {
	c.t.Helper()
	begun := time.Now()
	i := 0
	for part := range slices.Chunk(pcm, voxRate/50) {
		time.Sleep(time.Until(begun.Add(time.Duration(i) * 20 * time.Millisecond)))
		c.raw(websocket.BinaryMessage, media.AppendBytes(nil, part))
		i++
	}
}

// expect waits for the next message of a type that fits.
func (c *voxClient) expect(kind string, fits func(voxFields) bool) voxFields {
	c.t.Helper()
	var f voxFields
	_, c.client.at = c.wait(c.client.at, kind, func(m message) bool {
		if f = (voxFields{}); m.Type != "sound" {
			m.read(c.t, &f)
		}
		return f.Type == kind && (fits == nil || fits(f))
	})
	return f
}

func (c *voxClient) start(fields string) voxFields {
	c.t.Helper()
	c.send(`{"type":"start"` + fields + `}`)
	return c.expect("ready", nil)
}

// types types something.
func (c *voxClient) types(text string) {
	c.t.Helper()
	c.send(fmt.Sprintf(`{"type":"text","text":%q}`, text))
}

// call types a call, and returns its result.
func (c *voxClient) call(name, args string) voxFields {
	c.t.Helper()
	c.types("/tool " + name + " " + args)
	call := c.expect("tool_call", func(f voxFields) bool { return f.Name == name })
	var want, got any
	if json.Unmarshal([]byte(args), &want) != nil || json.Unmarshal(call.Args, &got) != nil || fmt.Sprint(want) != fmt.Sprint(got) {
		c.t.Errorf("%s was called with %s", name, call.Args)
	}
	return c.expect("tool_result", func(f voxFields) bool { return f.ID == call.ID })
}

func (c *voxClient) heard() []int16 {
	c.ear.Lock()
	defer c.ear.Unlock()
	return slices.Clone(c.pcm)
}

// transcript is what a role has said, turn by turn.
func (c *voxClient) transcript(role string) (turns []string) {
	last := ""
	for _, m := range c.all() {
		var f voxFields
		if m.Type != "sound" {
			m.read(c.t, &f)
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

func (c *voxClient) says(words string) func(voxFields) bool {
	return func(f voxFields) bool { return f.Role == "vox" && strings.Contains(f.Text, words) }
}

// A client that knows no more than the design has a whole conversation.
func TestVOXClientOfTheDesign(t *testing.T) {
	t.Parallel()
	seen := &seenByModel{}
	c := dialVOX(t, newGateway(t, withVOX(t, seen, nil)), nil)
	if r := c.start(`,"theme":"expert","projectContext":{"name":"shop"}`); r.SessionID == "" || r.Theme != "expert" || r.Model != "gemini-3.8-live" || r.Mode != "live" || r.Resumed || r.Resume != "" {
		t.Errorf("%+v", r)
	}
	c.say(sentence(440, time.Second, voxRate))
	c.expect("transcript", func(f voxFields) bool { return f.Role == "user" && f.Text != "" })
	c.expect("transcript", func(f voxFields) bool { return f.Role == "vox" && f.Text != "" })
	c.hears(20000)
	c.send(`{"type":"end"}`)
	if f := c.expect("session_end", nil); f.Reason != "user" {
		t.Errorf("%+v", f)
	}
	if voice := loud(c.heard()); !toneIs(voice, 440) {
		t.Errorf("%d samples, share of 440 Hz %.2f", len(voice), toneShare(voice, 440))
	}
	c.ear.Lock()
	defer c.ear.Unlock()
	for i, n := range c.frames {
		if n == 0 || n%2 != 0 || n > 4800 {
			t.Errorf("frame %d has %d bytes", i, n)
		}
	}
	opened := seen.all(emulator.Opened)
	if len(opened) != 1 || !slices.Equal(opened[0].Tools, voxTools) || !strings.Contains(opened[0].Text, `{"name":"shop"}`) || !strings.HasSuffix(opened[0].Text, "Current theme: expert") {
		t.Errorf("the model was told %+v", opened)
	}
}

// voxTools are the six, and nothing is there to show a canvas with.
var voxTools = []string{"add_tool", "generate_app", "get_project_status", "navigate_ui", "recommend_tools", "search_tools"}

// hears waits until so many samples that are no silence have come.
func (c *voxClient) hears(samples int) {
	c.t.Helper()
	c.wait(0, "sound", func(m message) bool { return m.Type == "sound" && len(loud(c.heard())) > samples })
}

// Each of the six tools does what it says.
func TestVOXTools(t *testing.T) {
	t.Parallel()
	g := newGateway(t, withVOX(t, nil, nil))
	c := dialVOX(t, g, nil)
	c.start(`,"projectContext":{"name":"a shop"},"targets":["studio","the till"],"questions":true`)

	type found struct{ Tools []struct{ ID, Name string } }
	var list found
	if err := json.Unmarshal(c.call("search_tools", `{"query":"payments"}`).Data, &list); err != nil || len(list.Tools) == 0 {
		t.Fatal(err, list)
	}
	c.expect("transcript", c.says(list.Tools[0].Name))
	var better found
	if err := json.Unmarshal(c.call("recommend_tools", `{"project_summary":"a shop that sells shoes"}`).Data, &better); err != nil || len(better.Tools) == 0 {
		t.Fatal(err, better)
	}
	c.types(`/tool add_tool {"tool_id":"` + list.Tools[0].ID + `"}`)
	if a := c.expect("ui_action", nil); a.Action != "add_tool" || a.ToolID != list.Tools[0].ID {
		t.Errorf("%+v", a)
	}
	c.expect("tool_result", func(f voxFields) bool { return strings.Contains(string(f.Data), "integration_prompt") })
	c.types(`/tool navigate_ui {"target":"the till"}`)
	if a := c.expect("ui_action", nil); a.Action != "navigate" || a.Target != "the till" {
		t.Errorf("%+v", a)
	}
	c.expect("tool_result", nil)
	c.types(`/tool navigate_ui {"target":"elsewhere"}`) // is none of the targets: the model is told, and the developer
	if l := c.expect("log", nil); !strings.Contains(l.Message, "'studio', 'the till'") || c.count("error") != 0 {
		t.Errorf("%+v, %d errors", l, c.count("error"))
	}
	c.types(`/tool generate_app {"prompt":"a counter"}`)
	q := c.expect("question", nil)
	if !strings.Contains(q.Text, "Generate this app?") || !strings.Contains(q.Text, "a counter") {
		t.Errorf("%+v", q)
	}
	c.send(`{"type":"answer","id":"` + q.ID + `","yes":true}`)
	made := c.expect("ui_action", func(f voxFields) bool { return f.Action == "app_ready" })
	c.expect("tool_result", func(f voxFields) bool { return f.Name == "generate_app" && strings.Contains(string(f.Data), made.URL) })
	resp, err := http.Get(g.http + "/" + made.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if page, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK || !strings.Contains(string(page), "A counter") || !slices.Contains(made.Files, "index.html") {
		t.Errorf("%d %s, %v", resp.StatusCode, page, made)
	}
	status := string(c.call("get_project_status", `{}`).Data)
	for _, part := range []string{"a shop", list.Tools[0].ID, made.URL, "the till"} {
		if !strings.Contains(status, part) {
			t.Errorf("the project lacks %q: %s", part, status)
		}
	}
	c.types(`/tool generate_app {"prompt":"another counter"}`)
	q = c.expect("question", nil)
	c.send(`{"type":"answer","id":"` + q.ID + `","yes":false}`)
	c.expect("tool_result", func(f voxFields) bool { return strings.Contains(string(f.Data), `"error"`) })
}

// Where nobody can be asked by the client, the model asks, and the person must have said something before an app is made.
func TestVOXAsksByVoice(t *testing.T) {
	t.Parallel()
	c := dialVOX(t, newGateway(t, withVOX(t, nil, nil)), nil)
	c.start("")
	if r := c.call("generate_app", `{"prompt":"a counter"}`); !strings.Contains(string(r.Data), "must agree first") {
		t.Errorf("%s", r.Data)
	}
	c.types(`/tool generate_app {"prompt":"a counter"}`)
	c.expect("ui_action", func(f voxFields) bool { return f.Action == "app_ready" })
}

// After an interruption there is less than 200 ms of the old voice, and the transcript has only what was heard.
func TestVOXInterruption(t *testing.T) {
	t.Parallel()
	c := dialVOX(t, newGateway(t, withVOX(t, nil, nil)), nil)
	c.start("")
	c.say(sentence(440, 4*time.Second, voxRate))
	c.hears(12000)
	c.sayLive(tone(880, 500*time.Millisecond, voxRate))
	c.expect("interrupted", nil)
	before := len(c.heard())
	c.say(silence(time.Second, voxRate))
	c.hears(before + 6000)
	after := c.heard()[before:]
	old := 0
	for part := range slices.Chunk(after, 480) {
		if len(loud(part)) > 240 && toneIs(part, 440) {
			old += len(part)
		}
	}
	if old > bridge.VoiceRate/5 {
		t.Errorf("%v of the old voice came after the interruption", media.Duration(old, bridge.VoiceRate))
	}
}

// What an interrupted answer tells is the beginning of it, and less than all.
func TestVOXTellsWhatWasHeard(t *testing.T) {
	t.Parallel()
	const long = "One thing. Two things. Three things are more than two things. Four things, five things, six things and so on until there are twelve of them. The end."
	c := dialVOX(t, newGateway(t, withVOX(t, nil, nil)), nil)
	c.start("")
	c.types(long)
	c.expect("transcript", nil)
	c.types("stop")
	c.expect("interrupted", nil)
	c.expect("transcript", c.says("stop"))
	c.types("again")
	c.expect("transcript", c.says("again"))
	turns := c.transcript("vox")
	if len(turns) != 3 || !strings.HasPrefix("You said: "+long, strings.TrimSpace(turns[0])) || strings.Contains(turns[0], "The end.") || turns[1] != "You said: stop" || turns[2] != "You said: again" {
		t.Errorf("%q", turns)
	}
	c.types(long)
	c.expect("transcript", c.says("The end."))
	if turns := c.transcript("vox"); turns[3] != "You said: "+long {
		t.Errorf("%q", turns[3])
	}
	if n := c.count("transcript"); n > 15 {
		t.Errorf("%d phrases: they are words", n)
	}
}

// While muted nothing goes up, and the model knows.
func TestVOXMute(t *testing.T) {
	t.Parallel()
	seen := &seenByModel{}
	c := dialVOX(t, newGateway(t, withVOX(t, seen, nil)), nil)
	c.start("")
	c.say(append(silence(300*time.Millisecond, voxRate), tone(440, time.Second, voxRate)...))
	c.send(`{"type":"mute","muted":true}`) // which ends the sentence
	c.say(sentence(880, 2*time.Second, voxRate))
	c.expect("transcript", func(f voxFields) bool { return f.Role == "vox" })
	c.send(`{"type":"mute","muted":false}`)
	c.hears(20000)
	c.say(sentence(300, time.Second, voxRate))
	c.expect("transcript", func(f voxFields) bool { return f.Role == "vox" })
	c.send(`{"type":"end"}`)
	c.expect("session_end", nil)
	for i, hz := range []float64{440, 300} {
		if heard := seen.all(emulator.Heard); len(heard) != 2 {
			t.Fatalf("the model has heard %d turns", len(heard))
		} else if pcm := media.NewResampler(heard[i].Rate, bridge.VoiceRate).Resample(heard[i].PCM); !toneIs(loud(pcm), hz) {
			t.Errorf("turn %d is not of %v Hz", i, hz)
		}
	}
}

// Another theme is another conversation on the same socket, with another voice.
func TestVOXChangesItsTheme(t *testing.T) {
	t.Parallel()
	g := newGateway(t, withVOX(t, nil, nil))
	c := dialVOX(t, g, nil)
	for theme, voice := range map[string]string{"warm": "Aoede", "retro": "Charon", "": "Orus", "gothic": "Orus"} {
		r := c.start(`,"theme":"` + theme + `"`)
		told := make(chan json.RawMessage, 1)
		stop, err := g.host.Session(r.SessionID).Watch(func(e bridge.Event) {
			if done, ok := e.Body.(bridge.SetupComplete); ok {
				select {
				case told <- done.EffectiveConfig:
				default:
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if config := string(<-told); !strings.Contains(config, `"voiceName":"`+voice+`"`) || !strings.Contains(config, `"inputAudioTranscription"`) {
			t.Errorf("%q: %s", theme, config)
		}
		stop()
		if known := theme == "warm" || theme == "retro"; known != (r.Theme == theme) || !known && r.Theme != "expert" {
			t.Errorf("%q became %q", theme, r.Theme)
		}
		c.send(`{"type":"end"}`) // and the next start need not wait for its answer
	}
	c.start("")
	if n := c.count("session_end"); n != 4 || c.count("error") != 0 {
		t.Errorf("%d conversations have ended, %d errors", n, c.count("error"))
	}
	logs := 0
	for _, m := range c.all() {
		if m.Type == "log" && strings.Contains(string(m.Payload), "gothic") {
			logs++
		}
	}
	if logs != 1 {
		t.Errorf("%d logs of the theme that there is not", logs)
	}
}

// The models that talk: the one of the design, one that was shut down, and the default.
func TestVOXModels(t *testing.T) {
	t.Parallel()
	c := dialVOX(t, newGateway(t, withVOX(t, nil, nil)), nil)
	for asked, want := range map[string]string{
		"gemini-2.5-flash-native-audio-preview-12-2025": "gemini-2.5-flash-native-audio-preview-12-2025",
		"gemini-2.0-flash-live-001":                     "gemini-3.8-live",
		"":                                              "gemini-3.8-live",
	} {
		if r := c.start(`,"model":"` + asked + `"`); r.Model != want || r.Mode != "live" {
			t.Errorf("%q became %+v", asked, r)
		}
		c.types("hello")
		c.expect("transcript", c.says("hello"))
		c.send(`{"type":"end"}`)
		c.expect("session_end", nil)
	}
	c.wait(0, "a log of the model", func(m message) bool { return m.Type == "log" && strings.Contains(string(m.Payload), "shut down") })
}

// A socket that is lost takes nothing with it: the project is there, and what was made meanwhile is told.
func TestVOXResume(t *testing.T) {
	t.Parallel()
	g := newGateway(t, withVOX(t, nil, nil))
	first := dialVOX(t, g, nil)
	r := first.start(`,"theme":"warm","projectContext":{"name":"a shop"},"resume":true,"questions":true`)
	if r.Resume == "" {
		t.Fatal("no token")
	}
	added := first.call("add_tool", `{"tool_id":"stripe"}`)
	first.types(`/tool generate_app {"prompt":"a counter"}`)
	q := first.expect("question", nil)
	first.conn.Close()
	<-first.done

	// Another door does not know the token, and this one none of another's.
	web := dial(t, g.url)
	web.send("CONNECT_GEMINI", `{"initialConfig":{},"resumable":true,"resumeToken":"`+r.Resume+`"}`)
	_, theirs := setup(t, web.expect("SETUP_COMPLETE"), false)
	stranger := dialVOX(t, g, nil)
	if s := stranger.start(`,"resume":"` + theirs + `"`); s.Resumed {
		t.Error("a token of another door was good here")
	}

	second := dialVOX(t, g, nil)
	again := second.start(`,"theme":"retro","resume":"` + r.Resume + `"`)
	if again.SessionID != r.SessionID || !again.Resumed || again.Theme != "warm" || again.Resume == "" || again.Resume == r.Resume {
		t.Errorf("%+v became %+v", r, again)
	}
	second.expect("ui_action", func(f voxFields) bool { return f.Action == "add_tool" && f.ToolID == "stripe" }) // told again
	if asked := second.expect("question", nil); asked.ID != q.ID {
		t.Errorf("%+v became %+v", q, asked)
	}
	second.send(`{"type":"answer","id":"` + q.ID + `","yes":true}`)
	second.expect("ui_action", func(f voxFields) bool { return f.Action == "app_ready" })
	status := string(second.call("get_project_status", `{}`).Data)
	for _, part := range []string{"a shop", "stripe", "vox/apps/"} {
		if !strings.Contains(status, part) || !strings.Contains(string(added.Data), "stripe") {
			t.Errorf("the project lacks %q: %s", part, status)
		}
	}
	// A second socket takes the conversation over.
	third := dialVOX(t, g, nil)
	third.start(`,"resume":"` + again.Resume + `"`)
	if f := second.expect("session_end", nil); f.Reason != "error" || !strings.Contains(f.Message, "Another connection") {
		t.Errorf("%+v", f)
	}
	if code := second.closeCode(); code != websocket.CloseNormalClosure {
		t.Errorf("closed with %d", code)
	}
	third.types("hello")
	third.expect("transcript", third.says("hello"))
}

// What was made while nobody was there is told to who comes back.
func TestVOXTellsWhatWasMissed(t *testing.T) {
	t.Parallel()
	write := make(chan struct{})
	g := newGateway(t, withVOX(t, nil, func(d *vox.Door) {
		generate := d.Generate
		d.Generate = func(
			ctx context.Context, account bridge.Account, model string, request json.RawMessage, piece func(json.RawMessage) error,
		) (int, error) {
			<-write
			return generate(ctx, account, model, request, piece)
		}
	}))
	first := dialVOX(t, g, nil)
	r := first.start(`,"resume":true,"questions":true`)
	first.types(`/tool generate_app {"prompt":"a counter"}`)
	q := first.expect("question", nil)
	first.send(`{"type":"answer","id":"` + q.ID + `","yes":true}`)
	first.expect("ui_action", func(f voxFields) bool { return f.Action == "app_progress" })
	parked, done := make(chan struct{}), make(chan struct{})
	stop, err := g.host.Session(r.SessionID).Watch(func(e bridge.Event) {
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
	first.conn.Close()
	<-parked
	close(write)
	<-done
	for range 2 { // the first of them may have been lost with its socket
		c := dialVOX(t, g, nil)
		r = c.start(`,"resume":"` + r.Resume + `"`)
		if a := c.expect("ui_action", nil); a.Action != "app_ready" || a.URL == "" {
			t.Errorf("%+v", a)
		}
	}
}

// What the client must not send is told, and the conversation goes on.
func TestVOXBadFrames(t *testing.T) {
	t.Parallel()
	c := dialVOX(t, newGateway(t, withVOX(t, nil, nil)), nil)
	told := 0
	try := func(name string, kind int, raw, code string) {
		t.Helper()
		c.raw(kind, []byte(raw))
		if e := c.expect("error", nil); e.Code != code || e.Message == "" {
			t.Errorf("%s: %+v, want %s", name, e, code)
		}
		if told++; c.count("error") != told {
			t.Errorf("%s: %d errors for %d frames", name, c.count("error"), told)
		}
	}
	text, binary := websocket.TextMessage, websocket.BinaryMessage
	try("sound before start", binary, "ab", "not_started")
	c.raw(binary, []byte("ab")) // is told once
	for _, m := range []string{`{"type":"mute","muted":true}`, `{"type":"end"}`, `{"type":"text","text":"hi"}`, `{"type":"answer","id":"a","yes":true}`} {
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
	c.start(`,"projectContext":null`)
	for name, raw := range map[string]string{
		"no JSON": `{"type":`, "a list": `[]`, "null": `null`, "nothing": ``, "no type": `{}`, "another type": `{"type":"sing"}`, "a type that is a number": `{"type":1}`,
		"what the gateway sends": `{"type":"ready","sessionId":"a"}`, "mute without muted": `{"type":"mute"}`, "muted as a text": `{"type":"mute","muted":"yes"}`,
		"no text": `{"type":"text"}`, "a text that is too long": `{"type":"text","text":"` + strings.Repeat("x", 20_001) + `"}`,
		"an answer without yes": `{"type":"answer","id":"a"}`, "an answer to nothing": `{"type":"answer","id":"a","yes":true}`,
	} {
		try(name, text, raw, "bad_message")
	}
	try("too long", text, `{"type":"text","text":"`+strings.Repeat("x", 128<<10)+`"}`, "too_large")
	try("odd sound", binary, "abc", "invalid_audio_format")
	try("too much sound", binary, strings.Repeat("a", 8194), "invalid_audio_format")
	try("a second start", text, `{"type":"start"}`, "already_started")
	c.types("hello")
	c.expect("transcript", c.says("hello"))
	for range 2000 { // a flood fills nothing: few of the errors are told
		c.raw(text, []byte("{}"))
	}
	c.types("still here")
	c.expect("transcript", c.says("still here"))
	if n := c.count("error") - told; n > 100 {
		t.Errorf("%d errors were told", n)
	}
	c.send(`{"type":"end"}`)
	c.expect("session_end", nil)
}

// Where a token is wanted it is taken from the three places, and the end of the time that it grants is told.
func TestVOXWantsAToken(t *testing.T) {
	t.Parallel()
	l := newLocked(t, nil, withVOX(t, nil, nil))
	refused := func(c *voxClient, start, code string) {
		t.Helper()
		c.send(start)
		if e := c.expect("error", nil); e.Code != code {
			t.Errorf("%+v", e)
		}
		if e := c.expect("session_end", nil); e.Reason != "error" {
			t.Errorf("%+v", e)
		}
		if n := c.closeCode(); n != websocket.ClosePolicyViolation {
			t.Errorf("closed with %d", n)
		}
	}
	refused(dialVOX(t, l.gateway, nil), `{"type":"start"}`, "unauthorized")
	refused(dialVOX(t, l.gateway, nil), `{"type":"start","token":"nonsense"}`, "unauthorized")
	refused(dialVOX(t, l.gateway, nil), `{"type":"start","token":"`+l.mint(`{"grant":{"doors":["web"]}}`)+`"}`, "forbidden")
	refused(dialVOX(t, l.gateway, nil), `{"type":"start","model":"models/gemini-3.8-flash","token":"`+l.mint(`{"grant":{"models":["*-live"]}}`)+`"}`, "forbidden")
	dialVOX(t, l.gateway, http.Header{"Authorization": {"Bearer " + l.mint(`{}`)}}).start("")
	dialVOX(t, l.gateway, http.Header{"Sec-Websocket-Protocol": {"voxgate, voxgate.token." + l.mint(`{}`)}}).start("")
	dialVOX(t, l.gateway, nil).start(`,"token":"` + l.mint(`{"grant":{"doors":["vox"]}}`) + `"`)

	for _, model := range []string{"gemini-3.8-live", "gemini-3.8-flash"} {
		c := dialVOX(t, l.gateway, nil)
		c.start(`,"model":"` + model + `","token":"` + l.mint(`{"once":false,"grant":{"maxSeconds":1}}`) + `"`)
		if f := c.expect("session_end", nil); f.Reason != "timeout" || f.Message == "" {
			t.Errorf("%s: %+v", model, f)
		}
		c.start("") // with the token that it has shown
	}
	// What the token fixes the client cannot change.
	c := dialVOX(t, l.gateway, nil)
	l.edit(grants(map[string]any{}))
	if r := c.start(`,"model":"gemini-3.8-live","token":"` + l.mint(`{"grant":{"agent":{"model":"gemini-3.8-flash"}}}`) + `"`); r.Mode != "text" {
		t.Errorf("%+v", r)
	}
}

// Tokens of models that write are spent, too, and the end of a budget is that of the conversation.
func TestVOXBudget(t *testing.T) {
	t.Parallel()
	l := newLocked(t, nil, withVOX(t, nil, nil))
	c := dialVOX(t, l.gateway, nil)
	c.start(`,"model":"gemini-3.8-flash","token":"` + l.mint(`{"grant":{"tokens":2500}}`) + `"`)
	c.types("How many words are there in this sentence, and what do they cost?")
	c.expect("transcript", nil)
	c.expect("state", func(f voxFields) bool { return f.State == "live" })
	c.types(strings.Repeat("As many as it takes. ", 400)) // more than is left
	if f := c.expect("session_end", nil); f.Reason != "error" || !strings.Contains(f.Message, "spent") {
		t.Errorf("%+v", f)
	}
	c.closeCode()
}

// Who stops each answer before the model has told what it costs pays all the same.
func TestVOXBudgetOfStoppedAnswers(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 4)
	chat := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // without which its end is not noticed
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(chat.Close)
	l := newLocked(t, nil, withVOX(t, nil, nil, rest.Route{Model: "gpt-*", OpenAI: &rest.OpenAI{URL: chat.URL + "/v1"}}))
	c := dialVOX(t, l.gateway, nil)
	c.start(`,"model":"gpt-6-astra","token":"` + l.mint(`{"grant":{"tokens":2500}}`) + `"`)
	c.types("What is this?")
	<-asked
	for range 4 { // of which each takes some 900 tokens with its instruction
		c.types("Something else.")
	}
	if f := c.expect("session_end", nil); f.Reason != "error" || !strings.Contains(f.Message, "spent") {
		t.Errorf("%+v", f)
	}
	c.closeCode()
}

// A client is told that the conversation is recorded.
func TestVOXTellsOfTheRecording(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	recorded := func(_ *doors, o *bridge.Options) { o.Recordings, o.RecordAll = folder, true }
	c := dialVOX(t, newGateway(t, withVOX(t, nil, nil), recorded), nil)
	if r := c.start(""); !r.Recording {
		t.Errorf("%+v", r)
	}
	c.send(`{"type":"end"}`)
	c.expect("session_end", nil)
	if r := c.start(`,"model":"gemini-3.8-flash"`); r.Recording {
		t.Errorf("typed talk: %+v", r)
	}
}

// Typed talk has the same tools, and what runs is stopped by what is typed next.
func TestVOXTypedTalk(t *testing.T) {
	t.Parallel()
	g := newGateway(t, withVOX(t, nil, nil))
	c := dialVOX(t, g, nil)
	if r := c.start(`,"model":"gemini-3.8-flash","projectContext":{"name":"a shop"},"questions":true`); r.Mode != "text" || r.Model != "gemini-3.8-flash" {
		t.Fatalf("%+v", r)
	}
	c.types("Hello there. How are you?")
	c.expect("transcript", c.says("How are you?"))
	if s := c.expect("state", nil); s.State != "live" {
		t.Errorf("after an answer: %+v", s)
	}
	if found := c.call("search_tools", `{"query":"payments"}`); !strings.Contains(string(found.Data), "stripe") {
		t.Errorf("%s", found.Data)
	}
	c.expect("transcript", c.says("search_tools says"))
	c.types(`/tool add_tool {"tool_id":"stripe"}`)
	if a := c.expect("ui_action", nil); a.Action != "add_tool" || a.ToolID != "stripe" {
		t.Errorf("%+v", a)
	}
	c.expect("transcript", c.says("add_tool says"))
	c.types(`/tool navigate_ui {"target":"nowhere"}`)
	if l := c.expect("log", nil); !strings.Contains(l.Message, "'welcome', 'studio'") {
		t.Errorf("%+v", l)
	}
	c.expect("transcript", c.says("navigate_ui says"))
	c.types(`/tool generate_app {"prompt":"a counter"}`)
	q := c.expect("question", nil)
	c.types("Meanwhile something else.") // the tool goes on
	c.expect("interrupted", nil)
	c.expect("transcript", c.says("something else"))
	c.send(`{"type":"answer","id":"` + q.ID + `","yes":true}`)
	c.expect("ui_action", func(f voxFields) bool { return f.Action == "app_ready" })
	c.expect("tool_result", func(f voxFields) bool { return f.Name == "generate_app" && f.ID != "" })
	c.types("What has become of it?") // the result goes up with it: the emulator writes an app where it reads of HTML
	c.expect("transcript", c.says("<!doctype html>"))
	if status := string(c.call("get_project_status", `{}`).Data); !strings.Contains(status, "vox/apps/") || !strings.Contains(status, "stripe") {
		t.Errorf("%s", status)
	}
	c.send(`{"type":"end"}`)
	c.start(`,"model":"a/../v1/files/x"`)
	c.types("Whose path is this?")
	if e := c.expect("error", nil); e.Code != "refused" || !strings.Contains(e.Message, "slash") {
		t.Errorf("%+v", e)
	}
	c.send(`{"type":"end"}`)
	c.start(`,"model":"models/gemini-3.8-flash"`)
	c.types("/status 429")
	if e := c.expect("error", nil); e.Code != "busy" || e.Message == "" {
		t.Errorf("%+v", e)
	}
	c.expect("state", nil) // it is over all the same
	c.send(`{"type":"answer","id":"` + q.ID + `","yes":true}`)
	if e := c.expect("error", nil); e.Code != "bad_message" {
		t.Errorf("%+v", e)
	}
	c.types("On it goes.")
	c.expect("transcript", c.says("On it goes."))
	c.send(`{"type":"end"}`)
	if f := c.expect("session_end", nil); f.Reason != "user" {
		t.Errorf("%+v", f)
	}
	c.start("") // and now by voice
	if n := c.count("error"); n != 3 {
		t.Errorf("%d errors", n)
	}
}

// A model that calls tools again and again is stopped.
func TestVOXTypedTalkHasABoundOnCalls(t *testing.T) {
	t.Parallel()
	chat := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, `data: {"choices":[{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"get_project_status","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`+"\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(chat.Close)
	c := dialVOX(t, newGateway(t, withVOX(t, nil, nil, rest.Route{Model: "gpt-*", OpenAI: &rest.OpenAI{URL: chat.URL + "/v1"}})), nil)
	c.start(`,"model":"gpt-6-astra"`)
	c.types("Go on.")
	if e := c.expect("error", nil); e.Code != "tool_execution_error" || c.count("tool_call") != 8 || c.count("tool_result") != 8 {
		t.Errorf("%+v after %d calls", e, c.count("tool_call"))
	}
}

// Without a workspace the tool says so.
func TestVOXWithoutAWorkspace(t *testing.T) {
	t.Parallel()
	c := dialVOX(t, newGateway(t, withVOX(t, nil, func(d *vox.Door) { d.Workspace = nil })), nil)
	c.start("")
	if r := c.call("generate_app", `{"prompt":"a counter"}`); !strings.Contains(string(r.Data), "workspace") {
		t.Errorf("%s", r.Data)
	}
}

// Who does not come to a start is let go, and a gateway that stops says so.
func TestVOXLetsGo(t *testing.T) {
	t.Parallel()
	g := newGateway(t, withVOX(t, nil, nil))
	idle, busy := dialVOX(t, g, nil), dialVOX(t, g, nil)
	busy.start("")
	if code := idle.closeCode(); code != websocket.ClosePolicyViolation {
		t.Errorf("who never began was closed with %d", code)
	}
	if err := g.host.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if f := busy.expect("session_end", nil); f.Reason != "error" || !strings.Contains(f.Message, "shutting down") {
		t.Errorf("%+v", f)
	}
	if code := busy.closeCode(); code != websocket.CloseGoingAway {
		t.Errorf("closed with %d", code)
	}
}
