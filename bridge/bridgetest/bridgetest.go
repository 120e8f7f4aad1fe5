// Package bridgetest is a scripted Gemini for tests, at the other end of a net.Pipe: it works in a bubble of
// testing/synctest.
package bridgetest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
)

// Pipes is a network of net.Pipe, which works in a synctest bubble.
type Pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// NewPipes returns an idle network.
func NewPipes() *Pipes { return &Pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *Pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *Pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *Pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

func (p *Pipes) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
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

// Serve has h answer on p until the test ends.
func (p *Pipes) Serve(t *testing.T, h http.Handler, stop func()) {
	server := &http.Server{Handler: h}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(p) }()
	t.Cleanup(func() { _ = p.Close(); stop(); _ = server.Close(); <-served })
}

// Upstream is a Gemini that does what a test says. It hands every connection over to the test with its setup read.
type Upstream struct {
	t      *testing.T
	pipes  *Pipes
	Links  chan *Link
	serves sync.WaitGroup

	mu      sync.Mutex
	open    []*Link
	refusal int   // HTTP status; 0: welcome
	down    error // of the network
	dials   int
}

// NewUpstream starts one, which ends with the test.
func NewUpstream(t *testing.T) *Upstream {
	u := &Upstream{t: t, pipes: NewPipes(), Links: make(chan *Link, 100)}
	u.pipes.Serve(t, u, func() {
		u.mu.Lock()
		for _, l := range u.open {
			_ = l.ws.Close()
		}
		u.mu.Unlock()
		u.serves.Wait()
	})
	return u
}

func (u *Upstream) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	u.mu.Lock()
	down := u.down
	u.dials++
	u.mu.Unlock()
	if down != nil {
		return nil, down
	}
	return u.pipes.Dial(ctx, network, addr)
}

// Set changes how the next dials go.
func (u *Upstream) Set(refusal int, down error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.refusal, u.down = refusal, down
}

func (u *Upstream) Dialled() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.dials
}

func (u *Upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
	l := &Link{t: u.t, ws: ws, Born: time.Now()}
	u.mu.Lock()
	u.open = append(u.open, l)
	u.mu.Unlock()
	defer ws.Close()
	_, data, err := ws.ReadMessage()
	if err != nil {
		return
	}
	var first struct{ Setup Setup }
	if err := json.Unmarshal(data, &first); err != nil {
		u.t.Errorf("setup %s: %v", data, err)
		return
	}
	l.Setup, l.Raw = first.Setup, string(data)
	u.Links <- l
	l.read()
}

// Next is the next connection that the bridge has made.
func (u *Upstream) Next() *Link {
	u.t.Helper()
	select {
	case l := <-u.Links:
		return l
	case <-time.After(time.Minute):
		u.t.Fatal("nobody dials")
		return nil
	}
}

// Forget passes over dials that nobody waited for: a session that ends may have begun one.
func (u *Upstream) Forget() {
	synctest.Wait()
	for len(u.Links) > 0 {
		<-u.Links
	}
}

// Idle checks that nobody dials.
func (u *Upstream) Idle() {
	u.t.Helper()
	synctest.Wait()
	if n := len(u.Links); n > 0 {
		u.t.Fatalf("%d more dials", n)
	}
}

// Setup is what a connection begins with.
type Setup struct {
	Model             string
	SessionResumption struct{ Handle string }
	SystemInstruction struct{ Parts []struct{ Text string } }
	GenerationConfig  struct{ Temperature json.Number }
}

// Link is the upstream's end of a connection.
type Link struct {
	t     *testing.T
	ws    *websocket.Conn
	Setup Setup
	Raw   string // of the setup
	Born  time.Time

	mu    sync.Mutex
	got   []Input
	ended time.Time     // when the bridge closed it
	stall chan struct{} // not nil: it is not read until this is closed
	react func(Input)   // nil: the test alone says what is sent
}

// Input is a message of the bridge.
type Input struct {
	At    time.Time
	What  string // audio, mark NAME, text, typed, tool, picture
	Text  string // what is said with it
	Raw   string // of a typed turn and of a picture: all of it
	Rate  int
	PCM   []int16
	Tools []Response
}

// Response is the answer to a tool call.
type Response struct {
	ID, Name string
	Response json.RawMessage
}

