package testkit

import (
	"encoding/json"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/pion/interceptor"
	"github.com/pion/rtp"
	"github.com/pion/transport/v4"
	"github.com/pion/transport/v4/stdnet"
	"github.com/pion/webrtc/v4"

	"voxgate/internal/testkit/rtctest"
	"voxgate/media"
	"voxgate/media/opus"
)

// Phone is a WebRTC client of the client protocol. Its microphone and receiver run in real time. Its WebSocket client sends
// and receives offers and candidates.
type Phone struct {
	*rtctest.Caller
	T      *testing.T
	Client *Client
	next   rtp.Header
	Talk   chan []int16 // audio for the microphone, which sends silence without it

	mu   sync.Mutex
	ear  []int16 // received audio, decoded to 24 kHz
	Stop chan struct{}
	Done sync.WaitGroup

	vanished *atomic.Bool
	silent   chan struct{} // receives a value whenever the microphone has nothing to send
}

// SpeakAudio sends speech at 48 kHz through the microphone, and returns after the last packet.
func (p *Phone) SpeakAudio(pcm []int16) {
	p.T.Helper()
	p.Talk <- pcm
	for range 2 { // the first value may be of the time before pcm was queued
		select {
		case <-p.silent:
		case <-time.After(Patience):
			p.T.Fatal("the microphone does not end")
		}
	}
}

// DropNetwork stops all packets of the phone, as if its network had failed.
func (p *Phone) DropNetwork() { p.vanished.Store(true) }

// network is the machine's network. Once the phone has vanished, it drops all packets that the phone sends.
type network struct {
	transport.Net
	vanished *atomic.Bool
}

func (n network) ListenUDP(kind string, at *net.UDPAddr) (transport.UDPConn, error) {
	conn, err := n.Net.ListenUDP(kind, at)
	return udpConn{conn, n.vanished}, err
}

type udpConn struct {
	transport.UDPConn
	vanished *atomic.Bool
}

func (c udpConn) WriteTo(packet []byte, to net.Addr) (int, error) {
	if c.vanished.Load() {
		return len(packet), nil
	}
	return c.UDPConn.WriteTo(packet, to)
}

// PhoneOptions configure a phone.
type PhoneOptions struct {
	Direction webrtc.RTPTransceiverDirection // direction of audio; zero means sendrecv
	NoAudio   bool
	Channel   bool
	Frame     time.Duration               // duration of the microphone's packets; zero: 20 ms
	Dtx       bool                        // silence is not sent
	Network   func(*webrtc.SettingEngine) // nil means UDP on all addresses
	Codecs    *webrtc.MediaEngine         // codecs of a probe; nil means Pion's defaults
	Decoder   opus.DecoderChoice          // empty: the decoder that gateways use by default
}

// NewPhone creates a phone for the client c, and prepares its offer. Call Negotiate to connect.
func NewPhone(t *testing.T, c *Client, o PhoneOptions) *Phone {
	t.Helper()
	var settings webrtc.SettingEngine
	settings.SetIncludeLoopbackCandidate(true)
	vanished := &atomic.Bool{}
	settings.SetNet(network{Must(stdnet.NewNet()), vanished})
	if o.Network != nil {
		o.Network(&settings)
	}
	var more []func(*webrtc.API)
	if o.Codecs != nil {
		settings.DisableSRTPReplayProtection(true)
		more = append(more, webrtc.WithMediaEngine(o.Codecs), webrtc.WithInterceptorRegistry(&interceptor.Registry{}))
	}
	p := &Phone{
		T: t, Client: c, next: rtp.Header{Version: 2}, Talk: make(chan []int16, 64), Stop: make(chan struct{}),
		silent: make(chan struct{}), vanished: vanished,
	}
	options := rtctest.Options{
		API:       webrtc.NewAPI(append(more, webrtc.WithSettingEngine(settings))...),
		Direction: o.Direction, NoAudio: o.NoAudio, Track: p.runReceiver,
		Message: func(raw []byte) {
			var got Message
			if err := json.Unmarshal(raw, &got); err != nil {
				t.Errorf("not JSON: %s", raw)
			}
			got.Connection = "channel"
			c.AddMessage(got)
		},
	}
	if o.Channel {
		options.Channel = "events"
	}
	p.Caller = Must(rtctest.New(options))
	if o.Frame == 0 {
		o.Frame = media.FrameDuration
	}
	if p.Mic != nil {
		p.Done.Go(func() { p.runMicrophone(o) })
	}
	t.Cleanup(p.HangUp)
	return p
}

