package signaling

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
	"voxgate/signaling/access"
	"voxgate/signaling/protocol"
	"voxgate/signaling/rtc"
)

// webClient is one client: a WebSocket, and perhaps a WebRTC peer. It is the [bridge.Caller] of its session. Its loop (Serve)
// alone changes its state. What reads messages hands them to it, and everything else posts to it.
type webClient struct {
	// Static.
	door    *WebDoor
	out     *ways
	handed  chan func()     // what the client has sent; who hands it over waits
	posts   *Outbox[func()] // everything else; its order is kept
	done    chan struct{}   // closed when the loop takes nothing any more
	cameras rtc.Cameras     // of its peers

	socketPace, channelPace *Pace

	asked atomic.Bool // to go to another gateway: who closes the socket then has gone

	// Guarded by mu.
	mu       sync.Mutex
	setups   []way // where the next SETUP_COMPLETE goes, in order
	setUp    bool  // the first one was told
	contexts []way // where the next CONTEXT goes, in order

	// Owned by the loop: first run and open, then Serve, then farewell; all one goroutine.
	log        *slog.Logger
	session    *bridge.Session
	socket     *socketLine // nil once lost
	peer       *peer       // the one in use, or connecting as the first
	next       *peer       // connecting, replaces peer
	offers     *rate.Limiter
	early      []string // candidates that came before an offer
	offered    *string  // an offer that came before CONNECT_GEMINI
	pieces     [channel + 1]protocol.Joiner
	mic        *bridge.Microphone // of socket audio
	voice      *peer              // who plays the voice; nil: see voiceTo
	voiceTo    destination
	byRequest  bool            // the client sends audio by socket, so the voice is not held for a peer that is to connect
	warned     map[string]bool // what warnOnce has warned of
	grace      bool            // the socket was lost while a data channel was about to open: it gets a moment
	goodbyeWay way
	closers    sync.WaitGroup // peers being closed
}

// post has the loop run f; when the loop has ended, f is dropped. It never blocks: Pion calls back in the goroutine of the loop, too,
// as it answers an offer.
func (c *webClient) post(f func()) { c.posts.Put(f, 0) }

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

// read hands over what comes by the socket until it is lost.
func (c *webClient) read(l *socketLine) {
	for {
		r, text, err := l.Next()
		if err != nil {
			c.post(func() { c.onLost(l) })
			return
		}
		if !text {
			c.take(socket, nil, false)
			continue
		}
		raw, err := protocol.Read(r)
		var refused *bridge.Error
		switch {
		case err == nil:
			c.take(socket, raw, true)
		case errors.As(err, &refused):
			c.hand(func() { c.refuse(socket, refused) })
		} // else Next fails, too
	}
}

// take has the loop act on a message that has come, and waits until it has.
func (c *webClient) take(w way, raw []byte, text bool) {
	if c.pace(w).held() {
		c.post(c.onHeld)
	}
	c.hand(func() {
		if text {
			c.onMessage(w, raw)
		} else {
			c.refuse(w, errNotText)
		}
	})
}

// pace is that of the connection by which a message came.
func (c *webClient) pace(w way) *Pace {
	if w == channel {
		return c.channelPace
	}
	return c.socketPace
}

// onHeld tells the client's developer that it sends too much.
func (c *webClient) onHeld() {
	c.log.Info("client held back")
	c.warnOnce("pace", fmt.Sprintf("Too much comes, and the gateway reads it more slowly now: %d messages a second are read, %d of those that are not audio, "+
		"what takes %.0f %% of a processor's time, and %d bytes.", messageRate, messageRate/heavy, 100*workShare, byteRate))
}

// refuse tells the client what is wrong with a message.
func (c *webClient) refuse(w way, err error) {
	c.pace(w).Charge()
	c.reply(w, err)
}

// onRoundTrip takes a round trip by the socket, for as long as no peer measures its own. It does not block.
func (c *webClient) onRoundTrip(d time.Duration) {
	c.post(func() {
		if c.voiceTo != toPeer {
			c.session.RoundTrip(d)
		}
	})
}

// channelGrace is how long a lost socket is made up for by a data channel that is about to open: the client's side opens
// a round trip before ours, so it may use it, and let go of the socket, before we know of it.
const channelGrace = 2 * time.Second

// peers are the one or two that there are.
func (c *webClient) peers() []*peer {
	return slices.DeleteFunc([]*peer{c.peer, c.next}, func(p *peer) bool { return p == nil })
}

// onLost drops a way to the client.
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

