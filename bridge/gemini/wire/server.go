// Package wire defines the JSON messages of a Live connection, in both directions. It also defines the errors of
// refused and closed connections, and classifies them by their meaning for the next dial. It opens no connections;
// package gemini does.
//
// The protocol is described at https://ai.google.dev/api/live.
package wire

import (
	"encoding/json"
	"time"
)

// OutputRate is the sample rate of the model's voice in Hz (https://ai.google.dev/gemini-api/docs/live-guide). The MIME
// type of the voice may name another rate.
const OutputRate = 24000

// ServerMessage is one message of the server. Any number of its fields may be set, or none. The next message may
// overwrite it: see [Decoder.Decode].
type ServerMessage struct {
	// SetupComplete is the response to the setup, once per connection.
	SetupComplete bool

	// SessionID is the ID of the session, which Google's support asks for. Only Vertex AI sends it, with SetupComplete.
	SessionID string

	Content *ServerContent

	// ToolCalls lists the function calls in toolCall and in functionCall parts of the model's turn.
	ToolCalls []FunctionCall

	// Cancelled lists the IDs of calls whose response the model no longer needs.
	Cancelled []string

	// Usage is the raw usageMetadata. Tokens is its parsed form, or nil if it is invalid.
	Usage  json.RawMessage
	Tokens *Tokens

	// GoAway is the time left before the server closes the connection.
	GoAway *time.Duration

	Resumption *Resumption

	// VoiceActivity is the raw voiceActivity: {"type":"ACTIVITY_START"|"ACTIVITY_END",…}.
	VoiceActivity json.RawMessage

	// Failed is the reason why a text model has not answered. The connection remains usable. The Live API never sets
	// this field.
	Failed error

	// Beside has those fields of the message that clients receive although they are not in Content: voiceActivity and
	// unknown fields. Without Content, it also has usageMetadata. It may be nil.
	Beside json.RawMessage
}

// Empty reports whether a message of the Live API has no field set.
func (m *ServerMessage) Empty() bool {
	return !m.SetupComplete && m.Content == nil && m.ToolCalls == nil && m.Cancelled == nil && m.Usage == nil &&
		m.GoAway == nil && m.Resumption == nil && m.VoiceActivity == nil && m.Beside == nil
}

// ServerContent is a part of the model's turn, or of the transcript of the user's speech.
type ServerContent struct {
	// Audio is all PCM of the message in order, mono, at AudioRate Hz. The next message overwrites it.
	Audio     []int16
	AudioRate int

	// Fields is the object for a client to receive at once: the server's serverContent without audio, calls and
	// transcript, plus usageMetadata. It has no white space, and is nil if no field is left.
	Fields json.RawMessage

	// Transcript is the raw {"outputTranscription":…}. It has a piece of the voice's transcript, or marks its end. The
	// client must receive it when that voice is played.
	Transcript          json.RawMessage
	OutputTranscription string // the next text, to be appended
	InputTranscription  string

	// Text and Thoughts are texts that the model has written. HasText and HasThought report that Fields has a part of
	// this kind, even if the part is empty or a picture.
	Text, Thoughts      string
	HasText, HasThought bool

	Interrupted        bool // the user interrupted the model: discard unplayed audio
	GenerationComplete bool // the model has finished generating; absent when interrupted
	TurnComplete       bool // the turn has ended; sent after the estimated end of playback

	// EndReason is turnCompleteReason, such as RESPONSE_REJECTED, or "".
	EndReason string

	// Interaction is interactionStatus. It is IN_PROGRESS while the model continues to think, even after its turn, and
	// otherwise IDLE or "". Only gemini-3.8-live-extended-thinking sends it.
	Interaction string

	Grounding   json.RawMessage // the raw groundingMetadata of a web search
	Suggestions string          // searchEntryPoint.renderedContent of Grounding: HTML
}

// The values of [ServerContent].Interaction.
const (
	InProgress = "IN_PROGRESS"
	Idle       = "IDLE"
)

// FunctionCall is a call of a declared function. Args is a JSON object, with numbers as the server has written them. If
// the server sends no ID, the decoder generates one.
type FunctionCall struct {
	ID   string          `json:"id"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

// Resumption describes how to continue this session on another connection. Handle is "" while the session cannot be
// resumed.
type Resumption struct {
	Handle    string
	Resumable bool
	Covered   int64 // index of the last message covered by the handle, where the setup is 0; 0 may also mean unknown
}
