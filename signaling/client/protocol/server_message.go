package protocol

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"voxgate/bridge"
)

type setupPayload struct {
	Success         bool            `json:"success"`
	SessionID       string          `json:"sessionId,omitempty"`
	StartedAt       int64           `json:"startedAt,omitempty"` // milliseconds since the epoch
	Model           string          `json:"model,omitempty"`
	Resumed         *bool           `json:"resumed,omitempty"`
	ResumeToken     string          `json:"resumeToken,omitempty"`
	Backend         string          `json:"backend,omitempty"`
	EffectiveConfig json.RawMessage `json:"effectiveConfig,omitempty"`
	Step            string          `json:"step,omitempty"`
	Recording       *bool           `json:"recording,omitempty"`
	Tools           []setupTool     `json:"tools,omitzero"`
	Received        []string        `json:"received,omitzero"`
	Error           *setupError     `json:"error,omitempty"`
}

// setupTool is the declaration of a function that the model may call.
type setupTool struct {
	Name       string `json:"name"`
	Title      string `json:"title,omitempty"`
	Behavior   string `json:"behavior"`
	Scheduling string `json:"scheduling,omitempty"`
	Where      string `json:"where"`
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
	Code         bridge.Code `json:"code"`
	Field        string      `json:"field,omitempty"`
	RetryAfter   int         `json:"retryAfter,omitempty"` // seconds, rounded up
	RetryAfterMs int64       `json:"retryAfterMs,omitempty"`
}

type logPayload struct {
	Type    string         `json:"type"`
	Message string         `json:"message"`
	Details map[string]any `json:"details,omitempty"`
}

type statePayload struct {
	State      bridge.State `json:"state"`
	Message    string       `json:"message,omitempty"`
	Unanswered bool         `json:"unanswered,omitempty"`
}

type stepPayload struct {
	Step   string         `json:"step"`
	Fields map[string]any `json:"fields,omitempty"`
}

// usagePayload is a usage.Tokens with the protocol's field names.
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

// userSpeakingPayload reports the start or end of the person's speech. If the gateway decides about turns, Details has
// the key "held", "resumed" or "retracted".
type userSpeakingPayload struct {
	Speaking bool            `json:"speaking"`
	Details  map[string]bool `json:"details,omitempty"`
}

type speakingPayload struct {
	Speaking bool `json:"speaking"`
	Turn     int  `json:"turn,omitempty"`
}

// interruptedPayload reports how much of the answer the person heard. The client must discard audio of earlier
// generations.
type interruptedPayload struct {
	Generation uint32       `json:"generation"`
	Heard      string       `json:"heard"`
	PlayedMs   int64        `json:"playedMs"`
	Turn       int          `json:"turn,omitempty"`
	By         bridge.Cause `json:"by"`
}

type groundingPayload struct {
	GroundingMetadata json.RawMessage `json:"groundingMetadata"`
	Chips             string          `json:"chips,omitempty"` // path on the gateway
}

type toolStatusPayload struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Title  string `json:"title,omitempty"`
	Status string `json:"status"`
	Took   *int64 `json:"ms,omitempty"`
	Error  string `json:"error,omitempty"`
}

func errorDetailsOf(e *bridge.Error) *errorDetails {
	return &errorDetails{Code: e.Code, Field: e.Field, RetryAfter: int(math.Ceil(e.Retry.Seconds())), RetryAfterMs: e.Retry.Milliseconds()}
}

// ConnectedMessage reports that the model is being dialled. iceServers is sent in the form of RTCIceServer[].
func ConnectedMessage(iceServers any) ServerMessage {
	return newMessage(typeConnected, map[string]any{"protocol": version, "iceServers": iceServers})
}

// DisconnectedMessage reports the end of the conversation and its reason.
func DisconnectedMessage(reason string) ServerMessage { return EndMessage(reason, "") }

