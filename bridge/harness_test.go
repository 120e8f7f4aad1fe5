package bridge_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/media"
)

// pipes is a network of net.Pipe, which works in a synctest bubble.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// serve has h answer on p until the test ends.
func (p *pipes) serve(t *testing.T, h http.Handler, stop func()) {
	server := &http.Server{Handler: h}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(p) }()
	t.Cleanup(func() { _ = p.Close(); stop(); _ = server.Close(); <-served })
}

// upstream is a Gemini that does what a test says. It hands every connection over to the test with its setup read.
type upstream struct {
	t      *testing.T
	pipes  *pipes
	links  chan *link
	serves sync.WaitGroup

	mu      sync.Mutex
	open    []*link
	refusal int   // HTTP status; 0: welcome
	down    error // of the network
	dials   int
}

func newUpstream(t *testing.T) *upstream {
	u := &upstream{t: t, pipes: newPipes(), links: make(chan *link, 100)}
	u.pipes.serve(t, u, func() {
		u.mu.Lock()
		for _, l := range u.open {
			_ = l.ws.Close()
		}
		u.mu.Unlock()
		u.serves.Wait()
	})
	return u
}

func (u *upstream) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	u.mu.Lock()
	down := u.down
	u.dials++
	u.mu.Unlock()
	if down != nil {
		return nil, down
	}
	return u.pipes.dial(ctx, network, addr)
}

// set changes how the next dials go.
func (u *upstream) set(refusal int, down error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.refusal, u.down = refusal, down
}

func (u *upstream) dialled() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.dials
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.serves.Add(1)
	defer u.serves.Done()
	u.mu.Lock()
	refusal := u.refusal
	u.mu.Unlock()
	if refusal != 0 {
		http.Error(w, "no", refusal)
		return
	}
	ws, err := (&websocket.Upgrader{ReadBufferSize: 8 << 10}).Upgrade(w, r, nil)
	if err != nil {
		return
	}
	l := &link{t: u.t, ws: ws, born: time.Now()}
	u.mu.Lock()
	u.open = append(u.open, l)
	u.mu.Unlock()
	defer ws.Close()
	_, data, err := ws.ReadMessage()
	if err != nil {
		return
	}
	var first struct{ Setup setup }
	if err := json.Unmarshal(data, &first); err != nil {
		u.t.Errorf("setup %s: %v", data, err)
		return
	}
	l.setup, l.raw = first.Setup, string(data)
	u.links <- l
	l.read()
}

// next is the next connection that the bridge has made.
func (u *upstream) next() *link {
	u.t.Helper()
	select {
	case l := <-u.links:
		return l
	case <-time.After(time.Minute):
		u.t.Fatal("nobody dials")
		return nil
	}
}

// forget passes over dials that nobody waited for: a session that ends may have begun one.
func (u *upstream) forget() {
	synctest.Wait()
	for len(u.links) > 0 {
		<-u.links
	}
}

// idle checks that nobody dials.
func (u *upstream) idle() {
	u.t.Helper()
	synctest.Wait()
	if n := len(u.links); n > 0 {
		u.t.Fatalf("%d more dials", n)
	}
}

type setup struct {
	Model             string
	SessionResumption struct{ Handle string }
	SystemInstruction struct{ Parts []struct{ Text string } }
	GenerationConfig  struct{ Temperature json.Number }
}

// link is the upstream's end of a connection.
type link struct {
	t     *testing.T
	ws    *websocket.Conn
	setup setup
	raw   string
	born  time.Time

	mu    sync.Mutex
	got   []input
	ended time.Time     // when the bridge closed it
	stall chan struct{} // not nil: it is not read until this is closed
}

// input is a message of the bridge.
type input struct {
	at    time.Time
	what  string // audio, mark NAME, text, typed, tool, picture
	text  string // what is said with it
	raw   string // of a typed turn and of a picture: all of it
	rate  int
	pcm   []int16
	tools []response
}

type response struct {
	ID, Name string
	Response json.RawMessage
}

