package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"github.com/pion/ice/v4"
	"github.com/pion/interceptor"
	"github.com/pion/interceptor/pkg/nack"
	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"

	"voxgate/media"
	"voxgate/media/opus"
	"voxgate/media/rtpaudio"
)

// connectTimeout is how long a call may take to be connected.
const connectTimeout = 20 * time.Second

// features are what a peer offers beside Opus with FEC, and reports.
type features struct {
	nack   bool // packets may be asked for again
	resend bool // and are sent again
	red    bool // Opus with a copy of the packet before (RFC 2198)
}

var (
	plain    = features{}
	withNACK = features{nack: true}
	chromium = features{nack: true, resend: true, red: true}
)

// Payload types, as Chromium numbers them.
const (
	opusType = 111
	redType  = 63
)

var (
	opusCodec = webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeOpus, ClockRate: 48000, Channels: 2, SDPFmtpLine: "minptime=10;useinbandfec=1"}
	redCodec  = webrtc.RTPCodecCapability{MimeType: "audio/red", ClockRate: 48000, Channels: 2, SDPFmtpLine: fmt.Sprintf("%d/%[1]d", opusType)}
)

// newAPI keeps pion on 127.0.0.1, and on one socket if there is a mux.
func newAPI(mux ice.UDPMux, f features) (*webrtc.API, error) {
	var settings webrtc.SettingEngine
	settings.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeUDP4})
	settings.SetIncludeLoopbackCandidate(true)
	settings.SetIPFilter(net.IP.IsLoopback)
	settings.SetICEMulticastDNSMode(ice.MulticastDNSModeDisabled)
	if mux != nil {
		settings.SetICEUDPMux(mux)
	}
	codecs, registry := &webrtc.MediaEngine{}, &interceptor.Registry{}
	formats := []webrtc.RTPCodecParameters{{RTPCodecCapability: opusCodec, PayloadType: opusType}}
	if f.red {
		formats = append(formats, webrtc.RTPCodecParameters{RTPCodecCapability: redCodec, PayloadType: redType})
	}
	var errs []error
	for _, format := range formats {
		if f.nack {
			format.RTCPFeedback = append(format.RTCPFeedback, webrtc.RTCPFeedback{Type: "nack"})
		}
		errs = append(errs, codecs.RegisterCodec(format, webrtc.RTPCodecTypeAudio))
	}
	if f.resend {
		const kept = 64 // packets, as many as in the gateway
		responder, err := nack.NewResponderInterceptor(nack.ResponderSize(kept))
		errs = append(errs, err)
		registry.Add(responder)
	}
	errs = append(errs, webrtc.ConfigureRTCPReports(registry))
	return webrtc.NewAPI(webrtc.WithSettingEngine(settings), webrtc.WithMediaEngine(codecs), webrtc.WithInterceptorRegistry(registry)), errors.Join(errs...)
}

// discardRTCP reads the RTCP of a sender or a receiver until it is closed: reports and NACK do nothing unless somebody does.
func discardRTCP(from interface {
	Read(b []byte) (int, interceptor.Attributes, error)
},
) {
	for buf := make([]byte, 1500); ; {
		if _, _, err := from.Read(buf); err != nil {
			return
		}
	}
}

// callOptions say how a caller behaves, who hears by hear or by sink.
type callOptions struct {
	offers features
	by     *posted                           // nil: the client protocol
	name   string                            // of its session with the model, by the client protocol
	hear   func(at time.Time, p *rtp.Packet) // takes every packet
	socket net.PacketConn                    // in place of one of its own; the peer closes it
	sink   media.Sink                        // hears in place of hear, by a receiver like the gateway's, over a network with linkDelay

	resumable bool
	token     string // of the conversation that it goes on with; "": a fresh one
	resumed   func() // is called when it does
}

// peer is a caller: a WebRTC peer with a socket of its own, a microphone and a data channel, as a page has them.
type peer struct {
	callOptions
	pc      *webrtc.PeerConnection
	mux     ice.UDPMux // around a socket that was given; may be nil
	mic     *webrtc.TrackLocalStaticRTP
	next    rtp.Header
	last    []byte // the packet before, for RED
	channel *webrtc.DataChannel
	ws      *websocket.Conn
	answers chan message // of the WebSocket, for who waits for one
	running sync.WaitGroup

	mu      sync.Mutex
	failure error
	failed  chan struct{}
	closing bool
}

// message is one of the gateway, as signaling/PROTOCOL.md has it.
type message struct {
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload"`
}

