package live

import (
	"fmt"
	"maps"
	"slices"
)

// Setup holds the settings of a session, and the behaviour of its model.
type Setup struct {
	Traits

	Model            string // without "models/"
	Instruction      string
	Language         string // BCP 47 tag of speechConfig.languageCode
	Text             bool   // the model answers with text parts
	InputTranscript  bool
	OutputTranscript bool
	Resumption       bool
	Transparent      bool // messages with handles have the index of the last client message that they cover
	InitialHistory   bool // the first clientContent is history and gets no answer
	Manual           bool // the client marks the start and end of activities
	WholeInput       bool // the model processes all audio between activityStart and activityEnd
	NoInterruption   bool
	Detection        ActivityDetection
	Functions        map[string]bool // maps each declared function to whether its calls block

	affective bool // affective dialog was requested, which this model no longer supports
	profile   profile
	at        Endpoint
}

// ActivityDetection holds the fields of automaticActivityDetection.
type ActivityDetection struct {
	Disabled                 bool
	StartOfSpeechSensitivity string
	EndOfSpeechSensitivity   string
	PrefixPaddingMs          *int // how much speech starts an activity
	SilenceDurationMs        *int // how much silence ends an activity
}

type thinkingConfig struct {
	ThinkingLevel  string
	ThinkingBudget *int
}

// wireSetup holds the fields of a setup that the emulator uses. The other fields are only checked against the grammar.
type wireSetup struct {
	Model            string
	GenerationConfig struct {
		ResponseModalities    []string
		EnableAffectiveDialog *bool
		ThinkingConfig        *thinkingConfig
		SpeechConfig          struct{ LanguageCode string }
	}
	SystemInstruction   Content
	Tools               []wireTool
	RealtimeInputConfig struct {
		AutomaticActivityDetection ActivityDetection
		ActivityHandling           string
		TurnCoverage               string
	}
	SessionResumption                                 *struct{ Transparent bool }
	InputAudioTranscription, OutputAudioTranscription *struct{}
	Proactivity                                       *struct{ ProactiveAudio *bool }
	ExplicitVADSignal                                 bool `json:"explicitVadSignal"`
	AvatarConfig                                      any
	HistoryConfig                                     struct{ InitialHistoryInClientContent bool }
}

// BuildSetup validates the fields of a setup, as [ParseSetupMessage] returns them. Its errors are Closings, like those of
// ParseSetupMessage, Parse and the checks.
func BuildSetup(fields map[string]any, endpoint Endpoint) (Setup, error) {
	var w wireSetup
	if err := remarshal(fields, &w); err != nil {
		return Setup{}, NewClosing(CloseInvalid, "")
	}
	p, err := profileOf(w.Model, endpoint)
	if err != nil {
		return Setup{}, err
	}
	s := Setup{
		Model:            shortModelName(w.Model),
		Traits:           p.Traits,
		profile:          p,
		at:               endpoint,
		Instruction:      w.SystemInstruction.Text(),
		Language:         w.GenerationConfig.SpeechConfig.LanguageCode,
		Text:             slices.Contains(w.GenerationConfig.ResponseModalities, "TEXT"),
		InputTranscript:  w.InputAudioTranscription != nil,
		OutputTranscript: w.OutputAudioTranscription != nil,
		Resumption:       w.SessionResumption != nil,
		Transparent:      w.SessionResumption != nil && w.SessionResumption.Transparent,
		InitialHistory:   w.HistoryConfig.InitialHistoryInClientContent,
		Detection:        w.RealtimeInputConfig.AutomaticActivityDetection,
		Manual:           w.RealtimeInputConfig.AutomaticActivityDetection.Disabled,
		WholeInput:       !p.wholeInput || w.RealtimeInputConfig.TurnCoverage == "TURN_INCLUDES_ALL_INPUT",
		NoInterruption:   w.RealtimeInputConfig.ActivityHandling == "NO_INTERRUPTION",
		affective:        w.GenerationConfig.EnableAffectiveDialog != nil && *w.GenerationConfig.EnableAffectiveDialog && p.proactive,
	}
	for _, problem := range []error{
		w.checkModalities(p, endpoint), p.checkThinking(w.GenerationConfig.ThinkingConfig), w.checkExtras(p, endpoint), w.checkBackend(endpoint),
	} {
		if problem != nil {
			return Setup{}, problem
		}
	}
	s.Functions, err = readTools(w.Tools, p, "setup.tools")
	return s, err
}

