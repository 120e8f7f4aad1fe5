// Package bridge carries conversations between a person and the model: what the person says goes up, what the model
// says comes down in real time, and tools run in between.
//
// A front door needs four things of it. [Host.Serve] opens or resumes a conversation for a [Caller], whose Serve is given the
// [Session]. Audio goes up by [Session.Mic] and comes down to the output given to [Session.Attach]. What the person or the
// client wants goes to [Session.Do], as a [Command]. What happens comes to [Caller.Notify], as an [Event].
//
// Three lifetimes: a [Session], the conversation, outlives the [Caller] that carries it and the connections to the model that
// serve it. One goroutine, the session's loop, changes its state.
package bridge

import (
	"context"
	"encoding/json"
	"time"

	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/gemini/writer"
	"voxgate/tools"
)

// VoiceRate is the sample rate of the model's voice in Hz: what every [media.Output] of a caller takes.
const VoiceRate = wire.OutputRate

// Caller is whoever carries a conversation: a browser, a phone, a test.
type Caller interface {
	// Serve delivers audio and commands to s until the caller leaves (nil), fails (its error) or ctx is done, and waits
	// for what it started. It calls s.Attach with the output for the voice, which waits until s.Hold(false). When ctx is
	// done, context.Cause says why: [ErrReplaced], or the end of the conversation.
	Serve(ctx context.Context, s *Session) error

	// Notify gives the caller an event. It must not block and must not call the session; a caller that is too slow must
	// disconnect itself. Calls come one at a time, in the order of the events' numbers, but from several goroutines. They
	// begin with Host.Serve, perhaps before Serve is called, and end when Host.Serve returns.
	Notify(Event)
}

// Open says which conversation a caller wants.
type Open struct {
	// Agent is how the model is unless the caller says otherwise, field by field, and Config what the caller says: a LiveConfig
	// in JSON. Both may be empty.
	Agent  Agent
	Config json.RawMessage

	// Locked: the caller changes nothing that Agent says. Named: Override is an agent that the backend has named, and no other answers.
	Locked, Named bool

	// Greeting is the instruction by which the model begins, for a door that has it begin; empty: the caller begins. Note ends the
	// system instruction, whoever has written that.
	Greeting string
	Note     string

	// Tools run in the gateway for this conversation only, beside the operator's.
	Tools []tools.Tool

	// Generate has a model answer that is none of the Live API's. nil: there are none for this conversation.
	Generate writer.Generate

	// Later dials the model at the first [UpdateConfig], or after 800 ms: for clients that configure after they connect.
	Later bool

	// Resumable has the conversation wait for a while when the caller is lost. ResumeToken is of one that waits, and
	// LastEvent the number of the newest event that the caller has of it: those after it come again, in order. With 0
	// only what any caller must know comes. An unknown or expired token, or one of another door or person, opens a fresh conversation.
	// With Instead it opens none: that is the error, as [ErrNotResumed].
	Resumable   bool
	ResumeToken string
	Instead     error
	LastEvent   uint64

	// TakeOver is a conversation that the caller takes over from the one that has it, which gets [ErrReplaced]. One that has ended
	// meanwhile has a fresh one opened. nil: none.
	TakeOver *Session

	// Farewell is the instruction by which the model says goodbye, sent when the conversation has reached its time limit
	// and nobody speaks; nobody else sees it. Empty: the conversation ends without a goodbye.
	Farewell string

	// Quiet lets the caller and the model have nothing but what the other has sent: the gateway plays no tones or sentences during a wait, and
	// shows the model no picture with what is typed.
	Quiet bool

	// MaxPreRoll is how much audio from before an activityStart a config may ask to keep. 0: 10 s.
	MaxPreRoll time.Duration

	Origin Origin

	// Own is the door's own state for the conversation, kept over all its callers: [Session.Own].
	Own any

	// Override configures the model over Grant's agent; [Options].Admit sets it. The caller changes nothing of the two.
	Override Agent

	// Grant is what the caller may have; nil: everything. Account counts what it costs; nil: it is not counted.
	Grant   *Grant
	Account Account
}

// Origin is where a conversation comes from. Tools that run in the gateway learn of it.
type Origin struct {
	Door       string            // the front door: "web", "sip", …
	Agent      string            // who answers, by the name of its file; empty: none of the operator's agents
	Identity   string            // of the caller; empty: not known
	Key        string            // the operator's name of the key, or of the issuer of tokens, that answers for the caller; empty: none does
	Grant      json.RawMessage   // what the caller may do, as tools get it; nil: nothing was said
	Attributes map[string]string // what came with the caller, as tools and the session webhook get it: attributes of a telephone call
	Screen     bool              // callers of this door may have where to show a canvas
	Asks       bool              // the caller shows what a tool asks the person, by a [ToolCall], though it has no canvas for the model
}

// Mine reports whether a caller of origin theirs may go on with a conversation of o, or end it: both have the same key,
// which names the same person for both.
func (o Origin) Mine(theirs Origin) bool { return o.Key == theirs.Key && o.Identity == theirs.Identity }

// Talks reports whether a model of this name belongs to the Live API, judging by the name; "" is the default, which
// does.
func Talks(model string) bool { return setup.IsLive(model) }

// Wanted is the agent as everybody but the caller and the backend of a running conversation wants it: the operator's file, under the grant,
// under the session webhook. Each field counts by itself.
func (o *Open) Wanted() Agent { return o.Fixed().Over(o.Agent) }

// caller tells the people apart who ask for conversations: by their account, if it can, else by what is known of them.
func (o *Open) caller() string {
	if a, ok := o.Account.(interface{ Caller() string }); ok {
		return a.Caller()
	}
	return o.Origin.Key + " " + o.Origin.Identity
}

// Dollars are what the conversation may cost; 0: there is no limit.
func (o *Open) Dollars() float64 {
	most := o.Wanted().Dollars
	if o.Grant != nil {
		most = lower(most, o.Grant.Dollars)
	}
	return most
}

// Fixed is what the caller cannot change.
func (o *Open) Fixed() Agent {
	fixed := o.Override
	if o.Grant != nil {
		fixed = fixed.Over(o.Grant.Agent)
	}
	if o.Locked {
		fixed = fixed.Over(o.Agent)
	}
	return fixed
}

// layered is the model's configuration, at the beginning and after each change, in the order of docs/agents.md: the operator's file, the
// caller, what the caller cannot change, the operator's backend. The step's instruction follows, whoever has written the one before it.
func (o *Open) layered(configured json.RawMessage, backend *steering) json.RawMessage {
	if !o.Locked { // else it is above the caller
		configured = lay(configured, o.Agent.config(nil))
	}
	over := backend.agent.Over(o.Fixed())
	return backend.config(noted(noted(over.config(configured), backend.flow.Instruction()), o.Note))
}
