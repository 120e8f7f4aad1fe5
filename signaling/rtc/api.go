// Package rtc is the WebRTC peer of a client, for any door: the ports that all share, the offer and its answer, the microphone
// and the camera as they come in, the model's voice as it goes out, packets that are sent again, and the data channel. It
// carries messages and does not read them.
package rtc

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pion/ice/v4"
	"github.com/pion/interceptor"
	"github.com/pion/logging"
	"github.com/pion/webrtc/v4"
)

const (
	// maxChannelMessage is announced as a=max-message-size: what Chromium takes, too.
	maxChannelMessage = 256 << 10

	// Payload types are ours when the offer has no other idea; the answer takes the offer's.
	opusPayloadType = 111
	redPayloadType  = 63
	vp8PayloadType  = 96

	// dtlsRetransmit is LiveKit's value. With the 1 s of RFC 6347 a lost packet of the handshake costs a second:
	// measured at 10 % loss, connecting took 2.6 s at the 90th percentile, and 0.8 s with 100 ms.
	dtlsRetransmit = 100 * time.Millisecond

	// channelRTO bounds how long a lost packet of the data channel waits to be sent again, and with it all events behind
	// it. RFC 9260's 1 s made INTERRUPTED come 0.7 s late at 10 % loss and a round trip of 60 ms, 250 ms make that 0.46 s.
	channelRTO = 250 * time.Millisecond

	iceDisconnected = 5 * time.Second
	iceFailed       = 25 * time.Second
	iceKeepalive    = 2 * time.Second

	// tcpFirst is how long an ICE-TCP client may take for its first check, which it sends at once, and how long a connection without a peer
	// lives.
	tcpFirst = 5 * time.Second

	// tcpWriteBuffer keeps a slow ICE-TCP client from blocking the playout clock: above it packets are dropped.
	tcpWriteBuffer = 256 << 10
)

// Options say where WebRTC is served. At an address of the loopback, or with Loopback, clients on this machine are served, too; else
// loopback addresses that a client names as its candidates get nothing.
type Options struct {
	UDPAddr   string // one UDP port for all peers, "host:port"; empty: no UDP
	Loopback  bool
	PublicIPs []string // announced to clients instead of the local addresses (NAT 1:1)

	TCP    net.Listener // ICE-TCP, which Close closes; nil: none
	Logger *slog.Logger
}

// API makes WebRTC peers that share one UDP port, and one TCP port if there is one.
type API struct {
	api     *webrtc.API
	public  []string   // the only addresses that are announced; none: all
	viewing sync.Mutex // held by the peer that makes a picture: see picture.NewViewer
	closers []func() error
	observe func(Quality) // may be nil
}

