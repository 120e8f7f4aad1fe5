// Package web serves browsers and apps with the client protocol: [Server] implements it over WebSocket and data channel, and
// [Site.Page] serves the web page that uses it. PROTOCOL.md describes the protocol for client authors.
package web

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"voxgate/bridge"
	"voxgate/media/opus"
	"voxgate/signaling"
	"voxgate/signaling/protocol"
	"voxgate/signaling/rtc"
)

// Door serves WebSockets of the client protocol for browsers and apps.
type Door struct {
	Host        *bridge.Host
	RTC         *rtc.API
	ICEServers  []signaling.ICEServer // for clients
	TURNSecret  string                // shared with the TURN servers that need credentials
	OpusDecoder opus.DecoderChoice
	Logger      *slog.Logger
}

// ServeHTTP runs one call. It returns at the end of the call, which may be long after the end of the socket.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &webClient{
		door: d, handed: make(chan func()), done: make(chan struct{}), warned: map[string]bool{}, offers: rtc.NewOfferLimiter(),
		out: newRoutes(), channelPace: signaling.NewRateLimiter(),
	}
	o := signaling.SocketOptions{Read: protocol.Read, Write: c.out.write, CloseReason: signaling.CloseReason, OnRoundTrip: c.onRoundTrip}
	signaling.ServeSocket(w, r, o, c.run)
	for _, p := range c.peers() {
		p.close()
	}
	c.closers.Wait()
}

// flushTimeout is the timeout for the close message on the data channel.
const flushTimeout = time.Second

// run serves a client from the opening of its socket to the close message.
func (c *webClient) run(ctx context.Context, s *signaling.Socket) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c.log = c.door.Logger.With("remote", s.Remote())
	c.posts = newPosts(func() { cancel(errOverrun) })
	c.socket, c.socketPace = &socketLine{s.WSConn()}, s.WSConn().Limiter()
	c.out.put = s.Put
	c.out.lost = func(l line) { c.post(func() { c.onLost(l) }) }
	c.out.connect(socket, c.socket)
	open, err := c.open(ctx, s)
	if err == nil {
		c.lost = s.StartReading(func(m signaling.Message) { c.take(socket, m) })
		err = c.door.Host.Serve(ctx, c, open)
	}
	close(c.done)
	c.posts.close()
	c.channelPace.Release()
	err = c.farewell(err)
	c.out.close()
	s.DrainWrites()
	if p := c.peer; p != nil && p.channel != nil {
		p.channel.Flush(ctx, flushTimeout) // a close message that does not arrive in time is dropped
	}
	return err
}