func newPeer(o callOptions) (*peer, error) {
	p := &peer{callOptions: o, next: rtp.Header{Version: 2}, answers: make(chan message, 64), failed: make(chan struct{})}
	if o.socket != nil {
		p.mux = ice.NewUDPMuxDefault(ice.UDPMuxParams{UDPConn: o.socket})
	}
	api, err := newAPI(p.mux, o.offers)
	if err != nil {
		return nil, err
	}
	if p.pc, err = api.NewPeerConnection(webrtc.Configuration{}); err != nil {
		return nil, err
	}
	codec := opusCodec
	if o.offers.red {
		codec = redCodec
	}
	if p.mic, err = webrtc.NewTrackLocalStaticRTP(codec, "mic", "bench"); err != nil {
		return p, err
	}
	sender, err := p.pc.AddTrack(p.mic)
	if err != nil {
		return p, err
	}
	p.running.Go(func() { discardRTCP(sender) })
	p.pc.OnTrack(func(track *webrtc.TrackRemote, receiver *webrtc.RTPReceiver) {
		go discardRTCP(receiver) // until the connection is closed
		if o.sink != nil {
			p.receiver().Run(context.Background(), trackReader{track})
			return
		}
		p.listen(track)
	})
	label := "events"
	if o.by != nil {
		label = o.by.channel
	}
	if label == "" {
		return p, nil
	}
	if p.channel, err = p.pc.CreateDataChannel(label, nil); err != nil {
		return p, err
	}
	p.channel.OnMessage(func(m webrtc.DataChannelMessage) { p.take(m.Data) })
	return p, nil
}

// receiver repairs what a browser would: with copies and FEC, and by asking again where that is offered.
func (p *peer) receiver() *rtpaudio.Receiver {
	o := rtpaudio.ReceiverOptions{Codec: opus.Codec{}, Types: []uint8{opusType}, RED: []uint8{redType}, RTT: func() time.Duration { return 2 * linkDelay }}
	if p.offers.nack {
		o.NACK = func(ssrc uint32, missing []uint16) {
			p.pc.WriteRTCP([]rtcp.Packet{&rtcp.TransportLayerNack{MediaSSRC: ssrc, Nacks: rtcp.NackPairsFromSequenceNumbers(missing)}})
		}
	}
	return rtpaudio.NewReceiver(p.sink, o)
}

// trackReader makes a track an rtpaudio.Reader.
type trackReader struct{ *webrtc.TrackRemote }

func (r trackReader) Read(b []byte) (int, error) {
	n, _, err := r.TrackRemote.Read(b)
	return n, err
}

// listen takes a track's packets until it ends.
func (p *peer) listen(track *webrtc.TrackRemote) {
	var packet rtp.Packet
	for buf := make([]byte, 1500); ; {
		n, _, err := track.Read(buf)
		if err != nil {
			return
		}
		if at := time.Now(); packet.Unmarshal(buf[:n]) == nil {
			p.hear(at, &packet)
		}
	}
}

// take takes a message of the gateway.
func (p *peer) take(raw []byte) {
	var m message
	if err := json.Unmarshal(raw, &m); err != nil {
		p.fail(fmt.Errorf("not JSON: %s", raw))
	}
	if m.Type == "GEMINI_ERROR" || m.Type == "GEMINI_DISCONNECTED" {
		p.fail(fmt.Errorf("the gateway says: %s", raw))
	}
	select {
	case p.answers <- m:
	default: // nobody waits any more
	}
}

// fail keeps the first error of the call.
func (p *peer) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure == nil && !p.closing {
		p.failure = err
		close(p.failed)
	}
}

// err is why the call has failed, if it has.
func (p *peer) err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failure
}

// send speaks 20 ms of Opus.
func (p *peer) send(opus []byte) { p.sendFor(opus, frame) }

// sendFor speaks a packet of a length. With RED that is 20 ms.
func (p *peer) sendFor(opus []byte, length time.Duration) {
	p.next.SequenceNumber++
	p.next.Timestamp += uint32(media.Samples(length, 48000)) // RFC 7587's clock
	payload := opus
	if p.offers.red {
		payload = packRED(p.last, opus)
		p.last = append(p.last[:0], opus...)
	}
	if err := p.mic.WriteRTP(&rtp.Packet{Header: p.next, Payload: payload}); err != nil {
		p.fail(fmt.Errorf("send: %w", err))
	}
}

// packRED puts a copy of the packet before ahead of a packet. Its header says that another follows, its type, how much earlier
// it was (14 bits) and how long it is (10): RFC 2198, section 3.
func packRED(before, packet []byte) []byte {
	var payload []byte
	if len(before) > 0 {
		payload = binary.BigEndian.AppendUint32(nil, 1<<31|opusType<<24|960<<10|uint32(len(before)))
	}
	return slices.Concat(payload, []byte{opusType}, before, packet)
}

func (p *peer) close() {
	p.mu.Lock()
	p.closing = true
	p.mu.Unlock()
	if p.ws != nil {
		p.say("DISCONNECT_GEMINI", "{}")
	}
	if p.pc != nil {
		p.pc.Close()
	}
	if p.mux != nil {
		p.mux.Close() // and the socket
	}
	if p.ws != nil {
		p.ws.Close()
	}
	p.running.Wait()
}