func (w *wireSetup) checkModalities(p profile, endpoint Endpoint) error {
	for _, m := range w.GenerationConfig.ResponseModalities {
		switch {
		case m == "AUDIO", m == "MODALITY_UNSPECIFIED", m == "TEXT" && p.text:
		case m == "VIDEO" && p.video && endpoint.Vertex && w.AvatarConfig != nil:
		default: // python-genai #1780 for TEXT; the wording is that of generateContent
			return newInvalidClosing("The requested combination of response modalities (%s) is not supported by the model. %s accepts: AUDIO",
				m, w.Model)
		}
	}
	return nil
}

// checkExtras rejects proactivity and affective dialog where they are not supported. On the Gemini API, only v1alpha
// has these fields, and other versions reject them as unknown names (js-genai #696). A user reported that
// gemini-3.1-flash-live does not answer a setup with them (PatterAI/Patter #210).
func (w *wireSetup) checkExtras(p profile, endpoint Endpoint) error {
	const unknown = `Invalid JSON payload received. Unknown name "%s" at '%s': Cannot find field.`
	isSupported := endpoint.Version == "v1alpha" || endpoint.Vertex && endpoint.Version == "v1beta1"
	proactivity, dialog := w.Proactivity, w.GenerationConfig.EnableAffectiveDialog
	switch {
	case proactivity != nil && !isSupported:
		return newInvalidClosing(unknown, "proactivity", "setup")
	case dialog != nil && !isSupported:
		return newInvalidClosing(unknown, "enableAffectiveDialog", "setup.generation_config")
	// Google documents this rule on the page models/gemini-3.8-live.
	case proactivity != nil && p.proactive && proactivity.ProactiveAudio != nil && !*proactivity.ProactiveAudio:
		return newInvalidClosing("Proactive audio cannot be disabled for this model.")
	case proactivity != nil && !p.alphaExtras && !p.proactive:
		return newInvalidClosing("Proactive audio is not supported for this model.")
	case dialog != nil && *dialog && !p.alphaExtras && !p.proactive:
		return newInvalidClosing("Affective dialog is not supported for this model.")
	}
	return nil
}

// checkBackend rejects fields that only the other backend supports (genai v1.77, live_converters.go).
func (w *wireSetup) checkBackend(endpoint Endpoint) error {
	if endpoint.Vertex {
		// MemberJunction measured that Vertex AI rejects this value.
		if w.RealtimeInputConfig.TurnCoverage == "TURN_INCLUDES_AUDIO_ACTIVITY_AND_ALL_VIDEO" {
			return NewClosing(CloseInvalid, "")
		}
		return nil
	}
	if w.ExplicitVADSignal || w.AvatarConfig != nil || w.SessionResumption != nil && w.SessionResumption.Transparent {
		return NewClosing(CloseInvalid, "")
	}
	return nil
}

// wireTool holds the fields of a tool that the emulator uses.
type wireTool struct {
	FunctionDeclarations []struct {
		Name, Behavior string
		Parameters     map[string]any
	}
	GoogleSearch *struct{}
}

// Update changes the system instruction and the tools if they are set in u.
func (s *Setup) Update(u *ContextUpdate) error {
	if !s.profile.contextUpdate {
		return NewClosing(CloseInvalid, "")
	}
	if u.SystemInstruction != nil {
		s.Instruction = u.SystemInstruction.Text()
	}
	if u.Tools == nil {
		return nil
	}
	functions, err := readTools(u.Tools.Tools, s.profile, "context_update.tools.tools")
	if err == nil {
		s.Functions = functions
	}
	return err
}

// FunctionNames returns the names of the declared functions, sorted.
func (s *Setup) FunctionNames() []string { return slices.Sorted(maps.Keys(s.Functions)) }

// readTools returns a map with the names of the declared functions. The value is true if the model waits for the
// results of the function's calls. The errors of readTools have the wording of generateContent.
func readTools(tools []wireTool, p profile, path string) (functionBlocks map[string]bool, err error) {
	functions := make(map[string]bool)
	for i, tool := range tools {
		// Users reported that a tool with both search and functions ends the session with 1011.
		if tool.GoogleSearch != nil && tool.FunctionDeclarations != nil {
			return nil, NewClosing(CloseInternal, "")
		}
		for j, f := range tool.FunctionDeclarations {
			if f.Name == "" {
				return nil, newInvalidClosing("Invalid function name at '%s[%d].function_declarations[%d]'.", path, i, j)
			}
			if _, twice := functions[f.Name]; twice {
				return nil, newInvalidClosing("Duplicate function declaration found: %s", f.Name)
			}
			// Google documents this rule on the page models/gemini-3.8-live-extended-thinking.
			if f.Behavior == "BLOCKING" && p.asyncOnly {
				return nil, newInvalidClosing("Blocking function calls are not supported for this model.")
			}
			if f.Parameters != nil {
				if err := checkParameters(f.Parameters, fmt.Sprintf("%s[%d].function_declarations[%d].parameters", path, i, j)); err != nil {
					return nil, err
				}
			}
			functions[f.Name] = p.syncOnly || f.Behavior == "BLOCKING" || f.Behavior != "NON_BLOCKING" && p.Blocks
		}
	}
	return functions, nil
}

