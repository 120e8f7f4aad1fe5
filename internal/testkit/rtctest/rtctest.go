// Package rtctest provides a WebRTC caller for tests and for the lab: a Pion peer with an Opus microphone and, optionally, a data
// channel. The code that uses the package must transport offers and answers.
package rtctest

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/pion/ice/v4"
	"github.com/pion/interceptor"
	"github.com/pion/interceptor/pkg/nack"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"
)

// Payload types, with the numbers that Chromium uses.
const (
	OpusType = 111
	REDType  = 63
)

// Opus is the codec of the voice.
var Opus = webrtc.RTPCodecCapability{
	MimeType: webrtc.MimeTypeOpus, ClockRate: 48000, Channels: 2, SDPFmtpLine: "minptime=10;useinbandfec=1",
}

var red = webrtc.RTPCodecCapability{
	MimeType: "audio/red", ClockRate: 48000, Channels: 2, SDPFmtpLine: fmt.Sprintf("%d/%[1]d", OpusType),
}

// Options configure what a caller offers besides Opus with FEC, and how it handles what it receives.
type Options struct {
	NACK    bool                        // offer NACK: lost packets may be requested again
	Resend  bool                        // answer NACKs
	RED     bool                        // each packet carries a copy of the one before it (RFC 2198)
	Channel string                      // label of a data channel, or "" for none
	Socket  net.PacketConn              // replaces the caller's own sockets; Close closes it
	Network func(*webrtc.SettingEngine) // changes the defaults: only UDP on 127.0.0.1
	Track   func(*webrtc.TrackRemote)   // reads a track until it ends, in its own goroutine
	Message func([]byte)                // receives messages of the data channel

	API       *webrtc.API                    // replaces the API that the fields above configure
	Direction webrtc.RTPTransceiverDirection // direction of audio; zero means sendrecv; with recvonly, Mic is nil
	NoAudio   bool                           // only the data channel
}

// Caller is one end of a call. One goroutine at a time may call its methods.
type Caller struct {
	PC      *webrtc.PeerConnection
	Channel *webrtc.DataChannel         // nil unless requested
	Mic     *webrtc.TrackLocalStaticRTP // nil if the caller sends no audio

	red               bool
	next              rtp.Header
	last              []byte // the previous packet, for RED
	mux               ice.UDPMux
	connected, failed chan struct{}
	running           sync.WaitGroup
}

// NewAPI returns a Pion API with the codecs, interceptors and network of o. mux wraps o.Socket, and is nil if o.Socket
// is nil.
func NewAPI(o Options) (api *webrtc.API, mux ice.UDPMux, err error) {
	var settings webrtc.SettingEngine
	settings.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeUDP4})
	settings.SetIncludeLoopbackCandidate(true)
	settings.SetIPFilter(net.IP.IsLoopback)
	settings.SetICEMulticastDNSMode(ice.MulticastDNSModeDisabled)
	if o.Socket != nil {
		mux = ice.NewUDPMuxDefault(ice.UDPMuxParams{UDPConn: o.Socket})
		settings.SetICEUDPMux(mux)
	}
	if o.Network != nil {
		o.Network(&settings)
	}
	codecs, registry := &webrtc.MediaEngine{}, &interceptor.Registry{}
	formats := []webrtc.RTPCodecParameters{{RTPCodecCapability: Opus, PayloadType: OpusType}}
	if o.RED {
		formats = append(formats, webrtc.RTPCodecParameters{RTPCodecCapability: red, PayloadType: REDType})
	}
	var errs []error
	for _, format := range formats {
		if o.NACK {
			format.RTCPFeedback = append(format.RTCPFeedback, webrtc.RTCPFeedback{Type: "nack"})
		}
		errs = append(errs, codecs.RegisterCodec(format, webrtc.RTPCodecTypeAudio))
	}
	if o.Resend {
		const packets = 64 // number kept for retransmission, as in the gateway
		responder, err := nack.NewResponderInterceptor(nack.ResponderSize(packets))
		errs = append(errs, err)
		registry.Add(responder)
	}
	errs = append(errs, webrtc.ConfigureRTCPReports(registry))
	api = webrtc.NewAPI(webrtc.WithSettingEngine(settings), webrtc.WithMediaEngine(codecs), webrtc.WithInterceptorRegistry(registry))
	return api, mux, errors.Join(errs...)
}

