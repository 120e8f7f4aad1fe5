// Package client is a Go client of Voxgate's client protocol (signaling/client/PROTOCOL.md), with audio over the
// WebSocket or WebRTC.
//
// [Dial] opens a [Conversation]. Its audio is 16-bit PCM with one channel: [Conversation.SendAudio] sends the
// microphone, and the model's voice comes as [Audio] events. With [Options.WebRTC] the audio goes over WebRTC instead,
// as soon as WebRTC is connected. If the connection to the gateway is lost, the client continues the conversation over
// a new connection.
package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

const (
	// VoiceRate is the sample rate of [Audio] in Hz.
	VoiceRate = 24000

	defaultMicrophoneRate = 16000

	dialTimeout  = 15 * time.Second // limit on a dial, until SETUP_COMPLETE
	writeTimeout = 5 * time.Second
	idleTimeout  = 12 * time.Second // the gateway pings every 5 s
	redialPause  = time.Second
	resumeLimit  = time.Minute // gateways keep a lost conversation for this time by default
	eventBuffer  = 64
)

// Options configure a conversation.
type Options struct {
	URL   string // of the gateway's WebSocket, such as wss://voice.example.com/ws
	Agent string // name of one of the operator's agents; may be empty

	// Token returns an access token. It is called for each connection, and may be nil if the gateway needs no token.
	Token func(ctx context.Context) (string, error)

	// Config is Gemini's setup with Voxgate's options (LiveConfig in the protocol), or nil. Dial adds the declarations of
	// Tools.
	Config map[string]any

	TLS     *tls.Config                                                          // of a wss URL; may be nil
	NetDial func(ctx context.Context, network, address string) (net.Conn, error) // opens the TCP connections; may be nil

	// WebRTC carries the audio: a *rtc.Audio of package voxgate/client/rtc. If it is nil, the WebSocket carries it.
	WebRTC PeerDialer

	Tools          []Tool
	MicrophoneRate int // sample rate of SendAudio in Hz, 8000 to 48000; 16000 by default
}

// Tool is a function that the model can call.
type Tool struct {
	Name        string
	Description string
	Parameters  any // JSON Schema of the arguments; nil means none

	// Run is called in a goroutine of its own. ctx ends with the conversation, or when the model cancels the call. The
	// result is encoded as JSON.
	Run func(ctx context.Context, args json.RawMessage) (any, error)
}

// ErrEnded is returned by methods that are called after the end of a conversation. [Conversation.Err] has the reason.
var ErrEnded = errors.New("the conversation has ended")

// Error is an error that the gateway reports.
type Error struct {
	Code    string // of the protocol's list of errors, such as "unauthorized"; may be empty
	Message string // a sentence for people
}

func (e *Error) Error() string { return e.Message }

// isFinal reports whether retrying is pointless. Retrying helps if the gateway is busy, because it may have capacity
// later. Retrying also helps after an error without a code, because a gateway sends such an error when it stops.
func (e *Error) isFinal() bool { return e.Code != "busy" && e.Code != "" }

// Conversation is a conversation with the model. Its methods may be called concurrently.
type Conversation struct {
	options Options
	ctx     context.Context // canceled by Close
	cancel  context.CancelFunc
	events  chan Event
	done    chan struct{} // closed after the last event
	tools   sync.WaitGroup

	mu        sync.Mutex
	ws        *websocket.Conn // nil while the connection is lost
	connected chan struct{}   // closed when ws is set; replaced when the connection is lost
	isClosing bool
	calls     map[string]context.CancelFunc // tool calls in progress, by ID
	setup     Setup
	err       error // why the conversation ended

	// Only the reading goroutine uses the following fields.
	resumeToken string
	isResumed   bool // whether the newest connection resumed the conversation
	lastEvent   int64
	generation  int64 // generation of the voice; audio of older generations was interrupted
	peer        Peer  // WebRTC peer of the newest connection; nil without WebRTC
}

// Dial opens a conversation. It blocks until the model listens, for 15 s at most. ctx limits only Dial. Read
// [Conversation.Events] until it is closed.
func Dial(ctx context.Context, o Options) (*Conversation, error) {
	if o.MicrophoneRate == 0 {
		o.MicrophoneRate = defaultMicrophoneRate
	}
	c := &Conversation{
		options: o, events: make(chan Event, eventBuffer), done: make(chan struct{}), connected: make(chan struct{}),
		calls: map[string]context.CancelFunc{},
	}
	ws, backlog, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.setConnection(ws)
	go c.run(ws, backlog)
	return c, nil
}

