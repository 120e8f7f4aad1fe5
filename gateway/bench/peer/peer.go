// Package peer is whoever talks WebRTC to a server that is measured: callers with a socket, a microphone and a data channel of
// their own, as a page has them; and the bare Pion echo server that the gateway is compared with.
package peer

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
	"github.com/pion/ice/v4"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"

	"voxgate/media"
)

// connectTimeout is how long a call may take to be connected.
const connectTimeout = 20 * time.Second

// Options say how a caller behaves.
type Options struct {
	Offers   Features
	Open     string // the payload of CONNECT_GEMINI; "": the gateway's defaults
	Question string // the payload of a SEND_MESSAGE that follows on each answer, and is what Ask asks; "": none

	Hear func(arrived time.Time, p *rtp.Packet) // called for every packet; nil: packets are only counted
	Tell func(at time.Time, raw []byte)         // called for every message, which then is no failure whatever it says

	Socket net.PacketConn // in place of one of its own; the peer closes it
	// Ear hears in place of Hear, by a receiver like the gateway's, which repairs what a browser would: with copies and FEC,
	// and by asking again where that is offered. RTT is the round trip that it reckons with.
	Ear media.Sink
	RTT time.Duration
}

// Peer is a caller: a WebRTC peer with a socket of its own, as every person has, and the data channel that the page opens.
type Peer struct {
	pc       *webrtc.PeerConnection
	mic      voiceTrack
	mux      ice.UDPMux // around a socket that was given; may be nil
	next     rtp.Header
	received atomic.Uint64 // RTP packets
	channel  *webrtc.DataChannel
	question string
	tell     func(at time.Time, raw []byte)
	opening  string
	socket   *websocket.Conn
	ear      *ear         // may be nil
	messages chan Message // of the socket, until the call stands
	running  sync.WaitGroup

	mu      sync.Mutex
	failure error
	closing bool
}

// Message is one of the gateway, as signaling/PROTOCOL.md has it.
type Message struct {
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload"`
}

func newPeer(o Options) (*Peer, error) {
	settings := loopback()
	var mux ice.UDPMux
	if o.Socket != nil {
		mux = ice.NewUDPMuxDefault(ice.UDPMuxParams{UDPConn: o.Socket})
		settings.SetICEUDPMux(mux)
	}
	api, err := newAPI(settings, o.Offers)
	if err != nil {
		return nil, err
	}
	pc, err := api.NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		return nil, err
	}
	p := &Peer{
		pc: pc, mux: mux, question: o.Question, tell: o.Tell, opening: cmp.Or(o.Open, `{"initialConfig":{}}`),
		next: rtp.Header{Version: 2}, messages: make(chan Message, 64),
	}
	if o.Ear != nil {
		p.ear = newEar(pc, o)
	}
	if err := p.open(o); err != nil {
		pc.Close()
		return nil, err
	}
	return p, nil
}

// open adds the microphone, the ear and the data channel.
func (p *Peer) open(o Options) error {
	sender, err := p.pc.AddTrack(&p.mic)
	if err != nil {
		return err
	}
	p.running.Go(func() { drain(sender) })
	p.pc.OnTrack(func(track *webrtc.TrackRemote, receiver *webrtc.RTPReceiver) {
		go drain(receiver) // until the connection is closed
		if p.ear != nil {
			p.ear.listen(track)
			return
		}
		p.listen(track, o.Hear)
	})
	if p.channel, err = p.pc.CreateDataChannel("events", nil); err != nil {
		return err
	}
	p.channel.OnMessage(func(m webrtc.DataChannelMessage) { p.watch(m.Data) })
	return nil
}

// listen takes a track's packets until it ends.
func (p *Peer) listen(track *webrtc.TrackRemote, hear func(time.Time, *rtp.Packet)) {
	buf := make([]byte, 1500)
	var packet rtp.Packet
	for {
		n, _, err := track.Read(buf)
		if err != nil {
			return
		}
		p.received.Add(1)
		if hear == nil {
			continue
		}
		arrived := time.Now()
		if err := packet.Unmarshal(buf[:n]); err != nil {
			p.Fail(fmt.Errorf("RTP from the server: %w", err))
			return
		}
		hear(arrived, &packet)
	}
}

