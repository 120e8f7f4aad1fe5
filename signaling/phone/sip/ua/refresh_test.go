package ua

import (
	"testing"
	"time"
)

// A session timer ends only calls whose other side is gone.
func TestSessionTimer(t *testing.T) {
	timer := sessionTimer{every: 90 * time.Second}
	begun := time.Now()
	c := &Call{timer: timer, liveness: liveness{refreshed: begun}}
	for after, want := range map[time.Duration]error{59 * time.Second: nil, 61 * time.Second: ErrRefresh} {
		if err := c.KeepAlive(begun.Add(after)); err != want {
			t.Errorf("after %v: %v", after, err)
		}
	}
	c.refreshed = begun.Add(50 * time.Second)
	if err := c.KeepAlive(begun.Add(100 * time.Second)); err != nil {
		t.Errorf("refreshed: %v", err)
	}
	theirs, ours := sessionTimer{every: 90 * time.Second}, sessionTimer{every: 90 * time.Second, isRefresher: true}
	for got, want := range map[string]string{
		theirs.header(false).Value(): "90;refresher=uac", ours.header(false).Value(): "90;refresher=uas",
		ours.header(true).Value(): "90;refresher=uac",
	} {
		if got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
	c.timer = sessionTimer{}
	if err := c.KeepAlive(begun.Add(time.Hour)); err != nil {
		t.Errorf("without a timer: %v", err)
	}
}