// DialPhone returns a conversation with a connected phone.
func DialPhone(t *testing.T, g *Gateway, config string, o PhoneOptions) (*Client, *Phone) {
	t.Helper()
	c := OpenConversation(t, g, config)
	p := NewPhone(t, c, o)
	p.Negotiate(false)
	p.AwaitConnected()
	return c, p
}

// runMicrophone runs the microphone. It sends one packet per frame, in real time.
func (p *Phone) runMicrophone(o PhoneOptions) {
	const rate = 48000
	encoder, err := opus.NewEncoder(rate)
	if err != nil {
		p.T.Error(err)
		return
	}
	n := int(o.Frame.Seconds() * rate)
	var pending []int16
	packet := make([]byte, 1500)
	tick := time.NewTicker(o.Frame)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-p.Stop:
			return
		}
		for len(pending) < n {
			select {
			case more := <-p.Talk:
				pending = append(pending, more...)
				continue
			default:
			}
			break
		}
		p.next.Timestamp += uint32(n)
		if len(pending) == 0 {
			select {
			case p.silent <- struct{}{}:
			default:
			}
		}
		if o.Dtx && len(pending) == 0 {
			p.next.Marker = true
			continue
		}
		frame := make([]int16, n)
		pending = pending[copy(frame, pending):]
		size, err := encoder.Encode(frame, packet)
		if err != nil {
			p.T.Error(err)
			return
		}
		p.next.SequenceNumber++
		p.Mic.WriteRTP(&rtp.Packet{Header: p.next, Payload: packet[:size]}) // dropped if not connected yet
		p.next.Marker = false
	}
}

// runReceiver runs the receiver.
func (p *Phone) runReceiver(track *webrtc.TrackRemote) {
	decoder, err := opus.NewDecoder(24000, "libopus")
	if err != nil {
		p.T.Error(err)
		return
	}
	pcm := make([]int16, 24000*120/1000)
	for {
		packet, _, err := track.ReadRTP()
		if err != nil {
			return
		}
		if len(packet.Payload) == 0 {
			continue
		}
		n, err := decoder.Decode(packet.Payload, pcm)
		if err != nil {
			p.T.Errorf("the gateway sent bad Opus: %v", err)
			continue
		}
		p.mu.Lock()
		p.ear = append(p.ear, pcm[:n]...)
		p.mu.Unlock()
	}
}

// ReceivedVoice returns the voice received so far, at 24 kHz.
func (p *Phone) ReceivedVoice() []int16 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]int16(nil), p.ear...)
}

// Negotiate sends an offer, waits for the answer and applies it. Candidates trickle both ways.
func (p *Phone) Negotiate(restart bool) {
	p.T.Helper()
	at := len(p.Client.Messages())
	p.PC.OnICECandidate(func(i *webrtc.ICECandidate) {
		payload := `{"candidate":null,"sdpMid":null,"sdpMLineIndex":null}`
		if i != nil {
			payload = string(Must(json.Marshal(map[string]any{"candidate": i.ToJSON().Candidate, "sdpMid": nil, "sdpMLineIndex": 0})))
		}
		if p.Channel != nil && p.Channel.ReadyState() == webrtc.DataChannelStateOpen {
			p.Send("WEBRTC_ICE_CANDIDATE", payload)
			return
		}
		p.Client.Mu.Lock()
		defer p.Client.Mu.Unlock()
		_ = p.Client.Conn.WriteMessage(websocket.TextMessage, EncodeMessage("WEBRTC_ICE_CANDIDATE", payload)) // a test may have closed it by now
	})
	offer, err := p.PC.CreateOffer(&webrtc.OfferOptions{ICERestart: restart})
	if err != nil {
		p.T.Fatal(err)
	}
	if err := p.PC.SetLocalDescription(offer); err != nil {
		p.T.Fatal(err)
	}
	p.SendOffer(offer.SDP)
	m, _ := p.Client.AwaitMatch(at, "WEBRTC_ANSWER", func(m Message) bool { return m.Type == "WEBRTC_ANSWER" })
	p.ApplyAnswer(m)
	p.Done.Go(func() { p.addGatewayCandidates(at) })
}

// SendOffer sends an offer over the data channel or, before that is open, over the socket.
func (p *Phone) SendOffer(sdp string) {
	p.T.Helper()
	p.Send("WEBRTC_OFFER", string(Must(json.Marshal(map[string]string{"sdp": sdp}))))
}

