package signaling

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/pion/ice/v4"
	"github.com/pion/interceptor"
	"github.com/pion/interceptor/pkg/nack"
	"github.com/pion/interceptor/pkg/report"
	"github.com/pion/logging"
	"github.com/pion/webrtc/v4"
)

const (
	// maxChannelMessage is announced as a=max-message-size: what Chromium takes, too.
	maxChannelMessage = 256 << 10

	// Payload types are ours when the offer has no other idea; the answer takes the offer's.
	opusPayloadType = 111
	vp8PayloadType  = 96

	// nackPackets is how many sent packets can be sent again: 64 of 20 ms are 1.3 s, longer than anybody waits.
	// Pion's default of 1,024 grew to 4.3 MB a session.
	nackPackets = 64

	// dtlsRetransmit is LiveKit's value. With the 1 s of RFC 6347 a lost packet of the handshake costs a second:
	// measured at 10 % loss, connecting took 2.6 s at the 90th percentile, and 0.8 s with 100 ms.
	dtlsRetransmit = 100 * time.Millisecond

	iceDisconnected = 5 * time.Second
	iceFailed       = 25 * time.Second
	iceKeepalive    = 2 * time.Second

	// tcpWriteBuffer keeps a slow ICE-TCP client from blocking the playout clock: above it packets are dropped.
	tcpWriteBuffer = 256 << 10
)

// RTCOptions say where WebRTC is served.
type RTCOptions struct {
	UDPAddr   string   // one UDP port for all calls, "host:port"; empty: no UDP
	TCPAddr   string   // ICE-TCP, "host:port"; empty: none
	PublicIPs []string // told to clients instead of the local addresses (NAT 1:1)
	Logger    *slog.Logger
}

// RTC makes WebRTC peers that share one UDP port, and one TCP port if there is one.
type RTC struct {
	api     *webrtc.API
	udp     net.PacketConn
	closers []func() error
}

