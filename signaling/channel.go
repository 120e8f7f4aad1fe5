package signaling

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"voxgate/crash"
	"voxgate/signaling/rtc"
)

// Channel is the data channel of a [PeerCall], over which text goes both ways. What is put before it has opened is sent then.
type Channel struct {
	*Pace   // of what the client sends
	log     *slog.Logger
	out     *Outbox[[]byte]
	writing sync.WaitGroup
	failed  chan error // has why it cannot be written to
}

// NewChannel has o serve a data channel of this label, and calls take with each message that has come, one after the other. Close
// it before the peer.
func NewChannel(o *rtc.PeerOptions, label string, take func(Message)) *Channel {
	c := &Channel{Pace: NewPace(), log: o.Logger, out: NewOutbox[[]byte](), failed: make(chan error, 1)}
	o.Channel, o.Opened, o.Closed = label, c.opened, func(*rtc.Channel) {}
	o.Message = func(message []byte, isText bool) {
		c.Came(len(message))
		c.Charge() // none of them is sound
		take(Message{Data: message, Text: isText})
	}
	return c
}

// PutText queues a message for the client. It does not block; a client that leaves 4 MiB unread is lost.
func (c *Channel) PutText(text []byte) { c.out.Put(text, len(text)) }

// Full reports whether a MiB waits already, as [Socket.Full] does.
func (c *Channel) Full() bool { return c.out.Full() }

// Failed has an error when the channel cannot be written to, or the client is too slow ([ErrSlow]).
func (c *Channel) Failed() <-chan error { return c.failed }

// farewellTime is how long the last messages may take to be sent.
const farewellTime = time.Second

// Close sends what was put, and gives up after a second.
func (c *Channel) Close() {
	c.out.Close()
	sent := make(chan struct{})
	go func() {
		c.writing.Wait()
		close(sent)
	}()
	select {
	case <-sent:
	case <-time.After(farewellTime): // it ends with the peer
	}
	c.End()
}

func (c *Channel) opened(channel *rtc.Channel) {
	c.writing.Go(func() {
		defer crash.Recover(c.log, "data channel", func(err error) { c.failed <- err })
		err := c.out.Run(context.Background(), func(ctx context.Context, m []byte) error {
			if len(m) > channel.Limit() {
				c.log.Info("message too long for the client's channel", "bytes", len(m), "most", channel.Limit())
				return nil
			}
			if err := channel.Ready(ctx); err != nil {
				return err
			}
			return channel.Write(m)
		})
		if err != nil {
			c.failed <- err
			return
		}
		_ = channel.Flush(context.Background(), farewellTime)
	})
}
