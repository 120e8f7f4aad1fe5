package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"

	"voxgate/client"
	"voxgate/internal/testkit/rtctest"
	"voxgate/media"
	"voxgate/media/opus"
	"voxgate/media/rtpaudio"
)

// connectTimeout limits the set-up of a call.
const connectTimeout = 20 * time.Second

// callOptions configure a caller. Received audio goes to the function hear, or to sink.
type callOptions struct {
	instruction string // system instruction, which identifies the call to the emulated model
	turns       string // who decides about turns: the voxgate.turns.by of a config for Voxgate
	likeChrome  bool   // answer NACKs, and send a copy of each packet with the next one (RED)
	hear        func(at time.Time, p *rtp.Packet)
	socket      net.PacketConn // replaces the caller's own socket; the caller closes it
	second      net.PacketConn // like socket, for the second WebRTC connection that LiveKit needs
	sink        media.Sink     // gets audio from a receiver like the gateway's; needs a network with linkDelay
	delay       time.Duration  // delay of signalling in each direction
}

// caller is a client with a WebRTC call. It uses the client protocol, or the signalling protocol of another subject.
type caller struct {
	callOptions
	*rtctest.Caller
	began        time.Time
	conversation *client.Conversation // set only for calls to Voxgate
	offer        string
	answers      chan string // SDP of the server's answers; dropped if one is pending already
	reading      sync.WaitGroup

	mu      sync.Mutex
	failure error
	done    chan struct{} // closed when the call fails
	closing bool
	onClose []func()
}

// placeCall calls the server at url with the signalling that join implements. It blocks until the call is connected.
func placeCall(ctx context.Context, url string, join join, o callOptions) (*caller, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	c := &caller{callOptions: o, began: time.Now(), answers: make(chan string, 1), done: make(chan struct{})}
	if err := join(ctx, c, url); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// peerOptions returns the options of the caller's WebRTC peer.
func (c *caller) peerOptions() rtctest.Options {
	return rtctest.Options{NACK: true, Resend: c.likeChrome, RED: c.likeChrome, Socket: c.socket, Track: c.readTrack}
}

// joinVoxgate opens a conversation by the client protocol, and blocks until WebRTC is connected. It sends the offer
// directly after CONNECT_GEMINI, to save a round trip.
func joinVoxgate(ctx context.Context, c *caller, url string) (err error) {
	if c.Caller, err = rtctest.New(c.peerOptions()); err != nil {
		return err
	}
	if c.offer, err = c.Offer(ctx, false); err != nil {
		return err
	}
	config := map[string]any{"systemInstruction": c.instruction}
	if c.turns != "" {
		config["voxgate"] = map[string]any{"turns": map[string]any{"by": c.turns}}
	}
	c.conversation, err = client.Dial(ctx, client.Options{
		URL: "ws" + strings.TrimPrefix(url, "http") + "/ws", NetDial: c.dialSignaling, WebRTC: c, Config: config,
	})
	if err != nil {
		return err
	}
	c.onClose = append(c.onClose, func() { c.conversation.Close() })
	c.reading.Go(func() {
		for event := range c.conversation.Events() {
			switch e := event.(type) {
			case client.Failure:
				c.setFailure(fmt.Errorf("the gateway reported an error: %w", e.Err))
			case client.ConnectionLost:
				c.setFailure(fmt.Errorf("the caller's WebSocket was lost: %w", e.Err))
			}
		}
		c.setFailure(fmt.Errorf("the conversation has ended: %w", cmp.Or(c.conversation.Err(), client.ErrEnded)))
	})
	return c.waitFor(ctx, c.Connected())
}

// OpenPeer implements [client.PeerDialer]. The offer has all candidates.
func (c *caller) OpenPeer(send func(kind string, payload any) error) (client.Peer, error) {
	return voxgatePeer{c}, send("WEBRTC_OFFER", map[string]string{"sdp": c.offer})
}

// voxgatePeer is the [client.Peer] of a caller, which opens and closes the connection itself.
type voxgatePeer struct{ c *caller }

func (p voxgatePeer) SetServers([]client.ICEServer) error   { return nil }
func (p voxgatePeer) HandleAnswer(sdp string) error         { return p.c.SetAnswer(sdp) }
func (p voxgatePeer) HandleCandidate(json.RawMessage) error { return nil } // the answer has all of them
func (p voxgatePeer) Close() error                          { return nil }

// waitFor blocks until done is closed. It returns an error if the call fails, or if ctx is done first.
func (c *caller) waitFor(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-c.done:
		return c.err()
	case <-ctx.Done():
		return fmt.Errorf("the caller did not connect to the subject: %w", context.Cause(ctx))
	}
}

// awaitAndSetAnswer waits for the answer to the caller's offer, and applies it.
func (c *caller) awaitAndSetAnswer(ctx context.Context) error {
	select {
	case sdp := <-c.answers:
		return c.SetAnswer(sdp)
	case <-c.done:
		return fmt.Errorf("the call failed before the SDP answer: %w", c.err())
	case <-ctx.Done():
		return fmt.Errorf("the subject sent no SDP answer: %w", context.Cause(ctx))
	}
}

// readTrack reads a track's packets until it ends.
func (c *caller) readTrack(track *webrtc.TrackRemote) {
	if c.sink != nil {
		c.newReceiver().Run(context.Background(), trackReader{track})
		return
	}
	var packet rtp.Packet
	for buf := make([]byte, 1500); ; {
		n, _, err := track.Read(buf)
		if err != nil {
			return
		}
		if at := time.Now(); packet.Unmarshal(buf[:n]) == nil {
			c.hear(at, &packet)
		}
	}
}

// newReceiver returns a receiver that repairs losses like a browser: with RED, FEC and NACK.
func (c *caller) newReceiver() *rtpaudio.Receiver {
	o := rtpaudio.ReceiverOptions{
		Codec: opus.Codec{}, PayloadTypes: []uint8{rtctest.OpusType}, REDTypes: []uint8{rtctest.REDType},
		RTT: func() time.Duration { return 2 * linkDelay },
		SendNACK: func(ssrc uint32, missing []uint16) {
			c.PC.WriteRTCP([]rtcp.Packet{&rtcp.TransportLayerNack{MediaSSRC: ssrc, Nacks: rtcp.NackPairsFromSequenceNumbers(missing)}})
		},
	}
	return rtpaudio.NewReceiver(c.sink, o)
}

// trackReader adapts a track to rtpaudio.Reader.
type trackReader struct{ *webrtc.TrackRemote }

func (r trackReader) Read(b []byte) (int, error) {
	n, _, err := r.TrackRemote.Read(b)
	return n, err
}

// sendPacket sends a packet with 20 ms of Opus.
func (c *caller) sendPacket(opus []byte) {
	if err := c.Speak(opus); err != nil {
		c.setFailure(fmt.Errorf("sending a packet of the caller: %w", err))
	}
}

// setFailure records the first error of the call.
func (c *caller) setFailure(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure == nil && !c.closing {
		c.failure = err
		close(c.done)
	}
}

// err returns the error of a failed call, or nil.
func (c *caller) err() error {
	select {
	case <-c.Failed():
		c.setFailure(fmt.Errorf("the WebRTC connection is lost"))
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure
}

// close hangs up.
func (c *caller) close() {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	for _, end := range c.onClose {
		end()
	}
	if c.Caller != nil {
		c.Caller.Close()
	}
	c.reading.Wait()
}
