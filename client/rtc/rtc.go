// Package rtc carries the audio of a conversation over WebRTC, with Pion. It sends Opus packets with the least latency,
// and the audio survives lost packets and a change of the network.
//
//	audio, err := rtc.New(rtc.Options{OnPacket: play})
//	conversation, err := client.Dial(ctx, client.Options{URL: url, WebRTC: audio})
//	err = audio.WriteOpus(packet, 20*time.Millisecond)
//
// The application must encode and decode Opus itself, for example with the codec of a phone, or with libopus.
package rtc

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"
	"github.com/pion/webrtc/v4/pkg/media"

	"voxgate/client"
)

const (
	// lostAfter is the silence of the network after which ICE is restarted.
	lostAfter = 2 * time.Second

	// failedAfter limits how long ICE searches for a path. By default, gateways keep a lost conversation for the same
	// time.
	failedAfter = time.Minute

	// answerTimeout is the time after which ICE may restart although the gateway has not answered the last offer. The
	// gateway may have rejected that offer.
	answerTimeout = 10 * time.Second
)

// Options configure the audio.
type Options struct {
	// OnPacket receives the packets of the model's voice, Opus at 48 kHz, from one goroutine at a time. OnPacket must
	// not block. An application needs a jitter buffer to play the packets.
	OnPacket func(*rtp.Packet)

	// OnState receives the state of the WebRTC connection. It may be nil.
	OnState func(webrtc.PeerConnectionState)

	// Settings changes Pion's settings, for example the network interfaces. New overrides the ICE timeouts in it.
	// Settings may be nil.
	Settings *webrtc.SettingEngine

	// RelayOnly makes ICE connect only by TURN servers.
	RelayOnly bool
}

// Audio carries the audio of one conversation over WebRTC, also over several consecutive connections. It implements
// [client.PeerDialer]. It is safe for concurrent use.
type Audio struct {
	options    Options
	api        *webrtc.API
	microphone *webrtc.TrackLocalStaticSample
}

// New returns the audio for [client.Options.WebRTC].
func New(o Options) (*Audio, error) {
	settings := webrtc.SettingEngine{}
	if o.Settings != nil {
		settings = *o.Settings
	}
	settings.SetICETimeouts(lostAfter, failedAfter, lostAfter/4)
	opus := webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeOpus, ClockRate: 48000, Channels: 2, SDPFmtpLine: "minptime=10;useinbandfec=1"}
	microphone, err := webrtc.NewTrackLocalStaticSample(opus, "audio", "microphone")
	if err != nil {
		return nil, err
	}
	return &Audio{options: o, api: webrtc.NewAPI(webrtc.WithSettingEngine(settings)), microphone: microphone}, nil
}

// WriteOpus sends one Opus packet of the microphone. duration is the length of the audio in the packet, preferably 10
// or 20 ms. Packets before WebRTC is connected are discarded. WriteOpus does not block.
func (a *Audio) WriteOpus(packet []byte, duration time.Duration) error {
	return a.microphone.WriteSample(media.Sample{Data: packet, Duration: duration})
}

// OpenPeer implements [client.PeerDialer].
func (a *Audio) OpenPeer(send func(kind string, payload any) error) (client.Peer, error) {
	return &peer{audio: a, send: send}, nil
}

// peer is a WebRTC connection.
type peer struct {
	audio *Audio
	send  func(kind string, payload any) error
	pc    *webrtc.PeerConnection // nil until SetServers

	reading sync.WaitGroup // readers of the voice

	mu         sync.Mutex
	isClosed   bool
	offeredAt  time.Time                 // when the unanswered offer was sent; zero without one
	candidates []webrtc.ICECandidateInit // candidates that arrived before the answer
}