// watch looks at a message of the gateway for bad news, and for the end of an answer.
func (p *Peer) watch(raw []byte) {
	if p.tell != nil {
		p.tell(time.Now(), raw)
		return
	}
	if p.question != "" && bytes.Contains(raw, []byte(`"TURN_COMPLETE"`)) {
		p.Ask()
	}
	if bytes.Contains(raw, []byte(`"GEMINI_ERROR"`)) || bytes.Contains(raw, []byte(`"GEMINI_DISCONNECTED"`)) {
		p.Fail(fmt.Errorf("the gateway says: %s", raw))
	}
}

// Ask types the question, if there is one.
func (p *Peer) Ask() {
	if p.question == "" {
		return
	}
	if err := p.Type(p.question); err != nil {
		p.Fail(fmt.Errorf("data channel: %w", err))
	}
}

// Type sends the payload of a SEND_MESSAGE, by the data channel.
func (p *Peer) Type(payload string) error {
	return p.channel.SendText(envelope("SEND_MESSAGE", payload))
}

// Received returns how many RTP packets have come.
func (p *Peer) Received() uint64 { return p.received.Load() }

// Copies tells whether copies of packets (RED) are sent: whether they were negotiated.
func (p *Peer) Copies() bool { return p.mic.negotiated() }

// Fail keeps the first error of the call.
func (p *Peer) Fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure == nil && !p.closing {
		p.failure = err
	}
}

// Err is why the call has failed, if it has.
func (p *Peer) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failure
}

// Send speaks 20 ms of Opus.
func (p *Peer) Send(opus []byte) {
	p.next.SequenceNumber++
	p.next.Timestamp += 960 // 20 ms of RFC 7587's 48 kHz
	if err := p.mic.WriteRTP(&rtp.Packet{Header: p.next, Payload: opus}); err != nil {
		p.Fail(fmt.Errorf("send: %w", err))
	}
}

// Drop ends the call without a goodbye, as when a page is closed.
func (p *Peer) Drop() {
	p.socket.Close()
	p.Close()
}

// Close ends the call.
func (p *Peer) Close() {
	p.mu.Lock()
	p.closing = true
	p.mu.Unlock()
	if p.socket != nil {
		p.socket.WriteMessage(websocket.TextMessage, []byte(`{"type":"DISCONNECT_GEMINI"}`))
	}
	p.pc.Close()
	if p.mux != nil {
		p.mux.Close() // and the socket
	}
	if p.socket != nil {
		p.socket.Close()
	}
	if p.ear != nil {
		p.ear.close()
	}
	p.running.Wait()
}

// connect makes the connection; signal brings the offer to the server and the answer back.
func (p *Peer) connect(ctx context.Context, signal func(ctx context.Context, offer string) (string, error)) error {
	connected, opened, failed := make(chan struct{}), make(chan struct{}), make(chan struct{})
	p.channel.OnOpen(func() { close(opened) })
	var once, onceFailed sync.Once
	p.pc.OnConnectionStateChange(func(s webrtc.PeerConnectionState) {
		switch s {
		case webrtc.PeerConnectionStateConnected:
			once.Do(func() { close(connected) })
		case webrtc.PeerConnectionStateDisconnected, webrtc.PeerConnectionStateFailed:
			p.Fail(fmt.Errorf("the WebRTC connection is %s", s))
			onceFailed.Do(func() { close(failed) })
		}
	})
	if err := p.negotiate(ctx, nil, signal); err != nil {
		return err
	}
	for _, ready := range []chan struct{}{connected, opened} {
		select {
		case <-ready:
		case <-failed:
			return p.Err()
		case <-ctx.Done():
			return fmt.Errorf("not connected: %w", context.Cause(ctx))
		}
	}
	return nil
}

// negotiate makes an offer with all candidates and takes the answer.
func (p *Peer) negotiate(ctx context.Context, o *webrtc.OfferOptions, signal func(ctx context.Context, offer string) (string, error)) error {
	offer, err := p.pc.CreateOffer(o)
	if err != nil {
		return err
	}
	gathered := webrtc.GatheringCompletePromise(p.pc)
	if err := p.pc.SetLocalDescription(offer); err != nil {
		return err
	}
	<-gathered
	answer, err := signal(ctx, p.pc.LocalDescription().SDP)
	if err != nil {
		return err
	}
	return p.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: answer})
}

