package liveconfig_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/turns"
)

func TestOptions(t *testing.T) {
	const (
		activity = "realtimeInputConfig.automaticActivityDetection"
		handling = "realtimeInputConfig.activityHandling"
	)
	for _, c := range []struct {
		name, in    string
		want        liveconfig.Options
		field, sent string
		warns       []string
	}{
		{name: "none", in: `{}`, want: liveconfig.Options{Resumption: true}, field: "realtimeInputConfig"},
		{
			name: "null", in: `{"voxgate":{"vad":null,"maxDuration":null}}`, want: liveconfig.Options{Resumption: true},
			field: "realtimeInputConfig",
		},
		{
			name: "nothing said", in: `{"voxgate":{"vad":{},"interrupts":{"enabled":true}}}`, want: liveconfig.Options{Resumption: true},
			field: "realtimeInputConfig",
		},
		{name: "no resumption", in: `{"voxgate":{"enable_resumption":false}}`, want: liveconfig.Options{}},
		{name: "duration", in: `{"voxgate":{"maxDuration":"24h"}}`, want: liveconfig.Options{Resumption: true, MaxDuration: 24 * time.Hour}},
		{
			name: "silence", in: `{"voxgate":{"silence":{"after":"8s","say":"Ask.","times":0,"colour":1}}}`,
			want:  liveconfig.Options{Resumption: true, Silence: liveconfig.Silence{After: 8 * time.Second, Say: "Ask."}},
			warns: []string{"c.voxgate.silence.colour was dropped"},
		},
		{
			name: "history",
			in: `{"voxgate":{"history":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello"},` +
				`{"role":"model","content":"Yes?","at":1}]}}`,
			want: liveconfig.Options{
				Resumption: true, History: []liveconfig.HistoryTurn{{"user", "Hi"}, {"assistant", "Hello"}, {"assistant", "Yes?"}},
			},
			field: "historyConfig", warns: []string{"c.voxgate.history[2].at was dropped"},
		},
		{
			name: "compression on", in: `{"voxgate":{"contextCompression":true}}`, want: liveconfig.Options{Resumption: true},
			field: "contextWindowCompression", sent: `{"slidingWindow":{"targetTokens":"12800"},"triggerTokens":"25600"}`,
		},
		{
			name: "compression as the client has it",
			in:   `{"contextWindowCompression":{"triggerTokens":60000,"slidingWindow":{"targetTokens":"30000"}}}`,
			want: liveconfig.Options{Resumption: true}, field: "contextWindowCompression",
			sent: `{"slidingWindow":{"targetTokens":"30000"},"triggerTokens":"60000"}`,
		},
		{
			name: "compression as Google has it", in: `{"contextWindowCompression":{}}`,
			want: liveconfig.Options{Resumption: true}, field: "contextWindowCompression", sent: `{"slidingWindow":{}}`,
		},
		{
			name: "compression with much that is never dropped", in: `{"systemInstruction":"` + strings.Repeat("Be kind. ", 3000) + `"}`,
			want: liveconfig.Options{Resumption: true}, field: "contextWindowCompression", sent: `{"slidingWindow":{}}`,
		},
		{
			name: "compression off", in: `{"voxgate":{"contextCompression":false}}`, want: liveconfig.Options{Resumption: true},
			field: "contextWindowCompression",
		},
		{
			name: "compression off and on", in: `{"voxgate":{"contextCompression":false},"contextWindowCompression":{"triggerTokens":9}}`,
			want: liveconfig.Options{Resumption: true}, field: "contextWindowCompression", sent: `{"slidingWindow":{},"triggerTokens":"9"}`,
			warns: []string{"contextCompression was dropped"},
		},
		{
			name: "sensitive", in: `{"voxgate":{"vad":{"enabled":true,"sensitivity":0.5,"silenceDurationMs":700,"prefixPaddingMs":20}}}`,
			want: liveconfig.Options{Resumption: true, EndPause: 700 * time.Millisecond}, field: activity,
			sent: `{"disabled":false,"endOfSpeechSensitivity":"END_SENSITIVITY_HIGH","prefixPaddingMs":20,` +
				`"silenceDurationMs":700,"startOfSpeechSensitivity":"START_SENSITIVITY_HIGH"}`,
		},
		{
			name: "less sensitive", in: `{"voxgate":{"vad":{"sensitivity":0.49}}}`,
			want: liveconfig.Options{Resumption: true}, field: activity,
			sent: `{"endOfSpeechSensitivity":"END_SENSITIVITY_LOW","startOfSpeechSensitivity":"START_SENSITIVITY_LOW"}`,
		},
		{
			name: "manual", in: `{"voxgate":{"vad":{"enabled":false}}}`,
			want: liveconfig.Options{Resumption: true, Manual: true, PreRoll: 300 * time.Millisecond}, field: activity, sent: `{"disabled":true}`,
		},
		{
			name: "manual with padding", in: `{"voxgate":{"vad":{"enabled":false,"prefixPaddingMs":0}}}`,
			want: liveconfig.Options{Resumption: true, Manual: true}, field: activity, sent: `{"disabled":true,"prefixPaddingMs":0}`,
		},
		{
			name: "manual, Google's way",
			in:   `{"realtime_input_config":{"automatic_activity_detection":{"disabled":true,"prefix_padding_ms":"120"}}}`,
			want: liveconfig.Options{
				Resumption: true, Manual: true,
				PreRoll: 120 * time.Millisecond,
			}, field: activity, sent: `{"disabled":true,"prefixPaddingMs":120}`,
		},
		{
			name: "Google's own wins",
			in: `{"voxgate":{"vad":{"enabled":true,"silenceDurationMs":5},"interrupts":{"enabled":false}},` +
				`"realtime_input_config":{"automatic_activity_detection":{"disabled":true,"silence_duration_ms":7},` +
				`"activityHandling":"START_OF_ACTIVITY_INTERRUPTS"}}`,
			want: liveconfig.Options{
				Resumption: true, Manual: true,
				PreRoll: 300 * time.Millisecond,
			}, field: activity, sent: `{"disabled":true,"silenceDurationMs":7}`,
			warns: []string{"vad.enabled was dropped", "vad.silenceDurationMs was dropped", "interrupts.enabled was dropped"},
		},
		{
			name: "said twice alike",
			in:   `{"voxgate":{"vad":{"silenceDurationMs":7}},"realtimeInputConfig":{"automaticActivityDetection":{"silenceDurationMs":7}}}`,
			want: liveconfig.Options{Resumption: true, EndPause: 7 * time.Millisecond}, field: activity, sent: `{"silenceDurationMs":7}`,
		},
		{
			name: "the gateway decides about turns", in: `{"voxgate":{"turns":{"by":"gateway","patience":"patient","shield":"greeting"}}}`,
			want: liveconfig.Options{
				Resumption: true, Manual: true, PreRoll: 300 * time.Millisecond,
				Turns: turns.Settings{By: turns.ByGateway, Patience: turns.Patient, Shield: turns.ShieldGreeting},
			}, field: activity, sent: `{"disabled":true}`,
		},
		{
			name: "the gateway, by a silence and without interruptions",
			in:   `{"voxgate":{"turns":{"by":"gateway"},"vad":{"silenceDurationMs":700},"interrupts":{"enabled":false}}}`,
			want: liveconfig.Options{
				Resumption: true, Manual: true, PreRoll: 300 * time.Millisecond,
				Turns: turns.Settings{By: turns.ByGateway, Patience: turns.PatienceFixedAt(700 * time.Millisecond), Interrupt: turns.InterruptNever},
			}, field: handling,
		},
		{
			name: "the client decides about turns", in: `{"voxgate":{"turns":{"by":"client"}}}`,
			want: liveconfig.Options{Resumption: true, Manual: true, PreRoll: 300 * time.Millisecond}, field: activity, sent: `{"disabled":true}`,
		},
		{
			name: "the model decides about turns", in: `{"voxgate":{"turns":{"by":"model"}}}`,
			want: liveconfig.Options{Resumption: true}, field: activity, sent: `{"disabled":false}`,
		},
		{
			name: "patience of nobody", in: `{"voxgate":{"turns":{"patience":"quick"}}}`,
			want: liveconfig.Options{Resumption: true}, field: activity, warns: []string{"turns has no effect"},
		},
		{
			name: "turns, and Google's own field", in: `{"voxgate":{"turns":{"by":"gateway"}},` +
				`"realtimeInputConfig":{"automaticActivityDetection":{"disabled":false}}}`,
			want: liveconfig.Options{Resumption: true}, field: activity, sent: `{"disabled":false}`,
			warns: []string{"turns.by was dropped", "turns has no effect"},
		},
		{
			name: "turns of a model that translates",
			in:   `{"model":"gemini-3.5-live-translate-preview","voxgate":{"turns":{"by":"gateway"}}}`,
			want: liveconfig.Options{Resumption: true}, field: "realtimeInputConfig", sent: `{"automaticActivityDetection":{}}`,
			warns: []string{"turns has no effect: the model decides"},
		},
		{
			name: "no interruption", in: `{"voxgate":{"interrupts":{"enabled":false}}}`, want: liveconfig.Options{Resumption: true}, field: handling,
			sent: `"NO_INTERRUPTION"`,
		},
		{
			name: "not by the user", in: `{"voxgate":{"interrupts":{"enabled":true,"allowUserInterruption":false}}}`,
			want: liveconfig.Options{Resumption: true}, field: handling, sent: `"NO_INTERRUPTION"`,
		},
		{
			name: "interruption", in: `{"voxgate":{"interrupts":{"enabled":true,"allowUserInterruption":true}}}`,
			want: liveconfig.Options{Resumption: true}, field: handling,
		},
		{
			name: "unknown", in: `{"voxgate":{"colour":1,"vad":{"mode":2},"interrupts":{"x":3}}}`, want: liveconfig.Options{Resumption: true},
			warns: []string{"voxgate.vad.mode was dropped", "voxgate.interrupts.x was dropped", "voxgate.colour was dropped"}, field: "voxgate",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := parse(t, door(false), named("gemini-2.5-flash-native-audio-latest", c.in))
			if !reflect.DeepEqual(config.Options, c.want) {
				t.Errorf("%+v, want %+v", config.Options, c.want)
			}
			if c.field != "" && field(t, config.Effective(), c.field) != c.sent {
				t.Errorf("sent %s, want %s", field(t, config.Effective(), c.field), c.sent)
			}
			if len(config.Warnings) != len(c.warns) {
				t.Fatalf("warnings %q", config.Warnings)
			}
			for i, w := range c.warns {
				if !strings.Contains(config.Warnings[i], w) {
					t.Errorf("warning %q, want %q", config.Warnings[i], w)
				}
			}
		})
	}
}

