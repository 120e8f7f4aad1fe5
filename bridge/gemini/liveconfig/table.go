package liveconfig

import "time"

// backend is one of Google's two backends of the Live API, or both.
type backend int

const (
	geminiAPI backend = 1 << iota // with API key or ephemeral token
	vertexAI                      // with Google Cloud credentials
	anywhere  = geminiAPI | vertexAI
)

func (b backend) String() string {
	if b == vertexAI {
		return "Vertex AI"
	}
	return "the Gemini API"
}

// output is the set of a model's response modalities.
type output int

const (
	voiceOutput output = 1 << iota // AUDIO, with a transcript
	textOutput                     // TEXT
	videoOutput                    // VIDEO: an avatar
)

// thinking is the support of a model for thinkingConfig.
type thinking int

const (
	thinkingUnknown  thinking = iota // the model is newer than this table
	thinkingNone                     // no thinkingConfig at all
	thinkingByBudget                 // thinkingBudget
	thinkingByLevel                  // thinkingLevel
	thinkingRequired                 // thinkingLevel, required; no MINIMAL
)

// moods is the support of a model for proactivity and affective dialog.
type moods int

const (
	noMoods        moods = iota
	moodsOnRequest       // both, on request
	moodsBuiltIn         // always proactive, and rejects the setting; affective dialog was removed
)

// row is a line of the table of models: the properties of all models with a prefix, on one backend. They are applied
// before dialling. The server closes the socket without a warning if a model does not support the setup.
type row struct {
	Profile

	prefix string
	on     backend

	// whole is the full name of the row's model, if prefix is only the beginning of that name.
	whole string

	// twin is the same model's name on the other backend. If it is empty, the other backend does not have the model.
	twin string

	// retired models are shut down; api.DefaultModel replaces them.
	retired bool

	output   output
	thinking thinking
	calls    callMode
	moods    moods

	// wide models hear and see everything between turns. With manual activity detection they need a setup that includes
	// all input. Otherwise they treat turns as empty.
	wide bool

	// oneAnswer models abandon a call after a response with willContinue: its last response is never spoken.
	oneAnswer bool

	// translates is set for the models for translation, the only ones that support translationConfig.
	translates bool

	// unsupported lists fields of the setup that are removed, because these models refuse them.
	unsupported []string
}

// endSilence is the silence after which a model surely ends a turn. Models of version 3.8 did not end it after 0.5 s
// with an audioStreamEnd (12 of 12 recordings), but after 1.4 s (6 of 6; openclaw #152646, September 2026).
//
// gemini-2.5-flash was reported to behave alike (python-genai #1328). Unmeasured models get the silence, too: it does
// no harm. For 3.1 audioStreamEnd is enough (3 of 3).
const endSilence = 1500 * time.Millisecond

// textModelRow is the row of all models outside the Live API. They call functions within an answer and wait for the
// results.
var textModelRow = row{
	Profile: Profile{Name: "writing", Seeds: true, Appends: true, IsTextModel: true}, output: textOutput, calls: callsSync,
}

