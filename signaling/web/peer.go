package web

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"voxgate/bridge"
	"voxgate/signaling"
	"voxgate/signaling/protocol"
	"voxgate/signaling/rtc"
)

const (
	// connectTimeout is the time from a peer's offer until it must be connected. DTLS itself has no limit: of 14
	// connections made while a link died, one hung for 36 s.
	connectTimeout = 10 * time.Second
)

// peer is a WebRTC connection to the client, from the view of the client's loop.
type peer struct {
	*rtc.Peer
	from      route // route of its offers, and so of answers and candidates
	connected bool
	late      *time.Timer  // closes the peer if it does not connect, initially or after a restart
	channel   *rtc.Channel // nil until open
}

// refused converts the rejection of an offer or a candidate into a protocol error for a field.
func refused(field string, err error) error {
	var r *rtc.RefusedError
	if !errors.As(err, &r) {
		return err
	}
	return &bridge.Error{Code: bridge.CodeBadOffer, Field: field, Message: field + " " + r.Problem, Err: r.Err}
}

// newPeer creates a peer; its callbacks post to the loop.
func (c *webClient) newPeer() (*peer, error) {
	p := &peer{}
	var err error
	p.Peer, err = c.door.RTC.NewPeer(rtc.PeerOptions{
		Session: signaling.PeerSession{Session: c.session}, Channel: "events", Cameras: &c.cameras, Decoder: c.door.OpusDecoder, Logger: c.log,
		Connected: func() { c.post(func() { c.onConnected(p) }) },
		Lost:      func(why string) { c.post(func() { c.losePeer(p, why) }) },
		Candidate: func(line string) { c.post(func() { c.sendCandidate(p, line) }) },
		Opened:    func(opened *rtc.Channel) { c.post(func() { c.onChannel(p, opened) }) },
		Closed:    func(closed *rtc.Channel) { c.post(func() { c.onLost(closed) }) },
		Message: func(message []byte, isText bool) {
			c.channelPace.AdmitMessage(len(message))
			c.take(channel, signaling.Message{Data: message, Text: isText})
		},
	})
	return p, err
}

// close ends the connection and waits for all goroutines that it started.
func (p *peer) close() {
	if p.late != nil {
		p.late.Stop()
	}
	p.Close()
}

// onOffer answers an offer: with the existing peer if that made it, otherwise with a new peer that replaces it.
func (c *webClient) onOffer(w route, sdp string) error {
	if !c.offers.Allow() {
		return &bridge.Error{
			Code: bridge.CodeBadOffer, Field: "type",
			Message: fmt.Sprintf("Too many offers: %d at once and %v a second are served.", rtc.OfferBurst, rtc.OfferRate),
		}
	}
	o, err := rtc.ParseOffer(sdp)
	if err != nil {
		return refused("payload.sdp", err)
	}
	p := c.next
	if p == nil || !p.Made(o) {
		p = c.peer
	}
	fresh, restarts := p == nil || !p.Made(o), false
	if fresh {
		if p, err = c.newPeer(); err != nil {
			return err
		}
	} else if restarts = p.Restarts(o); restarts && w == channel {
		// The restart cuts the connection under the channel before the answer can use it.
		if c.socket == nil {
			return &bridge.Error{
				Code: bridge.CodeBadOffer, Field: "payload.sdp",
				Message: "payload.sdp restarts ICE, which cuts the data channel until the answer is there: send it by WebSocket.",
			}
		}
		w = socket
	}
	p.from = w
	answer, err := p.Answer(o)
	if err != nil {
		if fresh {
			c.closePeer(p)
		}
		return refused("payload.sdp", err)
	}
	c.out.send(w, protocol.Answer(answer))
	if o.Unseen != "" {
		c.warnOnce("video", "Video is looked at only as VP8, and the offer has "+o.Unseen+": its video section is refused. Sound goes on.")
	}
	if fresh {
		c.seat(p)
	}
	if fresh || restarts {
		c.limit(p)
	}
	c.steer()
	for _, line := range c.early {
		c.reply(w, c.add(p, line))
	}
	c.early = nil
	return nil
}