func (l *link) read() {
	for {
		_, data, err := l.ws.ReadMessage()
		l.mu.Lock()
		if err != nil {
			l.ended = time.Now()
			l.mu.Unlock()
			return
		}
		l.got = append(l.got, l.parse(data))
		stall := l.stall
		l.mu.Unlock()
		if stall != nil {
			<-stall
		}
	}
}

func (l *link) parse(data []byte) input {
	var m struct {
		RealtimeInput *struct {
			Text                       string
			Audio, Video               *struct{ Data, MIMEType string }
			AudioStreamEnd             bool
			ActivityStart, ActivityEnd *struct{}
		}
		ClientContent *struct {
			Turns []struct{ Parts []struct{ Text string } }
		}
		ToolResponse  *struct{ FunctionResponses []response }
		ContextUpdate json.RawMessage
	}
	in := input{at: time.Now()}
	if !bytes.Contains(data, []byte(`"audio"`)) {
		in.raw = string(data)
	}
	if err := json.Unmarshal(data, &m); err != nil {
		l.t.Errorf("the bridge sent %s: %v", data, err)
		return in
	}
	switch r := m.RealtimeInput; {
	case m.ClientContent != nil:
		in.what = "typed"
		for i, turn := range m.ClientContent.Turns {
			if i > 0 {
				in.text += "+"
			}
			in.text += turn.Parts[0].Text
		}
	case m.ContextUpdate != nil:
		in.what, in.text = "update", string(m.ContextUpdate)
	case m.ToolResponse != nil:
		in.what, in.tools = "tool", m.ToolResponse.FunctionResponses
	case r == nil:
		l.t.Errorf("the bridge sent %s", data)
	case r.Audio != nil:
		raw, err := base64.StdEncoding.DecodeString(r.Audio.Data)
		if err != nil {
			l.t.Error(err)
		}
		in.what, in.pcm = "audio", make([]int16, len(raw)/2)
		for i := range in.pcm {
			in.pcm[i] = int16(binary.LittleEndian.Uint16(raw[2*i:]))
		}
		if _, err := fmt.Sscanf(r.Audio.MIMEType, "audio/pcm;rate=%d", &in.rate); err != nil {
			l.t.Errorf("mime type %q", r.Audio.MIMEType)
		}
	case r.Video != nil:
		in.what, in.text = "picture", r.Video.MIMEType
	case r.ActivityStart != nil:
		in.what = "mark activityStart"
	case r.ActivityEnd != nil:
		in.what = "mark activityEnd"
	case r.AudioStreamEnd:
		in.what = "mark audioStreamEnd"
	default:
		in.what, in.text = "text", r.Text
	}
	return in
}

// inputs is all that has come, once everything has come.
func (l *link) inputs() []input {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.got[:len(l.got):len(l.got)]
}

// said is what has come, without audio.
func (l *link) said() string {
	var words []string
	for _, in := range l.inputs() {
		switch {
		case in.what == "audio":
		case in.text != "":
			words = append(words, in.what+" "+in.text)
		default:
			words = append(words, in.what)
		}
	}
	return strings.Join(words, ", ")
}

// pcm is all the audio that has come.
func (l *link) pcm() []int16 {
	var pcm []int16
	for _, in := range l.inputs() {
		pcm = append(pcm, in.pcm...)
	}
	return pcm
}

// responses is what has come of answers to tool calls, as "id name {…}".
func (l *link) responses() []string {
	var list []string
	for _, in := range l.inputs() {
		for _, r := range in.tools {
			list = append(list, fmt.Sprintf("%s %s %s", r.ID, r.Name, r.Response))
		}
	}
	return list
}

// closed tells whether the bridge has closed it, and when.
func (l *link) closed() (time.Time, bool) {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended, !l.ended.IsZero()
}

// send sends a message as JSON.
func (l *link) send(format string, args ...any) {
	l.t.Helper()
	if err := l.ws.WriteMessage(websocket.BinaryMessage, fmt.Appendf(nil, format, args...)); err != nil {
		l.t.Errorf("send: %v", err)
	}
}

func (l *link) content(format string, args ...any) {
	l.t.Helper()
	l.send(`{"serverContent":{%s}}`, fmt.Sprintf(format, args...))
}

