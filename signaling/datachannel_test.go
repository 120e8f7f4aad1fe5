package signaling_test

import (
	"log/slog"
	"sync"
	"testing"

	"voxgate/signaling"
	"voxgate/signaling/rtc"
)

// TestDataChannelOpensAtTheEnd closes a channel while Pion opens it, and before that: the race detector finds a race
// of the two.
func TestDataChannelOpensAtTheEnd(t *testing.T) {
	for range 100 {
		o := rtc.PeerOptions{Logger: slog.New(slog.DiscardHandler)}
		c := signaling.NewDataChannel(&o, "events", func(signaling.Message) {})
		var opening sync.WaitGroup
		opening.Go(func() { o.Opened(nil) }) // not used, because there is no message
		c.Close()
		opening.Wait()
		o.Opened(nil)
		select {
		case err := <-c.Failures():
			t.Fatal(err)
		default:
		}
	}
}
