package testkit

import (
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

// CheckFaults fails the test if the gateway has sent an unknown_error, the code for its own faults.
func CheckFaults(t *testing.T, c *Client) {
	t.Helper()
	for _, m := range c.Messages() {
		if m.Type == "GEMINI_ERROR" && strings.Contains(string(m.Payload), "unknown_error") {
			t.Errorf("got %v", m)
		}
	}
}

// goWords are words of Go and its JSON packages that must not appear in messages to clients. A regular expression would
// take too much CPU here.
var goWords = []string{
	"Go struct", "Go value", "json: ", "nmarshal", "strconv", "map[", "[]interface", "interface {", "struct {", "reflect.",
}

// CheckWords fails the test if a message reveals the implementation.
func CheckWords(t testing.TB, message string) {
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
func (m Message) DecodePayload(t testing.TB, into any) {
	t.Helper()
	if err := json.Unmarshal(m.Payload, into); err != nil {
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

func (i *Inbox) setEnd(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.EndError = err
	close(i.more)
	i.more = make(chan struct{})
}

// ClearEnd discards the end of the socket. Then a test can wait for messages of the data channel, which is still open.
func (i *Inbox) ClearEnd() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.EndError = nil
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
func (i *Inbox) messagesAndNext() ([]Message, <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]Message(nil), i.got...), i.more
}

// AwaitMatch blocks until fits returns true for a message, from index `from` on. It returns the message and the index
// after it.
func (i *Inbox) AwaitMatch(from int, what string, fits func(Message) bool) (Message, int) {
	i.T.Helper()
	deadline := time.After(Patience)
	for at := from; ; {
		i.mu.Lock()
		for ; at < len(i.got); at++ {
			if m := i.got[at]; fits(m) {
				i.mu.Unlock()
				return m, at + 1
			}
		}
		more, over := i.more, i.EndError
		i.mu.Unlock()
		if over != nil {
			i.T.Fatalf("the socket ended (%v) before %s; got %v", over, what, i.Messages())
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

// StopReading stops reading, while the client may continue to write.
func (c *Client) StopReading() {
	c.reading.Lock()
	if c.Conn != nil {
		_ = c.Conn.UnderlyingConn().(*net.TCPConn).SetReadBuffer(SmallBuffer)
	}
	c.T.Cleanup(c.reading.Unlock)
}

// WaitWhileStalled blocks while reading is stopped: from StopReading to the end of the test.
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
	return DialProtocol(t, url, header, func(_ int, raw []byte) Message {
		m := Message{Connection: "socket"}
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Errorf("not JSON: %s", raw)
		}
		return m
	})
}

// DialProtocol returns a client of any protocol over a WebSocket. The function read decodes a message; a message without
// a type is dropped.
func DialProtocol(t testing.TB, url string, header http.Header, read func(kind int, raw []byte) Message) *Client {
	t.Helper()
	conn, _, err := websocket.DefaultDialer.Dial(url, header)
	if err != nil {
		t.Fatal(err)
	}
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
				CheckWords(t, err.Error()) // the error contains the reason of the close
				c.setEnd(err)
				return
			}
			CheckWords(t, string(raw))
			if m := read(kind, raw); m.Type != "" {
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

// AskText sends a text and waits until the answer has been played.
func (c *Client) AskText(text string) {
	c.T.Helper()
	c.At = len(c.Messages())
	c.Send("SEND_MESSAGE", TextPayload(text))
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

// CloseCode waits for the socket's end, and returns its close code.
func (c *Client) CloseCode() int {
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

// ReadSetup reads SETUP_COMPLETE.
func ReadSetup(t *testing.T, m Message, resumed bool) (session, token string) {
	t.Helper()
	var p struct {
		Success, Resumed       bool
		SessionID, ResumeToken string
	}
	m.DecodePayload(t, &p)
	if !p.Success || p.Resumed != resumed {
		t.Fatalf("SETUP_COMPLETE is %v, want resumed %v", m, resumed)
	}
	return p.SessionID, p.ResumeToken
}

// DropConnection closes the connection without a close frame.
func DropConnection(c *Client) {
	c.Conn.Close()
	<-c.Done
}
