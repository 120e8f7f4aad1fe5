package testkit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/auth"
	"github.com/gorilla/websocket"

	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/traces"
	"voxgate/internal/testkit"
	"voxgate/internal/testkit/bridgetest"
	"voxgate/signaling"
	"voxgate/signaling/client"
)

// recordedTurn holds the part of a recorded turn of the model that the person should get.
type recordedTurn struct {
	text  string
	voice time.Duration
	cut   bool // the turn was interrupted by the person or the client
	over  bool // the recording contains the end of the turn
}

// faulty lists recordings of a faulty server, by name, and the expected reaction of the gateway.
var faulty = map[string]struct {
	remedies bool   // the gateway asks again or reconnects, and reports it if nothing helps
	silence  bool   // the gateway sends silence after speech, so that the model detects its end
	code     string // code of the error that ends the conversation, or ""
}{
	// gemini-3.8-live detects the end of speech only from audio. The recorded server does not react to the gateway's silence.
	"oc-38-audiostreamend-ignored": {remedies: true, silence: true},
	"oc-38-microphone-stops":       {remedies: true, silence: true},

	// An empty turn does not count as an answer, and the gateway does not wait 55 s for one.
	"issue-25-vertex-response-rejected":        {remedies: true},
	"issue-31-the-same-words-again-after-55-s": {remedies: true},

	// The model rejects the client's configuration.
	"oc-38et-scheduling-refused": {code: "refused"},
}

// Each recorded session is replayed with a complete gateway and a WebSocket client. The server sends its recorded messages at
// the recorded times, and the client acts like the recorded client. The person gets the model's whole output once, and the
// gateway tries no remedy on a healthy model.
func TestRecordedSessions(t *testing.T) {
	t.Parallel()
	list, err := traces.ReadTests("../../bridge/gemini/traces/testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, trace := range list {
		if trace.Name == "closes" || !slices.ContainsFunc(trace.Lines, func(l traces.Line) bool { return l.Dir == traces.Down }) {
			continue // "closes" has close messages without sessions, which the test of the decoder uses
		}
		t.Run(trace.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { playTrace(t, trace) })
		})
	}
}

// player replays a recording.
type player struct {
	t        *testing.T
	trace    traces.Trace
	upstream *bridgetest.Upstream
	client   *traceClient

	mu     sync.Mutex
	first  *bridgetest.Conn
	link   *bridgetest.Conn // the newest connection
	speech []int16          // audio that the microphone must still send, in real time
	burst  []int16          // audio that the microphone must send at once
	mute   bool             // the microphone sends nothing
	done   chan struct{}    // closed to stop the microphone
}

// playTrace replays a recording, and checks the messages that the client got.
func playTrace(t *testing.T, trace traces.Trace) {
	p := &player{t: t, trace: trace, upstream: bridgetest.NewUpstream(t), done: make(chan struct{})}
	p.client = dialTraceGateway(t, p.upstream, trace.IsVertex())
	p.client.send("CONNECT_GEMINI", `{"initialConfig":`+string(p.config())+`}`)
	p.link = p.accept(p.upstream.NextConn())
	p.first = p.link
	synctest.Wait()
	if n := len(p.client.find("SETUP_COMPLETE")); n != 1 {
		t.Fatalf("%d times SETUP_COMPLETE", n)
	}
	var running sync.WaitGroup
	running.Go(p.acceptLinks)
	running.Go(p.runMicrophone)
	defer func() { close(p.done); running.Wait() }()
	p.play()
	wanted := readTurns(trace)
	if len(wanted) == 0 || wanted[len(wanted)-1].over {
		time.Sleep(20 * time.Second) // time in which a faulty watchdog would act
	} else {
		time.Sleep(3 * time.Second) // the recording ends in the middle of an answer
	}
	p.check(wanted)
}

// traceClient is a WebSocket client of a gateway in a synctest bubble.
type traceClient struct {
	t    *testing.T
	conn *websocket.Conn

	writing sync.Mutex
	mu      sync.Mutex
	got     []testkit.Message
}

