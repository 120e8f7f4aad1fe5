package signaling

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"voxgate/bridge"
	"voxgate/internal/crash"
	"voxgate/media"
	"voxgate/signaling/access"
	"voxgate/signaling/rtc"
)

// connectTimeout limits how long a peer may take to connect after its offer was answered.
const connectTimeout = 15 * time.Second

// PeerSession makes a conversation usable as an [rtc.Session]. It is for all endpoints with a WebRTC peer.
type PeerSession struct{ *bridge.Session }

// Mic implements [rtc.Session].
func (s PeerSession) Mic(rate int) (media.Sink, error) { return s.Session.NewMicrophone(rate) }

// HTTPCall is a WebRTC call that begins with one HTTP request. An endpoint embeds it in its own type, which adds the
// methods Serve and Notify of a [bridge.Caller]. Serve must call AnswerOffer, then AttachVoiceAndSendAnswer, and must
// return when the peer is lost.
type HTTPCall struct {
	Offer rtc.Offer

	session   atomic.Pointer[bridge.Session] // nil before AnswerOffer
	answerSDP chan string                    // receives the SDP answer; has room for it
	requests  chan func()
	done      chan struct{}
}

// AsHTTPCall returns the call itself, for [PeerRegistry].
func (h *HTTPCall) AsHTTPCall() *HTTPCall { return h }

// RunInCall runs f in the goroutine of the call's Serve. It is for further HTTP requests that belong to the call. It
// blocks until f has returned, and returns the error of f. If the call has ended, it returns goneErr. If ctx is done
// first, it returns the error of ctx.
func (h *HTTPCall) RunInCall(ctx context.Context, goneErr error, f func() error) error {
	done := make(chan error, 1)
	select {
	case h.requests <- func() { done <- f() }:
	case <-h.done:
		return goneErr
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-done:
		return err
	case <-h.done: // the function has panicked, or it has ended the call
	}
	select {
	case err := <-done:
		return err
	default:
		return goneErr
	}
}

// Requests returns a channel with the functions that RunInCall was given. Serve must call each of them.
func (h *HTTPCall) Requests() <-chan func() { return h.requests }

// HangUp ends the conversation.
func (h *HTTPCall) HangUp() {
	if s := h.session.Load(); s != nil {
		_ = s.Do(bridge.Goodbye{}) // fails if the conversation has just ended
	}
}

// Peer is the WebRTC connection of an [HTTPCall], with the answer to its offer.
type Peer struct {
	*rtc.Peer
	SDP       string          // SDP answer to the offer
	Connected <-chan struct{} // closed at the first connection of the peer; from then on the voice is sent
	Lost      <-chan struct{} // closed when the peer is lost, or has not connected within 15 s

	cameras      rtc.Cameras
	connectTimer *time.Timer
	hasLeft      atomic.Bool
}

// HasLeft reports whether the peer is lost because the client has closed it.
func (p *Peer) HasLeft() bool { return p.hasLeft.Load() }

