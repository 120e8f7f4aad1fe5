// Package setup decides what becomes of a client's session config: it validates it, translates it into the setup that the
// model it names takes, and says what that model can do in the session. It opens no connections; package gemini does.
//
// A server answers a setup that its model does not take with a closed socket and never with a warning. So a table (table.go)
// says what each model takes, and the parser drops, adds and translates accordingly, with warnings for the client. The types
// of Google's Go SDK serve as the list of all fields a setup can have.
package setup

import (
	"bytes"
	"encoding/json"
	"fmt"

	"voxgate/bridge/gemini"
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

	// FunctionNames are the names of the declared functions, in order.
	FunctionNames []string

	// Options are our own session options, the `voxgate` object of the config. They are not sent to Google.
	Options Options

	// Profile is what the model can do.
	Profile Profile

	row      row
	behavior map[string]string // of the functions that have one
	alpha    bool              // there is something in setup that only v1alpha has
	setup    map[string]any
}

// FieldError says which field of a client's config cannot be used, and why. Both parts are for the client.
type FieldError struct {
	Field   string // path from the name given to Parse, as "initialConfig.generationConfig.topK"
	Problem string // continues the field's name, as "must be a number"
}

// Error implements error.
func (e *FieldError) Error() string { return e.Field + " " + e.Problem }

// maxWarnings keeps a config of nonsense from becoming a log of nonsense.
const maxWarnings = 32

// Parse validates a client's config and translates it for its model on Vertex AI, or on the Gemini API if vertex is nil; a
// client of the same backend dials it. Path names the config in errors, as "initialConfig". The error is always a
// *FieldError. Names that the API does not have are dropped with a warning, since the API would close the session for them;
// null means absent, and no config at all is an empty one.
func Parse(raw json.RawMessage, path string, vertex *gemini.Vertex) (Config, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber() // integers above 2^53 and decimals are sent on as they came
	var tree any
	if len(bytes.TrimSpace(raw)) > 0 {
		if !json.Valid(raw) {
			return Config{}, &FieldError{Field: path, Problem: "is not valid JSON"}
		}
		if err := dec.Decode(&tree); err != nil {
			return Config{}, &FieldError{Field: path, Problem: "cannot be read: " + err.Error()}
		}
	}
	fields, ok := tree.(map[string]any)
	if !ok && tree != nil {
		return Config{}, &FieldError{Field: path, Problem: "must be an object"}
	}
	p := &parser{path: path, backend: geminiAPI}
	if vertex != nil {
		p.backend, p.project = vertexAI, vertex.Project
	}
	if err := p.config(fields); err != nil {
		return Config{}, err
	}
	if len(p.Warnings) > maxWarnings {
		more := len(p.Warnings) - maxWarnings
		p.Warnings = append(p.Warnings[:maxWarnings:maxWarnings], fmt.Sprintf("There are %d more warnings.", more))
	}
	return p.Config, nil
}

// Effective returns the setup that is sent for this config, without a resumption handle, and with the model's name as it
// is on the Gemini API.
func (c Config) Effective() json.RawMessage { return mustMarshal(c.setup) }

// Setup returns what a connection for this config starts with. Handle continues an earlier session; without one the model
// is told the history, if its profile allows that.
func (c Config) Setup(handle string, history []gemini.Content) gemini.Setup {
	s := gemini.Setup{Object: c.Effective(), Alpha: c.alpha, Resumable: c.Options.Resumption, Handle: handle}
	if handle == "" && c.Profile.Seeds {
		s.History, s.Announced = history, !c.Profile.Appends
	}
	return s
}
