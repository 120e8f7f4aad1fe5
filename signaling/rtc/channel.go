package rtc

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/pion/webrtc/v4"
)

const (
	// maxBuffered is how much the data channel may hold before we wait for it, in bytes.
	maxBuffered = 1 << 20

	// slowChannel is how long the data channel may take to get below maxBuffered.
	slowChannel = 10 * time.Second
)

// ErrSlow says that a client does not read what we send.
var ErrSlow = errors.New("the client does not read fast enough")

// Channel is the data channel of a peer, ordered and reliable. One goroutine writes.
type Channel struct {
	dc         *webrtc.DataChannel
	maxMessage int
	low        chan struct{}
}

func newChannel(dc *webrtc.DataChannel, maxMessage int) *Channel {
	c := &Channel{dc: dc, maxMessage: maxMessage, low: make(chan struct{}, 1)}
	dc.SetBufferedAmountLowThreshold(maxBuffered / 2)
	dc.OnBufferedAmountLow(func() {
		select {
		case c.low <- struct{}{}:
		default:
		}
	})
	return c
}

// Limit is the longest message that the client takes, in bytes.
func (c *Channel) Limit() int { return c.maxMessage }

// Write sends a text message.
func (c *Channel) Write(message []byte) error { return c.dc.SendText(string(message)) }

// Ready waits until the channel takes more; [ErrSlow]: that took too long.
func (c *Channel) Ready(ctx context.Context) error { return c.below(ctx, maxBuffered, slowChannel) }

// Flush waits until everything was sent; [ErrSlow]: that took longer than patience.
func (c *Channel) Flush(ctx context.Context, patience time.Duration) error {
	return c.below(ctx, 0, patience)
}

// below waits until at most n bytes are buffered.
func (c *Channel) below(ctx context.Context, n uint64, patience time.Duration) error {
	if c.dc.BufferedAmount() <= n {
		return nil
	}
	timer := time.After(patience)
	for c.dc.BufferedAmount() > n {
		if c.dc.ReadyState() != webrtc.DataChannelStateOpen {
			return net.ErrClosed
		}
		select {
		case <-c.low:
		case <-timer:
			return ErrSlow
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