// checkParameters rejects three kinds of schemas that generateContent rejects, according to users: an object without
// properties (langchain-google #463), an array without items, and a missing type (gitlab-mcp #166).
func checkParameters(s map[string]any, path string) error {
	properties, _ := s["properties"].(map[string]any)
	items, _ := s["items"].(map[string]any)
	options, _ := s["anyOf"].([]any)
	switch {
	case len(options) > 0:
	case s["type"] == nil || s["type"] == "TYPE_UNSPECIFIED":
		return newInvalidClosing("%s: schema didn't specify the schema type field.", path)
	case s["type"] == "OBJECT" && len(properties) == 0:
		return newInvalidClosing("%s.properties: should be non-empty for OBJECT type", path)
	case s["type"] == "ARRAY" && items == nil:
		return newInvalidClosing("%s.items: missing field.", path)
	}
	for i, option := range options {
		if o, ok := option.(map[string]any); ok {
			if err := checkParameters(o, fmt.Sprintf("%s.any_of[%d]", path, i)); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if p, ok := properties[name].(map[string]any); ok {
			if err := checkParameters(p, fmt.Sprintf("%s.properties[%s]", path, name)); err != nil {
				return err
			}
		}
	}
	if items != nil {
		return checkParameters(items, path+".items")
	}
	return nil
}

// CheckMessage rejects a message that does not fit the setup. isHistory means that the turns of the message are the
// initial history. CheckMessage does not check results of calls; CheckResponse does.
func (s *Setup) CheckMessage(m *Message, isHistory bool) error {
	switch {
	case s.affective:
		// Google has removed affective dialog (ai.google.dev/gemini-api/docs/models/gemini-3.8-live). According to a
		// report, Google's server accepts a setup with it, and rejects the first message after the setup.
		return newInvalidClosing("Affective dialog is not supported for this model.")
	case m.RealtimeInput != nil:
		return s.checkRealtime(m.RealtimeInput)
	case m.ClientContent != nil:
		return s.checkTurns(m.ClientContent.Turns, isHistory)
	}
	return nil
}

func (s *Setup) checkTurns(turns []Content, isHistory bool) error {
	if s.profile.noContent && !isHistory { // the model accepts realtimeInput.text instead: livekit/agents #5251, adk-python #5076
		return newInvalidClosing("Request contains an invalid argument.")
	}
	for _, t := range turns {
		switch {
		case t.Role == "user", t.Role == "" && !s.profile.needsRole, t.Role == "model", t.Role == "system" && s.at.Vertex:
		default: // a system turn was reported to close with 1007; the wording is that of generateContent
			return newInvalidClosing("Please use a valid role: user, model.")
		}
		if err := t.checkAudio(); err != nil {
			return err
		}
	}
	return nil
}

// checkRealtime rejects activity messages that do not fit the setup. If the client marks activities, it rejects
// audioStreamEnd. If the server detects activities, it rejects activityStart and activityEnd:
// ai.google.dev/api/live#BidiGenerateContentRealtimeInput.
func (s *Setup) checkRealtime(in *RealtimeInput) error {
	switch {
	case s.Manual && in.AudioStreamEnd:
		return newInvalidClosing("audio_stream_end is only supported with automatic activity detection.")
	case !s.Manual && !s.IgnoredMarks && (in.ActivityStart != nil || in.ActivityEnd != nil):
		return newInvalidClosing("Explicit activity control is not supported when automatic activity detection is enabled.")
	}
	return nil
}

// CheckResponse rejects the result of a call if it has fields that this model or Vertex AI does not support
// (models/gemini-3.8-live-extended-thinking; genai v1.77, live_converters.go).
func (s *Setup) CheckResponse(r FunctionResponse) error {
	switch {
	case r.Scheduling != "" && s.profile.noScheduling:
		return newInvalidClosing("Function response scheduling is not supported for this model.")
	case r.WillContinue && s.at.Vertex:
		return NewClosing(CloseInvalid, "")
	}
	return nil
}
