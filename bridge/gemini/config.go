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

// Config is a client's session config, validated and translated for the model it names. ParseConfig makes it; it may
// be shared and must not be changed.
type Config struct {
	// Model is the model's name without "models/".
	Model string

	// TextOnly is set if the client asked for text alone and the model can only speak. It is dialled for speech with
	// a transcript, and the transcript is what the client wants to get.
	TextOnly bool

	// Warnings are sentences for the client: what was dropped or changed, and why.
	Warnings []string

	// FunctionNames are the names of the declared functions, in order.
	FunctionNames []string

	// Voxgate is the `voxgate` object of the config, our own session options. It is not sent to Google.
	Voxgate json.RawMessage

	version string // of the API
	setup   map[string]any
}

// maxWarnings keeps a config of nonsense from becoming a log of nonsense.
const maxWarnings = 32

// ParseConfig validates a client's config and translates it for its model. Path names it in errors, as
// "initialConfig". The error is always a *FieldError. Names that the API does not have are dropped with a warning, since
// the API would close the session for them; null means absent.
func ParseConfig(raw json.RawMessage, path string) (Config, error) {
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
	p := &parser{path: path}
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
	return ParseConfig(nil, "config")
}

// Effective returns the setup that is sent for this config, without a resumption handle.
func (c Config) Effective() json.RawMessage {
	c, err := c.orDefault()
	if err != nil {
		return nil
	}
	return mustMarshal(c.setup)
}

// setupMessage returns the first message of a connection.
func (c Config) setupMessage(handle string) []byte {
	setup := maps.Clone(c.setup)
	// Without this field the server gives no handles, and a session would end with its first connection.
	resumption := map[string]any{}
	if handle != "" {
		resumption["handle"] = handle
	}
	setup["sessionResumption"] = resumption
	return mustMarshal(map[string]any{"setup": setup})
}

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
	path string
}

func (p *parser) warnf(format string, args ...any) {
	p.Warnings = append(p.Warnings, fmt.Sprintf(format, args...))
}

