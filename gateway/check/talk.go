package check

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pion/turn/v5"
	"github.com/pion/webrtc/v4"
	"github.com/pion/webrtc/v4/pkg/media"

	"voxgate/client"
)

// checkWebRTC connects by WebRTC over each path, and measures the voice over UDP. Then it resumes the conversation on a
// new WebSocket.
func (c *checkRun) checkWebRTC(ctx context.Context, s *conversation) {
	const blocked = "Let UDP to the gateway's port (VOXGATE_UDP_PORT) through the firewall. Behind NAT set VOXGATE_PUBLIC_IP, " +
		"and VOXGATE_WEBRTC_HOST where the page listens on the loopback alone."
	c.checkPath(ctx, s, mediaPath{name: "WebRTC by UDP", protocol: "udp", mend: blocked, sound: true})
	c.checkPath(ctx, s, mediaPath{
		name: "WebRTC by TCP", protocol: "tcp", optional: true, mend: "Let TCP to VOXGATE_TCP_PORT through the firewall.",
	})
	for _, server := range s.servers {
		for _, u := range server.URLs {
			if strings.HasPrefix(u, "turn") {
				c.checkRelay(ctx, s, u, server)
			}
		}
	}
	c.checkResume(s)
}

// checkResume drops the connection without a close frame, and waits until the client has resumed the conversation over
// another connection.
func (c *checkRun) checkResume(s *conversation) {
	if !s.Setup().IsResumable {
		c.addFailed("going on", "the gateway gives no resume token", "VOXGATE_PARK is 0: a lost connection ends the conversation.")
		return
	}
	began := time.Now()
	s.cut()
	err := s.awaitEvent(stepTimeout, func(e client.Event) bool { _, lost := e.(client.ConnectionLost); return lost })
	var resumed client.Resumed
	if err == nil {
		err = s.awaitEvent(stepTimeout, func(e client.Event) (done bool) { resumed, done = e.(client.Resumed); return done })
	}
	const fleet = "Behind several gateways all need one VOXGATE_REDIS and VOXGATE_REDIS_SECRET (docs/scaling.md)."
	switch {
	case err != nil:
		c.addFailed("going on", err.Error(), fleet)
	case resumed.IsNew:
		c.addFailed("going on", "a new conversation began", fleet)
	default:
		c.addPassed("going on", "a conversation whose socket was cut is back after %v", time.Since(began).Round(time.Millisecond))
	}
}

// mediaPath is a network path for the voice.
type mediaPath struct {
	name     string
	protocol string // only candidates of the gateway with this protocol are tried; "" tries all
	server   *webrtc.ICEServer
	optional bool // a gateway without this path passes the check
	sound    bool
	mend     string
}

// checkPath connects over one path. It blocks until the path is connected, for stepTimeout at most, and measures the
// voice.
func (c *checkRun) checkPath(ctx context.Context, s *conversation, w mediaPath) (ok bool) {
	ctx, cancel := context.WithTimeout(ctx, 2*stepTimeout+c.Talk)
	defer cancel()
	call, err := newCall(w, c.From)
	if err != nil {
		return c.addFailed(w.name, err.Error(), "")
	}
	defer call.close()
	began := time.Now()
	offered, err := call.exchangeOffer(ctx, s, w.protocol)
	switch {
	case err != nil:
		return c.addFailed(w.name, err.Error(), "See the gateway's log.")
	case offered == 0 && w.optional:
		return c.addPassed(w.name, "the gateway has none (VOXGATE_TCP_PORT)")
	case offered == 0:
		return c.addFailed(w.name, "the gateway names no address for it", w.mend)
	}
	select {
	case <-call.connected:
	case <-time.After(stepTimeout):
		return c.addFailed(w.name, fmt.Sprintf("no connection within %v", stepTimeout), w.mend)
	case <-ctx.Done():
		return c.addFailed(w.name, "stopped", "")
	}
	found := fmt.Sprintf("connected after %v", time.Since(began).Round(time.Millisecond))
	if trip, ok := call.roundTrip(); ok {
		found += fmt.Sprintf(", round trip %v", trip.Round(10*time.Microsecond))
	}
	c.addPassed(w.name, "%s", found)
	if w.sound {
		c.measureVoice(ctx, s, call)
	}
	return true
}

