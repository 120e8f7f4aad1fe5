package signaling

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/pion/webrtc/v4"
	"golang.org/x/time/rate"

	"voxgate/bridge"
)

// call is one client: a WebSocket, and perhaps a WebRTC peer. It is the [bridge.Caller] of its session. Its loop (Serve)
// alone changes its state; the reader of the socket and pion's callbacks post to it.
type call struct {
	// Static.
	server *Server
	out    *outbox
	posts  chan func()
	done   chan struct{} // closed when nothing is taken from posts any more

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
	early      []candidatePayload
	offered    *offerPayload // came before CONNECT_GEMINI
	pieces     [channel + 1]puzzles
	mic        *bridge.Microphone // of socket audio
	voice      *peer              // who plays the voice; nil: see voiceTo
	voiceTo    destination
	byRequest  bool // the client sends audio by socket, so the voice is not held for a peer
	warnedOld  bool // of chunks and mediaChunks
	warnedTwo  bool // of two microphones
	grace      bool // the socket was lost while a data channel was about to open: it gets a moment
	goodbyeWay way
	closers    sync.WaitGroup // peers being closed
}

// destination is where the model's voice goes.
type destination int

const (
	nowhere destination = iota
	toSocket
	held // for a peer that is connecting
	toPeer
)

// run is the life of a client from its socket's opening to its last goroutine.
func (c *call) run(ctx context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	line := c.socket
	c.out.connect(socket, line)
	running.Go(func() { line.ping(ctx) })
	written := make(chan struct{})
	go func() {
		defer close(written)
		if err := c.out.run(ctx, c.lineLost); err != nil {
			cancel(err)
		}
	}()
	// A gateway that shuts down does not wait for first messages.
	interrupted := context.AfterFunc(ctx, func() { line.goodbye(closeGoingAway, "") })
	wish, err := c.open()
	if interrupted() && err == nil {
		running.Go(func() { c.read(line) })
		err = c.server.host.Serve(ctx, c, wish)
	}
	close(c.done)
	code, reason := c.farewell(err)
	c.out.close()
	<-written
	if p := c.peer; p != nil && p.channel != nil {
		p.channel.below(ctx, 0, closeTimeout) // the goodbye shall arrive; if it does not, so be it
	}
	line.goodbye(code, reason)
	cancel(nil)
	running.Wait()
	line.conn.Close()
	for _, p := range []*peer{c.peer, c.next} {
		if p != nil {
			p.close()
		}
	}
	c.closers.Wait()
}

// post has f run by the loop; when the loop has ended, f is dropped.
func (c *call) post(f func()) {
	select {
	case c.posts <- f:
	case <-c.done:
	}
}

// read posts what comes by the socket until it is lost.
func (c *call) read(l *socketLine) {
	for {
		raw, err := l.read()
		switch {
		case errors.Is(err, errNotText):
			c.post(func() { c.reply(socket, err) })
		case err != nil:
			c.post(func() { c.onLost(l) })
			return
		default:
			c.post(func() { c.onMessage(socket, raw) })
		}
	}
}

// lineLost is called by the outbox's writer.
func (c *call) lineLost(l line) { c.post(func() { c.onLost(l) }) }

// onLost drops a way to the client.
func (c *call) onLost(l line) {
	c.out.drop(l)
	switch l := l.(type) {
	case *socketLine:
		if c.socket == l {
			c.log.Info("socket lost")
			c.socket = nil
			l.conn.Close()
			c.grace = true
			time.AfterFunc(channelGrace, func() { c.post(func() { c.grace = false }) })
		}
	case *dataChannel:
		for _, p := range []*peer{c.peer, c.next} {
			if p != nil && p.channel == l {
				p.channel = nil
			}
		}
	}
}

// gone tells whether the client can no longer be reached.
func (c *call) gone() bool {
	for _, p := range []*peer{c.peer, c.next} {
		if p != nil && (p.channel != nil || c.grace && p.wantsChannel) {
			return false
		}
	}
	return c.socket == nil
}

// channelGrace is how long a lost socket is made up for by a data channel that is about to open: the client's side opens
// a round trip before ours, so it may use it, and let go of the socket, before we know of it.
const channelGrace = 2 * time.Second