func (l *Link) read() {
	for {
		_, data, err := l.ws.ReadMessage()
		l.mu.Lock()
		if err != nil {
			l.ended = time.Now()
			l.mu.Unlock()
			return
		}
		in := l.parse(data)
		l.got = append(l.got, in)
		stall, react := l.stall, l.react
		l.mu.Unlock()
		if react != nil {
			react(in)
		}
		if stall != nil {
			<-stall
		}
	}
}

func (l *Link) parse(data []byte) Input {
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
		ToolResponse  *struct{ FunctionResponses []Response }
		ContextUpdate json.RawMessage
	}
	in := Input{At: time.Now()}
	if !bytes.Contains(data, []byte(`"audio"`)) {
		in.Raw = string(data)
	}
	if err := json.Unmarshal(data, &m); err != nil {
		l.t.Errorf("the bridge sent %s: %v", data, err)
		return in
	}
	switch r := m.RealtimeInput; {
	case m.ClientContent != nil:
		in.What = "typed"
		for i, turn := range m.ClientContent.Turns {
			if i > 0 {
				in.Text += "+"
			}
			in.Text += turn.Parts[0].Text
		}
	case m.ContextUpdate != nil:
		in.What, in.Text = "update", string(m.ContextUpdate)
	case m.ToolResponse != nil:
		in.What, in.Tools = "tool", m.ToolResponse.FunctionResponses
	case r == nil:
		l.t.Errorf("the bridge sent %s", data)
	case r.Audio != nil:
		raw, err := base64.StdEncoding.DecodeString(r.Audio.Data)
		if err != nil {
			l.t.Error(err)
		}
		in.What, in.PCM = "audio", make([]int16, len(raw)/2)
		for i := range in.PCM {
			in.PCM[i] = int16(binary.LittleEndian.Uint16(raw[2*i:]))
		}
		if _, err := fmt.Sscanf(r.Audio.MIMEType, "audio/pcm;rate=%d", &in.Rate); err != nil {
			l.t.Errorf("mime type %q", r.Audio.MIMEType)
		}
	case r.Video != nil:
		in.What, in.Text = "picture", r.Video.MIMEType
	case r.ActivityStart != nil:
		in.What = "mark activityStart"
	case r.ActivityEnd != nil:
		in.What = "mark activityEnd"
	case r.AudioStreamEnd:
		in.What = "mark audioStreamEnd"
	default:
		in.What, in.Text = "text", r.Text
	}
	return in
}

// Inputs is all that has come, once everything has come.
func (l *Link) Inputs() []Input {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.got[:len(l.got):len(l.got)]
}

// Said is what has come, without audio.
func (l *Link) Said() string {
	var words []string
	for _, in := range l.Inputs() {
		switch {
		case in.What == "audio":
		case in.Text != "":
			words = append(words, in.What+" "+in.Text)
		default:
			words = append(words, in.What)
		}
	}
	return strings.Join(words, ", ")
}

// PCM is all the audio that has come.
func (l *Link) PCM() []int16 {
	var pcm []int16
	for _, in := range l.Inputs() {
		pcm = append(pcm, in.PCM...)
	}
	return pcm
}

// Responses is what has come of answers to tool calls, as "id name {…}".
func (l *Link) Responses() []string {
	if _, closed := l.Closed(); !closed && strings.HasSuffix(l.Setup.Model, "gemini-3.8-live") {
		time.Sleep(150 * time.Millisecond) // they wait for the end of the turn that has called
	}
	var list []string
	for _, in := range l.Inputs() {
		for _, r := range in.Tools {
			list = append(list, fmt.Sprintf("%s %s %s", r.ID, r.Name, r.Response))
		}
	}
	return list
}

// Closed reports whether the bridge has closed it, and when.
func (l *Link) Closed() (time.Time, bool) {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended, !l.ended.IsZero()
}

// Send sends a message as JSON.
func (l *Link) Send(format string, args ...any) {
	l.t.Helper()
	if err := l.ws.WriteMessage(websocket.BinaryMessage, fmt.Appendf(nil, format, args...)); err != nil {
		l.t.Errorf("send: %v", err)
	}
}

func (l *Link) Content(format string, args ...any) {
	l.t.Helper()
	l.Send(`{"serverContent":{%s}}`, fmt.Sprintf(format, args...))
}

func (l *Link) Accept() *Link { l.t.Helper(); l.Send(`{"setupComplete":{}}`); return l }

func (l *Link) Handle(h string) {
	l.t.Helper()
	l.Send(`{"sessionResumptionUpdate":{"newHandle":%q,"resumable":true}}`, h)
}

