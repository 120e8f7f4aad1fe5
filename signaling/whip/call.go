package whip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"voxgate/bridge"
	"voxgate/signaling"
	"voxgate/signaling/rtc"
)

// connectTime is how long a peer may take until it is connected.
const connectTime = 15 * time.Second

// call is one peer. It is a [bridge.Caller].
type call struct {
	door     *Door
	log      *slog.Logger
	greeting string
	agent    string // in its address
	offer    rtc.Offer
	answer   chan string          // takes the one there is
	requests chan func(*rtc.Peer) // of HTTP, done by Serve
	over     chan struct{}        // closed at the end
	session  atomic.Pointer[bridge.Session]

	// Owned by Serve.
	restarts *rate.Limiter

	text  string // the offer
	ufrag string // the client's
	tag   string // names this session of ICE
}

// Serve implements [bridge.Caller].
func (c *call) Serve(ctx context.Context, s *bridge.Session) error {
	c.session.Store(s)
	c.log.Info("client connected", "call", s.ID())
	var cameras rtc.Cameras
	connected, lost := make(chan struct{}), make(chan struct{})
	isConnected, isLost := sync.OnceFunc(func() { close(connected) }), sync.OnceFunc(func() { close(lost) })
	late := time.AfterFunc(connectTime, isLost)
	defer late.Stop()
	peer, err := c.door.RTC.NewPeer(rtc.PeerOptions{
		Session: signaling.PeerSession{Session: s}, Cameras: &cameras, Decoder: c.door.OpusDecoder, Logger: c.log,
		Connected: func() { late.Stop(); isConnected() },
		Lost:      func(string) { isLost() },
	})
	if err != nil {
		return err
	}
	defer cameras.Stop()
	defer peer.Close()
	sdp, err := peer.Answer(c.offer)
	if err != nil {
		return badOffer(err)
	}
	c.ufrag, c.tag = attribute(c.text, "ice-ufrag"), etag(sdp)
	s.Attach(peer.Voice())
	c.answer <- sdp
	for {
		select {
		case <-connected:
			connected = nil
			s.Hold(false)
			if c.greeting != "" {
				if err := s.Do(bridge.Respond{Instruction: c.greeting}); err != nil {
					c.log.Info("no greeting", "call", s.ID(), "err", err)
				}
			}
		case do := <-c.requests:
			do(peer)
		case <-lost:
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

// Notify implements [bridge.Caller]: there is nobody to be told.
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
