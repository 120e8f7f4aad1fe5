package setup

import (
	"reflect"

	"google.golang.org/genai"

	"voxgate/bridge/gemini/setup/declaration"
	"voxgate/bridge/gemini/setup/tree"
)

// parser builds a Config.
type parser struct {
	Config
	tree.Warnings // so far
	path          string
	scope         Scope
	backend       backend
	project       string // on Vertex AI

	compression bool // the context may be compressed
}

func (p *parser) config(fields map[string]any) error {
	fields = tree.Camel(fields)
	if err := p.options(fields); err != nil {
		return err
	}
	for _, ours := range []struct{ name, why string }{
		{"sessionResumption", "the gateway resumes the session itself"},
		{"historyConfig", "the gateway tells the model the history itself"},
	} {
		if fields[ours.name] != nil {
			p.Warnf("%s.%s was dropped: %s.", p.path, ours.name, ours.why)
		}
		delete(fields, ours.name)
	}
	if err := p.model(fields); err != nil {
		return err
	}
	p.liberal(fields)
	declared := p.declarations()
	if err := declared.Read(fields); err != nil {
		return err
	}
	p.Functions = declared.Functions
	// The SDK's type is the list of all fields of a setup with their types.
	fitted, err := tree.Fit(fields, reflect.TypeFor[genai.LiveClientSetup](), p.path, &p.Warnings)
	if err != nil {
		return err
	}
	setup := fitted.(map[string]any)
	p.setup = setup
	setup["model"] = fullName(p.Model)
	if err := p.activity(setup); err != nil {
		return err
	}
	declared.Split(setup)
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

// declarations reads the tools for the model.
func (p *parser) declarations() *declaration.Reader {
	return &declaration.Reader{
		Path: p.path, Warnings: &p.Warnings,
		Model: p.Model, Backend: p.backend.String(), Calls: p.row.calls, Continues: p.backend != vertexAI,
		Own: p.scope.Tools, Canvas: p.scope.Canvas, Screen: p.scope.Screen, Wanted: p.Options.Canvas,
	}
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
	generation = tree.Camel(generation)
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
