package testkit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/media"
)

// CheckNoUnknownError fails the test if the gateway has sent an unknown_error, the code for its own faults.
func CheckNoUnknownError(t *testing.T, c *Client) {
	t.Helper()
	for _, m := range c.Messages() {
		if m.Type == "GEMINI_ERROR" && strings.Contains(string(m.Payload), "unknown_error") {
			t.Errorf("got %v", m)
		}
	}
}

// goWords are words of Go and its JSON packages that must not appear in messages to clients. The words are not a
// regular expression, because that would take too much CPU.
var goWords = []string{
	"Go struct", "Go value", "json: ", "nmarshal", "strconv", "map[", "[]interface", "interface {", "struct {", "reflect.",
}

// CheckNoGoWords fails the test if a message contains words of Go, which reveal the implementation.
func CheckNoGoWords(t testing.TB, message string) {
	t.Helper()
	for _, word := range goWords {
		if at := strings.Index(message, word); at >= 0 {
			t.Errorf("a message has %q: %.400s", word, message[max(0, at-300):])
		}
	}
}

// Message is one message of the gateway, and the connection that it arrived by.
type Message struct {
	Type       string          `json:"type"`
	Payload    json.RawMessage `json:"payload"`
	Seq        uint64          `json:"seq"`
	Event      int             `json:"event"`
	Connection string
}

func (m Message) String() string {
	p := string(m.Payload)
	if len(p) > 200 {
		p = p[:200] + "…"
	}
	return fmt.Sprintf("%s %s", m.Type, p)
}

// DecodePayload reads the payload.
func (m Message) DecodePayload(t testing.TB, target any) {
	t.Helper()
	if err := json.Unmarshal(m.Payload, target); err != nil {
		t.Fatalf("%v: %v", m, err)
	}
}

// Inbox collects the messages to a client, in order.
type Inbox struct {
	T        testing.TB
	mu       sync.Mutex
	got      []Message
	more     chan struct{} // closed and replaced at every message
	EndError error         // the error that ended the socket
}

// NewInbox returns an empty inbox.
func NewInbox(t testing.TB) *Inbox { return &Inbox{T: t, more: make(chan struct{})} }

func (i *Inbox) AddMessage(m Message) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.got = append(i.got, m)
	close(i.more)
	i.more = make(chan struct{})
}

func (i *Inbox) setEndError(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.EndError = err
	close(i.more)
	i.more = make(chan struct{})
}

// ClearEndError discards the end of the socket. Then a test can wait for messages of the data channel, which is still open.
func (i *Inbox) ClearEndError() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.EndError = nil
}

// Text returns all messages so far in full, one per line.
func (i *Inbox) Text() string { return JoinMessages(i.Messages()) }

// JoinMessages returns messages in full, one per line.
func JoinMessages(list []Message) string {
	var all strings.Builder
	for _, m := range list {
		fmt.Fprintf(&all, "%s %s\n", m.Type, m.Payload)
	}
	return all.String()
}

// CountMessages returns the number of messages of a type.
func (i *Inbox) CountMessages(kind string) int {
	n := 0
	for _, m := range i.Messages() {
		if m.Type == kind {
			n++
		}
	}
	return n
}

// CountWarnings returns the number of warnings with a text.
func (i *Inbox) CountWarnings(text string) int {
	n := 0
	for _, m := range i.Messages() {
		if m.Type == "LOG_MESSAGE" && strings.Contains(string(m.Payload), `"warn"`) && strings.Contains(string(m.Payload), text) {
			n++
		}
	}
	return n
}

// Messages returns every message so far.
func (i *Inbox) Messages() []Message {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]Message(nil), i.got...)
}

// messagesAndNext returns every message so far, and a channel that is closed at the next message.
func (i *Inbox) messagesAndNext() (list []Message, next <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]Message(nil), i.got...), i.more
}

// AwaitMatch blocks until matches returns true for a message, from firstIndex on. It returns the message and the index
// after it.
func (i *Inbox) AwaitMatch(firstIndex int, what string, matches func(Message) bool) (match Message, nextIndex int) {
	i.T.Helper()
	match, nextIndex, ok := i.AwaitMatchOrEnd(firstIndex, what, matches)
	if !ok {
		i.T.Fatalf("the socket ended (%v) before %s; got %v", i.EndError, what, i.Messages())
	}
	return match, nextIndex
}

// AwaitMatchOrEnd is AwaitMatch, but returns ok=false if the socket ends before a message matches.
func (i *Inbox) AwaitMatchOrEnd(firstIndex int, what string, matches func(Message) bool) (match Message, nextIndex int, ok bool) {
	i.T.Helper()
	deadline := time.After(Patience)
	for at := firstIndex; ; {
		i.mu.Lock()
		for ; at < len(i.got); at++ {
			if m := i.got[at]; matches(m) {
				i.mu.Unlock()
				return m, at + 1, true
			}
		}
		more, over := i.more, i.EndError
		i.mu.Unlock()
		if over != nil {
			return Message{}, at, false
		}
		select {
		case <-more:
		case <-deadline:
			i.T.Fatalf("no %s within %v; got %v", what, Patience, i.Messages())
		}
	}
}

