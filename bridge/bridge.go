// Package bridge is one conversation between a person and the model: what the person says goes up, what the model says comes
// down in real time, and the tools run in between.
//
// A front door needs four things of it. [Host.Serve] opens or resumes a conversation for a [Caller], whose Serve is given the
// [Session]. Audio goes up by [Session.Mic] and comes down to the output given to [Session.Attach]. What the person or the
// client wants goes to [Session.Do], as a [Command]. What happens comes to [Caller.Notify], as an [Event].
//
// Three lifetimes: a [Session], the conversation, outlives the [Caller] that carries it and the connections to the model that
// serve it. One goroutine, the session's loop, changes its state.
package bridge

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"

	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/gemini/wire"
	"voxgate/tools"
)

// VoiceRate is the sample rate of the model's voice in Hz: what every [media.Output] of a caller takes.
const VoiceRate = wire.OutputRate

// Caller is whoever carries a conversation: a browser, a phone, a test.
type Caller interface {
	// Serve delivers audio and commands to s until the caller leaves (nil), fails (its error) or ctx is done, and waits
	// for what it started. It says where the voice goes by s.Attach; until s.Hold(false) the voice waits. When ctx is done
	// context.Cause says why: [ErrReplaced], or the end of the conversation.
	Serve(ctx context.Context, s *Session) error

	// Notify tells the caller. It must not block and must not call the session; a caller too slow to be told drops itself.
	// Calls come one at a time, in the order of the events' numbers, from several goroutines: from when Host.Serve has
	// begun, which may be before Serve has, until Host.Serve returns.
	Notify(Event)
}

// Open says which conversation a caller wants.
type Open struct {
	// Agent says in plain fields how the model shall be, and Config, a LiveConfig in JSON, everything there is to say. Both
	// may be empty. A field of Agent that is set wins, also over each configuration that the caller sends later.
	Agent  Agent
	Config json.RawMessage

	// Tools run in the gateway and are of this conversation alone, beside the operator's.
	Tools []tools.Tool

	// Later has the model dialled at the first [UpdateConfig], or after 800 ms: for clients that configure after they have
	// connected.
	Later bool

	// Resumable has the conversation wait for a while when the caller is lost. ResumeToken is of one that waits, and
	// LastEvent the number of the newest event that the caller has of it: those after it are told again, in order. With 0
	// only what it must know is. An unknown or expired token opens a fresh conversation, and so does one of another door or person.
	// With Instead it opens none: that is the error, as [ErrNotResumed].
	Resumable   bool
	ResumeToken string
	Instead     error
	LastEvent   uint64

	// TakeOver is a conversation that the caller takes over from the one it has, who is told [ErrReplaced]. One that has ended
	// meanwhile has a fresh one opened. nil: none.
	TakeOver *Session

	// Farewell is what the model is told when the conversation has reached its time limit and nothing is being said, so
	// that it says goodbye; nobody else sees it. Empty: the conversation ends without.
	Farewell string

	// Quiet has the caller hear nothing but the model: no tones and sentences of the gateway's while it is waited for.
	Quiet bool

	Origin Origin

	// Own is what the door keeps for the conversation, over all its callers: [Session.Own].
	Own any

	// Override is how the model shall be, over Agent and Grant; [Options].Admit sets it.
	Override Agent

	// Grant is what the caller may have; nil: everything. Account counts what it costs; nil: nobody counts.
	Grant   *Grant
	Account Account
}

// Origin is where a conversation comes from. Tools that run in the gateway are told.
type Origin struct {
	Door     string          // the front door: "web", "sip", …
	Identity string          // of the caller; empty: not known
	Key      string          // the operator's name of the key, or of the issuer of tokens, that answers for the caller; empty: none does
	Grant    json.RawMessage // what the caller may do, as tools are told; nil: nothing was said
	Screen   bool            // callers of this door may have where to show a canvas
	Asks     bool            // the caller shows what a tool asks the person, by a [ToolCall], though it has no canvas for the model
}

// Mine tells whether somebody may go on with a conversation of o, or end it: the same key answers for them as for who has begun it, and says
// that they are the same person.
func (o Origin) Mine(theirs Origin) bool { return o.Key == theirs.Key && o.Identity == theirs.Identity }

// Talks tells whether a model of this name is one of the Live API, as far as names tell; "" is the default, which is.
func Talks(model string) bool { return setup.IsLive(model) }

// Agent is how the model shall be. An empty field leaves it as it would be.
type Agent struct {
	Prompt   string // the system instruction
	Voice    string // one of Google's prebuilt voices: "Puck"
	Language string // BCP 47: "de-DE"
	Model    string // "gemini-3.8-live"
}

// Over is an agent with the empty fields as they are under it.
func (a Agent) Over(under Agent) Agent {
	return Agent{
		Prompt: cmp.Or(a.Prompt, under.Prompt), Voice: cmp.Or(a.Voice, under.Voice),
		Language: cmp.Or(a.Language, under.Language), Model: cmp.Or(a.Model, under.Model),
	}
}

// layered is what the model is set up with, at the beginning and after each change. Each layer counts more than the one
// before, each field by itself: what the caller configures, the door's agent, the grant, the session webhook, and what
// the operator's backend has changed.
func (o *Open) layered(configured json.RawMessage, backend *steering) json.RawMessage {
	return backend.config(o.Override.config(o.Grant.config(o.Agent.config(configured))))
}

// config is a config with what the agent says. A config that is no object is returned as it is, to be refused where it is read.
func (a Agent) config(raw json.RawMessage) json.RawMessage {
	if a == (Agent{}) {
		return raw
	}
	config, ok := object(raw)
	if !ok {
		return raw
	}
	put(config, a.Model, "model")
	put(config, a.Prompt, "systemInstruction")
	put(config, a.Voice, "generationConfig", "speechConfig", "voiceConfig", "prebuiltVoiceConfig", "voiceName")
	put(config, a.Language, "generationConfig", "speechConfig", "languageCode")
	merged, err := json.Marshal(config)
	if err != nil {
		return raw // what was read can be written
	}
	return merged
}

// object reads a config, of which nothing and null are empty ones. What nobody changes of it goes on as it came, numbers to the digit.
func object(raw json.RawMessage) (config map[string]any, ok bool) {
	if len(raw) == 0 {
		return map[string]any{}, true
	}
	value, err := tools.Decode(raw)
	if value == nil {
		value = map[string]any{}
	}
	config, ok = value.(map[string]any)
	return config, ok && err == nil
}

// put sets the field at the end of a path of objects, unless the value is empty.
func put(object map[string]any, value string, path ...string) {
	if value == "" {
		return
	}
	for _, name := range path[:len(path)-1] {
		rename(object, name)
		inner, ok := object[name].(map[string]any)
		if !ok {
			inner = map[string]any{}
			object[name] = inner
		}
		object = inner
	}
	last := path[len(path)-1]
	rename(object, last)
	object[last] = value
}

// rename gives a field its name in camelCase, which proto3 JSON has in snake_case as well.
func rename(object map[string]any, name string) {
	for other, value := range object {
		if other != name && strings.EqualFold(strings.ReplaceAll(other, "_", ""), name) {
			delete(object, other)
			object[name] = value
		}
	}
}
