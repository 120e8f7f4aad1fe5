package client

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
	"voxgate/signaling/client/protocol"
	"voxgate/signaling/rtc"
)

// webClient is one client: a WebSocket, and perhaps a WebRTC peer. It is the [bridge.Caller] of its session. Only its
// loop (Serve) changes its state. Others queue functions for the loop.
type webClient struct {
	// Immutable.
	server       *Server
	router       *router
	messageCalls chan func()     // for the client's messages; their reader waits until each was handled
	queue        *loopQueue      // for everything else
	socketLost   <-chan struct{} // closed when the socket is lost

	done    chan struct{} // closed when the loop has ended
	cameras rtc.Cameras   // cameras of the client's peers

	socketPace, channelPace *signaling.RateLimiter

	toldToMove atomic.Bool // the client was asked to move to another gateway; once its socket is closed, it counts as gone

	// Guarded by mu.
	mu        sync.Mutex
	setupSent bool // the first SETUP_COMPLETE was sent

	// Used only by run and in its goroutine: awaitConnect, the loop (Serve) and sendEndMessage.
	log             *slog.Logger
	session         *bridge.Session
	socket          *socketTransport // nil once lost
	peer            *peer            // in use, or connecting as the first
	nextPeer        *peer            // connecting, and will replace peer
	offers          *rate.Limiter
	earlyCandidates []string // candidates that arrived before an offer
	earlyOffer      *string  // an offer that arrived before CONNECT_GEMINI
	joiners         [routeChannel + 1]protocol.Joiner
	mic             *bridge.Microphone // for audio that comes by socket
	sampleReader    media.SampleReader // decodes audio that comes by socket
	voice           *peer              // the peer that plays the voice, or nil: see routeVoice
	voiceTo         destination
	audioBySocket   bool            // the client sends audio by socket, so the voice is not held for a connecting peer
	warnedTopics    map[string]bool // topics about which warnOnce has already warned
	awaitsChannel   bool            // the socket was lost while a data channel was about to open: wait channelGrace
	goodbyeRoute    route
	closers         sync.WaitGroup // peers being closed
}

// postToLoop queues f for the client's loop (Serve); after the loop has ended, f is dropped. postToLoop never blocks,
// because Pion may also call it in the loop's goroutine.
func (c *webClient) postToLoop(f func()) { c.queue.enqueue(f) }

// runInLoop makes the client's loop (Serve) run f, and blocks until f has returned. The calling goroutine reads no
// further messages meanwhile.
func (c *webClient) runInLoop(f func()) {
	acted := make(chan struct{})
	select {
	case c.messageCalls <- func() { f(); close(acted) }:
	case <-c.done:
		return
	}
	select {
	case <-acted:
	case <-c.done:
	}
}

// receiveMessage makes the client's loop (Serve) handle a message, and blocks until the message is handled.
func (c *webClient) receiveMessage(w route, m signaling.Message) {
	if c.limiterFor(w).TakeThrottleWarning() {
		c.postToLoop(c.warnThrottled)
	}
	c.runInLoop(func() {
		switch {
		case !m.Text:
			c.rejectMessage(w, errNotText)
		case m.Err != nil:
			c.rejectMessage(w, m.Err)
		default:
			c.onMessage(w, m.Data)
		}
	})
}

// limiterFor returns the rate limiter of the connection over which a message has come.
func (c *webClient) limiterFor(w route) *signaling.RateLimiter {
	if w == routeChannel {
		return c.channelPace
	}
	return c.socketPace
}

// warnThrottled warns the client's developer that the client sends too much.
func (c *webClient) warnThrottled() {
	c.log.Info("client is read more slowly, because it sends too much")
	c.warnOnce("pace", signaling.RateLimitMessage)
}

// rejectMessage reports an invalid message to the client.
func (c *webClient) rejectMessage(w route, err error) {
	c.limiterFor(w).ChargeHeavy()
	c.sendError(w, err)
}

