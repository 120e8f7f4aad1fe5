package live

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

// Traits describes how a family of models behaves in a session.
type Traits struct {
	Blocks           bool // functions block by default, and the model ignores audio while it waits for the result
	OnePart          bool // a message has at most one part
	WithholdsHandles bool // no handles are sent while the model speaks or waits for the result of a call
	SendsIdle        bool // the model sends interactionStatus when it becomes idle

	// ForgetfulHandles is set if a handle that was received on a resumed connection restores only the turns of that
	// connection.
	ForgetfulHandles bool

	// HandlesAfterTurns is set if handles are sent only after completed turns, and not after function calls.
	HandlesAfterTurns bool

	// AnswersAfterTurn is set if the server drops the response to a non-blocking call that arrives before the end of
	// the turn with the call.
	AnswersAfterTurn bool

	// SilenceRequired is set if the end of speech is detected only by silence in the audio, so that audioStreamEnd has
	// no effect.
	SilenceRequired bool

	// RealTimeVoice is set if the voice is sent in real time, and the turn ends when the whole voice was sent.
	RealTimeVoice bool

	// InterruptedAnswersContinue is set if the model continues an answer after an empty client turn has interrupted it.
	InterruptedAnswersContinue bool

	// IgnoredMarks is set if activityStart and activityEnd have no effect while the server detects activity.
	IgnoredMarks bool

	Wire
}

// Wire describes the form of the messages of a family of models, according to recordings of real sessions.
type Wire struct {
	// EmptyMessages is set if the server sends {} before the parts of a voice, and {"serverContent":{}} before a turn.
	EmptyMessages bool

	// OneTranscript is set if the transcript of a user's speech is a single message, which is sent before ACTIVITY_END.
	OneTranscript bool

	NoActivity        bool // voiceActivity is not sent
	ActivityInContent bool // voiceActivity comes with an empty serverContent, and its offsets have 9 decimals

	RoleOfTurns bool // each turn has the role "model"

	// OneSampleFirst is set if the first part of some answers has only one sample.
	OneSampleFirst bool

	// HandleInterval is the interval at which the server sends handles while audio arrives, even to clients that have
	// not requested any. The interval is measured by the length of the audio. 0 disables these handles.
	HandleInterval time.Duration

	LongHandles bool // a handle is base64 of about 60 characters, instead of a UUID
}

// profile describes what a family of models supports: https://ai.google.dev/gemini-api/docs/live-guide (comparison).
type profile struct {
	Traits

	prefix         string
	gemini, vertex bool // the backends on which the models are available

	text          bool // the models can answer with text
	video         bool // the models have an avatar, on Vertex AI
	thinking      thinking
	syncOnly      bool // all functions block, whatever they declare (a behavior is accepted: PatterAI/Patter #210)
	asyncOnly     bool // functions never block
	noScheduling  bool
	noContent     bool // clientContent is accepted only as initial history
	needsRole     bool
	alphaExtras   bool // proactivity and affective dialog can be requested
	proactive     bool // the models are always proactive; affective dialog was removed
	contextUpdate bool
	wholeInput    bool // without TURN_INCLUDES_ALL_INPUT, speech that the client marks is ignored
}

// thinking is a family's support for the fields of thinkingConfig:
// https://ai.google.dev/gemini-api/docs/live-api/thinking.
type thinking int

const (
	anyThinking thinking = iota // a budget or a level, not both: ai.google.dev/gemini-api/docs/gemini-3
	noThinking
	budgetOnly
	needsLevel // a level is required, and must be LOW or higher
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
		Traits: Traits{Wire: Wire{HandleInterval: 2 * time.Second}}, // a recording has 320 handles in 591 s
	},
	{prefix: "gemini-3.5-transcribe-live", gemini: true, vertex: true, text: true},
}

// shutDown lists Live models that were shut down.
var shutDown = []string{"gemini-live-2.5-flash-preview"}

