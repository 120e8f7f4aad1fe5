// Package rtc implements the WebRTC peer of a client, for all protocols: the shared ports, offers and answers, the incoming
// microphone and camera, the outgoing voice of the model, retransmission, and the data channel. It transports messages
// without reading them.
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
	// maxChannelMessage is the size of the longest message that we accept on a data channel, in bytes. The answer
	// states it as a=max-message-size. Chromium has the same limit.
	maxChannelMessage = 256 << 10

	// Payload types that our codecs have in Pion's settings. An answer uses the payload types of the offer instead.
	opusPayloadType = 111
	redPayloadType  = 63
	vp8PayloadType  = 96

	// dtlsRetransmit is the time after which an unanswered DTLS handshake packet is sent again. LiveKit uses the same
	// value. At 10 % loss, connecting takes 0.8 s at the 90th percentile. With the 1 s of RFC 6347 it took 2.6 s.
	dtlsRetransmit = 100 * time.Millisecond

	// channelRTO is the maximum time after which a lost packet of the data channel is sent again. At 10 % loss and a
	// round trip of 60 ms, the message INTERRUPTED arrives 0.46 s late. With the 1 s of RFC 9260 it was 0.7 s late.
	channelRTO = 250 * time.Millisecond

	iceDisconnected = 5 * time.Second
	iceFailed       = 25 * time.Second
	iceKeepalive    = 2 * time.Second

	// tcpFirst limits the time from a client's ICE-TCP connection to its first STUN check. Clients send that check
	// immediately. A connection that belongs to no peer is closed after this time.
	tcpFirst = 5 * time.Second

	// tcpWriteBuffer is the size of the send buffer of an ICE-TCP connection, in bytes. Packets that do not fit are
	// dropped, so that a slow client does not block the playout clock.
	tcpWriteBuffer = 256 << 10
)

// Options configure the network of WebRTC.
type Options struct {
	UDPAddr   string   // one UDP port for all peers, "host:port"; empty disables UDP
	Loopback  bool     // accept clients on this machine, as with a loopback UDPAddr
	PublicIPs []string // announced to clients instead of the local addresses (NAT 1:1)

	TCP    net.Listener // listener for ICE-TCP, or nil; closed by Close
	Logger *slog.Logger
}

// API creates WebRTC peers that share one UDP port, and optionally one TCP port.
type API struct {
	api     *webrtc.API
	public  []string   // the only addresses that are sent to clients as candidates; all if empty
	viewing sync.Mutex // held by the peer that decodes a picture: see picture.NewExtractor
	closers []func() error
	observe func(Quality) // may be nil
}

// New opens the ports that all peers share. [API.Close] closes them.
func New(o Options) (*API, error) {
	a := &API{public: o.PublicIPs}
	var settings webrtc.SettingEngine
	settings.LoggerFactory = newPionLogger(o.Logger)
	settings.SetICEMulticastDNSMode(ice.MulticastDNSModeDisabled)
	settings.SetICETimeouts(iceDisconnected, iceFailed, iceKeepalive)
	settings.SetDTLSRetransmissionInterval(dtlsRetransmit)
	settings.SetSCTPMaxReceiveBufferSize(1 << 20)
	settings.SetSCTPMaxMessageSize(maxChannelMessage)
	settings.SetSCTPRTOMax(channelRTO)
	loopback, err := a.openPorts(o, &settings)
	if err != nil {
		a.Close()
		return nil, err
	}
	settings.SetIncludeLoopbackCandidate(loopback)
	settings.SetRemoteIPFilter(addressFilter(loopback))
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

// openPorts opens the ports that all peers share, and reports whether one of them accepts clients on this machine.
func (a *API) openPorts(o Options, settings *webrtc.SettingEngine) (hasLoopback bool, err error) {
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
			muxes = append(muxes, ice.NewUDPMuxDefault(ice.UDPMuxParams{UDPConn: filteredUDPConn{conn}, Logger: logger}))
		}
		mux := ice.NewMultiUDPMuxDefault(muxes...)
		settings.SetICEUDPMux(mux)
		a.closers = append(a.closers, mux.Close)
		hasLoopback = o.Loopback || addr.IP.IsLoopback()
		networks = append(networks, webrtc.NetworkTypeUDP4, webrtc.NetworkTypeUDP6)
	}
	if o.TCP != nil {
		mux := ice.NewTCPMuxDefault(ice.TCPMuxParams{
			Listener: o.TCP, Logger: logger, ReadBufferSize: 16, WriteBufferSize: tcpWriteBuffer, FirstStunBindTimeout: tcpFirst,
			AliveDurationForConnFromStun: tcpFirst,
		})
		settings.SetICETCPMux(mux)
		a.closers = append(a.closers, mux.Close)
		hasLoopback = hasLoopback || o.TCP.Addr().(*net.TCPAddr).IP.IsLoopback()
		networks = append(networks, webrtc.NetworkTypeTCP4, webrtc.NetworkTypeTCP6)
	}
	settings.DisableActiveTCP(true) // otherwise Pion would dial any address that a client names
	settings.SetNetworkTypes(networks)
	return hasLoopback, nil
}