// New returns a caller without a connection.
func New(o Options) (*Caller, error) {
	c := &Caller{red: o.RED, next: rtp.Header{Version: 2}, connected: make(chan struct{}), failed: make(chan struct{})}
	var err error
	if o.API == nil {
		if o.API, c.mux, err = NewAPI(o); err != nil {
			return nil, err
		}
	}
	if o.Track == nil {
		o.Track = func(*webrtc.TrackRemote) {}
	}
	if c.PC, err = o.API.NewPeerConnection(webrtc.Configuration{}); err != nil {
		return nil, err
	}
	if err := c.addMediaAndChannel(o); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// addMediaAndChannel adds the microphone, receiver and data channel to the connection.
func (c *Caller) addMediaAndChannel(o Options) (err error) {
	connected, failed := sync.OnceFunc(func() { close(c.connected) }), sync.OnceFunc(func() { close(c.failed) })
	c.PC.OnConnectionStateChange(func(s webrtc.PeerConnectionState) {
		switch s {
		case webrtc.PeerConnectionStateConnected:
			connected()
		case webrtc.PeerConnectionStateDisconnected, webrtc.PeerConnectionStateFailed:
			failed()
		}
	})
	if !o.NoAudio {
		if err := c.addAudio(o); err != nil {
			return err
		}
	}
	if o.Channel == "" {
		return nil
	}
	if c.Channel, err = c.PC.CreateDataChannel(o.Channel, nil); err == nil && o.Message != nil {
		c.Channel.OnMessage(func(m webrtc.DataChannelMessage) { o.Message(m.Data) })
	}
	return err
}

// addAudio adds the microphone and receiver to the connection.
func (c *Caller) addAudio(o Options) (err error) {
	c.PC.OnTrack(func(track *webrtc.TrackRemote, receiver *webrtc.RTPReceiver) {
		go DiscardRTCP(receiver) // until the connection is closed
		o.Track(track)
	})
	how := webrtc.RTPTransceiverInit{Direction: cmp.Or(o.Direction, webrtc.RTPTransceiverDirectionSendrecv)}
	if how.Direction == webrtc.RTPTransceiverDirectionRecvonly {
		_, err = c.PC.AddTransceiverFromKind(webrtc.RTPCodecTypeAudio, how)
		return err
	}
	codec := Opus
	if o.RED {
		codec = red
	}
	if c.Mic, err = webrtc.NewTrackLocalStaticRTP(codec, "mic", "rtctest"); err != nil {
		return err
	}
	t, err := c.PC.AddTransceiverFromTrack(c.Mic, how)
	if err == nil {
		c.running.Go(func() { DiscardRTCP(t.Sender()) })
	}
	return err
}

// rtcpReader is an RTPSender or an RTPReceiver.
type rtcpReader interface {
	Read(b []byte) (int, interceptor.Attributes, error)
}

// DiscardRTCP reads RTCP packets until the connection is closed, because Pion handles reports and NACKs only if the
// application reads them.
func DiscardRTCP(from rtcpReader) {
	for buf := make([]byte, 1500); ; {
		if _, _, err := from.Read(buf); err != nil {
			return
		}
	}
}

// Connected returns a channel that is closed when WebRTC is connected.
func (c *Caller) Connected() <-chan struct{} { return c.connected }

// Failed returns a channel that is closed when the connection is lost. Pion detects the loss after 5 s.
func (c *Caller) Failed() <-chan struct{} { return c.failed }

// Offer returns an offer with all candidates. If restart is true, the offer restarts ICE.
func (c *Caller) Offer(ctx context.Context, restart bool) (sdp string, err error) {
	offer, err := c.PC.CreateOffer(&webrtc.OfferOptions{ICERestart: restart})
	if err != nil {
		return "", err
	}
	gathered := webrtc.GatheringCompletePromise(c.PC)
	if err := c.PC.SetLocalDescription(offer); err != nil {
		return "", err
	}
	select {
	case <-gathered:
		return c.PC.LocalDescription().SDP, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// SetAnswer applies the answer to the offer.
func (c *Caller) SetAnswer(sdp string) error {
	return c.PC.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: sdp})
}

// Speak sends a packet with 20 ms of Opus. It drops the packet if WebRTC is not connected yet.
func (c *Caller) Speak(opus []byte) error {
	c.next.SequenceNumber++
	c.next.Timestamp += 960
	payload := opus
	if c.red {
		payload = PackRED(c.last, opus)
		c.last = append(c.last[:0], opus...)
	}
	return c.Mic.WriteRTP(&rtp.Packet{Header: c.next, Payload: payload})
}

// PackRED prepends a copy of the previous packet, which has 20 ms. The header of the copy (RFC 2198, section 3) has a
// flag, the payload type, the time offset (14 bits) and the length (10 bits).
func PackRED(previous, packet []byte) []byte {
	var header []byte
	if len(previous) > 0 {
		header = binary.BigEndian.AppendUint32(nil, 1<<31|OpusType<<24|960<<10|uint32(len(previous)))
	}
	return slices.Concat(header, []byte{OpusType}, previous, packet)
}

// Close hangs up, and waits until all of the caller's goroutines have ended.
func (c *Caller) Close() {
	c.PC.GracefulClose()
	if c.mux != nil {
		c.mux.Close() // and its socket
	}
	c.running.Wait()
}
