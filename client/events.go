package client

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/gorilla/websocket"
)

// Event is one of the types below.
type Event interface{ isEvent() }

// Events of a conversation.
type (
	// Audio is a piece of the model's voice: samples at [VoiceRate], to be played in order. There is no Audio while WebRTC is
	// connected, because the voice then comes by WebRTC.
	Audio struct{ PCM []int16 }

	// Interrupted ends the answer: discard audio that has not been played. PlayedText is the part of the answer that the person heard.
	Interrupted struct {
		Turn       int
		PlayedText string
		By         string // the cause: voice, text, client, clear or link
	}

	// UserText is a piece of the transcript of the person's speech.
	UserText struct{ Text string }

	// ModelText is a piece of the transcript of the model's voice, or of its text.
	ModelText struct{ Text string }

	// Speaking is the beginning of the model's answer; Turn is the number of the answer's turn.
	Speaking struct{ Turn int }

	// TurnComplete is the end of an answer that was played to its end. Turn is the same number as in [Speaking].
	TurnComplete struct{ Turn int }

	// State is the state of the connection to the model, such as live or resuming. Message is for the person who waits;
	// it may be empty.
	State struct{ State, Message string }

	// Failure is an error that does not end the conversation.
	Failure struct{ Err *Error }

	// ConnectionLost reports that the connection to the gateway is lost, and that the client dials again.
	ConnectionLost struct{ Err error }

	// Resumed reports that the client has connected again. IsNew means that the old conversation was lost and a new one
	// has begun.
	Resumed struct{ IsNew bool }

	// Connected is the first event of each connection. Servers lists the STUN and TURN servers of the gateway.
	Connected struct{ Servers []ICEServer }

	// Raw is a message of the protocol that has no event type of its own.
	Raw struct {
		Type    string
		Payload json.RawMessage
	}
)

func (Audio) isEvent()          {}
func (Interrupted) isEvent()    {}
func (UserText) isEvent()       {}
func (ModelText) isEvent()      {}
func (Speaking) isEvent()       {}
func (TurnComplete) isEvent()   {}
func (State) isEvent()          {}
func (Failure) isEvent()        {}
func (ConnectionLost) isEvent() {}
func (Resumed) isEvent()        {}
func (Connected) isEvent()      {}
func (Raw) isEvent()            {}

