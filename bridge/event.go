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
	// Number is the number of the event in the conversation, from 1. The count continues if another caller continues
	// the conversation. The SetupComplete of a resume has the number 0.
	Number uint64
	Time   time.Time
	Body   EventBody
	// ReplyTo is the value of the same field of the command that the event answers. It is nil if the event answers no
	// command, or if the answer is replayed.
	ReplyTo any `json:"-"`
}

// EventBody is one of the types below.
type EventBody any

// In the following events, turns are numbered from 1. A question and its answer have the same number.
type (
	// SetupComplete confirms that a conversation was opened or resumed, or that an [UpdateConfig] was applied. Several
	// changes of the configuration are answered in their order.
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

	// SetupFailed answers a rejected [UpdateConfig]. The old configuration stays in force.
	SetupFailed struct{ Err *Error }

	// UserText is transcribed speech of the person: the next piece of a turn or, if Final is true, the whole turn. More
	// pieces may follow after a Final.
	UserText struct {
		Turn  int
		Text  string
		Final bool
	}

	// AssistantText is the next piece of the answer's text, sent when its voice is played. If Final is true, it is all
	// the text of the answer that was played.
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

	// Speaking reports that the voice of a turn begins. It comes once per turn, just before the first audio.
	Speaking struct{ Turn int }

	// Thinking reports whether the person is waiting for an answer. After Thinking with false, either [Speaking]
	// follows, or no answer comes.
	Thinking struct{ Thinking bool }

	// SilenceDetected reports that the person has been silent for so long that the model is prompted to speak.
	SilenceDetected struct{}

	// Interrupted reports that a turn ended before it was fully played. The caller must discard buffered voice frames
	// whose generation is lower than Generation.
	Interrupted struct {
		Turn       int
		By         Cause
		Generation uint32
		PlayedText string        // part of the answer's text that was played
		Played     time.Duration // length of the answer's voice that was played
	}

	// TurnComplete reports that the whole voice of a turn has been passed to the caller's output.
	TurnComplete struct{ Turn int }

	// ToolCall asks the client to run these calls and to answer each of them with a [ToolResponse].
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
	// says the same as text.
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
		// At is the position of the start or the end in all audio received from the caller. If the gateway decides
		// about turns, the start or end is that of the person's turn.
		At time.Duration
		// Retracted means that the person continues the previous turn, and has heard nothing of the answer to it.
		Retracted bool
	}

	// InterruptionPending with Pending true reports that a sound of the person has paused the answer. With Pending
	// false it reports that the answer goes on. If the sound was an interruption, [UserSpeaking] and [Interrupted] come
	// instead.
	InterruptionPending struct{ Pending bool }

	// StepChange reports that the conversation has moved to another step of the agent. Fields has the values collected
	// so far.
	StepChange struct {
		Step   string
		Fields map[string]any
	}

	// Move asks a caller to connect to another gateway with its resume token, and then to close this connection. A
	// caller that cannot do so may stay.
	Move struct{}

	// Usage reports the tokens of a turn and of the conversation so far. It comes before the turn's TurnComplete.
	Usage struct {
		Turn, Total wire.Tokens
		Dollars     *float64 // cost of the conversation so far; nil means the price of its model is unknown
	}

	// ErrorEvent reports an error that does not end the conversation.
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

// ToolLoss describes which parts of a client's function the model does not have.
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

// Total returns how long the person has waited for the answer. It includes one round trip, because the question and the
// answer each need half of it.
func (l Latency) Total() time.Duration { return l.Model + l.Gateway + l.RoundTrip }

// LatencyReport is a [Latency] in the form that clients get: in milliseconds, rounded to a tenth.
type LatencyReport struct {
	Model     float64 `json:"modelMs"`
	Gateway   float64 `json:"gatewayMs"`
	RoundTrip float64 `json:"roundTripMs,omitempty"`
	Total     float64 `json:"totalMs"`
}

// Report returns the latency in the form that clients get.
func (l Latency) Report() LatencyReport {
	ms := func(d time.Duration) float64 { return math.Round(float64(d)/float64(time.Millisecond)*10) / 10 }
	return LatencyReport{Model: ms(l.Model), Gateway: ms(l.Gateway), RoundTrip: ms(l.RoundTrip), Total: ms(l.Total())}
}
