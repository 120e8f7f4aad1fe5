package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"

	"voxgate/media"
	"voxgate/media/opus"
	"voxgate/media/rtpaudio"
	"voxgate/signaling/rtc/rtctest"
)

// connectTimeout is how long a call may take to be connected.
const connectTimeout = 20 * time.Second

// callOptions say how a caller behaves. It hears by hear, or by sink.
type callOptions struct {
	instruction string // of the system to the model, by which the benchmark's own model knows the call
	plain       bool   // the caller offers nothing but Opus with FEC
	likeChrome  bool   // it sends again what is asked for, and a copy of each packet with the next one
	hear        func(at time.Time, p *rtp.Packet)
	socket      net.PacketConn // in place of one of its own; the caller closes it
	second      net.PacketConn // likewise, for a caller with a second connection
	sink        media.Sink     // behind a receiver like the gateway's, over a network with linkDelay
	delay       time.Duration  // that signalling takes, in each direction
}

// caller is a client of the client protocol, with WebRTC and a data channel, as a page is.
type caller struct {
	callOptions
	*rtctest.Caller
	ws      *websocket.Conn
	answers chan message // of the gateway; when it is full they are dropped
	reading sync.WaitGroup

	mu      sync.Mutex
	failure error
	ended   chan struct{} // is closed by the failure
	closing bool
	onClose []func()
}

// message is one of the gateway's, as signaling/PROTOCOL.md has it.
type message struct {
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload"`
}

// call calls a server at a URL, in its way, and waits until the whole connection is there.
func call(ctx context.Context, url string, join join, o callOptions) (*caller, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	c := &caller{callOptions: o, answers: make(chan message, 64), ended: make(chan struct{})}
	if err := join(ctx, c, url); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// peer is what the caller offers.
func (c *caller) peer() rtctest.Options {
	return rtctest.Options{NACK: !c.plain, Resend: c.likeChrome, RED: c.likeChrome, Socket: c.socket, Track: c.listen}
}

// joinVoxgate opens a conversation as signaling/PROTOCOL.md says, and WebRTC in it. When the data channel is open, so is the voice.
func joinVoxgate(ctx context.Context, c *caller, url string) (err error) {
	o := c.peer()
	o.Channel, o.Message = "events", c.take
	if c.Caller, err = rtctest.New(o); err != nil {
		return err
	}
	opened := make(chan struct{})
	c.Channel.OnOpen(func() { close(opened) })
	dialer := websocket.Dialer{NetDialContext: c.dial}
	c.ws, _, err = dialer.DialContext(ctx, "ws"+strings.TrimPrefix(url, "http")+"/ws", nil)
	if err != nil {
		return err
	}
	c.reading.Go(func() {
		for {
			_, raw, err := c.ws.ReadMessage()
			if err != nil {
				c.fail(fmt.Errorf("the WebSocket has ended: %w", err))
				return
			}
			c.take(raw)
		}
	})
	config := map[string]any{"initialConfig": map[string]string{"systemInstruction": c.instruction}}
	raw, err := c.request(ctx, "CONNECT_GEMINI", config, "SETUP_COMPLETE")
	if err != nil {
		return err
	}
	var done struct{ Success bool }
	if err := json.Unmarshal(raw, &done); err != nil || !done.Success {
		return fmt.Errorf("the conversation was refused: %s", raw)
	}
	if err := c.negotiate(ctx, false); err != nil {
		return err
	}
	return c.wait(ctx, opened)
}

// wait waits until something is done.
func (c *caller) wait(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-c.ended:
		return c.err()
	case <-ctx.Done():
		return fmt.Errorf("not connected: %w", context.Cause(ctx))
	}
}

// negotiate makes an offer and takes the answer. With restart ICE finds a way again, as after a change of address; the voice goes on
// meanwhile.
func (c *caller) negotiate(ctx context.Context, restart bool) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	offer, err := c.Offer(ctx, restart)
	if err != nil {
		return err
	}
	raw, err := c.request(ctx, "WEBRTC_OFFER", map[string]string{"sdp": offer}, "WEBRTC_ANSWER")
	if err != nil {
		return err
	}
	var answer struct{ SDP string }
	if err := json.Unmarshal(raw, &answer); err != nil {
		return err
	}
	return c.Answer(answer.SDP)
}

// request sends a message over the WebSocket, waits for the one that answers it, and returns its payload.
func (c *caller) request(ctx context.Context, kind string, payload any, answer string) (json.RawMessage, error) {
	for len(c.answers) > 0 {
		<-c.answers // from before
	}
	if err := c.ws.WriteJSON(map[string]any{"type": kind, "payload": payload}); err != nil {
		return nil, err
	}
	for {
		select {
		case m := <-c.answers:
			if m.Type == answer {
				return m.Payload, nil
			}
		case <-c.ended:
			return nil, fmt.Errorf("waiting for %s: %w", answer, c.err())
		case <-ctx.Done():
			return nil, fmt.Errorf("no %s: %w", answer, context.Cause(ctx))
		}
	}
}

// take takes a message of the gateway.
func (c *caller) take(raw []byte) {
	var m message
	if err := json.Unmarshal(raw, &m); err != nil {
		c.fail(fmt.Errorf("not JSON: %s", raw))
	}
	if m.Type == "GEMINI_ERROR" || m.Type == "GEMINI_DISCONNECTED" {
		c.fail(fmt.Errorf("the gateway says: %s", raw))
	}
	select {
	case c.answers <- m:
	default:
	}
}

// listen takes a track's packets until it ends.
func (c *caller) listen(track *webrtc.TrackRemote) {
	if c.sink != nil {
		c.receiver().Run(context.Background(), trackReader{track})
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

// receiver repairs what a browser would: with copies and FEC, and by asking again where that was offered.
func (c *caller) receiver() *rtpaudio.Receiver {
	o := rtpaudio.ReceiverOptions{
		Codec: opus.Codec{}, Types: []uint8{rtctest.OpusType}, RED: []uint8{rtctest.REDType},
		RTT: func() time.Duration { return 2 * linkDelay },
	}
	if !c.plain {
		o.NACK = func(ssrc uint32, missing []uint16) {
			c.PC.WriteRTCP([]rtcp.Packet{&rtcp.TransportLayerNack{MediaSSRC: ssrc, Nacks: rtcp.NackPairsFromSequenceNumbers(missing)}})
		}
	}
	return rtpaudio.NewReceiver(c.sink, o)
}

// trackReader makes a track an rtpaudio.Reader.
type trackReader struct{ *webrtc.TrackRemote }

func (r trackReader) Read(b []byte) (int, error) {
	n, _, err := r.TrackRemote.Read(b)
	return n, err
}

// speak says 20 ms of Opus.
func (c *caller) speak(opus []byte) {
	if err := c.Speak(opus); err != nil {
		c.fail(fmt.Errorf("send: %w", err))
	}
}

// fail keeps the first error of the call.
func (c *caller) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure == nil && !c.closing {
		c.failure = err
		close(c.ended)
	}
}

// err is why the call has failed, if it has.
func (c *caller) err() error {
	select {
	case <-c.Failed():
		c.fail(fmt.Errorf("the WebRTC connection is lost"))
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
	if c.ws != nil {
		c.ws.WriteJSON(message{Type: "DISCONNECT_GEMINI", Payload: json.RawMessage("{}")})
	}
	for _, end := range c.onClose {
		end()
	}
	if c.Caller != nil {
		c.Caller.Close()
	}
	if c.ws != nil {
		c.ws.Close()
	}
	c.reading.Wait()
}