// deliver passes an event to the application. It blocks until the application reads it, and returns false if the
// conversation is closed.
func (c *Conversation) deliver(e Event) (ok bool) {
	select {
	case c.events <- e:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// readMessages handles the messages of one connection until it ends. It returns an [endError] if the conversation has ended, too.
func (c *Conversation) readMessages(ws *websocket.Conn, backlog []message) error {
	for _, m := range backlog {
		if err := c.handleMessage(m); err != nil {
			return err
		}
	}
	for {
		if err := ws.SetReadDeadline(time.Now().Add(idleTimeout)); err != nil {
			return err
		}
		var m message
		if err := ws.ReadJSON(&m); err != nil {
			if c.ctx.Err() != nil {
				return &endError{}
			}
			return err
		}
		if err := c.handleMessage(m); err != nil {
			return err
		}
		if m.Type == "MOVE" { // another gateway goes on with the conversation
			return fmt.Errorf("the gateway is stopping")
		}
	}
}

// handleMessage delivers the events of a message, and starts or cancels its tool calls.
func (c *Conversation) handleMessage(m message) error {
	c.lastEvent = max(c.lastEvent, m.Event)
	if handled, err := c.handlePeerMessage(m); err != nil {
		return c.deliverOrEnd(Failure{&Error{Message: err.Error()}})
	} else if handled {
		return nil
	}
	var p struct {
		Generation    int64
		Data          string
		Turn          int
		PlayedText    string `json:"heard"`
		By            string
		State         string
		Message       string
		ServerContent struct {
			InputTranscription, OutputTranscription struct{ Text string }
			ModelTurn                               struct {
				Parts []struct {
					Text    string
					Thought bool
				}
			}
		}
		ICEServers           []ICEServer
		ToolCall             struct{ FunctionCalls []functionCall }
		ToolCallCancellation struct{ IDs []string }
	}
	if len(m.Payload) > 0 {
		if err := json.Unmarshal(m.Payload, &p); err != nil {
			return fmt.Errorf("%s: %w", m.Type, err)
		}
	}
	switch m.Type {
	case "GEMINI_CONNECTED":
		return c.deliverOrEnd(Connected{p.ICEServers})
	case "AUDIO_CHUNK":
		if p.Generation < c.generation {
			return nil
		}
		pcm, err := decodePCM(p.Data)
		if err != nil {
			return fmt.Errorf("AUDIO_CHUNK: %w", err)
		}
		return c.deliverOrEnd(Audio{pcm})
	case "INTERRUPTED":
		c.generation = max(c.generation, p.Generation)
		return c.deliverOrEnd(Interrupted{p.Turn, p.PlayedText, p.By})
	case "CONTENT_MESSAGE":
		return c.deliverTexts(p.ServerContent.InputTranscription.Text, p.ServerContent.OutputTranscription.Text)
	case "ASSISTANT_SPEAKING":
		return c.deliverOrEnd(Speaking{p.Turn})
	case "TURN_COMPLETE":
		return c.deliverOrEnd(TurnComplete{p.Turn})
	case "SESSION_STATE":
		return c.deliverOrEnd(State{p.State, p.Message})
	case "GEMINI_ERROR":
		if e, ok := parseError(m.Payload).(*Error); ok {
			return c.deliverOrEnd(Failure{e})
		}
		return nil
	case "GEMINI_DISCONNECTED":
		return parseEnd(m.Payload)
	case "TOOL_CALL":
		for _, call := range p.ToolCall.FunctionCalls {
			c.startToolCall(call)
		}
		return nil
	case "TOOL_CALL_CANCELLATION":
		c.cancelCalls(p.ToolCallCancellation.IDs)
		return nil
	}
	return c.deliverOrEnd(Raw{m.Type, m.Payload})
}

func (c *Conversation) deliverOrEnd(e Event) error {
	if !c.deliver(e) {
		return &endError{}
	}
	return nil
}

func (c *Conversation) deliverTexts(user, model string) error {
	if user != "" {
		if err := c.deliverOrEnd(UserText{user}); err != nil {
			return err
		}
	}
	if model != "" {
		return c.deliverOrEnd(ModelText{model})
	}
	return nil
}

func decodePCM(data string) ([]int16, error) {
	raw, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return nil, err
	}
	pcm := make([]int16, len(raw)/2)
	for i := range pcm {
		pcm[i] = int16(binary.LittleEndian.Uint16(raw[2*i:]))
	}
	return pcm, nil
}

// functionCall is the model's call of a tool.
type functionCall struct {
	ID, Name string
	Args     json.RawMessage
}

// startToolCall runs a tool and sends its response. The gateway may repeat a call after a resume, so startToolCall
// ignores a call that is still running.
func (c *Conversation) startToolCall(call functionCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, runs := c.calls[call.ID]; runs || c.isClosing {
		return
	}
	ctx, cancel := context.WithCancel(c.ctx)
	c.calls[call.ID] = cancel
	c.tools.Go(func() {
		defer func() {
			cancel()
			c.mu.Lock()
			delete(c.calls, call.ID)
			c.mu.Unlock()
		}()
		response := c.runTool(ctx, call)
		if ctx.Err() != nil {
			return
		}
		answer := map[string]any{"id": call.ID, "name": call.Name, "response": response}
		_ = c.Send(ctx, "SEND_TOOL_RESPONSE", map[string]any{ // fails only after the conversation has ended, when no answer is needed
			"toolResponse": map[string]any{"functionResponses": []any{answer}},
		})
	})
}

// runTool runs the tool of a call, and returns the response.
func (c *Conversation) runTool(ctx context.Context, call functionCall) any {
	for _, t := range c.options.Tools {
		if t.Name != call.Name {
			continue
		}
		result, err := t.Run(ctx, call.Args)
		if err != nil {
			return map[string]string{"error": err.Error()}
		}
		return result
	}
	return map[string]string{"error": "unknown function " + call.Name}
}

func (c *Conversation) cancelCalls(ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if cancel := c.calls[id]; cancel != nil {
			cancel()
		}
	}
}