// EndMessage reports the end of the conversation. reason is for people, and code for programs. Both may be "".
func EndMessage(reason string, code bridge.Code) ServerMessage {
	payload := map[string]string{}
	if reason != "" {
		payload["reason"] = reason
	}
	if code != "" {
		payload["code"] = string(code)
	}
	return newMessage(typeDisconnected, payload)
}

// ErrorMessage reports an error, converted to a [bridge.Error].
func ErrorMessage(err error) ServerMessage {
	e := bridge.AsError(err)
	return newMessage(typeError, errorPayload{Message: e.Message, Details: errorDetailsOf(e)})
}

// SetupRefusedMessage returns the SETUP_COMPLETE of a failed setup.
func SetupRefusedMessage(e *bridge.Error) ServerMessage {
	return newMessage(typeSetupComplete, setupPayload{Error: &setupError{Code: e.Status, Message: e.Message, Details: errorDetailsOf(e)}})
}

// WarningMessage returns a warning for the client's developer.
func WarningMessage(text string) ServerMessage {
	return newMessage(typeLog, logPayload{Type: "warn", Message: text})
}

// PongMessage answers a PING.
func PongMessage() ServerMessage { return ServerMessage{kind: typePong} }

// AnswerMessage returns the SDP answer to an offer.
func AnswerMessage(sdp string) ServerMessage {
	return newMessage(typeAnswer, map[string]string{"sdp": sdp})
}

// CandidateMessage returns an ICE candidate of the gateway: its line, and the mid and index of its section. mid is "" if the offer has
// none.
func CandidateMessage(line, mid string, index int) ServerMessage {
	section := uint16(index)
	p := candidatePayload{Candidate: &line, SDPMLineIndex: &section}
	if mid != "" {
		p.SDPMid = &mid
	}
	return newMessage(TypeCandidate, p)
}

// EndOfCandidatesMessage marks the end of candidates.
func EndOfCandidatesMessage() ServerMessage { return newMessage(TypeCandidate, candidatePayload{}) }

// AudioChunkMessage returns a chunk of the voice: 16-bit PCM, little-endian, mono, at [bridge.VoiceRate]. Each interruption increments the
// generation.
func AudioChunkMessage(generation uint32, pcm []byte) ServerMessage {
	payload := make([]byte, 0, base64.StdEncoding.EncodedLen(len(pcm))+len(`{"generation":4294967295,"data":""}`))
	payload = append(payload, `{"generation":`...)
	payload = strconv.AppendUint(payload, uint64(generation), 10)
	payload = append(payload, `,"data":"`...)
	payload = base64.StdEncoding.AppendEncode(payload, pcm)
	payload = append(payload, `"}`...)
	return ServerMessage{kind: typeAudioChunk, payload: payload}
}

// EventMessage returns the message for an event of the conversation. ok is false if another message already reports the
// event.
func EventMessage(e bridge.Event) (m ServerMessage, ok bool) {
	m, ok = bodyMessage(e.Body)
	m.event, m.time = e.Number, e.Time
	return m, ok
}

// EventMessageAs returns an event as a message of another type, for a protocol based on this one.
func EventMessageAs(e bridge.Event, kind string, payload any) ServerMessage {
	m := newMessage(kind, payload)
	m.event, m.time = e.Number, e.Time
	return m
}

func newSetupPayload(e bridge.SetupComplete) setupPayload {
	p := setupPayload{
		Success: true, SessionID: e.SessionID, Model: e.Model, ResumeToken: e.ResumeToken,
		Backend: e.Backend, EffectiveConfig: e.EffectiveConfig, Step: e.Step, Recording: &e.Recording, Tools: []setupTool{},
	}
	for _, t := range e.Tools {
		p.Tools = append(p.Tools, setupTool{t.Name, t.Title, string(t.Behavior), string(t.Scheduling), t.Where})
	}
	if !e.Started.IsZero() {
		p.StartedAt = e.Started.UnixMilli()
	}
	if !e.Update {
		p.Resumed = &e.Resumed
	}
	if e.Resumed {
		p.Received = append([]string{}, e.ReceivedIDs...) // always present, even if empty
	}
	return p
}