// models is searched from the top for the first row with the model's prefix on the client's backend. This table has not
// been tested against Google's servers.
//
// Sources, as of November 2026. Names and shutdowns: ai.google.dev/gemini-api/docs/deprecations. Supported fields:
// ai.google.dev/gemini-api/docs/live-guide (comparison of models), …/live-api/thinking, …/models/gemini-3.8-live,
// …/models/gemini-3.8-live-extended-thinking, docs.cloud.google.com/gemini-enterprise-agent-platform/models/live-api
// (start-manage-session, best-practices). A row names other sources.
//
// ForgetfulHandles was reported for gemini-3.8-live on Vertex AI (October 2026: 9 of 9 trials, 23 of 30 resumes in
// production). It is assumed for the other models, which were not measured. The assumption does no harm.
//
// AnswersAfterTurn was reported for gemini-3.8-live on Vertex AI (October 2026). On the Gemini API a silent turn with a
// call ends within the same millisecond (recorded), so waiting costs nothing. Extended thinking ends its turn before it
// calls (recorded).
var models = []row{
	// Vertex AI rejects the field behavior (livekit/agents #3801) and supports the moods in its single version
	// (livekit/agents #4362). The second row is the preview. Both precede the retired model whose name begins alike.
	{
		Profile: Profile{Name: "2.5-native-audio-vertex", Seeds: true, ForgetfulHandles: true, Appends: true, EndSilence: endSilence},
		prefix:  "gemini-live-2.5-flash-native-audio", on: vertexAI, twin: "gemini-2.5-flash-native-audio-preview-12-2025",
		output: voiceOutput, thinking: thinkingByBudget, calls: callsSync, moods: moodsOnRequest,
	},
	{
		Profile: Profile{Name: "2.5-native-audio-vertex", Seeds: true, ForgetfulHandles: true, Appends: true, EndSilence: endSilence},
		prefix:  "gemini-live-2.5-flash-preview-native-audio", on: vertexAI, whole: "gemini-live-2.5-flash-native-audio",
		twin:   "gemini-2.5-flash-native-audio-preview-12-2025",
		output: voiceOutput, thinking: thinkingByBudget, calls: callsSync, moods: moodsOnRequest,
	},

	// Shut down on 2025-12-09, or before it. The third is still Mastra's default.
	{prefix: "gemini-2.0-flash-live", on: anywhere, retired: true},
	{prefix: "gemini-live-2.5-flash-preview", on: anywhere, retired: true},
	{prefix: "gemini-2.0-flash-exp", on: anywhere, retired: true},
	{prefix: "gemini-2.5-flash-preview-native-audio-dialog", on: anywhere, retired: true},
	{prefix: "gemini-2.5-flash-exp-native-audio-thinking-dialog", on: anywhere, retired: true},

	// Calls block by default; v1alpha supports proactivity and affective dialog (js-genai #696).
	{
		Profile: Profile{Name: "2.5-native-audio", Seeds: true, ForgetfulHandles: true, Appends: true, EndSilence: endSilence},
		prefix:  "gemini-2.5-flash-native-audio", on: geminiAPI, whole: "gemini-2.5-flash-native-audio-preview-12-2025",
		twin:   "gemini-live-2.5-flash-native-audio",
		output: voiceOutput, thinking: thinkingByBudget, calls: callsWaiting, moods: moodsOnRequest,
	},
	// This model supports text output and is otherwise like the row above.
	{
		Profile: Profile{Name: "2.5-flash-vertex", Seeds: true, ForgetfulHandles: true, Appends: true, EndSilence: endSilence},
		prefix:  "gemini-live-2.5-flash", on: vertexAI,
		output: voiceOutput | textOutput, thinking: thinkingByBudget, calls: callsSync,
	},
	// This model accepts clientContent only as history. Later clientContent closes the session with 1007. It does not
	// support scheduling.
	{
		Profile: Profile{Name: "3.1-flash-live", Seeds: true, ForgetfulHandles: true},
		prefix:  "gemini-3.1-flash-live", on: geminiAPI, whole: "gemini-3.1-flash-live-preview",
		output: voiceOutput, thinking: thinkingByLevel, calls: callsSync, wide: true,
	},
	// A missing level closes the session with 1007 `Thinking level must be specified for this model`. So does
	// scheduling. After a response with willContinue, the final response was never spoken (openclaw #152413, September
	// 2026).
	{
		Profile: Profile{
			Name: "3.8-live-extended-thinking", ContextUpdate: true, Seeds: true, ForgetfulHandles: true, Appends: true, Proactive: true, Slow: true,
			EndSilence: endSilence, NoSpeechMarker: true, InterruptedAnswersContinue: true,
		},
		prefix: "gemini-3.8-live-extended-thinking", on: geminiAPI,
		output: voiceOutput, thinking: thinkingRequired, calls: callsAsync, moods: moodsBuiltIn, wide: true, oneAnswer: true,
	},
	// proactiveAudio false is an error. Affective dialog closes the session with 1007 at the first message.
	{
		Profile: Profile{
			Name: "3.8-live", ContextUpdate: true, Seeds: true, ForgetfulHandles: true, Appends: true, Proactive: true, EndSilence: endSilence,
			AnswersAfterTurn: true,
		},
		prefix: "gemini-3.8-live", on: geminiAPI,
		output: voiceOutput, thinking: thinkingNone, moods: moodsBuiltIn, wide: true,
	},
	// Only Vertex AI has the avatar. Its page start-manage-session describes contextUpdate.
	{
		Profile: Profile{
			Name: "3.8-live-vertex", ContextUpdate: true, Seeds: true, ForgetfulHandles: true, Appends: true, Proactive: true,
			EndSilence: endSilence, AnswersAfterTurn: true,
		},
		prefix: "gemini-3.8-live", on: vertexAI,
		output: voiceOutput | videoOutput, thinking: thinkingNone, moods: moodsBuiltIn, wide: true,
	},
	// ai.google.dev/gemini-api/docs/live-api/live-translate: audio in, audio out, no tools, no instructions.
	{
		Profile: Profile{Name: "3.5-live-translate", EndSilence: endSilence},
		prefix:  "gemini-3.5-live-translate", on: anywhere,
		output: voiceOutput, thinking: thinkingNone, calls: callsNothing, translates: true, unsupported: []string{"systemInstruction"},
	},
	// ai.google.dev/gemini-api/docs/live-api/live-transcribe: audio in, text out. It has one name on each backend.
	{
		Profile: Profile{Name: "3.5-transcribe-live", EndSilence: endSilence},
		prefix:  "gemini-3.5-transcribe-live-preview", on: vertexAI, twin: "gemini-3.5-transcribe-live",
		output: textOutput, thinking: thinkingNone, calls: callsNothing,
		unsupported: []string{"systemInstruction", "generationConfig.speechConfig"},
	},
	{
		Profile: Profile{Name: "3.5-transcribe-live", EndSilence: endSilence},
		prefix:  "gemini-3.5-transcribe-live", on: geminiAPI, twin: "gemini-3.5-transcribe-live-preview",
		output: textOutput, thinking: thinkingNone, calls: callsNothing,
		unsupported: []string{"systemInstruction", "generationConfig.speechConfig"},
	},
	// Models newer than this table are treated like the newest, without features that only one of them has.
	{
		Profile: Profile{Name: "unknown", Seeds: true, ForgetfulHandles: true, Appends: true, EndSilence: endSilence},
		on:      anywhere, output: voiceOutput, thinking: thinkingUnknown, moods: moodsOnRequest, wide: true,
	},
}
