package emulator

import (
	"fmt"
	"maps"
	"slices"
)

// setup is what a session was asked to be.
type setup struct {
	model            string // without "models/"
	profile          profile
	instruction      string
	text             bool // answer with text parts
	inputTranscript  bool
	outputTranscript bool
	resumption       bool
	transparent      bool // handles say what they cover
	compresses       bool // the context, so that there is no limit to the session
	initialHistory   bool // the first clientContent is history and gets no answer
	manual           bool // activities are told by the client
	wholeInput       bool // they are all heard
	noInterruption   bool
	vadSignals       bool
	affective        bool // asks for what this model has no more
	vad              vadOptions
	functions        map[string]bool // declared, and whether calls of it block
}

func invalid(format string, args ...any) error {
	return &closing{closeInvalid, fmt.Sprintf(format, args...)}
}

type thinkingConfig struct {
	ThinkingLevel  string
	ThinkingBudget *int
}

// wireSetup is the setup as far as the emulator acts on it. The grammar has checked the rest.
type wireSetup struct {
	Model            string
	GenerationConfig struct {
		ResponseModalities    []string
		EnableAffectiveDialog *bool
		ThinkingConfig        *thinkingConfig
	}
	SystemInstruction   content
	Tools               []wireTool
	RealtimeInputConfig struct {
		AutomaticActivityDetection vadOptions
		ActivityHandling           string
		TurnCoverage               string
	}
	SessionResumption                                 *struct{ Transparent bool }
	ContextWindowCompression                          struct{ SlidingWindow *struct{} }
	InputAudioTranscription, OutputAudioTranscription *struct{}
	Proactivity                                       *struct{ ProactiveAudio *bool }
	ExplicitVADSignal                                 bool `json:"explicitVadSignal"`
	AvatarConfig                                      any
	HistoryConfig                                     struct{ InitialHistoryInClientContent bool }
}

// readSetup validates the setup of a client, as far as the grammar has not.
func readSetup(tree map[string]any, at endpoint) (setup, error) {
	var w wireSetup
	if err := remarshal(tree, &w); err != nil {
		return setup{}, newClosing(closeInvalid, "")
	}
	p, err := profileOf(w.Model, at)
	if err != nil {
		return setup{}, err
	}
	resumption := w.SessionResumption
	s := setup{
		model:            trimModel(w.Model),
		profile:          p,
		instruction:      w.SystemInstruction.text(),
		text:             slices.Contains(w.GenerationConfig.ResponseModalities, "TEXT"),
		inputTranscript:  w.InputAudioTranscription != nil,
		outputTranscript: w.OutputAudioTranscription != nil,
		resumption:       resumption != nil,
		transparent:      resumption != nil && resumption.Transparent,
		compresses:       w.ContextWindowCompression.SlidingWindow != nil,
		initialHistory:   w.HistoryConfig.InitialHistoryInClientContent,
		vad:              w.RealtimeInputConfig.AutomaticActivityDetection,
		manual:           w.RealtimeInputConfig.AutomaticActivityDetection.Disabled,
		wholeInput:       !p.wholeInput || w.RealtimeInputConfig.TurnCoverage == "TURN_INCLUDES_ALL_INPUT",
		noInterruption:   w.RealtimeInputConfig.ActivityHandling == "NO_INTERRUPTION",
		vadSignals:       w.ExplicitVADSignal,
		affective:        w.GenerationConfig.EnableAffectiveDialog != nil && *w.GenerationConfig.EnableAffectiveDialog && p.proactive,
	}
	for _, problem := range []error{
		w.checkModalities(p, at), p.checkThinking(w.GenerationConfig.ThinkingConfig), w.checkExtras(p, at), w.checkPlace(at),
	} {
		if problem != nil {
			return setup{}, problem
		}
	}
	s.functions, err = readTools(w.Tools, p, "setup.tools")
	return s, err
}

func (w *wireSetup) checkModalities(p profile, at endpoint) error {
	for i, m := range w.GenerationConfig.ResponseModalities {
		switch {
		case m == "AUDIO", m == "TEXT" && p.text, m == "VIDEO" && p.video && at.vertex && w.AvatarConfig != nil:
		case m == "TEXT" || m == "VIDEO":
			return invalid("The requested combination of response modalities (%s) is not supported by the model. %s accepts: AUDIO", m, w.Model)
		default:
			return invalid("Invalid value at 'setup.generation_config.response_modalities[%d]' (Modality), %q", i, m)
		}
	}
	return nil
}

// checkExtras refuses proactivity and affective dialog, which only v1alpha knows, where they are not: as unknown names in
// another version, else because of the model.
func (w *wireSetup) checkExtras(p profile, at endpoint) error {
	const unknown = `Invalid JSON payload received. Unknown name "%s" at '%s': Cannot find field.`
	knows := at.version == "v1alpha" || at.vertex && at.version == "v1beta1"
	proactivity, dialog := w.Proactivity, w.GenerationConfig.EnableAffectiveDialog
	switch {
	case proactivity != nil && !knows:
		return invalid(unknown, "proactivity", "setup")
	case dialog != nil && !knows:
		return invalid(unknown, "enableAffectiveDialog", "setup.generation_config")
	case proactivity != nil && p.proactive && proactivity.ProactiveAudio != nil && !*proactivity.ProactiveAudio:
		return invalid("Proactive audio cannot be disabled for this model.")
	case proactivity != nil && !p.alphaExtras && !p.proactive:
		return invalid("Proactive audio is not supported for this model.")
	case dialog != nil && *dialog && !p.alphaExtras && !p.proactive:
		return invalid("Affective dialog is not supported for this model.")
	}
	return nil
}

// checkPlace refuses what only the Gemini API or only Vertex has.
func (w *wireSetup) checkPlace(at endpoint) error {
	if at.vertex {
		if w.RealtimeInputConfig.TurnCoverage == "TURN_INCLUDES_AUDIO_ACTIVITY_AND_ALL_VIDEO" {
			return newClosing(closeInvalid, "")
		}
		return nil
	}
	if w.ExplicitVADSignal || w.AvatarConfig != nil || w.SessionResumption != nil && w.SessionResumption.Transparent {
		return newClosing(closeInvalid, "")
	}
	return nil
}

// wireTool is a tool as far as the emulator acts on it.
type wireTool struct {
	FunctionDeclarations []struct{ Name, Behavior string }
	GoogleSearch         *struct{}
}

// readTools returns the declared functions and whether each blocks.
func readTools(tools []wireTool, p profile, path string) (map[string]bool, error) {
	functions := make(map[string]bool)
	for i, tool := range tools {
		if tool.GoogleSearch != nil && tool.FunctionDeclarations != nil {
			return nil, newClosing(closeInternal, "")
		}
		for j, f := range tool.FunctionDeclarations {
			if f.Name == "" {
				return nil, invalid("Invalid function name at '%s[%d].function_declarations[%d]'.", path, i, j)
			}
			if _, twice := functions[f.Name]; twice {
				return nil, invalid("Duplicate function declaration found: %s", f.Name)
			}
			switch {
			case f.Behavior == "BLOCKING" && p.asyncOnly:
				return nil, invalid("Blocking function calls are not supported for this model.")
			case f.Behavior == "NON_BLOCKING" && p.syncOnly:
				return nil, invalid("Non-blocking function calls are not supported for this model.")
			}
			functions[f.Name] = f.Behavior == "BLOCKING" || f.Behavior != "NON_BLOCKING" && p.blocks
		}
	}
	return functions, nil
}

func sortedKeys(functions map[string]bool) []string { return slices.Sorted(maps.Keys(functions)) }
