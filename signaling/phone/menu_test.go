package phone_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"voxgate/bridge"
	"voxgate/signaling/phone"
)

// A model that has called an automatic system must listen before it presses keys. It cannot press a key twice at the
// same announcement, and must give up when it goes in circles.
func TestMenuGuard(t *testing.T) {
	t.Parallel()
	const (
		first  = "says Welcome to Acme. For sales, press one. For support, press two. "
		second = "says For invoices, press one. For payments, press two. "
		again  = "says I did not get that. For sales, press one. For support, press two. "
	)
	for name, test := range map[string]string{ // events, and the result of each key press
		"listens first":       "press 1: listen; " + first + "; press 1: ok; press 1: listen; " + second + "; press 1: ok",
		"another key at once": first + "; press 1: ok; press 2: listen",
		"a key twice":         first + "; press 1: ok; " + again + "; press 1: same; press 2: ok",
		"after three rounds": first + "; press 1: ok; " + first + "; press 2: ok; " + again + "; press 3: ok; " +
			first + "; press 4: gave up; press 5: gave up",
		"another menu goes on": first + "; press 1: ok; " + first + "; press 2: ok; " +
			second + "; press 2: ok; " + second + "; press 1: ok",
		"a sentence in pieces":           "says For sales; says , press one; press 1: ok; says for sales, press one; press 1: same",
		"speech without a transcript":    "speaks; press 1: ok; speaks; press 1: ok",
		"the whole turn comes once more": first + "; final " + first + "; press 1: ok; final " + first + "; press 1: listen",
		"a key that was not pressed":     first + "; fails 1: fails; press 1: ok",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			menu := &phone.Menu{}
			for i, step := range strings.Split(test, "; ") {
				do, what, _ := strings.Cut(step, " ")
				switch do {
				case "says":
					menu.RecordSpeech(bridge.UserText{Text: what})
				case "final":
					menu.RecordSpeech(bridge.UserText{Text: what, Final: true})
				case "speaks":
					menu.RecordSpeech(bridge.UserSpeaking{Speaking: true})
					menu.RecordSpeech(bridge.UserSpeaking{})
				case "press", "fails":
					keys, want, _ := strings.Cut(what, ": ")
					pressed := false
					err := menu.PressKeys(keys, func() error {
						pressed = true
						if do == "fails" {
							return errors.New("fails")
						}
						return nil
					})
					if got := fmt.Sprint(err); want == "ok" && err != nil || want != "ok" && !strings.Contains(got, want) ||
						pressed != (want == "ok" || do == "fails") {
						t.Fatalf("step %d, %s: %v, pressed %t", i, step, err, pressed)
					}
				}
			}
		})
	}
	if err := (*phone.Menu)(nil).PressKeys("1", func() error { return nil }); err != nil {
		t.Error(err)
	}
}
