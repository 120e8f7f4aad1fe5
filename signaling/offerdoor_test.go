package signaling_test

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"net/http"

	"voxgate/bridge"
	"voxgate/signaling"
	"voxgate/signaling/rtc"
)

// offerDoor is an endpoint for WebRTC calls that begin with one HTTP request: the body is an SDP offer, and the
// response the answer. There is nothing else; the call ends with the peer.
type offerDoor struct {
	host  *bridge.Host
	rtc   *rtc.API
	calls signaling.PeerRegistry[*offerCall]
}

func (d *offerDoor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	offer, err := rtc.ParseOffer(string(raw))
	if err != nil {
		http.Error(w, "The offer "+err.Error(), http.StatusBadRequest)
		return
	}
	c := &offerCall{signaling.HTTPCall{Offer: offer}, d.rtc}
	sdp, err := d.calls.StartCall(r, d.host, rand.Text(), c, bridge.SessionRequest{Origin: bridge.Origin{Protocol: "offer"}})
	if err != nil {
		http.Error(w, bridge.AsError(err).Message, http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/sdp")
	w.WriteHeader(http.StatusCreated)
	io.WriteString(w, sdp)
}

// offerCall is one peer.
type offerCall struct {
	signaling.HTTPCall
	api *rtc.API
}

// Serve implements bridge.Caller.
func (c *offerCall) Serve(ctx context.Context, s *bridge.Session) error {
	peer, err := c.AnswerOffer(s, c.api, rtc.PeerOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer peer.Close()
	c.AttachVoiceAndSendAnswer(peer)
	select {
	case <-peer.Lost:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Notify implements bridge.Caller.
func (c *offerCall) Notify(bridge.Event) {}
