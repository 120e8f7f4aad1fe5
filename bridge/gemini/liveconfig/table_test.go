package liveconfig_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"voxgate/bridge/gemini"
	"voxgate/bridge/gemini/emulator"
	"voxgate/bridge/gemini/liveconfig"
)

// conversational are the rows of the table for models one can talk with, by a name that is in them.
var conversational = []struct {
	row, model string
	vertex     bool
}{
	{"2.5-native-audio", "gemini-2.5-flash-native-audio-preview-12-2025", false},
	{"2.5-native-audio-vertex", "gemini-live-2.5-flash-native-audio", true},
	{"2.5-flash-vertex", "gemini-live-2.5-flash", true},
	{"3.1-flash-live", "gemini-3.1-flash-live-preview", false},
	{"3.8-live-extended-thinking", "gemini-3.8-live-extended-thinking", false},
	{"3.8-live", "gemini-3.8-live", false},
	{"3.8-live-vertex", "gemini-3.8-live", true},
}

// variants are configs as clients send them, with fields for which some models close the session.
var variants = []string{
	`{}`,
	`{"generationConfig":{"responseModalities":["text"]}}`,
	`{"generationConfig":{"responseModalities":["audio","text"]}}`,
	`{"generationConfig":{"responseModalities":["audio","text","image"],"stopSequences":["x"]}}`,
	`{"generationConfig":{"responseModalities":["VIDEO"]}}`,
	`{"generationConfig":{"responseModalities":["VIDEO","TEXT"]},"avatarConfig":{"avatarName":"Ada"}}`,
	`{"generationConfig":{"temperature":0.5,"topP":0.9,"topK":40,"seed":1,"maxOutputTokens":100,"candidateCount":1,` +
		`"presencePenalty":0.1,"frequencyPenalty":0.1,"mediaResolution":"MEDIA_RESOLUTION_LOW"}}`,
	`{"generationConfig":{"speechConfig":{"languageCode":"de-DE","voiceConfig":{"prebuiltVoiceConfig":{"voiceName":"Kore"}}}}}`,
	`{"generationConfig":{"speechConfig":{"multiSpeakerVoiceConfig":{"speakerVoiceConfigs":[]}},` +
		`"translationConfig":{"targetLanguageCode":"de"}}}`,
	`{"generationConfig":{"thinkingConfig":{}}}`,
	`{"generationConfig":{"thinkingConfig":{"thinkingBudget":0}}}`,
	`{"generationConfig":{"thinkingConfig":{"thinkingBudget":-1,"includeThoughts":true}}}`,
	`{"generationConfig":{"thinkingConfig":{"thinkingBudget":9000}}}`,
	`{"generationConfig":{"thinkingConfig":{"thinkingLevel":"minimal"}}}`,
	`{"generationConfig":{"thinkingConfig":{"thinkingLevel":"HIGH","thinkingBudget":5}}}`,
	`{"generationConfig":{"enableAffectiveDialog":true},"proactivity":{"proactiveAudio":true}}`,
	`{"generationConfig":{"enableAffectiveDialog":false},"proactivity":{"proactiveAudio":false}}`,
	`{"proactivity":{}}`,
	`{"proactivity":{"proactiveAudio":true,"proactiveVideo":true},"inputAudioTranscription":{"mode":"SMART","sourceText":"x"}}`,
	`{"systemInstruction":"Be brief."}`,
	`{"system_instruction":{"role":"system","parts":[{"text":"Be brief."},{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]}}`,
	`{"tools":[{"googleSearch":{}},` +
		`{"functionDeclarations":[{"name":"f","behavior":"NON_BLOCKING"},{"name":"g","behavior":"BLOCKING"},{"name":"h"}]}]}`,
	`{"tools":[{"googleSearchRetrieval":{},"codeExecution":{},"urlContext":{},"googleMaps":{},` +
		`"functionDeclarations":[{"name":"f","parametersJsonSchema":{"type":"object",` +
		`"properties":{"a":{"type":"array"},"b":{"enum":["","x"]}},"required":["a","z"],"additionalProperties":false}}]}]}`,
	`{"tools":[]}`,
	`{"realtimeInputConfig":{"automaticActivityDetection":{"disabled":true}}}`,
	`{"realtimeInputConfig":{"automaticActivityDetection":{"disabled":true,"prefixPaddingMs":100},` +
		`"turnCoverage":"TURN_INCLUDES_AUDIO_ACTIVITY_AND_ALL_VIDEO"}}`,
	`{"realtimeInputConfig":{"turnCoverage":"turn_includes_audio_activity_and_all_video","activityHandling":"ACTIVITY_HANDLING_UNSPECIFIED"}}`,
	`{"voxgate":{"vad":{"enabled":false},"interrupts":{"enabled":false},` +
		`"enableResumption":false,"contextCompression":false,"maxDuration":"2h"}}`,
	`{"voxgate":{"vad":{"sensitivity":0.2,"silenceDurationMs":400,"prefixPaddingMs":40}}}`,
	`{"sessionResumption":{"handle":"x","transparent":true},"historyConfig":{"initialHistoryInClientContent":true},` +
		`"explicitVadSignal":true,"labels":{"a":"b"}}`,
	`{"safetySettings":[{"category":"HARM_CATEGORY_HARASSMENT","threshold":"BLOCK_NONE","method":"SEVERITY"}]}`,
	`{"contextWindowCompression":{"triggerTokens":30000,"slidingWindow":{"targetTokens":"10000"}}}`,
	`{"contextWindowCompression":{}}`,
	`{"inputAudioTranscription":null,"outputAudioTranscription":{"languageCodes":["de-DE"],"mode":"smart"}}`,
	`{"colour":"blue","generationConfig":{"loudness":11}}`,
}