// SetServers implements [client.Peer].
func (p *peer) SetServers(servers []client.ICEServer) error {
	config := webrtc.Configuration{}
	for _, s := range servers {
		config.ICEServers = append(config.ICEServers, webrtc.ICEServer{URLs: s.URLs, Username: s.Username, Credential: s.Credential})
	}
	if p.audio.options.RelayOnly {
		config.ICETransportPolicy = webrtc.ICETransportPolicyRelay
	}
	pc, err := p.audio.api.NewPeerConnection(config)
	if err != nil {
		return err
	}
	p.pc = pc
	pc.OnTrack(p.readVoice)
	pc.OnICECandidate(p.sendCandidate)
	pc.OnICEConnectionStateChange(func(state webrtc.ICEConnectionState) {
		if state == webrtc.ICEConnectionStateDisconnected {
			_ = p.sendOffer(&webrtc.OfferOptions{ICERestart: true}) // if the socket is lost, too, the client opens another peer
		}
	})
	if p.audio.options.OnState != nil {
		pc.OnConnectionStateChange(p.audio.options.OnState)
	}
	if _, err := pc.AddTrack(p.audio.microphone); err != nil {
		return err
	}
	return p.sendOffer(nil)
}

// readVoice delivers the packets of the model's voice until the connection ends.
func (p *peer) readVoice(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
	p.mu.Lock()
	if p.isClosed {
		p.mu.Unlock()
		return
	}
	p.reading.Add(1)
	p.mu.Unlock()
	defer p.reading.Done()
	for {
		packet, _, err := track.ReadRTP()
		if err != nil {
			return
		}
		if p.audio.options.OnPacket != nil {
			p.audio.options.OnPacket(packet)
		}
	}
}

// sendOffer sends an SDP offer, unless an earlier one waits for its answer.
func (p *peer) sendOffer(options *webrtc.OfferOptions) error {
	p.mu.Lock()
	isPending := time.Since(p.offeredAt) < answerTimeout
	if !isPending {
		p.offeredAt = time.Now()
	}
	p.mu.Unlock()
	if isPending {
		return nil
	}
	offer, err := p.pc.CreateOffer(options)
	if err == nil {
		err = p.pc.SetLocalDescription(offer)
	}
	if err != nil {
		return err
	}
	return p.send("WEBRTC_OFFER", map[string]string{"sdp": offer.SDP})
}

// sendCandidate sends a candidate; nil means that no more candidates follow.
func (p *peer) sendCandidate(found *webrtc.ICECandidate) {
	var candidate any = map[string]any{"candidate": nil}
	if found != nil {
		candidate = found.ToJSON()
	}
	_ = p.send("WEBRTC_ICE_CANDIDATE", candidate) // if the socket is lost, the client opens another peer
}

var errNoOffer = errors.New("the gateway answers an offer that was not sent")

// HandleAnswer implements [client.Peer].
func (p *peer) HandleAnswer(sdp string) error {
	if p.pc == nil {
		return errNoOffer
	}
	if err := p.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: sdp}); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.offeredAt = time.Time{}
	for _, candidate := range p.candidates {
		if err := p.pc.AddICECandidate(candidate); err != nil {
			return err
		}
	}
	p.candidates = nil
	return nil
}

// HandleCandidate implements [client.Peer].
func (p *peer) HandleCandidate(raw json.RawMessage) error {
	var candidate webrtc.ICECandidateInit
	if err := json.Unmarshal(raw, &candidate); err != nil || candidate.Candidate == "" { // there are no more
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.offeredAt.IsZero() || p.pc == nil {
		p.candidates = append(p.candidates, candidate)
		return nil
	}
	if err := p.pc.AddICECandidate(candidate); err != nil {
		return fmt.Errorf("%s: %w", candidate.Candidate, err)
	}
	return nil
}

// Close implements [client.Peer].
func (p *peer) Close() error {
	p.mu.Lock()
	p.isClosed = true
	p.mu.Unlock()
	if p.pc == nil {
		return nil
	}
	err := p.pc.Close()
	p.reading.Wait()
	return err
}
