package bridge

import (
	"context"
	"encoding/json"
	"time"

	"voxgate/bridge/toolcalls"
)

// Command is a request of a caller to the session: one of the types below.
type Command interface {
	// run executes the command in the session's loop.
	run(ctx context.Context, s *Session) error
}

type (
	// Message is a typed turn. A complete turn interrupts the voice and is answered. An incomplete turn is answered
	// together with the next complete turn.
	Message struct {
		Text         string
		Parts        json.RawMessage // array of Google's Part; nil means the turn is Text
		TurnComplete bool
	}

	// PrefillTurns adds turns to the context without an answer, as if they had been said. Do rejects the command if the
	// model would answer these turns.
	PrefillTurns struct{ Turns []PrefillTurn }

	// Text is real-time text, for example an action on a canvas. It does not interrupt.
	Text struct{ Text string }

	// Activity marks the start or end of speech, or a pause of the microphone. It is sent in order with the audio.
	// ActivityKeep and ActivityDrop are like [uplink.MarkKeep] and [uplink.MarkDrop].
	Activity int

	// ToolResponse answers one call of a [ToolCall].
	ToolResponse toolcalls.Response

	// Interrupt stops the current answer. The transcript keeps what was played. The model is not informed, and assumes
	// that it said the whole answer.
	Interrupt struct{}

	// Prompt makes the model speak now, for example with the instruction "Greet the caller". The transcript omits the
	// instruction.
	Prompt struct{ Instruction string }

	// PlaybackPosition reports how much of an answer's voice was played. The rest of that turn was not heard. It is for
	// clients that control playback themselves.
	PlaybackPosition struct {
		Turn   int
		Played time.Duration
	}

	// Pause puts the conversation on hold, or ends the hold. On hold the voice is dropped, and no waiting tones are
	// played. The model gets audio and pictures only with Listen. With Listen the model may also use its tools.
	Pause struct{ On, Listen bool }

	// PauseRecording pauses the recording, e.g. for card numbers, or continues it. Changes of the configuration do not
	// end the pause. Do rejects the command if the conversation is not recorded.
	PauseRecording struct{ On bool }

	// EndAfterSpeaking ends the conversation when the current answer has been played, after 15 s at most. If a tool
	// runs, perhaps the tool that sends this command, the model first answers the tool's result.
	EndAfterSpeaking struct{}

	// UpdateConfig changes the configuration. [SetupComplete] or [SetupFailed] answers it.
	UpdateConfig struct {
		Config json.RawMessage
		// Agent is the agent of the operator that answers from now on. The current agent stays if Agent is nil, or if
		// the backend has named the current agent.
		Agent   *Agent `json:",omitempty"`
		Name    string `json:",omitempty"`
		ReplyTo any    `json:"-"` // any value that the caller chooses; the answer returns it in [Event.ReplyTo]
	}

	// BackendUpdate is a change by the operator's backend. It overrides the caller's configuration and grant. Do
	// rejects invalid input. [SetupComplete] or [SetupFailed] answers valid input.
	BackendUpdate struct {
		Agent     Agent           // empty fields change nothing
		Functions json.RawMessage // array of declarations of functions that the backend runs; empty keeps the previous array
	}

	// GetContext requests the [History].
	GetContext struct{ ReplyTo any } // see [UpdateConfig]

	// ClearContext clears the history and continues in a fresh session of the model. An empty [History] answers the
	// command when the fresh session is ready.
	ClearContext struct{ ReplyTo any } // see [UpdateConfig]

	// Goodbye ends the conversation without parking it.
	Goodbye struct{}
)

// Commands of the host.
type (
	// drainCommand reports that the gateway accepts no more calls. The gateway stops after stopsIn, or not at all if
	// stopsIn is 0.
	drainCommand struct{ stopsIn time.Duration }

	// takenCommand ends a conversation at this gateway, because another gateway continues it.
	takenCommand struct{}
)

// PrefillTurn is one turn of an earlier conversation.
type PrefillTurn struct {
	Model bool            // whether the model spoke, not the person
	Parts json.RawMessage // JSON array of Google's Part
}

// The kinds of [Activity].
const (
	ActivityStart Activity = iota
	ActivityEnd
	AudioStreamEnd
	ActivityKeep
	ActivityDrop
)
