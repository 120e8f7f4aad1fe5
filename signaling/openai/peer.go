package openai

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"voxgate/bridge"
	"voxgate/media"
	"voxgate/signaling"
	"voxgate/signaling/rtc"
)

const (
	// channelLabel is the data channel's, which the client makes.
	channelLabel = "oai-events"
	// connectTime is how long a peer may take until it is connected.
	connectTime = 15 * time.Second
)

// peerCall is a conversation whose sound travels by WebRTC.
type peerCall struct {
	*call
	door   *Door
	origin bridge.Origin
	shown  [sha256.Size]byte // the hash of what they have shown
	offer  rtc.Offer
	answer chan string // takes the one there is
}

// Serve implements [bridge.Caller].
func (c *peerCall) Serve(ctx context.Context, s *bridge.Session) (err error) {
	c.session.Store(s)
	c.log.Info("client connected", "call", s.ID())
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	pace := signaling.NewPace()
	own, lost, gone := newListener(pace), make(chan struct{}), make(chan struct{})
	isLost := sync.OnceFunc(func() { close(lost) })
	late := time.AfterFunc(connectTime, isLost)
	defer late.Stop()
	var cameras rtc.Cameras
	var writing sync.WaitGroup
	peer, err := c.door.RTC.NewPeer(rtc.PeerOptions{
		Session: &heard{signaling.PeerSession{Session: s}, c.call}, Cameras: &cameras, Decoder: c.door.OpusDecoder, Logger: c.log, Channel: channelLabel,
		Connected: func() { late.Stop(); s.Hold(false) },
		Lost:      func(string) { isLost() },
		Opened: func(channel *rtc.Channel) {
			c.write(ctx, cancel, &writing, own, channel)
		},
		Closed: func(*rtc.Channel) {},
		Message: func(message []byte, isText bool) {
			pace.Came(len(message))
			pace.Charge() // none of them is sound
			select {
			case c.events <- own.read(message):
			case <-gone:
			}
		},
	})
	if err != nil {
		return err
	}
	defer cameras.Stop()
	defer peer.Close()
	defer close(gone)
	defer pace.End()
	sdp, err := peer.Answer(c.offer)
	if err != nil {
		return &apiError{Code: "invalid_offer", Param: "sdp", Message: "The offer " + err.Error() + "."}
	}
	if peer.WantsChannel() {
		c.join(own)
	}
	s.Attach(peer.Voice())
	c.answer <- sdp
	err = c.carry(ctx, s, lost, nil)
	c.end(own, err)
	own.out.Close()
	waitFor(&writing, farewellTime)
	return err
}

// farewellTime is how long the last events may take to be sent.
const farewellTime = time.Second

// waitFor waits for goroutines that end soon, or not at all before their connection is closed.
func waitFor(running *sync.WaitGroup, most time.Duration) {
	done := make(chan struct{})
	go func() {
		running.Wait()
		close(done)
	}()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// write sends what is told by the channel, which has opened.
func (c *peerCall) write(ctx context.Context, cancel context.CancelCauseFunc, writing *sync.WaitGroup, own *listener, channel *rtc.Channel) {
	writing.Go(func() {
		err := own.out.Run(ctx, func(ctx context.Context, m []byte) error {
			if len(m) > channel.Limit() {
				c.log.Info("event too long for the client's channel", "bytes", len(m), "most", channel.Limit())
				return nil
			}
			if err := channel.Ready(ctx); err != nil {
				return err
			}
			return channel.Write(m)
		})
		if err != nil {
			cancel(err)
			return
		}
		_ = channel.Flush(ctx, farewellTime)
	})
}

// heard is the conversation of a peer, whose sound the dialogue hears, too.
type heard struct {
	signaling.PeerSession
	call *call
}

// Mic implements [rtc.Session].
func (h *heard) Mic(rate int) (media.Sink, error) {
	mic, err := h.Session.Mic(rate)
	if err != nil {
		return nil, err
	}
	return &tap{mic, h}, nil
}

// tap is a microphone that the dialogue hears, too.
type tap struct {
	media.Sink
	heard *heard
}

// WritePCM implements [media.Sink].
func (t *tap) WritePCM(pcm []int16) error {
	return t.heard.call.hear(t.heard.Session, t.Sink, pcm)
}

// hangUp ends the conversation.
func (c *call) hangUp() {
	if s := c.session.Load(); s != nil {
		_ = s.Do(bridge.Goodbye{}) // fails if it has just ended
	}
}
