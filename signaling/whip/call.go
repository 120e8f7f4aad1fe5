package whip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/time/rate"

	"voxgate/bridge"
	"voxgate/signaling"
	"voxgate/signaling/rtc"
)

// call is an encoder's connection with its conversation. It is a [bridge.Caller].
type call struct {
	signaling.HTTPCall
	door      *Door
	log       *slog.Logger
	agent, id string // both are parts of its URL
	text      string // the encoder's offer
	listens   *rate.Limiter

	// The following fields are used by Serve.
	session  *bridge.Session
	encoder  *connection
	listener *connection     // the WHEP connection, or nil
	listened int             // number of WHEP connections so far
	heard    <-chan struct{} // closed once the receiver of the voice, encoder or listener, is connected; nil if none is connecting
}

// connection is a WebRTC connection and the data that PATCH requests need.
type connection struct {
	*signaling.Peer
	restarts *rate.Limiter

	text  string // the offer
	ufrag string // ICE user fragment of the client
	tag   string // ETag of the ICE session
}

func newConnection(p *signaling.Peer, text string) *connection {
	return &connection{Peer: p, restarts: rtc.NewOfferLimiter(), text: text, ufrag: attribute(text, "ice-ufrag"), tag: iceTag(p.SDP)}
}

// Serve implements [bridge.Caller].
func (c *call) Serve(ctx context.Context, s *bridge.Session) error {
	c.log.Info("client connected", "call", s.ID())
	peer, err := c.AnswerOffer(s, c.door.RTC, c.options())
	if err != nil {
		return badOffer(err)
	}
	defer peer.Close()
	c.session, c.encoder = s, newConnection(peer, c.text)
	c.StartMedia(peer)
	defer c.dismiss()
	if c.heard = peer.Connected; peer.VoiceOutput() == nil {
		c.heard = nil
	}
	for {
		var lost <-chan struct{}
		if c.listener != nil {
			lost = c.listener.Lost
		}
		select {
		case <-c.heard:
			c.heard = nil
			if err := s.Greet(); err != nil {
				c.log.Info("no greeting", "call", s.ID(), "err", err)
			}
		case do := <-c.Requests():
			do()
		case <-lost:
			c.dismiss()
		case <-peer.Lost:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (c *call) options() rtc.PeerOptions {
	return rtc.PeerOptions{Decoder: c.door.OpusDecoder, Logger: c.log}
}

// badOffer returns the error for an unusable offer.
func badOffer(err error) error {
	var bad *rtc.RefusedError
	if errors.As(err, &bad) {
		return no(http.StatusBadRequest, "The offer %v.", bad)
	}
	return err
}

// Notify implements [bridge.Caller]. WHIP has no events, so it does nothing.
func (c *call) Notify(bridge.Event) {}

// listen answers a WHEP offer. The new listener receives the agent's voice and replaces any previous listener.
func (c *call) listen(offer rtc.Offer, text string) (id int, sdp string, err error) {
	if c.encoder.VoiceOutput() != nil {
		return 0, "", no(http.StatusConflict, "The encoder hears the agent itself: its offer was not sendonly.")
	}
	if err := slow(c.listens); err != nil {
		return 0, "", err
	}
	whep := signaling.HTTPCall{Offer: offer}
	peer, err := whep.AnswerOffer(c.session, c.door.RTC, c.options())
	if err != nil {
		return 0, "", badOffer(err)
	}
	c.dismiss()
	c.listener, c.heard = newConnection(peer, text), peer.Connected
	c.session.AttachOutput(peer.VoiceOutput())
	c.listened++
	return c.listened, peer.SDP, nil
}

// dismiss closes the listener's connection.
func (c *call) dismiss() {
	if c.listener != nil {
		c.session.AttachOutput(signaling.NullOutput{})
		c.listener.Close()
		c.listener = nil
	}
}

// of returns the connection of the encoder (0) or of a listener, or nil if it has ended.
func (c *call) of(listener int) *connection {
	switch listener {
	case 0:
		return c.encoder
	case c.listened:
		return c.listener
	}
	return nil
}

// add passes ICE candidates to the peer connection.
func (c *connection) add(candidates []string) error {
	for _, line := range candidates {
		if err := c.AddCandidate(line); err != nil && !errors.Is(err, rtc.ErrTooManyCandidates) {
			return no(http.StatusBadRequest, "A candidate %v.", err)
		}
	}
	return nil
}

// slow returns an error if offers arrive too fast.
func slow(offers *rate.Limiter) error {
	if offers.Allow() {
		return nil
	}
	return &bridge.Error{
		Code: bridge.CodeBusy, Retry: time.Second,
		Message: fmt.Sprintf("Too many offers or restarts of ICE: %d at once and %v a second are served.", rtc.OfferBurst, rtc.OfferRate),
	}
}

// restart performs an ICE restart. It applies the original offer with the client's new ICE credentials.
func (c *connection) restart(f fragment) (sdp string, err error) {
	if err := slow(c.restarts); err != nil {
		return "", err
	}
	text := restarted(c.text, f)
	offer, err := rtc.ParseOffer(text)
	if err != nil {
		return "", no(http.StatusBadRequest, "The fragment makes an offer that %v.", err)
	}
	answer, err := c.Answer(offer)
	if err != nil {
		return "", badOffer(err)
	}
	c.text, c.ufrag, c.tag = text, f.ufrag, iceTag(answer)
	return answer, nil
}
