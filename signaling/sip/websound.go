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

// closeTimeout bounds the delay of a BYE after the end of its WebRTC connection, since they take different paths.
const closeTimeout = time.Second

var (
	errPeerLost       = &bridge.Error{Code: bridge.CodePeerFailed, Message: "WebRTC did not connect, or was lost."}
	errOtherPeer      = errors.New("the offer is of another WebRTC connection than the one of the call")
	errNoOffer        = errors.New("the offer is missing: ours is never the first")
	errNothingOffered = errors.New("the offer has no media section whose port is not 0")
)

// webSound is the WebRTC media of a call. Its peer belongs to a conversation, so the answer to the first offer exists only after carry has
// returned.
type webSound struct {
	signaling.HTTPCall // holds the first offer
	api                *rtc.API
	decoder            opus.DecoderChoice
	log                *slog.Logger

	mu      sync.Mutex
	peer    *signaling.Peer // nil until carry is called
	session *bridge.Session // nil unless carry is active
	answer  string
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
		if offer.Stopped() {
			return errNothingOffered
		}
		w.Offer = offer
		return nil
	}
	if w.session == nil {
		return errPeerLost
	}
	if !w.peer.Made(offer) {
		return errOtherPeer
	}
	if w.answer, err = w.peer.Answer(offer); err != nil {
		return fmt.Errorf("the offer %w", err)
	}
	w.log.Info(map[bool]string{true: "on hold", false: "off hold"}[w.peer.Voice() == nil])
	return w.applyHold()
}

// applyHold applies the direction of the newest offer. A phone that does not want to receive has put us on hold. Needs mu.
func (w *webSound) applyHold() error {
	voice := w.peer.Voice()
	w.session.AttachOutput(voice)
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
	w.peer, err = w.AnswerOffer(s, w.api, rtc.PeerOptions{Decoder: w.decoder, Logger: w.log})
	if err != nil {
		return func() {}, err
	}
	w.session, w.answer = s, w.peer.SDP
	return w.rest, w.applyHold()
}

// rest stops carry.
func (w *webSound) rest() {
	w.mu.Lock()
	w.session = nil
	w.mu.Unlock()
	w.peer.Close() // waits for callbacks
}

// check implements sound: WebRTC has its own timeouts.
func (w *webSound) check(time.Time) error { return nil }

// lost implements sound.
func (w *webSound) lost() <-chan struct{} { return w.peer.Lost }
