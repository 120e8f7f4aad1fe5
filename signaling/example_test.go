package signaling_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"voxgate/bridge"
	"voxgate/media"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/tools"
)

// pcmDoor is a minimal endpoint. A client sends an agent as JSON, {"prompt": "…"}, then audio in binary messages (16-bit mono PCM at
// 16 kHz) and the commands {"command": "interrupt"}, {"command": "hang up"}, {"command": "type", "text": "…"} and {"command":
// "answer", "id": "…", "result": …}. It receives the voice in the same format, and events as JSON.
type pcmDoor struct{ host *bridge.Host }

const pcmRate = 16000

// pcmCall is the call of one client.
type pcmCall struct {
	*signaling.Socket
	down *media.Resampler
}

func (d *pcmDoor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	signaling.ServeSocket(w, r, signaling.SocketOptions{Limit: 2 * pcmRate}, func(ctx context.Context, s *signaling.Socket) error {
		open := bridge.SessionRequest{Config: lookUpConfig, Origin: bridge.Origin{Protocol: "pcm"}}
		if first, err := s.ReadFirst(ctx, 4096); err != nil || json.Unmarshal(first.Data, &open.Agent) != nil {
			return &bridge.Error{Code: bridge.CodeForbidden, Message: "The first message must be an agent."}
		}
		if err := access.From(ctx).Authorize(&open, ""); err != nil { // without this check anyone could call, without limits
			return err
		}
		s.MarkOpened()
		return d.host.Serve(ctx, &pcmCall{s, media.NewResampler(bridge.VoiceRate, pcmRate)}, open)
	})
}

// Serve implements bridge.Caller.
func (c *pcmCall) Serve(ctx context.Context, s *bridge.Session) error {
	mic, err := s.NewMicrophone(pcmRate)
	if err != nil {
		return err
	}
	s.AttachOutput(c)
	s.HoldVoice(false)
	return c.Receive(ctx, func(m signaling.Message) error {
		if err := cmp.Or(m.Err, do(s, mic, m)); err != nil {
			c.Notify(bridge.Event{Body: bridge.ErrorEvent{Err: bridge.AsError(err)}})
		}
		return nil
	})
}

func do(s *bridge.Session, mic *bridge.Microphone, m signaling.Message) error {
	if !m.Text {
		return mic.WritePCM(media.AppendSamples(nil, m.Data))
	}
	var said struct {
		Command, Text, ID string
		Result            json.RawMessage
	}
	err := json.Unmarshal(m.Data, &said)
	command := map[string]bridge.Command{
		"type": bridge.Message{Text: said.Text, TurnComplete: true}, "interrupt": bridge.Interrupt{},
		"hang up": bridge.EndAfterSpeaking{}, "answer": bridge.ToolResponse{ID: said.ID, Response: said.Result},
	}[said.Command]
	if err != nil || command == nil {
		return &bridge.Error{Code: bridge.CodeBadMessage, Message: fmt.Sprintf("%q is no command.", m.Data)}
	}
	return s.Do(command)
}

// Notify implements bridge.Caller.
func (c *pcmCall) Notify(e bridge.Event) {
	kind := strings.TrimPrefix(fmt.Sprintf("%T", e.Body), "bridge.")
	c.PutText(tools.EncodeOrEmpty(map[string]any{"event": kind, "is": e}))
}

// MaxLead and WriteFrame implement media.Output.
func (c *pcmCall) MaxLead() time.Duration { return 200 * time.Millisecond }

func (c *pcmCall) WriteFrame(f media.Frame) error {
	c.Put(signaling.Outgoing{Data: media.AppendBytes(nil, c.down.Resample(f.PCM))})
	return nil
}

// A door of one's own: a WebSocket with 16-bit PCM in binary messages, and JSON in text messages.
func Example() {
	host, stop := exampleHost() // like the host that `gateway serve` creates
	defer stop()
	server := httptest.NewServer(signaling.NewServer(signaling.Options{}, signaling.Endpoint{Pattern: "/pcm", Socket: &pcmDoor{host}}))
	defer server.Close()
	client := exampleClient(server.URL + "/pcm")
	defer client.Close()
	client.Say(`{"prompt": "Be brief."}`)
	client.Say(`{"command": "type", "text": "Hello!"}`)
	fmt.Println(client.Answer())
	// Output: You said: Hello!
}
