package live

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

// Traits are how a family of models behaves in a session.
type Traits struct {
	Blocks    bool // functions block unless declared otherwise, and the model hears nothing while it waits for one
	OnePart   bool // in an event
	Withholds bool // handles, while it speaks or waits for a function
	SaysIdle  bool // by interactionStatus

	// ForgetfulHandles is set where a handle that is given on a resumed connection stands for the turns of that connection alone.
	ForgetfulHandles bool

	// HandlesAfterTurns is set where handles come after completed turns alone, and none for a call.
	HandlesAfterTurns bool

	// AnswersAfterTurn is set where the answer to a call that does not block is dropped before the end of the turn that has called.
	AnswersAfterTurn bool

	// SilenceRequired is set where the end of speech is found in the audio alone: audioStreamEnd does nothing.
	SilenceRequired bool

	// RealTimeVoice is set where the voice comes at the speed of talking, and the turn ends as soon as it was sent.
	RealTimeVoice bool

	// InterruptedAnswersContinue is set where the model takes up an answer again that an empty turn of the client has interrupted.
	InterruptedAnswersContinue bool

	// IgnoredMarks is set where activityStart and activityEnd do nothing while the server detects activity.
	IgnoredMarks bool

	Wire
}

// Wire are the small shapes of a family's messages, as they were recorded.
type Wire struct {
	// EmptyMessages is set where {} comes before the pieces of a voice and {"serverContent":{}} before a turn.
	EmptyMessages bool

	// OneTranscript is set where an utterance is transcribed in one piece, before its end is reported.
	OneTranscript bool

	// NoActivity is set where voiceActivity was not recorded, and ActivityInContent where it stands beside an empty serverContent and
	// its offsets have 9 decimals.
	NoActivity, ActivityInContent bool

	RoleOfTurns bool // "model", of each turn

	// OneSampleFirst is set where the first piece of some answers has one sample.
	OneSampleFirst bool

	// HandleInterval is how often a handle comes while audio flows, asked for or not, by the clock of the audio; 0: never.
	HandleInterval time.Duration

	LongHandles bool // base64 of some 60 characters, in place of a UUID
}

// profile is what a family of models takes: https://ai.google.dev/gemini-api/docs/live-guide (comparison).
type profile struct {
	Traits

	prefix         string
	gemini, vertex bool // where it is served

	text          bool // may answer with text
	video         bool // may answer with an avatar, on Vertex
	thinking      thinking
	syncOnly      bool // all functions block, whatever they declare (a behavior is taken: PatterAI/Patter #210)
	asyncOnly     bool // no function blocks
	noScheduling  bool
	noContent     bool // clientContent only as initial history
	needsRole     bool
	alphaExtras   bool // proactivity and affective dialog can be asked for
	proactive     bool // always, and affective dialog is no more
	contextUpdate bool
	wholeInput    bool // without TURN_INCLUDES_ALL_INPUT nothing of an activity that the client marks is heard
}

// thinking is what a family takes as thinkingConfig: https://ai.google.dev/gemini-api/docs/live-api/thinking.
type thinking int

const (
	anyThinking thinking = iota // a budget or a level: ai.google.dev/gemini-api/docs/gemini-3
	noThinking
	budgetOnly
	needsLevel // low or more
)

// traits25 are the traits of the models of version 2.5.
var traits25 = Traits{
	Blocks: true, OnePart: true, Withholds: true, ForgetfulHandles: true, Wire: Wire{NoActivity: true, LongHandles: true},
}

