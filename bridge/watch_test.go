package bridge_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"voxgate/bridge"
)

// A watcher gets one SetupComplete: at once if the setup is complete, otherwise when it is.
func TestWatchersGetOneSetup(t *testing.T) {
	for name, early := range map[string]bool{"before the set-up": true, "after it": false} {
		runWithFakeClock(t, func(t *testing.T) {
			r := newHarness(t)
			c := r.startCaller(bridge.SessionRequest{})
			var got []string
			watch := func() {
				t.Helper()
				synctest.Wait()
				<-c.seated
				stop, err := c.session.Watch(func(e bridge.Event) { got = append(got, fmt.Sprintf("%T", e.Body)) })
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(stop)
			}
			if early {
				watch()
			}
			r.up.NextConn().SendSetupComplete()
			synctest.Wait()
			if !early {
				watch()
			}
			synctest.Wait()
			setups := 0
			for _, kind := range got {
				if kind == "bridge.SetupComplete" {
					setups++
				}
			}
			if setups != 1 || !slices.Contains(got, "bridge.History") {
				t.Errorf("%s: it got %q", name, got)
			}
		})
	}
}