// dialTraceGateway starts a gateway that uses upstream as its model, and connects a client to it over pipes.
func dialTraceGateway(t *testing.T, upstream *bridgetest.Upstream, onVertex bool) *traceClient {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	o := bridge.Options{
		Client:  &api.Client{BaseURL: "http://gemini.test", NetDial: upstream.Dial},
		Backend: "emulator", Park: time.Minute, Stall: 6 * time.Second, Logger: log,
	}
	if onVertex {
		o.Client.Vertex = &api.Vertex{Project: "p", Fetch: func(context.Context) (*auth.Token, error) {
			return &auth.Token{Value: "t"}, nil
		}}
	}
	host := bridge.NewHost(o)
	endpoint := &client.Server{Host: host, Logger: log}
	server := signaling.NewServer(signaling.Options{Logger: log}, signaling.Endpoint{Pattern: "/ws", Socket: endpoint})
	pipes := bridgetest.NewPipeNetwork()
	pipes.ServeUntilEnd(t, server, func() {
		if err := host.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := server.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	conn, response, err := (&websocket.Dialer{NetDialContext: pipes.Dial}).Dial("ws://localhost/ws", nil)
	if err != nil {
		t.Fatalf("%v: %v", err, response)
	}
	c := &traceClient{t: t, conn: conn}
	read := make(chan struct{})
	go func() { defer close(read); c.read() }()
	t.Cleanup(func() { _ = conn.Close(); <-read })
	return c
}

// read stores the gateway's messages until the end of the connection.
func (c *traceClient) read() {
	for {
		_, raw, err := c.conn.ReadMessage()
		if err != nil {
			return
		}
		var m testkit.Message
		if err := json.Unmarshal(raw, &m); err != nil {
			c.t.Errorf("%s: %v", raw, err)
		}
		c.mu.Lock()
		c.got = append(c.got, m)
		c.mu.Unlock()
	}
}

// send sends a message. After the end of the conversation, the message is lost.
func (c *traceClient) send(kind, payload string) {
	c.writing.Lock()
	defer c.writing.Unlock()
	_ = c.conn.WriteMessage(websocket.TextMessage, testkit.EncodeMessage(kind, payload))
}

// sendPCM sends audio at 16 kHz in messages of 100 ms, all at once.
func (c *traceClient) sendPCM(pcm []int16) {
	for piece := range slices.Chunk(pcm, 1600) {
		c.send("SEND_REALTIME_INPUT", `{"audio":{"mimeType":"audio/pcm;rate=16000","data":"`+testkit.Base64PCM(piece)+`"}}`)
	}
}

// find returns all received messages of a type.
func (c *traceClient) find(kind string) (found []testkit.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.got {
		if m.Type == kind {
			found = append(found, m)
		}
	}
	return found
}

// config returns the recorded setup in the form of the gateway's client protocol.
func (p *player) config() json.RawMessage {
	var setup map[string]json.RawMessage
	if json.Unmarshal(p.trace.Setup(), &setup) != nil {
		setup = map[string]json.RawMessage{}
	}
	config := map[string]json.RawMessage{}
	for _, name := range []string{"tools", "systemInstruction"} {
		if setup[name] != nil {
			config[name] = setup[name]
		}
	}
	if model := p.trace.ModelName(); strings.HasPrefix(model, "gemini-") && !strings.Contains(model, " ") {
		config["model"] = fmt.Appendf(nil, "%q", model)
	}
	if bytes.Contains(setup["realtimeInputConfig"], []byte(`"disabled": true`)) {
		config["voxgate"] = json.RawMessage(`{"vad":{"enabled":false}}`)
	}
	if names := p.callNames(); config["tools"] == nil && names != nil {
		var functions []any
		for _, name := range names {
			functions = append(functions, map[string]any{"name": name, "description": "a recorded function"})
		}
		config["tools"] = testkit.Must(json.Marshal([]any{map[string]any{"functionDeclarations": functions}}))
	}
	encoded, err := json.Marshal(config)
	if err != nil {
		p.t.Fatal(err)
	}
	return encoded
}

// acceptLinks accepts the gateway's connections after the first one.
func (p *player) acceptLinks() {
	for {
		select {
		case l := <-p.upstream.Conns:
			p.mu.Lock()
			p.link = p.accept(l)
			p.mu.Unlock()
		case <-p.done:
			return
		}
	}
}

// accept accepts a connection. If the recording has no resumption handles, it sends one, because the gateway requests them.
func (p *player) accept(l *bridgetest.Conn) *bridgetest.Conn {
	l.SendSetupComplete()
	if !slices.ContainsFunc(p.trace.Lines, func(l traces.Line) bool { return strings.Contains(traces.Kind(l.Msg), "handle") }) {
		l.SendHandle(fmt.Sprintf("handle-%d", time.Now().UnixNano()))
	}
	return l
}

// runMicrophone sends the audio of the client, and otherwise silence, in real time.
func (p *player) runMicrophone() {
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		select {
		case <-p.done:
			tick.Stop()
			return
		case <-tick.C:
		}
		frame := make([]int16, 1600)
		p.mu.Lock()
		burst := p.burst
		p.burst = nil
		mute := p.mute
		n := copy(frame, p.speech)
		p.speech = p.speech[n:]
		p.mu.Unlock()
		if len(burst) > 0 {
			p.client.sendPCM(burst)
		} else if !mute || n > 0 {
			p.client.sendPCM(frame)
		}
	}
}

// quickest is the delay of an answer in recordings without times.
const quickest = 800 * time.Millisecond

// bargeIn is the time from the start of speech until the recorded server interrupts its answer.
const bargeIn = 350 * time.Millisecond

// hasNoClient reports whether the recording has only messages of the server.
func (p *player) hasNoClient() bool {
	return !slices.ContainsFunc(p.trace.Lines, func(l traces.Line) bool { return l.Dir == traces.Up })
}

// isTranscribed reports whether the recording has a transcript of the person's speech, from the line with index at on.
func (p *player) isTranscribed(at int) bool {
	return slices.ContainsFunc(p.trace.Lines[at:], func(l traces.Line) bool {
		return strings.Contains(traces.Kind(l.Msg), "inputTranscription")
	})
}

// speak makes the microphone send a sound, followed by silence as long as in the recording.
func (p *player) speak(sound traces.Sound) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.speech, p.mute = append(p.speech, sound.PCM(16000)...), false
	if d, err := time.ParseDuration(p.trace.Comment.Microphone); err == nil {
		p.speech, p.mute = append(p.speech, make([]int16, int(d.Seconds()*16000))...), true
	}
}

