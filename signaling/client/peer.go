package client

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"voxgate/bridge"
	"voxgate/signaling"
	"voxgate/signaling/client/protocol"
	"voxgate/signaling/rtc"
)

const (
	// connectTimeout is the time from an offer until the peer must be connected. DTLS itself has no such limit: one of 14
	// connections made over a dying link hung for 36 s.
	connectTimeout = 10 * time.Second
)

// peer is a WebRTC connection to the client, with the state that the client's loop (Serve) keeps about it.
type peer struct {
	*rtc.Peer
	offerRoute   route // route of its offers, and so of answers and candidates
	isConnected  bool
	connectTimer *time.Timer  // closes the peer if it does not connect, initially or after a restart
	channel      *rtc.Channel // nil until open
}

// newOfferError converts the rejection of an offer or a candidate into a protocol error that names the field.
func newOfferError(field string, err error) error {
	var r *rtc.RefusedError
	if !errors.As(err, &r) {
		return err
	}
	return &bridge.Error{Code: bridge.CodeBadOffer, Field: field, Message: field + " " + r.Problem, Err: r.Err}
}

// newPeer creates a peer. Its callbacks are run by the client's loop (Serve).
func (c *webClient) newPeer() (*peer, error) {
	p := &peer{}
	var err error
	p.Peer, err = c.server.RTC.NewPeer(rtc.PeerOptions{
		Session: signaling.PeerSession{Session: c.session}, Channel: "events", Cameras: &c.cameras, Decoder: c.server.OpusDecoder, Logger: c.log,
		OnConnected:      func() { c.postToLoop(func() { c.adoptPeer(p) }) },
		OnConnectionLost: func(why string) { c.postToLoop(func() { c.losePeer(p, why) }) },
		OnCandidate:      func(line string) { c.postToLoop(func() { c.sendCandidate(p, line) }) },
		Opened:           func(opened *rtc.Channel) { c.postToLoop(func() { c.onChannelOpen(p, opened) }) },
		Closed:           func(closed *rtc.Channel) { c.postToLoop(func() { c.onTransportLost(closed) }) },
		Message: func(message []byte, isText bool) {
			c.channelPace.WaitUntilAllowed(len(message))
			c.receiveMessage(routeChannel, signaling.Message{Data: message, Text: isText})
		},
	})
	return p, err
}

// closeAndWait ends the connection and waits for all goroutines that it started.
func (p *peer) closeAndWait() {
	if p.connectTimer != nil {
		p.connectTimer.Stop()
	}
	p.Close()
}

// onOffer answers an offer. If the offer belongs to the connection of the existing peer, that peer answers it.
// Otherwise a new peer replaces the existing one.
func (c *webClient) onOffer(w route, sdp string) error {
	if !c.offers.Allow() {
		return &bridge.Error{
			Code: bridge.CodeBadOffer, Field: "type",
			Message: fmt.Sprintf("Too many offers: the limit is %d at once and %v per second.", rtc.OfferBurst, rtc.OfferRate),
		}
	}
	o, err := rtc.ParseOffer(sdp)
	if err != nil {
		return newOfferError("payload.sdp", err)
	}
	p := c.nextPeer
	if p == nil || !p.IsSameClient(o) {
		p = c.peer
	}
	fresh, restarts := p == nil || !p.IsSameClient(o), false
	if fresh {
		if p, err = c.newPeer(); err != nil {
			return err
		}
	} else if restarts = p.RestartsICE(o); restarts && w == routeChannel {
		// A restart interrupts the data channel until the client has the answer, so the answer must be sent over the
		// socket.
		if c.socket == nil {
			return &bridge.Error{
				Code: bridge.CodeBadOffer, Field: "payload.sdp",
				Message: "payload.sdp restarts ICE, which interrupts the data channel until the answer arrives: send it by WebSocket.",
			}
		}
		w = routeSocket
	}
	p.offerRoute = w
	answer, err := p.Answer(o)
	if err != nil {
		if fresh {
			c.closePeer(p)
		}
		return newOfferError("payload.sdp", err)
	}
	c.router.sendMessage(w, protocol.AnswerMessage(answer))
	if o.UnsupportedVideo != "" {
		c.warnOnce("video", "Only VP8 video is supported, and the offer has "+o.UnsupportedVideo+
			": its video section is rejected. Audio continues.")
	}
	if fresh {
		c.installPeer(p)
	}
	if fresh || restarts {
		c.limitConnectTime(p)
	}
	c.routeVoice()
	for _, line := range c.earlyCandidates {
		c.sendError(w, c.addCandidate(p, line))
	}
	c.earlyCandidates = nil
	return nil
}

