// Package wire is the JSON of a Live connection: the messages to the server and from it, how a connection is refused
// and how it ends, and what that means for the next dial. It opens nothing; package gemini does.
//
// The wire is described at https://ai.google.dev/api/live.
package wire

import (
	"encoding/json"
	"time"
)

// OutputRate is the sample rate of the model's voice in Hz unless its mime type says otherwise.
// See https://ai.google.dev/gemini-api/docs/live-guide.
const OutputRate = 24000

// ServerMessage is one message of the server. Any number of its parts may be set at once, none included: look at
// each, one after the other. How long it is valid, Decoder.Decode says.
type ServerMessage struct {
	// SetupComplete is the answer to the setup, once in a connection.
	SetupComplete bool

	// SessionID comes with SetupComplete on Vertex AI: Google's support asks for it.
	SessionID string

	Content *ServerContent

	// ToolCalls come from toolCall, and from functionCall parts of the model's turn.
	ToolCalls []FunctionCall

	// Cancelled are the ids of calls whose answer is no longer wanted.
	Cancelled []string

	// Usage is usageMetadata as it came, and Tokens what it says; nil if it cannot be read.
	Usage  json.RawMessage
	Tokens *Tokens

	// GoAway is the time left before the server closes the connection.
	GoAway *time.Duration

	Resumption *Resumption

	// VoiceActivity is {"type":"ACTIVITY_START"|"ACTIVITY_END",…}.
	VoiceActivity json.RawMessage

	// Failed is why a model that writes has given no answer. The connection goes on. The Live API sends no such thing.
	Failed error

	// Beside is an object of what a client gets of the fields beside serverContent: voiceActivity, usageMetadata if there is
	// no Content, and all that this package does not know. nil: there is none.
	Beside json.RawMessage
}

// Empty reports whether the message says nothing.
func (m *ServerMessage) Empty() bool {
	return !m.SetupComplete && m.Content == nil && m.ToolCalls == nil && m.Cancelled == nil && m.Usage == nil &&
		m.GoAway == nil && m.Resumption == nil && m.VoiceActivity == nil && m.Beside == nil
}

// ServerContent is a piece of the model's turn, or of what the server heard of the user's.
type ServerContent struct {
	// Audio is all PCM of the message in order, mono, at AudioRate Hz. The next message overwrites it.
	Audio     []int16
	AudioRate int

	// Fields is what a client gets at once: the server's object without its audio, its function calls and the transcript of the
	// voice, with the message's usageMetadata copied in. It is compact, and nil when nothing is left.
	Fields json.RawMessage

	// Transcript is {"outputTranscription":…} as it came, for when the voice is heard: a piece of text, or that it is finished.
	Transcript          json.RawMessage
	OutputTranscription string // the next piece of text, to be appended
	InputTranscription  string

	// Text and Thoughts are what the model wrote itself. Written and Thought say that Fields has a part of that kind, though it
	// may be a picture or empty.
	Text, Thoughts   string
	Written, Thought bool

	Interrupted        bool // the user spoke over the model: drop what is not yet played
	GenerationComplete bool // the model has said it all; absent when interrupted
	TurnComplete       bool // comes after the estimated end of playback

	// EndReason is why the turn has ended, as RESPONSE_REJECTED (turnCompleteReason). Empty: the message does not say.
	EndReason string

	// Interaction is IN_PROGRESS while a model thinks on, whatever its turn says, and IDLE when it does not
	// (gemini-3.8-live-extended-thinking). Empty: the message does not say.
	Interaction string

	Grounding   json.RawMessage // groundingMetadata
	Suggestions string          // its searchEntryPoint.renderedContent: HTML
}

// The values of [ServerContent].Interaction.
const (
	InProgress = "IN_PROGRESS"
	Idle       = "IDLE"
)

// FunctionCall asks for a declared function. Args is a JSON object with its numbers as they were sent. An ID is made
// up if the server gave none.
type FunctionCall struct {
	ID   string          `json:"id"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

// Resumption says how to continue this session on another connection. Handle is "" while that is not possible.
type Resumption struct {
	Handle    string
	Resumable bool
	Covered   int64 // the index of the last message that the handle's state has, where the setup is 0; 0: unknown, or that
}
