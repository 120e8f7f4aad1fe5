package openai

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"time"

	"voxgate/bridge"
	"voxgate/media"
	"voxgate/signaling"
	"voxgate/signaling/rtc"
)

// channelLabel is the data channel's, which the client makes.
const channelLabel = "oai-events"

// peerCall is a conversation whose sound travels by WebRTC.
type peerCall struct {
	signaling.PeerCall
	*call
	door   *Door
	origin bridge.Origin
	shown  [sha256.Size]byte // the hash of the secret that it was begun with
}

// Serve implements [bridge.Caller].
func (c *peerCall) Serve(ctx context.Context, s *bridge.Session) (err error) {
	c.log.Info("client connected", "call", s.ID())
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	pace, out, gone := signaling.NewPace(), signaling.NewOutbox[[]byte](), make(chan struct{})
	own := &listener{texts{out}, pace}
	var writing sync.WaitGroup
	peer, err := c.Answer(s, c.door.RTC, rtc.PeerOptions{
		Session: &heard{signaling.PeerSession{Session: s}, c.call}, Decoder: c.door.OpusDecoder, Logger: c.log, Channel: channelLabel,
		Opened: func(channel *rtc.Channel) { c.write(ctx, cancel, &writing, out, channel) },
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
	if refused := (*rtc.RefusedError)(nil); errors.As(err, &refused) {
		return badOffer(err)
	}
	if err != nil {
		return err
	}
	defer peer.Close()
	defer close(gone)
	defer pace.End()
	if peer.WantsChannel() {
		c.join(own)
	}
	c.Begin(peer)
	err = c.carry(ctx, s, own, nil, peer.Lost, nil)
	c.end(own, err)
	out.Close()
	waitFor(&writing, farewellTime)
	return err
}

// badOffer is the error for an offer that cannot be answered.
func badOffer(err error) error {
	return &apiError{Code: "invalid_offer", Param: "sdp", Message: "The offer " + err.Error() + "."}
}

// texts is an outbox as an [outlet].
type texts struct{ *signaling.Outbox[[]byte] }

func (t texts) PutText(event []byte) { t.Put(event, len(event)) }

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

// write sends events by the channel, which has opened.
func (c *peerCall) write(
	ctx context.Context,
	cancel context.CancelCauseFunc,
	writing *sync.WaitGroup,
	out *signaling.Outbox[[]byte],
	channel *rtc.Channel,
) {
	writing.Go(func() {
		err := out.Run(ctx, func(ctx context.Context, m []byte) error {
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
