// Package bridge carries conversations between a person and the model: it sends the person's audio and text to the
// model, plays the model's voice in real time, and runs tools.
//
// An endpoint uses four parts of this package. [Host.Serve] opens or resumes a conversation for a [Caller], and passes
// the [Session] to the caller's Serve method. [Session.NewMicrophone] accepts audio, and [Session.AttachOutput] sets
// the output for the voice. [Session.Do] accepts the requests of the person or the client, as a [Command].
// [Caller.Notify] receives what happens, as an [Event].
//
// A [Session], the conversation, outlives its [Caller] and its connections to the model. Only one goroutine, the
// session's loop, changes the state of a session.
package bridge

import (
	"context"
	"encoding/json"
	"time"

	"voxgate/bridge/gemini"
	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/upstream"
	"voxgate/tools"
)

// VoiceRate is the sample rate of the model's voice in Hz, which every [media.Output] of a caller must accept.
const VoiceRate = wire.OutputRate

// Caller is the client of a conversation: a browser, a phone, a test.
type Caller interface {
	// Serve delivers audio and commands to s. It blocks until the caller leaves or fails, or ctx is done. It must wait
	// for its goroutines before it returns. It returns nil if the caller has left, and an error if the caller has
	// failed. Once ctx is done, it may return either.
	//
	// It passes the output for the voice to s.AttachOutput. The voice is held until s.HoldVoice(false) is called.
	//
	// context.Cause(ctx) is [ErrReplaced] or the reason for the end of the conversation.
	Serve(ctx context.Context, s *Session) error

	// Notify passes an event to the caller. It must not block, and must not call the session. A slow caller must
	// disconnect itself.
	//
	// Calls come one after another, in the order of the events' numbers, from any goroutine. The first may come before
	// Serve is called. None comes after Host.Serve has returned.
	Notify(Event)
}

// SessionRequest describes the conversation that a caller wants.
type SessionRequest struct {
	// Agent configures the model. Config is the caller's LiveConfig in JSON. Config overrides Agent field by field.
	Agent  Agent
	Config json.RawMessage

	// AgentLocked means that the caller cannot override Agent. AgentNamed means that the backend has named the agent in
	// Override, so that no other agent may answer.
	AgentLocked, AgentNamed bool

	// GreetingPrompt is an instruction for the model to speak first; empty means that the caller begins.
	GreetingPrompt string
	// PromptSuffix is appended to the system instruction, whether the instruction comes from the client, the agent or
	// the grant.
	PromptSuffix string

	// Tools run in the gateway for this conversation only, in addition to the operator's.
	Tools []tools.Tool

	// Dial connects to models outside the Live API, as package textmodel does. It may be nil. At most one of its
	// connections is open at a time.
	Dial func(context.Context, gemini.Setup) (upstream.Conn, error)

	// DeferDial delays the dial until the first [UpdateConfig], at most 800 ms. Some clients configure after
	// connecting.
	DeferDial bool

	// Resumable keeps the conversation for a while when the caller is lost.
	Resumable bool
	// ResumeToken continues a kept conversation of the same protocol and person. Any other token opens a new conversation.
	ResumeToken string
	// ResumeError, for example [ErrNotResumed], is returned by Serve instead of opening a new conversation.
	ResumeError error
	// LastEvent is the number of the newest event that the caller has received. Serve sends the later events again, in
	// order. If LastEvent is 0, it sends only the essential events.
	LastEvent uint64

	// Replaces is a conversation to take over from its current caller, which gets [ErrReplaced]. If it has ended, a new
	// one is opened.
	Replaces *Session

	// FarewellPrompt asks the model for a goodbye when the time limit is reached and both sides are silent. The caller does
	// not see the prompt. Without a prompt the model says no goodbye.
	FarewellPrompt string

	// NoCues turns off two additions of the gateway: tones and sentences while the person waits, and the newest picture
	// of the camera with typed text.
	NoCues bool

	// MaxPreRoll limits how much audio from before an activityStart a config can ask to keep; 0 means 10 s.
	MaxPreRoll time.Duration

	Origin Origin

	// EndpointState is kept with the conversation for all its callers. See [Session.EndpointState].
	EndpointState any

	// Override configures the model, and takes precedence over Grant's agent. [Options].Admit sets Override. The caller
	// cannot change it.
	Override Agent

	// Grant limits the caller; nil means unlimited. Account counts the costs; nil means not counted.
	Grant   *Grant
	Account Account
}

// Origin describes where a conversation comes from. Tools that run in the gateway get it.
type Origin struct {
	Protocol   string            `json:"Door"` // "web", "sip", …
	Agent      string            // name of the agent's file; empty means no agent of the operator
	Identity   string            // name of the caller; empty means unknown
	Key        string            // the operator's name for the caller's key or token issuer; empty means none
	Grant      json.RawMessage   // permissions of the caller, for tools; nil means not specified
	Attributes map[string]string // attributes of a telephone call, for tools and the session webhook
	Address    string            // IP address of the caller, for the operator; empty means unknown
	Device     string            // User-Agent header of the caller; empty means none
	HasScreen  bool              `json:"Screen"` // callers of this protocol may be able to show a canvas
	// whether the client can show the questions of tools without a canvas; it gets each question as a [ToolCall]
	ShowsQuestions bool `json:"Asks"`
}

// SameCaller reports whether a caller with the other origin may continue or end a conversation of o. Both must have the
// same key and identity.
func (o Origin) SameCaller(other Origin) bool {
	return o.Key == other.Key && o.Identity == other.Identity
}

// IsLiveModel reports whether a model belongs to the Live API, judging by its name. For "", the default model, it
// returns true.
func IsLiveModel(model string) bool { return liveconfig.IsLive(model) }

// MergedAgent returns the agent without the changes of the caller and the backend. Precedence: session webhook, grant,
// operator's file.
func (r *SessionRequest) MergedAgent() Agent { return r.FixedAgent().MergeOver(r.Agent) }

// callerID returns a name for the caller: from an account that can tell callers apart, else from key and identity.
func (r *SessionRequest) callerID() string {
	if a, ok := r.Account.(interface{ Caller() string }); ok {
		return a.Caller()
	}
	return r.Origin.Key + " " + r.Origin.Identity
}

// MaxDollars returns the budget of the conversation in US dollars; 0 means no limit.
func (r *SessionRequest) MaxDollars() float64 {
	most := r.MergedAgent().MaxDollars
	if r.Grant != nil {
		most = minNonZero(most, r.Grant.MaxDollars)
	}
	return most
}

// FixedAgent returns the settings that the caller cannot change.
func (r *SessionRequest) FixedAgent() Agent {
	fixed := r.Override
	if r.Grant != nil {
		fixed = fixed.MergeOver(r.Grant.Agent)
	}
	if r.AgentLocked {
		fixed = fixed.MergeOver(r.Agent)
	}
	return fixed
}

// buildConfig merges the model's configuration, with the precedence of docs/agents.md. It appends the instruction of
// the current step and PromptSuffix.
func (r *SessionRequest) buildConfig(configured json.RawMessage, backend *steering) json.RawMessage {
	if !r.AgentLocked { // otherwise FixedAgent contains the agent, which then overrides the caller
		configured = mergeConfig(configured, r.Agent.applyTo(nil))
	}
	merged := backend.agent.MergeOver(r.FixedAgent())
	return backend.withFunctions(withSuffix(withSuffix(merged.applyTo(configured), backend.flow.Instruction()), r.PromptSuffix))
}