// measureVoice makes the model speak, and measures the loss and jitter of the voice. It blocks until c.Talk has passed
// since the first packet.
func (c *checkRun) measureVoice(ctx context.Context, s *conversation, call *call) {
	speaking, stop := context.WithCancel(ctx)
	defer stop()
	var up sync.WaitGroup
	up.Go(func() { call.sendSilence(speaking) })
	if err := s.SendText(ctx, "Please count slowly, in words, from one to twenty."); err != nil {
		c.addFailed("voice", err.Error(), "")
		return
	}
	select {
	case <-call.firstPacket:
		select {
		case <-time.After(c.Talk):
		case <-ctx.Done():
		}
	case <-time.After(stepTimeout):
	case <-ctx.Done():
	}
	stop()
	up.Wait()
	h := call.readStats()
	if h.packets == 0 {
		c.addFailed("voice", "WebRTC is connected, but no sound came",
			"The model has not answered, or a firewall passes only the first packets. See the gateway's log.")
		return
	}
	lossPercent := float64(h.lost) / float64(h.packets+h.lost) * 100
	found := fmt.Sprintf("%d packets came, %.1f %% were lost, jitter %v", h.packets, lossPercent, h.jitter.Round(100*time.Microsecond))
	if lossPercent > 5 {
		c.addFailed("voice", found, "The network between here and the gateway loses packets: look at it with mtr, or try from elsewhere.")
		return
	}
	c.addPassed("voice", "%s", found)
}

// forbiddenAddresses lists addresses that a TURN relay must not reach: the relay's own machine, an inner network, a
// cloud's metadata server, and an unrelated host. The check only requests permissions for these addresses, and sends no
// data.
var forbiddenAddresses = []string{"127.0.0.1", "10.0.0.1", "169.254.169.254", "192.0.2.1"}

// checkRelay checks a TURN server with the credentials that the gateway gives to clients.
func (c *checkRun) checkRelay(ctx context.Context, s *conversation, address string, server client.ICEServer) {
	name := "relay " + address
	client, stop, err := dialTURN(ctx, address, server, c.tlsConfig())
	if err != nil {
		c.addFailed(name, err.Error(), cmp.Or(suggestTLSRemedy(err), "Let the port through the firewall of the TURN server."))
		return
	}
	defer stop()
	relayed, err := client.Allocate()
	if err != nil {
		mend := "Does coturn run there, and is the port open?"
		if strings.Contains(err.Error(), "error 401") || strings.Contains(err.Error(), "error 400") { // 401 from coturn, 400 from Pion
			mend = "VOXGATE_TURN_SECRET must be coturn's static-auth-secret, and coturn needs use-auth-secret."
		}
		c.addFailed(name, err.Error(), mend)
		return
	}
	defer relayed.Close()
	var open []string
	for _, ip := range forbiddenAddresses {
		if slices.Contains(c.addresses, ip) { // the gateway has this address, so the relay must reach it
			continue
		}
		if client.CreatePermission(&net.UDPAddr{IP: net.ParseIP(ip), Port: 9}) == nil {
			open = append(open, ip)
		}
	}
	if len(open) > 0 {
		c.addFailed(name, "it relays to "+strings.Join(open, ", ")+", too",
			"Strangers can reach inner machines through it: denied-peer-ip=0.0.0.0-255.255.255.255 "+
				"and allowed-peer-ip= the gateway's (docs/network.md).")
	}
	c.checkPath(ctx, s, mediaPath{
		name: name, server: &webrtc.ICEServer{URLs: []string{address}, Username: server.Username, Credential: server.Credential},
		mend: "The relay does not reach the gateway: allowed-peer-ip must be the gateway's public address.",
	})
}

