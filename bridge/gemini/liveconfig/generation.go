package liveconfig

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// unsupportedByLive lists fields of generationConfig that the Live API does not support:
// https://ai.google.dev/api/live.
var unsupportedByLive = []string{
	"audioTimestamp", "audioTranscriptionConfig", "enableEnhancedCivicAnswers", "logprobs", "modelSelectionConfig",
	"responseFormat", "responseJsonSchema", "responseLogprobs", "responseMimeType", "responseSchema", "routingConfig",
	"stopSequences",
}

// prefixPadding is the dotted name of a setting. If the client marks speech, the setting is the length of the audio
// before activityStart that belongs to the speech.
const prefixPadding = "realtimeInputConfig.automaticActivityDetection.prefixPaddingMs"

// ranges lists the limits of numbers in a setup, by dotted name. Google closes the session for numbers outside these
// limits. Only the limits of pauses are the gateway's own: they limit its memory.
var ranges = []struct {
	name     string
	min, max float64
	whole    bool // must be an integer, although the SDK has a float
}{
	{name: "generationConfig.temperature", min: 0, max: 2},
	{name: "generationConfig.topP", min: 0, max: 1},
	{name: "generationConfig.topK", min: 1, max: 1 << 30, whole: true}, // an int32 in the protocol
	{name: "generationConfig.maxOutputTokens", min: 1, max: 1 << 30},
	{name: "generationConfig.candidateCount", min: 1, max: 1}, // a conversation has one candidate
	{name: "generationConfig.presencePenalty", min: -2, max: 2},
	{name: "generationConfig.frequencyPenalty", min: -2, max: 2},
	{name: "generationConfig.thinkingConfig.thinkingBudget", min: dynamicBudget, max: maxBudget},
	{name: "contextWindowCompression.triggerTokens", min: 1, max: 1 << 30},
	{name: "contextWindowCompression.slidingWindow.targetTokens", min: 1, max: 1 << 30},
	{name: "realtimeInputConfig.automaticActivityDetection.silenceDurationMs", min: 0, max: maxPause},
	{name: prefixPadding, min: 0, max: maxPause},
}

// checkRanges rejects a setup with a number outside the limits in ranges.
func (p *parser) checkRanges(setup map[string]any) error {
	for _, r := range ranges {
		value := fieldByPath(setup, r.name)
		if value == nil {
			continue
		}
		if r.name == prefixPadding && p.scope.MaxPreRoll > 0 {
			r.max = float64(p.scope.MaxPreRoll.Milliseconds())
		}
		f, err := strconv.ParseFloat(fmt.Sprint(value), 64) // value is a json.Number, or a string for 64 bits: see encodeInteger
		switch {
		case err != nil || f < r.min || f > r.max:
			return &FieldError{Field: p.path + "." + r.name, Problem: fmt.Sprintf("must be from %g to %g", r.min, r.max)}
		case r.whole && f != math.Trunc(f):
			return &FieldError{Field: p.path + "." + r.name, Problem: "must be a whole number"}
		}
	}
	return nil
}

// efforts maps Google's thinking levels to the equivalent thinking budgets:
// https://ai.google.dev/gemini-api/docs/openai#thinking.
var efforts = []struct {
	level  string
	budget int64 // the largest budget of the level, in tokens
}{
	{"MINIMAL", 0}, // no thinking
	{"LOW", 1024},
	{"MEDIUM", 8192},
	{"HIGH", maxBudget},
}

const (
	// maxBudget is the largest thinkingBudget of the 2.5 flash models:
	// https://ai.google.dev/gemini-api/docs/thinking#set-budget.
	maxBudget = 24576
	// dynamicBudget is the thinkingBudget that lets the model choose.
	dynamicBudget = -1

	// defaultLevel is the level for models that require one, if the client sets none. It is low, because callers wait
	// for the answer.
	defaultLevel = "LOW"
)

