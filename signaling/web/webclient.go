package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"voxgate/bridge"
	"voxgate/media"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/protocol"
	"voxgate/signaling/rtc"
)

// webClient is one client: a WebSocket, and perhaps a WebRTC peer. It is the [bridge.Caller] of its session. Only its
// loop (Serve) changes its state. Readers of messages hand them to the loop, and everything else posts to it.
type webClient struct {
	// Immutable.
	door   *Door
	out    *routes
	handed chan func()     // for the client's messages; their reader waits until each was handled
	posts  *posts          // for everything else
	lost   <-chan struct{} // closed when the socket is lost

	done    chan struct{} // closed when the loop has ended
	cameras rtc.Cameras   // of its peers

	socketPace, channelPace *signaling.RateLimiter

	asked atomic.Bool // the client was asked to change the gateway: if it closes its socket, it has left

	// Guarded by mu.
	mu       sync.Mutex
	setups   []route // routes of the next SETUP_COMPLETE events, in order
	setUp    bool    // the first SETUP_COMPLETE was sent
	contexts []route // routes of the next CONTEXT events, in order

	// Owned by the loop: first run and open, then Serve, then farewell, all in one goroutine.
	log          *slog.Logger
	session      *bridge.Session
	socket       *socketLine // nil once lost
	peer         *peer       // in use, or connecting as the first
	next         *peer       // connecting, and will replace peer
	offers       *rate.Limiter
	early        []string // candidates that arrived before an offer
	offered      *string  // an offer that arrived before CONNECT_GEMINI
	pieces       [channel + 1]protocol.Joiner
	mic          *bridge.Microphone // of audio by socket
	sound        media.SampleReader // of audio by socket
	voice        *peer              // that plays the voice, or nil: see voiceTo
	voiceTo      destination
	byRequest    bool            // the client sends audio by socket, so the voice is not held for a connecting peer
	warned       map[string]bool // topics of warnOnce that were warned of
	grace        bool            // the socket was lost while a data channel was about to open: wait channelGrace
	goodbyeRoute route
	closers      sync.WaitGroup // peers being closed
}

// post queues f for the loop; after the loop has ended, f is dropped. It never blocks, because Pion also calls back in
// the loop's goroutine while it answers an offer.
func (c *webClient) post(f func()) { c.posts.put(f) }

// hand makes the loop run f, and blocks until it has: no further message is read meanwhile.
func (c *webClient) hand(f func()) {
	acted := make(chan struct{})
	select {
	case c.handed <- func() { f(); close(acted) }:
	case <-c.done:
		return
	}
	select {
	case <-acted:
	case <-c.done:
	}
}

// take makes the loop handle a message, and blocks until it has.
func (c *webClient) take(w route, m signaling.Message) {
	if c.pace(w).ReportHeldBack() {
		c.post(c.onHeld)
	}
	c.hand(func() {
		switch {
		case !m.Text:
			c.refuse(w, errNotText)
		case m.Err != nil:
			c.refuse(w, m.Err)
		default:
			c.onMessage(w, m.Data)
		}
	})
}

// pace returns the rate limiter of the connection of a message.
func (c *webClient) pace(w route) *signaling.RateLimiter {
	if w == channel {
		return c.channelPace
	}
	return c.socketPace
}

// onHeld warns the client's developer that the client sends too much.
func (c *webClient) onHeld() {
	c.log.Info("client held back")
	c.warnOnce("pace", signaling.RateLimitMessage)
}

// refuse reports an invalid message to the client.
func (c *webClient) refuse(w route, err error) {
	c.pace(w).ChargeHeavy()
	c.reply(w, err)
}

// onRoundTrip records a round trip time of the socket, unless a peer measures its own. It does not block.
func (c *webClient) onRoundTrip(d time.Duration) {
	c.post(func() {
		if c.voiceTo != toPeer {
			c.session.SetRoundTrip(d)
		}
	})
}

// channelGrace is the time that a client without a socket is kept while its data channel is about to open. The client
// sees the channel open a round trip before us, so it may already use the channel and close the socket.
const channelGrace = 2 * time.Second

// peers returns the current peers, at most two.
func (c *webClient) peers() []*peer {
	return slices.DeleteFunc([]*peer{c.peer, c.next}, func(p *peer) bool { return p == nil })
}

// onLost removes a line to the client.
func (c *webClient) onLost(l line) {
	c.out.drop(l)
	switch l := l.(type) {
	case *socketLine:
		if c.socket == l {
			c.log.Info("socket lost")
			c.socket = nil
			l.Close()
			c.grace = true
			time.AfterFunc(channelGrace, func() { c.post(func() { c.grace = false }) })
		}
	case *rtc.Channel:
		for _, p := range c.peers() {
			if p.channel == l {
				p.channel = nil
			}
		}
	}
}

// gone reports whether the client cannot be reached any more.
func (c *webClient) gone() bool {
	return c.socket == nil && (c.asked.Load() || !slices.ContainsFunc(c.peers(), func(p *peer) bool {
		return p.channel != nil || c.grace && p.WantsChannel()
	}))
}

