package emulator

import (
	"slices"
	"strings"
)

// profile is what a family of models takes: https://ai.google.dev/gemini-api/docs/live-guide (comparison).
type profile struct {
	prefix         string
	gemini, vertex bool // where it is served

	text          bool // may answer with text
	video         bool // may answer with an avatar, on Vertex
	thinking      thinking
	blocks        bool // functions block unless declared otherwise, and the model hears nothing while it waits for one
	syncOnly      bool // all functions block
	asyncOnly     bool // no function blocks
	noScheduling  bool
	noContent     bool // clientContent only as initial history
	needsRole     bool
	alphaExtras   bool // proactivity and affective dialog can be asked for
	proactive     bool // always, and affective dialog is no more
	contextUpdate bool
	onePart       bool // in an event
	wholeInput    bool // without TURN_INCLUDES_ALL_INPUT nothing of an activity that the client marks is heard
	withholds     bool // handles, while it speaks or waits for a function
	saysIdle      bool // by interactionStatus
}

// thinking is what a family takes as thinkingConfig: https://ai.google.dev/gemini-api/docs/live-api/thinking.
type thinking int

const (
	anyThinking thinking = iota
	noThinking
	budgetOnly
	levelOnly
	needsLevel // low or more
)

var profiles = []profile{
	{
		prefix: "gemini-3.8-live-extended-thinking", gemini: true, thinking: needsLevel, asyncOnly: true, noScheduling: true,
		needsRole: true, proactive: true, contextUpdate: true, wholeInput: true, saysIdle: true,
	},
	{
		prefix: "gemini-3.8-live", gemini: true, vertex: true, video: true, thinking: noThinking,
		needsRole: true, proactive: true, contextUpdate: true, wholeInput: true,
	},
	{
		prefix: "gemini-3.1-flash-live", gemini: true, thinking: levelOnly, blocks: true, syncOnly: true, noScheduling: true,
		noContent: true, wholeInput: true,
	},
	{
		prefix: "gemini-live-2.5-flash-native-audio", vertex: true, thinking: budgetOnly, blocks: true, alphaExtras: true,
		onePart: true, withholds: true,
	},
	{prefix: "gemini-live-2.5-flash", vertex: true, text: true, thinking: budgetOnly, blocks: true, onePart: true, withholds: true},
	{
		prefix: "gemini-2.5-flash-native-audio", gemini: true, thinking: budgetOnly, blocks: true, alphaExtras: true,
		onePart: true, withholds: true,
	},
	{prefix: "gemini-3.5-live-translate", gemini: true, vertex: true},
	{prefix: "gemini-3.5-transcribe-live", gemini: true, vertex: true, text: true},
}

// shutDown are models that were live models once.
var shutDown = []string{"gemini-live-2.5-flash-preview"}

// profileOf returns the profile of a model as a client names it, or how Google refuses the name.
func profileOf(name string, at endpoint) (profile, error) {
	model := trimModel(name)
	i := slices.IndexFunc(profiles, func(p profile) bool { return strings.HasPrefix(model, p.prefix) })
	known := i >= 0 && !slices.Contains(shutDown, model)
	if at.vertex {
		if parts := strings.Split(name, "/"); len(parts) != 8 || !strings.HasSuffix(strings.TrimSuffix(name, model), "/publishers/google/models/") ||
			parts[0] != "projects" || parts[2] != "locations" {
			return profile{}, invalid("Invalid resource name: must be projects/P/locations/L/publishers/google/models/M.")
		}
		if !known || !profiles[i].vertex {
			return profile{}, &closing{closePolicy, "Publisher model was not found or your project does not have access to it."}
		}
		return profiles[i], nil
	}
	if !known || !profiles[i].gemini {
		return profile{}, &closing{
			closePolicy,
			name + " is not found for API version " + at.version + ", or is not supported for bidiGenerateContent.",
		}
	}
	if name != "models/"+model {
		return profile{}, invalid("Invalid model name %q: must be models/NAME.", name)
	}
	return profiles[i], nil
}

// checkThinking returns how Google refuses a thinkingConfig, which may be nil.
func (p *profile) checkThinking(c *thinkingConfig) error {
	level := ""
	if c != nil {
		level = strings.ToUpper(c.ThinkingLevel)
	}
	switch {
	case p.thinking == noThinking && c != nil:
		return invalid("Thinking is not supported for this model.")
	case p.thinking == budgetOnly && level != "":
		return invalid("Thinking level is not supported for this model.")
	case (p.thinking == levelOnly || p.thinking == needsLevel) && c != nil && c.ThinkingBudget != nil:
		return invalid("Thinking budget is not supported for this model.")
	case p.thinking == needsLevel && level == "":
		return invalid("Thinking level must be specified for this model")
	case p.thinking == needsLevel && level == "MINIMAL":
		return invalid("Thinking level MINIMAL is not supported for this model.")
	case level != "" && !slices.Contains([]string{"MINIMAL", "LOW", "MEDIUM", "HIGH"}, level):
		return invalid("Invalid value at 'setup.generation_config.thinking_config.thinking_level' (ThinkingLevel), %q", c.ThinkingLevel)
	}
	return nil
}