// AnswerOffer creates the peer of a conversation and answers the offer. It overwrites Cameras, OnConnected and
// OnConnectionLost in o, and sets Session if o has none. If the offer is bad, the error is a [rtc.RefusedError]. The
// caller must close the peer.
func (h *HTTPCall) AnswerOffer(s *bridge.Session, api *rtc.API, o rtc.PeerOptions) (*Peer, error) {
	h.session.Store(s)
	connected, lost := make(chan struct{}), make(chan struct{})
	isConnected, isLost := sync.OnceFunc(func() { s.HoldVoice(false); close(connected) }), sync.OnceFunc(func() { close(lost) })
	p := &Peer{Connected: connected, Lost: lost, connectTimer: time.AfterFunc(connectTimeout, isLost)}
	if o.Session == nil {
		o.Session = PeerSession{s}
	}
	o.Cameras = &p.cameras
	o.OnConnected = func() { p.connectTimer.Stop(); isConnected() }
	o.OnConnectionLost = func(why string) {
		p.hasLeft.Store(why == "")
		isLost()
	}
	var err error
	if p.Peer, err = api.NewPeer(o); err != nil {
		p.connectTimer.Stop()
		return nil, err
	}
	offer := h.Offer
	h.Offer = rtc.Offer{} // its text of 20 KB is not needed any more
	if p.SDP, err = p.Peer.Answer(offer); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// NullOutput is an output that discards the voice. It accepts the voice only in real time, because recordings and
// transcripts rely on that.
type NullOutput struct{}

// MaxLead implements [media.Output].
func (NullOutput) MaxLead() time.Duration { return 0 }

// WriteFrame implements [media.Output].
func (NullOutput) WriteFrame(media.Frame) error { return nil }

// Output returns the output for the model's voice. It is the client's track, or a null output if the client's offer
// accepts no audio.
func (p *Peer) Output() media.Output {
	if voice := p.VoiceOutput(); voice != nil {
		return voice
	}
	return NullOutput{}
}

// AttachVoiceAndSendAnswer attaches the output for the model's voice, and answers the HTTP request with the SDP answer.
func (h *HTTPCall) AttachVoiceAndSendAnswer(p *Peer) {
	h.session.Load().AttachOutput(p.Output())
	h.answerSDP <- p.SDP
}

// Close closes the peer and waits for its goroutines.
func (p *Peer) Close() {
	p.connectTimer.Stop()
	p.Peer.Close()
	p.cameras.Stop()
}

// PeerRegistry holds the calls of an endpoint that begin with one HTTP request each. C is the endpoint's call type,
// which embeds an [HTTPCall].
type PeerRegistry[C interface {
	bridge.Caller
	AsHTTPCall() *HTTPCall
}] struct {
	calls sync.Map // calls of type C, by ID

	mu            sync.Mutex
	recentlyEnded access.TTLCache[string, struct{}] // IDs of calls that have ended
}

// endedCallTime is the minimum time for which the ID of an ended call is kept. When a page closes its peer, the call
// ends. The page then sends a request to end the call, which must not fail.
const endedCallTime = time.Minute

// HasEnded reports whether the call with this ID has ended recently.
func (p *PeerRegistry[C]) HasEnded(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.recentlyEnded.Get(time.Now(), id)
	return ok
}

// removeCall removes a call, so that FindCall no longer finds it.
func (p *PeerRegistry[C]) removeCall(id string) {
	p.calls.Delete(id)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recentlyEnded.Period = endedCallTime
	p.recentlyEnded.Put(time.Now(), id, struct{}{})
}

// StartCall starts a call for the offer of a request. The call outlives the request. StartCall blocks until the answer
// is available. If the conversation ends before there is an answer, StartCall returns the reason.
func (p *PeerRegistry[C]) StartCall(r *http.Request, host *bridge.Host, id string, c C, open bridge.SessionRequest) (
	sdp string, err error,
) {
	ctx, leave := OutliveRequest(r.Context())
	if leave == nil {
		return "", bridge.ErrShutdown
	}
	call, ended := c.AsHTTPCall(), make(chan error, 1)
	call.answerSDP, call.requests, call.done = make(chan string, 1), make(chan func()), make(chan struct{})
	p.calls.Store(id, c)
	go func() {
		defer leave()
		defer p.removeCall(id)
		defer close(call.done)
		defer crash.Recover(loggerOf(r.Context()), "caller", func(err error) { ended <- err })
		ended <- host.Serve(ctx, c, open)
	}()
	select {
	case sdp := <-call.answerSDP:
		return sdp, nil
	case err := <-ended:
		if err == nil {
			err = bridge.ErrLeft
		}
		return "", err
	}
}

// FindCall returns the call with this ID.
func (p *PeerRegistry[C]) FindCall(id string) (c C, ok bool) {
	found, ok := p.calls.Load(id)
	if ok {
		c = found.(C)
	}
	return c, ok
}

// HangUp ends a call. FindCall no longer finds the call, although its end may take a moment.
func (p *PeerRegistry[C]) HangUp(id string) {
	if c, ok := p.FindCall(id); ok {
		p.removeCall(id)
		c.AsHTTPCall().HangUp()
	}
}
