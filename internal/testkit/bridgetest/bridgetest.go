// Package bridgetest provides a scripted Gemini for tests. It is connected by net.Pipe, so that it works in a bubble of
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

// PipeNetwork is a network of net.Pipe connections, which works in a synctest bubble.
type PipeNetwork struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// NewPipeNetwork returns an idle network.
func NewPipeNetwork() *PipeNetwork {
	return &PipeNetwork{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (p *PipeNetwork) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *PipeNetwork) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *PipeNetwork) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

func (p *PipeNetwork) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	local, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return local, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// ServeUntilEnd serves h on p until the test ends. Then it calls stop, which must make the running calls of h return, and
// waits for them.
func (p *PipeNetwork) ServeUntilEnd(t *testing.T, h http.Handler, stop func()) {
	var mu sync.Mutex // without it a call that begins now would race with Wait
	var running sync.WaitGroup
	ended := false
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		refused := ended
		if !refused {
			running.Add(1)
		}
		mu.Unlock()
		if !refused {
			defer running.Done()
			h.ServeHTTP(w, r)
		}
	})}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(p) }()
	t.Cleanup(func() {
		_ = p.Close()
		mu.Lock()
		ended = true
		mu.Unlock()
		stop()
		running.Wait()
		_ = server.Close()
		<-served
	})
}

// Upstream is a scripted Gemini. It passes each connection to the test after reading its setup.
type Upstream struct {
	t     *testing.T
	pipes *PipeNetwork
	Conns chan *Conn

	mu      sync.Mutex
	conns   []*Conn
	refusal int   // HTTP status with which dials are rejected; 0 accepts them
	down    error // network error with which dials fail, or nil
	dials   int
}