// onRoundTrip records a round-trip time of the socket, unless the voice goes over WebRTC, where the peer measures its
// own. It does not block.
func (c *webClient) onRoundTrip(d time.Duration) {
	c.postToLoop(func() {
		if c.voiceTo != voiceToPeer {
			c.session.SetRoundTrip(d)
		}
	})
}

// channelGrace is the time that a client without a socket is kept while its data channel opens. The client sees the
// channel open a round trip before the gateway does.
const channelGrace = 2 * time.Second

// currentPeers returns the current peers, at most two.
func (c *webClient) currentPeers() []*peer {
	return slices.DeleteFunc([]*peer{c.peer, c.nextPeer}, func(p *peer) bool { return p == nil })
}

// onTransportLost removes a lost transport to the client.
func (c *webClient) onTransportLost(l transport) {
	c.router.removeTransport(l)
	switch l := l.(type) {
	case *socketTransport:
		if c.socket == l {
			c.log.Info("socket lost")
			c.socket = nil
			l.Close()
			c.awaitsChannel = true
			time.AfterFunc(channelGrace, func() { c.postToLoop(func() { c.awaitsChannel = false }) })
		}
	case *rtc.Channel:
		for _, p := range c.currentPeers() {
			if p.channel == l {
				p.channel = nil
			}
		}
	}
}

// isUnreachable reports whether the client cannot be reached any more.
func (c *webClient) isUnreachable() bool {
	return c.socket == nil && (c.toldToMove.Load() || !slices.ContainsFunc(c.currentPeers(), func(p *peer) bool {
		return p.channel != nil || c.awaitsChannel && p.WantsChannel()
	}))
}

// awaitConnect reads the socket until CONNECT_GEMINI. Only an offer and candidates may come before that message. They
// are kept for later.
func (c *webClient) awaitConnect(ctx context.Context, s *signaling.Socket) (bridge.SessionRequest, error) {
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
			m, err = protocol.ParseMessage(in.Data)
		}
		if err == nil && m.Type == protocol.TypeConnect {
			var open bridge.SessionRequest
			var token string
			if open, token, err = m.ParseConnect(); err == nil {
				return c.acceptConnect(ctx, open, token)
			}
		} else if err == nil {
			err = c.storeEarlyMessage(m)
		}
		c.socketPace.ChargeHeavy()
		c.sendError(routeSocket, err)
	}
}

// errTooLong is the error for a long message before CONNECT_GEMINI.
var errTooLong = protocol.BadField(
	"payload",
	fmt.Sprintf("is too long: before the conversation begins, a message may have at most %d bytes", protocol.MaxControl),
)

// errNotText is the error for a binary message.
var errNotText = &bridge.Error{Code: bridge.CodeBadMessage, Message: "Only text messages are supported."}

// protocolName identifies this protocol to tools.
var protocolName = bridge.RegisterProtocol("web", bridge.InAgents|bridge.InGrants)

// acceptConnect answers CONNECT_GEMINI if the client may open a conversation, and otherwise returns an error.
func (c *webClient) acceptConnect(ctx context.Context, open bridge.SessionRequest, token string) (bridge.SessionRequest, error) {
	open.Origin.Protocol, open.Origin.HasScreen = protocolName, true
	if err := access.From(ctx).Authorize(&open, token); err != nil {
		if e := bridge.AsError(err); e.Field != "" { // the error is about a field of the request
			e.Field = "payload." + e.Field
		}
		return bridge.SessionRequest{}, err
	}
	c.socket.MarkOpened()
	c.router.sendMessage(routeSocket, protocol.ConnectedMessage(c.server.listICEServers()))
	return open, nil
}

// storeEarlyMessage stores a message that may precede CONNECT_GEMINI.
func (c *webClient) storeEarlyMessage(m protocol.ClientMessage) error {
	switch m.Type {
	case protocol.TypeOffer:
		sdp, err := m.ParseOffer()
		if err == nil {
			c.earlyOffer = &sdp
		}
		return err
	case protocol.TypeCandidate:
		return c.onCandidate(m)
	}
	return &bridge.Error{
		Code: bridge.CodeNotConnected, Field: "type",
		Message: fmt.Sprintf("%s came before CONNECT_GEMINI, which must be first.", protocol.ClipText(m.Type)),
	}
}

