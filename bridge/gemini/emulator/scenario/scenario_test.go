package scenario_test

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"voxgate/bridge/gemini/emulator/scenario"
)

func TestScenarioFile(t *testing.T) {
	data, err := os.ReadFile("testdata/scenario.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := scenario.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	want := scenario.Scenario{
		ConnectionAge: 10 * time.Minute, GoAwayLead: time.Minute, CloseCode: 1011,
		CloseReason:  "Deadline expired before operation could complete.",
		SessionLimit: scenario.Forever, MaxSessions: 3, BusyHTTP: true,
		HandleTTL: 2 * time.Hour, BadHandleCode: 1007, Handles: "withheld",
		ResumeWhileOpen: true, RememberSpeech: true, ForgetCalls: true,
		SlowPongs: 20 * time.Second, UnknownFields: true, Int64Strings: true, EmptyMessages: true,
		Faults: []scenario.Fault{
			{On: scenario.OnHandshake, Connections: []int{2}, HTTP: 429},
			{On: scenario.OnHandshake, Connections: []int{3}, After: time.Second, Drop: true},
			{On: scenario.OnSetup, Connections: []int{4}, Stall: scenario.Forever},
			{On: scenario.OnAudio, After: 2 * time.Second, Connections: []int{5, 6}, DropMidFrame: true},
			{On: scenario.OnAnswer, After: 300 * time.Millisecond, Nth: 2, Times: 1, Close: 1011, Reason: "The service is currently unavailable."},
			{On: scenario.OnToolCall, Stall: 8 * time.Second, Deaf: true},
			{On: scenario.OnTurnComplete, Nth: 3, Send: `{"error":{"code":500}}`},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestScenarioErrors wants each mistake named.
func TestScenarioErrors(t *testing.T) {
	for in, want := range map[string]string{
		``:                            "EOF",
		`[]`:                          "the whole must be an object",
		`{} {}`:                       "there is more",
		`{"conectionAge":"1m"}`:       `the whole has no field "conectionAge"; there are badHandleCode,`,
		`{"connectionAge":10}`:        "connectionAge must be a duration",
		`{"connectionAge":"10"}`:      "connectionAge must be a duration",
		`{"connectionAge":"-1s"}`:     "connectionAge must be a duration",
		`{"goAwayLead":"1m"}`:         "goAwayLead needs a connectionAge",
		`{"closeCode":1015}`:          "closeCode 1015 cannot be sent",
		`{"closeCode":7}`:             "closeCode 7 cannot be sent",
		`{"maxSessions":1.5}`:         "maxSessions must be a whole number",
		`{"maxSessions":-1}`:          "maxSessions must not be negative",
		`{"busyHTTP":"yes"}`:          "busyHTTP must be true or false",
		`{"badHandleCode":1000}`:      "badHandleCode must be",
		`{"handles":"sometimes"}`:     `handles "sometimes"`,
		`{"faults":{}}`:               "faults must be a list",
		`{"faults":[{"on":1}]}`:       "faults[0].on must be a string",
		`{"faults":[{},{"do":1}]}`:    `faults[1] has no field "do"`,
		`{"faults":[{"drop":true}]}`:  `faults[0]: on "" must be one of`,
		`{"faults":[{"on":"setup"}]}`: "faults[0]: must have exactly one of",
		`{"faults":[{"on":"setup","drop":true,"close":1011}]}`:            "faults[0]: must have exactly one of",
		`{"faults":[{"on":"setup","http":429}]}`:                          "http is for the handshake",
		`{"faults":[{"on":"handshake","http":418}]}`:                      "http 418 must be",
		`{"faults":[{"on":"handshake","close":1011}]}`:                    "a handshake can meet",
		`{"faults":[{"on":"setup","drop":true,"reason":"x"}]}`:            "reason needs close",
		`{"faults":[{"on":"setup","drop":true,"deaf":true}]}`:             "deaf needs stall",
		`{"faults":[{"on":"setup","close":99}]}`:                          "close 99 cannot be sent",
		`{"faults":[{"on":"setup","drop":true,"nth":-1}]}`:                "must not be negative",
		`{"faults":[{"on":"setup","drop":true,"connections":["first"]}]}`: "faults[0].connections[0] must be a whole number",
	} {
		if _, err := scenario.Parse([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
	if _, err := scenario.ParseFault([]byte(`{"on":"answer"}`)); err == nil || !strings.Contains(err.Error(), "fault: must have") {
		t.Errorf("%v", err)
	}
}
