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
	server        *Server
	log           *slog.Logger
	agent, id     string // parts of the call's URL: /whip/AGENT/ID
	offerText     string // the encoder's offer
	listenLimiter *rate.Limiter

	// Only the goroutine of Serve uses the following fields.
	session        *bridge.Session
	encoder        *connection
	listener       *connection     // the WHEP connection, or nil
	listenerCount  int             // number of WHEP connections so far
	voiceConnected <-chan struct{} // closed once the peer that receives the voice is connected; nil if no such peer is connecting
}

// connection is a WebRTC connection and the data that PATCH requests need.
type connection struct {
	*signaling.Peer
	restartLimiter *rate.Limiter

	offerText string // text of the client's offer
	ufrag     string // ICE user fragment of the client
	tag       string // ETag of the ICE session
}

func newConnection(p *signaling.Peer, offerText string) *connection {
	return &connection{
		Peer: p, restartLimiter: rtc.NewOfferLimiter(), offerText: offerText, ufrag: sdpAttribute(offerText, "ice-ufrag"), tag: iceTag(p.SDP),
	}
}

// Serve implements [bridge.Caller].
func (c *call) Serve(ctx context.Context, s *bridge.Session) error {
	c.log.Info("client connected", "call", s.ID())
	peer, err := c.AnswerOffer(s, c.server.RTC, c.peerOptions())
	if err != nil {
		return newOfferError(err)
	}
	defer peer.Close()
	c.session, c.encoder = s, newConnection(peer, c.offerText)
	c.AttachVoiceAndSendAnswer(peer)
	defer c.closeListener()
	if c.voiceConnected = peer.Connected; peer.VoiceOutput() == nil {
		c.voiceConnected = nil
	}
	for {
		var lost <-chan struct{}
		if c.listener != nil {
			lost = c.listener.Lost
		}
		select {
		case <-c.voiceConnected:
			c.voiceConnected = nil
			if err := s.Greet(); err != nil {
				c.log.Info("the agent did not greet", "call", s.ID(), "err", err)
			}
		case do := <-c.Requests():
			do()
		case <-lost:
			c.closeListener()
		case <-peer.Lost:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (c *call) peerOptions() rtc.PeerOptions {
	return rtc.PeerOptions{Decoder: c.server.OpusDecoder, Logger: c.log}
}

// newOfferError returns the error for an unusable offer.
func newOfferError(err error) error {
	var bad *rtc.RefusedError
	if errors.As(err, &bad) {
		return newStatusError(http.StatusBadRequest, "The offer %v.", bad)
	}
	return err
}

// Notify implements [bridge.Caller]. It does nothing, because WHIP has no events.
func (c *call) Notify(bridge.Event) {}

// addListener answers a WHEP offer. The new listener receives the agent's voice and replaces any previous listener.
func (c *call) addListener(offer rtc.Offer, offerText string) (id int, sdp string, err error) {
	if c.encoder.VoiceOutput() != nil {
		return 0, "", newStatusError(http.StatusConflict, "A listener needs an encoder whose offer was sendonly.")
	}
	if err := countOffer(c.listenLimiter); err != nil {
		return 0, "", err
	}
	whep := signaling.HTTPCall{Offer: offer}
	peer, err := whep.AnswerOffer(c.session, c.server.RTC, c.peerOptions())
	if err != nil {
		return 0, "", newOfferError(err)
	}
	c.closeListener()
	c.listener, c.voiceConnected = newConnection(peer, offerText), peer.Connected
	c.session.AttachOutput(peer.VoiceOutput())
	c.listenerCount++
	return c.listenerCount, peer.SDP, nil
}

// closeListener closes the listener's connection.
func (c *call) closeListener() {
	if c.listener != nil {
		c.session.AttachOutput(signaling.NullOutput{})
		c.listener.Close()
		c.listener = nil
	}
}

// findConnection returns the connection of the encoder (0) or of a listener, or nil if it has ended.
func (c *call) findConnection(listener int) *connection {
	switch listener {
	case 0:
		return c.encoder
	case c.listenerCount:
		return c.listener
	}
	return nil
}

// addCandidates passes ICE candidates to the peer connection.
func (c *connection) addCandidates(candidates []string) error {
	for _, line := range candidates {
		if err := c.AddCandidate(line); err != nil && !errors.Is(err, rtc.ErrTooManyCandidates) {
			return newStatusError(http.StatusBadRequest, "A candidate %v.", err)
		}
	}
	return nil
}

// countOffer counts an offer against the rate limit, and returns an error if offers arrive too fast.
func countOffer(offers *rate.Limiter) error {
	if offers.Allow() {
		return nil
	}
	return &bridge.Error{
		Code: bridge.CodeBusy, Retry: time.Second,
		Message: fmt.Sprintf("Too many offers or ICE restarts: the limit is %d at once and %v per second.", rtc.OfferBurst, rtc.OfferRate),
	}
}

// restartICE performs an ICE restart. It applies the original offer with the client's new ICE credentials.
func (c *connection) restartICE(f iceFragment) (sdp string, err error) {
	if err := countOffer(c.restartLimiter); err != nil {
		return "", err
	}
	text := withICECredentials(c.offerText, f)
	offer, err := rtc.ParseOffer(text)
	if err != nil {
		return "", newStatusError(http.StatusBadRequest, "The fragment makes an offer that %v.", err)
	}
	answer, err := c.Answer(offer)
	if err != nil {
		return "", newOfferError(err)
	}
	c.offerText, c.ufrag, c.tag = text, f.ufrag, iceTag(answer)
	return answer, nil
}