// listenUDP opens a UDP port at an address. If the address is unspecified, it opens one socket for each address of this
// machine. With a single socket, the answer to a client could come from an address that the client has not asked, and
// clients drop such answers (RFC 8445 section 7.2.5.2.1).
func listenUDP(address *net.UDPAddr) (conns []*net.UDPConn, err error) {
	addresses := []net.IP{address.IP}
	if address.IP == nil || address.IP.IsUnspecified() {
		local, err := localAddresses(address.IP.To4() != nil)
		if err != nil {
			return nil, err
		}
		if len(local) > 0 { // if it is empty, the network is not up yet, and one socket on the unspecified address serves all later ones
			addresses = local
		}
	}
	closeAll := func() {
		for _, conn := range conns {
			conn.Close()
		}
		conns = nil
	}
	for range 16 { // several tries: a port that the system chose for one address may be in use at the next address
		port := address.Port
		for _, ip := range addresses {
			conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: ip, Port: port, Zone: address.Zone})
			if errors.Is(err, syscall.EADDRNOTAVAIL) && len(addresses) > 1 { // an IPv6 address whose duplicate detection has not finished
				continue
			}
			if err != nil {
				closeAll()
				if address.Port != 0 {
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

// localAddresses returns the addresses of this machine that clients may reach, or only the IPv4 addresses if ipv4Only
// is true. It omits link-local addresses, because they are valid only together with an interface.
func localAddresses(ipv4Only bool) (addresses []net.IP, err error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		network, ok := a.(*net.IPNet)
		if !ok || network.IP.IsLinkLocalUnicast() || ipv4Only && network.IP.To4() == nil ||
			slices.ContainsFunc(addresses, network.IP.Equal) {
			continue
		}
		addresses = append(addresses, network.IP)
	}
	return addresses, nil
}

// newAPI returns Pion's API with our codecs (Opus, plain and with RED, G.711 and VP8), and with the interceptors for
// RTCP (see newInterceptors).
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
			RTCPFeedback: []webrtc.RTCPFeedback{{Type: webrtc.TypeRTCPFBNACK}, {Type: webrtc.TypeRTCPFBNACK, Parameter: "pli"}}, // see readVideo
		}},
	} {
		parameters := webrtc.RTPCodecParameters{RTPCodecCapability: c.capability, PayloadType: c.payloadType}
		if err := codecs.RegisterCodec(parameters, c.kind); err != nil {
			return nil, fmt.Errorf("register %s: %w", c.capability.MimeType, err)
		}
	}
	registry, err := newInterceptors(codecs)
	if err != nil {
		return nil, err
	}
	return webrtc.NewAPI(webrtc.WithSettingEngine(settings), webrtc.WithMediaEngine(codecs), webrtc.WithInterceptorRegistry(registry)), nil
}

// newInterceptors returns the interceptors for RTCP: answers to NACK, reports, and transport-cc for the bandwidth
// estimation of browsers. The interceptor that is added first is nearest to the network.
func newInterceptors(codecs *webrtc.MediaEngine) (*interceptor.Registry, error) {
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

// Close closes the ports. Close all peers first.
func (a *API) Close() error {
	var errs []error
	for _, c := range a.closers {
		if err := c(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// newPionLogger returns a logger that writes Pion's warnings to our debug log, because they concern only single packets
// and checks.
func newPionLogger(l *slog.Logger) logging.LoggerFactory {
	return &logging.DefaultLoggerFactory{
		Writer: pionWriter{l}, DefaultLogLevel: logging.LogLevelWarn, ScopeLevels: map[string]logging.LogLevel{},
	}
}

type pionWriter struct{ log *slog.Logger }

func (w pionWriter) Write(p []byte) (int, error) {
	w.log.Debug("pion: " + strings.TrimSpace(string(p)))
	return len(p), nil
}
