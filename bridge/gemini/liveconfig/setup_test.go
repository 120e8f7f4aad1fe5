package liveconfig_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"voxgate/bridge/gemini"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/gemini/wire"
)

// standard is what every setup has unless the client says otherwise.
const (
	standard = window + `,"generationConfig":{"responseModalities":["AUDIO"]},` + others
	window   = `"contextWindowCompression":{"slidingWindow":{"targetTokens":"12800"},"triggerTokens":"25600"}`
	others   = `"inputAudioTranscription":{},"model":"models/gemini-3.8-live","outputAudioTranscription":{}`
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, in, want string
		warnings       []string // each a piece of one, in order
		textOnly       bool
		textToo        bool
		functions      []string
	}{
		{name: "nothing", in: ``, want: `{` + standard + `}`},
		{name: "empty", in: `{}`, want: `{` + standard + `}`},
		{
			name: "the guide's example",
			in: `{"model":"models/gemini-2.0-flash-live-001","systemInstruction":{"parts":[{"text":"Be <b>brief</b>."}]},
				"generationConfig":{"responseModalities":["audio"]}}`,
			want:     `{` + standard + `,"systemInstruction":{"parts":[{"text":"Be <b>brief</b>."}]}}`,
			warnings: []string{"gemini-2.0-flash-live-001 was shut down"},
		},
		{
			name: "text", in: `{"generationConfig":{"responseModalities":["text"]},"outputAudioTranscription":null}`, want: `{` + standard + `}`,
			warnings: []string{"stays on"}, textOnly: true,
		},
		{name: "text and audio", in: `{"generationConfig":{"responseModalities":["text","audio"]}}`, want: `{` + standard + `}`, textToo: true},
		{
			name: "no transcripts", in: `{"inputAudioTranscription":false,"outputAudioTranscription":null}`,
			want: `{` + window + `,"generationConfig":{"responseModalities":["AUDIO"]},"model":"models/gemini-3.8-live"}`,
		},
		{
			name: "numbers stay as they came",
			in:   `{"generationConfig":{"temperature":0,"topP":0.950,"topK":40,"seed":7,"maxOutputTokens":100,"presencePenalty":0.5}}`,
			want: `{` + window + `,"generationConfig":{"maxOutputTokens":100,"presencePenalty":0.5,"responseModalities":["AUDIO"],` +
				`"seed":7,"temperature":0,"topK":40,"topP":0.950},` + others + `}`,
		},
		{
			name: "snake_case and unknown names",
			in: `{"system_instruction":"Hi","generation_config":{"loudness":11,
				"speech_config":{"voice_config":{"prebuilt_voice_config":{"voice_name":"Aoede"}}}},"colour":"blue"}`,
			want: `{` + window + `,"generationConfig":{"loudness":11,"responseModalities":["AUDIO"],` +
				`"speechConfig":{"voiceConfig":{"prebuiltVoiceConfig":{"voiceName":"Aoede"}}}},` +
				others + `,"systemInstruction":{"parts":[{"text":"Hi"}]}}`,
			warnings: []string{"initialConfig.colour was dropped", "initialConfig.generationConfig.loudness is newer than this gateway"},
		},
		{
			name: "not of the Live API",
			in:   `{"generationConfig":{"stopSequences":["x"],"responseMimeType":"text/plain"},"sessionResumption":{"handle":"x"}}`,
			want: `{` + standard + `}`, warnings: []string{
				"sessionResumption was dropped", "responseMimeType was dropped",
				"stopSequences was dropped",
			},
		},
		{
			name: "all else",
			in: `{"realtimeInputConfig":{"automaticActivityDetection":{"disabled":false,"silenceDurationMs":"500"}},
				"contextWindowCompression":{"triggerTokens":25600,"slidingWindow":{}},
				"historyConfig":{"initialHistoryInClientContent":true},
				"labels":{"my_Key":"v"},
				"safetySettings":[{"category":"HARM_CATEGORY_HARASSMENT","threshold":"block_none"}],
				"voxgate":{"colour":true}}`,
			warnings: []string{"voxgate.colour was dropped", "historyConfig was dropped"},
			want: `{"contextWindowCompression":{"slidingWindow":{},"triggerTokens":"25600"},` +
				`"generationConfig":{"responseModalities":["AUDIO"]},` +
				`"inputAudioTranscription":{},` +
				`"labels":{"my_Key":"v"},` +
				`"model":"models/gemini-3.8-live",` +
				`"outputAudioTranscription":{},` +
				`"realtimeInputConfig":{"automaticActivityDetection":{"disabled":false,"silenceDurationMs":500}},` +
				`"safetySettings":[{"category":"HARM_CATEGORY_HARASSMENT","threshold":"BLOCK_NONE"}]}`,
		},
		{
			name: "search and functions", in: `{"tools":[{"googleSearch":{},"functionDeclarations":[{"name":"f","description":"d"}]}]}`,
			want:      `{` + standard + `,"tools":[{"functionDeclarations":[{"description":"d","name":"f"}]},{"googleSearch":{}}]}`,
			functions: []string{"f"},
		},
		{
			name: "JSON Schema",
			in: `{"tools":[{"functionDeclarations":[
				{"name":"f","parametersJsonSchema":{
					"$schema":"x","type":"object","additionalProperties":false,"required":["my_city"],
					"properties":{
						"my_city":{"type":["string","null"],"format":"uri"},
						"n":{"type":"integer","enum":[1,2]},
						"unit":{"const":"C"},
						"list":{"type":"array","items":{"oneOf":[{"type":"number"},{"$ref":"#/$defs/x"}]}}},
					"$defs":{"x":{"type":"object","properties":{"a":{"type":["string","integer"]}}}}}},
				{"name":"g","parameters":{"type":"object","properties":{}}}]}]}`,
			want: `{` + standard + `,"tools":[{"functionDeclarations":[` +
				`{"name":"f","parameters":{"properties":{` +
				`"list":{"items":{"anyOf":[` +
				`{"type":"NUMBER"},{"properties":{"a":{"anyOf":[{"type":"STRING"},{"type":"INTEGER"}]}},"type":"OBJECT"}]},"type":"ARRAY"},` +
				`"my_city":{"nullable":true,"type":"STRING"},` +
				`"n":{"description":"One of: 1,2","type":"INTEGER"},` +
				`"unit":{"enum":["C"],"type":"STRING"}},"required":["my_city"],"type":"OBJECT"}},` +
				`{"name":"g"}]}]}`,
			warnings: []string{"my_city.format was dropped", "n.enum was dropped"}, functions: []string{"f", "g"},
		},
		{
			name: "behavior",
			in: `{"tools":[{"functionDeclarations":[
				{"name":"f","defaultBehavior":"blocking","scheduling":"SILENT","defaultScheduling":"SILENT"},
				{"name":"g","behavior":"non_blocking"}]}]}`,
			want: `{` + standard + `,"tools":[{"functionDeclarations":[` +
				`{"behavior":"BLOCKING","name":"f"},{"behavior":"NON_BLOCKING","name":"g"}]}]}`,
			warnings: []string{"functionDeclarations[0].scheduling was dropped"}, functions: []string{"f", "g"},
		},
		{
			name: "functions that cannot be declared",
			in: `{"tools":[
				{"functionDeclarations":[
					{"name":"loops","parameters":{"type":"object","minProperties":1}},
					{"name":"odd","parameters":["x"]},
					{"name":"list","parametersJsonSchema":{"type":"array"}},
					{"name":"f"}]},
				{"functionDeclarations":[{"name":"elsewhere","parameters":"https://example.com"}]}]}`,
			want:     `{` + standard + `,"tools":[{"functionDeclarations":[{"name":"f"}]}]}`,
			warnings: []string{`parameters of "loops" cannot be declared to Gemini`, `"odd"`, `"list"`, `"elsewhere"`}, functions: []string{"f"},
		},
		{
			name: "all of it",
			in: `{"tools":[{"functionDeclarations":[{"name":"f",
				"parameters":{"allOf":[
					{"properties":{"a":{"type":"string"}},"required":["a"]},
					{"properties":{"b":{"type":"string","title":"B"}},"required":["b"]}]},
				"response":{"type":"array","items":{"type":"string"}}}]}]}`,
			want: `{` + standard + `,"tools":[{"functionDeclarations":[{"name":"f",` +
				`"parameters":{"properties":{"a":{"type":"STRING"},"b":{"title":"B","type":"STRING"}},"required":["a","b"],"type":"OBJECT"},` +
				`"response":{"items":{"type":"STRING"},"type":"ARRAY"}}]}]}`,
			functions: []string{"f"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			config, err := liveconfig.Parse(json.RawMessage(c.in), "initialConfig", liveconfig.Scope{Screen: true})
			if err != nil {
				t.Fatal(err)
			}
			if got := string(config.Effective()); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if len(config.Warnings) != len(c.warnings) {
				t.Errorf("warnings %q", config.Warnings)
			} else {
				for i, w := range config.Warnings {
					if !strings.Contains(w, c.warnings[i]) || !strings.HasSuffix(w, ".") {
						t.Errorf("warning %q, want %q", w, c.warnings[i])
					}
				}
			}
			if config.TextOnly != c.textOnly || config.TextToo != c.textToo {
				t.Errorf("TextOnly is %v, TextToo %v", config.TextOnly, config.TextToo)
			}
			if names := namesOf(config); !slices.Equal(names, c.functions) {
				t.Errorf("functions %q", names)
			}
			// What was made of a config needs no further change.
			again, err := liveconfig.Parse(config.Effective(), "again", liveconfig.Scope{Screen: true})
			if err != nil || !json.Valid(config.Effective()) {
				t.Fatal(err)
			}
			if a, b := string(again.Effective()), string(config.Effective()); a != b && again.Model == config.Model && c.name != "no transcripts" {
				t.Errorf("not stable: %s", a)
			}
		})
	}
}

