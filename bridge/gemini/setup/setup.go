// Package setup validates a client's session config, translates it into the setup that its model takes, and says what
// that model can do in the session. It opens no connections; package gemini does.
//
// A server answers a setup that its model does not take by closing the socket, never with a warning. So a table
// (table.go) says what each model takes, and the parser drops, adds and translates accordingly, with warnings for the
// client. The types of Google's Go SDK serve as the list of all fields a setup can have.
package setup

import (
	"bytes"
	"encoding/json"
	"time"

	"voxgate/bridge/gemini"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/wire"
	"voxgate/tools"
)

// Config is a client's session config, validated and translated for the model it names. Parse makes it; it may be shared
// and must not be changed.
type Config struct {
	// Model is the model's name without "models/".
	Model string

	// TextOnly is set if the client asked for text alone and the model can only speak. It is dialled for speech with
	// a transcript, and the transcript is what the client wants to get.
	TextOnly bool

	// TextToo is set if the client asked for voice and text. The model can only speak, so it is dialled for speech with a
	// transcript, and the client wants the transcript as text beside the voice.
	TextToo bool

	// Warnings are sentences for the client: what was dropped or changed, and why.
	Warnings []string

	// Losses are the client's functions that are declared to the model in part, or not at all. Warnings say so, too.
	Losses []Loss

	// Functions are the declared functions: first the gateway's, then the client's in its order.
	Functions FunctionList

	// Options are our own session options, the `voxgate` object of the config. They are not sent to Google.
	Options Options

	// Profile is what the model can do.
	Profile Profile

	row   row
	alpha bool // there is something in setup that only v1alpha has
	setup map[string]any
}

// Loss says what was lost of a function that a client declares.
type Loss struct {
	Function string // its name
	Reason   string // for the client's developer
	LeftOut  bool   // it is not declared at all
}

// Scope is what a config is parsed for.
type Scope struct {
	// Vertex is set where Vertex AI answers; nil: the Gemini API does.
	Vertex *api.Vertex

	// Tools are the gateway's own, which every conversation has.
	Tools []tools.Declaration

	// Canvas are the functions that show something, and Screen says whether callers of this front door may have a screen:
	// a telephone has none.
	Canvas []tools.Declaration
	Screen bool

	// Writers says that models take part that are none of the Live API's, judging by their names: see [IsLive].
	Writers bool

	// Hides reports whether a function cannot be called now, whoever declares it; nil: every one can.
	Hides func(name string) bool

	// Findings holds measured behaviour by model name.
	Findings map[string]Findings

	// MaxPreRoll is the most that prefixPaddingMs may be; 0: 10 s. Audio that waits takes 32 kB a second.
	MaxPreRoll time.Duration
}

// Parse validates a client's config and translates it for its model in a scope; a client of the same backend dials it. Path
// names the config in errors, as "initialConfig". The error is always a
// *FieldError. Names that the API does not have are dropped with a warning, since the API would close the session for them;
// null means absent, and no config at all is an empty one.
func Parse(raw json.RawMessage, path string, scope Scope) (Config, error) {
	var config any
	if raw = tools.TrimBOM(raw); len(bytes.TrimSpace(raw)) > 0 {
		var err error
		if config, err = tools.Decode(raw); err != nil {
			return Config{}, &FieldError{Field: path, Problem: "is not valid JSON"}
		}
	}
	fields, ok := config.(map[string]any)
	if !ok && config != nil {
		return Config{}, &FieldError{Field: path, Problem: "must be an object"}
	}
	p := &parser{path: path, backend: geminiAPI, scope: scope}
	if scope.Vertex != nil {
		p.backend, p.project = vertexAI, scope.Vertex.Project
	}
	if err := p.config(fields); err != nil {
		return Config{}, err
	}
	p.Config.Warnings = p.warnings
	return p.Config, nil
}

// Effective returns the setup that is sent for this config, without a resumption handle, and with the model's name as it
// is on the Gemini API.
func (c Config) Effective() json.RawMessage { return tools.Encode(c.setup) }

// Setup returns what a connection for this config starts with. Handle continues an earlier session; without one the model
// gets the history, if its profile allows that.
func (c Config) Setup(handle string, history []wire.Content) gemini.Setup {
	s := gemini.Setup{Object: c.Effective(), Alpha: c.alpha, Resumable: c.Options.Resumption, Handle: handle, IsTextModel: c.Profile.Writes}
	if handle == "" && c.Profile.Seeds {
		s.History, s.AnnounceHistory = history, !c.Profile.Appends
	}
	return s
}
