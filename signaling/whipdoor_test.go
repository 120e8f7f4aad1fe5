package signaling_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"

	"voxgate/bridge"
	"voxgate/signaling"
	"voxgate/signaling/rtc"
)

// offerDoor is a front door whose peers are born by an HTTP request: the body is an SDP offer, and so is the answer's. There is
// nothing else; the call ends with the peer.
type offerDoor struct {
	host *bridge.Host
	rtc  *rtc.API
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
	ctx, leave := signaling.Outlive(r.Context())
	if leave == nil {
		http.Error(w, "The gateway is shutting down.", http.StatusServiceUnavailable)
		return
	}
	c := &offerCall{api: d.rtc, offer: offer, answer: make(chan string, 1)}
	ended := make(chan error, 1)
	go func() {
		defer leave()
		ended <- d.host.Serve(ctx, c, bridge.Open{Origin: bridge.Origin{Door: "offer"}})
	}()
	select {
	case sdp := <-c.answer:
		w.Header().Set("Content-Type", "application/sdp")
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, sdp)
	case err := <-ended:
		http.Error(w, bridge.AsError(err).Message, http.StatusBadGateway)
	}
}

// offerCall is one peer.
type offerCall struct {
	api    *rtc.API
	offer  rtc.Offer
	answer chan string
}

// Serve implements bridge.Caller.
func (c *offerCall) Serve(ctx context.Context, s *bridge.Session) error {
	var cameras rtc.Cameras
	defer cameras.Stop()
	lost := make(chan struct{}, 2)
	peer, err := c.api.NewPeer(rtc.PeerOptions{
		Session: signaling.PeerSession{Session: s}, Cameras: &cameras, Logger: slog.New(slog.DiscardHandler),
		Connected: func() { s.Hold(false) },
		Lost:      func(string) { lost <- struct{}{} },
	})
	if err != nil {
		return err
	}
	defer peer.Close()
	sdp, err := peer.Answer(c.offer)
	if err != nil {
		return err
	}
	s.Attach(peer.Voice())
	c.answer <- sdp
	select {
	case <-lost:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Notify implements bridge.Caller.
func (c *offerCall) Notify(bridge.Event) {}