// NewRTC opens the ports.
func NewRTC(o RTCOptions) (*RTC, error) {
	r := &RTC{}
	var settings webrtc.SettingEngine
	settings.LoggerFactory = pionLogs(o.Logger)
	settings.SetICEMulticastDNSMode(ice.MulticastDNSModeDisabled)
	settings.SetICETimeouts(iceDisconnected, iceFailed, iceKeepalive)
	settings.SetDTLSRetransmissionInterval(dtlsRetransmit)
	settings.SetSCTPMaxReceiveBufferSize(1 << 20)
	settings.SetSCTPMaxMessageSize(maxChannelMessage)
	var networks []webrtc.NetworkType
	loopback, err := r.listen(o, &settings, &networks)
	if err != nil {
		r.Close()
		return nil, err
	}
	settings.SetNetworkTypes(networks)
	settings.SetIncludeLoopbackCandidate(loopback)
	if !loopback {
		settings.SetRemoteIPFilter(reachable)
	}
	if len(o.PublicIPs) > 0 {
		err := settings.SetICEAddressRewriteRules(webrtc.ICEAddressRewriteRule{
			External: o.PublicIPs, AsCandidateType: webrtc.ICECandidateTypeHost, Mode: webrtc.ICEAddressRewriteReplace,
		})
		if err != nil {
			r.Close()
			return nil, fmt.Errorf("public IP: %w", err)
		}
	}
	r.api, err = newAPI(settings)
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// listen opens the ports and tells whether they are the loopback's.
func (r *RTC) listen(o RTCOptions, settings *webrtc.SettingEngine, networks *[]webrtc.NetworkType) (loopback bool, err error) {
	logger := settings.LoggerFactory.NewLogger("ice")
	if o.UDPAddr != "" {
		addr, err := net.ResolveUDPAddr("udp", o.UDPAddr)
		if err != nil {
			return false, fmt.Errorf("UDP address: %w", err)
		}
		conn, err := net.ListenUDP("udp", addr)
		if err != nil {
			return false, fmt.Errorf("listen for WebRTC: %w", err)
		}
		mux := ice.NewUDPMuxDefault(ice.UDPMuxParams{UDPConn: conn, Logger: logger})
		settings.SetICEUDPMux(mux)
		r.udp = conn
		r.closers = append(r.closers, mux.Close, conn.Close)
		loopback = addr.IP.IsLoopback()
		*networks = append(*networks, webrtc.NetworkTypeUDP4, webrtc.NetworkTypeUDP6)
	}
	if o.TCPAddr != "" {
		listener, err := net.Listen("tcp", o.TCPAddr)
		if err != nil {
			return false, fmt.Errorf("listen for ICE-TCP: %w", err)
		}
		mux := ice.NewTCPMuxDefault(ice.TCPMuxParams{
			Listener: listener, Logger: logger, ReadBufferSize: 16, WriteBufferSize: tcpWriteBuffer,
		})
		settings.SetICETCPMux(mux)
		r.closers = append(r.closers, mux.Close, listener.Close)
		loopback = loopback || listener.Addr().(*net.TCPAddr).IP.IsLoopback()
		*networks = append(*networks, webrtc.NetworkTypeTCP4, webrtc.NetworkTypeTCP6)
	}
	return loopback, nil
}

// newAPI registers what we speak: Opus with RTCP reports and answers to NACK. VP8 is there only so that a video section
// need not be refused: aiortc gives up on an answer that does. See wireAnswer.
func newAPI(settings webrtc.SettingEngine) (*webrtc.API, error) {
	codecs := &webrtc.MediaEngine{}
	err := codecs.RegisterCodec(webrtc.RTPCodecParameters{
		RTPCodecCapability: webrtc.RTPCodecCapability{
			MimeType: webrtc.MimeTypeOpus, ClockRate: 48000, Channels: 2,
			SDPFmtpLine:  "minptime=10;useinbandfec=1",
			RTCPFeedback: []webrtc.RTCPFeedback{{Type: "nack"}},
		},
		PayloadType: opusPayloadType,
	}, webrtc.RTPCodecTypeAudio)
	if err != nil {
		return nil, fmt.Errorf("register opus: %w", err)
	}
	err = codecs.RegisterCodec(webrtc.RTPCodecParameters{
		RTPCodecCapability: webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeVP8, ClockRate: 90000}, PayloadType: vp8PayloadType,
	}, webrtc.RTPCodecTypeVideo)
	if err != nil {
		return nil, fmt.Errorf("register vp8: %w", err)
	}
	registry := &interceptor.Registry{}
	responder, err := nack.NewResponderInterceptor(nack.ResponderSize(nackPackets))
	if err != nil {
		return nil, fmt.Errorf("nack responder: %w", err)
	}
	receiver, err := report.NewReceiverInterceptor()
	if err != nil {
		return nil, fmt.Errorf("receiver reports: %w", err)
	}
	sender, err := report.NewSenderInterceptor()
	if err != nil {
		return nil, fmt.Errorf("sender reports: %w", err)
	}
	registry.Add(responder)
	registry.Add(receiver)
	registry.Add(sender)
	return webrtc.NewAPI(webrtc.WithSettingEngine(settings), webrtc.WithMediaEngine(codecs), webrtc.WithInterceptorRegistry(registry)), nil
}

// Close closes the ports. The peers must be closed already.
func (r *RTC) Close() error {
	var errs []error
	for _, c := range r.closers {
		if err := c(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// reachable says which addresses of a client's candidates get STUN checks: pion would send some to any address that a
// stranger names. Inner addresses of this machine and of its cloud's metadata service are none of a client's business.
func reachable(ip net.IP) bool {
	return !ip.IsLoopback() && !ip.IsUnspecified() && !ip.IsMulticast() && !ip.IsLinkLocalUnicast()
}

// pionLogs sends pion's warnings to our debug log: they are about single packets and checks.
func pionLogs(l *slog.Logger) logging.LoggerFactory {
	return &logging.DefaultLoggerFactory{
		Writer: pionWriter{l}, DefaultLogLevel: logging.LogLevelWarn, ScopeLevels: map[string]logging.LogLevel{},
	}
}

type pionWriter struct{ log *slog.Logger }

func (w pionWriter) Write(p []byte) (int, error) {
	w.log.Debug("pion: " + strings.TrimSpace(string(p)))
	return len(p), nil
}