// CallEcho calls an echo server at a URL.
func CallEcho(ctx context.Context, url string, o Options) (*Peer, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	o.Question = "" // it answers no questions
	p, err := newPeer(o)
	if err != nil {
		return nil, err
	}
	err = p.connect(ctx, func(ctx context.Context, offer string) (string, error) {
		body, err := json.Marshal(webrtc.SessionDescription{Type: webrtc.SDPTypeOffer, SDP: offer})
		if err != nil {
			return "", err
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return "", err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			reason, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
			return "", fmt.Errorf("%s: %s", response.Status, reason)
		}
		var answer webrtc.SessionDescription
		err = json.NewDecoder(response.Body).Decode(&answer)
		return answer.SDP, err
	})
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Call calls a gateway at a URL as signaling/PROTOCOL.md says.
func Call(ctx context.Context, url string, o Options) (*Peer, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	p, err := newPeer(o)
	if err != nil {
		return nil, err
	}
	if err := p.converse(ctx, url); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// converse opens the WebSocket, the conversation and the WebRTC connection.
func (p *Peer) converse(ctx context.Context, url string) error {
	var err error
	p.socket, _, err = websocket.DefaultDialer.DialContext(ctx, "ws"+strings.TrimPrefix(url, "http")+"/ws", nil)
	if err != nil {
		return err
	}
	p.running.Go(p.read)
	if err := p.say("CONNECT_GEMINI", p.opening); err != nil {
		return err
	}
	raw, err := p.expect(ctx, "SETUP_COMPLETE")
	if err != nil {
		return err
	}
	var setup struct{ Success bool }
	if err := json.Unmarshal(raw, &setup); err != nil || !setup.Success {
		return fmt.Errorf("the conversation was refused: %s", raw)
	}
	return p.connect(ctx, p.offer)
}

// RestartICE finds a way again, as after a change of address, by a new offer. The peer goes on as ever meanwhile.
func (p *Peer) RestartICE(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return p.negotiate(ctx, &webrtc.OfferOptions{ICERestart: true}, p.offer)
}

// offer brings an offer to the gateway and the answer back.
func (p *Peer) offer(ctx context.Context, sdp string) (string, error) {
	body, err := json.Marshal(map[string]string{"sdp": sdp})
	if err != nil {
		return "", err
	}
	if err := p.say("WEBRTC_OFFER", string(body)); err != nil {
		return "", err
	}
	raw, err := p.expect(ctx, "WEBRTC_ANSWER")
	if err != nil {
		return "", err
	}
	var answer struct{ SDP string }
	err = json.Unmarshal(raw, &answer)
	return answer.SDP, err
}

func (p *Peer) say(kind, payload string) error {
	return p.socket.WriteMessage(websocket.TextMessage, []byte(envelope(kind, payload)))
}

func envelope(kind, payload string) string {
	return fmt.Sprintf(`{"type":%q,"payload":%s}`, kind, payload)
}

// read takes what comes over the WebSocket until that ends. Once the call stands nobody waits for messages any more.
func (p *Peer) read() {
	defer close(p.messages)
	for {
		_, raw, err := p.socket.ReadMessage()
		if err != nil {
			p.Fail(fmt.Errorf("the WebSocket has ended: %w", err))
			return
		}
		p.watch(raw)
		var m Message
		if err := json.Unmarshal(raw, &m); err != nil {
			p.Fail(fmt.Errorf("not JSON: %s", raw))
			return
		}
		select {
		case p.messages <- m:
		default:
		}
	}
}

// expect waits for a message of one type and returns its payload.
func (p *Peer) expect(ctx context.Context, kind string) (json.RawMessage, error) {
	for {
		select {
		case m, ok := <-p.messages:
			if err := p.Err(); err != nil {
				return nil, fmt.Errorf("waiting for %s: %w", kind, err)
			}
			if !ok {
				return nil, errors.New("the WebSocket has ended before " + kind)
			}
			if m.Type == kind {
				return m.Payload, nil
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("no %s: %w", kind, context.Cause(ctx))
		}
	}
}