func (l *link) accept() *link { l.t.Helper(); l.send(`{"setupComplete":{}}`); return l }

func (l *link) handle(h string) {
	l.t.Helper()
	l.send(`{"sessionResumptionUpdate":{"newHandle":%q,"resumable":true}}`, h)
}

// voice is a modelTurn field with audio whose samples all have the value tag.
func voice(tag int16, d time.Duration) string {
	raw := make([]byte, 2*int(d.Seconds()*24000))
	for i := range len(raw) / 2 {
		binary.LittleEndian.PutUint16(raw[2*i:], uint16(tag))
	}
	return fmt.Sprintf(`"modelTurn":{"parts":[{"inlineData":{"mimeType":"audio/pcm;rate=24000","data":%q}}]}`,
		base64.StdEncoding.EncodeToString(raw))
}

// say sends d of voice in messages of at most a second, at once.
func (l *link) say(tag int16, d time.Duration) {
	l.t.Helper()
	for ; d > 0; d -= time.Second {
		l.content("%s", voice(tag, min(d, time.Second)))
	}
}

// answer sends a whole turn at once.
func (l *link) answer(tag int16, d time.Duration) {
	l.t.Helper()
	l.say(tag, d)
	l.content(`"generationComplete":true`)
	l.content(`"turnComplete":true`)
}

// cut ends the connection without a word.
func (l *link) cut() { _ = l.ws.NetConn().Close() }

// halt has the upstream stop reading, after one more message.
func (l *link) halt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stall = make(chan struct{})
}

// resume has it read on.
func (l *link) resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stall != nil {
		close(l.stall)
		l.stall = nil
	}
}

// end closes the connection with a code and a reason.
func (l *link) end(code int, reason string) {
	bye := websocket.FormatCloseMessage(code, reason)
	_ = l.ws.WriteControl(websocket.CloseMessage, bye, time.Now().Add(time.Second))
	_ = l.ws.Close()
}

// rig is a host with an upstream.
type rig struct {
	t     *testing.T
	up    *upstream
	host  *bridge.Host
	start time.Time
	log   *logs
	wg    sync.WaitGroup
}

func newRig(t *testing.T, change ...func(*bridge.Options)) *rig {
	r := &rig{t: t, up: newUpstream(t)}
	r.serve(r.up.dial, change...)
	return r
}

// serve starts the host. The options can be changed before.
func (r *rig) serve(dial func(context.Context, string, string) (net.Conn, error), change ...func(*bridge.Options)) {
	r.start, r.log = time.Now(), &logs{}
	o := bridge.Options{
		Client:  &api.Client{BaseURL: "http://gemini.test", NetDial: dial},
		Backend: "emulator", Park: time.Minute, Logger: slog.New(slog.NewJSONHandler(r.log, nil)),
	}
	for _, f := range change {
		f(&o)
	}
	r.host = bridge.NewHost(o)
	r.t.Cleanup(func() {
		if err := r.host.Shutdown(context.Background()); err != nil {
			r.t.Error(err)
		}
		r.wg.Wait()
		if bad := r.log.find("impossible step"); len(bad) > 0 {
			r.t.Errorf("%v", bad)
		}
	})
}

// logs keeps log lines.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// find returns the lines with a message.
func (l *logs) find(msg string) []map[string]any {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []map[string]any
	for line := range bytes.Lines(l.b.Bytes()) {
		var fields map[string]any
		if json.Unmarshal(line, &fields) == nil && fields["msg"] == msg {
			found = append(found, fields)
		}
	}
	return found
}

// caller is a bridge.Caller that writes down what it is told and hears.
type caller struct {
	r      *rig
	leave  func(error)
	left   chan error // what Serve shall return
	seated chan struct{}
	over   chan struct{}
	err    error // of Host.Serve, once over

	session *bridge.Session // once seated
	mic     *bridge.Microphone

	mu     sync.Mutex
	diary  []entry
	frames int
	last   uint64 // number of the newest event
	lost   bool   // nothing gets through to it
}