// Voice is a modelTurn field with audio whose samples all have the value tag.
func Voice(tag int16, d time.Duration) string {
	raw := make([]byte, 2*int(d.Seconds()*24000))
	for i := range len(raw) / 2 {
		binary.LittleEndian.PutUint16(raw[2*i:], uint16(tag))
	}
	return fmt.Sprintf(`"modelTurn":{"parts":[{"inlineData":{"mimeType":"audio/pcm;rate=24000","data":%q}}]}`,
		base64.StdEncoding.EncodeToString(raw))
}

// Say sends d of voice in messages of at most a second, at once.
func (l *Link) Say(tag int16, d time.Duration) {
	l.t.Helper()
	for ; d > 0; d -= time.Second {
		l.Content("%s", Voice(tag, min(d, time.Second)))
	}
}

// Answer sends a whole turn at once.
func (l *Link) Answer(tag int16, d time.Duration) {
	l.t.Helper()
	l.Say(tag, d)
	l.Completes()
}

// Completes ends a turn.
func (l *Link) Completes() {
	l.t.Helper()
	l.Content(`"generationComplete":true`)
	l.Content(`"turnComplete":true`)
}

// Interrupts ends a turn that the person has interrupted.
func (l *Link) Interrupts() {
	l.t.Helper()
	l.Content(`"interrupted":true`)
	l.Content(`"turnComplete":true`)
}

// React has f called with each message of the bridge from now on. It may send; then the test must not.
func (l *Link) React(f func(Input)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.react = f
}

// Cut ends the connection without a word.
func (l *Link) Cut() { _ = l.ws.NetConn().Close() }

// Halt has the upstream stop reading, after one more message.
func (l *Link) Halt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stall = make(chan struct{})
}

// Resume has it read on.
func (l *Link) Resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stall != nil {
		close(l.stall)
		l.stall = nil
	}
}

// End closes the connection with a code and a reason.
func (l *Link) End(code int, reason string) {
	bye := websocket.FormatCloseMessage(code, reason)
	_ = l.ws.WriteControl(websocket.CloseMessage, bye, time.Now().Add(time.Second))
	_ = l.ws.Close()
}

// Calls asks for the functions, each "id name". No two calls are alike.
func (l *Link) Calls(calls ...string) {
	l.t.Helper()
	var list []string
	for _, c := range calls {
		id, name, _ := strings.Cut(c, " ")
		list = append(list, fmt.Sprintf(`{"id":%q,"name":%q,"args":{"for":%[1]q}}`, id, name))
	}
	l.Send(`{"toolCall":{"functionCalls":[%s]}}`, strings.Join(list, ","))
}

// Answered checks the answers that have come, in any order.
func (l *Link) Answered(want ...string) {
	l.t.Helper()
	got := slices.Sorted(slices.Values(l.Responses()))
	slices.Sort(want)
	if !slices.Equal(got, want) {
		l.t.Errorf("answers\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// Call asks for one function with arguments.
func (l *Link) Call(id, name, args string) {
	l.t.Helper()
	l.Send(`{"toolCall":{"functionCalls":[{"id":%q,"name":%q,"args":%s}]}}`, id, name, args)
	synctest.Wait()
}

// Speaks sends a second of an answer with the words that are said in it, one in each quarter.
func (l *Link) Speaks(tag int16, words ...string) {
	l.t.Helper()
	for _, w := range words {
		l.Content(`%s,"outputTranscription":{"text":%q}`, Voice(tag, 250*time.Millisecond), w)
	}
}

// Pictures are those that reached the model, in order.
func (l *Link) Pictures() []string {
	l.t.Helper()
	var got []string
	for _, in := range l.Inputs() {
		if in.What == "picture" {
			var m struct {
				RealtimeInput struct{ Video struct{ Data []byte } }
			}
			if err := json.Unmarshal([]byte(in.Raw), &m); err != nil {
				l.t.Fatal(err)
			}
			got = append(got, string(m.RealtimeInput.Video.Data))
		}
	}
	return got
}

// DialledFor checks what a link was dialled with.
func (l *Link) DialledFor(temperature, handle string) *Link {
	l.t.Helper()
	if got := l.Setup.SessionResumption.Handle; l.Setup.GenerationConfig.Temperature.String() != temperature || got != handle {
		l.t.Errorf("dialled for %q with handle %q, want %q with %q", l.Setup.GenerationConfig.Temperature, got, temperature, handle)
	}
	return l
}
