package voxtest

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"voxgate/bridge"
	"voxgate/bridge/gemini/emulator"
	"voxgate/internal/testkit"
	"voxgate/media"
	"voxgate/signaling"
	"voxgate/signaling/compat/geminirest"
	"voxgate/signaling/rtc"
	"voxgate/vox"
	desk "voxgate/vox/assistant"

	"github.com/gorilla/websocket"
)

// Rate is the sample rate of the VOX protocol, in Hz.
const Rate = 16000

// Serve returns an option that adds the endpoint of the VOX assistant, with a workspace.
func Serve(t *testing.T, seen *testkit.SeenByModel, change func(*vox.Server), routes ...geminirest.Route) testkit.Option {
	t.Helper()
	var o emulator.Options
	if seen != nil {
		o.Observe = seen.Record
	}
	client := testkit.StartModel(t, o)
	workspace, err := desk.OpenWorkspace(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	models := geminirest.New(nil, client, routes, log) // serves no calls itself; uses the gateway's host
	t.Cleanup(func() {
		models.Close()
		workspace.Close()
	})
	return func(d *testkit.Endpoints, ho *bridge.Options) {
		ho.Client = client
		d.AddEndpoints(func(host *bridge.Host, api *rtc.API) []signaling.Endpoint {
			models.Host = host
			door := &vox.Server{
				Host: host, Generate: models.GenerateContent, CheckModel: models.CheckModel, AppModel: "gemini-3.8-flash",
				Workspace: workspace, Logger: log,
			}
			if change != nil {
				change(door)
			}
			return door.Endpoints()
		})
	}
}

// Client is a client as the design of the VOX assistant describes it. Binary frames are audio, and text frames are JSON
// messages with a type.
type Client struct {
	*testkit.Client
	Ear    sync.Mutex
	pcm    []int16
	Frames []int // size of each frame, in bytes
}

// Dial opens a WebSocket of the VOX protocol.
func Dial(t *testing.T, g *testkit.Gateway, header http.Header) *Client {
	t.Helper()
	c := &Client{}
	c.Client = testkit.DialProtocol(t, strings.TrimSuffix(g.URL, "/")+"/api/vox/live", header, func(kind int, raw []byte) testkit.Message {
		if kind == websocket.BinaryMessage {
			c.Ear.Lock()
			defer c.Ear.Unlock()
			c.pcm = media.AppendSamples(c.pcm, raw)
			c.Frames = append(c.Frames, len(raw))
			return testkit.Message{Type: "sound"} // so that a test can wait for sound
		}
		m := testkit.Message{Payload: raw}
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Errorf("not JSON: %s", raw)
		}
		m.Payload = raw
		return m
	})
	return c
}

// Fields holds the fields of a message. Each message type uses some of them.
type Fields struct {
	Type, SessionID, Theme, Model, Mode, Resume string
	Role, Text, AppModel                        string
	ID, Name, Title                             string
	Args, Data                                  json.RawMessage
	Action, Target, URL, App                    string
	ToolID                                      string `json:"tool_id"`
	Message, Code, Reason, State, Level         string
	Resumed, NewTurn, Withdrawn, Recording      bool
	RetryAfterMs                                int
	Files                                       []string
	Version                                     int
}

// Send sends a text frame.
func (c *Client) Send(text string) { c.T.Helper(); c.SendTextFrame(text) }

// SendAudio sends audio as fast as the gateway accepts it.
func (c *Client) SendAudio(pcm []int16) {
	c.T.Helper()
	for part := range slices.Chunk(pcm, Rate/50) {
		c.SendFrame(websocket.BinaryMessage, media.AppendBytes(nil, part))
	}
}

// AwaitEvent waits for the next message of this type for which matches returns true. If matches is nil, every message
// of this type is accepted.
func (c *Client) AwaitEvent(kind string, matches func(Fields) bool) Fields {
	c.T.Helper()
	var f Fields
	_, c.Client.At = c.AwaitMatch(c.Client.At, kind, func(m testkit.Message) bool {
		if f = (Fields{}); m.Type != "sound" {
			m.DecodePayload(c.T, &f)
		}
		return f.Type == kind && (matches == nil || matches(f))
	})
	return f
}

// StartConversation begins a conversation. fields are additional JSON fields of the start message.
func (c *Client) StartConversation(fields string) Fields {
	c.T.Helper()
	c.Send(`{"type":"start"` + fields + `}`)
	return c.AwaitEvent("ready", nil)
}

// SendText sends a text.
func (c *Client) SendText(text string) {
	c.T.Helper()
	c.Send(fmt.Sprintf(`{"type":"text","text":%q}`, text))
}

// CallFunction makes the model call a function, and returns the result. It uses a command that the emulator accepts as
// typed text.
func (c *Client) CallFunction(name, args string) Fields {
	c.T.Helper()
	c.SendText("/tool " + name + " " + args)
	call := c.AwaitEvent("tool_call", func(f Fields) bool { return f.Name == name })
	var want, got any
	if json.Unmarshal([]byte(args), &want) != nil || json.Unmarshal(call.Args, &got) != nil || fmt.Sprint(want) != fmt.Sprint(got) {
		c.T.Errorf("%s was called with %s", name, call.Args)
	}
	return c.AwaitEvent("tool_result", func(f Fields) bool { return f.ID == call.ID })
}

// ReceivedVoice returns the voice received so far.
func (c *Client) ReceivedVoice() []int16 {
	c.Ear.Lock()
	defer c.Ear.Unlock()
	return slices.Clone(c.pcm)
}