// fitThinking converts thinkingConfig to a form that the model supports, or removes it.
func (p *parser) fitThinking(generation map[string]any) {
	path := p.path + ".generationConfig.thinkingConfig"
	config, given := generation["thinkingConfig"].(map[string]any)
	level, _ := config["thinkingLevel"].(string)
	var budget *int64
	if number, ok := config["thinkingBudget"].(json.Number); ok {
		n, _ := number.Int64() // checkRanges has validated the number
		budget = &n
	}
	switch p.row.thinking {
	case thinkingNone:
		if given {
			delete(generation, "thinkingConfig")
			p.warnf("%s was dropped: %s does not take it.", path, p.Model)
		}
		return
	case thinkingByBudget:
		if level == "" {
			break
		}
		delete(config, "thinkingLevel")
		if budget != nil {
			p.warnf("%s.thinkingLevel was dropped: %s takes thinkingBudget.", path, p.Model)
			break
		}
		for _, e := range efforts {
			if e.level == level {
				config["thinkingBudget"] = json.Number(fmt.Sprint(e.budget))
				p.warnf("%s.thinkingLevel %s was sent as thinkingBudget %d, which is what %s takes.", path, level, e.budget, p.Model)
			}
		}
	case thinkingByLevel, thinkingRequired:
		if budget == nil {
			break
		}
		delete(config, "thinkingBudget")
		if level != "" || *budget == dynamicBudget {
			p.warnf("%s.thinkingBudget was dropped: %s takes thinkingLevel.", path, p.Model)
			break
		}
		for _, e := range efforts {
			if level == "" && *budget <= e.budget {
				level = e.level
			}
		}
		config["thinkingLevel"] = level
		p.warnf("%s.thinkingBudget %d was sent as thinkingLevel %s, which is what %s takes.", path, *budget, level, p.Model)
	case thinkingUnknown:
		if budget != nil && level != "" { // Google accepts only one of them: https://ai.google.dev/gemini-api/docs/gemini-3
			delete(config, "thinkingBudget")
			p.warnf("%s.thinkingBudget was dropped: there is a thinkingLevel.", path)
		}
	}
	if p.row.thinking == thinkingRequired {
		if config == nil {
			config = make(map[string]any)
			generation["thinkingConfig"] = config
		}
		switch level {
		case "":
			config["thinkingLevel"] = defaultLevel
		case "MINIMAL":
			config["thinkingLevel"] = defaultLevel
			p.warnf("%s.thinkingLevel became %s: %s has no %s.", path, defaultLevel, p.Model, level)
		}
	}
	if given && len(config) == 0 {
		delete(generation, "thinkingConfig")
	}
}

// fitModalities sets the modality of the model's answers. It depends on the client's request and on the model's
// support.
func (p *parser) fitModalities(setup, generation, requested map[string]any) error {
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
			switch {
			case p.row.output&videoOutput == 0:
				p.warnf("%s[%d] was dropped: %s has no avatar.", path, i, p.Model)
			case setup["avatarConfig"] == nil:
				p.warnf("%s[%d] was dropped: there is no avatarConfig.", path, i)
			default:
				video = true
			}
		case "IMAGE":
			p.warnf("%s[%d] was dropped: a live model answers with speech, not with images.", path, i)
		case "", "MODALITY_UNSPECIFIED":
		default:
			return &FieldError{Field: fmt.Sprintf("%s[%d]", path, i), Problem: `must be "AUDIO" or "TEXT"`}
		}
	}
	modality := "AUDIO"
	switch {
	case p.row.output&voiceOutput == 0:
		modality = "TEXT"
		if audio {
			p.warnf("%s became TEXT: %s does not speak.", path, p.Model)
		}
	case video:
		modality = "VIDEO"
		p.TextToo = text
	case text && !audio && p.row.output&textOutput != 0:
		modality = "TEXT"
	default: // the model speaks, because a session has only one modality
		p.TextOnly, p.TextToo = text && !audio, text && audio
	}
	generation["responseModalities"] = []any{modality}
	if modality == "TEXT" {
		delete(setup, "outputAudioTranscription") // without a voice, there is nothing to transcribe
	}
	if (p.TextOnly || p.TextToo) && setup["outputAudioTranscription"] == nil {
		setup["outputAudioTranscription"] = map[string]any{}
		if value, given := requested["outputAudioTranscription"]; given && value == nil {
			p.warnf("%s.outputAudioTranscription stays on: the text of %s is its transcript.", p.path, p.Model)
		}
	}
	return nil
}