// Client is a plain WebSocket client.
type Client struct {
	*Inbox
	Conn *websocket.Conn
	Mu   sync.Mutex // serializes writes
	At   int
	Done chan struct{}

	muted   atomic.Bool
	reading sync.Mutex // locked while reading is stopped
}

// StopReading makes the client stop reading. The client may continue to write.
func (c *Client) StopReading() {
	c.reading.Lock()
	if c.Conn != nil {
		_ = c.Conn.UnderlyingConn().(*net.TCPConn).SetReadBuffer(SmallBuffer)
	}
	c.T.Cleanup(c.reading.Unlock)
}

// WaitWhileStalled blocks from the call of StopReading until the end of the test. It returns at once if StopReading was
// not called.
func (c *Client) WaitWhileStalled() {
	c.reading.Lock()
	defer c.reading.Unlock()
}

// IgnorePings stops the client from answering pings, like a client that has vanished.
func (c *Client) IgnorePings() { c.muted.Store(true) }

// DialWebSocket opens a WebSocket of the client protocol.
func DialWebSocket(t testing.TB, url string) *Client {
	t.Helper()
	return DialWebSocketWith(t, url, nil)
}

// DialWebSocketWith opens a WebSocket of the client protocol with more request headers.
func DialWebSocketWith(t testing.TB, url string, header http.Header) *Client {
	t.Helper()
	return DialProtocol(t, url, header, messageParser(t))
}

// NewWebSocketClient returns a client of the client protocol on an open WebSocket.
func NewWebSocketClient(t testing.TB, conn *websocket.Conn) *Client {
	return newClient(t, conn, messageParser(t))
}

// messageParser returns a function that parses messages of the client protocol.
func messageParser(t testing.TB) func(_ int, raw []byte) Message {
	return func(_ int, raw []byte) Message {
		m := Message{Connection: "socket"}
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Errorf("not JSON: %s", raw)
		}
		return m
	}
}

// ParseAnyMessage parses messages of any protocol for [DialProtocol]. The payload is the whole message. The type is the
// message's "type", "untyped" if it has none, and "binary" for binary messages, whose payload is dropped.
func ParseAnyMessage(kind int, raw []byte) Message {
	if kind == websocket.BinaryMessage && !json.Valid(raw) {
		return Message{Type: "binary"}
	}
	var m struct{ Type string }
	_ = json.Unmarshal(raw, &m) // some protocols have messages that are not objects
	return Message{Type: cmp.Or(m.Type, "untyped"), Payload: raw}
}

// DialProtocol returns a client of any protocol over a WebSocket. The function parse parses a message; a message
// without a type is dropped.
func DialProtocol(t testing.TB, url string, header http.Header, parse func(kind int, raw []byte) Message) *Client {
	t.Helper()
	conn, _, err := websocket.DefaultDialer.Dial(url, header)
	if err != nil {
		t.Fatal(err)
	}
	return newClient(t, conn, parse)
}

// newClient returns a client on an open WebSocket, whose messages it reads until the end of the test.
func newClient(t testing.TB, conn *websocket.Conn, parse func(kind int, raw []byte) Message) *Client {
	c := &Client{Inbox: NewInbox(t), Conn: conn, Done: make(chan struct{})}
	pong := conn.PingHandler()
	conn.SetPingHandler(func(data string) error {
		if c.muted.Load() {
			return nil
		}
		return pong(data)
	})
	go func() {
		defer close(c.Done)
		for {
			c.WaitWhileStalled()
			kind, raw, err := conn.ReadMessage()
			if err != nil {
				CheckNoGoWords(t, err.Error()) // the error contains the reason of the close
				c.setEndError(err)
				return
			}
			CheckNoGoWords(t, string(raw))
			if m := parse(kind, raw); m.Type != "" {
				c.AddMessage(m)
			}
		}
	}()
	t.Cleanup(func() {
		conn.Close()
		<-c.Done
	})
	return c
}

// OpenConversation opens a conversation and waits until it is set up.
func OpenConversation(t testing.TB, g *Gateway, config string) *Client {
	t.Helper()
	c := DialWebSocket(t, g.URL)
	c.Send("CONNECT_GEMINI", `{"initialConfig":`+config+`}`)
	m := c.AwaitEvent("SETUP_COMPLETE")
	if !strings.Contains(string(m.Payload), `"success":true`) {
		t.Fatalf("set-up failed: %v", m)
	}
	return c
}

// SendFrame sends a WebSocket message of a kind: text or binary.
func (c *Client) SendFrame(kind int, text []byte) {
	c.T.Helper()
	c.Mu.Lock()
	defer c.Mu.Unlock()
	if err := c.Conn.WriteMessage(kind, text); err != nil {
		c.T.Fatalf("write: %v", err)
	}
}

// Send sends a message; payload is JSON, or empty for none.
func (c *Client) Send(kind, payload string) {
	c.T.Helper()
	c.SendFrame(websocket.TextMessage, EncodeMessage(kind, payload))
}

// SendTextFrame sends a text message of any protocol.
func (c *Client) SendTextFrame(text string) {
	c.T.Helper()
	c.SendFrame(websocket.TextMessage, []byte(text))
}

