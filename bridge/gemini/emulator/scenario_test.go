package emulator_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"voxgate/bridge/gemini/emulator"
)

func TestScenarioFile(t *testing.T) {
	got, err := emulator.ParseScenario([]byte(`{
		"connectionAge": "10m", "goAwayLead": "60s", "handleTTL": "2h", "handles": "withheld",
		"slowPongs": "20s",
		"faults": [
			{"on": "handshake", "connections": [2], "http": 429},
			{"on": "handshake", "connections": [3], "after": "1s", "drop": true},
			{"on": "setup", "connections": [4], "stall": true},
			{"on": "speechEnd", "after": "2s", "connections": [5, 6], "drop": true},
			{"on": "answer", "after": "300ms", "nth": 2, "times": 1, "close": 1011, "reason": "The service is currently unavailable."},
			{"on": "toolCall", "stall": true, "deaf": true},
			{"on": "turnComplete", "nth": 3, "send": "{\"error\":{\"code\":500}}"}
		]
	}`))
	if err != nil {
		t.Fatal(err)
	}
	want := emulator.Scenario{
		ConnectionAge: 10 * time.Minute, GoAwayLead: time.Minute, HandleTTL: 2 * time.Hour, Handles: "withheld",
		SlowPongs: 20 * time.Second,
		Faults: []emulator.Fault{
			{On: emulator.OnHandshake, Connections: []int{2}, HTTP: 429},
			{On: emulator.OnHandshake, Connections: []int{3}, After: time.Second, Drop: true},
			{On: emulator.OnSetup, Connections: []int{4}, Stall: true},
			{On: emulator.OnSpeechEnd, After: 2 * time.Second, Connections: []int{5, 6}, Drop: true},
			{On: emulator.OnAnswer, After: 300 * time.Millisecond, Nth: 2, Times: 1, Close: 1011, Reason: "The service is currently unavailable."},
			{On: emulator.OnToolCall, Stall: true, Deaf: true},
			{On: emulator.OnTurnComplete, Nth: 3, Send: `{"error":{"code":500}}`},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestScenarioErrors wants each mistake named.
func TestScenarioErrors(t *testing.T) {
	for in, want := range map[string]string{
		``:                        "EOF",
		`[]`:                      "cannot unmarshal array",
		`{} {}`:                   "there is more",
		`{"conectionAge":"1m"}`:   `unknown field "conectionAge"`,
		`{"connectionAge":10}`:    "connectionAge must be a duration",
		`{"connectionAge":"-1s"}`: "durations must not be negative",
		`{"goAwayLead":"1m"}`:     "goAwayLead needs a connectionAge",
		`{"handles":"sometimes"}`: `handles "sometimes"`,
		`{"faults":[{"on":1}]}`:   "faults.on",
		`{"faults":[{"do":1}]}`:   `unknown field "do"`,
		`{"faults":[{},{"on":"setup","after":"soon"}]}`:        "after must be a duration",
		`{"faults":[{"drop":true}]}`:                           `faults[0]: on "" must be one of`,
		`{"faults":[{"on":"setup","drop":true,"close":1011}]}`: "faults[0]: must have exactly one of",
		`{"faults":[{"on":"answer"}]}`:                         "faults[0]: must have exactly one of",
		`{"faults":[{"on":"setup","http":429}]}`:               "http is for the handshake",
		`{"faults":[{"on":"handshake","http":418}]}`:           "http 418 must be",
		`{"faults":[{"on":"handshake","close":1011}]}`:         "a handshake can meet",
		`{"faults":[{"on":"setup","drop":true,"reason":"x"}]}`: "reason needs close",
		`{"faults":[{"on":"setup","drop":true,"deaf":true}]}`:  "deaf needs stall",
		`{"faults":[{"on":"setup","close":1015}]}`:             "close 1015 cannot be sent",
		`{"faults":[{"on":"setup","drop":true,"nth":-1}]}`:     "must not be negative",
	} {
		if _, err := emulator.ParseScenario([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
}
