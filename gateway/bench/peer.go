package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"
)

// connectTimeout is how long a call may take to be connected.
const connectTimeout = 20 * time.Second

// peerOptions say how a caller behaves.
type peerOptions struct {
	chat bool                                   // has a new question as soon as the last answer is over
	hear func(arrived time.Time, p *rtp.Packet) // called for every packet; nil: packets are only counted
	tell func(at time.Time, raw []byte)         // called for every message, which then is no failure whatever it says
	open string                                 // the payload of CONNECT_GEMINI; "": the gateway's defaults
}

// peer is a caller: a WebRTC peer with a socket of its own, as every person has, and the data channel that the page opens.
type peer struct {
	pc       *webrtc.PeerConnection
	mic      *webrtc.TrackLocalStaticRTP
	next     rtp.Header
	received atomic.Uint64 // RTP packets
	channel  *webrtc.DataChannel
	chat     bool
	tell     func(at time.Time, raw []byte)
	opening  string
	socket   *websocket.Conn
	messages chan message // of the socket, until the call stands
	running  sync.WaitGroup

	mu      sync.Mutex
	failure error
	closing bool
}

type message struct {
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload"`
}

func newPeer(o peerOptions) (*peer, error) {
	api, err := newAPI(loopback(), false)
	if err != nil {
		return nil, err
	}
	pc, err := api.NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		return nil, err
	}
	p := &peer{
		pc: pc, chat: o.chat, tell: o.tell, opening: cmp.Or(o.open, `{"initialConfig":{}}`),
		next: rtp.Header{Version: 2}, messages: make(chan message, 64),
	}
	if err := p.open(o); err != nil {
		pc.Close()
		return nil, err
	}
	return p, nil
}

// open adds the microphone, the ear and the data channel.
func (p *peer) open(o peerOptions) error {
	var err error
	if p.mic, err = webrtc.NewTrackLocalStaticRTP(opus, "mic", "bench"); err != nil {
		return err
	}
	sender, err := p.pc.AddTrack(p.mic)
	if err != nil {
		return err
	}
	p.running.Go(func() { drain(sender) })
	p.pc.OnTrack(func(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) { p.listen(track, o.hear) })
	if p.channel, err = p.pc.CreateDataChannel("events", nil); err != nil {
		return err
	}
	p.channel.OnMessage(func(m webrtc.DataChannelMessage) { p.watch(m.Data) })
	return nil
}

// listen takes a track's packets until it ends.
func (p *peer) listen(track *webrtc.TrackRemote, hear func(time.Time, *rtp.Packet)) {
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
			p.fail(fmt.Errorf("RTP from the server: %w", err))
			return
		}
		hear(arrived, &packet)
	}
}

// watch looks at a message of the gateway for bad news, and for the end of an answer.
func (p *peer) watch(raw []byte) {
	if p.tell != nil {
		p.tell(time.Now(), raw)
		return
	}
	if p.chat && bytes.Contains(raw, []byte(`"TURN_COMPLETE"`)) {
		p.ask()
	}
	if bytes.Contains(raw, []byte(`"GEMINI_ERROR"`)) || bytes.Contains(raw, []byte(`"GEMINI_DISCONNECTED"`)) {
		p.fail(fmt.Errorf("the gateway says: %s", raw))
	}
}

// ask types a question, by the data channel.
func (p *peer) ask() {
	if !p.chat {
		return
	}
	if err := p.channel.SendText(envelope("SEND_MESSAGE", question)); err != nil {
		p.fail(fmt.Errorf("data channel: %w", err))
	}
}

// fail keeps the first error of the call.
func (p *peer) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure == nil && !p.closing {
		p.failure = err
	}
}

// err is why the call has failed, if it has.
func (p *peer) err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failure
}

// send speaks 20 ms of Opus.
func (p *peer) send(opus []byte) {
	p.next.SequenceNumber++
	p.next.Timestamp += 960 // 20 ms of RFC 7587's 48 kHz
	if err := p.mic.WriteRTP(&rtp.Packet{Header: p.next, Payload: opus}); err != nil {
		p.fail(fmt.Errorf("send: %w", err))
	}
}