// New opens the ports. Close closes them.
func New(o Options) (*API, error) {
	a := &API{public: o.PublicIPs}
	var settings webrtc.SettingEngine
	settings.LoggerFactory = pionLogs(o.Logger)
	settings.SetICEMulticastDNSMode(ice.MulticastDNSModeDisabled)
	settings.SetICETimeouts(iceDisconnected, iceFailed, iceKeepalive)
	settings.SetDTLSRetransmissionInterval(dtlsRetransmit)
	settings.SetSCTPMaxReceiveBufferSize(1 << 20)
	settings.SetSCTPMaxMessageSize(maxChannelMessage)
	settings.SetSCTPRTOMax(channelRTO)
	loopback, err := a.open(o, &settings)
	if err != nil {
		a.Close()
		return nil, err
	}
	settings.SetIncludeLoopbackCandidate(loopback)
	settings.SetRemoteIPFilter(reachable(loopback))
	if len(o.PublicIPs) > 0 {
		err := settings.SetICEAddressRewriteRules(webrtc.ICEAddressRewriteRule{
			External: o.PublicIPs, AsCandidateType: webrtc.ICECandidateTypeHost, Mode: webrtc.ICEAddressRewriteReplace,
		})
		if err != nil {
			a.Close()
			return nil, fmt.Errorf("public IP: %w", err)
		}
	}
	if a.api, err = newAPI(settings); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// open opens the ports, which all peers use, and reports whether one is the loopback's.
func (a *API) open(o Options, settings *webrtc.SettingEngine) (loopback bool, err error) {
	logger := settings.LoggerFactory.NewLogger("ice")
	var networks []webrtc.NetworkType
	if o.UDPAddr != "" {
		addr, err := net.ResolveUDPAddr("udp", o.UDPAddr)
		if err != nil {
			return false, fmt.Errorf("UDP address: %w", err)
		}
		conns, err := listenUDP(addr)
		if err != nil {
			return false, fmt.Errorf("listen for WebRTC: %w", err)
		}
		var muxes []ice.UDPMux
		for _, conn := range conns {
			muxes = append(muxes, ice.NewUDPMuxDefault(ice.UDPMuxParams{UDPConn: sifted{conn}, Logger: logger}))
		}
		mux := ice.NewMultiUDPMuxDefault(muxes...)
		settings.SetICEUDPMux(mux)
		a.closers = append(a.closers, mux.Close)
		loopback = o.Loopback || addr.IP.IsLoopback()
		networks = append(networks, webrtc.NetworkTypeUDP4, webrtc.NetworkTypeUDP6)
	}
	if o.TCP != nil {
		mux := ice.NewTCPMuxDefault(ice.TCPMuxParams{
			Listener: o.TCP, Logger: logger, ReadBufferSize: 16, WriteBufferSize: tcpWriteBuffer, FirstStunBindTimeout: tcpFirst,
			AliveDurationForConnFromStun: tcpFirst,
		})
		settings.SetICETCPMux(mux)
		a.closers = append(a.closers, mux.Close)
		loopback = loopback || o.TCP.Addr().(*net.TCPAddr).IP.IsLoopback()
		networks = append(networks, webrtc.NetworkTypeTCP4, webrtc.NetworkTypeTCP6)
	}
	settings.DisableActiveTCP(true) // or pion would dial any address that a stranger names
	settings.SetNetworkTypes(networks)
	return loopback, nil
}

// listenUDP opens a UDP port: at an address, or, where that is unspecified, by a socket for each address of this machine. By one socket for
// all, answers would leave from whichever address the kernel prefers, and a client drops what comes from another one than it has asked
// (RFC 8445 section 7.2.5.2.1).
func listenUDP(at *net.UDPAddr) (conns []*net.UDPConn, err error) {
	addresses := []net.IP{at.IP}
	if at.IP == nil || at.IP.IsUnspecified() {
		local, err := localAddresses(at.IP.To4() != nil)
		if err != nil {
			return nil, err
		}
		if len(local) > 0 { // else the network is not up yet, and one socket must do for whatever addresses come
			addresses = local
		}
	}
	closeAll := func() {
		for _, conn := range conns {
			conn.Close()
		}
		conns = nil
	}
	for range 16 { // where the system chooses the port, it may be taken at the next address
		port := at.Port
		for _, ip := range addresses {
			conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: ip, Port: port, Zone: at.Zone})
			if errors.Is(err, syscall.EADDRNOTAVAIL) && len(addresses) > 1 { // an address of IPv6 that is not yet known to be the only one
				continue
			}
			if err != nil {
				closeAll()
				if at.Port != 0 {
					return nil, err
				}
				break
			}
			conns, port = append(conns, conn), conn.LocalAddr().(*net.UDPAddr).Port
		}
		if len(conns) > 0 {
			return conns, nil
		}
	}
	return nil, errNoPort
}

var errNoPort = errors.New("no UDP port is free at all addresses of this machine")