// EncodeMessage returns a message of the client protocol; payload is JSON, or empty for none.
func EncodeMessage(kind, payload string) []byte {
	if payload == "" {
		return []byte(`{"type":"` + kind + `"}`)
	}
	return []byte(`{"type":"` + kind + `","payload":` + payload + `}`)
}

// AwaitEvent waits for the next message of a type, and skips the others.
func (c *Client) AwaitEvent(kind string) Message {
	c.T.Helper()
	var m Message
	m, c.At = c.AwaitMatch(c.At, kind, func(m Message) bool { return m.Type == kind })
	return m
}

// AwaitEventWith waits for the next message of a type whose payload contains a text, and skips the others.
func (c *Client) AwaitEventWith(kind, text string) Message {
	c.T.Helper()
	var m Message
	m, c.At = c.AwaitMatch(c.At, kind+" with "+text, func(m Message) bool {
		return m.Type == kind && strings.Contains(string(m.Payload), text)
	})
	return m
}

// SendText sends a text that asks for an answer.
func (c *Client) SendText(text string) {
	c.T.Helper()
	c.Send("SEND_MESSAGE", TextPayload(text))
}

// AskText sends a text and waits until the answer has been played.
func (c *Client) AskText(text string) {
	c.T.Helper()
	c.At = len(c.Messages())
	c.SendText(text)
	c.AwaitEvent("TURN_COMPLETE")
}

// AwaitError waits for a GEMINI_ERROR that names code and field.
func (c *Client) AwaitError(code, field string) Message {
	c.T.Helper()
	m := c.AwaitEvent("GEMINI_ERROR")
	CheckError(c.T, m, code, field)
	return m
}

// CheckError checks a GEMINI_ERROR.
func CheckError(t testing.TB, m Message, code, field string) {
	t.Helper()
	var p struct {
		Message string
		Details struct{ Code, Field string }
	}
	m.DecodePayload(t, &p)
	if p.Details.Code != code || p.Details.Field != field || p.Message == "" {
		t.Fatalf("error %v, want code %q and field %q", m, code, field)
	}
}

// AwaitCloseCode waits for the socket's end, and returns its close code.
func (c *Client) AwaitCloseCode() int {
	c.T.Helper()
	select {
	case <-c.Done:
	case <-time.After(Patience):
		c.T.Fatal("the socket was not closed")
	}
	c.Inbox.mu.Lock()
	defer c.Inbox.mu.Unlock()
	if ce, ok := c.EndError.(*websocket.CloseError); ok {
		return ce.Code
	}
	c.T.Logf("socket ended with %v", c.EndError)
	return 0
}

// SendAudio sends audio over the socket, in messages of 20 ms, as fast as the gateway accepts it.
func (c *Client) SendAudio(pcm []int16, rate int) {
	c.T.Helper()
	for n := rate / 50; len(pcm) > 0; {
		n = min(n, len(pcm))
		c.Send("SEND_REALTIME_INPUT", fmt.Sprintf(`{"audio":{"mimeType":"audio/pcm;rate=%d","data":%q}}`, rate, Base64PCM(pcm[:n])))
		pcm = pcm[n:]
	}
}

// ReceivedVoice returns the audio of all AUDIO_CHUNKs.
func (c *Client) ReceivedVoice() []int16 {
	c.T.Helper()
	var pcm []int16
	for _, m := range c.Messages() {
		if m.Type == "AUDIO_CHUNK" {
			pcm = append(pcm, DecodeChunk(c.T, m)...)
		}
	}
	return pcm
}

// DecodeChunk returns the audio of an AUDIO_CHUNK.
func DecodeChunk(t testing.TB, m Message) []int16 {
	t.Helper()
	var p struct{ Data []byte }
	m.DecodePayload(t, &p)
	return media.AppendSamples(nil, p.Data)
}

// WeatherTool is a configuration with one client tool.
const WeatherTool = `{"tools":[{"functionDeclarations":[{"name":"get_weather","description":"the weather",` +
	`"parameters":{"type":"OBJECT","properties":{"location":{"type":"STRING"}}}}]}]}`

// TextPayload returns the payload of a SEND_MESSAGE with a text.
func TextPayload(text string) string {
	return string(Must(json.Marshal(map[string]any{"parts": []any{map[string]string{"text": text}}, "turnComplete": true})))
}

// ParseSetup parses a SETUP_COMPLETE. It fails the test if the setup has failed. wantResumed says whether the setup
// must have resumed a conversation.
func ParseSetup(t *testing.T, m Message, wantResumed bool) (session, token string) {
	t.Helper()
	var p struct {
		Success, Resumed       bool
		SessionID, ResumeToken string
	}
	m.DecodePayload(t, &p)
	if !p.Success || p.Resumed != wantResumed {
		t.Fatalf("SETUP_COMPLETE is %v, want resumed %v", m, wantResumed)
	}
	return p.SessionID, p.ResumeToken
}

// DropConnection closes the connection without a close frame, and waits until its reader has ended.
func DropConnection(c *Client) {
	c.Conn.Close()
	<-c.Done
}
