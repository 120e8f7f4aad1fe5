package phone_test

import (
	"context"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/signaling/phone"
)

// A number ends with #, after as many keys as the agent asks for, or when no key follows for 1.2 s.
func TestKeypadNumberEnd(t *testing.T) {
	type step struct {
		press string
		wait  time.Duration
		sent  []string
	}
	for name, test := range map[string]struct {
		most  int
		steps []step
	}{
		"a pause": {0, []step{
			{"1", 1100 * time.Millisecond, nil},
			{"2", 1100 * time.Millisecond, nil},
			{"", 200 * time.Millisecond, []string{"12"}},
		}},
		"#":   {0, []step{{"7#", 0, []string{"7#"}}, {"#", 0, []string{"#"}}}},
		"64":  {0, []step{{strings.Repeat("5", 64), 0, []string{strings.Repeat("5", 64)}}}},
		"one": {1, []step{{"1", 0, []string{"1"}}, {"2", 0, []string{"2"}}, {"#", 0, []string{"#"}}}},
		"four": {4, []step{
			{"1234", 0, []string{"1234"}},
			{"#", time.Second, nil},
			{"12#", 0, []string{"12#"}},
			{"56", 1300 * time.Millisecond, []string{"56"}},
			{"5678", 1300 * time.Millisecond, []string{"5678"}},
			{"#", 0, []string{"#"}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pad, sent := phone.NewKeypad(), make(chan bridge.Command, 8)
				ctx, cancel := context.WithCancel(t.Context())
				defer synctest.Wait()
				defer cancel()
				go pad.Run(ctx, slog.New(slog.DiscardHandler), test.most, func(c bridge.Command) error {
					sent <- c
					return nil
				})
				for _, s := range test.steps {
					for _, key := range []byte(s.press) {
						pad.PushKey(key)
					}
					time.Sleep(s.wait)
					synctest.Wait()
					var got []bridge.Command
					for len(sent) > 0 {
						got = append(got, <-sent)
					}
					var want []bridge.Command
					for _, keys := range s.sent {
						want = append(want, phone.KeysMessage(keys))
					}
					if !reflect.DeepEqual(got, want) {
						t.Errorf("after %q: sent %v, not %v", s.press, got, want)
					}
				}
			})
		})
	}
}
