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
	// together with the next complete turn. Parts is an array of Google's Part; nil means the turn is Text.
	Message struct {
		Text         string
		Parts        json.RawMessage
		TurnComplete bool
	}

	// PrefillTurns adds turns to the context without an answer, as if they had been said. Do rejects the command if the
	// model would answer these turns.
	PrefillTurns struct{ Turns []PrefillTurn }

	// Text is real-time text, for example an action on a canvas. It does not interrupt.
	Text struct{ Text string }

	// Activity marks the start or end of speech, or a pause of the microphone. It is sent to the model in order with the
	// audio. Like [uplink.MarkKeep] and [uplink.MarkDrop], ActivityKeep and ActivityDrop decide whether audio received
	// before the next ActivityStart is sent.
	Activity int

	// ToolResponse answers one call of a [ToolCall].
	ToolResponse toolcalls.Response

	// Interrupt stops the current answer: the rest is not played, and the transcript keeps what was played. The model is
	// not informed, and assumes that it said the whole answer.
	Interrupt struct{}

	// Prompt makes the model speak now, with an instruction that only the model sees, such as "Greet the caller". It does
	// not appear in the transcript.
	Prompt struct{ Instruction string }

	// PlaybackPosition reports how much of an answer's voice was played, for a client that controls playback and
	// interruptions itself. The rest of that turn was not heard.
	PlaybackPosition struct {
		Turn   int
		Played time.Duration
	}

	// Pause puts the conversation on hold, or ends the hold. On hold the voice stops and is not played later, audio and
	// pictures are not sent to the model, and no waiting tones are played. With Listen, audio and pictures are still sent:
	// the model hears and may use its tools, but its voice is neither played nor added to the transcript.
	Pause struct{ On, Listen bool }

	// PauseRecording pauses the recording, e.g. for card numbers, or continues it. Do rejects the command if the
	// conversation is not recorded. A pause lasts until this command ends it, even if the configuration changes.
	PauseRecording struct{ On bool }

	// EndAfterSpeaking ends the conversation when the current answer has been played, after 15 s at most. If a tool runs,
	// even the tool that requests this, the conversation ends after the answer to the tool's result.
	EndAfterSpeaking struct{}

	// UpdateConfig changes the configuration; [SetupComplete] or [SetupFailed] answers it. If Agent is set, that agent of
	// the operator answers from now on, in place of SessionRequest.Agent, unless the backend has named the agent.
	UpdateConfig struct {
		Config  json.RawMessage
		Agent   *Agent `json:",omitempty"` // nil keeps the current one
		Name    string `json:",omitempty"`
		ReplyTo any    `json:"-"` // any value that the caller chooses; the answer returns it in [Event.ReplyTo]
	}

	// BackendUpdate is a change by the operator's backend. It overrides the caller's configuration and grant. Empty fields
	// of Agent change nothing. Functions is an array of declarations of functions that the backend runs; it replaces the
	// previous array, unless it is empty. Do rejects invalid input; otherwise [SetupComplete] or [SetupFailed] answers.
	BackendUpdate struct {
		Agent     Agent
		Functions json.RawMessage
	}

	// GetContext requests the [History].
	GetContext struct{ ReplyTo any } // see [UpdateConfig]

	// ClearContext forgets the history and continues in a fresh session of the model. An empty [History] answers it when
	// that session is ready.
	ClearContext struct{ ReplyTo any } // see [UpdateConfig]

	// Goodbye ends the conversation without parking it.
	Goodbye struct{}
)

// Commands of the host.
type (
	// drainCommand reports that the gateway accepts no more calls. The gateway stops after stopsIn; 0 means that it
	// does not stop.
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