// seat installs a new peer: at once if there is none, otherwise when it has connected.
func (c *webClient) seat(p *peer) {
	switch {
	case c.peer == nil:
		c.peer = p
	case c.peer.connected:
		if c.next != nil {
			c.closePeer(c.next)
		}
		c.next = p
	default: // the previous one has not even connected
		c.closePeer(c.peer)
		c.peer = p
	}
}

// limit closes a peer that does not connect in time. A restart of ICE cuts the old connection, so the limit applies to
// it as well.
func (c *webClient) limit(p *peer) {
	if p.late != nil {
		p.late.Stop()
	}
	var late *time.Timer
	late = time.AfterFunc(connectTimeout, func() {
		c.post(func() {
			if p.late == late && (!p.connected || p.Connecting()) {
				c.losePeer(p, fmt.Sprintf("WebRTC did not connect within %v", connectTimeout))
			}
		})
	})
	p.late = late
}

// onCandidate handles one of the client's candidates, for the newest peer. Candidates before the offer are kept.
func (c *webClient) onCandidate(m protocol.ClientMessage) error {
	line, err := m.Candidate()
	if err != nil {
		return err
	}
	if p := cmp.Or(c.next, c.peer); p != nil {
		return c.add(p, line)
	}
	if len(c.early) <= rtc.MaxCandidates { // one too many, so that add reports it
		c.early = append(c.early, line)
	}
	return nil
}

// add adds one of the client's candidates to a peer.
func (c *webClient) add(p *peer, line string) error {
	err := p.AddCandidate(line)
	if errors.Is(err, rtc.ErrTooManyCandidates) {
		c.warnOnce("candidates", fmt.Sprintf("The first %d candidates of an offer are tried, and the rest is ignored.", rtc.MaxCandidates))
		return nil
	}
	return refused("payload.candidate", err)
}

// onChannel moves events to a data channel that has opened.
func (c *webClient) onChannel(p *peer, opened *rtc.Channel) {
	if p != c.peer && p != c.next {
		return
	}
	p.channel = opened
	c.out.connect(channel, opened)
}

// onConnected makes a peer replace the previous one.
func (c *webClient) onConnected(p *peer) {
	if p != c.peer && p != c.next {
		return
	}
	if p == c.next {
		c.closePeer(c.peer)
		c.peer, c.next = p, nil
	}
	p.connected = true
	c.byRequest = false
	c.steer()
}

// losePeer closes a lost peer. message is the reason without a full stop, or "" if the client knows it.
func (c *webClient) losePeer(p *peer, message string) {
	switch p {
	case c.peer:
		c.peer, c.next = c.next, nil
	case c.next:
		c.next = nil
	default:
		return
	}
	c.closePeer(p)
	if message != "" {
		c.log.Info("peer lost", "why", message, "was_connected", p.connected)
		where := "over the WebSocket"
		if c.peer != nil && c.peer.connected {
			where = "over the WebRTC connection that there was"
		}
		c.reply(events, &bridge.Error{Code: bridge.CodePeerFailed, Message: message + "; the voice goes on " + where + "."})
	}
	c.steer()
}

// closePeer closes a peer in the background; ServeHTTP waits for it.
func (c *webClient) closePeer(p *peer) {
	if p.channel != nil {
		c.out.drop(p.channel)
		p.channel = nil
	}
	c.closers.Go(p.close)
}

// sendCandidate trickles one of our candidates. It comes after the answer, since the loop was busy with the answer when
// the candidate was found.
func (c *webClient) sendCandidate(p *peer, line string) {
	if line == "" {
		c.out.send(p.from, protocol.NoMoreCandidates())
		return
	}
	mid, index := p.Tag()
	c.out.send(p.from, protocol.Candidate(line, mid, index))
}