// TestNothingTranslatedIsRefused compares the table of models with the emulator's own, which was made independently
// from the same documents: no accepted config ends in a closed socket.
func TestNothingTranslatedIsRefused(t *testing.T) {
	e := emulator.New(emulator.Options{Espeak: emulator.NoVoice})
	server := httptest.NewServer(e)
	t.Cleanup(func() { server.Close(); e.Close() })
	for _, m := range conversational {
		client := door(m.vertex)
		client.BaseURL = server.URL
		for _, variant := range variants {
			config, err := liveconfig.Parse(named(m.model, variant), "c", liveconfig.Scope{Vertex: client.Vertex, Screen: true})
			if err != nil {
				t.Errorf("%s: %s: %v", m.row, variant, err)
				continue
			}
			if known, dropped := config.WithoutNewerFields(); dropped != nil { // what a server refuses has a test at the doors
				config = known
			}
			if config.Profile.Name != m.row {
				t.Fatalf("%s is in the row %s", m.model, config.Profile.Name)
			}
			conn, err := gemini.Dial(t.Context(), client, config.Setup("", nil))
			if err != nil {
				t.Errorf("%s: %s became %s: %v", m.row, variant, config.Effective(), err)
				continue
			}
			_ = conn.Close()
			again, err := liveconfig.Parse(config.Effective(), "c", liveconfig.Scope{Vertex: client.Vertex, Screen: true})
			if err != nil || len(again.Warnings) > 0 {
				t.Errorf("%s: %s needs another translation: %v %v", m.row, config.Effective(), again.Warnings, err)
			}
		}
	}
}

