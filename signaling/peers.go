package signaling

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"voxgate/bridge"
	"voxgate/crash"
	"voxgate/media"
	"voxgate/signaling/access"
	"voxgate/signaling/rtc"
)

// connectTime is how long a peer may take from its answer until it is connected.
const connectTime = 15 * time.Second

// PeerSession is a conversation as [rtc.Session], for any door with a WebRTC peer.
type PeerSession struct{ *bridge.Session }

// Mic implements [rtc.Session].
func (s PeerSession) Mic(rate int) (media.Sink, error) { return s.Session.NewMicrophone(rate) }

// PeerCall is a WebRTC call that begins with one HTTP request. A door's call embeds it, and has the methods Serve and
// Notify of a [bridge.Caller] beside it: Serve calls Answer, then Begin, and returns when the peer is lost.
type PeerCall struct {
	Offer rtc.Offer

	session  atomic.Pointer[bridge.Session] // nil before Answer
	answer   chan string                    // takes the one there is
	requests chan func()
	over     chan struct{}
}

// Call is the call itself, for [Peers].
func (c *PeerCall) Call() *PeerCall { return c }

// Ask has the call do something for a further HTTP request, and returns its error; gone: the call is over.
func (c *PeerCall) Ask(ctx context.Context, gone error, do func() error) error {
	done := make(chan error, 1)
	select {
	case c.requests <- func() { done <- do() }:
	case <-c.over:
		return gone
	case <-ctx.Done():
		return ctx.Err()
	}
	return <-done
}

// Requests are what Ask wants to be done: Serve calls each.
func (c *PeerCall) Requests() <-chan func() { return c.requests }

// HangUp ends the conversation.
func (c *PeerCall) HangUp() {
	if s := c.session.Load(); s != nil {
		_ = s.Do(bridge.Goodbye{}) // fails if it has just ended
	}
}

// Peer is the peer of a [PeerCall].
type Peer struct {
	*rtc.Peer
	SDP       string          // the answer
	Connected <-chan struct{} // closed when the peer has connected, the first time; the voice goes out from then on
	Lost      <-chan struct{} // closed when the peer is lost, or has not connected within 15 s

	cameras rtc.Cameras
	late    *time.Timer
	left    atomic.Bool
}

// Left reports whether the peer is lost because the client has closed it.
func (p *Peer) Left() bool { return p.left.Load() }

// Answer makes the peer of a conversation and answers the offer. The options Session, which may be nil, Cameras,
// Connected and Lost are set here. An error that is a [rtc.RefusedError] says what is wrong with the offer. The peer
// must be closed.
func (c *PeerCall) Answer(s *bridge.Session, api *rtc.API, o rtc.PeerOptions) (*Peer, error) {
	c.session.Store(s)
	connected, lost := make(chan struct{}), make(chan struct{})
	isConnected, isLost := sync.OnceFunc(func() { s.HoldVoice(false); close(connected) }), sync.OnceFunc(func() { close(lost) })
	p := &Peer{Connected: connected, Lost: lost, late: time.AfterFunc(connectTime, isLost)}
	if o.Session == nil {
		o.Session = PeerSession{s}
	}
	o.Cameras = &p.cameras
	o.Connected = func() { p.late.Stop(); isConnected() }
	o.Lost = func(why string) {
		p.left.Store(why == "")
		isLost()
	}
	var err error
	if p.Peer, err = api.NewPeer(o); err != nil {
		p.late.Stop()
		return nil, err
	}
	offer := c.Offer
	c.Offer = rtc.Offer{} // 20 KB that the call would keep
	if p.SDP, err = p.Peer.Answer(offer); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// NoListener is where the voice goes while nobody hears it: it is played in its time, as recordings and transcripts have it.
type NoListener struct{}

// Lead implements [media.Output].
func (NoListener) Lead() time.Duration { return 0 }

// WriteFrame implements [media.Output].
func (NoListener) WriteFrame(media.Frame) error { return nil }

// Output is where the model's voice goes: to the client, or nowhere if its offer takes none.
func (p *Peer) Output() media.Output {
	if voice := p.Voice(); voice != nil {
		return voice
	}
	return NoListener{}
}

// Begin attaches the voice and sends the answer.
func (c *PeerCall) Begin(p *Peer) {
	c.session.Load().AttachOutput(p.Output())
	c.answer <- p.SDP
}

// Close closes the peer and waits for what it has started.
func (p *Peer) Close() {
	p.late.Stop()
	p.Peer.Close()
	p.cameras.Stop()
}

// Peers are the calls of a door that begin with one HTTP request each. C is the door's type of a call, which embeds a
// [PeerCall].
type Peers[C interface {
	bridge.Caller
	Call() *PeerCall
}] struct {
	calls sync.Map // C, by its id

	mu    sync.Mutex
	ended access.Recent[string, struct{}] // ids
}

// endedFor is how long a call that has ended is known, at least: a page that closes its peer first asks for the end right after.
const endedFor = time.Minute

// Ended reports whether the call of an id has ended lately.
func (ps *Peers[C]) Ended(id string) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	_, ok := ps.ended.Get(time.Now(), id)
	return ok
}

// forget removes a call, so that Call no longer finds it.
func (ps *Peers[C]) forget(id string) {
	ps.calls.Delete(id)
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.ended.Period = endedFor
	ps.ended.Put(time.Now(), id, struct{}{})
}

// Begin has a call answer the offer of a request, and outlive it. It blocks until the answer is there, or the
// conversation has ended before it.
func (ps *Peers[C]) Begin(r *http.Request, host *bridge.Host, id string, c C, open bridge.SessionRequest) (sdp string, err error) {
	ctx, leave := Outlive(r.Context())
	if leave == nil {
		return "", bridge.ErrShutdown
	}
	call, ended := c.Call(), make(chan error, 1)
	call.answer, call.requests, call.over = make(chan string, 1), make(chan func()), make(chan struct{})
	ps.calls.Store(id, c)
	go func() {
		defer leave()
		defer ps.forget(id)
		defer close(call.over)
		defer crash.Recover(loggerOf(r.Context()), "caller", func(err error) { ended <- err })
		ended <- host.Serve(ctx, c, open)
	}()
	select {
	case sdp := <-call.answer:
		return sdp, nil
	case err := <-ended:
		if err == nil {
			err = bridge.ErrLeft
		}
		return "", err
	}
}

// Call is the call of an id, if there is one.
func (ps *Peers[C]) Call(id string) (c C, ok bool) {
	found, ok := ps.calls.Load(id)
	if ok {
		c = found.(C)
	}
	return c, ok
}

// HangUp ends a call. It is not found any more, though its end may take a moment.
func (ps *Peers[C]) HangUp(id string) {
	if c, ok := ps.Call(id); ok {
		ps.forget(id)
		c.Call().HangUp()
	}
}