// close ends the call.
func (p *peer) close() {
	p.mu.Lock()
	p.closing = true
	p.mu.Unlock()
	if p.socket != nil {
		p.socket.WriteMessage(websocket.TextMessage, []byte(`{"type":"DISCONNECT_GEMINI"}`))
	}
	p.pc.Close()
	if p.socket != nil {
		p.socket.Close()
	}
	p.running.Wait()
}

// connect makes the connection; signal brings the offer to the server and the answer back.
func (p *peer) connect(ctx context.Context, signal func(ctx context.Context, offer string) (string, error)) error {
	connected, opened, failed := make(chan struct{}), make(chan struct{}), make(chan struct{})
	p.channel.OnOpen(func() { close(opened) })
	var once, onceFailed sync.Once
	p.pc.OnConnectionStateChange(func(s webrtc.PeerConnectionState) {
		switch s {
		case webrtc.PeerConnectionStateConnected:
			once.Do(func() { close(connected) })
		case webrtc.PeerConnectionStateDisconnected, webrtc.PeerConnectionStateFailed:
			p.fail(fmt.Errorf("the WebRTC connection is %s", s))
			onceFailed.Do(func() { close(failed) })
		}
	})
	gathered := webrtc.GatheringCompletePromise(p.pc)
	offer, err := p.pc.CreateOffer(nil)
	if err != nil {
		return err
	}
	if err := p.pc.SetLocalDescription(offer); err != nil {
		return err
	}
	<-gathered
	answer, err := signal(ctx, p.pc.LocalDescription().SDP)
	if err != nil {
		return err
	}
	if err := p.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: answer}); err != nil {
		return err
	}
	for _, ready := range []chan struct{}{connected, opened} {
		select {
		case <-ready:
		case <-failed:
			return p.err()
		case <-ctx.Done():
			return fmt.Errorf("not connected: %w", context.Cause(ctx))
		}
	}
	return nil
}

// callEcho calls the echo server.
func callEcho(ctx context.Context, s *service, o peerOptions) (*peer, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	o.chat = false // it answers no questions
	p, err := newPeer(o)
	if err != nil {
		return nil, err
	}
	err = p.connect(ctx, func(ctx context.Context, offer string) (string, error) {
		body, err := json.Marshal(webrtc.SessionDescription{Type: webrtc.SDPTypeOffer, SDP: offer})
		if err != nil {
			return "", err
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
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
		p.close()
		return nil, err
	}
	return p, nil
}

// callGateway calls the gateway as signaling/PROTOCOL.md says.
func callGateway(ctx context.Context, s *service, o peerOptions) (*peer, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	p, err := newPeer(o)
	if err != nil {
		return nil, err
	}
	if err := p.converse(ctx, s.url); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// converse opens the WebSocket, the conversation and the WebRTC connection.
func (p *peer) converse(ctx context.Context, url string) error {
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
	return p.connect(ctx, func(ctx context.Context, offer string) (string, error) {
		body, err := json.Marshal(map[string]string{"sdp": offer})
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
	})
}

func (p *peer) say(kind, payload string) error {
	return p.socket.WriteMessage(websocket.TextMessage, []byte(envelope(kind, payload)))
}

func envelope(kind, payload string) string {
	return fmt.Sprintf(`{"type":%q,"payload":%s}`, kind, payload)
}

// read takes what comes over the WebSocket until that ends. Once the call stands nobody waits for messages any more.
func (p *peer) read() {
	defer close(p.messages)
	for {
		_, raw, err := p.socket.ReadMessage()
		if err != nil {
			p.fail(fmt.Errorf("the WebSocket has ended: %w", err))
			return
		}
		p.watch(raw)
		var m message
		if err := json.Unmarshal(raw, &m); err != nil {
			p.fail(fmt.Errorf("not JSON: %s", raw))
			return
		}
		select {
		case p.messages <- m:
		default:
		}
	}
}

// expect waits for a message of one type and returns its payload.
func (p *peer) expect(ctx context.Context, kind string) (json.RawMessage, error) {
	for {
		select {
		case m, ok := <-p.messages:
			if err := p.err(); err != nil {
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