// open reads the socket until CONNECT_GEMINI. Only an offer and candidates may precede it; they are kept.
func (c *webClient) open(ctx context.Context, s *signaling.Socket) (bridge.SessionRequest, error) {
	for {
		in, err := s.ReadFirst(ctx, protocol.MaxControl)
		var m protocol.ClientMessage
		switch {
		case ctx.Err() != nil:
			return bridge.SessionRequest{}, context.Cause(ctx)
		case err != nil:
			return bridge.SessionRequest{}, signaling.ErrNoFirstMessage
		case in.Err != nil:
			err = errTooLong
		case !in.Text:
			err = errNotText
		default:
			m, err = protocol.Parse(in.Data)
		}
		if err == nil && m.Type == protocol.TypeConnect {
			var open bridge.SessionRequest
			var token string
			if open, token, err = m.Open(); err == nil {
				return c.connect(ctx, open, token)
			}
		} else if err == nil {
			err = c.keep(m)
		}
		c.socketPace.ChargeHeavy()
		c.reply(socket, err)
	}
}

// errTooLong is the error for a long message before CONNECT_GEMINI.
var errTooLong = protocol.BadField(
	"payload",
	fmt.Sprintf("is too long: before the conversation begins a message may have %d bytes", protocol.MaxControl),
)

// errNotText is the error for a binary message.
var errNotText = &bridge.Error{Code: bridge.CodeBadMessage, Message: "Only text messages are understood."}

// doorName identifies this protocol to tools.
const doorName = "web"

// connect checks that the client may open a conversation, and answers CONNECT_GEMINI.
func (c *webClient) connect(ctx context.Context, open bridge.SessionRequest, token string) (bridge.SessionRequest, error) {
	open.Origin.Protocol, open.Origin.HasScreen = doorName, true
	if err := access.From(ctx).Authorize(&open, token); err != nil {
		if e := bridge.AsError(err); e.Field != "" { // of what was asked for
			e.Field = "payload." + e.Field
		}
		return bridge.SessionRequest{}, err
	}
	c.socket.MarkOpened()
	c.setups = append(c.setups, socket)
	c.out.send(socket, protocol.Connected(signaling.ICEServersFor(c.door.ICEServers, c.door.TURNSecret, time.Now())))
	return open, nil
}

// keep stores a message that may precede CONNECT_GEMINI.
func (c *webClient) keep(m protocol.ClientMessage) error {
	switch m.Type {
	case protocol.TypeOffer:
		sdp, err := m.Offer()
		if err == nil {
			c.offered = &sdp
		}
		return err
	case protocol.TypeCandidate:
		return c.onCandidate(m)
	}
	return &bridge.Error{
		Code: bridge.CodeNotConnected, Field: "type",
		Message: fmt.Sprintf("%s came before CONNECT_GEMINI, which must be first.", protocol.Clip(m.Type)),
	}
}

// Serve implements [bridge.Caller]. It serves the session until the client has left or ctx is done.
func (c *webClient) Serve(ctx context.Context, s *bridge.Session) error {
	c.session = s
	c.log = c.log.With("call", s.ID())
	c.log.Info("client connected")
	defer c.stopCapture()
	c.steer()
	if o := c.offered; o != nil {
		c.offered = nil
		c.reply(socket, c.onOffer(socket, *o))
	}
	c.reply(socket, s.Greet())
	for !c.gone() {
		select {
		case f := <-c.handed:
			c.doPosted() // posts that precede the message first, such as the opening of its channel
			f()
		case <-c.posts.more:
			c.doPosted()
		case <-c.lost:
			c.lost = nil
			c.doPosted()
			if c.socket != nil {
				c.onLost(c.socket)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// doPosted runs the posted functions.
func (c *webClient) doPosted() {
	for _, f := range c.posts.take() {
		f()
	}
}

// stopCapture stops the microphones and cameras that Serve started. A client that takes over may have to wait as long
// as [rtc.Cameras.Stop] takes, but for nothing else.
func (c *webClient) stopCapture() {
	for _, p := range c.peers() {
		p.Mute()
	}
	c.cameras.Stop()
}

// farewell sends the client the reason for the end, and returns the close code and reason for the socket.
func (c *webClient) farewell(err error) error {
	end := func(w route, reason string) { c.out.send(w, protocol.Disconnected(reason)) }
	code, reason := signaling.CloseReason(err)
	c.mu.Lock()
	setUp := c.setUp
	c.mu.Unlock()
	var limit bridge.Limit
	switch {
	case err == nil, errors.Is(err, bridge.ErrLeft), errors.Is(err, signaling.ErrSlow), errors.Is(err, signaling.ErrNoFirstMessage):
	case errors.Is(err, bridge.ErrGoodbye):
		end(c.goodbyeRoute, "goodbye")
	case errors.Is(err, bridge.ErrReplaced):
		end(channel, "replaced")
	case code == signaling.CloseGoingAway:
		end(channel, "The gateway is shutting down.")
	case errors.As(err, &limit):
		end(channel, limit.Error())
	case setUp:
		c.reply(channel, err)
		end(channel, reason)
	default:
		if c.session == nil { // otherwise the session has logged its end
			c.log.Info("conversation refused", "err", err)
		}
		c.out.send(socket, protocol.SetupRefused(bridge.AsError(err)))
		c.reply(socket, err)
		end(socket, reason)
		if code == signaling.CloseFailed { // not logged elsewhere, and the client knows why it was rejected
			return nil
		}
	}
	return err
}

// reply reports an error to the client, unless it is nil.
func (c *webClient) reply(w route, err error) {
	if err != nil {
		c.out.send(w, protocol.Error(err))
	}
}

// warn warns the client's developer.
func (c *webClient) warn(message string) { c.out.send(events, protocol.Warning(message)) }

// warnOnce warns the client's developer once per topic.
func (c *webClient) warnOnce(about, message string) {
	if !c.warned[about] {
		c.warned[about] = true
		c.warn(message)
	}
}