func namesOf(config liveconfig.Config) (names []string) {
	for _, f := range config.Functions {
		names = append(names, f.Name)
	}
	return names
}

func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ in, field, problem string }{
		{`{`, "c", "not valid JSON"},
		{`[]`, "c", "must be an object"},
		{`"x"`, "c", "must be an object"},
		{`{"model":7}`, "c.model", "must be a string"},
		{`{"model":"../x y"}`, "c.model", "not the name"},
		{`{"voxgate":[]}`, "c.voxgate", "must be an object"},
		{`{"generationConfig":7}`, "c.generationConfig", "must be an object"},
		{`{"generationConfig":{"topK":"forty"}}`, "c.generationConfig.topK", "must be a number"},
		{`{"generationConfig":{"topK":40.5}}`, "c.generationConfig.topK", "whole number"},
		{`{"generationConfig":{"temperature":3}}`, "c.generationConfig.temperature", "from 0 to 2"},
		{`{"generationConfig":{"maxOutputTokens":true}}`, "c.generationConfig.maxOutputTokens", "whole number"},
		{`{"generationConfig":{"responseModalities":["audio","smell"]}}`, "c.generationConfig.responseModalities[1]", "must be"},
		{`{"generationConfig":{"responseModalities":{}}}`, "c.generationConfig.responseModalities", "must be an array"},
		{
			`{"generationConfig":{"speechConfig":{"voiceConfig":{"prebuiltVoiceConfig":{"voiceName":{}}}}}}`,
			"c.generationConfig.speechConfig.voiceConfig.prebuiltVoiceConfig.voiceName", "must be a string",
		},
		{`{"systemInstruction":{"parts":"x"}}`, "c.systemInstruction.parts", "must be an array"},
		{`{"systemInstruction":{"parts":[null]}}`, "c.systemInstruction.parts[0]", "must not be null"},
		{
			`{"realtimeInputConfig":{"automaticActivityDetection":{"disabled":"yes"}}}`, "c.realtimeInputConfig.automaticActivityDetection.disabled",
			"true or false",
		},
		{`{"tools":7}`, "c.tools", "must be an array"},
		{`{"tools":[7]}`, "c.tools[0]", "must be an object"},
		{`{"tools":[{"functionDeclarations":[{"name":" "}]}]}`, "c.tools[0].functionDeclarations[0].name", "must be a text"},
		{`{"tools":[{"functionDeclarations":[{"name":7}]}]}`, "c.tools[0].functionDeclarations[0].name", "must be a text"},
		{
			`{"tools":[{"googleSearch":{}},{"functionDeclarations":[{"name":"f"}]},{"functionDeclarations":[{"name":"f"}]}]}`,
			"c.tools[2].functionDeclarations[0].name", "declared twice",
		},
		{`{"tools":[{"functionDeclarations":[{"name":"f","behavior":"LAZY"}]}]}`, "c.tools[0].functionDeclarations[0].behavior", "BLOCKING"},
		{`{"tools":[{"functionDeclarations":[{"name":"f","timeout":"1h"}]}]}`, "c.tools[0].functionDeclarations[0].timeout", "at most 5m"},
		{`{"tools":[{"functionDeclarations":[{"name":"f","timeout":7}]}]}`, "c.tools[0].functionDeclarations[0].timeout", "must be a duration"},
		{
			`{"tools":[{"functionDeclarations":[{"name":"f","defaultScheduling":"LATER"}]}]}`, "c.tools[0].functionDeclarations[0].scheduling",
			"SILENT, WHEN_IDLE or INTERRUPT",
		},
		{`{"labels":{"a":{}}}`, "c.labels.a", "must be a string"},
	} {
		_, err := liveconfig.Parse(json.RawMessage(c.in), "c", liveconfig.Scope{Screen: true})
		wrong, ok := errors.AsType[*liveconfig.FieldError](err)
		if !ok || wrong.Field != c.field || !strings.Contains(wrong.Problem, c.problem) {
			t.Errorf("%s: %v, want %s %s", c.in, err, c.field, c.problem)
		}
	}
}

