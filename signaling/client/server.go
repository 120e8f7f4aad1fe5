// Package client serves browsers and apps with the client protocol: [Server] implements it over WebSocket and data channel, and
// [Site.Handler] serves the web page that uses it. PROTOCOL.md describes the protocol for client authors.
package client

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"voxgate/bridge"
	"voxgate/media/opus"
	"voxgate/signaling"
	"voxgate/signaling/client/protocol"
	"voxgate/signaling/rtc"
)

// Server serves WebSockets of the client protocol for browsers and apps.
type Server struct {
	Host        *bridge.Host
	RTC         *rtc.API
	ICEServers  func() []signaling.ICEServer // for a client that connects now; may be nil
	OpusDecoder opus.DecoderChoice
	Logger      *slog.Logger
}

// listICEServers returns the servers for a client that connects now. The list is never nil, because JSON would show nil as
// null.
func (s *Server) listICEServers() []signaling.ICEServer {
	if s.ICEServers == nil {
		return []signaling.ICEServer{}
	}
	return s.ICEServers()
}

// ServeHTTP runs one call. It returns at the end of the call, which may be long after the end of the socket.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &webClient{
		server: s, messageCalls: make(chan func()), done: make(chan struct{}), warnedTopics: map[string]bool{}, offers: rtc.NewOfferLimiter(),
		router: newRouter(), channelPace: signaling.NewRateLimiter(),
	}
	o := signaling.SocketOptions{
		Read: protocol.ReadMessage, Write: c.router.writeMessage, CloseReason: signaling.CloseReason, OnRoundTrip: c.onRoundTrip,
	}
	signaling.ServeSocket(w, r, o, c.run)
	for _, p := range c.currentPeers() {
		p.closeAndWait()
	}
	c.closers.Wait()
}

// flushTimeout is the timeout for the close message on the data channel.
const flushTimeout = time.Second

// run serves a client from the opening of its socket to the close message.
func (c *webClient) run(ctx context.Context, s *signaling.Socket) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c.log = c.server.Logger.With("remote", s.Remote())
	c.queue = newLoopQueue(func() { cancel(errOverrun) })
	c.socket, c.socketPace = &socketTransport{s.WSConn()}, s.WSConn().Limiter()
	c.router.enqueue = s.Put
	c.router.onLost = func(l transport) { c.postToLoop(func() { c.onTransportLost(l) }) }
	c.router.setTransport(routeSocket, c.socket)
	open, err := c.awaitConnect(ctx, s)
	if err == nil {
		c.socketLost = s.StartReading(func(m signaling.Message) { c.receiveMessage(routeSocket, m) })
		err = c.server.Host.Serve(ctx, c, open)
	}
	close(c.done)
	c.queue.close()
	c.channelPace.Release()
	err = c.sendEndMessage(err)
	c.router.close()
	s.FinishWrites()
	if p := c.peer; p != nil && p.channel != nil {
		p.channel.Flush(ctx, flushTimeout) // a close message that does not arrive in time is dropped
	}
	return err
}