// Events delivers what happens, in order. The channel is closed at the end of the conversation. When the channel's buffer
// is full, the client reads no messages of the gateway until the application reads an event.
func (c *Conversation) Events() <-chan Event { return c.events }

// Setup describes a conversation that was opened or resumed.
type Setup struct {
	SessionID   string
	Model       string
	Backend     string // gemini-api, vertex-ai or emulator
	IsResumable bool   `json:"-"` // the conversation can continue after a lost connection
}

// Setup returns the description of the newest connection.
func (c *Conversation) Setup() Setup {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.setup
}

// Err returns the reason why the conversation has ended. It returns nil before the end, and after Close.
func (c *Conversation) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// SendAudio sends samples of the microphone, preferably 20 to 100 ms. It blocks while the network accepts no data, for
// 5 s at most. Without a connection it discards them.
func (c *Conversation) SendAudio(pcm []int16) error {
	data := make([]byte, 0, 2*len(pcm))
	for _, s := range pcm {
		data = binary.LittleEndian.AppendUint16(data, uint16(s))
	}
	audio := map[string]string{
		"mimeType": fmt.Sprintf("audio/pcm;rate=%d", c.options.MicrophoneRate), "data": base64.StdEncoding.EncodeToString(data),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.hasEnded():
		return ErrEnded
	case c.ws == nil:
		return nil
	}
	if err := c.writeMessage(c.ws, "SEND_REALTIME_INPUT", map[string]any{"audio": audio}); err != nil {
		c.dropConnection()
	}
	return nil
}

// SendText sends a typed message. It blocks while the connection is lost.
func (c *Conversation) SendText(ctx context.Context, text string) error {
	return c.Send(ctx, "SEND_MESSAGE", map[string]any{"parts": []any{map[string]string{"text": text}}})
}

// Interrupt stops the model's answer. It blocks while the connection is lost.
func (c *Conversation) Interrupt(ctx context.Context) error { return c.Send(ctx, "INTERRUPT", nil) }

