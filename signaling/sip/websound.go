package sip

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"voxgate/bridge"
	"voxgate/media/opus"
	"voxgate/signaling"
	"voxgate/signaling/rtc"
)

const (
	// connectTimeout is how long WebRTC may take from our answer on.
	connectTimeout = 10 * time.Second
	// closeTimeout is how long the BYE may come after the end of the WebRTC connection: they go different ways.
	closeTimeout = time.Second
)

var (
	errNotConnected = &bridge.Error{Code: bridge.CodePeerFailed, Message: "WebRTC did not connect in time."}
	errClosed       = &bridge.Error{Code: bridge.CodePeerFailed, Message: "The telephone has closed its WebRTC connection."}
	errOtherPeer    = errors.New("the offer is of another WebRTC connection than the one of the call")
	errNoOffer      = errors.New("the offer is missing: ours is never the first")
)

// webSound is a call's sound by WebRTC. Its peer belongs to a conversation, so the answer to the first offer is there once carry has
// returned.
type webSound struct {
	api     *rtc.API
	decoder opus.DecoderChoice
	log     *slog.Logger
	ended   chan error // has room for one

	mu         sync.Mutex
	first      rtc.Offer
	peer       *rtc.Peer       // nil: no conversation was carried yet
	session    *bridge.Session // nil: none is carried
	answer     string
	cameras    rtc.Cameras
	connecting *time.Timer
}

// offer implements sound.
func (w *webSound) offer(sdp []byte) error {
	if len(sdp) == 0 {
		return errNoOffer
	}
	offer, err := rtc.ParseOffer(string(sdp))
	if err != nil {
		return fmt.Errorf("the offer %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.peer == nil {
		w.first = offer
		return nil
	}
	if w.session == nil {
		return errClosed
	}
	if !w.peer.Made(offer) {
		return errOtherPeer
	}
	if w.answer, err = w.peer.Answer(offer); err != nil {
		return fmt.Errorf("the offer %w", err)
	}
	w.log.Info(map[bool]string{true: "on hold", false: "off hold"}[w.peer.Voice() == nil])
	return w.steer()
}

// steer has the voice go where the newest offer wants it; a telephone that takes none has us on hold. Needs mu.
func (w *webSound) steer() error {
	voice := w.peer.Voice()
	w.session.Attach(voice)
	return w.session.Do(bridge.Pause{On: voice == nil})
}

// describe implements sound.
func (w *webSound) describe() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return []byte(w.answer)
}

// carry implements sound.
func (w *webSound) carry(s *bridge.Session) (stop func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	connecting := time.AfterFunc(connectTimeout, func() { w.end(errNotConnected) })
	w.connecting, w.session = connecting, s
	w.peer, err = w.api.NewPeer(rtc.PeerOptions{
		Session: signaling.PeerSession{Session: s}, Cameras: &w.cameras, Decoder: w.decoder, Logger: w.log,
		Connected: func() {
			connecting.Stop()
			s.Hold(false)
		},
		Lost: w.peerLost,
	})
	if err != nil {
		return w.rest, err
	}
	if w.answer, err = w.peer.Answer(w.first); err != nil {
		return w.rest, err
	}
	return w.rest, w.steer()
}

// peerLost ends the call because its WebRTC connection has ended: for a reason, or because the telephone has closed it, whose BYE may
// still be on its way. It takes no lock: Pion calls it, and may be at work inside offer or carry.
func (w *webSound) peerLost(why string) {
	if why != "" {
		w.end(&bridge.Error{Code: bridge.CodePeerFailed, Message: why + "."})
		return
	}
	time.AfterFunc(closeTimeout, func() { w.end(errClosed) }) // nobody reads it when the call is over
}

func (w *webSound) end(err error) {
	select {
	case w.ended <- err:
	default: // there is a reason already
	}
}

// rest stops what carry has begun.
func (w *webSound) rest() {
	w.mu.Lock()
	peer := w.peer
	w.session = nil
	w.connecting.Stop()
	w.mu.Unlock()
	if peer != nil {
		peer.Close() // which waits for callbacks
	}
	w.cameras.Stop()
}

// check implements sound: WebRTC looks after itself.
func (w *webSound) check(time.Time) error { return nil }

// lost implements sound.
func (w *webSound) lost() <-chan error { return w.ended }