// ApplyAnswer applies the answer from a message.
func (p *Phone) ApplyAnswer(m Message) {
	p.T.Helper()
	var answer struct{ SDP string }
	m.DecodePayload(p.T, &answer)
	if err := p.Caller.SetAnswer(answer.SDP); err != nil {
		p.T.Fatalf("%v\n%s", err, answer.SDP)
	}
}

// SendOfferOnly sends an offer, but ignores the answer, so that no connection is made.
func (p *Phone) SendOfferOnly(restart bool) {
	p.T.Helper()
	offer, err := p.PC.CreateOffer(&webrtc.OfferOptions{ICERestart: restart})
	if err != nil {
		p.T.Fatal(err)
	}
	p.Client.Send("WEBRTC_OFFER", string(Must(json.Marshal(map[string]string{"sdp": offer.SDP})))) // a restart interrupts the data channel
}

// addGatewayCandidates adds the gateway's candidates until it reports that there are no more.
func (p *Phone) addGatewayCandidates(firstIndex int) {
	for {
		all, more := p.Client.messagesAndNext()
		for ; firstIndex < len(all); firstIndex++ {
			if all[firstIndex].Type != "WEBRTC_ICE_CANDIDATE" {
				continue
			}
			var i struct {
				Candidate     *string
				SDPMid        *string
				SDPMLineIndex *uint16
			}
			if err := json.Unmarshal(all[firstIndex].Payload, &i); err != nil {
				p.T.Error(err)
			}
			if i.Candidate == nil {
				return
			}
			if i.SDPMid == nil || *i.SDPMid == "" || i.SDPMLineIndex == nil {
				p.T.Errorf("a candidate without its place: %s", all[firstIndex].Payload)
			}
			p.PC.AddICECandidate(webrtc.ICECandidateInit{Candidate: *i.Candidate, SDPMid: i.SDPMid, SDPMLineIndex: i.SDPMLineIndex})
		}
		select {
		case <-more:
		case <-p.Stop:
			return
		}
	}
}

// Send sends a message over the data channel if it is open, otherwise over the socket.
func (p *Phone) Send(kind, payload string) {
	if p.Channel != nil && p.Channel.ReadyState() == webrtc.DataChannelStateOpen {
		if err := p.Channel.SendText(string(EncodeMessage(kind, payload))); err != nil {
			p.T.Errorf("channel: %v", err)
		}
		return
	}
	p.Client.Send(kind, payload)
}

// AwaitConnected waits until media are connected, and the data channel, if one was requested.
func (p *Phone) AwaitConnected() {
	p.T.Helper()
	Eventually(p.T, "connection", func() bool {
		return p.PC.ConnectionState() == webrtc.PeerConnectionStateConnected &&
			(p.Channel == nil || p.Channel.ReadyState() == webrtc.DataChannelStateOpen)
	})
}

// HangUp closes the peer and waits for its goroutines.
func (p *Phone) HangUp() {
	select {
	case <-p.Stop:
		return
	default:
		close(p.Stop)
	}
	p.Close()
	p.Done.Wait()
}

// AwaitToneShare waits for a second of voice, and returns the share of a frequency (in Hz) in its energy.
func (p *Phone) AwaitToneShare(hz float64) float64 {
	p.T.Helper()
	Eventually(p.T, "voice", func() bool { return len(TrimSilence(p.ReceivedVoice())) >= 24000*8/10 })
	return ToneShare(TrimSilence(p.ReceivedVoice()), hz)
}

// CheckAudioBothWays checks that audio flows in both directions over WebRTC. It tries three times, because a busy
// machine may split a sentence into two turns.
func (p *Phone) CheckAudioBothWays(hz float64) {
	p.T.Helper()
	for left := 3; ; left-- {
		at := len(p.ReceivedVoice())
		p.Talk <- MakeSentence(hz, 800*time.Millisecond, 48000)
		said := func() bool { return len(TrimSilence(p.ReceivedVoice()[at:])) >= 24000/2 }
		if left > 1 && !PollUntil(Patience/3, said) {
			continue
		}
		Eventually(p.T, "voice", said)
		if level := ToneShare(TrimSilence(p.ReceivedVoice()[at:]), hz); level < 0.5 {
			p.T.Errorf("share of %v Hz is %.2f", hz, level)
		}
		break
	}
	p.Client.AwaitEvent("TURN_COMPLETE")
}