func TestWarningsAreBounded(t *testing.T) {
	fields := make(map[string]int)
	for i := range 1000 {
		fields["x"+strings.Repeat("y", i)] = i
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	config, err := liveconfig.Parse(raw, "c", liveconfig.Scope{Screen: true})
	if err != nil || len(config.Warnings) > 40 {
		t.Errorf("%d warnings, %v", len(config.Warnings), err)
	}
}

func TestSetup(t *testing.T) {
	history := []wire.Content{
		{Role: "user", Parts: json.RawMessage(`[{"text":"a"}]`)},
		{Role: "model", Parts: json.RawMessage(`[{"text":"b"}]`)},
	}
	for _, c := range []struct {
		name, model, config string
		handle              string
		history             []wire.Content
		want                gemini.Setup // without Object
	}{
		{name: "fresh", model: "gemini-3.8-live", want: gemini.Setup{Resumable: true}},
		{name: "resumed", model: "gemini-3.8-live", handle: "h", history: history, want: gemini.Setup{Resumable: true, Handle: "h"}},
		{name: "no resumption", model: "gemini-3.8-live", config: `"voxgate":{"enableResumption":false}`, want: gemini.Setup{}},
		{name: "history", model: "gemini-3.8-live", history: history, want: gemini.Setup{Resumable: true, History: history}},
		{
			name: "history on 3.1", model: "gemini-3.1-flash-live-preview", history: history,
			want: gemini.Setup{Resumable: true, History: history, AnnounceHistory: true},
		},
		{
			name: "resumed on 3.1", model: "gemini-3.1-flash-live-preview", handle: "h", history: history,
			want: gemini.Setup{Resumable: true, Handle: "h"},
		},
		{name: "a model without", model: "gemini-3.5-live-translate-preview", history: history, want: gemini.Setup{Resumable: true}},
		{
			name: "proactive", model: "gemini-2.5-flash-native-audio-latest", config: `"proactivity":{"proactiveAudio":true}`,
			want: gemini.Setup{Resumable: true, Alpha: true},
		},
		{
			name: "affective", model: "gemini-2.5-flash-native-audio-latest", config: `"generationConfig":{"enableAffectiveDialog":true}`,
			want: gemini.Setup{Resumable: true, Alpha: true},
		},
		{
			name: "not proactive", model: "gemini-2.5-flash-native-audio-latest", config: `"proactivity":{"proactiveAudio":false}`,
			want: gemini.Setup{Resumable: true},
		},
		{
			name: "proactive anyway", model: "gemini-3.8-live", config: `"proactivity":{"proactiveAudio":true}`,
			want: gemini.Setup{Resumable: true},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := parse(t, door(false), named(c.model, `{`+c.config+`}`))
			got := config.Setup(c.handle, c.history)
			if field(t, got.Object, "model") != `"models/`+c.model+`"` || !bytes.Equal(got.Object, config.Effective()) {
				t.Errorf("the setup is %s", got.Object)
			}
			if got.Object = nil; !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"model":"m","tools":[{"googleSearch":{},
		"functionDeclarations":[{"name":"f","parameters":{"type":["a",null],"anyOf":[{}],"items":{}}}]}]}`))
	f.Add(
		[]byte(`{"generationConfig":{"responseModalities":["text"],"topK":1e2,"seed":"07"},"contextWindowCompression":{"triggerTokens":"1"}}`),
	)
	f.Add([]byte(`{"avatarConfig":{"x":1},"labels":{"a":null},"system_instruction":"x","generationConfig":{"thinkingConfig":null}}`))
	for _, variant := range variants {
		for _, m := range conversational {
			f.Add([]byte(named(m.model, variant)))
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, client := range []*api.Client{door(false), door(true)} {
			config, err := liveconfig.Parse(raw, "c", liveconfig.Scope{Vertex: client.Vertex, Screen: true})
			if err != nil {
				if _, ok := errors.AsType[*liveconfig.FieldError](err); !ok {
					t.Fatalf("%T", err)
				}
				continue
			}
			if known, dropped := config.WithoutNewerFields(); dropped != nil {
				config = known
			}
			again, err := liveconfig.Parse(config.Effective(), "c", liveconfig.Scope{Vertex: client.Vertex, Screen: true})
			if err != nil {
				t.Fatalf("%s is refused: %v", config.Effective(), err)
			}
			if again.Model != config.Model {
				t.Fatalf("model %q became %q", config.Model, again.Model)
			}
			if len(again.Warnings) > 0 {
				t.Fatalf("%s needs another translation: %q", config.Effective(), again.Warnings)
			}
			if _, ok := config.InPlaceUpdate(config); !ok {
				t.Fatal("not equal to itself")
			}
			config.TypedTurnMessages(raw, true)
		}
	})
}
