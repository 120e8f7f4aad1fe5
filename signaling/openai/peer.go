package openai

import (
	"context"
	"crypto/sha256"
	"errors"

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
func (c *peerCall) Serve(ctx context.Context, s *bridge.Session) error {
	c.log.Info("client connected", "call", s.ID())
	own := &listener{}
	o := rtc.PeerOptions{Session: &heard{signaling.PeerSession{Session: s}, c.call}, Decoder: c.door.OpusDecoder, Logger: c.log}
	channel := signaling.NewChannel(&o, channelLabel, func(m signaling.Message) {
		m.Text = true // whatever the client calls it
		c.receive(own, m)
	})
	own.out, own.pace = channel, channel
	peer, err := c.Answer(s, c.door.RTC, o)
	if refused := (*rtc.RefusedError)(nil); errors.As(err, &refused) {
		return badOffer(err)
	}
	if err != nil {
		return err
	}
	defer peer.Close()
	c.serve(s)
	if peer.WantsChannel() {
		c.join(own)
	}
	c.Begin(peer)
	if voice := peer.Voice(); voice != nil {
		s.Attach(&unsaid{voice, c.call})
	}
	err = c.carry(ctx, peer.Lost, channel.Failed())
	c.end(own, err)
	channel.Close()
	return err
}

// badOffer is the error for an offer that cannot be answered.
func badOffer(err error) error { return refusal("invalid_offer", "sdp", "The offer %v.", err) }

// heard is the conversation of a peer, whose sound the dialogue hears, too.
type heard struct {
	signaling.PeerSession
	call *call
}

// Mic implements [rtc.Session].
func (h *heard) Mic(rate int) (media.Sink, error) {
	mic, err := h.Session.Mic(rate)
	return &tap{mic, h.call, rate}, err
}

// tap is a microphone that the dialogue hears, too.
type tap struct {
	media.Sink
	call *call
	rate int
}

// WritePCM implements [media.Sink].
func (t *tap) WritePCM(pcm []int16) error { return t.call.hear(t.Sink, pcm, t.rate) }

// unsaid is the voice of a call, without what is only written.
type unsaid struct {
	media.Output
	call *call
}

// WriteFrame implements [media.Output].
func (u *unsaid) WriteFrame(f media.Frame) error {
	u.call.mu.Lock()
	writes := u.call.dialogue.answer.writes()
	u.call.mu.Unlock()
	if writes {
		f.PCM = make([]int16, len(f.PCM))
	}
	return u.Output.WriteFrame(f)
}