// gap is the time between two lines in recordings without times.
const gap = 20 * time.Millisecond

// play replays the messages of the server, and the actions of the client.
func (p *player) play() {
	begin, first := time.Now(), -1.0
	var played time.Time // time at which the voice so far has been played
	wasInput := false    // the previous line is input of the person or the client
	for i, l := range p.trace.Lines {
		if l.MS == nil || *l.MS == 0 && first < 0 {
			time.Sleep(gap)
			if kind := traces.Kind(l.Msg); l.Dir == traces.Down && wasInput && !strings.Contains(kind, "inputTranscription") {
				time.Sleep(quickest)
			}
			if p.hasNoClient() && traces.ParseAnswer(l.Msg).Interrupted && p.isTranscribed(i) { // the recording lacks the speech
				p.speak(traces.Sound{Length: 400 * time.Millisecond})
				time.Sleep(bargeIn)
			}
			if l.Dir == traces.Up { // the client has waited for the end of the answer
				time.Sleep(time.Until(played.Add(time.Second)))
			}
		} else {
			if first < 0 {
				first = *l.MS - float64(gap.Milliseconds())
			}
			time.Sleep(time.Until(begin.Add(time.Duration((*l.MS - first) * float64(time.Millisecond)))))
		}
		wasInput = l.Dir == traces.Up || strings.Contains(traces.Kind(l.Msg), "inputTranscription")
		switch l.Dir {
		case traces.Down:
			if traces.Kind(l.Msg) == "setupComplete" {
				continue
			}
			if now := time.Now(); played.Before(now) {
				played = now
			}
			played = played.Add(traces.ParseAnswer(l.Msg).Voice * time.Duration(l.MessageCount()))
			for range l.MessageCount() {
				p.send(traces.FillSound(l.Msg, 1000, 24000))
			}
		case traces.Up:
			for range l.MessageCount() {
				p.act(i, l)
			}
		case traces.EndClose:
			end, err := l.CloseFrame()
			if err != nil {
				p.t.Fatal(err)
			}
			p.current().CloseWith(end.Code, end.Reason)
		}
	}
}

func (p *player) current() *bridgetest.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.link
}

func (p *player) send(msg json.RawMessage) { p.current().Send("%s", msg) }

