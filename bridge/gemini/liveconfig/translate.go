package liveconfig

import (
	"fmt"
	"strconv"

	"voxgate/tools"
)

// adaptToModel removes, adds and translates fields of a setup according to the model's row in the table.
func (p *parser) adaptToModel(setup, generation map[string]any) {
	for _, name := range unsupportedByLive {
		p.dropField(setup, "generationConfig."+name, "the Live API does not have it")
	}
	p.dropFieldsOfOtherBackend(setup)
	for _, name := range p.row.unsupported {
		p.dropField(setup, name, p.Model+" does not take it")
	}
	if !p.row.translates {
		p.dropField(setup, "generationConfig.translationConfig", p.Model+" does not translate")
	}
	// Google's SDK does not send this field to the Live API either.
	p.dropField(setup, "generationConfig.speechConfig.multiSpeakerVoiceConfig", "the Live API has one voice")
	if p.row.output&videoOutput == 0 {
		p.dropField(setup, "avatarConfig", p.Model+" has no avatar")
	}
	p.fitInstruction(setup)
	p.fitThinking(generation)
	p.fitProactivityAndAffect(setup, generation)
	p.fitTurnCoverage(setup)
}

// dropFieldsOfOtherBackend removes fields that only the other backend supports (genai v1.77, live_converters.go and
// models.go).
func (p *parser) dropFieldsOfOtherBackend(setup map[string]any) {
	why := fmt.Sprintf("%s does not have it", p.backend)
	if p.backend == vertexAI {
		p.dropField(setup, "labels", why)
		return
	}
	p.dropField(setup, "explicitVadSignal", why)
	list, _ := setup["safetySettings"].([]any)
	for i, s := range list {
		if setting := s.(map[string]any); setting["method"] != nil {
			delete(setting, "method")
			p.warnf("%s.safetySettings[%d].method was dropped: %s.", p.path, i, why)
		}
	}
}

// dropField removes a field. It warns the client, unless the value is false.
func (p *parser) dropField(setup map[string]any, name, reason string) {
	if value := fieldByPath(setup, name); removeByPath(setup, name) && value != false {
		p.warnf("%s.%s was dropped: %s.", p.path, name, reason)
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

// fitProactivityAndAffect adapts the settings for proactivity and affective dialog. Versions of the Gemini API that do
// not support these settings close the session with 1007 `Unknown name "proactivity" at 'setup'`.
func (p *parser) fitProactivityAndAffect(setup, generation map[string]any) {
	proactive, affective := fieldByPath(setup, "proactivity.proactiveAudio") == true, generation["enableAffectiveDialog"] == true
	video := fieldByPath(setup, "proactivity.proactiveVideo") == true
	_, asked := setup["proactivity"]
	if p.row.moods == moodsOnRequest {
		if !proactive { // proactiveAudio: false is the same as absent, and proactiveVideo requires proactiveAudio
			p.dropField(setup, "proactivity.proactiveVideo", "it requires proactiveAudio")
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
	p.dropField(setup, "generationConfig.enableAffectiveDialog", p.Model+" does not take it")
}

const (
	coverAllInput = "TURN_INCLUDES_ALL_INPUT"
	coverAllVideo = "TURN_INCLUDES_AUDIO_ACTIVITY_AND_ALL_VIDEO" // the default of models with row.wide
)

// fitTurnCoverage adapts turnCoverage, which says what input belongs to a turn.
func (p *parser) fitTurnCoverage(setup map[string]any) {
	const name = "realtimeInputConfig.turnCoverage"
	value := fieldByPath(setup, name)
	switch {
	case p.Options.Manual && p.row.wide && (value == nil || value == coverAllVideo):
		// With any other turnCoverage, the turns of a model with row.wide would be empty (pydantic-ai, MemberJunction,
		// measured in 2026).
		setup["realtimeInputConfig"].(map[string]any)["turnCoverage"] = coverAllInput
		if value != nil {
			p.warnf("%s.%s became %s: with manual activity detection the turns of %s would be empty.", p.path, name, coverAllInput, p.Model)
		}
	case value == coverAllVideo && p.backend == vertexAI: // Vertex AI closes the session for its own default (MemberJunction)
		p.dropField(setup, name, "Vertex AI closes the session for it")
	}
	if input, ok := setup["realtimeInputConfig"].(map[string]any); ok && len(input) == 0 {
		delete(setup, "realtimeInputConfig")
	}
}

// When the context reaches triggerTokens, the server drops the oldest turns until targetTokens are left. So the context
// holds 8 to 17 minutes of audio, at 25 tokens a second. Google's AI Studio generates the same numbers. A client may
// set others.
//
// The limits save money, because Google bills the whole context in each turn
// (https://ai.google.dev/gemini-api/docs/pricing). By default the context would grow to 80 % of 131,072 tokens
// (https://ai.google.dev/api/live, ContextWindowCompressionConfig).
//
// Google may not respect the limits closely. With a limit of 25,000, a developer saw 71,000 tokens after 25 turns
// (discuss.ai.google.dev/t/147228, gemini-3.1-flash-live-preview).
const (
	triggerTokens = "25600"
	targetTokens  = "12800"
)

// maxInstruction limits the size of instruction and tools, in bytes of JSON (about 6,400 tokens). Above it, the gateway
// sets neither triggerTokens nor targetTokens: the server never drops instruction and tools, so with larger ones it
// would compress all the time.
const maxInstruction = 25 << 10

// setCompression makes the server drop the oldest turns of a long conversation, unless the client disables that.
// Without this compression, a session ends after 15 minutes, or after 2 minutes with video
// (https://ai.google.dev/gemini-api/docs/live-session).
func (p *parser) setCompression(setup map[string]any) error {
	const name = "contextWindowCompression"
	compression, given := setup[name].(map[string]any)
	switch {
	case !given && (!p.compression || p.row.calls == callsNothing): // models for translation and transcription have no turns
		return nil
	case !given:
		compression = make(map[string]any)
		setup[name] = compression
		if len(tools.EncodeOrEmpty(setup["systemInstruction"]))+len(tools.EncodeOrEmpty(setup["tools"])) <= maxInstruction {
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
	most, kept := numberOrZero(fieldByPath(setup, name+".triggerTokens")), numberOrZero(fieldByPath(setup, target))
	if most > 0 && kept >= most {
		return &FieldError{Field: p.path + "." + target, Problem: fmt.Sprintf("must be less than triggerTokens, %g", most)}
	}
	return nil
}

// numberOrZero returns the number in a field of a fitted setup, where it may be a string. It returns 0 if the field has
// no number.
func numberOrZero(value any) float64 {
	f, err := strconv.ParseFloat(fmt.Sprint(value), 64)
	if err != nil {
		return 0
	}
	return f
}
