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

// output is the set of response modalities that a model supports.
type output int

const (
	voiceOutput output = 1 << iota // modality AUDIO, with a transcript
	textOutput                     // modality TEXT
	videoOutput                    // modality VIDEO: an avatar
)

// thinking says which fields of thinkingConfig a model supports.
type thinking int

const (
	thinkingUnknown  thinking = iota // unknown, because the model is newer than this table
	thinkingNone                     // thinkingConfig is not accepted
	thinkingByBudget                 // thinkingBudget is accepted
	thinkingByLevel                  // thinkingLevel is accepted
	thinkingRequired                 // thinkingLevel is required; MINIMAL is not accepted
)

// moods says whether a model supports proactivity and affective dialog.
type moods int

const (
	noMoods        moods = iota
	moodsOnRequest       // both settings are accepted
	moodsBuiltIn         // the model is always proactive and rejects both settings
)

// row is an entry in the table of models. It has the properties of all models whose names begin with prefix, on one
// backend. The parser adapts each setup to its row, because for an unsupported setup the server closes the socket
// without a warning.
type row struct {
	Profile

	prefix string
	on     backend

	// whole is the full name of the model. It is set only if prefix is not already the full name.
	whole string

	// twin is the name of the same model on the other backend. If it is empty, the other backend does not have the
	// model.
	twin string

	// retired is set if the models were shut down; api.DefaultModel replaces them.
	retired bool

	output   output
	thinking thinking
	calls    callMode
	moods    moods

	// wide is set if the model counts all input between two turns as a part of the next turn. With manual activity
	// detection, such a model needs a turnCoverage of all input, because it treats turns as empty otherwise.
	wide bool

	// oneAnswer is set if the model uses only the first response to a call. It ignores those that willContinue announces.
	oneAnswer bool

	// translates is set for translation models. Only these support translationConfig.
	translates bool

	// unsupported lists fields that the parser removes from a setup, because the model refuses them.
	unsupported []string
}

// endSilence is a length of silence after which every model ends a turn. In recordings, models of version 3.8 did not
// end the turn after 0.5 s of silence and an audioStreamEnd (12 of 12), but did after 1.4 s (6 of 6; openclaw #152646,
// September 2026).
//
// gemini-2.5-flash was reported to behave in the same way (python-genai #1328). Models that were not measured get the
// silence, too, because it does no harm. Version 3.1 does not need it: audioStreamEnd ends the turn (3 of 3).
const endSilence = 1500 * time.Millisecond

// textModelRow is the row of all models outside the Live API. They call functions within an answer, and wait for the
// responses.
var textModelRow = row{
	Profile: Profile{Name: "writing", Seeds: true, Appends: true, IsTextModel: true}, output: textOutput, calls: callsSync,
}

