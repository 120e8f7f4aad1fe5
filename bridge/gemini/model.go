package gemini

import "strings"

// family is what the models whose names begin alike have in common. A server answers a setup field it does not take
// with a closed socket and never with a warning, so what a family refuses is taken out before dialling.
type family struct {
	prefix string

	// retired models are shut down; DefaultModel takes their place.
	retired bool

	// text models answer in TEXT when asked to. All others speak, and have a transcript.
	text bool

	// alpha lists fields that only the v1alpha version of the API knows.
	alpha []string

	// refuses lists fields that close the session.
	refuses []string

	// thinkingLevel is what a family that insists on a level gets when the client names none.
	thinkingLevel string
}

// families is searched from the top. The last row is for models that are newer than this table.
//
// Sources: https://ai.google.dev/gemini-api/docs/deprecations, …/live-guide (comparison of models) and …/live-api/thinking.
var families = []family{
	{prefix: "gemini-2.0-flash-live", retired: true},         // shut down on 2025-12-09
	{prefix: "gemini-2.0-flash-exp", retired: true},          // still Mastra's default
	{prefix: "gemini-live-2.5-flash-preview", retired: true}, // shut down on 2025-12-09
	{prefix: "gemini-2.5-flash-preview-native-audio-dialog", retired: true},
	{prefix: "gemini-2.5-flash-exp-native-audio-thinking-dialog", retired: true},
	{prefix: "gemini-live-2.5-flash-native-audio", alpha: alphaFields},
	{prefix: "gemini-live-2.5-flash", text: true},
	{prefix: "gemini-2.5-flash-native-audio", alpha: alphaFields},
	{prefix: "gemini-3.1-flash-live", refuses: alphaFields},
	{prefix: "gemini-3.8-live-extended-thinking", refuses: alphaFields, thinkingLevel: "LOW"},
	{prefix: "gemini-3.8-live", refuses: append([]string{"generationConfig.thinkingConfig"}, alphaFields...)},
	{prefix: ""},
}

var alphaFields = []string{"proactivity", "generationConfig.enableAffectiveDialog"}

// familyOf returns the row of a model.
func familyOf(model string) family {
	for _, f := range families {
		if strings.HasPrefix(model, f.prefix) {
			return f
		}
	}
	return family{}
}