func (p *parser) config(fields map[string]any) error {
	fields = camelKeys(fields)
	if own := fields["voxgate"]; own != nil {
		if _, ok := own.(map[string]any); !ok {
			return &FieldError{Field: p.path + ".voxgate", Problem: "must be an object"}
		}
		p.Voxgate = mustMarshal(own)
	}
	delete(fields, "voxgate")
	if fields["sessionResumption"] != nil {
		p.warnf("%s.sessionResumption was dropped: the gateway resumes the session itself.", p.path)
	}
	delete(fields, "sessionResumption")

	family, err := p.model(fields)
	if err != nil {
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
	if level := family.thinkingLevel; level != "" && !has(generation, "thinkingConfig.thinkingLevel") {
		thinking, _ := generation["thinkingConfig"].(map[string]any)
		if thinking == nil {
			thinking = map[string]any{}
			generation["thinkingConfig"] = thinking
		}
		thinking["thinkingLevel"] = level
	}
	p.refused(setup, family)
	return p.modalities(setup, generation, fields, family)
}

var modelName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,199}$`)

// model chooses the model.
func (p *parser) model(fields map[string]any) (family, error) {
	p.Model = DefaultModel
	switch name := fields["model"].(type) {
	case nil:
	case string:
		if name = strings.TrimPrefix(name, "models/"); name == "" {
			break
		}
		if !modelName.MatchString(name) {
			return family{}, &FieldError{Field: p.path + ".model", Problem: "is not the name of a model"}
		}
		p.Model = name
	default:
		return family{}, &FieldError{Field: p.path + ".model", Problem: "must be a string"}
	}
	delete(fields, "model")
	f := familyOf(p.Model)
	if f.retired {
		p.warnf("The model %s was shut down; %s is used in its place.", p.Model, DefaultModel)
		p.Model = DefaultModel
		f = familyOf(p.Model)
	}
	return f, nil
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
	if text, ok := fields["systemInstruction"].(string); ok {
		fields["systemInstruction"] = map[string]any{"parts": []any{map[string]any{"text": text}}}
	}
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

// notLive are fields of generationConfig that the Live API does not take: https://ai.google.dev/api/live.
var notLive = []string{
	"audioTimestamp", "audioTranscriptionConfig", "logprobs", "modelSelectionConfig", "responseFormat",
	"responseJsonSchema", "responseLogprobs", "responseMimeType", "responseSchema", "routingConfig", "stopSequences",
}

// generation drops and checks fields of generationConfig.
func (p *parser) generation(g map[string]any) error {
	path := p.path + ".generationConfig."
	for _, name := range notLive {
		if _, given := g[name]; given {
			delete(g, name)
			p.warnf("%s%s was dropped: the Live API does not have it.", path, name)
		}
	}
	for _, limit := range []struct {
		name     string
		min, max float64
		whole    bool
	}{
		{name: "temperature", min: 0, max: 2},
		{name: "topP", min: 0, max: 1},
		{name: "topK", min: 1, max: 1 << 30, whole: true}, // an int32 on the wire, though a float in the SDK
		{name: "maxOutputTokens", min: 1, max: 1 << 30, whole: true},
		{name: "candidateCount", min: 1, max: 1, whole: true}, // a conversation has one line
		{name: "presencePenalty", min: -2, max: 2},
		{name: "frequencyPenalty", min: -2, max: 2},
	} {
		number, ok := g[limit.name].(json.Number)
		if !ok {
			continue
		}
		f, err := number.Float64()
		if err != nil || f < limit.min || f > limit.max {
			return &FieldError{Field: path + limit.name, Problem: fmt.Sprintf("must be from %g to %g", limit.min, limit.max)}
		}
		if limit.whole && f != float64(int64(f)) {
			return &FieldError{Field: path + limit.name, Problem: "must be a whole number"}
		}
	}
	return nil
}

// refused takes out what the model closes the session for, and chooses the version of the API.
func (p *parser) refused(setup map[string]any, f family) {
	for _, name := range f.refuses {
		if take(setup, name) {
			p.warnf("%s.%s was dropped: %s does not take it.", p.path, name, p.Model)
		}
	}
	p.version = stableVersion
	for _, name := range f.alpha {
		if has(setup, name) {
			p.version = alphaVersion
		}
	}
}

// parent returns the object that holds the field with a dotted name, and the name's last word.
func parent(tree map[string]any, name string) (map[string]any, string) {
	for {
		first, rest, deeper := strings.Cut(name, ".")
		if !deeper {
			return tree, name
		}
		tree, _ = tree[first].(map[string]any)
		name = rest
	}
}

func has(tree map[string]any, name string) bool {
	tree, name = parent(tree, name)
	_, found := tree[name]
	return found
}

func take(tree map[string]any, name string) bool {
	found := has(tree, name)
	tree, name = parent(tree, name)
	delete(tree, name)
	return found
}

// modalities decides what the model answers in.
func (p *parser) modalities(setup, generation, asked map[string]any, f family) error {
	path := p.path + ".generationConfig.responseModalities"
	var text, audio, video bool
	list, _ := generation["responseModalities"].([]any)
	for i, m := range list {
		switch strings.ToUpper(m.(string)) {
		case "TEXT":
			text = true
		case "AUDIO":
			audio = true
		case "VIDEO":
			video = true // an avatar; for the models that have one
		case "IMAGE":
			p.warnf("%s[%d] was dropped: a live model answers with speech, not with images.", path, i)
		case "MODALITY_UNSPECIFIED":
		default:
			return &FieldError{Field: fmt.Sprintf("%s[%d]", path, i), Problem: `must be "AUDIO" or "TEXT"`}
		}
	}
	p.TextOnly = text && !audio && !video && !f.text
	switch {
	case video:
		generation["responseModalities"] = []any{"VIDEO"}
	case text && !audio && f.text:
		generation["responseModalities"] = []any{"TEXT"}
		delete(setup, "outputAudioTranscription") // there is no voice to transcribe
	default:
		generation["responseModalities"] = []any{"AUDIO"}
	}
	if p.TextOnly && setup["outputAudioTranscription"] == nil {
		setup["outputAudioTranscription"] = map[string]any{}
		if value, given := asked["outputAudioTranscription"]; given && value == nil {
			p.warnf("%s.outputAudioTranscription stays on: the text of %s is its transcript.", p.path, p.Model)
		}
	}
	return nil
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