// NewUpstream starts an upstream that ends with the test.
func NewUpstream(t *testing.T) *Upstream {
	u := &Upstream{t: t, pipes: NewPipeNetwork(), Conns: make(chan *Conn, 100)}
	u.pipes.ServeUntilEnd(t, u, func() {
		u.mu.Lock()
		for _, l := range u.conns {
			_ = l.ws.Close()
		}
		u.mu.Unlock()
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

// SetFailure makes later dials fail, with an HTTP status or a network error. With 0 and nil, dials succeed again.
func (u *Upstream) SetFailure(status int, dialErr error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.refusal, u.down = status, dialErr
}

func (u *Upstream) DialCount() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.dials
}

func (u *Upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
	l := &Conn{t: u.t, ws: ws, OpenedAt: time.Now()}
	u.mu.Lock()
	u.conns = append(u.conns, l)
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
	u.Conns <- l
	l.readInputs()
}

// NextConn waits for the next connection from the bridge, for a minute at most.
func (u *Upstream) NextConn() *Conn {
	u.t.Helper()
	select {
	case l := <-u.Conns:
		return l
	case <-time.After(time.Minute):
		u.t.Fatal("nobody dials")
		return nil
	}
}

// DiscardDials discards dials for which the test did not wait. For example, a session may have dialled just before it
// ended.
func (u *Upstream) DiscardDials() {
	synctest.Wait()
	for len(u.Conns) > 0 {
		<-u.Conns
	}
}

// AssertNoDial waits until the bridge is idle, and fails the test if there was another dial.
func (u *Upstream) AssertNoDial() {
	u.t.Helper()
	synctest.Wait()
	if n := len(u.Conns); n > 0 {
		u.t.Fatalf("%d more dials", n)
	}
}

// Setup is the first message of a connection.
type Setup struct {
	Model             string
	SessionResumption struct{ Handle string }
	SystemInstruction struct{ Parts []struct{ Text string } }
	GenerationConfig  struct{ Temperature json.Number }
}

// Conn is the upstream's end of a connection.
type Conn struct {
	t        *testing.T
	ws       *websocket.Conn
	Setup    Setup
	Raw      string // text of the setup message
	OpenedAt time.Time

	mu        sync.Mutex
	inputs    []Input
	closedAt  time.Time     // when the bridge closed the connection
	readBlock chan struct{} // if not nil, reading stops until the channel is closed
	onInput   func(Input)   // called with each message of the bridge, or nil
}

// Input is a message from the bridge.
type Input struct {
	At    time.Time
	Kind  string // audio, mark NAME, text, typed, tool, picture
	Text  string // its text
	Raw   string // the whole message of a typed turn or a picture
	Rate  int
	PCM   []int16
	Tools []Response
}

// Response is the answer to a tool call.
type Response struct {
	ID, Name string
	Response json.RawMessage
}

func (conn *Conn) readInputs() {
	for {
		_, data, err := conn.ws.ReadMessage()
		conn.mu.Lock()
		if err != nil {
			conn.closedAt = time.Now()
			conn.mu.Unlock()
			return
		}
		in := conn.parseInput(data)
		conn.inputs = append(conn.inputs, in)
		stall, react := conn.readBlock, conn.onInput
		conn.mu.Unlock()
		if react != nil {
			react(in)
		}
		if stall != nil {
			<-stall
		}
	}
}

func (conn *Conn) parseInput(data []byte) Input {
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
		conn.t.Errorf("the bridge sent %s: %v", data, err)
		return in
	}
	switch r := m.RealtimeInput; {
	case m.ClientContent != nil:
		in.Kind = "typed"
		for i, turn := range m.ClientContent.Turns {
			if i > 0 {
				in.Text += "+"
			}
			in.Text += turn.Parts[0].Text
		}
	case m.ContextUpdate != nil:
		in.Kind, in.Text = "update", string(m.ContextUpdate)
	case m.ToolResponse != nil:
		in.Kind, in.Tools = "tool", m.ToolResponse.FunctionResponses
	case r == nil:
		conn.t.Errorf("the bridge sent %s", data)
	case r.Audio != nil:
		raw, err := base64.StdEncoding.DecodeString(r.Audio.Data)
		if err != nil {
			conn.t.Error(err)
		}
		in.Kind, in.PCM = "audio", make([]int16, len(raw)/2)
		for i := range in.PCM {
			in.PCM[i] = int16(binary.LittleEndian.Uint16(raw[2*i:]))
		}
		if _, err := fmt.Sscanf(r.Audio.MIMEType, "audio/pcm;rate=%d", &in.Rate); err != nil {
			conn.t.Errorf("mime type %q", r.Audio.MIMEType)
		}
	case r.Video != nil:
		in.Kind, in.Text = "picture", r.Video.MIMEType
	case r.ActivityStart != nil:
		in.Kind = "mark activityStart"
	case r.ActivityEnd != nil:
		in.Kind = "mark activityEnd"
	case r.AudioStreamEnd:
		in.Kind = "mark audioStreamEnd"
	default:
		in.Kind, in.Text = "text", r.Text
	}
	return in
}

// Inputs waits until the bridge is idle, and returns all its messages.
func (conn *Conn) Inputs() []Input {
	synctest.Wait()
	conn.mu.Lock()
	defer conn.mu.Unlock()
	return conn.inputs[:len(conn.inputs):len(conn.inputs)]
}

// InputLog returns a line of all messages except audio.
func (conn *Conn) InputLog() string {
	var words []string
	for _, in := range conn.Inputs() {
		switch {
		case in.Kind == "audio":
		case in.Text != "":
			words = append(words, in.Kind+" "+in.Text)
		default:
			words = append(words, in.Kind)
		}
	}
	return strings.Join(words, ", ")
}

// ReceivedPCM returns all audio received.
func (conn *Conn) ReceivedPCM() []int16 {
	var pcm []int16
	for _, in := range conn.Inputs() {
		pcm = append(pcm, in.PCM...)
	}
	return pcm
}

// ToolResponses returns the answers to tool calls, each as "id name {…}". It waits until the bridge is idle.
func (conn *Conn) ToolResponses() []string {
	if _, closed := conn.ClosedAt(); !closed && strings.HasSuffix(conn.Setup.Model, "gemini-3.8-live") {
		time.Sleep(150 * time.Millisecond) // the bridge sends answers at the end of the turn with the calls
	}
	var list []string
	for _, in := range conn.Inputs() {
		for _, r := range in.Tools {
			list = append(list, fmt.Sprintf("%s %s %s", r.ID, r.Name, r.Response))
		}
	}
	return list
}

// ClosedAt waits until the bridge is idle, and reports whether the bridge has closed the connection, and when.
func (conn *Conn) ClosedAt() (at time.Time, isClosed bool) {
	synctest.Wait()
	conn.mu.Lock()
	defer conn.mu.Unlock()
	return conn.closedAt, !conn.closedAt.IsZero()
}

// Send sends a message as JSON.
func (conn *Conn) Send(format string, args ...any) {
	conn.t.Helper()
	if err := conn.ws.WriteMessage(websocket.BinaryMessage, fmt.Appendf(nil, format, args...)); err != nil {
		conn.t.Errorf("send: %v", err)
	}
}

func (conn *Conn) SendContent(format string, args ...any) {
	conn.t.Helper()
	conn.Send(`{"serverContent":{%s}}`, fmt.Sprintf(format, args...))
}

func (conn *Conn) SendSetupComplete() *Conn {
	conn.t.Helper()
	conn.Send(`{"setupComplete":{}}`)
	return conn
}

func (conn *Conn) SendHandle(h string) {
	conn.t.Helper()
	conn.Send(`{"sessionResumptionUpdate":{"newHandle":%q,"resumable":true}}`, h)
}

// VoiceField returns a modelTurn field with audio in which each sample equals tag.
func VoiceField(tag int16, d time.Duration) string {
	raw := make([]byte, 2*int(d.Seconds()*24000))
	for i := range len(raw) / 2 {
		binary.LittleEndian.PutUint16(raw[2*i:], uint16(tag))
	}
	return fmt.Sprintf(`"modelTurn":{"parts":[{"inlineData":{"mimeType":"audio/pcm;rate=24000","data":%q}}]}`,
		base64.StdEncoding.EncodeToString(raw))
}

// SendVoice sends d of voice in messages of at most a second, at once.
func (conn *Conn) SendVoice(tag int16, d time.Duration) {
	conn.t.Helper()
	for ; d > 0; d -= time.Second {
		conn.SendContent("%s", VoiceField(tag, min(d, time.Second)))
	}
}

// SendAnswer sends a whole turn at once.
func (conn *Conn) SendAnswer(tag int16, d time.Duration) {
	conn.t.Helper()
	conn.SendVoice(tag, d)
	conn.CompleteTurn()
}

// CompleteTurn ends a turn.
func (conn *Conn) CompleteTurn() {
	conn.t.Helper()
	conn.SendContent(`"generationComplete":true`)
	conn.SendContent(`"turnComplete":true`)
}

// InterruptTurn ends a turn that the person has interrupted.
func (conn *Conn) InterruptTurn() {
	conn.t.Helper()
	conn.SendContent(`"interrupted":true`)
	conn.SendContent(`"turnComplete":true`)
}

// OnInput makes the connection call f with each message that the bridge sends from now on. If f sends messages, the
// test itself must send none.
func (conn *Conn) OnInput(f func(Input)) {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	conn.onInput = f
}

// DropConnection ends the connection without a close frame.
func (conn *Conn) DropConnection() { _ = conn.ws.NetConn().Close() }

// StopReading makes the connection stop reading after one more message.
func (conn *Conn) StopReading() {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	conn.readBlock = make(chan struct{})
}

// ContinueReading ends StopReading.
func (conn *Conn) ContinueReading() {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	if conn.readBlock != nil {
		close(conn.readBlock)
		conn.readBlock = nil
	}
}

// CloseWith closes the connection with a code and a reason.
func (conn *Conn) CloseWith(code int, reason string) {
	bye := websocket.FormatCloseMessage(code, reason)
	_ = conn.ws.WriteControl(websocket.CloseMessage, bye, time.Now().Add(time.Second))
	_ = conn.ws.Close()
}

// CallTools calls functions, each given as "id name". The arguments contain the ID, so that no two calls are alike.
func (conn *Conn) CallTools(calls ...string) {
	conn.t.Helper()
	var list []string
	for _, c := range calls {
		id, name, _ := strings.Cut(c, " ")
		list = append(list, fmt.Sprintf(`{"id":%q,"name":%q,"args":{"for":%[1]q}}`, id, name))
	}
	conn.Send(`{"toolCall":{"functionCalls":[%s]}}`, strings.Join(list, ","))
}

// AssertToolResponses checks the answers received, in any order.
func (conn *Conn) AssertToolResponses(want ...string) {
	conn.t.Helper()
	got := slices.Sorted(slices.Values(conn.ToolResponses()))
	slices.Sort(want)
	if !slices.Equal(got, want) {
		conn.t.Errorf("answers\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// CallTool calls one function with arguments, and waits until the bridge is idle.
func (conn *Conn) CallTool(id, name, args string) {
	conn.t.Helper()
	conn.Send(`{"toolCall":{"functionCalls":[{"id":%q,"name":%q,"args":%s}]}}`, id, name, args)
	synctest.Wait()
}

// SendSpokenWords sends an answer with a quarter of a second of voice for each word.
func (conn *Conn) SendSpokenWords(tag int16, words ...string) {
	conn.t.Helper()
	for _, w := range words {
		conn.SendContent(`%s,"outputTranscription":{"text":%q}`, VoiceField(tag, 250*time.Millisecond), w)
	}
}

// ReceivedPictures returns the pictures that reached the model, in order.
func (conn *Conn) ReceivedPictures() []string {
	conn.t.Helper()
	var got []string
	for _, in := range conn.Inputs() {
		if in.Kind == "picture" {
			var m struct {
				RealtimeInput struct{ Video struct{ Data []byte } }
			}
			if err := json.Unmarshal([]byte(in.Raw), &m); err != nil {
				conn.t.Fatal(err)
			}
			got = append(got, string(m.RealtimeInput.Video.Data))
		}
	}
	return got
}

// AssertSetup checks the temperature and the resumption handle in the setup of a connection.
func (conn *Conn) AssertSetup(temperature, handle string) *Conn {
	conn.t.Helper()
	if got := conn.Setup.SessionResumption.Handle; conn.Setup.GenerationConfig.Temperature.String() != temperature || got != handle {
		conn.t.Errorf("dialled for %q with handle %q, want %q with %q", conn.Setup.GenerationConfig.Temperature, got, temperature, handle)
	}
	return conn
}
