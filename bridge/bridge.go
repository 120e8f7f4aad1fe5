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
	// failed. Once ctx is done, the result does not matter.
	//
	// Serve passes the output for the voice to s.AttachOutput. The voice is held back until Serve calls
	// s.HoldVoice(false).
	//
	// context.Cause(ctx) is [ErrReplaced] or the reason for the end of the conversation.
	Serve(ctx context.Context, s *Session) error

	// Notify passes an event to the caller. It must not block, and must not call the session. A slow caller must
	// disconnect itself.
	//
	// Notify is called for one event at a time, in the order of their numbers, from any goroutine. The first call may
	// come before Serve is called. No call comes after Host.Serve has returned.
	Notify(Event)
}

// SessionRequest describes the conversation that a caller wants.
type SessionRequest struct {
	// Agent configures the model. Config is the caller's LiveConfig in JSON, which overrides the fields of Agent one by
	// one.
	Agent  Agent
	Config json.RawMessage

	// AgentLocked means that the caller cannot override Agent. AgentNamed means that Override is an agent that the
	// backend has chosen by name, so no other agent may answer.
	AgentLocked, AgentNamed bool

	// GreetingPrompt is an instruction that makes the model speak first. If it is empty, the caller begins.
	GreetingPrompt string
	// PromptSuffix is appended to the system instruction of the client, the agent or the grant.
	PromptSuffix string

	// Tools run in the gateway for this conversation only, in addition to the operator's.
	Tools []tools.Tool

	// Dial connects to a model outside the Live API, as package textmodel does. It may be nil. Only one of its
	// connections is open at a time.
	Dial func(context.Context, gemini.Setup) (upstream.Conn, error)

	// DeferDial delays the dial until the first [UpdateConfig], but at most by 800 ms, because some clients send their
	// configuration only after connecting.
	DeferDial bool

	// Resumable keeps the conversation for a while if the caller is lost.
	Resumable bool
	// ResumeToken names a kept conversation of the same protocol and person, which is continued. If no such
	// conversation has this token, a new conversation is opened.
	ResumeToken string
	// ResumeError is the error that Serve returns if the conversation cannot be resumed, for example [ErrNotResumed].
	// If it is nil, Serve opens a new conversation instead.
	ResumeError error
	// LastEvent is the number of the newest event that the caller has received. Serve sends the later events again, in
	// order. If LastEvent is 0, it sends only the essential events.
	LastEvent uint64

	// Replaces is a conversation that this caller takes over. Its current caller gets [ErrReplaced]. If the
	// conversation has ended, a new one is opened.
	Replaces *Session

	// FarewellPrompt makes the model say goodbye when the time limit is reached and both sides are silent. The caller
	// does not see the prompt. If it is empty, the model says no goodbye.
	FarewellPrompt string

	// NoCues turns off two additions of the gateway: the tones and sentences that a waiting person hears, and the
	// newest camera picture that is added to typed text.
	NoCues bool

	// MaxPreRoll limits the pre-roll that a config may ask for: audio from before an activityStart that is sent, too. 0
	// means 10 s.
	MaxPreRoll time.Duration

	Origin Origin

	// EndpointState is data of the endpoint that is kept with the conversation for all its callers. See
	// [Session.EndpointState].
	EndpointState any

	// Override configures the model, and takes precedence over the agent of Grant. [Options].Admit sets it. The caller
	// cannot change it.
	Override Agent

	// Grant limits what the caller may do; nil means no limits. Account counts the costs; if it is nil, they are not
	// counted.
	Grant   *Grant
	Account Account
}

// Origin describes where a conversation comes from. It is passed to tools that run in the gateway.
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
	// ShowsQuestions means that the client can show a tool's question itself, although it may have no canvas. It gets
	// each question as a [ToolCall].
	ShowsQuestions bool `json:"Asks"`
}

// SameCaller reports whether a caller with the origin other may continue or end a conversation with the origin o. Both
// must have the same key and identity.
func (o Origin) SameCaller(other Origin) bool {
	return o.Key == other.Key && o.Identity == other.Identity
}

// IsLiveModel reports whether a model belongs to the Live API, judging by its name. It returns true for "", which means
// the default model.
func IsLiveModel(model string) bool { return liveconfig.IsLive(model) }

// MergedAgent returns the agent with which the conversation starts, before the caller or the backend changes it.
// Settings of the session webhook override those of the grant, and these override those of the operator's file.
func (r *SessionRequest) MergedAgent() Agent { return r.FixedAgent().MergeOver(r.Agent) }

// callerID returns an ID of the caller. It comes from the account if that can tell callers apart, and otherwise
// consists of key and identity.
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

// buildConfig merges the model's configuration from all sources. docs/agents.md has their precedence. It appends the
// instruction of the current step and PromptSuffix.
func (r *SessionRequest) buildConfig(configured json.RawMessage, backend *steering) json.RawMessage {
	if !r.AgentLocked { // otherwise FixedAgent contains the agent, which then overrides the caller
		configured = mergeConfig(configured, r.Agent.applyTo(nil))
	}
	merged := backend.agent.MergeOver(r.FixedAgent())
	config := withInstructionSuffix(merged.applyTo(configured), backend.flow.Instruction())
	return backend.withBackendFunctions(withInstructionSuffix(config, r.PromptSuffix))
}
