package liveconfig

import (
	"fmt"
	"strconv"

	"voxgate/tools"
)

// adapt removes, adds and translates fields of a setup according to the model's row in the table.
func (p *parser) adapt(setup, generation map[string]any) {
	for _, name := range unsupportedByLive {
		p.drop(setup, "generationConfig."+name, "the Live API does not have it")
	}
	p.dropForeign(setup)
	for _, name := range p.row.unsupported {
		p.drop(setup, name, p.Model+" does not take it")
	}
	if !p.row.translates {
		p.drop(setup, "generationConfig.translationConfig", p.Model+" does not translate")
	}
	// Google's SDK does not send this field to the Live API either.
	p.drop(setup, "generationConfig.speechConfig.multiSpeakerVoiceConfig", "the Live API has one voice")
	if p.row.output&videoOutput == 0 {
		p.drop(setup, "avatarConfig", p.Model+" has no avatar")
	}
	p.fitInstruction(setup)
	p.fitThinking(generation)
	p.fitMoods(setup, generation)
	p.fitCoverage(setup)
}

// dropForeign removes fields that only the other backend supports (genai v1.77, live_converters.go and models.go).
func (p *parser) dropForeign(setup map[string]any) {
	why := fmt.Sprintf("%s does not have it", p.backend)
	if p.backend == vertexAI {
		p.drop(setup, "labels", why)
		return
	}
	p.drop(setup, "explicitVadSignal", why)
	list, _ := setup["safetySettings"].([]any)
	for i, s := range list {
		if setting := s.(map[string]any); setting["method"] != nil {
			delete(setting, "method")
			p.warnf("%s.safetySettings[%d].method was dropped: %s.", p.path, i, why)
		}
	}
}

// drop removes a field. It warns the client, unless the value is false.
func (p *parser) drop(setup map[string]any, name, why string) {
	if value := get(setup, name); remove(setup, name) && value != false {
		p.warnf("%s.%s was dropped: %s.", p.path, name, why)
	}
}

// fitInstruction removes everything but text from the system instruction
// (https://ai.google.dev/api/live#BidiGenerateContentSetup).
func (p *parser) fitInstruction(setup map[string]any) {
	content, ok := setup["systemInstruction"].(map[string]any)
	if !ok {
		return
	}
	list, _ := content["parts"].([]any)
	var parts []any
	for i, part := range list {
		switch text, isText := part.(map[string]any)["text"].(string); {
		case isText && text != "":
			parts = append(parts, map[string]any{"text": text})
		case !isText:
			p.warnf("%s.systemInstruction.parts[%d] was dropped: an instruction is text.", p.path, i)
		}
	}
	if delete(setup, "systemInstruction"); parts != nil {
		setup["systemInstruction"] = map[string]any{"parts": parts}
	}
}

// fitMoods adapts the settings for proactivity and affective dialog. Versions of the Gemini API that do not support
// them close with 1007 `Unknown name "proactivity" at 'setup'`.
func (p *parser) fitMoods(setup, generation map[string]any) {
	proactive, affective := get(setup, "proactivity.proactiveAudio") == true, generation["enableAffectiveDialog"] == true
	video := get(setup, "proactivity.proactiveVideo") == true
	_, asked := setup["proactivity"]
	if p.row.moods == moodsOnRequest {
		if !proactive { // proactiveAudio: false is the same as absent, and proactiveVideo requires proactiveAudio
			p.drop(setup, "proactivity.proactiveVideo", "it requires proactiveAudio")
			delete(setup, "proactivity")
		}
		if !affective {
			delete(generation, "enableAffectiveDialog")
		}
		p.Profile.Proactive, p.alpha = proactive, proactive || affective
		return
	}
	delete(setup, "proactivity")
	switch {
	case p.row.moods == moodsBuiltIn && video:
		setup["proactivity"], p.alpha = map[string]any{"proactiveVideo": true}, true
	case p.row.moods == moodsBuiltIn && asked && !proactive:
		p.warnf("%s.proactivity was dropped: %s is always proactive.", p.path, p.Model)
	case p.row.moods == noMoods && (proactive || video):
		p.warnf("%s.proactivity was dropped: %s does not take it.", p.path, p.Model)
	}
	p.drop(setup, "generationConfig.enableAffectiveDialog", p.Model+" does not take it")
}