// open reads the socket until CONNECT_GEMINI. Only an offer and candidates may come before it; they are kept.
func (c *call) open() (bridge.Open, error) {
	for {
		raw, err := c.socket.read()
		if errors.Is(err, errNotText) {
			c.reply(socket, err)
			continue
		}
		if err != nil {
			return bridge.Open{}, errNoRequest
		}
		e, err := parseEnvelope(raw)
		if err == nil && e.Type == typeConnect {
			var wish bridge.Open
			if wish, err = c.connect(e); err == nil {
				return wish, nil
			}
		} else if err == nil {
			err = c.keep(e)
		}
		c.reply(socket, err)
	}
}

// errNoRequest is the end of a socket that never sent CONNECT_GEMINI.
var errNoRequest = errors.New("no CONNECT_GEMINI came in time")

// connect reads CONNECT_GEMINI and answers it.
func (c *call) connect(e envelope) (bridge.Open, error) {
	var p connectPayload
	if len(e.Payload) > 0 {
		if err := e.decode(&p); err != nil {
			return bridge.Open{}, err
		}
	}
	if len(p.InitialConfig) == 0 {
		p.InitialConfig = []byte("{}") // everything has a default
	}
	c.socket.opened = true
	c.setups = append(c.setups, socket)
	c.out.put(socket, typeConnected, marshal(map[string]any{
		"protocol": protocolVersion, "iceServers": c.server.options.ICEServers,
	}))
	return bridge.Open{Config: p.InitialConfig, Resumable: p.Resumable, ResumeToken: p.ResumeToken}, nil
}

// keep keeps what may come before CONNECT_GEMINI.
func (c *call) keep(e envelope) error {
	switch e.Type {
	case typeOffer:
		var p offerPayload
		if err := e.decode(&p); err != nil {
			return err
		}
		c.offered = &p
		return nil
	case typeCandidate:
		return c.onCandidate(e)
	}
	return &bridge.Error{
		Code: bridge.CodeNotConnected, Field: "type", Message: fmt.Sprintf("%s came before CONNECT_GEMINI, which must be first.", clip(e.Type)),
	}
}

