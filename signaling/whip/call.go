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

// call is one peer. It is a [bridge.Caller].
type call struct {
	signaling.PeerCall
	door     *Door
	log      *slog.Logger
	greeting string
	agent    string               // in its address
	requests chan func(*rtc.Peer) // of HTTP, done by Serve

	// Owned by Serve.
	restarts *rate.Limiter

	text  string // the offer
	ufrag string // the client's
	tag   string // names this session of ICE
}

// Serve implements [bridge.Caller].
func (c *call) Serve(ctx context.Context, s *bridge.Session) error {
	c.log.Info("client connected", "call", s.ID())
	peer, err := c.Answer(s, c.door.RTC, rtc.PeerOptions{Decoder: c.door.OpusDecoder, Logger: c.log})
	if err != nil {
		return badOffer(err)
	}
	defer peer.Close()
	c.ufrag, c.tag = attribute(c.text, "ice-ufrag"), etag(peer.SDP)
	c.Begin(peer)
	connected := peer.Connected
	for {
		select {
		case <-connected:
			connected = nil
			if c.greeting != "" {
				if err := s.Do(bridge.Respond{Instruction: c.greeting}); err != nil {
					c.log.Info("no greeting", "call", s.ID(), "err", err)
				}
			}
		case do := <-c.requests:
			do(peer.Peer)
		case <-peer.Lost:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
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

// add gives the peer candidates.
func (c *call) add(p *rtc.Peer, candidates []string) error {
	for _, line := range candidates {
		var bad *rtc.RefusedError
		switch err := p.AddCandidate(line); {
		case errors.As(err, &bad):
			return no(http.StatusBadRequest, "A candidate %v.", bad)
		case err != nil && !errors.Is(err, rtc.ErrTooManyCandidates):
			return err
		}
	}
	return nil
}

// restart begins ICE anew: the offer is the first one, with another side of ICE.
func (c *call) restart(p *rtc.Peer, f fragment, sdp *string) error {
	if !c.restarts.Allow() {
		return &bridge.Error{
			Code: bridge.CodeBusy, Retry: time.Second,
			Message: fmt.Sprintf("Too many restarts of ICE: %d at once and %v a second are served.", rtc.OfferBurst, rtc.OfferRate),
		}
	}
	text := restarted(c.text, f)
	offer, err := rtc.ParseOffer(text)
	if err != nil {
		return no(http.StatusBadRequest, "The fragment makes an offer that %v.", err)
	}
	answer, err := p.Answer(offer)
	if err != nil {
		return badOffer(err)
	}
	c.text, c.ufrag, c.tag = text, f.ufrag, etag(answer)
	*sdp = answer
	return nil
}