// models is the table of models. A model belongs to the first row for the client's backend whose prefix matches the
// model's name. This table has not been tested against Google's servers.
//
// Sources, as of November 2026. Names and shutdowns: ai.google.dev/gemini-api/docs/deprecations. Supported fields:
// ai.google.dev/gemini-api/docs/live-guide (comparison of models), …/live-api/thinking, …/models/gemini-3.8-live,
// …/models/gemini-3.8-live-extended-thinking, docs.cloud.google.com/gemini-enterprise-agent-platform/models/live-api
// (start-manage-session, best-practices). A row names other sources.
//
// ForgetfulHandles was reported for gemini-3.8-live on Vertex AI (October 2026: 9 of 9 trials, 23 of 30 resumes in
// production). It is assumed for the other models, which were not measured. The assumption does no harm.
//
// AnswersAfterTurn was reported for gemini-3.8-live on Vertex AI (October 2026). On the Gemini API, waiting for the end
// of the turn costs nothing, because a turn that contains only a call ends within the same millisecond (recorded).
// Extended thinking ends its turn before it calls (recorded).
var models = []row{
	// Vertex AI rejects the field behavior (livekit/agents #3801). It supports proactivity and affective dialog in its
	// only API version (livekit/agents #4362). The second row is the preview of the model in the first row. Both rows
	// must come before the retired model gemini-live-2.5-flash-preview, because its name is the beginning of the
	// preview's name.
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

	// These models were shut down on 2025-12-09 or before. The third one is still the default of the framework Mastra.
	{prefix: "gemini-2.0-flash-live", on: anywhere, retired: true},
	{prefix: "gemini-live-2.5-flash-preview", on: anywhere, retired: true},
	{prefix: "gemini-2.0-flash-exp", on: anywhere, retired: true},
	{prefix: "gemini-2.5-flash-preview-native-audio-dialog", on: anywhere, retired: true},
	{prefix: "gemini-2.5-flash-exp-native-audio-thinking-dialog", on: anywhere, retired: true},

	// On this model, function calls block by default. v1alpha supports proactivity and affective dialog (js-genai
	// #696).
	{
		Profile: Profile{Name: "2.5-native-audio", Seeds: true, ForgetfulHandles: true, Appends: true, EndSilence: endSilence},
		prefix:  "gemini-2.5-flash-native-audio", on: geminiAPI, whole: "gemini-2.5-flash-native-audio-preview-12-2025",
		twin:   "gemini-live-2.5-flash-native-audio",
		output: voiceOutput, thinking: thinkingByBudget, calls: callsWaiting, moods: moodsOnRequest,
	},
	// This model is like the model in the row above, but also supports text output.
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
	// A missing thinkingLevel closes the session with 1007 `Thinking level must be specified for this model`. A
	// scheduling field also closes the session. After a response with willContinue, the model never spoke the final
	// response (openclaw #152413, September 2026).
	{
		Profile: Profile{
			Name: "3.8-live-extended-thinking", ContextUpdate: true, Seeds: true, ForgetfulHandles: true, Appends: true, Proactive: true, Slow: true,
			EndSilence: endSilence, NoSpeechMarker: true, InterruptedAnswersContinue: true,
		},
		prefix: "gemini-3.8-live-extended-thinking", on: geminiAPI,
		output: voiceOutput, thinking: thinkingRequired, calls: callsAsync, moods: moodsBuiltIn, wide: true, oneAnswer: true,
	},
	// This model rejects proactiveAudio set to false. Affective dialog makes it close the session with 1007 at the
	// first message.
	{
		Profile: Profile{
			Name: "3.8-live", ContextUpdate: true, Seeds: true, ForgetfulHandles: true, Appends: true, Proactive: true, EndSilence: endSilence,
			AnswersAfterTurn: true,
		},
		prefix: "gemini-3.8-live", on: geminiAPI,
		output: voiceOutput, thinking: thinkingNone, moods: moodsBuiltIn, wide: true,
	},
	// This model has an avatar only on Vertex AI. Google's page start-manage-session describes contextUpdate.
	{
		Profile: Profile{
			Name: "3.8-live-vertex", ContextUpdate: true, Seeds: true, ForgetfulHandles: true, Appends: true, Proactive: true,
			EndSilence: endSilence, AnswersAfterTurn: true,
		},
		prefix: "gemini-3.8-live", on: vertexAI,
		output: voiceOutput | videoOutput, thinking: thinkingNone, moods: moodsBuiltIn, wide: true,
	},
	// This model gets audio, answers with audio, and supports neither tools nor instructions:
	// ai.google.dev/gemini-api/docs/live-api/live-translate.
	{
		Profile: Profile{Name: "3.5-live-translate", EndSilence: endSilence},
		prefix:  "gemini-3.5-live-translate", on: anywhere,
		output: voiceOutput, thinking: thinkingNone, calls: callsNothing, translates: true, unsupported: []string{"systemInstruction"},
	},
	// This model gets audio and answers with text: ai.google.dev/gemini-api/docs/live-api/live-transcribe. Its name
	// differs between the two backends.
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
	// This row is for models that are newer than the table. They are treated like the newest models above, but without
	// features that only one of those has.
	{
		Profile: Profile{Name: "unknown", Seeds: true, ForgetfulHandles: true, Appends: true, EndSilence: endSilence},
		on:      anywhere, output: voiceOutput, thinking: thinkingUnknown, moods: moodsOnRequest, wide: true,
	},
}
