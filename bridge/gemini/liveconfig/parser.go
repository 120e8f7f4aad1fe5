package liveconfig

// parser builds a Config from a client's config.
type parser struct {
	Config
	warnings // warnings so far
	path     string
	scope    Scope
	backend  backend
	project  string // the gateway's project on Vertex AI; "" on the Gemini API

	compression bool // the client has not disabled context compression
	schemaParts int  // number of nodes that the function schemas may still have: see maxParts
	isLossy     bool // a part of the current function's schema cannot be expressed in Google's schemas
}

func (p *parser) parseConfig(fields map[string]any) error {
	fields = camelKeys(fields)
	if err := p.takeOptions(fields); err != nil {
		return err
	}
	for _, ours := range []struct{ name, why string }{
		{"sessionResumption", "the gateway resumes the session itself"},
		{"historyConfig", "the gateway gives the model the history itself"},
	} {
		if fields[ours.name] != nil {
			p.warnf("%s.%s was dropped: %s.", p.path, ours.name, ours.why)
		}
		delete(fields, ours.name)
	}
	if err := p.chooseModel(fields); err != nil {
		return err
	}
	p.normalizeFields(fields)
	if err := p.rewriteTools(fields); err != nil {
		return err
	}
	fitted, err := p.fitValue(fields, "LiveClientSetup", p.path)
	if err != nil {
		return err
	}
	setup := fitted.(map[string]any)
	p.setup = setup
	setup["model"] = fullName(p.Model)
	if err := p.checkRanges(setup); err != nil {
		return err
	}
	p.takeActivityDetection(setup)
	p.separateFunctionTools(setup)
	generation, _ := setup["generationConfig"].(map[string]any)
	if generation == nil {
		generation = map[string]any{}
		setup["generationConfig"] = generation
	}
	p.adaptToModel(setup, generation)
	if err := p.fitModalities(setup, generation, fields); err != nil {
		return err
	}
	return p.setCompression(setup)
}

// normalizeFields rewrites the fields that clients write in several forms. Afterwards they have the form of the API.
func (p *parser) normalizeFields(fields map[string]any) {
	fields["systemInstruction"] = normalizeContent(fields["systemInstruction"])
	for _, name := range []string{"inputAudioTranscription", "outputAudioTranscription"} {
		switch value, given := fields[name]; {
		case !given, value == true:
			fields[name] = map[string]any{}
		case value == false:
			fields[name] = nil // null counts as absent for the API
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

// normalizeContent builds a Content object from a text, a part, or a list of texts and parts, because SDKs accept all
// of these in place of a Content.
func normalizeContent(value any) any {
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
			return normalizeContent(list)
		}
	}
	return value
}
