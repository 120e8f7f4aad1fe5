package peer

import (
	"fmt"
	"net"

	"github.com/pion/ice/v4"
	"github.com/pion/interceptor"
	"github.com/pion/interceptor/pkg/nack"
	"github.com/pion/interceptor/pkg/report"
	"github.com/pion/webrtc/v4"
)

// nackPackets is how many sent packets can be sent again: as many as in the gateway.
const nackPackets = 64

// Payload types, as Chromium numbers them.
const (
	opusType = 111
	redType  = 63
)

var opusCodec = webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeOpus, ClockRate: 48000, Channels: 2}

// loopback keeps pion on 127.0.0.1.
func loopback() webrtc.SettingEngine {
	var s webrtc.SettingEngine
	s.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeUDP4})
	s.SetIncludeLoopbackCandidate(true)
	s.SetIPFilter(net.IP.IsLoopback)
	s.SetICEMulticastDNSMode(ice.MulticastDNSModeDisabled)
	return s
}

// Features are what a peer offers beside Opus with in-band FEC and RTCP reports. The zero value is nothing.
type Features struct {
	nack   bool // packets may be asked for again
	resend bool // and are sent again
	red    bool // Opus with copies of earlier packets, as Chromium offers it
	cc     bool // transport-cc, likewise
}

// What callers offer.
var (
	NACK     = Features{nack: true}
	Chromium = Features{nack: true, resend: true, red: true, cc: true}
)

func newAPI(settings webrtc.SettingEngine, f Features) (*webrtc.API, error) {
	codecs, registry := &webrtc.MediaEngine{}, &interceptor.Registry{}
	var feedback []webrtc.RTCPFeedback
	if f.nack {
		feedback = append(feedback, webrtc.RTCPFeedback{Type: "nack"})
	}
	if f.cc {
		feedback = append(feedback, webrtc.RTCPFeedback{Type: webrtc.TypeRTCPFBTransportCC})
	}
	formats := []webrtc.RTPCodecParameters{{RTPCodecCapability: opusCodec, PayloadType: opusType}}
	formats[0].SDPFmtpLine = "minptime=10;useinbandfec=1"
	if f.red {
		formats = append(formats, webrtc.RTPCodecParameters{
			RTPCodecCapability: webrtc.RTPCodecCapability{
				MimeType: mimeTypeRED, ClockRate: 48000, Channels: 2, SDPFmtpLine: fmt.Sprintf("%d/%[1]d", opusType),
			},
			PayloadType: redType,
		})
	}
	for _, format := range formats {
		format.RTCPFeedback = feedback
		if err := codecs.RegisterCodec(format, webrtc.RTPCodecTypeAudio); err != nil {
			return nil, err
		}
	}
	if err := f.register(codecs, registry); err != nil {
		return nil, err
	}
	return webrtc.NewAPI(webrtc.WithSettingEngine(settings), webrtc.WithMediaEngine(codecs), webrtc.WithInterceptorRegistry(registry)), nil
}

// register adds what works on RTCP.
func (f Features) register(codecs *webrtc.MediaEngine, registry *interceptor.Registry) error {
	if f.resend {
		responder, err := nack.NewResponderInterceptor(nack.ResponderSize(nackPackets))
		if err != nil {
			return err
		}
		registry.Add(responder)
	}
	receiver, err := report.NewReceiverInterceptor()
	if err != nil {
		return err
	}
	registry.Add(receiver)
	sender, err := report.NewSenderInterceptor()
	if err != nil {
		return err
	}
	registry.Add(sender)
	if !f.cc {
		return nil
	}
	if err := webrtc.ConfigureTWCCHeaderExtensionSender(codecs, registry); err != nil {
		return err
	}
	return webrtc.ConfigureTWCCSender(codecs, registry)
}

// drain reads the RTCP of a sender or a receiver until it is closed: reports and NACK do nothing unless somebody does. The
// other end knows the round trip only by reports that name the sender report before.
func drain(sender interface {
	Read(b []byte) (int, interceptor.Attributes, error)
},
) {
	buf := make([]byte, 1500)
	for {
		if _, _, err := sender.Read(buf); err != nil {
			return
		}
	}
}