// dialTURN connects to a TURN server at address, a URL, with the credentials of server. stop closes the connection.
func dialTURN(
	ctx context.Context, address string, server client.ICEServer, config *tls.Config,
) (client *turn.Client, stop func(), err error) {
	scheme, rest, _ := strings.Cut(address, ":")
	at, query, _ := strings.Cut(rest, "?")
	if _, _, err := net.SplitHostPort(at); err != nil {
		at = net.JoinHostPort(at, map[string]string{"turn": "3478", "turns": "5349"}[scheme])
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	var conn net.PacketConn
	switch {
	case scheme == "turns":
		config.ServerName, _, _ = net.SplitHostPort(at)
		stream, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", at)
		if err != nil {
			return nil, nil, err
		}
		conn = turn.NewSTUNConn(stream)
	case strings.Contains(query, "transport=tcp"):
		stream, err := (&net.Dialer{}).DialContext(ctx, "tcp", at)
		if err != nil {
			return nil, nil, err
		}
		conn = turn.NewSTUNConn(stream)
	default:
		to, err := (&net.Dialer{}).DialContext(ctx, "udp", at) // finds this machine's address, whose family the relayed address has
		if err != nil {
			return nil, nil, err
		}
		to.Close()
		if conn, err = net.ListenPacket("udp", net.JoinHostPort(to.LocalAddr().(*net.UDPAddr).IP.String(), "0")); err != nil {
			return nil, nil, err
		}
	}
	client, err = turn.NewClient(&turn.ClientConfig{
		TURNServerAddr: at, STUNServerAddr: at, Conn: conn, Username: server.Username, Password: server.Credential,
	})
	if err == nil {
		err = client.Listen()
	}
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return client, func() { client.Close(); conn.Close() }, nil
}

// call is the client's side of a WebRTC call.
type call struct {
	pc          *webrtc.PeerConnection
	mic         *webrtc.TrackLocalStaticSample
	connected   chan struct{}
	firstPacket chan struct{} // closed by the first packet of the voice

	mu sync.Mutex
	in voiceStats // guarded by mu
}

// voiceStats counts the received packets of a voice and the lost ones (RFC 3550, section 6.4.1), and holds its jitter
// (RFC 3550, appendix A.8).
type voiceStats struct {
	packets, lost int
	jitter        time.Duration

	last    uint16
	transit time.Duration
}

const opusRate = 48000

func newCall(path mediaPath, ipFilter func(net.IP) bool) (*call, error) {
	var settings webrtc.SettingEngine
	settings.SetIncludeLoopbackCandidate(true)
	settings.SetNetworkTypes([]webrtc.NetworkType{
		webrtc.NetworkTypeUDP4, webrtc.NetworkTypeUDP6, webrtc.NetworkTypeTCP4, webrtc.NetworkTypeTCP6,
	})
	if ipFilter != nil {
		settings.SetIPFilter(ipFilter)
	}
	config := webrtc.Configuration{}
	if path.server != nil {
		config.ICEServers, config.ICETransportPolicy = []webrtc.ICEServer{*path.server}, webrtc.ICETransportPolicyRelay
	}
	pc, err := webrtc.NewAPI(webrtc.WithSettingEngine(settings)).NewPeerConnection(config)
	if err != nil {
		return nil, err
	}
	c := &call{pc: pc, connected: make(chan struct{}), firstPacket: make(chan struct{})}
	connected := sync.OnceFunc(func() { close(c.connected) })
	pc.OnConnectionStateChange(func(s webrtc.PeerConnectionState) {
		if s == webrtc.PeerConnectionStateConnected {
			connected()
		}
	})
	pc.OnTrack(func(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) { c.countPackets(track) })
	format := webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeOpus, ClockRate: opusRate, Channels: 2}
	if c.mic, err = webrtc.NewTrackLocalStaticSample(format, "audio", "check"); err == nil {
		_, err = pc.AddTrack(c.mic)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *call) close() { _ = c.pc.GracefulClose() }

// exchangeOffer sends an offer over the WebSocket and waits for the answer. Of the gateway's candidates, it adds those of
// candidateTransport (udp or tcp; all if empty), and returns how many it added. It blocks until the gateway has answered
// and sent all candidates, for stepTimeout at most per step.
func (c *call) exchangeOffer(ctx context.Context, s *conversation, candidateTransport string) (added int, err error) {
	offer, err := c.pc.CreateOffer(nil)
	if err != nil {
		return 0, err
	}
	gathered := webrtc.GatheringCompletePromise(c.pc)
	if err := c.pc.SetLocalDescription(offer); err != nil {
		return 0, err
	}
	select {
	case <-gathered:
	case <-time.After(stepTimeout):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if err := s.Send(ctx, "WEBRTC_OFFER", map[string]string{"sdp": c.pc.LocalDescription().SDP}); err != nil {
		return 0, err
	}
	answer, all := "", false
	var found []webrtc.ICECandidateInit
	var refused error
	err = s.awaitEvent(stepTimeout, func(e client.Event) bool {
		if failure, ok := e.(client.Failure); ok {
			refused = failure.Err
		}
		m, _ := e.(client.Raw)
		switch m.Type {
		case "WEBRTC_ANSWER":
			var p struct{ SDP string }
			if json.Unmarshal(m.Payload, &p) == nil {
				answer = p.SDP
			}
		case "WEBRTC_ICE_CANDIDATE":
			var p webrtc.ICECandidateInit
			if json.Unmarshal(m.Payload, &p) == nil && p.Candidate != "" {
				found = append(found, p)
			} else {
				all = true
			}
		}
		return answer != "" && all || refused != nil
	})
	if refused != nil {
		return 0, refused
	}
	if err != nil {
		return 0, fmt.Errorf("the gateway does not answer the offer: %w", err)
	}
	inline, others := splitCandidates(answer)
	if err := c.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: others}); err != nil {
		return 0, err
	}
	for _, candidate := range append(inline, found...) {
		fields := strings.Fields(candidate.Candidate)
		if candidateTransport != "" && (len(fields) < 3 || !strings.EqualFold(fields[2], candidateTransport)) {
			continue
		}
		if err := c.pc.AddICECandidate(candidate); err == nil {
			added++
		}
	}
	return added, nil
}

