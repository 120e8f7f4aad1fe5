package signaling_test

import (
	"log/slog"
	"sync"
	"testing"

	"github.com/pion/webrtc/v4"

	"voxgate/signaling"
	"voxgate/signaling/rtc"
)

// TestDataChannelOpensAtTheEnd closes a channel while Pion opens it, and then lets Pion open it once more. The race detector
// would report a race between closing and opening.
func TestDataChannelOpensAtTheEnd(t *testing.T) {
	for range 100 {
		o := rtc.PeerOptions{Logger: slog.New(slog.DiscardHandler)}
		c := signaling.NewDataChannel(&o, "events", func(signaling.Message) {})
		var opening sync.WaitGroup
		channel := rtc.NewChannel(new(webrtc.DataChannel), 1<<10) // has nothing to send
		opening.Go(func() { o.Opened(channel) })
		c.Close()
		opening.Wait()
		o.Opened(channel)
		select {
		case err := <-c.Failures():
			t.Fatal(err)
		default:
		}
	}
}