const (
	coverAllInput = "TURN_INCLUDES_ALL_INPUT"
	coverAllVideo = "TURN_INCLUDES_AUDIO_ACTIVITY_AND_ALL_VIDEO" // the default of models with row.wide
)

// fitCoverage sets turnCoverage: which input belongs to a turn.
func (p *parser) fitCoverage(setup map[string]any) {
	const name = "realtimeInputConfig.turnCoverage"
	value := get(setup, name)
	switch {
	case p.Options.Manual && p.row.wide && (value == nil || value == coverAllVideo):
		// With another coverage, the turns of a model with row.wide would be empty (pydantic-ai, MemberJunction,
		// measured in 2026).
		setup["realtimeInputConfig"].(map[string]any)["turnCoverage"] = coverAllInput
		if value != nil {
			p.warnf("%s.%s became %s: with manual activity detection the turns of %s would be empty.", p.path, name, coverAllInput, p.Model)
		}
	case value == coverAllVideo && p.backend == vertexAI: // Vertex AI closes the session for its own default (MemberJunction)
		p.drop(setup, name, "Vertex AI closes the session for it")
	}
	if input, ok := setup["realtimeInputConfig"].(map[string]any); ok && len(input) == 0 {
		delete(setup, "realtimeInputConfig")
	}
}

// When the context has triggerTokens, the oldest turns are dropped until targetTokens are left: 8 to 17 minutes of
// audio, at 25 tokens a second. A client may set other limits. Google's AI Studio generates the same numbers.
//
// Each turn is billed for the whole context (https://ai.google.dev/gemini-api/docs/pricing). By default the context
// grows to 80 % of 131,072 tokens (https://ai.google.dev/api/live, ContextWindowCompressionConfig).
//
// Google may not respect the limits closely. With a limit of 25,000, a developer saw 71,000 tokens after 25 turns
// (discuss.ai.google.dev/t/147228, gemini-3.1-flash-live-preview).
const (
	triggerTokens = "25600"
	targetTokens  = "12800"
)

// maxInstruction is the largest size of instruction and tools for which these limits are set, in bytes of JSON: about
// 6,400 tokens. Instruction and tools are never dropped, so with larger ones the server would compress all the time.
const maxInstruction = 25 << 10

// setCompression makes the server drop the oldest turns of a long conversation, unless the client disables that.
// Without it, a session ends after 15 minutes, with video after 2 (https://ai.google.dev/gemini-api/docs/live-session).
func (p *parser) setCompression(setup map[string]any) error {
	const name = "contextWindowCompression"
	compression, given := setup[name].(map[string]any)
	switch {
	case !given && (!p.compression || p.row.calls == callsNothing): // models for translation and transcription have no turns
		return nil
	case !given:
		compression = make(map[string]any)
		setup[name] = compression
		if len(tools.Encode(setup["systemInstruction"]))+len(tools.Encode(setup["tools"])) <= maxInstruction {
			compression["triggerTokens"] = triggerTokens
			compression["slidingWindow"] = map[string]any{"targetTokens": targetTokens}
		}
	case !p.compression:
		p.warnf("%s.voxgate.contextCompression was dropped: %s.%s says otherwise.", p.path, p.path, name)
	}
	if compression["slidingWindow"] == nil { // slidingWindow is the only mechanism that the API has
		compression["slidingWindow"] = map[string]any{}
	}
	const target = name + ".slidingWindow.targetTokens"
	most, kept := number(get(setup, name+".triggerTokens")), number(get(setup, target))
	if most > 0 && kept >= most {
		return &FieldError{Field: p.path + "." + target, Problem: fmt.Sprintf("must be less than triggerTokens, %g", most)}
	}
	return nil
}

// number returns a number in a fitted setup, which may be written as a string. It returns 0 if there is none.
func number(value any) float64 {
	f, err := strconv.ParseFloat(fmt.Sprint(value), 64)
	if err != nil {
		return 0
	}
	return f
}
