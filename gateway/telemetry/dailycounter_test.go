package telemetry

import (
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
)

// The daily counts are reset at midnight, also without an observation after it.
func TestDailyCounterResetsAtMidnight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the fake clock starts at midnight UTC
		var day dailyCounter
		is := func(begun int, dollars float64) {
			t.Helper()
			if b, d := day.readCounts(); b != begun || d != dollars {
				t.Errorf("%d for $ %v", b, d)
			}
		}
		is(0, 0)
		for range 2 {
			day.observe(bridge.SessionStarted{})
			day.observe(bridge.SpendingReport{Dollars: 0.25})
		}
		day.observe(bridge.TurnEnd{})
		time.Sleep(24*time.Hour - time.Nanosecond)
		is(2, 0.5)
		time.Sleep(time.Nanosecond)
		is(0, 0)
		day.observe(bridge.SessionStarted{})
		is(1, 0)
	})
}
