package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"voxgate/bridge/gemini/emulator"
)

func TestEmulateFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "scenario.json")
	if err := os.WriteFile(file, []byte(`{"connectionAge":"10m","goAwayLead":"60s","slowPongs":"20s","faults":[{"on":"answer","drop":true}]}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	first := emulator.Fault{On: emulator.OnAnswer, Drop: true}
	second := emulator.Fault{On: emulator.OnHandshake, HTTP: 429, Times: 1}
	for _, c := range []struct {
		args string
		want emulator.Scenario
	}{
		{"", emulator.Scenario{}},
		{
			"--scenario " + file,
			emulator.Scenario{
				ConnectionAge: 10 * time.Minute, GoAwayLead: time.Minute, SlowPongs: 20 * time.Second,
				Faults: []emulator.Fault{first},
			},
		},
		{
			`--scenario {"handles":"withheld","faults":[{"on":"answer","drop":true},{"on":"handshake","http":429,"times":1}]}`,
			emulator.Scenario{Handles: "withheld", Faults: []emulator.Fault{first, second}},
		},
	} {
		addr, o, err := parseEmulateFlags(strings.Fields(c.args), io.Discard)
		if err != nil || addr != "127.0.0.1:3002" || !reflect.DeepEqual(o.Scenario, c.want) {
			t.Errorf("%s: %+v, %v", c.args, o.Scenario, err)
		}
	}
}

func TestEmulateMistakes(t *testing.T) {
	for args, want := range map[string]string{
		"--scenario /nowhere":              "scenario: open /nowhere",
		`--scenario {"conectionAge":"1m"}`: `unknown field "conectionAge"`,
		`--scenario {"goAwayLead":"5s"}`:   "goAwayLead needs a connectionAge",
		"--addr 0.0.0.0:1":                 "not a loopback address",
	} {
		if _, _, err := parseEmulateFlags(strings.Fields(args), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// TestEmulateHelp checks that the help lists every moment at which a fault may occur.
func TestEmulateHelp(t *testing.T) {
	var help bytes.Buffer
	if _, _, err := parseEmulateFlags([]string{"-h"}, &help); !errors.Is(err, flag.ErrHelp) {
		t.Fatal(err)
	}
	_, err := emulator.ParseScenario([]byte(`{"faults":[{"on":"lunch","drop":true}]}`))
	_, list, _ := strings.Cut(err.Error(), "must be one of [")
	for moment := range strings.FieldsSeq(strings.TrimSuffix(list, "]")) {
		if !strings.Contains(help.String(), moment) {
			t.Errorf("the help lacks %s", moment)
		}
	}
}