// installPeer installs a new peer. If the existing peer is connected, the new peer replaces it only when it has
// connected, too. Otherwise the new peer replaces it at once.
func (c *webClient) installPeer(p *peer) {
	switch {
	case c.peer == nil:
		c.peer = p
	case c.peer.isConnected:
		if c.nextPeer != nil {
			c.closePeer(c.nextPeer)
		}
		c.nextPeer = p
	default: // the previous one has not even connected
		c.closePeer(c.peer)
		c.peer = p
	}
}

// limitConnectTime closes a peer that does not connect in time. It is also called for an ICE restart, because a restart
// ends the old ICE connection.
func (c *webClient) limitConnectTime(p *peer) {
	if p.connectTimer != nil {
		p.connectTimer.Stop()
	}
	var timer *time.Timer
	timer = time.AfterFunc(connectTimeout, func() {
		c.postToLoop(func() {
			if p.connectTimer == timer && (!p.isConnected || p.IsConnecting()) {
				c.losePeer(p, fmt.Sprintf("WebRTC did not connect within %v", connectTimeout))
			}
		})
	})
	p.connectTimer = timer
}

// onCandidate passes one of the client's candidates to the newest peer. It keeps candidates that arrive before the
// offer.
func (c *webClient) onCandidate(m protocol.ClientMessage) error {
	line, err := m.ParseCandidate()
	if err != nil {
		return err
	}
	if p := cmp.Or(c.nextPeer, c.peer); p != nil {
		return c.addCandidate(p, line)
	}
	if len(c.earlyCandidates) <= rtc.MaxCandidates { // one more than the limit is kept, so that AddCandidate reports the excess
		c.earlyCandidates = append(c.earlyCandidates, line)
	}
	return nil
}

// addCandidate adds one of the client's candidates to a peer.
func (c *webClient) addCandidate(p *peer, line string) error {
	err := p.AddCandidate(line)
	if errors.Is(err, rtc.ErrTooManyCandidates) {
		c.warnOnce("candidates", fmt.Sprintf("Only the first %d candidates of an offer are tried; the others are ignored.", rtc.MaxCandidates))
		return nil
	}
	return newOfferError("payload.candidate", err)
}

// onChannelOpen is called when a peer's data channel has opened. From now on, events are sent by the channel.
func (c *webClient) onChannelOpen(p *peer, opened *rtc.Channel) {
	if p != c.peer && p != c.nextPeer {
		return
	}
	p.channel = opened
	c.router.setTransport(routeChannel, opened)
}

// adoptPeer puts a peer that has connected into use. It closes the peer that it replaces.
func (c *webClient) adoptPeer(p *peer) {
	if p != c.peer && p != c.nextPeer {
		return
	}
	if p == c.nextPeer {
		c.closePeer(c.peer)
		c.peer, c.nextPeer = p, nil
	}
	p.isConnected = true
	c.audioBySocket = false
	c.routeVoice()
}

// losePeer closes a lost peer. message is the reason, without a full stop, for an error to the client. message is "" if
// the client already knows the reason.
func (c *webClient) losePeer(p *peer, message string) {
	switch p {
	case c.peer:
		c.peer, c.nextPeer = c.nextPeer, nil
	case c.nextPeer:
		c.nextPeer = nil
	default:
		return
	}
	c.closePeer(p)
	if message != "" {
		c.log.Info("peer lost", "why", message, "was_connected", p.isConnected)
		where := "over the WebSocket"
		if c.peer != nil && c.peer.isConnected {
			where = "over the previous WebRTC connection"
		}
		c.sendError(routeEvents, &bridge.Error{Code: bridge.CodePeerFailed, Message: message + "; the voice continues " + where + "."})
	}
	c.routeVoice()
}

// closePeer closes a peer in the background; ServeHTTP waits for it.
func (c *webClient) closePeer(p *peer) {
	if p.channel != nil {
		c.router.removeTransport(p.channel)
		p.channel = nil
	}
	c.closers.Go(p.closeAndWait)
}

// sendCandidate sends the client a candidate of the gateway; an empty line means that no more candidates follow. If
// Pion finds candidates while the loop builds the answer, they are posted to the loop, so that they are sent after the
// answer.
func (c *webClient) sendCandidate(p *peer, line string) {
	if line == "" {
		c.router.sendMessage(p.offerRoute, protocol.EndOfCandidatesMessage())
		return
	}
	mid, index := p.TransportSection()
	c.router.sendMessage(p.offerRoute, protocol.CandidateMessage(line, mid, index))
}
