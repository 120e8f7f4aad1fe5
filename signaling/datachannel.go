package signaling

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"voxgate/internal/crash"
	"voxgate/signaling/rtc"
)

// DataChannel is the data channel of an [HTTPCall]. It carries text in both directions. Messages that are queued before
// the channel is open are sent when it opens.
type DataChannel struct {
	*RateLimiter // limits the client's messages
	log          *slog.Logger
	out          *SendQueue[[]byte]
	writing      sync.WaitGroup
	failures     chan error // receives the error of a failed write, or ErrSlow

	mu       sync.Mutex
	isClosed bool // guarded by mu; a channel that opens after Close is not used
}

// NewDataChannel changes the options o, so that the peer serves a data channel with this label. The channel calls
// onMessage with one message at a time. The caller must close the channel before the peer.
func NewDataChannel(o *rtc.PeerOptions, label string, onMessage func(Message)) *DataChannel {
	c := &DataChannel{RateLimiter: NewRateLimiter(), log: o.Logger, out: NewSendQueue[[]byte](), failures: make(chan error, 1)}
	o.Channel, o.Opened, o.Closed = label, c.onOpen, func(*rtc.Channel) {}
	o.Message = func(message []byte, isText bool) {
		c.WaitUntilAllowed(len(message))
		c.ChargeHeavy() // no message on this channel is audio
		onMessage(Message{Data: message, Text: isText})
	}
	return c
}

// PutText queues a message for the client. It does not block. A client that leaves 4 MiB unread is disconnected.
func (c *DataChannel) PutText(text []byte) { c.out.Put(text, len(text)) }

// Full reports whether more than 1 MiB is queued, as [Socket.Full] does.
func (c *DataChannel) Full() bool { return c.out.Full() }

// Failures returns a channel that receives an error if the data channel cannot be written to, or if the client is too
// slow ([ErrSlow]).
func (c *DataChannel) Failures() <-chan error { return c.failures }

// flushTimeout limits how long the last messages may take to be sent.
const flushTimeout = time.Second

// Close sends the queued messages, for at most flushTimeout.
func (c *DataChannel) Close() {
	c.mu.Lock()
	c.isClosed = true // from now on onOpen starts no writer, so Wait below waits for all of them
	c.mu.Unlock()
	c.out.Close()
	sent := make(chan struct{})
	go func() {
		c.writing.Wait()
		close(sent)
	}()
	select {
	case <-sent:
	case <-time.After(flushTimeout): // the writer ends when the peer is closed
	}
	c.Release()
}

func (c *DataChannel) onOpen(channel *rtc.Channel) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return
	}
	c.writing.Go(func() {
		defer crash.Recover(c.log, "data channel", func(err error) { c.failures <- err })
		err := c.out.Run(context.Background(), func(ctx context.Context, m []byte) error {
			if len(m) > channel.Limit() {
				c.log.Info("message too long for the client's data channel", "bytes", len(m), "most", channel.Limit())
				return nil
			}
			if err := channel.WaitWritable(ctx); err != nil {
				return err
			}
			return channel.Write(m)
		})
		if err != nil {
			c.failures <- err
			return
		}
		_ = channel.Flush(context.Background(), flushTimeout)
	})
}
