package bridge

import (
	"encoding/json"
	"time"

	"voxgate/bridge/toolcalls"
)

// Command is what a caller asks of the session: one of the types below.
type Command interface{ command() }

type (
	// Message is a typed turn. A complete one interrupts the voice and is answered; parts of one that is not are kept for
	// it. Parts is an array of Google's Part; nil: the turn is Text.
	Message struct {
		Text         string
		Parts        json.RawMessage
		TurnComplete bool
	}

	// Seed gives the model turns that it must not answer, as if they had been said. Do refuses it for a model that answers
	// all it gets.
	Seed struct{ Turns []SeedTurn }

	// Text is real-time text, for example an action on a canvas. It does not interrupt.
	Text struct{ Text string }

	// Activity marks speech by hand or says that the microphone pauses; it keeps its place among the audio. ActivityKeep and
	// ActivityDrop are about the sound that waits for the next ActivityStart: it is to be all of that activity, or of none.
	Activity int

	// ToolResponse answers one call of a [ToolCall].
	ToolResponse toolcalls.Response

	// Interrupt stops the running answer: the rest of it is not played, and the transcript keeps what was heard. Nothing
	// is sent to the model, which believes that it said the whole answer.
	Interrupt struct{}

	// Respond makes the model speak now, by an instruction that nobody sees and no transcript shows: "Greet the caller."
	Respond struct{ Instruction string }

	// Heard says how much of an answer's voice was heard, for a client that plays it by its own clock and cuts it off
	// itself. The rest of that turn was not heard.
	Heard struct {
		Turn   int
		Played time.Duration
	}

	// Pause puts the conversation on hold, or goes on with it. On hold the voice stops and is not played later, neither
	// audio nor pictures go up, and no waiting tones are played. With Listen they go up all the same: the model hears, and may use
	// its tools, but nobody hears the model, and what it says is in no transcript.
	Pause struct{ On, Listen bool }

	// PauseRecording has what is said from now on not recorded, or goes on with the recording: for card numbers. Do refuses it
	// if there is no recording. A pause lasts until it is ended, whatever the configuration says.
	PauseRecording struct{ On bool }

	// EndAfterSpeaking ends the conversation when the answer that is under way or due has been heard, after 15 s at most.
	// While a tool runs, perhaps the one that asks for this, the answer after its result is due.
	EndAfterSpeaking struct{}

	// UpdateConfig changes the configuration; answered by [SetupComplete] or [SetupFailed]. With an Agent of that name another one
	// of the operator's answers from now on, in place of Open.Agent, unless the backend has named who answers.
	UpdateConfig struct {
		Config json.RawMessage
		Agent  *Agent `json:",omitempty"` // nil: the one that answers
		Name   string `json:",omitempty"`
	}

	// Steer is a change by the operator's backend. It overrides the caller's configuration and grant. An empty field of
	// Agent leaves it as it is. Functions is an array of declarations of functions that the backend runs; it replaces the
	// one before, empty: no change. Do refuses what cannot be read; answered by [SetupComplete] or [SetupFailed].
	Steer struct {
		Agent     Agent
		Functions json.RawMessage
	}

	// GetContext asks for the [History].
	GetContext struct{}

	// ClearContext forgets the history and goes on in a fresh session; answered by an empty [History] when that session
	// serves.
	ClearContext struct{}

	// Goodbye ends the conversation, which is not parked.
	Goodbye struct{}
)

// Commands of the host.
type (
	// leave says that the gateway takes no more calls, and stops after in; 0: it does not stop.
	leave struct{ in time.Duration }

	// superseded ends a conversation that goes on at another gateway.
	superseded struct{}
)

// SeedTurn is a turn of the person, or with Model of the model. Parts is an array of Google's Part.
type SeedTurn struct {
	Model bool
	Parts json.RawMessage
}

// The kinds of [Activity].
const (
	ActivityStart Activity = iota
	ActivityEnd
	AudioStreamEnd
	ActivityKeep
	ActivityDrop
)

func (Message) command()          {}
func (Seed) command()             {}
func (Text) command()             {}
func (Activity) command()         {}
func (ToolResponse) command()     {}
func (Interrupt) command()        {}
func (Respond) command()          {}
func (Heard) command()            {}
func (Pause) command()            {}
func (PauseRecording) command()   {}
func (EndAfterSpeaking) command() {}
func (UpdateConfig) command()     {}
func (Steer) command()            {}
func (GetContext) command()       {}
func (ClearContext) command()     {}
func (Goodbye) command()          {}
func (leave) command()            {}
func (superseded) command()       {}