func TestOptionErrors(t *testing.T) {
	for _, c := range []struct{ in, field string }{
		{`{"voxgate":7}`, "c.voxgate"},
		{`{"voxgate":{"enableResumption":"no"}}`, "c.voxgate.enableResumption"},
		{`{"voxgate":{"contextCompression":1}}`, "c.voxgate.contextCompression"},
		{`{"voxgate":{"maxDuration":30}}`, "c.voxgate.maxDuration"},
		{`{"voxgate":{"maxDuration":"30"}}`, "c.voxgate.maxDuration"},
		{`{"voxgate":{"maxDuration":"-1h"}}`, "c.voxgate.maxDuration"},
		{`{"voxgate":{"maxDuration":"0s"}}`, "c.voxgate.maxDuration"},
		{`{"voxgate":{"silence":"8s"}}`, "c.voxgate.silence"},
		{`{"voxgate":{"waiting":"tone"}}`, "c.voxgate.waiting"},
		{`{"voxgate":{"waiting":{"sound":1}}}`, "c.voxgate.waiting.sound"},
		{`{"voxgate":{"silence":{}}}`, "c.voxgate.silence.after"},
		{`{"voxgate":{"silence":{"after":"1s"}}}`, "c.voxgate.silence.after"},
		{`{"voxgate":{"silence":{"after":"8s","times":-1}}}`, "c.voxgate.silence.times"},
		{`{"voxgate":{"silence":{"after":"8s","say":"` + strings.Repeat("x", 5000) + `"}}}`, "c.voxgate.silence.say"},
		{`{"voxgate":{"history":{}}}`, "c.voxgate.history"},
		{`{"voxgate":{"history":["Hi"]}}`, "c.voxgate.history[0]"},
		{`{"voxgate":{"history":[{"role":"user","content":"Hi"},{"role":"system","content":"x"}]}}`, "c.voxgate.history[1].role"},
		{`{"voxgate":{"history":[{"role":"user","content":["Hi"]}]}}`, "c.voxgate.history[0].content"},
		{`{"voxgate":{"history":[{"role":"user","content":" "}]}}`, "c.voxgate.history[0].content"},
		{`{"voxgate":{"history":[{"role":"user","content":"` + strings.Repeat("ß",
			100_001) + `"},{"role":"user","content":"` + strings.Repeat("ß", 100_000) + `"}]}}`, "c.voxgate.history"},
		{
			`{"voxgate":{"history":[` + strings.Repeat(`{"role":"user","content":"Hi"},`, 100) + `{"role":"user","content":"Hi"}]}}`,
			"c.voxgate.history",
		},
		{`{"voxgate":{"turns":7}}`, "c.voxgate.turns"},
		{`{"voxgate":{"turns":{"by":"me"}}}`, "c.voxgate.turns.by"},
		{`{"voxgate":{"turns":{"by":"gateway","patience":{"most":5}}}}`, "c.voxgate.turns.patience.most"},
		{`{"voxgate":{"turns":{"by":"gateway","patient":true}}}`, "c.voxgate.turns.patient"},
		{`{"voxgate":{"vad":[]}}`, "c.voxgate.vad"},
		{`{"voxgate":{"vad":{"enabled":"yes"}}}`, "c.voxgate.vad.enabled"},
		{`{"voxgate":{"vad":{"sensitivity":1.1}}}`, "c.voxgate.vad.sensitivity"},
		{`{"voxgate":{"vad":{"sensitivity":"high"}}}`, "c.voxgate.vad.sensitivity"},
		{`{"voxgate":{"vad":{"silenceDurationMs":-1}}}`, "c.voxgate.vad.silenceDurationMs"},
		{`{"voxgate":{"vad":{"prefixPaddingMs":60000}}}`, "c.voxgate.vad.prefixPaddingMs"},
		{`{"voxgate":{"interrupts":true}}`, "c.voxgate.interrupts"},
		{`{"voxgate":{"interrupts":{"allowUserInterruption":0}}}`, "c.voxgate.interrupts.allowUserInterruption"},
		{`{"voxgate":{"vad":{"enabled":false}},"realtimeInputConfig":7}`, "c.realtimeInputConfig"},
		{
			`{"realtimeInputConfig":{"automaticActivityDetection":{"prefixPaddingMs":-5}}}`,
			"c.realtimeInputConfig.automaticActivityDetection.prefixPaddingMs",
		},
		{
			`{"realtimeInputConfig":{"automaticActivityDetection":{"disabled":true,"prefixPaddingMs":10001}}}`,
			"c.realtimeInputConfig.automaticActivityDetection.prefixPaddingMs",
		},
		{`{"realtimeInputConfig":{"turnCoverage":"ALL"}}`, "c.realtimeInputConfig.turnCoverage"},
		{`{"generationConfig":{"thinkingConfig":{"thinkingLevel":"deep"}}}`, "c.generationConfig.thinkingConfig.thinkingLevel"},
		{`{"generationConfig":{"thinkingConfig":{"thinkingBudget":-2}}}`, "c.generationConfig.thinkingConfig.thinkingBudget"},
		{`{"contextWindowCompression":{"triggerTokens":0}}`, "c.contextWindowCompression.triggerTokens"},
		{
			`{"contextWindowCompression":{"triggerTokens":9,"slidingWindow":{"targetTokens":9}}}`,
			"c.contextWindowCompression.slidingWindow.targetTokens",
		},
		{`{"contextWindowCompression":{"slidingWindow":{"targetTokens":-1}}}`, "c.contextWindowCompression.slidingWindow.targetTokens"},
	} {
		_, err := liveconfig.Parse(json.RawMessage(c.in), "c", liveconfig.Scope{Vertex: door(false).Vertex, Screen: true})
		if wrong, ok := errors.AsType[*liveconfig.FieldError](err); !ok || wrong.Field != c.field {
			t.Errorf("%.200s: %v, want %s", c.in, err, c.field)
		}
	}
}