// Serve implements [bridge.Caller]: it carries the session until the client has left or ctx is done.
func (c *call) Serve(ctx context.Context, s *bridge.Session) error {
	c.session = s
	c.log = c.log.With("call", s.ID())
	c.log.Info("client connected")
	defer c.hush()
	c.steer()
	if o := c.offered; o != nil {
		c.offered = nil
		c.reply(socket, c.onOffer(socket, *o))
	}
	for !c.gone() {
		select {
		case f := <-c.posts:
			f()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// hush stops the microphones that Serve started.
func (c *call) hush() {
	for _, p := range []*peer{c.peer, c.next} {
		if p != nil {
			p.mute()
		}
	}
}

// farewell tells the client why it is over, and returns the close code for the socket.
func (c *call) farewell(err error) (code int, reason string) {
	end := func(w way, reason string) { c.out.put(w, typeDisconnected, marshal(disconnectedPayload{reason})) }
	var limit bridge.Limit
	switch {
	case errors.Is(err, errNoRequest):
		return closePolicy, err.Error()
	case err == nil, errors.Is(err, bridge.ErrLeft):
		return closeNormal, ""
	case errors.Is(err, bridge.ErrGoodbye):
		end(c.goodbyeWay, "goodbye")
		return closeNormal, ""
	case errors.Is(err, bridge.ErrReplaced):
		end(channel, "replaced")
		return closeNormal, ""
	case errors.Is(err, bridge.ErrShutdown), errors.Is(err, context.Canceled):
		end(channel, "The gateway is shutting down.")
		return closeGoingAway, ""
	case errors.As(err, &limit):
		end(channel, limit.Error())
		return closeNormal, ""
	case errors.Is(err, errSlow):
		return closeTryLater, err.Error()
	}
	failure := bridge.AsError(err)
	if c.session == nil { // else the session has logged its end
		c.log.Info("conversation refused", "err", err)
	}
	c.mu.Lock()
	refused := !c.setUp
	c.mu.Unlock()
	if refused {
		c.out.put(socket, typeSetupComplete, marshal(setupRefused(failure)))
		c.reply(socket, failure)
		end(socket, failure.Message)
		return closeNormal, ""
	}
	c.reply(channel, failure)
	end(channel, failure.Message)
	return closeFailed, failure.Message
}

// reply tells the client of an error, if there is one.
func (c *call) reply(w way, err error) {
	if err != nil {
		c.out.put(w, typeError, marshal(errorPayloadOf(bridge.AsError(err))))
	}
}

// steer sends the voice where it belongs now.
func (c *call) steer() {
	to, by := toSocket, (*peer)(nil)
	switch p := c.peer; {
	case p != nil && p.connected && p.voice:
		to, by = toPeer, p
	case c.byRequest:
	case p != nil && p.voice || c.next != nil && c.next.voice:
		to = held
	}
	if to == c.voiceTo && by == c.voice {
		return
	}
	c.voiceTo, c.voice = to, by
	switch to {
	case toPeer:
		c.session.Attach(by.output)
	case toSocket:
		c.session.Attach(&chunkOutput{out: c.out})
	}
	c.session.Hold(to == held)
}

// newPeer makes a peer; what pion reports of it is posted to the loop.
func (c *call) newPeer(w way, fingerprint string) (*peer, error) {
	pc, err := c.server.options.RTC.api.NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		return nil, fmt.Errorf("new peer: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background()) // until p.close
	p := &peer{log: c.log, pc: pc, fingerprint: fingerprint, from: w, stop: stop}
	pc.OnConnectionStateChange(func(s webrtc.PeerConnectionState) { c.post(func() { c.onPeerState(p, s) }) })
	pc.OnICECandidate(func(i *webrtc.ICECandidate) { c.post(func() { c.sendCandidate(p, i) }) })
	pc.OnTrack(func(t *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
		if t.Kind() == webrtc.RTPCodecTypeAudio {
			p.do(func() { p.receive(ctx, t, c.session, c.server.options.OpusDecoder) })
		}
	})
	pc.OnDataChannel(func(dc *webrtc.DataChannel) {
		if dc.Label() != eventsLabel {
			dc.Close() // each one that stays is a goroutine
			return
		}
		dc.OnOpen(func() { c.post(func() { c.onChannel(p, dc) }) })
		dc.OnClose(func() { c.post(func() { c.onChannelClosed(p, dc) }) })
		dc.OnMessage(func(m webrtc.DataChannelMessage) {
			if !m.IsString {
				c.post(func() { c.reply(channel, errNotText) })
				return
			}
			c.post(func() { c.onMessage(channel, m.Data) })
		})
	})
	return p, nil
}

// onChannel moves the events to a data channel that has opened.
func (c *call) onChannel(p *peer, dc *webrtc.DataChannel) {
	if p != c.peer && p != c.next {
		return
	}
	p.channel = newDataChannel(dc, p.maxMessage)
	c.out.connect(channel, p.channel)
}

// onChannelClosed moves them back.
func (c *call) onChannelClosed(p *peer, dc *webrtc.DataChannel) {
	if p.channel != nil && p.channel.dc == dc {
		c.onLost(p.channel)
	}
}

// onPeerState follows a peer's life.
func (c *call) onPeerState(p *peer, s webrtc.PeerConnectionState) {
	if p != c.peer && p != c.next {
		return
	}
	c.log.Debug("peer", "state", s)
	switch s {
	case webrtc.PeerConnectionStateConnected:
		if p == c.next {
			c.closePeer(c.peer)
			c.peer, c.next = p, nil
		}
		p.connected = true
		c.steer()
	case webrtc.PeerConnectionStateFailed:
		c.losePeer(p, "The WebRTC connection failed; the voice goes on over the WebSocket.")
	case webrtc.PeerConnectionStateClosed:
		c.losePeer(p, "")
	}
}

// losePeer gives a peer up; message says why, if the client does not know.
func (c *call) losePeer(p *peer, message string) {
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
		c.log.Info("peer lost", "was_connected", p.connected)
		c.reply(events, &bridge.Error{Code: bridge.CodePeerFailed, Message: message})
	}
	c.steer()
}

// closePeer closes a peer in the background; run waits for it.
func (c *call) closePeer(p *peer) {
	if p.channel != nil {
		c.out.drop(p.channel)
		p.channel = nil
	}
	c.closers.Go(p.close)
}

// sendCandidate trickles one of our candidates, after the answer: the loop was busy with that when it was found.
func (c *call) sendCandidate(p *peer, i *webrtc.ICECandidate) {
	var payload candidatePayload
	if i != nil {
		init := i.ToJSON()
		payload.Candidate, payload.SDPMLineIndex = &init.Candidate, init.SDPMLineIndex
		if p.mid != "" {
			payload.SDPMid = &p.mid
		}
	}
	c.out.put(p.from, typeCandidate, marshal(payload))
}
