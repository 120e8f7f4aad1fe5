package signaling_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge"
	"voxgate/media"
	"voxgate/signaling"
)

// pcmDoor is a front door as small as one can be. A client opens a WebSocket and sends an agent as JSON, {"prompt": "…"}; then
// its sound in binary messages, 16-bit little-endian mono PCM at 16 kHz, and commands: {"command": "interrupt"},
// {"command": "hang up"}, {"command": "type", "text": "…"}, {"command": "answer", "id": "…", "result": …}. It gets the voice in the same form, and events as JSON.
type pcmDoor struct{ host *bridge.Host }

const pcmRate = 16000

// maxFrame bounds a message: a second of sound.
const maxFrame = 2 * pcmRate

type pcmMessage struct {
	data []byte
	text bool
}

// pcmCall is one client.
type pcmCall struct {
	line    *signaling.Line
	out     *signaling.Outbox[pcmMessage]
	written chan struct{}
	down    *media.Resampler
}

func (d *pcmDoor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	line, err := signaling.Accept(w, r, nil)
	if err != nil {
		return // Accept has answered
	}
	defer line.Close()
	first, _, err := line.Read(maxFrame)
	var agent bridge.Agent
	if err != nil || json.Unmarshal(first, &agent) != nil {
		line.Goodbye(websocket.ClosePolicyViolation, "The first message must be an agent.")
		return
	}
	line.Opened()
	ctx, cancel := context.WithCancelCause(r.Context())
	c := &pcmCall{
		line: line, out: signaling.NewOutbox[pcmMessage](), written: make(chan struct{}),
		down: media.NewResampler(bridge.VoiceRate, pcmRate),
	}
	var running sync.WaitGroup
	running.Go(func() { line.Ping(ctx) })
	running.Go(func() {
		defer close(c.written)
		if err := c.out.Run(ctx, func(_ context.Context, m pcmMessage) error { return line.Write(m.data, m.text) }); err != nil {
			cancel(err)
		}
	})
	err = d.host.Serve(ctx, c, bridge.Open{Agent: agent, Config: lookUpConfig, Origin: bridge.Origin{Door: "pcm"}})
	c.end(err)
	cancel(nil)
	running.Wait()
}

// end sends what waits, and then says goodbye.
func (c *pcmCall) end(err error) {
	c.out.Close()
	<-c.written
	c.line.Goodbye(signaling.Goodbye(err))
}

// Serve implements bridge.Caller.
func (c *pcmCall) Serve(ctx context.Context, s *bridge.Session) error {
	mic, err := s.Mic(pcmRate)
	if err != nil {
		return err
	}
	s.Attach(c)
	s.Hold(false)
	defer context.AfterFunc(ctx, func() { c.end(context.Cause(ctx)) })() // which ends Read
	for {
		data, text, err := c.line.Read(maxFrame)
		if err != nil {
			return nil
		}
		if !text {
			err = mic.WritePCM(media.AppendSamples(nil, data))
		} else {
			err = c.do(s, data)
		}
		if err != nil {
			c.tell("error", bridge.AsError(err))
		}
	}
}

func (c *pcmCall) do(s *bridge.Session, raw []byte) error {
	var m struct {
		Command, Text, ID string
		Result            json.RawMessage
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return &bridge.Error{Code: bridge.CodeBadMessage, Message: err.Error()}
	}
	switch m.Command {
	case "type":
		return s.Do(bridge.Message{Text: m.Text, TurnComplete: true})
	case "interrupt":
		return s.Do(bridge.Interrupt{})
	case "hang up":
		return s.Do(bridge.EndAfterSpeaking{})
	case "answer":
		return s.Do(bridge.ToolResponse{ID: m.ID, Response: m.Result})
	}
	return &bridge.Error{Code: bridge.CodeBadMessage, Message: fmt.Sprintf("%q is no command.", m.Command)}
}

// Notify implements bridge.Caller.
func (c *pcmCall) Notify(e bridge.Event) {
	c.tell(strings.TrimPrefix(fmt.Sprintf("%T", e.Body), "bridge."), e)
}

func (c *pcmCall) tell(kind string, what any) {
	if line, err := json.Marshal(map[string]any{"event": kind, "is": what}); err == nil {
		c.out.Put(pcmMessage{line, true}, len(line))
	}
}

// Rate, Lead and WriteFrame implement media.Output.
func (c *pcmCall) Rate() int           { return bridge.VoiceRate }
func (c *pcmCall) Lead() time.Duration { return 200 * time.Millisecond }

func (c *pcmCall) WriteFrame(f media.Frame) error {
	pcm := media.AppendBytes(nil, c.down.Resample(f.PCM))
	c.out.Put(pcmMessage{pcm, false}, len(pcm))
	return nil
}