// call calls a gateway at a URL, and waits until the whole connection is there.
func call(ctx context.Context, url string, o callOptions) (*peer, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	p, err := newPeer(o)
	if err == nil && o.by != nil {
		err = p.post(ctx, url)
	} else if err == nil {
		err = p.connect(ctx, url)
	}
	if err != nil {
		if p != nil {
			p.close()
		}
		return nil, err
	}
	return p, nil
}

// watch notes when the connection is lost, and tells when it is there.
func (p *peer) watch(connected func()) {
	p.pc.OnConnectionStateChange(func(s webrtc.PeerConnectionState) {
		switch s {
		case webrtc.PeerConnectionStateConnected:
			connected()
		case webrtc.PeerConnectionStateDisconnected, webrtc.PeerConnectionStateFailed:
			p.fail(fmt.Errorf("the WebRTC connection is %s", s))
		}
	})
}

// await waits until the connection is there.
func (p *peer) await(ctx context.Context, connected chan struct{}) error {
	select {
	case <-connected:
		return nil
	case <-p.failed:
		return p.err()
	case <-ctx.Done():
		return fmt.Errorf("not connected: %w", context.Cause(ctx))
	}
}

// connect calls as signaling/PROTOCOL.md says. When the data channel is open, so is the voice.
func (p *peer) connect(ctx context.Context, url string) (err error) {
	opened := make(chan struct{})
	p.channel.OnOpen(func() { close(opened) })
	p.watch(func() {})
	p.ws, _, err = websocket.DefaultDialer.DialContext(ctx, "ws"+strings.TrimPrefix(url, "http")+"/ws", nil)
	if err != nil {
		return err
	}
	p.running.Go(func() {
		for {
			_, raw, err := p.ws.ReadMessage()
			if err != nil {
				p.fail(fmt.Errorf("the WebSocket has ended: %w", err))
				return
			}
			p.take(raw)
		}
	})
	again := ""
	if p.resumable {
		again = fmt.Sprintf(`,"resumable":true,"resumeToken":%q`, p.token)
	}
	raw, err := p.request(ctx, "CONNECT_GEMINI", fmt.Sprintf(`{"initialConfig":{"systemInstruction":%q}%s}`, p.name, again), "SETUP_COMPLETE")
	if err != nil {
		return err
	}
	var done struct {
		Success, Resumed bool
		ResumeToken      string
	}
	if err := json.Unmarshal(raw, &done); err != nil || !done.Success || done.Resumed != (p.token != "") {
		return fmt.Errorf("the conversation was refused or is another one: %s", raw)
	}
	if p.token = done.ResumeToken; p.resumed != nil {
		p.resumed()
	}
	if err := p.negotiate(ctx, nil); err != nil {
		return err
	}
	return p.await(ctx, opened)
}

// offer makes an offer with all candidates.
func (p *peer) offer(o *webrtc.OfferOptions) (sdp string, err error) {
	offer, err := p.pc.CreateOffer(o)
	if err != nil {
		return "", err
	}
	gathered := webrtc.GatheringCompletePromise(p.pc)
	if err := p.pc.SetLocalDescription(offer); err != nil {
		return "", err
	}
	<-gathered
	return p.pc.LocalDescription().SDP, nil
}

// negotiate makes an offer and takes the answer.
func (p *peer) negotiate(ctx context.Context, o *webrtc.OfferOptions) error {
	offer, err := p.offer(o)
	if err != nil {
		return err
	}
	payload, err := json.Marshal(map[string]string{"sdp": offer})
	if err != nil {
		return err
	}
	raw, err := p.request(ctx, "WEBRTC_OFFER", string(payload), "WEBRTC_ANSWER")
	if err != nil {
		return err
	}
	var answer struct{ SDP string }
	if err := json.Unmarshal(raw, &answer); err != nil {
		return err
	}
	return p.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: answer.SDP})
}

// restartICE finds a way again, as after a change of address, by a new offer. The peer goes on as ever meanwhile.
func (p *peer) restartICE(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return p.negotiate(ctx, &webrtc.OfferOptions{ICERestart: true})
}

// say sends a message over the WebSocket. One goroutine does at a time.
func (p *peer) say(kind, payload string) error {
	return p.ws.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"type":%q,"payload":%s}`, kind, payload))
}

// request sends a message, waits for one that answers it, and returns its payload.
func (p *peer) request(ctx context.Context, kind, payload, answer string) (json.RawMessage, error) {
	for len(p.answers) > 0 {
		<-p.answers // from before
	}
	if err := p.say(kind, payload); err != nil {
		return nil, err
	}
	for {
		select {
		case m := <-p.answers:
			if m.Type == answer {
				return m.Payload, nil
			}
		case <-p.failed:
			return nil, fmt.Errorf("waiting for %s: %w", answer, p.err())
		case <-ctx.Done():
			return nil, fmt.Errorf("no %s: %w", answer, context.Cause(ctx))
		}
	}
}
