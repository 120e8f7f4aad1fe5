package rtc

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/pion/webrtc/v4"
)

const (
	// maxBuffered is the amount of data, in bytes, that may wait to be sent on the data channel before WaitWritable
	// blocks.
	maxBuffered = 1 << 20

	// slowChannel limits how long WaitWritable waits for the buffer to shrink to maxBuffered.
	slowChannel = 10 * time.Second
)

// ErrSlow reports that a client does not read what we send.
var ErrSlow = errors.New("the client does not read fast enough")

// Channel is the data channel of a peer, ordered and reliable. Only one goroutine may write.
type Channel struct {
	dc         *webrtc.DataChannel
	maxMessage int
	low        chan struct{}
}

// NewChannel returns a Channel that sends on dc. maxMessage is the size of the longest message that the client accepts, in
// bytes.
func NewChannel(dc *webrtc.DataChannel, maxMessage int) *Channel {
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

// Limit returns the size of the longest message that the client accepts, in bytes.
func (c *Channel) Limit() int { return c.maxMessage }

// Write sends a text message.
func (c *Channel) Write(message []byte) error { return c.dc.SendText(string(message)) }

// WaitWritable blocks until at most maxBuffered bytes wait to be sent. It returns [ErrSlow] after slowChannel.
func (c *Channel) WaitWritable(ctx context.Context) error {
	return c.waitForBuffer(ctx, maxBuffered, slowChannel)
}

// Flush blocks until everything was sent. It returns [ErrSlow] after the timeout.
func (c *Channel) Flush(ctx context.Context, timeout time.Duration) error {
	return c.waitForBuffer(ctx, 0, timeout)
}

// waitForBuffer blocks until at most maxBytes bytes are buffered.
func (c *Channel) waitForBuffer(ctx context.Context, maxBytes uint64, timeout time.Duration) error {
	if c.dc.BufferedAmount() <= maxBytes {
		return nil
	}
	timer := time.After(timeout)
	for c.dc.BufferedAmount() > maxBytes {
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
