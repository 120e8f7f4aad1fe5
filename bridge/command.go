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
	// Message is a typed turn. If it is complete, it interrupts the voice, and the model answers it. If it is
	// incomplete, the model answers it together with the next complete turn.
	Message struct {
		Text         string
		Parts        json.RawMessage // array of Google's Part; nil means the turn is Text
		TurnComplete bool
	}

	// PrefillTurns adds turns to the model's context as if they had been said. The model does not answer them. For a
	// model that would answer them, Do rejects the command.
	PrefillTurns struct{ Turns []PrefillTurn }

	// Text is real-time text, for example about an action on a canvas. It does not interrupt the voice.
	Text struct{ Text string }

	// Activity marks the start or end of speech, or a pause of the microphone. It keeps its place between the chunks of
	// audio. ActivityKeep and ActivityDrop correspond to [uplink.MarkKeep] and [uplink.MarkDrop].
	Activity int

	// ToolResponse answers one call of a [ToolCall].
	ToolResponse toolcalls.Response

	// Interrupt stops the current answer. The transcript keeps only what was played. The model is not told, so it
	// assumes that the person has heard the whole answer.
	Interrupt struct{}

	// Prompt makes the model speak now, for example with the instruction "Greet the caller". The transcript omits the
	// instruction.
	Prompt struct{ Instruction string }

	// PlaybackPosition reports how much of an answer's voice was played. The person has not heard the rest of that
	// turn. The command is for clients that control playback themselves.
	PlaybackPosition struct {
		Turn   int
		Played time.Duration
	}

	// Pause puts the conversation on hold, or ends the hold. On hold, the voice is dropped and no waiting tones are
	// played. If Listen is true, the model still gets audio and pictures and may use its tools.
	Pause struct{ On, Listen bool }

	// PauseRecording pauses the recording, for example while a card number is said, or continues it. A change of the
	// configuration does not end the pause. If the conversation is not recorded, Do rejects the command.
	PauseRecording struct{ On bool }

	// EndAfterSpeaking ends the conversation when the current answer has been played, but after 15 s at the latest. If
	// a tool is running (it may have sent this command), the model first answers the tool's result.
	EndAfterSpeaking struct{}

	// UpdateConfig changes the configuration. [SetupComplete] or [SetupFailed] answers it.
	UpdateConfig struct {
		Config json.RawMessage
		// Agent is the operator's agent that answers from now on. If it is nil, the current agent stays. It is ignored
		// if the backend has chosen the current agent, because the backend's choice takes precedence.
		Agent   *Agent `json:",omitempty"`
		Name    string `json:",omitempty"`
		ReplyTo any    `json:"-"` // any value that the caller chooses; the answer returns it in [Event.ReplyTo]
	}

	// BackendUpdate is a change that the operator's backend makes. It overrides the caller's configuration and grant.
	// If the input is invalid, Do rejects it. Otherwise [SetupComplete] or [SetupFailed] answers it.
	BackendUpdate struct {
		Agent     Agent           // empty fields change nothing
		Functions json.RawMessage // array of declarations of functions that the backend runs; empty keeps the previous array
	}

	// GetContext requests the [History].
	GetContext struct{ ReplyTo any } // see [UpdateConfig]

	// ClearContext clears the history and continues in a new session of the model. When that session is ready, an empty
	// [History] answers the command.
	ClearContext struct{ ReplyTo any } // see [UpdateConfig]

	// Goodbye ends the conversation without parking it.
	Goodbye struct{}
)

// Commands of the host.
type (
	// drainCommand tells the session that the gateway accepts no more conversations. The gateway stops after stopsIn.
	// If stopsIn is 0, it does not stop.
	drainCommand struct{ stopsIn time.Duration }

	// takenCommand ends a conversation at this gateway because another gateway continues it.
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
