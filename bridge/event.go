package bridge

import (
	"encoding/json"
	"time"

	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/toolcalls"
	"voxgate/bridge/transcript"
	"voxgate/tools"
)

// Event is what happens in a conversation, and when it happened.
type Event struct {
	// Number counts the events of the conversation from 1, over all its callers. It is 0 for the SetupComplete of a
	// resume, which is an answer to one caller.
	Number uint64
	Time   time.Time
	Body   Body
}

// Body is one of the types below.
type Body any

// Turns are numbered from 1. A question and its answer have the same number.
type (
	// SetupComplete answers opening, resuming and each [UpdateConfig], in order.
	SetupComplete struct {
		SessionID       string
		Started         time.Time // the conversation
		Model           string
		Update          bool // it answers an [UpdateConfig]
		Resumed         bool
		ResumeToken     string // with the first one and after each resume, if the conversation is resumable
		Backend         string
		EffectiveConfig json.RawMessage
		Step            string   // of the agent, in which the conversation is; empty: it has none
		Recording       bool     // the conversation is recorded
		Tools           []Tool   // that the model may call
		Received        []string // after a resume: the ids that [Session.Arrived] was given, the newest 256
	}

	// SetupFailed answers an [UpdateConfig] that was refused; the old configuration goes on.
	SetupFailed struct{ Err *Error }

	// UserText is what the person has said, as the model has understood it: the next piece, or with Final the whole turn.
	// More pieces may follow a Final, and then another Final.
	UserText struct {
		Turn  int
		Text  string
		Final bool
	}

	// AssistantText is what the model says, sent when its voice is heard: the next piece, or with Final all that was heard
	// of the turn.
	AssistantText struct {
		Turn  int
		Text  string
		Final bool
	}

	// Thought is a piece of what the model thinks, if the configuration asks for it.
	Thought struct {
		Turn int
		Text string
	}

	// Raw is Gemini's own serverContent object without its audio parts; other events say the same. Beside: its fields
	// stood beside serverContent.
	Raw struct {
		ServerContent json.RawMessage
		Beside        bool
	}

	// Grounding is Google Search's metadata for the answer.
	Grounding struct {
		Metadata json.RawMessage
		Chips    string // the gateway's page of suggestions to be shown; empty: there are none
	}

	// Speaking comes once a turn, just before its first sound.
	Speaking struct{ Turn int }

	// Thinking says that an answer is due and not heard yet, or is no longer due: just before [Speaking], or because there
	// will be none.
	Thinking struct{ Thinking bool }

	// Silent says that the person has said nothing for so long that the model is asked to speak.
	Silent struct{}

	// Interrupted ends a turn that was not heard to its end. Frames before Generation that the caller still has are void.
	Interrupted struct {
		Turn       int
		By         Cause
		Generation uint32
		Heard      string        // of the answer's text
		Played     time.Duration // of its voice
	}

	// TurnComplete ends a turn that has been handed to the caller's output.
	TurnComplete struct{ Turn int }

	// ToolCall asks the client to run these calls and to answer each with a [ToolResponse].
	ToolCall struct{ Calls []tools.Call }

	// ToolCallCancellation says that the answers to these calls are no longer wanted.
	ToolCallCancellation struct{ IDs []string }

	// ToolStatus is about a tool that runs in the gateway, with its arguments and its result.
	ToolStatus toolcalls.Status

	// Log is a message for the client's developer. Level is info, warn or error. Details, if any, are for programs.
	Log struct {
		Level, Message string
		Details        map[string]any
	}

	// ToolsLost says which functions of a client's config the model has in part, or not at all. A [Log] says so in words, too.
	ToolsLost struct{ Losses []ToolLoss }

	// StateChange says where the conversation stands. Message, if any, is a sentence for the waiting person. Unanswered
	// says that the model has not answered, and that its answer is not waited for any more.
	StateChange struct {
		State      State
		Message    string
		Unanswered bool
	}

	// UserSpeaking says that the person has begun to speak, or has stopped, as heard here and not by the model. At is where
	// that was found, from the beginning of all sound that has come.
	UserSpeaking struct {
		Speaking bool
		At       time.Duration
	}

	// StepChange says that the conversation has gone on to another step of the agent. Fields is what was found out so far.
	StepChange struct {
		Step   string
		Fields map[string]any
	}

	// Move asks a caller to go on with the conversation over another connection, by its resume token: another gateway will
	// answer. It should close this connection once the other is open, and may stay if none opens.
	Move struct{}

	// Usage counts tokens at the end of each turn, before its TurnComplete: of the turn, and of the conversation so far.
	// Dollars is what the conversation has cost so far, in US dollars; nil: its model has no price that is known.
	Usage struct {
		Turn, Total wire.Tokens
		Dollars     *float64
	}

	// Failure is something that went wrong while the conversation goes on.
	Failure struct{ Err *Error }

	// History answers [GetContext] and [ClearContext].
	History struct{ Entries []Entry }
)

// Entry is what one side said in one turn.
type Entry = transcript.Entry

// Cause is what has cut an answer off.
type Cause string

// The values of Cause.
const (
	ByVoice  Cause = "voice"  // the person spoke over it
	ByText   Cause = "text"   // something was typed
	ByClient Cause = "client" // the client wanted it, or has left
	ByClear  Cause = "clear"  // the history was cleared
	ByLink   Cause = "link"   // the connection to the model was lost; no frame is void
)

// The values of [ToolStatus].Status.
const (
	StatusRunning   = toolcalls.Running
	StatusDone      = toolcalls.Done
	StatusFailed    = toolcalls.Failed
	StatusCancelled = toolcalls.Cancelled
)

// Tool is a function that the model may call, under the name that it calls.
type Tool struct {
	Name, Title string
	Behavior    tools.Behavior
	Scheduling  tools.Scheduling // of answers that do not say otherwise; empty: the model's own
	Where       string           // client or gateway
}

// ToolLoss is what was lost of a function that a client declares.
type ToolLoss = setup.Loss

// Latency is how long one answer took, from the end of the question to the first sound on its way to the person.
type Latency struct {
	// Model is from the end of what the person said or typed, as it came here, to the model's first audio.
	Model time.Duration
	// Gateway is from there to the first frame handed to the caller's output.
	Gateway time.Duration
	// RoundTrip is the client's, 0 if it is not known.
	RoundTrip time.Duration
}

// Total is how long the person has waited: the question takes half a round trip to get here, and the answer the other
// half.
func (l Latency) Total() time.Duration { return l.Model + l.Gateway + l.RoundTrip }
