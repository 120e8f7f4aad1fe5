package signaling

import (
	"context"
	"log/slog"
	"net/http"
	"sync"

	"voxgate/bridge"
	"voxgate/media/opus"
	"voxgate/signaling/rtc"
)

// WebDoor is the front door for browsers and apps: it serves WebSockets that speak the client protocol.
type WebDoor struct {
	Host        *bridge.Host
	RTC         *rtc.API
	ICEServers  []ICEServer // told to clients
	TURNSecret  string      // shared with those of them that need credentials
	OpusDecoder opus.DecoderChoice
	Logger      *slog.Logger
}

// ServeHTTP runs one call. It returns when the call is over, which may be long after the socket is.
func (d *WebDoor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &webClient{
		door: d, handed: make(chan func()), posts: NewOutbox[func()](), done: make(chan struct{}), warned: map[string]bool{},
		offers: rtc.NewOfferLimiter(),
	}
	c.out = newWays(func(l line) { c.post(func() { c.onLost(l) }) })
	l, err := Accept(w, r, c.onRoundTrip)
	if err != nil {
		return // Accept has answered
	}
	c.log = d.Logger.With("remote", l.Remote())
	c.socket, c.socketPace, c.channelPace = &socketLine{l}, l.pace, NewPace()
	c.run(r.Context())
}

// run is the life of a client from its socket's opening to its last goroutine.
func (c *webClient) run(ctx context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	line := c.socket
	c.out.connect(socket, line)
	running.Go(func() { line.Ping(ctx) })
	written := make(chan struct{})
	go func() {
		defer close(written)
		if err := c.out.run(context.WithoutCancel(ctx)); err != nil { // the goodbye is written, too
			cancel(err)
		}
	}()
	// A gateway that shuts down does not wait for first messages.
	interrupted := context.AfterFunc(ctx, func() { line.Goodbye(closeGoingAway, "") })
	open, err := c.open(ctx)
	if interrupted() && err == nil {
		running.Go(func() { c.read(line) })
		err = c.door.Host.Serve(ctx, c, open)
	}
	close(c.done)
	c.posts.Close()
	c.channelPace.end()
	code, reason := c.farewell(err)
	c.out.close()
	<-written
	if p := c.peer; p != nil && p.channel != nil {
		p.channel.Flush(ctx, closeTimeout) // the goodbye shall arrive; if it does not, so be it
	}
	line.Goodbye(code, reason)
	cancel(nil)
	running.Wait()
	line.Close()
	for _, p := range c.peers() {
		p.close()
	}
	c.closers.Wait()
}
