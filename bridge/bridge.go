// Package bridge is one conversation between a caller and the model: what the caller says goes up, what the model says
// comes down in real time, and the tools run in between.
//
// Three lifetimes: a [Session], the conversation, outlives the [Caller] that carries it and the link to the model that
// serves it. A session belongs to a [Host] and is changed by one goroutine only, its loop.
package bridge

import (
	"context"
	"encoding/json"
	"time"

	"voxgate/bridge/gemini/usage"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/transcript"
	"voxgate/tools"
)

// VoiceRate is the sample rate of the model's voice in Hz: what every [media.Output] of a caller takes.
const VoiceRate = wire.OutputRate

// Caller is whoever carries a conversation: a browser, a phone, a test.
type Caller interface {
	// Serve delivers audio and commands to s until the caller leaves (nil), fails (its error) or ctx is done, and waits
	// for what it started. It says where the voice goes by s.Attach; until s.Hold(false) the voice waits.
	Serve(ctx context.Context, s *Session) error
	// Notify tells the caller. It never blocks and may be called from several goroutines, in the order in which the
	// caller shall see the events; a caller too slow to be told drops itself.
	Notify(Event)
}

// Open says which conversation a caller wants.
type Open struct {
	Config      json.RawMessage // the client's LiveConfig, as it came
	ResumeToken string          // of a parked conversation; unknown or expired: a fresh one
	Resumable   bool            // keep the conversation for a while when the caller is lost
	Origin      Origin
}

// Origin is where a conversation comes from. Tools that run in the gateway are told.
type Origin struct {
	Door     string          // the front door: "web", "sip", …
	Identity string          // of the caller; empty: not known
	Grant    json.RawMessage // what the caller may do; nil: nothing was said
	Screen   bool            // callers of this door may have where to show a canvas
}

// Event is what a caller is told: one of the types below.
type Event interface{ event() }

type (
	// SetupComplete answers opening, resuming and each [UpdateConfig], in order.
	SetupComplete struct {
		SessionID       string
		Model           string
		Update          bool // it answers an [UpdateConfig]
		Resumed         bool
		ResumeToken     string // with the first one and after each resume, if the conversation is resumable
		Backend         string
		EffectiveConfig json.RawMessage
		Recording       bool     // the conversation is recorded
		Tools           []Tool   // that the model may call
		Received        []string // after a resume: the ids that [Session.Arrived] was given, the newest 256
	}
	// SetupFailed answers an [UpdateConfig] that was refused; the old configuration goes on.
	SetupFailed struct{ Err *Error }
	// Content is a serverContent object without its audio parts.
	Content struct{ ServerContent json.RawMessage }
	// Grounding is Google Search's metadata for the answer.
	Grounding struct {
		Metadata json.RawMessage
		Chips    string // the gateway's page of suggestions to be shown; empty: there are none
	}
	// Speaking goes out once a turn, just before its first sound.
	Speaking struct{}
	// Interrupted says that the rest of the answer will not be played: what the caller still has of frames before Generation
	// is void.
	Interrupted struct {
		Generation uint32
		Heard      string        // of the answer's text
		Played     time.Duration // of its voice
	}
	// TurnComplete says that the model's turn is over and has been handed to the caller's output.
	TurnComplete struct{}
	// ToolCall asks the client to run these calls and to answer each with a [ToolResponse].
	ToolCall struct{ Calls []tools.Call }
	// ToolCallCancellation says that nobody wants the answers to these calls any more.
	ToolCallCancellation struct{ IDs []string }
	// ToolStatus tells of a tool that runs in the gateway. Message is why it failed.
	ToolStatus struct {
		ID, Name, Title string
		Status          string // one of the Status constants
		Took            time.Duration
		Message         string
	}
	// Log is a message for the client's developer. Level is info, warn or error. Details, if there are any, are for
	// programs.
	Log struct {
		Level, Message string
		Details        map[string]any
	}
	// StateChange says where the conversation stands: one of the State constants. Message, if there is one, is a
	// sentence for the person who waits.
	StateChange struct {
		State   State
		Message string
	}
	// UserSpeaking says that the person has begun to speak, or has stopped, as heard here and not by the model.
	UserSpeaking struct{ Speaking bool }
	// Usage counts tokens after each turn: of the turn, and of the conversation so far.
	Usage struct{ Turn, Total usage.Tokens }
	// Failure is something that went wrong while the conversation goes on.
	Failure struct{ Err *Error }
	// History answers [GetContext] and [ClearContext].
	History struct{ Entries []transcript.Entry }
)

// The values of [ToolStatus].Status.
const (
	StatusRunning   = "running"
	StatusDone      = "done"
	StatusFailed    = "failed"
	StatusCancelled = "cancelled"
)

// Tool is a function that the model may call, as it will be called.
type Tool struct {
	Name, Title string
	Behavior    tools.Behavior
	Scheduling  tools.Scheduling // of answers that do not say otherwise; empty: the model's own
	Where       string           // client or gateway
}

// Scheduling is when the model speaks of an answer: see [tools.Scheduling].
type Scheduling = tools.Scheduling

func (SetupComplete) event()        {}
func (SetupFailed) event()          {}
func (Content) event()              {}
func (Grounding) event()            {}
func (Speaking) event()             {}
func (Interrupted) event()          {}
func (Latency) event()              {}
func (TurnComplete) event()         {}
func (ToolCall) event()             {}
func (ToolCallCancellation) event() {}
func (ToolStatus) event()           {}
func (Log) event()                  {}
func (StateChange) event()          {}
func (UserSpeaking) event()         {}
func (Usage) event()                {}
func (Failure) event()              {}
func (History) event()              {}

// Command is what a caller asks of the session: one of the types below.
type Command interface{ command() }

type (
	// Message is a typed turn. A complete one interrupts the voice.
	Message struct {
		Parts        json.RawMessage // an array of Part
		TurnComplete bool
	}
	// Text is real-time text, for example an action on a canvas.
	Text struct{ Text string }
	// Activity marks speech by hand or says that the microphone pauses; it keeps its place among the audio.
	Activity int
	// ToolResponse answers one call of a [ToolCall].
	ToolResponse struct {
		ID, Name     string
		Response     json.RawMessage // an object
		Scheduling   tools.Scheduling
		WillContinue bool            // more is to come
		Parts        json.RawMessage // pictures for the model, an array of Part; nil: none
	}
	// UpdateConfig changes the configuration; answered by [SetupComplete] or [SetupFailed].
	UpdateConfig struct{ Config json.RawMessage }
	// GetContext asks for the [History].
	GetContext struct{}
	// ClearContext forgets the history and goes on in a fresh session; answered by an empty [History] when that is there.
	ClearContext struct{}
	// Goodbye ends the conversation; it is not parked.
	Goodbye struct{}
)

// The kinds of [Activity].
const (
	ActivityStart Activity = iota
	ActivityEnd
	AudioStreamEnd
)

func (Message) command()      {}
func (Text) command()         {}
func (Activity) command()     {}
func (ToolResponse) command() {}
func (UpdateConfig) command() {}
func (GetContext) command()   {}
func (ClearContext) command() {}
func (Goodbye) command()      {}
