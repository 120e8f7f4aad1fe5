package live

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

// Traits describe the behaviour of a family of models in a session.
type Traits struct {
	Blocks           bool // functions block by default, and the model ignores audio while it waits for one
	OnePart          bool // one part per event
	WithholdsHandles bool // no handles while it speaks or waits for a function
	SendsIdle        bool // sends interactionStatus when it becomes idle

	// ForgetfulHandles means that a handle received on a resumed connection restores only the turns of that connection.
	ForgetfulHandles bool

	// HandlesAfterTurns means that handles come only after completed turns, and not for a call.
	HandlesAfterTurns bool

	// AnswersAfterTurn means that the server drops the response to a non-blocking call if it comes before the end of the calling turn.
	AnswersAfterTurn bool

	// SilenceRequired means that the end of speech is only detected in the audio, and that audioStreamEnd has no effect.
	SilenceRequired bool

	// RealTimeVoice means that the voice is sent in real time, and that the turn ends when the whole voice was sent.
	RealTimeVoice bool

	// InterruptedAnswersContinue means that the model continues an answer that an empty turn of the client has interrupted.
	InterruptedAnswersContinue bool

	// IgnoredMarks means that activityStart and activityEnd have no effect while the server detects activity.
	IgnoredMarks bool

	Wire
}

// Wire describes how a family of models forms its messages, according to recordings of real sessions.
type Wire struct {
	// EmptyMessages means that {} precedes the parts of a voice, and that {"serverContent":{}} precedes a turn.
	EmptyMessages bool

	// OneTranscript means that an utterance is transcribed in one message, before its end is reported.
	OneTranscript bool

	NoActivity        bool // recordings have no voiceActivity
	ActivityInContent bool // voiceActivity comes with an empty serverContent, and its offsets have 9 decimals

	RoleOfTurns bool // each turn has the role "model"

	// OneSampleFirst means that the first part of some answers has only one sample.
	OneSampleFirst bool

	// HandleInterval is the interval of handles while audio flows, requested or not, by the clock of the audio; 0 means none.
	HandleInterval time.Duration

	LongHandles bool // base64 of about 60 characters, instead of a UUID
}

// profile lists what a family of models supports: https://ai.google.dev/gemini-api/docs/live-guide (comparison).
type profile struct {
	Traits

	prefix         string
	gemini, vertex bool // the backends on which the models are available

	text          bool // supports text answers
	video         bool // supports an avatar, on Vertex
	thinking      thinking
	syncOnly      bool // all functions block, whatever they declare (a behavior is accepted: PatterAI/Patter #210)
	asyncOnly     bool // no function blocks
	noScheduling  bool
	noContent     bool // clientContent only as initial history
	needsRole     bool
	alphaExtras   bool // supports proactivity and affective dialog on request
	proactive     bool // always proactive; affective dialog was removed
	contextUpdate bool
	wholeInput    bool // requires TURN_INCLUDES_ALL_INPUT to hear activities that the client marks
}

// thinking is a family's support for thinkingConfig: https://ai.google.dev/gemini-api/docs/live-api/thinking.
type thinking int

const (
	anyThinking thinking = iota // a budget or a level: ai.google.dev/gemini-api/docs/gemini-3
	noThinking
	budgetOnly
	needsLevel // low or higher
)

// traits25 are the traits of the models of version 2.5.
var traits25 = Traits{
	Blocks: true, OnePart: true, WithholdsHandles: true, ForgetfulHandles: true, Wire: Wire{NoActivity: true, LongHandles: true},
}

var profiles = []profile{
	{
		prefix: "gemini-3.8-live-extended-thinking", gemini: true, thinking: needsLevel, asyncOnly: true, noScheduling: true,
		needsRole: true, proactive: true, contextUpdate: true, wholeInput: true,
		Traits: Traits{
			SendsIdle: true, ForgetfulHandles: true, SilenceRequired: true, RealTimeVoice: true,
			InterruptedAnswersContinue: true, IgnoredMarks: true,
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

// shutDown are former Live models.
var shutDown = []string{"gemini-live-2.5-flash-preview"}

// trimModel removes "models/" or the path of a Vertex model from a name.
func trimModel(name string) string {
	return name[strings.LastIndexByte(name, '/')+1:]
}

// profileOf returns the profile of the model with this name. If Google does not have that model, it returns the error of
// Google's server.
func profileOf(name string, at Endpoint) (profile, error) {
	model := trimModel(name)
	i := slices.IndexFunc(profiles, func(p profile) bool { return strings.HasPrefix(model, p.prefix) })
	isKnown := i >= 0 && !slices.Contains(shutDown, model)
	if at.Vertex {
		parts := strings.Split(name, "/")
		if len(parts) != 8 || !strings.HasSuffix(strings.TrimSuffix(name, model), "/publishers/google/models/") ||
			parts[0] != "projects" || parts[2] != "locations" {
			return profile{}, invalid("Invalid resource name: must be projects/P/locations/L/publishers/google/models/M.")
		}
		if !isKnown || !profiles[i].vertex {
			return profile{}, &Closing{ClosePolicy, "Publisher model was not found or your project does not have access to it."}
		}
		return profiles[i], nil
	}
	if !isKnown || !profiles[i].gemini {
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

// checkThinking returns Google's error for a thinkingConfig, which may be nil.
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

// endpointPath matches the Live API after any prefix. Google's own has a version, and a method for ephemeral tokens.
// Vertex's has a slash instead of a dot.
var endpointPath = regexp.MustCompile(`/ws/google\.(?:ai\.generativelanguage\.(v1|v1beta|v1alpha)\.GenerativeService|` +
	`cloud\.aiplatform\.(v1|v1beta1)\.LlmBidiService)[./]BidiGenerateContent(Constrained)?$`)

// Endpoint identifies the API that a client has called.
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