// localAddresses returns the addresses of this machine that clients may reach, or those of IPv4 alone. Those of a link are not among them:
// they would need its name.
func localAddresses(only4 bool) (addresses []net.IP, err error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		network, ok := a.(*net.IPNet)
		if !ok || network.IP.IsLinkLocalUnicast() || only4 && network.IP.To4() == nil ||
			slices.ContainsFunc(addresses, network.IP.Equal) {
			continue
		}
		addresses = append(addresses, network.IP)
	}
	return addresses, nil
}

// newAPI registers what we speak: Opus, plain and with copies (RED), G.711, with reports, NACK and transport-cc, and VP8.
func newAPI(settings webrtc.SettingEngine) (*webrtc.API, error) {
	codecs := &webrtc.MediaEngine{}
	feedback := []webrtc.RTCPFeedback{{Type: "nack"}, {Type: webrtc.TypeRTCPFBTransportCC}}
	for _, c := range []struct {
		payloadType webrtc.PayloadType
		kind        webrtc.RTPCodecType
		capability  webrtc.RTPCodecCapability
	}{
		{opusPayloadType, webrtc.RTPCodecTypeAudio, webrtc.RTPCodecCapability{
			MimeType: webrtc.MimeTypeOpus, ClockRate: 48000, Channels: 2, SDPFmtpLine: "minptime=10;useinbandfec=1", RTCPFeedback: feedback,
		}},
		{redPayloadType, webrtc.RTPCodecTypeAudio, webrtc.RTPCodecCapability{
			MimeType: mimeTypeRED, ClockRate: 48000, Channels: 2, SDPFmtpLine: fmt.Sprintf("%d/%[1]d", opusPayloadType), RTCPFeedback: feedback,
		}},
		{0, webrtc.RTPCodecTypeAudio, webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypePCMU, ClockRate: 8000, RTCPFeedback: feedback}},
		{8, webrtc.RTPCodecTypeAudio, webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypePCMA, ClockRate: 8000, RTCPFeedback: feedback}},
		{vp8PayloadType, webrtc.RTPCodecTypeVideo, webrtc.RTPCodecCapability{
			MimeType: webrtc.MimeTypeVP8, ClockRate: 90000,
			RTCPFeedback: []webrtc.RTCPFeedback{{Type: webrtc.TypeRTCPFBNACK}, {Type: webrtc.TypeRTCPFBNACK, Parameter: "pli"}}, // see Peer.watch
		}},
	} {
		parameters := webrtc.RTPCodecParameters{RTPCodecCapability: c.capability, PayloadType: c.payloadType}
		if err := codecs.RegisterCodec(parameters, c.kind); err != nil {
			return nil, fmt.Errorf("register %s: %w", c.capability.MimeType, err)
		}
	}
	registry, err := interceptors(codecs)
	if err != nil {
		return nil, err
	}
	return webrtc.NewAPI(webrtc.WithSettingEngine(settings), webrtc.WithMediaEngine(codecs), webrtc.WithInterceptorRegistry(registry)), nil
}

// interceptors do what RTCP asks for, beside what voice and Receiver do themselves: answers to NACK, reports, and
// transport-cc, by which browsers find out how much they may send. The first is the nearest to the network.
func interceptors(codecs *webrtc.MediaEngine) (*interceptor.Registry, error) {
	registry := &interceptor.Registry{}
	registry.Add(resenders{})
	if err := webrtc.ConfigureRTCPReports(registry); err != nil {
		return nil, fmt.Errorf("reports: %w", err)
	}
	if err := webrtc.ConfigureTWCCHeaderExtensionSender(codecs, registry); err != nil {
		return nil, fmt.Errorf("transport-cc: %w", err)
	}
	if err := webrtc.ConfigureTWCCSender(codecs, registry); err != nil {
		return nil, fmt.Errorf("transport-cc: %w", err)
	}
	return registry, nil
}

// Close closes the ports. The peers must be closed already.
func (a *API) Close() error {
	var errs []error
	for _, c := range a.closers {
		if err := c(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
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
