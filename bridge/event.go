package bridge

import (
	"encoding/json"
	"math"
	"time"

	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/toolcalls"
	"voxgate/bridge/transcript"
	"voxgate/tools"
)

// Event is something that happens in a conversation, with its time.
type Event struct {
	// Number counts the events of the conversation from 1, across all its callers. It is 0 for the SetupComplete of a
	// resume.
	Number uint64
	Time   time.Time
	Body   EventBody
	// ReplyTo is the ReplyTo of the command that the event answers. It is nil for other events and for replayed
	// answers.
	ReplyTo any `json:"-"`
}

// EventBody is one of the types below.
type EventBody any

// Turns are numbered from 1. A question and its answer have the same number.
type (
	// SetupComplete confirms the opening of a conversation, its resumption, or an [UpdateConfig]. Configuration changes
	// are answered in order.
	SetupComplete struct {
		SessionID       string
		Started         time.Time // start of the conversation
		Model           string
		Update          bool // true if the event answers an [UpdateConfig]
		Resumed         bool
		ResumeToken     string // set in the first SetupComplete and after each resume, if the conversation is resumable
		Backend         string
		EffectiveConfig json.RawMessage
		Step            string   // current step of the agent; empty means it has no steps
		Recording       bool     // the conversation is recorded
		Tools           []Tool   // functions that the model may call
		ReceivedIDs     []string // after a resume: IDs passed to [Session.MarkReceived], the newest 256
	}

	// SetupFailed answers a rejected [UpdateConfig]; the old configuration stays.
	SetupFailed struct{ Err *Error }

	// UserText is the transcript of the person's speech: the next piece, or with Final the whole turn. More pieces may
	// follow a Final.
	UserText struct {
		Turn  int
		Text  string
		Final bool
	}

	// AssistantText is the next piece of the answer's text, sent when its voice is played. With Final it is all the
	// text that was played.
	AssistantText struct {
		Turn  int
		Text  string
		Final bool
	}

	// Thought is a piece of the model's thoughts, if the configuration requests them.
	Thought struct {
		Turn int
		Text string
	}

	// RawServerContent is Gemini's own serverContent object without its audio. Other events report the same content.
	RawServerContent struct {
		ServerContent json.RawMessage
		TopLevel      bool // the fields come from the top level of Gemini's message, beside serverContent
	}

	// Grounding is Google Search's metadata for the answer.
	Grounding struct {
		Metadata        json.RawMessage
		SuggestionsPage string // URL of the gateway's page of suggestions; empty means none
	}

	// Speaking reports that the voice of a turn begins: it comes once, just before the first audio.
	Speaking struct{ Turn int }

	// Thinking reports whether an answer is due and not yet played. After false, [Speaking] follows or no answer comes.
	Thinking struct{ Thinking bool }

	// SilenceDetected reports that the person has been silent for so long that the model is prompted to speak.
	SilenceDetected struct{}

	// Interrupted ends a turn that was not fully played. The caller must discard buffered voice frames with a lower
	// generation than Generation.
	Interrupted struct {
		Turn       int
		By         Cause
		Generation uint32
		PlayedText string        // part of the answer's text that was played
		Played     time.Duration // length of the answer's voice that was played
	}

	// TurnComplete ends a turn whose whole voice has been passed to the caller's output.
	TurnComplete struct{ Turn int }

	// ToolCall requests the client to run these calls and to answer each with a [ToolResponse].
	ToolCall struct{ Calls []tools.Call }

	// ToolCallCancellation reports that the answers to these calls are no longer needed.
	ToolCallCancellation struct{ IDs []string }

	// ToolStatus reports on a tool that runs in the gateway, with its arguments and its result.
	ToolStatus toolcalls.Status

	// Log is a message for the client's developer. Level is info, warn or error. Details, if any, are for programs.
	Log struct {
		Level, Message string
		Details        map[string]any
	}

	// ToolLosses lists the functions of a client's config that the model has only in part, or not at all. A [Log] event
	// has the same information as text.
	ToolLosses struct{ Losses []ToolLoss }

	// StateChange reports the state of the conversation.
	StateChange struct {
		State      State
		Message    string // a sentence that explains the wait to the person, or ""
		Unanswered bool   // whether the gateway has stopped waiting for the model's answer
	}

	// UserSpeaking reports that the person has started or stopped speaking, as detected by the gateway.
	UserSpeaking struct {
		Speaking bool
		// At is the position of the start or end in all audio received from the caller. If the gateway decides about
		// turns, it is the start or end of the person's turn.
		At time.Duration
		// Retracted means that the person's previous turn goes on. Nothing of the answer was heard.
		Retracted bool
	}

	// InterruptionPending reports with Pending that a sound of the person has paused the answer. Without Pending, the
	// answer goes on. If the sound was an interruption, [UserSpeaking] and [Interrupted] come instead.
	InterruptionPending struct{ Pending bool }

	// StepChange reports that the conversation has moved to another step of the agent. Fields are the values collected
	// so far.
	StepChange struct {
		Step   string
		Fields map[string]any
	}

	// Move asks a caller to connect to another gateway with its resume token, and then to close this connection. A
	// caller that cannot connect to another gateway may stay.
	Move struct{}

	// Usage reports the tokens of a turn and of the conversation so far, before the turn's TurnComplete.
	Usage struct {
		Turn, Total wire.Tokens
		Dollars     *float64 // cost of the conversation so far; nil means the price of its model is unknown
	}

	// ErrorEvent reports an error while the conversation goes on.
	ErrorEvent struct{ Err *Error }

	// History answers [GetContext] and [ClearContext].
	History struct{ Entries []Entry }
)

