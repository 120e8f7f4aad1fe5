// Package liveconfig validates a client's session config, translates it to the setup for its model, and describes what the model
// supports in the session. It opens no connections; package gemini does.
//
// If a model does not support a setup, the server closes the socket without a warning. So a table (table.go) lists what each model
// supports. The parser drops, adds and translates fields accordingly, and warns the client. A list of all fields of a setup was
// taken from Google's Go SDK (fields.txt).
package liveconfig

import (
	"bytes"
	"encoding/json"
	"time"

	"voxgate/bridge/gemini"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/wire"
	"voxgate/tools"
)

// Config is a client's session config, validated and translated for its model. Parse creates it. It must not be
// changed.
type Config struct {
	// Model is the model's name without "models/".
	Model string

	// TextOnly is set if the client requested only text, but the model can only speak. The client then gets the
	// transcript.
	TextOnly bool

	// TextToo is set if the client requested voice and text, but the model can only speak. The client then gets voice
	// and transcript.
	TextToo bool

	// Warnings are sentences for the client about dropped or changed fields, with reasons.
	Warnings []string

	// Losses lists the client's functions that could not be declared completely. Warnings mention them, too.
	Losses []Loss

	// Functions are the declared functions: first the gateway's, then the client's in its order.
	Functions FunctionList

	// Options are the gateway's own session options, the `voxgate` object of the config. They are not sent to Google.
	Options Options

	// Profile describes what the model supports.
	Profile Profile

	row   row
	alpha bool // setup has fields that only v1alpha supports
	setup map[string]any
}

// Loss describes a client's function that is not declared completely.
type Loss struct {
	Function string // name of the function
	Reason   string // why, in words for the client's developer
	LeftOut  bool   // the function is not declared at all
}

// Scope is the context in which a config is parsed: the backend and the gateway's own tools.
type Scope struct {
	// Vertex is the project on Vertex AI, or nil for the Gemini API.
	Vertex *api.Vertex

	// Tools lists the gateway's own tools, which are available in every conversation.
	Tools []tools.Declaration

	// Canvas lists the canvas tools. Screen is set if the client's protocol allows a screen; phones have none.
	Canvas []tools.Declaration
	Screen bool

	// TextModels is set if the client may choose a model outside the Live API: see [IsLive].
	TextModels bool

	// Hides reports whether a function is currently hidden. It may be nil.
	Hides func(name string) bool

	// Findings maps names of models to their measured behaviour.
	Findings map[string]Findings

	// MaxPreRoll is the maximum of prefixPaddingMs; 0 means 10 s. It limits memory, because buffered audio takes 32 kB
	// a second.
	MaxPreRoll time.Duration
}

// Parse validates a client's config and translates it for its model, on the backend of the scope. An empty config is
// valid. The error is always a *FieldError. path is the name of the config in errors, such as "initialConfig".
//
// Unknown fields are dropped with a warning, because the API would close the session for them. Only types in openTypes
// may have unknown fields, because Google may have added them.
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
	if err := p.parseConfig(fields); err != nil {
		return Config{}, err
	}
	p.Config.Warnings = p.warnings
	return p.Config, nil
}

// Effective returns the setup of this config as JSON for the Gemini API, without a resumption handle.
func (c Config) Effective() json.RawMessage { return tools.EncodeOrEmpty(c.setup) }

// Setup returns the setup of a connection. If handle is not empty, the connection resumes an earlier session. Otherwise
// the setup includes historyIfNew, if the model supports that.
func (c Config) Setup(handle string, historyIfNew []wire.Content) gemini.Setup {
	s := gemini.Setup{
		Object: c.Effective(), Alpha: c.alpha, Resumable: c.Options.Resumption, Handle: handle, IsTextModel: c.Profile.IsTextModel,
	}
	if handle == "" && c.Profile.Seeds {
		s.History, s.AnnounceHistory = historyIfNew, !c.Profile.Appends
	}
	return s
}