// Send sends any message of the protocol. It blocks while the connection is lost. A message that was sent just before the
// loss may not have arrived.
func (c *Conversation) Send(ctx context.Context, kind string, payload any) error {
	if _, err := json.Marshal(payload); err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	for {
		c.mu.Lock()
		if c.hasEnded() {
			c.mu.Unlock()
			return ErrEnded
		}
		if c.ws != nil {
			if err := c.writeMessage(c.ws, kind, payload); err == nil {
				c.mu.Unlock()
				return nil
			}
			c.dropConnection()
		}
		connected := c.connected
		c.mu.Unlock()
		select {
		case <-connected:
		case <-c.done:
			return ErrEnded
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close ends the conversation and waits until its tools have returned. Events that are not read are discarded.
func (c *Conversation) Close() error {
	c.mu.Lock()
	if c.ws != nil {
		_ = c.writeMessage(c.ws, "DISCONNECT_GEMINI", nil) // if it fails, the gateway ends the conversation later
		c.dropConnection()
	}
	c.isClosing = true
	c.mu.Unlock()
	c.cancel()
	for range c.events { // the reading goroutine may be waiting to deliver an event
	}
	<-c.done
	return nil
}

// hasEnded reports whether the conversation has ended or is being closed. The caller must hold mu.
func (c *Conversation) hasEnded() bool {
	select {
	case <-c.done:
		return true
	default:
		return c.isClosing
	}
}

// message is a message of the protocol.
type message struct {
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload,omitempty"`
	Event   int64           `json:"event,omitempty"`
}

// writeMessage sends a message. The caller must hold mu, because only one goroutine at a time may write to a WebSocket.
func (c *Conversation) writeMessage(ws *websocket.Conn, kind string, payload any) error {
	m := message{Type: kind}
	if payload != nil {
		data, err := json.Marshal(payload)
		if err != nil {
			return err
		}
		m.Payload = data
	}
	if err := ws.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	return ws.WriteJSON(m)
}

// run reads until the conversation ends, and reconnects whenever a connection is lost.
func (c *Conversation) run(ws *websocket.Conn, backlog []message) {
	defer func() {
		c.cancel()
		c.tools.Wait()
		close(c.done)
		close(c.events)
	}()
	for {
		err := c.readMessages(ws, backlog)
		c.setConnection(nil)
		c.closePeer()
		if ended := (*endError)(nil); errors.As(err, &ended) {
			c.setEndError(ended.reason)
			return
		}
		if c.resumeToken == "" {
			c.setEndError(fmt.Errorf("connection lost: %w", err))
			return
		}
		if !c.deliver(ConnectionLost{err}) {
			return
		}
		if ws, backlog, err = c.reconnect(); err != nil {
			c.setEndError(err)
			return
		}
		c.setConnection(ws)
		if !c.deliver(Resumed{IsNew: !c.isResumed}) {
			return
		}
	}
}

// endError means that the gateway has announced the end of the conversation. reason is nil if this client requested the
// end.
type endError struct{ reason error }

func (e *endError) Error() string { return cmp.Or(e.reason, ErrEnded).Error() }

func (e *endError) Unwrap() error { return e.reason }

// setEndError records why the conversation has ended, for [Conversation.Err], unless the client has closed it.
func (c *Conversation) setEndError(reason error) {
	c.mu.Lock()
	if !c.isClosing {
		c.err = reason
	}
	c.mu.Unlock()
}

// setConnection sets the connection that the methods of a Conversation use to send. If ws is nil, it closes the current
// connection.
func (c *Conversation) setConnection(ws *websocket.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ws == nil {
		c.dropConnection()
		return
	}
	c.ws = ws
	close(c.connected)
}

// dropConnection closes the connection, if there is one, so that reading from it fails. The caller must hold mu.
func (c *Conversation) dropConnection() {
	if c.ws != nil {
		_ = c.ws.Close()
		c.ws, c.connected = nil, make(chan struct{})
	}
}

// reconnect dials until the conversation is resumed, for resumeLimit at most.
func (c *Conversation) reconnect() (*websocket.Conn, []message, error) {
	ctx, cancel := context.WithTimeout(c.ctx, resumeLimit)
	defer cancel()
	for {
		ws, backlog, err := c.connect(ctx)
		if refusal := (*Error)(nil); err == nil || errors.As(err, &refusal) && refusal.isFinal() {
			return ws, backlog, err
		}
		select {
		case <-time.After(redialPause):
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("connection lost: %w", err)
		}
	}
}

// connect dials and waits for SETUP_COMPLETE. backlog holds the messages that came before SETUP_COMPLETE. The caller
// must deliver their events later.
func (c *Conversation) connect(ctx context.Context) (_ *websocket.Conn, backlog []message, err error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	request := map[string]any{
		"initialConfig": c.buildConfig(), "resumable": true, "resumeToken": c.resumeToken, "lastEvent": c.lastEvent,
	}
	if c.options.Agent != "" {
		request["agent"] = c.options.Agent
	}
	if c.options.Token != nil {
		if request["token"], err = c.options.Token(ctx); err != nil {
			return nil, nil, fmt.Errorf("access token: %w", err)
		}
	}
	ws, err := c.dialWebSocket(ctx)
	if err != nil {
		return nil, nil, err
	}
	isNew := c.resumeToken == ""
	abandon := sync.OnceFunc(func() {
		// Without DISCONNECT_GEMINI, the gateway would keep the new conversation for a minute, although no client can
		// resume it. If mu is locked, a write may be stuck, and closing the socket ends it.
		if isNew && c.mu.TryLock() {
			_ = c.writeMessage(ws, "DISCONNECT_GEMINI", nil) // if it fails, the gateway ends the conversation later
			c.mu.Unlock()
		}
		_ = ws.Close()
	})
	stop := context.AfterFunc(ctx, abandon)
	defer stop()
	defer func() {
		if err != nil {
			c.closePeer()
			abandon()
		}
	}()
	ws.SetPingHandler(func(data string) error {
		if err := ws.SetReadDeadline(time.Now().Add(idleTimeout)); err != nil {
			return err
		}
		return ws.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(writeTimeout))
	})
	c.mu.Lock()
	err = c.writeMessage(ws, "CONNECT_GEMINI", request)
	c.mu.Unlock()
	if err != nil {
		return nil, nil, fmt.Errorf("connect: %w", err)
	}
	if err := c.openPeer(ws); err != nil {
		return nil, nil, err
	}
	backlog, err = c.awaitSetup(ws)
	if err != nil && ctx.Err() != nil { // ctx has closed the connection
		err = fmt.Errorf("connect: %w", context.Cause(ctx))
	}
	return ws, backlog, err
}

// UpgradeError reports that no WebSocket was opened.
type UpgradeError struct {
	Status int    // status of the HTTP response that came instead; 0 means that no response came
	Body   string // first line of the response's body
	Err    error  // error of the connection, if no response came
}

func (e *UpgradeError) Error() string {
	if e.Status == 0 {
		return e.Err.Error()
	}
	return fmt.Sprintf("%d %s: %s", e.Status, http.StatusText(e.Status), e.Body)
}

func (e *UpgradeError) Unwrap() error { return e.Err }

func (c *Conversation) dialWebSocket(ctx context.Context) (*websocket.Conn, error) {
	o := &c.options
	dialer := websocket.Dialer{Proxy: http.ProxyFromEnvironment, TLSClientConfig: o.TLS, NetDialContext: o.NetDial}
	ws, res, err := dialer.DialContext(ctx, o.URL, nil)
	if err == nil {
		return ws, nil
	}
	refused := &UpgradeError{Err: err}
	if res != nil {
		body, _ := io.ReadAll(res.Body) // the dialer keeps at most 1 KiB of the body
		line, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
		refused = &UpgradeError{Status: res.StatusCode, Body: strings.TrimSuffix(line, "\r")}
	}
	return nil, fmt.Errorf("dial %s: %w", o.URL, refused)
}

// awaitSetup reads until SETUP_COMPLETE, and returns the messages before it.
func (c *Conversation) awaitSetup(ws *websocket.Conn) (backlog []message, err error) {
	var failure error // the last error that the gateway has reported
	for {
		var m message
		if err := ws.ReadJSON(&m); err != nil {
			return nil, fmt.Errorf("connect: %w", err)
		}
		if handled, err := c.handlePeerMessage(m); err != nil {
			return nil, err
		} else if handled {
			continue
		}
		switch m.Type {
		case "GEMINI_CONNECTED":
			if err := c.passServersToPeer(m.Payload); err != nil {
				return nil, err
			}
		case "SETUP_COMPLETE":
			return backlog, c.handleSetupComplete(m.Payload)
		case "GEMINI_DISCONNECTED":
			return nil, cmp.Or(failure, parseEnd(m.Payload))
		case "GEMINI_ERROR":
			failure = parseError(m.Payload)
		}
		backlog = append(backlog, m)
	}
}

// buildConfig returns the configuration with the declarations of the tools added.
func (c *Conversation) buildConfig() map[string]any {
	config := map[string]any{}
	for name, value := range c.options.Config {
		config[name] = value
	}
	if len(c.options.Tools) == 0 {
		return config
	}
	var declarations []any
	for _, t := range c.options.Tools {
		d := map[string]any{"name": t.Name, "description": t.Description}
		if t.Parameters != nil {
			d["parametersJsonSchema"] = t.Parameters
		}
		declarations = append(declarations, d)
	}
	list, _ := config["tools"].([]any)
	config["tools"] = append(list[:len(list):len(list)], map[string]any{"functionDeclarations": declarations})
	return config
}

// handleSetupComplete stores the setup and the resume token of SETUP_COMPLETE. It returns the error of a failed setup.
func (c *Conversation) handleSetupComplete(payload json.RawMessage) error {
	var p struct {
		Success     bool
		Resumed     bool
		ResumeToken string
		Setup
		Error json.RawMessage
	}
	switch err := json.Unmarshal(payload, &p); {
	case err != nil:
		return fmt.Errorf("SETUP_COMPLETE: %w", err)
	case !p.Success:
		return parseError(p.Error)
	}
	if c.isResumed = p.Resumed; !p.Resumed {
		c.generation, c.lastEvent = 0, 0
	}
	c.resumeToken = p.ResumeToken
	p.IsResumable = p.ResumeToken != ""
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setup = p.Setup
	return nil
}

// parseError returns the error that GEMINI_ERROR, or a failed SETUP_COMPLETE, describes.
func parseError(payload json.RawMessage) error {
	var p struct {
		Message string
		Details struct{ Code string }
	}
	if err := json.Unmarshal(payload, &p); err != nil {
		return fmt.Errorf("error of the gateway: %w", err)
	}
	return &Error{p.Details.Code, p.Message}
}

// parseEnd returns the error for GEMINI_DISCONNECTED.
func parseEnd(payload json.RawMessage) error {
	var p struct{ Reason string }
	_ = json.Unmarshal(payload, &p) // the reason may be absent
	if p.Reason == "goodbye" {
		return &endError{}
	}
	return &endError{&Error{Message: p.Reason}}
}