var profiles = []profile{
	{
		prefix: "gemini-3.8-live-extended-thinking", gemini: true, thinking: needsLevel, asyncOnly: true, noScheduling: true,
		needsRole: true, proactive: true, contextUpdate: true, wholeInput: true,
		Traits: Traits{
			SaysIdle: true, ForgetfulHandles: true, SilenceRequired: true, RealTimeVoice: true, InterruptedAnswersContinue: true, IgnoredMarks: true,
			Wire: Wire{EmptyMessages: true, OneTranscript: true, NoActivity: true, RoleOfTurns: true, OneSampleFirst: true},
		},
	},
	{
		prefix: "gemini-3.8-live", gemini: true, vertex: true, video: true, thinking: noThinking,
		needsRole: true, proactive: true, contextUpdate: true, wholeInput: true,
		Traits: Traits{
			ForgetfulHandles: true, HandlesAfterTurns: true, SilenceRequired: true, AnswersAfterTurn: true,
			Wire: Wire{EmptyMessages: true, OneTranscript: true, RoleOfTurns: true, OneSampleFirst: true},
		},
	},
	{
		prefix: "gemini-3.1-flash-live", gemini: true, syncOnly: true, noContent: true, wholeInput: true,
		Traits: Traits{
			Blocks: true, ForgetfulHandles: true,
			Wire: Wire{
				EmptyMessages: true, OneTranscript: true, ActivityInContent: true, OneSampleFirst: true, HandleInterval: 500 * time.Millisecond,
			},
		},
	},
	{
		prefix: "gemini-live-2.5-flash-native-audio", vertex: true, thinking: budgetOnly, alphaExtras: true,
		Traits: traits25,
	},
	{
		prefix: "gemini-live-2.5-flash", vertex: true, text: true, thinking: budgetOnly,
		Traits: traits25,
	},
	{
		prefix: "gemini-2.5-flash-native-audio", gemini: true, thinking: budgetOnly, alphaExtras: true,
		Traits: traits25,
	},
	{
		prefix: "gemini-3.5-live-translate", gemini: true, vertex: true,
		Traits: Traits{Wire: Wire{HandleInterval: 2 * time.Second}}, // 320 in 591 s were recorded
	},
	{prefix: "gemini-3.5-transcribe-live", gemini: true, vertex: true, text: true},
}

// shutDown are models that were live models once.
var shutDown = []string{"gemini-live-2.5-flash-preview"}

// trimModel takes "models/" or the path of a Vertex model off a name.
func trimModel(name string) string {
	return name[strings.LastIndexByte(name, '/')+1:]
}

// profileOf returns the profile of a model as a client names it, or how Google refuses the name.
func profileOf(name string, at Endpoint) (profile, error) {
	model := trimModel(name)
	i := slices.IndexFunc(profiles, func(p profile) bool { return strings.HasPrefix(model, p.prefix) })
	known := i >= 0 && !slices.Contains(shutDown, model)
	if at.Vertex {
		parts := strings.Split(name, "/")
		if len(parts) != 8 || !strings.HasSuffix(strings.TrimSuffix(name, model), "/publishers/google/models/") ||
			parts[0] != "projects" || parts[2] != "locations" {
			return profile{}, invalid("Invalid resource name: must be projects/P/locations/L/publishers/google/models/M.")
		}
		if !known || !profiles[i].vertex {
			return profile{}, &Closing{ClosePolicy, "Publisher model was not found or your project does not have access to it."}
		}
		return profiles[i], nil
	}
	if !known || !profiles[i].gemini {
		return profile{}, &Closing{
			ClosePolicy,
			name + " is not found for API version " + at.Version + ", or is not supported for bidiGenerateContent.",
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
	if c != nil && c.ThinkingLevel != "THINKING_LEVEL_UNSPECIFIED" {
		level = c.ThinkingLevel
	}
	switch {
	case p.thinking == noThinking && c != nil: // models/gemini-3.8-live: leave thinkingConfig out
		if level == "" {
			return invalid("Thinking is not supported for this model.")
		}
		return invalid("Thinking level is not supported for this model.") // recorded in September 2026
	case p.thinking == budgetOnly && level != "": // Roo-Code #10700
		return invalid("Thinking level is not supported for this model.")
	case p.thinking == needsLevel && level == "": // models/gemini-3.8-live-extended-thinking
		return invalid("Thinking level must be specified for this model")
	case p.thinking == needsLevel && level == "MINIMAL": // the same; the words: vellum-assistant #32687
		return invalid("Thinking level MINIMAL is not supported for this model.")
	case level != "" && c.ThinkingBudget != nil: // docs/gemini-3: both are a 400
		return invalid("Thinking level and thinking budget cannot be used together.")
	}
	return nil
}

// endpointPath matches the Live API below any prefix: Google's own with its version and perhaps the method for ephemeral
// tokens, or Vertex's, which has a slash where the other has a dot.
var endpointPath = regexp.MustCompile(`/ws/google\.(?:ai\.generativelanguage\.(v1|v1beta|v1alpha)\.GenerativeService|` +
	`cloud\.aiplatform\.(v1|v1beta1)\.LlmBidiService)[./]BidiGenerateContent(Constrained)?$`)

// Endpoint is which of Google's APIs a client has come to.
type Endpoint struct {
	Version     string // "v1beta"
	Vertex      bool
	Constrained bool // for ephemeral tokens
}

// EndpointOf returns the endpoint at a path of a URL, if there is one.
func EndpointOf(urlPath string) (Endpoint, bool) {
	m := endpointPath.FindStringSubmatch(urlPath)
	if m == nil {
		return Endpoint{}, false
	}
	return Endpoint{Version: m[1] + m[2], Vertex: m[2] != "", Constrained: m[3] != ""}, true
}
