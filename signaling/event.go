package signaling

import (
	"encoding/base64"
	"encoding/json"
	"time"

	"voxgate/bridge"
	"voxgate/media"
)

type setupPayload struct {
	Success         bool            `json:"success"`
	SessionID       string          `json:"sessionId,omitempty"`
	Model           string          `json:"model,omitempty"`
	Resumed         *bool           `json:"resumed,omitempty"`
	ResumeToken     string          `json:"resumeToken,omitempty"`
	Backend         string          `json:"backend,omitempty"`
	EffectiveConfig json.RawMessage `json:"effectiveConfig,omitempty"`
	Error           *setupError     `json:"error,omitempty"`
}

type setupError struct {
	Code    int           `json:"code,omitempty"`
	Message string        `json:"message"`
	Details *errorDetails `json:"details,omitempty"`
}

type errorPayload struct {
	Message string        `json:"message"`
	Details *errorDetails `json:"details,omitempty"`
}

type errorDetails struct {
	Code  bridge.Code `json:"code"`
	Field string      `json:"field,omitempty"`
}

type disconnectedPayload struct {
	Reason string `json:"reason,omitempty"`
}

type logPayload struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

type speakingPayload struct {
	Speaking bool `json:"speaking"`
}

type contentPayload struct {
	ServerContent json.RawMessage `json:"serverContent"`
}

type groundingPayload struct {
	GroundingMetadata json.RawMessage `json:"groundingMetadata"`
}

type toolCallPayload struct {
	ToolCall struct {
		FunctionCalls any `json:"functionCalls"`
	} `json:"toolCall"`
}

type cancellationPayload struct {
	ToolCallCancellation struct {
		IDs []string `json:"ids"`
	} `json:"toolCallCancellation"`
}

func errorPayloadOf(e *bridge.Error) errorPayload {
	return errorPayload{Message: e.Message, Details: &errorDetails{Code: e.Code, Field: e.Field}}
}

// setupRefused is SETUP_COMPLETE for a set-up that failed.
func setupRefused(e *bridge.Error) setupPayload {
	return setupPayload{Error: &setupError{Code: e.Status, Message: e.Message, Details: &errorDetails{Code: e.Code, Field: e.Field}}}
}

// Notify implements [bridge.Caller].
func (c *call) Notify(e bridge.Event) {
	switch e := e.(type) {
	case bridge.SetupComplete:
		c.out.put(c.nextSetup(true), typeSetupComplete, marshal(setupPayload{
			Success: true, SessionID: e.SessionID, Model: e.Model, Resumed: &e.Resumed, ResumeToken: e.ResumeToken,
			Backend: e.Backend, EffectiveConfig: e.EffectiveConfig,
		}))
	case bridge.SetupFailed:
		w := c.nextSetup(false)
		c.out.put(w, typeSetupComplete, marshal(setupRefused(e.Err)))
		c.reply(w, e.Err)
	case bridge.Content:
		c.out.put(events, typeContent, marshal(contentPayload{e.ServerContent}))
	case bridge.Grounding:
		c.out.put(events, typeGrounding, marshal(groundingPayload{e.Metadata}))
	case bridge.Speaking:
		c.out.put(events, typeSpeaking, marshal(speakingPayload{true}))
	case bridge.Interrupted:
		c.out.put(events, typeInterrupted, nil)
	case bridge.TurnComplete:
		c.out.put(events, typeTurnComplete, nil)
	case bridge.ToolCall:
		var p toolCallPayload
		p.ToolCall.FunctionCalls = e.Calls
		c.out.put(events, typeToolCall, marshal(p))
	case bridge.ToolCallCancellation:
		var p cancellationPayload
		p.ToolCallCancellation.IDs = e.IDs
		c.out.put(events, typeToolCancellation, marshal(p))
	case bridge.Log:
		c.out.put(events, typeLog, marshal(logPayload{Type: e.Level, Message: e.Message}))
	}
}

// nextSetup says where the next SETUP_COMPLETE goes: back to where its request came from.
func (c *call) nextSetup(success bool) way {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setUp = c.setUp || success
	if len(c.setups) == 0 {
		return events
	}
	w := c.setups[0]
	c.setups = c.setups[1:]
	return w
}

// warn tells the client's developer.
func (c *call) warn(message string) {
	c.out.put(events, typeLog, marshal(logPayload{Type: "warn", Message: message}))
}

// chunkLead is how far ahead of real time AUDIO_CHUNK may be: enough for a jittery network, and little enough that an
// interruption is heard at once also by a client that does not clear its queue.
const chunkLead = 200 * time.Millisecond

// chunkOutput is the [media.Output] of clients without an audio track. Not for concurrent use; the playout clock has
// one caller at a time.
type chunkOutput struct {
	out *outbox
	buf []byte
}

func (o *chunkOutput) Rate() int { return bridge.VoiceRate }

func (o *chunkOutput) Lead() time.Duration { return chunkLead }

func (o *chunkOutput) WriteFrame(f media.Frame) error {
	o.buf = o.buf[:0]
	for _, s := range f.PCM {
		o.buf = append(o.buf, byte(s), byte(uint16(s)>>8))
	}
	payload := make([]byte, 0, base64.StdEncoding.EncodedLen(len(o.buf))+len(`{"data":""}`))
	payload = append(payload, `{"data":"`...)
	payload = base64.StdEncoding.AppendEncode(payload, o.buf)
	payload = append(payload, `"}`...)
	o.out.put(events, typeAudioChunk, payload)
	return nil
}
