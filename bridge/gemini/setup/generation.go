package setup

import (
	"encoding/json"
	"fmt"
)

// notLive are fields of generationConfig that the Live API does not take: https://ai.google.dev/api/live.
var notLive = []string{
	"audioTimestamp", "audioTranscriptionConfig", "enableEnhancedCivicAnswers", "logprobs", "modelSelectionConfig",
	"responseFormat", "responseJsonSchema", "responseLogprobs", "responseMimeType", "responseSchema", "routingConfig",
	"stopSequences",
}

// limits are the ranges of numbers; outside of them the session is closed.
var limits = []struct {
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
	for _, limit := range limits {
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
