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

// webClient is one client: a WebSocket, and perhaps a WebRTC peer. It is the [bridge.Caller] of its session. Its loop
// (Serve) alone changes its state. What reads messages hands them to it, and everything else posts to it.
type webClient struct {
	// Static.
	door   *Door
	out    *routes
	handed chan func()     // what the client has sent; its reader waits meanwhile
	posts  *posts          // everything else
	lost   <-chan struct{} // closed when the socket is

	done    chan struct{} // closed when the loop takes nothing any more
	cameras rtc.Cameras   // of its peers

	socketPace, channelPace *signaling.RateLimiter

	asked atomic.Bool // to go to another gateway: a client that closes its socket then has gone

	// Guarded by mu.
	mu       sync.Mutex
	setups   []route // where the next SETUP_COMPLETE goes, in order
	setUp    bool    // the client has the first one
	contexts []route // where the next CONTEXT goes, in order

	// Owned by the loop: first run and open, then Serve, then farewell; all one goroutine.
	log          *slog.Logger
	session      *bridge.Session
	socket       *socketLine // nil once lost
	peer         *peer       // the one in use, or connecting as the first
	next         *peer       // connecting, replaces peer
	offers       *rate.Limiter
	early        []string // candidates that came before an offer
	offered      *string  // an offer that came before CONNECT_GEMINI
	pieces       [channel + 1]protocol.Joiner
	mic          *bridge.Microphone // of socket audio
	sound        media.SampleReader // likewise
	voice        *peer              // that plays the voice; nil: see voiceTo
	voiceTo      destination
	byRequest    bool            // the client sends audio by socket, so the voice is not held for a peer that is to connect
	warned       map[string]bool // what warnOnce has warned of
	grace        bool            // the socket was lost while a data channel was about to open: it gets a moment
	goodbyeRoute route
	closers      sync.WaitGroup // peers being closed
}

// post has the loop run f; when the loop has ended, f is dropped. It never blocks: Pion calls back in the goroutine of
// the loop, too, as it answers an offer.
func (c *webClient) post(f func()) { c.posts.put(f) }

// hand has the loop act on what the client has sent, and waits until it has: no more is read meanwhile.
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

// take has the loop act on a message that has come, and waits until it has.
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

// pace is that of the connection by which a message came.
func (c *webClient) pace(w route) *signaling.RateLimiter {
	if w == channel {
		return c.channelPace
	}
	return c.socketPace
}

// onHeld warns the client's developer that it sends too much.
func (c *webClient) onHeld() {
	c.log.Info("client held back")
	c.warnOnce("pace", signaling.RateLimitMessage)
}

// refuse reports to the client what is wrong with a message.
func (c *webClient) refuse(w route, err error) {
	c.pace(w).ChargeHeavy()
	c.reply(w, err)
}

// onRoundTrip takes a round trip by the socket, for as long as no peer measures its own. It does not block.
func (c *webClient) onRoundTrip(d time.Duration) {
	c.post(func() {
		if c.voiceTo != toPeer {
			c.session.SetRoundTrip(d)
		}
	})
}

// channelGrace is how long a lost socket is made up for by a data channel that is about to open: the client's side
// opens a round trip before ours, so it may use it, and let go of the socket, before we know of it.
const channelGrace = 2 * time.Second

// peers are the one or two that there are.
func (c *webClient) peers() []*peer {
	return slices.DeleteFunc([]*peer{c.peer, c.next}, func(p *peer) bool { return p == nil })
}

// onLost drops a line to the client.
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

// gone reports whether the client can no longer be reached.
func (c *webClient) gone() bool {
	return c.socket == nil && (c.asked.Load() || !slices.ContainsFunc(c.peers(), func(p *peer) bool {
		return p.channel != nil || c.grace && p.WantsChannel()
	}))
}

// open reads the socket until CONNECT_GEMINI. Only an offer and candidates may come before it; they are kept.
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

// errTooLong is the answer to a long message before CONNECT_GEMINI.
var errTooLong = protocol.BadField(
	"payload",
	fmt.Sprintf("is too long: before the conversation begins a message may have %d bytes", protocol.MaxControl),
)

// errNotText is the answer to a message of bytes.
var errNotText = &bridge.Error{Code: bridge.CodeBadMessage, Message: "Only text messages are understood."}

// doorName is where our callers come from, for tools.
const doorName = "web"

// connect lets the client in, or not, and answers CONNECT_GEMINI.
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

// keep keeps what may come before CONNECT_GEMINI.
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

// Serve implements [bridge.Caller]: it carries the session until the client has left or ctx is done.
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
			c.doPosted() // first what came before it: that the channel is open by which it came
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

// doPosted does what was posted.
func (c *webClient) doPosted() {
	for _, f := range c.posts.take() {
		f()
	}
}

// stopCapture stops the microphones and the cameras that Serve started. A client that takes over may have to wait for
// as long as [rtc.Cameras.Stop] takes; nothing else does.
func (c *webClient) stopCapture() {
	for _, p := range c.peers() {
		p.Mute()
	}
	c.cameras.Stop()
}

// farewell sends the client the reason for the end, and returns the close code and the reason for the socket.
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
		if c.session == nil { // else the session has logged its end
			c.log.Info("conversation refused", "err", err)
		}
		c.out.send(socket, protocol.SetupRefused(bridge.AsError(err)))
		c.reply(socket, err)
		end(socket, reason)
		if code == signaling.CloseFailed { // nothing has, and the client knows why it was refused
			return nil
		}
	}
	return err
}

// reply reports an error to the client, if there is one.
func (c *webClient) reply(w route, err error) {
	if err != nil {
		c.out.send(w, protocol.Error(err))
	}
}

// warn warns the client's developer.
func (c *webClient) warn(message string) { c.out.send(events, protocol.Warning(message)) }

// warnOnce warns the client's developer of one thing, the first time.
func (c *webClient) warnOnce(about, message string) {
	if !c.warned[about] {
		c.warned[about] = true
		c.warn(message)
	}
}