// entry is an event or a frame with sound.
type entry struct {
	at    time.Duration // since the rig's start
	event bridge.Body
	tag   int16

	number uint64 // of the event, and when it happened
	time   time.Time
}

// join starts a caller.
func (r *rig) join(o bridge.Open) *caller {
	r.t.Helper()
	c := &caller{r: r, left: make(chan error, 1), seated: make(chan struct{}), over: make(chan struct{})}
	c.leave = func(err error) { c.left <- err }
	if o.Config == nil {
		o.Config = json.RawMessage(`{}`)
	}
	r.wg.Go(func() {
		defer close(c.over)
		c.err = r.host.Serve(context.Background(), c, o)
	})
	return c
}

// connect starts a caller and accepts its link.
func (r *rig) connect(o bridge.Open) (*caller, *link) {
	r.t.Helper()
	c := r.join(o)
	l := r.up.next().accept()
	synctest.Wait()
	<-c.seated
	return c, l
}

func (r *rig) plain() (*caller, *link) { r.t.Helper(); return r.connect(bridge.Open{}) }

func (r *rig) since() time.Duration { return time.Since(r.start) }

// Serve implements bridge.Caller.
func (c *caller) Serve(ctx context.Context, s *bridge.Session) error {
	c.session = s
	mic, err := s.Mic(16000)
	if err != nil {
		return err
	}
	c.mic = mic
	s.Attach(c)
	s.Hold(false)
	close(c.seated)
	select {
	case err := <-c.left:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Notify implements bridge.Caller.
func (c *caller) Notify(e bridge.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, answer := e.Body.(bridge.SetupComplete); !answer && e.Number <= c.last {
		c.r.t.Errorf("event %d comes after event %d", e.Number, c.last)
	}
	c.last = max(c.last, e.Number)
	if !c.lost {
		c.diary = append(c.diary, entry{at: c.r.since(), event: e.Body, number: e.Number, time: e.Time})
	}
}

// Rate and Lead implement media.Output.
func (c *caller) Rate() int           { return 24000 }
func (c *caller) Lead() time.Duration { return 0 }

// WriteFrame implements media.Output. Frames of silence, and those that fade out after a flush, are not written down.
func (c *caller) WriteFrame(f media.Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if tag := f.PCM[len(f.PCM)/2]; tag != 0 {
		c.frames++
		c.diary = append(c.diary, entry{at: c.r.since(), tag: tag})
	}
	return nil
}

// entries is the diary so far.
func (c *caller) entries() []entry {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.diary[:len(c.diary):len(c.diary)]
}

// heard is the number of frames with sound so far.
func (c *caller) heard() int {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.frames
}

// events is the events so far.
func (c *caller) events() (events []bridge.Event) {
	for _, e := range c.entries() {
		if e.event != nil {
			events = append(events, bridge.Event{Number: e.number, Time: e.time, Body: e.event})
		}
	}
	return events
}

// lag has nothing get through to the caller any more.
func (c *caller) lag() {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = true
}

// forget empties the diary.
func (c *caller) forget() {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.diary = nil
}

// story is the diary in short: events by name and voices as tag*frames. What comes all the time is left out.
func (c *caller) story() string {
	var words []string
	var tag int16
	count := 0
	flush := func() {
		if count > 0 {
			words = append(words, fmt.Sprintf("%d*%d", tag, count))
		}
		count = 0
	}
	for _, e := range c.entries() {
		if e.event == nil {
			if e.tag != tag {
				flush()
			}
			tag = e.tag
			count++
			continue
		}
		word := strings.TrimPrefix(fmt.Sprintf("%T", e.event), "bridge.")
		switch e := e.event.(type) {
		case bridge.Raw, bridge.UserText, bridge.AssistantText, bridge.Thought, bridge.StateChange, bridge.UserSpeaking, bridge.Usage, bridge.Latency:
			continue
		case bridge.ToolCall:
			var ids []string
			for _, call := range e.Calls {
				ids = append(ids, nameless(call.ID))
			}
			word += "(" + strings.Join(ids, " ") + ")"
		case bridge.ToolCallCancellation:
			for i, id := range e.IDs {
				if i > 0 {
					word += " "
				} else {
					word += "("
				}
				word += nameless(id)
			}
			word += ")"
		}
		flush()
		words = append(words, word)
	}
	flush()
	return strings.Join(words, " ")
}

// nameless is an id without what is random in it.
func nameless(id string) string {
	if strings.HasPrefix(id, "ask-") {
		return "ask"
	}
	return id
}

// tells checks the story.
func (c *caller) tells(want string) {
	c.r.t.Helper()
	if got := c.story(); got != want {
		c.r.t.Errorf("the caller saw\n  %s\nwant\n  %s", got, want)
	}
}

// find returns the entries with an event of type E.
func find[E bridge.Body](c *caller) (found []E, at []time.Duration) {
	for _, e := range c.entries() {
		if event, ok := e.event.(E); ok {
			found, at = append(found, event), append(at, e.at)
		}
	}
	return found, at
}

// last returns the last event of type E.
func last[E bridge.Body](c *caller) E {
	c.r.t.Helper()
	found, _ := find[E](c)
	if len(found) == 0 {
		var none E
		c.r.t.Fatalf("no %T was told: %s", none, c.story())
	}
	return found[len(found)-1]
}

// warned checks that a log message holds the text.
func (c *caller) warned(text string) {
	c.r.t.Helper()
	logs, _ := find[bridge.Log](c)
	failures, _ := find[bridge.Failure](c)
	for _, f := range failures {
		logs = append(logs, bridge.Log{Message: f.Err.Message})
	}
	for _, l := range logs {
		if strings.Contains(l.Message, text) {
			return
		}
	}
	c.r.t.Errorf("no log message with %q in %v", text, logs)
}

// do carries a command out.
func (c *caller) do(command bridge.Command) {
	c.r.t.Helper()
	synctest.Wait()
	if err := c.session.Do(command); err != nil {
		c.r.t.Errorf("%T: %v", command, err)
	}
	synctest.Wait()
}

func (c *caller) typed(text string) {
	c.r.t.Helper()
	c.do(bridge.Message{Parts: fmt.Appendf(nil, `[{"text":%q}]`, text), TurnComplete: true})
}

func (c *caller) speak(pcm []int16) {
	c.r.t.Helper()
	if err := c.mic.WritePCM(pcm); err != nil {
		c.r.t.Error(err)
	}
}

// ends waits for the end of Host.Serve and checks its reason.
func (c *caller) ends(want error) {
	c.r.t.Helper()
	select {
	case <-c.over:
	case <-time.After(time.Hour):
		c.r.t.Fatal("Serve does not end")
	}
	if !errors.Is(c.err, want) && !(want == nil && c.err == nil) {
		c.r.t.Errorf("Serve returned %v, want %v", c.err, want)
	}
}

// fails waits for the end of Host.Serve and checks its code.
func (c *caller) fails(code bridge.Code) *bridge.Error {
	c.r.t.Helper()
	select {
	case <-c.over:
	case <-time.After(time.Hour):
		c.r.t.Fatal("Serve does not end")
	}
	var failure *bridge.Error
	if !errors.As(c.err, &failure) || failure.Code != code {
		c.r.t.Fatalf("Serve returned %v, want code %s", c.err, code)
	}
	return failure
}

// about tells whether a time is near another one: the playout's clock has 20 ms.
func about(got, want time.Duration) bool { return (got - want).Abs() <= 60*time.Millisecond }

// bubble runs a test with simulated time.
func bubble(t *testing.T, f func(t *testing.T)) { t.Helper(); synctest.Test(t, f) }

// count makes n samples, from number first on, of somebody who speaks and never says the same twice.
func count(first, n int) []int16 {
	pcm := make([]int16, n)
	for i := range pcm {
		at := first + i
		chance := uint32(at/320+1) * 2654435761 >> 8 // another one every 20 ms
		pcm[i] = int16(float64(2000+chance%8000) * math.Sin(2*math.Pi*float64(200+chance%801)*float64(at)/16000))
	}
	return pcm
}
