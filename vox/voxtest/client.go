package voxtest

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
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
	o := emulator.Options{Espeak: emulator.NoVoice}
	if seen != nil {
		o.Observe = seen.Record
	}
	model := emulator.New(o)
	up := httptest.NewServer(model)
	workspace, err := desk.OpenWorkspace(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	client := &api.Client{BaseURL: up.URL}
	models := geminirest.New(nil, client, routes, log) // serves no calls itself; uses the gateway's host
	t.Cleanup(func() {
		models.Close()
		workspace.Close()
		model.Close()
		up.Close()
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

// Client is a client as the design of the VOX assistant describes it: binary frames are audio, text frames have a
// type.
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
	Role, Text                                  string
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
func (c *Client) Send(text string) { c.T.Helper(); c.SendFrame(websocket.TextMessage, []byte(text)) }

// SendAudio sends audio as fast as it is accepted.
func (c *Client) SendAudio(pcm []int16) {
	c.T.Helper()
	for part := range slices.Chunk(pcm, Rate/50) {
		c.SendFrame(websocket.BinaryMessage, media.AppendBytes(nil, part))
	}
}

// AwaitEvent waits for the next message of this type for which fits returns true; a nil fits accepts all.
func (c *Client) AwaitEvent(kind string, fits func(Fields) bool) Fields {
	c.T.Helper()
	var f Fields
	_, c.Client.At = c.AwaitMatch(c.Client.At, kind, func(m testkit.Message) bool {
		if f = (Fields{}); m.Type != "sound" {
			m.DecodePayload(c.T, &f)
		}
		return f.Type == kind && (fits == nil || fits(f))
	})
	return f
}

// StartConversation begins a conversation; fields are additional fields of its first message.
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

// CallFunction makes the model call a function, by a typed command of the emulator, and returns the result.
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