// gone tells whether the client can no longer be reached.
func (c *webClient) gone() bool {
	return c.socket == nil && (c.asked.Load() || !slices.ContainsFunc(c.peers(), func(p *peer) bool {
		return p.channel != nil || c.grace && p.WantsChannel()
	}))
}

// open reads the socket until CONNECT_GEMINI. Only an offer and candidates may come before it; they are kept.
func (c *webClient) open(ctx context.Context) (bridge.Open, error) {
	for {
		raw, text, err := c.socket.Read(protocol.MaxControl)
		var m protocol.ClientMessage
		switch {
		case errors.Is(err, ErrTooLong):
			err = errTooLong
		case err != nil:
			return bridge.Open{}, errNoRequest
		case !text:
			err = errNotText
		default:
			m, err = protocol.Parse(raw)
		}
		if err == nil && m.Type == protocol.TypeConnect {
			var open bridge.Open
			var token string
			if open, token, err = m.Open(); err == nil {
				return c.connect(ctx, open, token)
			}
		} else if err == nil {
			err = c.keep(m)
		}
		c.socketPace.Charge()
		c.reply(socket, err)
	}
}

// errTooLong is the answer to a long message before CONNECT_GEMINI.
var errTooLong = protocol.BadField("payload", fmt.Sprintf("is too long: before the conversation begins a message may have %d bytes", protocol.MaxControl))

// errNotText is the answer to a message of bytes.
var errNotText = &bridge.Error{Code: bridge.CodeBadMessage, Message: "Only text messages are understood."}

// errNoRequest is the end of a socket that never sent CONNECT_GEMINI.
var errNoRequest = errors.New("no CONNECT_GEMINI came in time")

// doorName is what tools are told of where our callers come from.
const doorName = "web"

// connect lets the client in, or not, and answers CONNECT_GEMINI.
func (c *webClient) connect(ctx context.Context, open bridge.Open, token string) (bridge.Open, error) {
	open.Origin = bridge.Origin{Door: doorName, Screen: true}
	if err := access.From(ctx).Authorize(&open, token); err != nil {
		return bridge.Open{}, err
	}
	c.socket.Opened()
	c.setups = append(c.setups, socket)
	c.out.put(socket, protocol.Connected(c.door.iceServers(time.Now())))
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
	for !c.gone() {
		select {
		case f := <-c.handed:
			c.doPosted() // first what came before it: that the channel is open by which it came
			f()
		case <-c.posts.wake:
			c.doPosted()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// doPosted does what was posted.
func (c *webClient) doPosted() {
	for {
		f, ok, _, _ := c.posts.next()
		if !ok {
			return
		}
		f()
	}
}

// stopCapture stops the microphones and the cameras that Serve started. A client that takes over may have to wait for as long as
// [rtc.Cameras.Stop] takes; nothing else does.
func (c *webClient) stopCapture() {
	for _, p := range c.peers() {
		p.Mute()
	}
	c.cameras.Stop()
}

// farewell tells the client why it is over, and returns the close code for the socket.
func (c *webClient) farewell(err error) (code int, reason string) {
	end := func(w way, reason string) { c.out.put(w, protocol.Disconnected(reason)) }
	code, reason = Goodbye(err)
	c.mu.Lock()
	setUp := c.setUp
	c.mu.Unlock()
	var limit bridge.Limit
	switch {
	case errors.Is(err, errNoRequest):
		return closePolicy, err.Error()
	case err == nil, errors.Is(err, bridge.ErrLeft), errors.Is(err, ErrSlow):
	case errors.Is(err, bridge.ErrGoodbye):
		end(c.goodbyeWay, "goodbye")
	case errors.Is(err, bridge.ErrReplaced):
		end(channel, "replaced")
	case code == closeGoingAway:
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
		c.out.put(socket, protocol.SetupRefused(bridge.AsError(err)))
		c.reply(socket, err)
		end(socket, reason)
		if code == closeFailed { // nothing has, and why it was refused was told
			return closeNormal, ""
		}
	}
	return code, reason
}

// reply tells the client of an error, if there is one.
func (c *webClient) reply(w way, err error) {
	if err != nil {
		c.out.put(w, protocol.Error(err))
	}
}

// warn tells the client's developer.
func (c *webClient) warn(message string) { c.out.put(events, protocol.Warning(message)) }

// warnOnce tells the client's developer of one thing, the first time.
func (c *webClient) warnOnce(about, message string) {
	if !c.warned[about] {
		c.warned[about] = true
		c.warn(message)
	}
}
