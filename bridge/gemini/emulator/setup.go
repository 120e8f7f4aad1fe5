package emulator

import (
	"fmt"
	"slices"
	"strings"
)

// setup is what a session was asked to be.
type setup struct {
	model            string // without "models/"
	profile          profile
	text             bool // answer with text parts
	inputTranscript  bool
	outputTranscript bool
	resumption       bool
	initialHistory   bool // the first clientContent is history and gets no answer
	manual           bool // activities are told by the client
	noInterruption   bool
	vad              vadOptions
	functions        map[string]bool // declared, and whether calls of it block
}

// profile is what a family of models takes: https://ai.google.dev/gemini-api/docs/live-guide (comparison).
type profile struct {
	prefix        string
	text          bool // may answer with text
	blocks        bool // functions block unless declared otherwise
	syncOnly      bool // all functions block
	asyncOnly     bool // no function blocks
	noScheduling  bool
	noContent     bool // clientContent only as initial history
	needsRole     bool
	noThinking    bool
	needsThinking bool
	alphaExtras   bool // proactivity and affective dialog, on v1alpha
	contextUpdate bool
}

var profiles = []profile{
	{prefix: "gemini-3.8-live-extended-thinking", asyncOnly: true, noScheduling: true, needsRole: true, needsThinking: true, contextUpdate: true},
	{prefix: "gemini-3.8-live", needsRole: true, noThinking: true, contextUpdate: true},
	{prefix: "gemini-3.1-flash-live", blocks: true, syncOnly: true, noScheduling: true, noContent: true},
	{prefix: "gemini-live-2.5-flash-native-audio", blocks: true, alphaExtras: true},
	{prefix: "gemini-live-2.5-flash", blocks: true, text: true},
	{prefix: "gemini-2.5-flash-native-audio", blocks: true, alphaExtras: true},
	{prefix: "gemini-3.5-live-translate"},
	{prefix: "gemini-3.5-transcribe-live"},
}

// shutDown are models that were live models once.
var shutDown = []string{"gemini-live-2.5-flash-preview"}

func invalid(format string, args ...any) error {
	return &closing{closeInvalid, fmt.Sprintf(format, args...)}
}

// readSetup validates the setup of a client, as far as the grammar has not.
func readSetup(tree map[string]any, version string) (setup, error) {
	var w struct {
		Model            string
		GenerationConfig struct {
			ResponseModalities    []string
			EnableAffectiveDialog *bool
			ThinkingConfig        *struct {
				ThinkingLevel string
			}
		}
		Tools               []wireTool
		RealtimeInputConfig struct {
			AutomaticActivityDetection vadOptions
			ActivityHandling           string
		}
		SessionResumption                                 *struct{ Transparent bool }
		InputAudioTranscription, OutputAudioTranscription *struct{}
		Proactivity                                       *struct{}
		ExplicitVADSignal                                 bool `json:"explicitVadSignal"`
		HistoryConfig                                     struct{ InitialHistoryInClientContent bool }
	}
	if err := remarshal(tree, &w); err != nil {
		return setup{}, invalid("Request contains an invalid argument.")
	}
	s := setup{
		model:            trimModel(w.Model),
		inputTranscript:  w.InputAudioTranscription != nil,
		outputTranscript: w.OutputAudioTranscription != nil,
		resumption:       w.SessionResumption != nil,
		initialHistory:   w.HistoryConfig.InitialHistoryInClientContent,
		vad:              w.RealtimeInputConfig.AutomaticActivityDetection,
		manual:           w.RealtimeInputConfig.AutomaticActivityDetection.Disabled,
		noInterruption:   w.RealtimeInputConfig.ActivityHandling == "NO_INTERRUPTION",
	}
	i := slices.IndexFunc(profiles, func(p profile) bool { return strings.HasPrefix(s.model, p.prefix) })
	if i < 0 || slices.Contains(shutDown, s.model) {
		return setup{}, &closing{closePolicy, fmt.Sprintf(
			"%s is not found for API version %s, or is not supported for bidiGenerateContent.", w.Model, version)}
	}
	s.profile = profiles[i]
	if !strings.Contains(w.Model, "/") {
		return setup{}, invalid("Invalid model name %q: must be models/NAME.", w.Model)
	}
	for _, m := range w.GenerationConfig.ResponseModalities {
		switch {
		case m == "TEXT" && s.profile.text:
			s.text = true
		case m == "TEXT":
			return setup{}, invalid("The requested combination of response modalities (TEXT) is not supported by the model. %s accepts: AUDIO", w.Model)
		case m != "AUDIO":
			return setup{}, invalid("Invalid value at 'setup.generation_config.response_modalities[0]' (Modality), %q", m)
		}
	}
	thinking := w.GenerationConfig.ThinkingConfig
	switch {
	case s.profile.noThinking && thinking != nil:
		return setup{}, invalid("Thinking is not supported for this model.")
	case s.profile.needsThinking && (thinking == nil || thinking.ThinkingLevel == ""):
		return setup{}, invalid("Thinking level must be specified for this model")
	}
	alpha := version == "v1alpha" && s.profile.alphaExtras
	switch {
	case w.Proactivity != nil && !alpha:
		return setup{}, invalid(`Invalid JSON payload received. Unknown name "proactivity" at 'setup': Cannot find field.`)
	case w.GenerationConfig.EnableAffectiveDialog != nil && !alpha:
		return setup{}, invalid(`Invalid JSON payload received. Unknown name "enableAffectiveDialog" at 'setup.generation_config': Cannot find field.`)
	case version != "" && (w.ExplicitVADSignal || w.SessionResumption != nil && w.SessionResumption.Transparent):
		return setup{}, invalid("Request contains an invalid argument.") // Vertex has these
	}
	var err error
	s.functions, err = readTools(w.Tools, s.profile)
	return s, err
}