// splitCandidates separates the candidates from the rest of an answer.
func splitCandidates(answer string) (candidates []webrtc.ICECandidateInit, others string) {
	var rest strings.Builder
	isKnown := map[string]bool{} // a bundled answer repeats the candidates in every section
	for line := range strings.Lines(answer) {
		candidate, is := strings.CutPrefix(strings.TrimSpace(line), "a=")
		if !is || !strings.HasPrefix(candidate, "candidate:") {
			rest.WriteString(line)
		} else if !isKnown[candidate] {
			isKnown[candidate] = true
			index := uint16(0)
			candidates = append(candidates, webrtc.ICECandidateInit{Candidate: candidate, SDPMLineIndex: &index})
		}
	}
	return candidates, rest.String()
}

// silentPacket is an Opus packet of silence: RFC 6716, section 3.1 (CELT, 20 ms), as browsers send it while muted.
var silentPacket = []byte{0xf8, 0xff, 0xfe}

// sendSilence sends silence until ctx is done.
func (c *call) sendSilence(ctx context.Context) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if c.mic.WriteSample(media.Sample{Data: silentPacket, Duration: 20 * time.Millisecond}) != nil {
			return
		}
	}
}

// countPackets measures the packets of a track until the call is closed.
func (c *call) countPackets(track *webrtc.TrackRemote) {
	began := time.Now()
	for {
		p, _, err := track.ReadRTP()
		if err != nil {
			return
		}
		transit := time.Since(began) - time.Duration(p.Timestamp)*time.Second/opusRate
		c.mu.Lock()
		in := &c.in
		if in.packets == 0 {
			close(c.firstPacket)
		}
		in.addPacket(p.SequenceNumber, transit)
		c.mu.Unlock()
	}
}

// addPacket counts a packet with its RTP sequence number, and adds its transit time to the jitter. If the packet
// arrives after a later one, it was counted as lost before, and addPacket corrects that.
func (in *voiceStats) addPacket(sequence uint16, transit time.Duration) {
	switch gap := int16(sequence - in.last); {
	case in.packets == 0:
		in.last = sequence
	case gap > 0:
		in.lost += int(gap) - 1
		in.last = sequence
	case gap < 0:
		in.lost--
	}
	if moved := (transit - in.transit).Abs(); in.packets > 0 && moved < time.Second { // a larger value is a pause between talkspurts
		in.jitter += (moved - in.jitter) / 16
	}
	in.packets++
	in.transit = transit
}

func (c *call) readStats() voiceStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.in
}

// roundTrip returns the round-trip time of the ICE checks. ok is false if it is unknown.
func (c *call) roundTrip() (trip time.Duration, ok bool) {
	for _, s := range c.pc.GetStats() {
		if pair, ok := s.(webrtc.ICECandidatePairStats); ok && pair.Nominated && pair.CurrentRoundTripTime > 0 {
			return time.Duration(pair.CurrentRoundTripTime * float64(time.Second)), true
		}
	}
	return 0, false
}