// TestModelTable asserts what is sent for each row and field that has a rule.
func TestModelTable(t *testing.T) {
	const blank = "" // the field is not sent
	type rule struct {
		row, in, field, want string
		warns                string // a piece of the only warning; "" for none
	}
	thinking := func(row, in, want, warns string) rule {
		return rule{row, `{"generationConfig":{"thinkingConfig":` + in + `}}`, "generationConfig.thinkingConfig", want, warns}
	}
	moody := func(row, field, in, want, warns string) rule {
		if field == "proactivity" {
			return rule{row, `{"proactivity":{"proactiveAudio":` + in + `}}`, field, want, warns}
		}
		return rule{row, `{"generationConfig":{"enableAffectiveDialog":` + in + `}}`, "generationConfig.enableAffectiveDialog", want, warns}
	}
	coverage := func(row, in, want, warns string) rule {
		return rule{row, `{"realtimeInputConfig":` + in + `}`, "realtimeInputConfig.turnCoverage", want, warns}
	}
	const (
		manual   = `{"automaticActivityDetection":{"disabled":true}}`
		video    = `{"turnCoverage":"TURN_INCLUDES_AUDIO_ACTIVITY_AND_ALL_VIDEO"}`
		both     = `{"automaticActivityDetection":{"disabled":true},"turnCoverage":"TURN_INCLUDES_AUDIO_ACTIVITY_AND_ALL_VIDEO"}`
		activity = `{"automaticActivityDetection":{"disabled":true},"turnCoverage":"TURN_INCLUDES_ONLY_ACTIVITY"}`
		all      = `"TURN_INCLUDES_ALL_INPUT"`
		allVideo = `"TURN_INCLUDES_AUDIO_ACTIVITY_AND_ALL_VIDEO"`
	)
	for _, r := range []rule{
		thinking("2.5-native-audio", `{"thinkingBudget":0}`, `{"thinkingBudget":0}`, ""),
		thinking("2.5-native-audio", `{"thinkingLevel":"high"}`, `{"thinkingBudget":24576}`, "sent as thinkingBudget 24576"),
		thinking("2.5-native-audio-vertex", `{"thinkingLevel":"MINIMAL","includeThoughts":true}`, `{"includeThoughts":true,"thinkingBudget":0}`,
			"thinkingBudget 0"),
		thinking("2.5-flash-vertex", `{"thinkingLevel":"LOW","thinkingBudget":7}`, `{"thinkingBudget":7}`, "thinkingLevel was dropped"),
		thinking("3.1-flash-live", `{"thinkingLevel":"minimal"}`, `{"thinkingLevel":"MINIMAL"}`, ""),
		thinking("3.1-flash-live", `{"thinkingBudget":0}`, `{"thinkingLevel":"MINIMAL"}`, "sent as thinkingLevel MINIMAL"),
		thinking("3.1-flash-live", `{"thinkingBudget":1025}`, `{"thinkingLevel":"MEDIUM"}`, "sent as thinkingLevel MEDIUM"),
		thinking("3.1-flash-live", `{"thinkingBudget":-1}`, blank, "thinkingBudget was dropped"),
		thinking("3.8-live", `{"thinkingLevel":"LOW"}`, blank, "thinkingConfig was dropped"),
		thinking("3.8-live-vertex", `{}`, blank, "thinkingConfig was dropped"),
		thinking("3.8-live-extended-thinking", `{}`, `{"thinkingLevel":"LOW"}`, ""),
		thinking("3.8-live-extended-thinking", `{"thinkingLevel":"minimal"}`, `{"thinkingLevel":"LOW"}`, "became LOW"),
		thinking("3.8-live-extended-thinking", `{"thinkingLevel":"THINKING_LEVEL_UNSPECIFIED"}`, `{"thinkingLevel":"LOW"}`, ""),
		thinking("3.8-live-extended-thinking", `{"thinkingBudget":24576}`, `{"thinkingLevel":"HIGH"}`, "sent as thinkingLevel HIGH"),
		thinking("3.8-live-extended-thinking", `{"thinkingBudget":-1}`, `{"thinkingLevel":"LOW"}`, "thinkingBudget was dropped"),
		thinking("unknown", `{"thinkingBudget":5}`, `{"thinkingBudget":5}`, ""),
		thinking("unknown", `{"thinkingBudget":5,"thinkingLevel":"LOW"}`, `{"thinkingLevel":"LOW"}`, "thinkingBudget was dropped"),

		moody("2.5-native-audio", "proactivity", "true", `{"proactiveAudio":true}`, ""),
		moody("2.5-native-audio", "proactivity", "false", blank, ""),
		moody("2.5-native-audio-vertex", "proactivity", "true", `{"proactiveAudio":true}`, ""),
		moody("2.5-flash-vertex", "proactivity", "true", blank, "proactivity was dropped"),
		moody("3.1-flash-live", "proactivity", "true", blank, "proactivity was dropped"),
		moody("3.8-live", "proactivity", "true", blank, ""),
		moody("3.8-live", "proactivity", "false", blank, "always proactive"),
		moody("3.8-live-extended-thinking", "proactivity", "false", blank, "always proactive"),
		{"3.8-live", `{"proactivity":{"proactiveVideo":true}}`, "proactivity", `{"proactiveVideo":true}`, ""},
		{
			"2.5-native-audio", `{"proactivity":{"proactiveAudio":true,"proactiveVideo":true}}`,
			"proactivity", `{"proactiveAudio":true,"proactiveVideo":true}`, "",
		},
		{"2.5-native-audio", `{"proactivity":{"proactiveVideo":true}}`, "proactivity", blank, "requires proactiveAudio"},
		{"3.1-flash-live", `{"proactivity":{"proactiveVideo":true}}`, "proactivity", blank, "proactivity was dropped"},
		{
			"3.5-transcribe-live", `{"inputAudioTranscription":{"mode":"SMART","sourceText":"x"}}`,
			"inputAudioTranscription", `{"mode":"SMART","sourceText":"x"}`, "",
		},
		{
			"3.8-live", `{"generationConfig":{"thinking_speed":{"a_b":1}}}`,
			"generationConfig.thinkingSpeed", `{"a_b":1}`, "is newer than this gateway",
		},
		{"3.8-live", `{"generationConfig":{"thinking speed":1}}`, "generationConfig.thinking speed", blank, "does not have it"},
		{"3.8-live", `{"thinkingSpeed":1}`, "thinkingSpeed", blank, "does not have it"},

		moody("2.5-native-audio", "affective", "true", `true`, ""),
		moody("2.5-native-audio-vertex", "affective", "true", `true`, ""),
		moody("3.1-flash-live", "affective", "true", blank, "enableAffectiveDialog was dropped"),
		moody("3.8-live", "affective", "true", blank, "enableAffectiveDialog was dropped"),
		moody("3.8-live", "affective", "false", blank, ""),

		coverage("2.5-native-audio", manual, blank, ""),
		coverage("3.1-flash-live", manual, all, ""),
		coverage("3.8-live", manual, all, ""),
		coverage("3.8-live", both, all, "became TURN_INCLUDES_ALL_INPUT"),
		coverage("3.8-live", activity, `"TURN_INCLUDES_ONLY_ACTIVITY"`, ""),
		coverage("3.8-live", video, allVideo, ""),
		coverage("3.8-live-vertex", both, all, "became TURN_INCLUDES_ALL_INPUT"),
		coverage("3.8-live-vertex", video, blank, "Vertex AI closes"),
		coverage("2.5-native-audio-vertex", both, blank, "Vertex AI closes"),

		{"3.8-live", `{"labels":{"a":"b"}}`, "labels", `{"a":"b"}`, ""},
		{"3.8-live-vertex", `{"labels":{"a":"b"}}`, "labels", blank, "Vertex AI does not have it"},
		{"3.8-live", `{"explicitVadSignal":true}`, "explicitVadSignal", blank, "the Gemini API does not have it"},
		{"3.8-live-vertex", `{"explicitVadSignal":true}`, "explicitVadSignal", `true`, ""},
		{"3.8-live", `{"avatarConfig":{"avatarName":"Ada"}}`, "avatarConfig", blank, "has no avatar"},
		{
			"3.8-live-vertex", `{"avatarConfig":{"avatarName":"Ada"},"generationConfig":{"responseModalities":["video"]}}`,
			"generationConfig.responseModalities", `["VIDEO"]`, "",
		},
		{
			"3.8-live-vertex", `{"generationConfig":{"responseModalities":["video"]}}`, "generationConfig.responseModalities", `["AUDIO"]`,
			"avatarConfig",
		},
		{
			"3.1-flash-live", `{"generationConfig":{"responseModalities":["VIDEO"]}}`, "generationConfig.responseModalities", `["AUDIO"]`,
			"has no avatar",
		},
		{"2.5-flash-vertex", `{"generationConfig":{"responseModalities":["text"]}}`, "generationConfig.responseModalities", `["TEXT"]`, ""},
		{
			"2.5-flash-vertex", `{"generationConfig":{"responseModalities":["text","audio"]}}`, "generationConfig.responseModalities", `["AUDIO"]`,
			"",
		},
		{
			"3.8-live", `{"safetySettings":[{"category":"HARM_CATEGORY_HARASSMENT","method":"SEVERITY"}]}`, "safetySettings",
			`[{"category":"HARM_CATEGORY_HARASSMENT"}]`, "method was dropped",
		},
		{
			"3.8-live", `{"generationConfig":{"translationConfig":{"targetLanguageCode":"de"}}}`, "generationConfig.translationConfig", blank,
			"does not translate",
		},
		{
			"3.8-live", `{"generationConfig":{"speechConfig":{"languageCode":"xx","multiSpeakerVoiceConfig":{}}}}`, "generationConfig.speechConfig",
			`{"languageCode":"xx"}`, "one voice",
		},
		{"3.8-live", `{"tools":[{"googleMaps":{}}]}`, "tools", blank, "googleMaps was dropped"},
		{"unknown", `{"tools":[{"codeExecution":{}}]}`, "tools", blank, "codeExecution was dropped"},
		{"3.8-live", `{"systemInstruction":[{"text":"a"},"b",{"text":""}]}`, "systemInstruction", `{"parts":[{"text":"a"},{"text":"b"}]}`, ""},
		{"3.8-live", `{"systemInstruction":{"text":"a"}}`, "systemInstruction", `{"parts":[{"text":"a"}]}`, ""},
		{"3.8-live", `{"systemInstruction":""}`, "systemInstruction", blank, ""},
		{
			"3.5-live-translate", `{"generationConfig":{"translationConfig":{"targetLanguageCode":"pl"}},"systemInstruction":"Hi"}`,
			"generationConfig.translationConfig", `{"targetLanguageCode":"pl"}`, "systemInstruction was dropped",
		},
		{"3.5-live-translate", `{"tools":[{"functionDeclarations":[{"name":"f"}]}]}`, "tools", blank, "functionDeclarations was dropped"},
		{
			"3.5-transcribe-live", `{"generationConfig":{"responseModalities":["AUDIO"]}}`, "generationConfig.responseModalities", `["TEXT"]`,
			"does not speak",
		},
		{"3.5-transcribe-live", `{}`, "contextWindowCompression", blank, ""},
	} {
		t.Run(r.row+" "+r.in, func(t *testing.T) {
			client, model := door(strings.HasSuffix(r.row, "-vertex")), "gemini-9-live"
			for _, m := range conversational {
				if m.row == r.row {
					model = m.model
				}
			}
			if strings.HasPrefix(r.row, "3.5") {
				model = "gemini-" + r.row
			}
			config, err := liveconfig.Parse(named(model, r.in), "c", liveconfig.Scope{Vertex: client.Vertex, Screen: true})
			if err != nil {
				t.Fatal(err)
			}
			if config.Profile.Name != r.row {
				t.Fatalf("%s is in the row %q", model, config.Profile.Name)
			}
			if got := field(t, config.Effective(), r.field); got != r.want {
				t.Errorf("got %s, want %s", got, r.want)
			}
			if got := strings.Join(config.Warnings, " "); (r.warns == "") != (got == "") || !strings.Contains(got, r.warns) ||
				len(config.Warnings) > 1 {
				t.Errorf("warnings %q", config.Warnings)
			}
		})
	}
}