func bodyMessage(e bridge.EventBody) (m ServerMessage, ok bool) {
	switch e := e.(type) {
	case bridge.SetupComplete:
		return newMessage(typeSetupComplete, newSetupPayload(e)), true
	case bridge.SetupFailed:
		return SetupRefusedMessage(e.Err), true
	case bridge.RawServerContent:
		return newMessage(typeContent, map[string]json.RawMessage{"serverContent": e.ServerContent}), true
	case bridge.Grounding:
		return newMessage(typeGrounding, groundingPayload{e.Metadata, e.SuggestionsPage}), true
	case bridge.Speaking:
		return newMessage(typeSpeaking, speakingPayload{true, e.Turn}), true
	case bridge.Thinking:
		return newMessage(typeThinking, map[string]bool{"thinking": e.Thinking}), true
	case bridge.Interrupted:
		return newMessage(typeInterrupted, interruptedPayload{e.Generation, e.PlayedText, e.Played.Milliseconds(), e.Turn, e.By}), true
	case bridge.Latency:
		return newMessage(typeLatency, e.Report()), true
	case bridge.TurnComplete:
		return newMessage(typeTurnComplete, map[string]int{"turn": e.Turn}), true
	case bridge.ToolCall:
		return newMessage(typeToolCall, map[string]any{"toolCall": map[string]any{"functionCalls": e.Calls}}), true
	case bridge.ToolCallCancellation:
		return newMessage(typeToolCancellation, map[string]any{"toolCallCancellation": map[string]any{"ids": e.IDs}}), true
	case bridge.ToolStatus:
		p := toolStatusPayload{ID: e.ID, Name: e.Name, Title: e.Title, Status: e.Status, Error: e.Message}
		if e.Status != bridge.StatusRunning {
			took := e.Took.Milliseconds()
			p.Took = &took
		}
		return newMessage(typeToolStatus, p), true
	case bridge.Log:
		return newMessage(typeLog, logPayload{Type: e.Level, Message: e.Message, Details: e.Details}), true
	case bridge.StateChange:
		if e.State != bridge.StateEnded { // the end is reported by GEMINI_DISCONNECTED
			return newMessage(typeState, statePayload{e.State, e.Message, e.Unanswered}), true
		}
	case bridge.UserSpeaking:
		p := userSpeakingPayload{Speaking: e.Speaking}
		if e.Retracted {
			p.Details = map[string]bool{"retracted": true}
		}
		return newMessage(typeUserSpeaking, p), true
	case bridge.InterruptionPending:
		p := userSpeakingPayload{e.Pending, map[string]bool{"held": true}}
		if !e.Pending {
			p.Details = map[string]bool{"resumed": true}
		}
		return newMessage(typeUserSpeaking, p), true
	case bridge.StepChange:
		return newMessage(typeStep, stepPayload{e.Step, e.Fields}), true
	case bridge.Move:
		return newMessage(typeMove, nil), true
	case bridge.Usage:
		usage := map[string]any{"turn": usagePayload(e.Turn), "total": usagePayload(e.Total)}
		if e.Dollars != nil {
			usage["dollars"] = *e.Dollars
		}
		return newMessage(typeLog, logPayload{
			Type:    "info",
			Message: fmt.Sprintf("This turn took %d tokens, the conversation %d.", e.Turn.Total, e.Total.Total),
			Details: map[string]any{"usage": usage},
		}), true
	case bridge.ErrorEvent:
		return ErrorMessage(e.Err), true
	case bridge.History:
		p := contextPayload{Entries: make([]contextEntry, len(e.Entries))}
		for i, entry := range e.Entries {
			p.Entries[i] = contextEntry{entry.Role, entry.Content, entry.Time.UnixMilli(), entry.Played.Milliseconds(), entry.Interrupted}
		}
		return newMessage(typeContext, p), true
	}
	return ServerMessage{}, false
}