// act repeats an action of the recorded client.
func (p *player) act(at int, l traces.Line) {
	m, err := traces.ParseClient(l.Msg)
	if err != nil {
		p.t.Fatal(err)
	}
	synctest.Wait()
	switch {
	case m.RealtimeInput != nil:
		p.input(at, l, m.RealtimeInput)
	case m.ClientContent != nil:
		turns := m.ClientContent.Turns
		switch {
		case len(turns) == 0:
			p.client.send("SEND_MESSAGE", `{"parts":[],"turnComplete":true}`)
		case m.ClientContent.TurnComplete: // the protocol has no message for a history
			p.client.send("SEND_MESSAGE", `{"parts":`+string(turns[len(turns)-1].Parts)+`,"turnComplete":true}`)
		}
	case m.ToolResponse != nil:
		for _, r := range m.ToolResponse.FunctionResponses {
			if !slices.Contains(p.callIDs(), r.ID) {
				continue // recorded test clients also answer calls that the model has not made
			}
			p.client.send("SEND_TOOL_RESPONSE", string(testkit.Must(json.Marshal(map[string]any{
				"toolResponse": map[string]any{"functionResponses": []any{map[string]any{"id": r.ID, "name": r.Name, "response": r.Response}}},
			}))))
		}
	}
	synctest.Wait()
}

// input repeats the realtime input of the recorded client.
func (p *player) input(at int, l traces.Line, in *traces.RealtimeInput) {
	for _, blob := range in.Audio {
		sound, ok := traces.ParseSoundPlaceholder(blob.Data)
		if !ok || sound.Silent {
			continue // the microphone sends silence all the time
		}
		if l.MS == nil || p.sentAtOnce(at, *l.MS, sound.Length) {
			p.mu.Lock()
			p.burst = append(p.burst, sound.PCM(16000)...)
			p.mu.Unlock()
			time.Sleep(gap)
			continue
		}
		p.speak(sound)
	}
	for mark, is := range map[string]bool{
		"audioStreamEnd": in.AudioStreamEnd, "activityStart": in.ActivityStart, "activityEnd": in.ActivityEnd,
	} {
		if is {
			synctest.Wait()
			p.client.send("SEND_REALTIME_INPUT", `{"`+mark+`":true}`)
			synctest.Wait()
		}
	}
}

// sentAtOnce reports whether speech was sent faster than real time: the server has transcribed it in less than its length.
func (p *player) sentAtOnce(at int, ms float64, length time.Duration) bool {
	for _, l := range p.trace.Lines[at+1:] {
		if l.MS != nil && *l.MS > ms+float64(length.Milliseconds()) {
			return false
		}
		if strings.Contains(traces.Kind(l.Msg), "inputTranscription") {
			return true
		}
	}
	return false
}

