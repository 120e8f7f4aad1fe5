package turns_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"voxgate/bridge/turns"
)

func TestSettings(t *testing.T) {
	for text, want := range map[string]turns.Settings{
		`{}`:                 {},
		`{"by": "gateway"}`:  {By: turns.ByGateway},
		`{"patience": null}`: {},
		`{"patience":"quick", "interrupt":"never", "shield":"greeting"}`: {
			Patience: turns.Quick, Interrupt: turns.InterruptNever, Shield: turns.ShieldGreeting,
		},
		`{"patience": {"most": 1200}}`: {Patience: turns.PatienceAtMost(1200 * time.Millisecond)},
		`{"patience": "normal"}`:       {Patience: turns.Normal},
	} {
		var got turns.Settings
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

func TestSettingsErrors(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:                              "turns: must be an object",
		`{"by": "me"}`:                    "turns.by: must be model, gateway or client",
		`{"by": ""}`:                      "turns.by: must be model, gateway or client",
		`{"patience": "very"}`:            `turns.patience: must be quick, normal, patient or {"most": milliseconds}`,
		`{"patience": 500}`:               `turns.patience: must be quick, normal, patient or {"most": milliseconds}`,
		`{"patience": {"least": 5}}`:      "turns.patience.least: unknown field",
		`{"patience": {}}`:                "turns.patience.most: must be a number of milliseconds from 200 to 10000",
		`{"patience": {"most": 100}}`:     "turns.patience.most: must be a number of milliseconds from 200 to 10000",
		`{"patience": {"most": "1s"}}`:    "turns.patience.most: must be a number of milliseconds from 200 to 10000",
		`{"interrupt": true}`:             "turns.interrupt: must be at-once, speech or never",
		`{"shield": "all"}`:               "turns.shield: must be none or greeting",
		`{"by": "client", "shields": {}}`: "turns.shields: unknown field",
	} {
		s := turns.Settings{Shield: turns.ShieldGreeting}
		err := json.Unmarshal([]byte(text), &s)
		if field := (*turns.FieldError)(nil); !errors.As(err, &field) || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
		if s != (turns.Settings{Shield: turns.ShieldGreeting}) {
			t.Errorf("%s: settings changed to %+v", text, s)
		}
	}
}

// TestChangeKeepsOtherSettings decodes into existing settings, as an update does. Absent fields stay.
func TestChangeKeepsOtherSettings(t *testing.T) {
	s := turns.Settings{By: turns.ByGateway, Patience: turns.Patient}
	if err := json.Unmarshal([]byte(`{"interrupt":"never"}`), &s); err != nil {
		t.Fatal(err)
	}
	if want := (turns.Settings{By: turns.ByGateway, Patience: turns.Patient, Interrupt: turns.InterruptNever}); s != want {
		t.Errorf("%+v", s)
	}
}