// wireTool is a tool as far as the emulator acts on it.
type wireTool struct {
	FunctionDeclarations []struct {
		Name, Behavior string
		Parameters     *wireSchema
	}
	GoogleSearch *struct{}
}

type wireSchema struct {
	Type       string
	Items      *wireSchema
	Properties map[string]*wireSchema
	AnyOf      []*wireSchema
}

var schemaTypes = []string{"", "TYPE_UNSPECIFIED", "STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"}

// check refuses types that are not in capitals, and objects without properties.
func (s *wireSchema) check(path string) error {
	if s == nil {
		return nil
	}
	if !slices.Contains(schemaTypes, s.Type) {
		return invalid("Invalid value at '%s.type' (Type), %q", path, s.Type)
	}
	if err := s.Items.check(path + ".items"); err != nil {
		return err
	}
	for name, property := range s.Properties {
		if err := property.check(path + ".properties[" + name + "]"); err != nil {
			return err
		}
	}
	for _, option := range s.AnyOf {
		if err := option.check(path + ".any_of"); err != nil {
			return err
		}
	}
	return nil
}

// readTools returns the declared functions and whether each blocks.
func readTools(tools []wireTool, p profile) (map[string]bool, error) {
	functions := make(map[string]bool)
	for i, tool := range tools {
		if tool.GoogleSearch != nil && tool.FunctionDeclarations != nil {
			return nil, &closing{closeInternal, "Internal error encountered."}
		}
		for j, f := range tool.FunctionDeclarations {
			path := fmt.Sprintf("setup.tools[%d].function_declarations[%d]", i, j)
			if f.Name == "" {
				return nil, invalid("Invalid function name at '%s'.", path)
			}
			if _, twice := functions[f.Name]; twice {
				return nil, invalid("Duplicate function declaration found: %s", f.Name)
			}
			if err := f.Parameters.check(path + ".parameters"); err != nil {
				return nil, err
			}
			switch f.Behavior {
			case "", "UNSPECIFIED":
				functions[f.Name] = p.blocks
			case "BLOCKING":
				if p.asyncOnly {
					return nil, invalid("Blocking function calls are not supported for this model.")
				}
				functions[f.Name] = true
			case "NON_BLOCKING":
				if p.syncOnly {
					return nil, invalid("Non-blocking function calls are not supported for this model.")
				}
				functions[f.Name] = false
			default:
				return nil, invalid("Invalid value at '%s.behavior' (Behavior), %q", path, f.Behavior)
			}
		}
	}
	return functions, nil
}
