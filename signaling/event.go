package signaling

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
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
	Received        []string        `json:"received,omitzero"`
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
	Code       bridge.Code `json:"code"`
	Field      string      `json:"field,omitempty"`
	RetryAfter int         `json:"retryAfter,omitempty"` // seconds
}

type disconnectedPayload struct {
	Reason string `json:"reason,omitempty"`
}

type logPayload struct {
	Type    string         `json:"type"`
	Message string         `json:"message"`
	Details map[string]any `json:"details,omitempty"`
}

type statePayload struct {
	State   bridge.State `json:"state"`
	Message string       `json:"message,omitempty"`
}

// usagePayload is a gemini.Usage in the words of the protocol.
type usagePayload struct {
	Prompt     int            `json:"inputTokens"`
	Response   int            `json:"outputTokens"`
	Total      int            `json:"totalTokens"`
	Cached     int            `json:"cachedTokens,omitempty"`
	ToolUse    int            `json:"toolUseTokens,omitempty"`
	Thoughts   int            `json:"thoughtsTokens,omitempty"`
	PromptBy   map[string]int `json:"input,omitempty"`
	ResponseBy map[string]int `json:"output,omitempty"`
}

type contextPayload struct {
	Entries []contextEntry `json:"entries"`
}

type contextEntry struct {
	Role      string `json:"role"`
	Content   string `json:"content"`
	Timestamp int64  `json:"timestamp"` // milliseconds since the epoch
	PlayedMs  int64  `json:"playedMs,omitempty"`
	Cut       bool   `json:"cut,omitempty"`
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
	return errorPayload{Message: e.Message, Details: errorDetailsOf(e)}
}

func errorDetailsOf(e *bridge.Error) *errorDetails {
	return &errorDetails{Code: e.Code, Field: e.Field, RetryAfter: int(math.Ceil(e.Retry.Seconds()))}
}

// setupRefused is SETUP_COMPLETE for a set-up that failed.
func setupRefused(e *bridge.Error) setupPayload {
	return setupPayload{Error: &setupError{Code: e.Status, Message: e.Message, Details: errorDetailsOf(e)}}
}

// Notify implements [bridge.Caller].
func (c *call) Notify(e bridge.Event) {
	switch e := e.(type) {
	case bridge.SetupComplete:
		p := setupPayload{
			Success: true, SessionID: e.SessionID, Model: e.Model, ResumeToken: e.ResumeToken,
			Backend: e.Backend, EffectiveConfig: e.EffectiveConfig,
		}
		if !e.Update {
			p.Resumed = &e.Resumed
		}
		if e.Resumed {
			p.Received = append([]string{}, e.Received...) // told even if there are none
		}
		c.mu.Lock()
		c.setUp = true
		c.mu.Unlock()
		c.out.put(c.answerWay(&c.setups), typeSetupComplete, marshal(p))
	case bridge.SetupFailed:
		w := c.answerWay(&c.setups)
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
		c.out.put(events, typeLog, marshal(logPayload{Type: e.Level, Message: e.Message, Details: e.Details}))
	case bridge.StateChange:
		if e.State != bridge.StateEnded { // GEMINI_DISCONNECTED says that, and why
			c.out.put(events, typeState, marshal(statePayload{e.State, e.Message}))
		}
	case bridge.UserSpeaking:
		c.out.put(events, typeUserSpeaking, marshal(speakingPayload{e.Speaking}))
	case bridge.Usage:
		c.out.put(events, typeLog, marshal(usageLog(e)))
	case bridge.Failure:
		c.reply(events, e.Err)
	case bridge.History:
		p := contextPayload{Entries: make([]contextEntry, len(e.Entries))}
		for i, entry := range e.Entries {
			p.Entries[i] = contextEntry{entry.Role, entry.Content, entry.Time.UnixMilli(), entry.Played.Milliseconds(), entry.Cut}
		}
		c.out.put(c.answerWay(&c.contexts), typeContext, marshal(p))
	}
}

// usageLog tells of the tokens used, in words and in numbers.
func usageLog(u bridge.Usage) logPayload {
	return logPayload{
		Type:    "info",
		Message: fmt.Sprintf("This turn took %s tokens, the conversation %s.", thousands(u.Turn.Total), thousands(u.Total.Total)),
		Details: map[string]any{"usage": map[string]usagePayload{"turn": usagePayload(u.Turn), "total": usagePayload(u.Total)}},
	}
}

// thousands writes a number for people: 3,400.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// answerWay takes from ways where the next answer goes: back to where its request came from. What nobody on this
// connection asked for is an event.
func (c *call) answerWay(ways *[]way) way {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(*ways) == 0 {
		return events
	}
	w := (*ways)[0]
	*ways = (*ways)[1:]
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