// Serve implements [bridge.Caller]. It serves the session until the client has left or ctx is done.
func (c *webClient) Serve(ctx context.Context, s *bridge.Session) error {
	c.session = s
	c.log = c.log.With("call", s.ID())
	c.log.Info("client connected")
	defer c.stopCapture()
	c.routeVoice()
	if o := c.earlyOffer; o != nil {
		c.earlyOffer = nil
		c.sendError(routeSocket, c.onOffer(routeSocket, *o))
	}
	c.sendError(routeSocket, s.Greet())
	for !c.isUnreachable() {
		select {
		case f := <-c.messageCalls:
			c.runQueued() // first what was queued before the message, such as the opening of its channel
			f()
		case <-c.queue.wake:
			c.runQueued()
		case <-c.socketLost:
			c.socketLost = nil
			c.runQueued()
			if c.socket != nil {
				c.onTransportLost(c.socket)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// runQueued runs the functions that postToLoop has queued.
func (c *webClient) runQueued() {
	for _, f := range c.queue.takeAll() {
		f()
	}
}

// stopCapture stops the microphones and cameras that Serve started. It blocks as long as [rtc.Cameras.Stop]. This
// delays only a client that takes over the conversation.
func (c *webClient) stopCapture() {
	for _, p := range c.currentPeers() {
		p.StopMicrophone()
	}
	c.cameras.Stop()
}

// sendEndMessage tells the client that the conversation has ended because of err. closeErr is the error that the
// socket's close frame must report. It is err, but nil if the setup has failed with [signaling.CloseFailed], because
// the client then already knows the reason.
func (c *webClient) sendEndMessage(err error) (closeErr error) {
	end := func(w route, reason string) { c.router.sendMessage(w, protocol.DisconnectedMessage(reason)) }
	code, reason := signaling.CloseReason(err)
	c.mu.Lock()
	setUp := c.setupSent
	c.mu.Unlock()
	var limit bridge.Limit
	switch {
	case err == nil, errors.Is(err, bridge.ErrLeft), errors.Is(err, signaling.ErrSlow), errors.Is(err, signaling.ErrNoFirstMessage):
	case errors.Is(err, bridge.ErrGoodbye):
		end(c.goodbyeRoute, "goodbye")
	case errors.Is(err, bridge.ErrReplaced):
		end(routeChannel, "replaced")
	case code == signaling.CloseGoingAway:
		c.router.sendMessage(routeChannel, protocol.EndMessage("The gateway is shutting down.", bridge.EndCode(bridge.ErrShutdown)))
	case errors.As(err, &limit):
		c.router.sendMessage(routeChannel, protocol.EndMessage(limit.Error(), bridge.EndCode(err)))
	case setUp:
		c.sendError(routeChannel, err)
		end(routeChannel, reason)
	default:
		if c.session == nil { // otherwise the session has logged its end
			c.log.Info("conversation refused", "err", err)
		}
		c.router.sendMessage(routeSocket, protocol.SetupRefusedMessage(bridge.AsError(err)))
		c.sendError(routeSocket, err)
		end(routeSocket, reason)
		if code == signaling.CloseFailed { // the client knows why it was rejected: close normally
			return nil
		}
	}
	return err
}

// sendError reports an error to the client, unless it is nil.
func (c *webClient) sendError(w route, err error) {
	if err != nil {
		c.router.sendMessage(w, protocol.ErrorMessage(err))
	}
}

// sendWarning warns the client's developer.
func (c *webClient) sendWarning(message string) {
	c.router.sendMessage(routeEvents, protocol.WarningMessage(message))
}

// warnOnce warns the client's developer once per topic.
func (c *webClient) warnOnce(topic, message string) {
	if !c.warnedTopics[topic] {
		c.warnedTopics[topic] = true
		c.sendWarning(message)
	}
}