// shortModelName removes "models/", or the path before a Vertex model, from a model's name.
func shortModelName(name string) string {
	return name[strings.LastIndexByte(name, '/')+1:]
}

// profileOf returns the profile of the model with this name. If Google does not have the model at this endpoint, it
// returns the error of Google's server.
func profileOf(name string, endpoint Endpoint) (profile, error) {
	model := shortModelName(name)
	i := slices.IndexFunc(profiles, func(p profile) bool { return strings.HasPrefix(model, p.prefix) })
	isKnown := i >= 0 && !slices.Contains(shutDown, model)
	if endpoint.Vertex {
		parts := strings.Split(name, "/")
		if len(parts) != 8 || !strings.HasSuffix(strings.TrimSuffix(name, model), "/publishers/google/models/") ||
			parts[0] != "projects" || parts[2] != "locations" {
			return profile{}, newInvalidClosing("Invalid resource name: must be projects/P/locations/L/publishers/google/models/M.")
		}
		if !isKnown || !profiles[i].vertex {
			return profile{}, &Closing{ClosePolicy, "Publisher model was not found or your project does not have access to it."}
		}
		return profiles[i], nil
	}
	if !isKnown || !profiles[i].gemini {
		return profile{}, &Closing{
			ClosePolicy,
			name + " is not found for API version " + endpoint.Version + ", or is not supported for bidiGenerateContent.",
		}
	}
	if name != "models/"+model {
		return profile{}, newInvalidClosing("Invalid model name %q: must be models/NAME.", name)
	}
	return profiles[i], nil
}

// checkThinking returns the error with which Google rejects a thinkingConfig, or nil if Google accepts it. c is nil if
// the setup has no thinkingConfig.
func (p *profile) checkThinking(c *thinkingConfig) error {
	level := ""
	if c != nil && c.ThinkingLevel != "THINKING_LEVEL_UNSPECIFIED" {
		level = c.ThinkingLevel
	}
	switch {
	case p.thinking == noThinking && c != nil: // models/gemini-3.8-live requires that thinkingConfig is left out
		if level == "" {
			return newInvalidClosing("Thinking is not supported for this model.")
		}
		return newInvalidClosing("Thinking level is not supported for this model.") // recorded in September 2026
	case p.thinking == budgetOnly && level != "": // Roo-Code #10700
		return newInvalidClosing("Thinking level is not supported for this model.")
	case p.thinking == needsLevel && level == "": // models/gemini-3.8-live-extended-thinking
		return newInvalidClosing("Thinking level must be specified for this model")
	case p.thinking == needsLevel && level == "MINIMAL": // from the same page; the wording is from vellum-assistant #32687
		return newInvalidClosing("Thinking level MINIMAL is not supported for this model.")
	case level != "" && c.ThinkingBudget != nil: // docs/gemini-3: a request with both gets status 400
		return newInvalidClosing("Thinking level and thinking budget cannot be used together.")
	}
	return nil
}

// endpointPath matches the path of the Live API, after any prefix. The paths of the two APIs differ: that of the Gemini
// API may end with "Constrained", for ephemeral tokens, and Vertex AI has a slash instead of a dot before the method.
var endpointPath = regexp.MustCompile(`/ws/google\.(?:ai\.generativelanguage\.(v1|v1beta|v1alpha)\.GenerativeService|` +
	`cloud\.aiplatform\.(v1|v1beta1)\.LlmBidiService)[./]BidiGenerateContent(Constrained)?$`)

// Endpoint identifies the API that a client has called.
type Endpoint struct {
	Version     string // "v1beta"
	Vertex      bool
	Constrained bool // the endpoint for ephemeral tokens
}

// EndpointOf returns the endpoint that a URL path belongs to. It returns false for other paths.
func EndpointOf(urlPath string) (e Endpoint, ok bool) {
	m := endpointPath.FindStringSubmatch(urlPath)
	if m == nil {
		return Endpoint{}, false
	}
	return Endpoint{Version: m[1] + m[2], Vertex: m[2] != "", Constrained: m[3] != ""}, true
}
