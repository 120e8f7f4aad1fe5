package gemini

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/genai"
)

// Config is a client's session config, validated and translated for the model it names. Client.ParseConfig makes it, and
// the same client dials it; it may be shared and must not be changed.
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

	row      *row
	behavior map[string]string // of the functions that have one
	version  string            // of the API
	setup    map[string]any
}

// maxWarnings keeps a config of nonsense from becoming a log of nonsense.
const maxWarnings = 32

// ParseConfig validates a client's config and translates it for its model on this backend. Path names it in errors, as
// "initialConfig". The error is always a *FieldError. Names that the API does not have are dropped with a warning, since
// the API would close the session for them; null means absent.
func (c *Client) ParseConfig(raw json.RawMessage, path string) (Config, error) {
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
	p := &parser{path: path, backend: c.backend()}
	if c.Vertex != nil {
		p.project = c.Vertex.Project
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

// orDefault returns the config, or the default one in place of the zero value.
func (c Config) orDefault() (Config, error) {
	if c.setup != nil {
		return c, nil
	}
	return (&Client{}).ParseConfig(nil, "config")
}

// Effective returns the setup that is sent for this config, without a resumption handle, and with the model's name as it
// is on the Gemini API.
func (c Config) Effective() json.RawMessage {
	c, err := c.orDefault()
	if err != nil {
		return nil
	}
	return mustMarshal(c.setup)
}

// setupMessage returns the first message of a connection to the model of this full name. Seeded announces a history.
func (c Config) setupMessage(model, handle string, seeded bool) []byte {
	setup := maps.Clone(c.setup)
	setup["model"] = model
	// Without this field the server gives no handles, and a session would end with its first connection.
	resumption := map[string]any{}
	if handle != "" {
		resumption["handle"] = handle
	}
	if c.Options.Resumption || handle != "" {
		setup["sessionResumption"] = resumption
	}
	if seeded && c.seedsFirst() {
		setup["historyConfig"] = map[string]any{"initialHistoryInClientContent": true}
	}
	return mustMarshal(map[string]any{"setup": setup})
}

// seedsFirst tells whether a history must be announced in the setup and must be the first thing said: so for models that
// take no clientContent later. The others take it as a turn without an end, which is how LiveKit and pydantic-ai do it.
func (c Config) seedsFirst() bool { return c.Profile.Seeds && !c.Profile.Appends }

// mustMarshal encodes a tree that came out of a JSON decoder.
func mustMarshal(tree any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(tree); err != nil {
		panic("gemini: encode a decoded config: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// parser builds a Config.
type parser struct {
	Config
	path    string
	backend backend
	project string // on Vertex AI

	compression bool // the context may be compressed
}

func (p *parser) warnf(format string, args ...any) {
	p.Warnings = append(p.Warnings, fmt.Sprintf(format, args...))
}

func (p *parser) config(fields map[string]any) error {
	fields = camelKeys(fields)
	if err := p.options(fields); err != nil {
		return err
	}
	for _, ours := range []struct{ name, why string }{
		{"sessionResumption", "the gateway resumes the session itself"},
		{"historyConfig", "the gateway tells the model the history itself"},
	} {
		if fields[ours.name] != nil {
			p.warnf("%s.%s was dropped: %s.", p.path, ours.name, ours.why)
		}
		delete(fields, ours.name)
	}
	if err := p.model(fields); err != nil {
		return err
	}
	p.liberal(fields)
	p.tools(fields)
	// The SDK's type is the list of all fields of a setup with their types.
	tree, err := p.fit(fields, reflect.TypeFor[genai.LiveClientSetup](), p.path)
	if err != nil {
		return err
	}
	setup := tree.(map[string]any)
	p.setup = setup
	setup["model"] = fullName(p.Model)
	if err := p.activity(setup); err != nil {
		return err
	}
	if err := p.declarations(setup); err != nil {
		return err
	}
	generation, _ := setup["generationConfig"].(map[string]any)
	if generation == nil {
		generation = map[string]any{}
		setup["generationConfig"] = generation
	}
	if err := p.generation(generation); err != nil {
		return err
	}
	if err := p.apply(setup, generation); err != nil {
		return err
	}
	if err := p.modalities(setup, generation, fields); err != nil {
		return err
	}
	return p.compress(setup)
}

var modelName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,199}$`)

// model chooses the model.
func (p *parser) model(fields map[string]any) error {
	asked := DefaultModel
	wrong := func(problem string) error { return &FieldError{Field: p.path + ".model", Problem: problem} }
	switch name := fields["model"].(type) {
	case nil:
	case string:
		if name = shortName(name); name == "" {
			break
		}
		if !modelName.MatchString(name) {
			return wrong("is not the name of a model")
		}
		// A full name is that of a tuned model. With our credentials it could be anybody's who trusts us.
		if p.backend == vertexAI && strings.Contains(name, "/") && !strings.HasPrefix(name, "projects/"+p.project+"/") {
			return wrong("is not a model of the gateway's project")
		}
		if p.backend == geminiAPI && strings.HasPrefix(name, "projects/") {
			return wrong("is not a model of the Gemini API")
		}
		asked = name
	default:
		return wrong("must be a string")
	}
	delete(fields, "model")
	p.row, p.Model = rowOf(asked, p.backend)
	switch {
	case p.Model == "":
		return wrong(fmt.Sprintf("%s is not a model of %s", asked, p.backend))
	case p.Model == asked:
	case isRetired(asked):
		p.warnf("The model %s was shut down; %s is used in its place.", asked, p.Model)
	default:
		p.warnf("The model %s is called %s on %s.", asked, p.Model, p.backend)
	}
	p.Profile = p.row.Profile
	return nil
}

// published is what stands before the name of a model of Google's in its full name on Vertex AI.
var published = regexp.MustCompile(`^(projects/[^/]+/locations/[^/]+/)?publishers/google/models/`)

// shortName takes off what each backend puts before the name of a model.
func shortName(name string) string {
	name = published.ReplaceAllString(name, "")
	for strings.HasPrefix(name, "models/") {
		name = name[len("models/"):]
	}
	return name
}

// fullName is the model as the setup wants it. Names with a slash, as "tunedModels/x", are full.
func fullName(model string) string {
	if strings.Contains(model, "/") {
		return model
	}
	return "models/" + model
}

// liberal rewrites what clients commonly send in another form than the API has it.
func (p *parser) liberal(fields map[string]any) {
	fields["systemInstruction"] = liberalContent(fields["systemInstruction"])
	for _, name := range []string{"inputAudioTranscription", "outputAudioTranscription"} {
		switch value, given := fields[name]; {
		case !given, value == true:
			fields[name] = map[string]any{}
		case value == false:
			fields[name] = nil // as absent for the API
		}
	}
	generation, _ := fields["generationConfig"].(map[string]any)
	if generation == nil {
		return
	}
	generation = camelKeys(generation)
	fields["generationConfig"] = generation
	if one, ok := generation["responseModalities"].(string); ok {
		generation["responseModalities"] = []any{one}
	}
}

// liberalContent makes a Content of the forms that SDKs take for one: a text, a part, a list of these.
func liberalContent(value any) any {
	part := func(value any) any {
		if text, ok := value.(string); ok {
			return map[string]any{"text": text}
		}
		return value
	}
	switch v := value.(type) {
	case string:
		return map[string]any{"parts": []any{part(v)}}
	case []any:
		parts := make([]any, len(v))
		for i := range v {
			parts[i] = part(v[i])
		}
		return map[string]any{"parts": parts}
	case map[string]any:
		if v["text"] != nil && v["parts"] == nil {
			return map[string]any{"parts": []any{v}}
		}
		if list, ok := v["parts"].([]any); ok {
			return liberalContent(list)
		}
	}
	return value
}

// camelKeys returns the object with snake_case names in camelCase, as proto3 JSON has both.
func camelKeys(fields map[string]any) map[string]any {
	out := make(map[string]any, len(fields))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		out[camel(name)] = fields[name]
	}
	return out
}

func camel(name string) string {
	if !strings.Contains(name, "_") {
		return name
	}
	words := strings.Split(name, "_")
	for i := 1; i < len(words); i++ {
		if w := words[i]; w != "" {
			words[i] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}
