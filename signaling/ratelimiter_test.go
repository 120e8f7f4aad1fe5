package signaling_test

import (
	"testing"
	"testing/synctest"
	"time"

	"voxgate/signaling"
)

// Messages that take long to process make their client wait: in the long run it uses 0.1 s of processing per second.
func TestPaceOfWork(t *testing.T) {
	for _, test := range []struct {
		name        string
		n           int
		each        time.Duration // the time for processing a message
		least, most time.Duration // bounds of the time until all messages are admitted
	}{
		{"some long ones", 2, 200 * time.Millisecond, 400 * time.Millisecond, 400 * time.Millisecond},
		{"long ones", 100, 200 * time.Millisecond, 190 * time.Second, 200 * time.Second},
		{"one that hangs counts as a long one", 2, time.Minute, 2 * time.Minute, 2*time.Minute + 5*time.Second},
		{"quick ones", 200, time.Millisecond, 200 * time.Millisecond, 200 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			p, began := signaling.NewRateLimiter(), time.Now()
			for range test.n {
				p.WaitUntilAllowed(10)
				time.Sleep(test.each)
				p.ChargeTime(test.each)
			}
			if took := time.Since(began); took < test.least || took > test.most {
				t.Errorf("%s: %d took %v", test.name, test.n, took)
			}
			p.Release()
		})
	}
}

// The end of a connection releases all waits.
func TestPaceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, began := signaling.NewRateLimiter(), time.Now()
		for range 20 {
			p.ChargeTime(time.Second)
		}
		time.AfterFunc(time.Second, p.Release)
		if p.WaitUntilAllowed(10); time.Since(began) != time.Second {
			t.Errorf("it waited until %v", time.Since(began))
		}
	})
}