// Entry is the text of one side in one turn of the transcript.
type Entry = transcript.Entry

// Cause is the cause of an interruption.
type Cause string

// The values of Cause.
const (
	ByVoice          Cause = "voice"  // the person spoke over the answer
	ByText           Cause = "text"   // text was typed
	ByClient         Cause = "client" // requested by the client, or the client has left
	ByClear          Cause = "clear"  // the history was cleared
	ByConnectionLoss Cause = "link"   // the connection to the model was lost; frames already sent stay valid
)

// The values of [ToolStatus].Status.
const (
	StatusRunning   = toolcalls.Running
	StatusDone      = toolcalls.Done
	StatusFailed    = toolcalls.Failed
	StatusCancelled = toolcalls.Cancelled
)

// Tool is a function that the model may call. Name is the name by which the model calls it.
type Tool struct {
	Name, Title string
	Behavior    tools.Behavior
	Scheduling  tools.Scheduling // default for the function's answers; empty means the model's default
	Where       string           // side that runs the function: client or gateway
}

// ToolLoss describes what was lost of a function that a client declares.
type ToolLoss = liveconfig.Loss

// Latency is the response time of one answer, from the end of the question to the first audio sent to the person.
type Latency struct {
	// Model is the time from the arrival of the end of the question to the model's first audio.
	Model time.Duration
	// Gateway is the time from the model's first audio to the first frame passed to the caller's output.
	Gateway time.Duration
	// RoundTrip is the client's round-trip time; 0 if unknown.
	RoundTrip time.Duration
}

// Total returns how long the person waited for the answer. It includes one round trip: half of it for the question, half
// for the answer.
func (l Latency) Total() time.Duration { return l.Model + l.Gateway + l.RoundTrip }

// LatencyReport is a [Latency] as clients get it: in milliseconds, rounded to a tenth.
type LatencyReport struct {
	Model     float64 `json:"modelMs"`
	Gateway   float64 `json:"gatewayMs"`
	RoundTrip float64 `json:"roundTripMs,omitempty"`
	Total     float64 `json:"totalMs"`
}

// Report returns the latency as clients get it.
func (l Latency) Report() LatencyReport {
	ms := func(d time.Duration) float64 { return math.Round(float64(d)/float64(time.Millisecond)*10) / 10 }
	return LatencyReport{Model: ms(l.Model), Gateway: ms(l.Gateway), RoundTrip: ms(l.RoundTrip), Total: ms(l.Total())}
}
