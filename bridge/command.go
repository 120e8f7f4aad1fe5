package bridge

import (
	"encoding/json"
	"time"

	"voxgate/bridge/toolcalls"
)

// Command is what a caller asks of the session: one of the types below.
type Command interface{ command() }

type (
	// Message is a typed turn. A complete one interrupts the voice and is answered; parts of one that is not are kept for it.
	// Parts is an array of Google's Part; nil: the turn is Text.
	Message struct {
		Text         string
		Parts        json.RawMessage
		TurnComplete bool
	}

	// Seed tells the model of turns that it is not to answer, as if they had been said. Do refuses it for a model that takes
	// only what asks for an answer.
	Seed struct{ Turns []SeedTurn }

	// Text is real-time text, for example an action on a canvas. It does not interrupt.
	Text struct{ Text string }

	// Activity marks speech by hand or says that the microphone pauses; it keeps its place among the audio.
	Activity int

	// ToolResponse answers one call of a [ToolCall].
	ToolResponse toolcalls.Response

	// Interrupt stops the running answer: the rest of it is not played, and the transcript keeps what was heard. Nothing is
	// sent to the model, which takes its answer for said.
	Interrupt struct{}

	// Respond has the model speak now, by an instruction that nobody sees: it is in no transcript. "Greet the caller."
	Respond struct{ Instruction string }

	// Heard says how much of an answer's voice was heard, where the caller's client plays it by a clock of its own and cuts it off
	// itself: the rest of that turn was not heard.
	Heard struct {
		Turn   int
		Played time.Duration
	}

	// Pause puts the conversation on hold, or goes on with it. On hold the voice stops and is not played later, neither audio
	// nor pictures go up, and nobody is told to wait.
	Pause struct{ On bool }

	// EndAfterSpeaking ends the conversation when the answer that is under way or due has been heard, after 15 s at
	// most. While a tool runs, which may be the one that asks for this, the answer to that is due.
	EndAfterSpeaking struct{}

	// UpdateConfig changes the configuration; answered by [SetupComplete] or [SetupFailed].
	UpdateConfig struct{ Config json.RawMessage }

	// Steer is a change by the operator's backend, which counts whatever the caller configures and was granted. An empty field of
	// Agent leaves it as it is. Functions is an array of function declarations that the backend answers, in place of those before;
	// empty: as they are. Do refuses what cannot be read; answered by [SetupComplete] or [SetupFailed].
	Steer struct {
		Agent     Agent
		Functions json.RawMessage
	}

	// GetContext asks for the [History].
	GetContext struct{}

	// ClearContext forgets the history and goes on in a fresh session; answered by an empty [History] when that is there.
	ClearContext struct{}

	// Goodbye ends the conversation; it is not parked.
	Goodbye struct{}
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
func (EndAfterSpeaking) command() {}
func (UpdateConfig) command()     {}
func (Steer) command()            {}
func (GetContext) command()       {}
func (ClearContext) command()     {}
func (Goodbye) command()          {}
