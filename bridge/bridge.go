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
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/gemini/wire"
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

	// Locked: the caller changes nothing that Agent says.
	Locked bool

	// Greeting is the instruction by which the model begins, for a door that has it begin; empty: the caller begins. Note ends the
	// system instruction, whoever has written that.
	Greeting string
	Note     string

	// Tools run in the gateway for this conversation only, beside the operator's.
	Tools []tools.Tool

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

// Agent configures the model. An empty field changes nothing.
type Agent struct {
	Prompt   string `json:"prompt,omitempty"`   // the system instruction
	Voice    string `json:"voice,omitempty"`    // one of Google's prebuilt voices: "Puck"
	Language string `json:"language,omitempty"` // BCP 47: "de-DE"
	Model    string `json:"model,omitempty"`    // "gemini-3.8-live"

	Config  json.RawMessage `json:"config,omitempty"`  // a LiveConfig, for what the fields above do not say
	Tools   []string        `json:"tools"`             // patterns of the operator's tools that it uses; nil: every one that is granted
	Longest time.Duration   `json:"longest,omitempty"` // of a conversation; 0: no limit of its own
	Dollars float64         `json:"dollars,omitempty"` // US, that a conversation may cost; 0: no limit of its own
}

// Over returns a with its empty fields taken from under.
func (a Agent) Over(under Agent) Agent {
	over := Agent{
		Prompt: cmp.Or(a.Prompt, under.Prompt), Voice: cmp.Or(a.Voice, under.Voice),
		Language: cmp.Or(a.Language, under.Language), Model: cmp.Or(a.Model, under.Model),
		Config: under.Config, Tools: a.Tools, Longest: lower(a.Longest, under.Longest), Dollars: lower(a.Dollars, under.Dollars),
	}
	if a.Tools == nil {
		over.Tools = under.Tools
	}
	if len(a.Config) > 0 {
		over.Config = lay(a.Config, under.Config)
	}
	return over
}

// lower is the lower of two limits, of which 0 is none.
func lower[T time.Duration | float64](a, b T) T {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// Wanted is the agent as everybody but the caller and the backend of a running conversation wants it: the operator's file, under the grant,
// under the session webhook. Each field counts by itself.
func (o *Open) Wanted() Agent { return o.Fixed().Over(o.Agent) }

// dollars are what the conversation may cost; 0: there is no limit.
func (o *Open) dollars() float64 {
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
// caller, what the caller cannot change, the operator's backend.
func (o *Open) layered(configured json.RawMessage, backend *steering) json.RawMessage {
	if !o.Locked { // else it is above the caller
		configured = lay(configured, o.Agent.config(nil))
	}
	over := backend.agent.Over(o.Fixed())
	return backend.config(noted(over.config(configured), o.Note))
}

// config returns raw with the agent's fields set. A config that is no object is returned unchanged, and refused where
// it is parsed.
func (a Agent) config(raw json.RawMessage) json.RawMessage {
	return edited(lay(a.Config, raw), a.Model+a.Prompt+a.Voice+a.Language != "", func(config map[string]any) {
		put(config, a.Model, "model")
		put(config, a.Prompt, instruction)
		put(config, a.Voice, "generationConfig", "speechConfig", "voiceConfig", "prebuiltVoiceConfig", "voiceName")
		put(config, a.Language, "generationConfig", "speechConfig", "languageCode")
	})
}

const instruction = "systemInstruction"

// noted returns raw with a note behind the instruction, whoever has written that.
func noted(raw json.RawMessage, note string) json.RawMessage {
	return edited(raw, note != "", func(config map[string]any) {
		rename(config, instruction)
		switch text := config[instruction].(type) {
		case string:
			config[instruction] = text + "\n\n" + note
		case map[string]any:
			parts, _ := text["parts"].([]any)
			text["parts"] = append(parts, map[string]any{"text": note})
		default:
			config[instruction] = note
		}
	})
}

// edited returns a config as edit leaves it, unless there is nothing to edit or it is no object.
func edited(raw json.RawMessage, needed bool, edit func(config map[string]any)) json.RawMessage {
	config, ok := object(raw)
	if !needed || !ok {
		return raw
	}
	edit(config)
	changed, err := json.Marshal(config)
	if err != nil {
		return raw // what was read can be written
	}
	return changed
}

// lay lays one config over another, field by field. What is no object wins as it is, and is refused where it is parsed.
func lay(over, under json.RawMessage) json.RawMessage {
	top, ok := object(over)
	switch {
	case len(under) == 0 || !ok:
		return over
	case len(top) == 0:
		return under
	}
	return edited(under, true, func(config map[string]any) { merge(config, top) })
}

// whole are the objects that are one field: parts of two of them may contradict each other.
var whole = []string{instruction, "voiceConfig", "thinkingConfig"}

// merge lays the fields of one object over those of another. Both may have names in snake_case; null says nothing. Tools are added.
func merge(under, over map[string]any) {
	for name, value := range over {
		if value == nil {
			continue
		}
		rename(under, camel(name))
		name = camel(name)
		inner, isObject := value.(map[string]any)
		below, wasObject := under[name].(map[string]any)
		list, isList := value.([]any)
		before, wasList := under[name].([]any)
		switch {
		case isObject && wasObject && !slices.Contains(whole, name):
			merge(below, inner)
		case name == "tools" && isList && wasList:
			under[name] = slices.Concat(before, list)
		default:
			under[name] = value
		}
	}
}

// camel is a field's name in camelCase.
func camel(name string) string {
	words := strings.Split(name, "_")
	for i, w := range words[1:] {
		if w != "" {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
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

// CheckConfig says what is wrong with a LiveConfig, whatever model it is for.
func CheckConfig(raw json.RawMessage) error {
	_, err := setup.Parse(raw, "config", setup.Scope{})
	return err
}
