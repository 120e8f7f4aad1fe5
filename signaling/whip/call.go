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

// call is an encoder's, and the conversation that it has. It is a [bridge.Caller].
type call struct {
	signaling.HTTPCall
	door      *Door
	log       *slog.Logger
	agent, id string // in its address
	text      string // its offer
	listens   *rate.Limiter

	// Owned by Serve.
	session  *bridge.Session
	encoder  *connection
	listener *connection     // of WHEP; nil: there is none
	listened int             // how many there were
	heard    <-chan struct{} // closed when somebody hears; nil: nobody is about to
}

// connection is one by WebRTC, with what its client may change of it by PATCH.
type connection struct {
	*signaling.Peer
	restarts *rate.Limiter

	text  string // the offer
	ufrag string // the client's
	tag   string // names this session of ICE
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
	if c.heard = peer.Connected; peer.Voice() == nil {
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

// badOffer is the error for an offer that cannot be answered.
func badOffer(err error) error {
	var bad *rtc.RefusedError
	if errors.As(err, &bad) {
		return no(http.StatusBadRequest, "The offer %v.", bad)
	}
	return err
}

// Notify implements [bridge.Caller]: WHIP has no events.
func (c *call) Notify(bridge.Event) {}

// listen answers an offer of WHEP: its client gets the agent's voice, in place of the one that has it now.
func (c *call) listen(offer rtc.Offer, text string) (id int, sdp string, err error) {
	if c.encoder.Voice() != nil {
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
	c.session.AttachOutput(peer.Voice())
	c.listened++
	return c.listened, peer.SDP, nil
}

// dismiss has nobody listen.
func (c *call) dismiss() {
	if c.listener != nil {
		c.session.AttachOutput(signaling.NullOutput{})
		c.listener.Close()
		c.listener = nil
	}
}

// of is the connection of an address: the encoder's (0) or a listener's. nil: it is over.
func (c *call) of(listener int) *connection {
	switch listener {
	case 0:
		return c.encoder
	case c.listened:
		return c.listener
	}
	return nil
}

// add gives the peer candidates.
func (c *connection) add(candidates []string) error {
	for _, line := range candidates {
		if err := c.AddCandidate(line); err != nil && !errors.Is(err, rtc.ErrTooManyCandidates) {
			return no(http.StatusBadRequest, "A candidate %v.", err)
		}
	}
	return nil
}

// slow refuses an offer that comes too soon after others.
func slow(offers *rate.Limiter) error {
	if offers.Allow() {
		return nil
	}
	return &bridge.Error{
		Code: bridge.CodeBusy, Retry: time.Second,
		Message: fmt.Sprintf("Too many offers or restarts of ICE: %d at once and %v a second are served.", rtc.OfferBurst, rtc.OfferRate),
	}
}

// restart begins ICE anew: the offer is the first one, with another side of ICE.
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