// callNames returns the names of the functions that the model calls in the recording.
func (p *player) callNames() (names []string) {
	for _, l := range p.trace.Lines {
		for _, name := range traces.CallNames(l.Msg) {
			if l.Dir == traces.Down && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// callIDs returns the IDs of the model's calls in the recording.
func (p *player) callIDs() (ids []string) {
	for _, l := range p.trace.Lines {
		if l.Dir == traces.Down {
			ids = append(ids, traces.CallIDs(l.Msg)...)
		}
	}
	return ids
}

// readTurns returns the turns that the person should get.
func readTurns(trace traces.Trace) (turns []recordedTurn) {
	var turn recordedTurn
	end := func() {
		if strings.TrimSpace(turn.text) == "<no speech>" {
			turn = recordedTurn{}
		}
		if turn.text != "" || turn.voice > 0 {
			turns = append(turns, turn)
		}
		turn = recordedTurn{}
	}
	stopped := false // an empty turn of the client has stopped the answer; further output of the model is dropped
	for _, l := range trace.Lines {
		if m, err := traces.ParseClient(l.Msg); l.Dir == traces.Up && err == nil {
			if stopped = m.ClientContent != nil && m.ClientContent.TurnComplete && len(m.ClientContent.Turns) == 0; stopped {
				turn.cut, turn.over = true, true
				end()
			}
		}
		if l.Dir != traces.Down || stopped {
			continue
		}
		said := traces.ParseAnswer(l.Msg)
		turn.text += said.Text
		turn.voice += said.Voice * time.Duration(l.MessageCount())
		if said.Interrupted || said.TurnComplete {
			turn.cut, turn.over = turn.cut || said.Interrupted, true
			end()
		}
	}
	end()
	return turns
}

// check compares the messages that the client got with the wanted turns.
func (p *player) check(wanted []recordedTurn) {
	p.t.Helper()
	fault := faulty[p.trace.Name]
	text := ""
	for _, m := range p.client.find("CONTENT_MESSAGE") {
		text += traces.ParseAnswer(m.Payload).Text
	}
	var least, most time.Duration
	rest, ended := text, 0
	for _, turn := range wanted {
		common := commonPrefix(rest, turn.text)
		if !turn.cut && turn.over && common != turn.text {
			p.t.Errorf("the person read %q, want %q next", rest, turn.text)
		}
		rest = rest[len(common):]
		if !turn.cut {
			least += turn.voice
		}
		most += turn.voice
		if turn.over {
			ended++
		}
	}
	if rest != "" {
		p.t.Errorf("the person read %q, which the model has not said", rest)
	}
	slack := 60 * time.Millisecond * time.Duration(len(wanted)+1)
	voice, other := p.heard()
	if voice < least-slack || voice > most+slack {
		p.t.Errorf("the person heard %v, want %v to %v", voice, least, most)
	}
	if other > slack && !fault.remedies {
		p.t.Errorf("the person heard %v of the gateway", other)
	}
	completes, cuts := p.client.find("TURN_COMPLETE"), p.client.find("INTERRUPTED")
	// The client may also be told the end of a turn without output.
	if n := len(completes) + len(cuts); !fault.remedies && (n < ended || n > p.turnCompletes()) {
		p.t.Errorf("%d turns were completed and %d cut off, want %d in all", len(completes), len(cuts), ended)
	}
	if fault.silence {
		p.checkSilence()
	}
	p.checkCalls()
	stalls := slices.DeleteFunc(p.client.find("LOG_MESSAGE"), func(m testkit.Message) bool {
		return !strings.Contains(string(m.Payload), `"stall"`)
	})
	if len(stalls) > 0 && !fault.remedies {
		p.t.Errorf("a remedy was tried: %v", stalls)
	}
	failures := p.client.find("GEMINI_ERROR")
	switch {
	case fault.code != "" && len(failures) == 1:
		testkit.CheckError(p.t, failures[0], fault.code, "")
	case fault.code != "" || len(failures) > 0 && !fault.remedies:
		p.t.Errorf("the person got the errors %v, want one with the code %q", failures, fault.code)
	}
}

// heard returns the duration of the model's voice that the client received, and of other sounds.
func (p *player) heard() (voice, other time.Duration) {
	for _, m := range p.client.find("AUDIO_CHUNK") {
		for _, sample := range testkit.DecodeChunk(p.t, m) {
			switch sample {
			case 0:
			case 1000:
				voice += time.Second / 24000
			default:
				other += time.Second / 24000
			}
		}
	}
	return voice, other
}

// turnCompletes returns the number of turns that the recorded server has completed.
func (p *player) turnCompletes() (n int) {
	for _, l := range p.trace.Lines {
		if l.Dir == traces.Down && traces.ParseAnswer(l.Msg).TurnComplete {
			n++
		}
	}
	return n
}

// checkSilence checks that the model got enough silence after speech to detect its end.
func (p *player) checkSilence() {
	p.t.Helper()
	spoke, silence, longest := false, 0, 0
	for _, sample := range p.first.ReceivedPCM() {
		if sample != 0 {
			spoke, silence = true, 0
		} else if spoke {
			silence++
			longest = max(longest, silence)
		}
	}
	if got := time.Duration(longest) * time.Second / 16000; got < 1500*time.Millisecond {
		p.t.Errorf("the model got %v of silence behind the speech, want 1.5 s", got)
	}
}

// checkCalls checks that the client got each recorded call once, in order.
func (p *player) checkCalls() {
	p.t.Helper()
	var asked []string
	for _, m := range p.client.find("TOOL_CALL") {
		asked = append(asked, traces.CallIDs(m.Payload)...)
	}
	if want := p.callIDs(); !slices.Equal(asked, want) {
		p.t.Errorf("the client was asked %v, want %v", asked, want)
	}
}

// commonPrefix returns the longest common prefix of two texts, in bytes.
func commonPrefix(a, b string) string {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return a[:n]
}
