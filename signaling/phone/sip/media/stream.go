package media

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/pion/srtp/v3"

	"voxgate/internal/crash"
	"voxgate/media"
	"voxgate/media/rtpaudio"
	"voxgate/signaling/rtc"
)

// PortPool holds the free UDP ports for media: an even port for RTP and the next one for RTCP. The port that was free
// for the longest time is used first. Late packets of the previous call on a port are recognized by their SSRC.
type PortPool struct {
	address string
	ranged  bool // a range of ports is configured; otherwise the system chooses ports

	mu   sync.Mutex
	free []usedPort
}

type usedPort struct {
	number int    // port for RTP; 0 if the system chooses it
	ssrc   uint32 // the peer's SSRC in the previous call on this port
}

// NewPortPool returns the pool of the configured ports.
func NewPortPool(c RTP) (*PortPool, error) {
	first, last, err := c.parsePorts()
	if err != nil {
		return nil, err
	}
	return newPortPool(c.Address, first, last), nil
}

func newPortPool(address string, first, last int) *PortPool {
	p := &PortPool{address: address, ranged: last != 0}
	for n := first + first%2; p.ranged && n < last; n += 2 {
		p.free = append(p.free, usedPort{number: n})
	}
	// The order is random after each restart, so that late packets of earlier calls are unlikely to reach a new call.
	rand.Shuffle(len(p.free), func(i, j int) { p.free[i], p.free[j] = p.free[j], p.free[i] })
	return p
}

var errNoPort = errors.New("no RTP port is free")

// openStream takes a port from the pool and opens it. Ports that another process uses are skipped.
func (p *PortPool) openStream() (*stream, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ranged {
		return p.listenPort(usedPort{})
	}
	for range len(p.free) {
		port := p.free[0]
		p.free = p.free[1:]
		s, err := p.listenPort(port)
		if err == nil {
			return s, nil
		}
		p.free = append(p.free, port)
	}
	return nil, errNoPort
}

func (p *PortPool) listenPort(port usedPort) (*stream, error) {
	for range 16 { // several tries: if the system chooses the port, the next one may be in use
		s := &stream{ports: p, previousSSRC: port.ssrc}
		data, err := net.ListenPacket("udp", net.JoinHostPort(p.address, fmt.Sprint(port.number)))
		if err != nil {
			return nil, err
		}
		s.conn, s.port = data.(*net.UDPConn), data.LocalAddr().(*net.UDPAddr).Port
		control, err := net.ListenPacket("udp", net.JoinHostPort(p.address, fmt.Sprint(s.port+1)))
		if err == nil {
			s.control = control.(*net.UDPConn)
			s.ssrc = rand.Uint32()
			s.reading.Go(func() { // if the reader panics, the closed socket ends the call
				crash.Run(nil, "sip media", func(error) { _ = s.conn.Close() }, s.readRTCP)
			})
			return s, nil
		}
		s.conn.Close()
		if port.number != 0 {
			return nil, err
		}
	}
	return nil, errNoPort
}

// stream is the network side of a call's audio: RTP or SRTP with one peer. One goroutine reads, and one writes.
// sendDigits may write at the same time.
type stream struct {
	ports           *PortPool
	conn, control   *net.UDPConn
	port            int
	previousSSRC    uint32                             // the peer's SSRC in the previous call on this port
	ssrc            uint32                             // our SSRC
	onLoss          atomic.Pointer[func(lost, of int)] // called with the packet loss that the peer reports; nil until set
	reading         sync.WaitGroup
	outgoingQuality rtc.Quality // quality of our packets, as reported by the peer; used only by the goroutine that reads reports
	keyReader       digitReader // finds digits in received packets; outlasts the reading goroutine, because a key may be held

	mu    sync.Mutex
	terms *agreement
	nat   bool // the peer's packets may come from another address than described
	sourceTracker
	codecChange
	in, out  *srtp.Context // nil without SRTP
	incoming rtp.Header    // header of the packet being read
	header   rtp.Header    // header of the packet being sent
	plain    [12 + media.MaxPacketBytes]byte
	raw      []byte // the encrypted packet
	sent     struct {
		packets, bytes uint32
		at             time.Time // time of the newest packet
		voice          time.Time // time of the newest packet that was not a digit
	}
	sendingDigits bool // digits are being sent, so audio is dropped

	lastPacket atomic.Int64  // time of the last packet: Unix time in ns
	mayBeGone  atomic.Bool   // the caller may be gone: RTCP reports alone do not prove that they are still there
	remoteSSRC atomic.Uint32 // the peer's SSRC
}

// applyAgreement makes the stream use an agreement. If the agreement has another address of the peer, the stream
// detects the source of the peer's packets again.
func (s *stream) applyAgreement(to *agreement, nat bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var in, out *srtp.Context
	var err error
	if to.in != nil {
		if in, err = newContext(to.in, srtp.SRTPReplayProtection(64), srtp.SRTCPReplayProtection(64)); err == nil {
			out, err = newContext(to.out)
		}
		if err != nil {
			return fmt.Errorf("SRTP: %w", err)
		}
	}
	before := s.terms
	if before == nil || !sameKey(before.in, to.in) {
		s.in = in
	}
	if before == nil || !sameKey(before.out, to.out) {
		s.out = out
	}
	if before == nil || before.remote != to.remote {
		s.latched = netip.AddrPort{}
	}
	if before == nil || before.isOnHold() && !to.isOnHold() {
		s.resetSilence()
		if s.latched.IsValid() { // the pause during the hold does not count as silence
			s.latchedAt = time.Now()
		}
	}
	s.terms, s.nat, s.changed = to, nat, 0
	return nil
}

func newContext(c *crypto, o ...srtp.ContextOption) (*srtp.Context, error) {
	keys, _ := keyLengths(c.profile)
	return srtp.CreateContext(c.key[:keys], c.key[keys:], c.profile, o...)
}

func sameKey(a, b *crypto) bool {
	return a == b || a != nil && b != nil && slices.Equal(a.key, b.key) && a.suite == b.suite
}

// Read implements [rtpaudio.Reader]: it returns the peer's next packet, decrypted.
func (s *stream) Read(b []byte) (int, error) {
	for {
		n, from, err := s.conn.ReadFromUDPAddrPort(b)
		if err != nil {
			return 0, err
		}
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		if n, ok := s.acceptPacket(b[:n], from); ok {
			return n, nil
		}
	}
}

// rtpVersion is the RTP version, in the first two bits of a packet (RFC 3550, section 5.1).
const rtpVersion = 2

// acceptPacket reports whether a packet belongs to the peer, and decrypts it in place. n is its new length.
func (s *stream) acceptPacket(packet []byte, from netip.AddrPort) (n int, ok bool) {
	if len(packet) < 12 || packet[0]>>6 != rtpVersion || packet[1]&0x7f >= 72 && packet[1]&0x7f <= 76 { // RTCP: RFC 5761, section 4
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &s.incoming
	if _, err := h.Unmarshal(packet); s.terms == nil || err != nil || s.previousSSRC != 0 && h.SSRC == s.previousSSRC {
		return 0, false
	}
	now := time.Now()
	if !s.acceptSource(from, now, h, s.terms, s.nat, s.remoteSSRC.Load()) {
		return 0, false
	}
	n = len(packet)
	if s.in != nil {
		clear, err := s.decryptPacket(packet, from, now)
		if err != nil {
			return 0, false
		}
		n = copy(packet, clear)
	}
	s.latched, s.latchedAt, s.sequence = from, now, h.SequenceNumber // only for a verified packet (RFC 4961)
	s.lastPacket.Store(now.UnixNano())
	s.remoteSSRC.Store(h.SSRC)
	s.detectCodecSwitch(h.PayloadType)
	return n, true
}

// decryptPacket decrypts a packet, in place if possible. The caller must hold mu.
func (s *stream) decryptPacket(packet []byte, from netip.AddrPort, now time.Time) ([]byte, error) {
	if s.latchedAt.IsZero() || now.Sub(s.latchedAt) < sourceSilence {
		return s.in.DecryptRTP(packet[:0], packet, &s.incoming)
	}
	clear, err := s.in.DecryptRTP(nil, packet, &s.incoming) // not in place: a failed attempt would overwrite the packet
	if err == nil || from.Addr() != s.latched.Addr() && from.Addr() != s.terms.remote.Addr() {
		return clear, err
	}
	// A media server that takes over may restart its sequence numbers. The old roll-over counter is then wrong (RFC
	// 3711, section 3.3.1), so a new SRTP context is needed. It is created only after a silence and for a known host,
	// because otherwise an attacker could replay packets.
	in, err := newContext(s.terms.in, srtp.SRTPReplayProtection(64), srtp.SRTCPReplayProtection(64))
	if err == nil {
		clear, err = in.DecryptRTP(nil, packet, &s.incoming)
	}
	if err == nil {
		s.in = in
	}
	return clear, err
}

// changePackets is the number of consecutive packets in another agreed codec after which we also send in that codec.
const changePackets = 3

// codecChange detects that the peer has switched its codec. The stream's mu guards all fields.
type codecChange struct {
	onCodec func(to *codec) // called with the peer's new codec; must not block; may be nil
	changed int             // number of consecutive packets in another codec
}

// ignoreCodecSwitches makes the stream ignore further switches of the peer's codec.
func (s *stream) ignoreCodecSwitches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onCodec = nil
}

// detectCodecSwitch counts packets in another agreed codec, and calls onCodec after changePackets. The caller must hold mu.
func (s *stream) detectCodecSwitch(number uint8) {
	switch to := s.terms.codecOf(number); {
	case to == s.terms.codec:
		s.changed = 0
	case to != nil && s.onCodec != nil:
		if s.changed++; s.changed == changePackets {
			s.onCodec(to)
		}
	}
}

// SetReadDeadline implements [rtpaudio.Reader].
func (s *stream) SetReadDeadline(t time.Time) error { return s.conn.SetReadDeadline(t) }

// stopReadsOnDone makes reads fail once ctx is done. It sets the read deadline and does not close the socket. Calling
// stop ends this.
func (s *stream) stopReadsOnDone(ctx context.Context) (stop func() bool) {
	_ = s.SetReadDeadline(time.Time{}) // an error is ignored: reads from a closed socket fail anyway
	return context.AfterFunc(ctx, func() { _ = s.SetReadDeadline(time.Unix(1, 0)) })
}

// WriteRTP implements [rtpaudio.Writer].
func (s *stream) WriteRTP(p *rtp.Packet) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sendingDigits || s.terms == nil || s.terms.isHeld {
		return nil
	}
	s.sent.voice = time.Now()
	return s.writePacket(p.PayloadType, p.Marker, p.Timestamp, p.Payload)
}

// fillPauses sends one packet per interval while no other packets are sent, until ctx is done. The packets contain
// music, silence or comfort noise. It is needed because some trunks end a call when they receive no packets.
func (s *stream) fillPauses(ctx context.Context, payloadType uint8, interval time.Duration, nextPacket func() []byte) {
	tick := time.NewTicker(media.FrameDuration)
	defer tick.Stop()
	first := min(interval*3/4, 2*media.FrameDuration) // time to wait after a packet that fillPauses has not sent
	for mine := uint32(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.mu.Lock()
		wait := first
		if mine != 0 && mine == s.sent.packets {
			wait = interval * 3 / 4
		}
		if past := time.Since(s.sent.at); !s.sendingDigits && s.terms != nil && !s.terms.isHeld && past > wait {
			at := s.currentTimestamp()
			if past < 2*media.FrameDuration && s.sent.packets > 0 { // in continuous audio, timestamps have no gaps
				at = s.header.Timestamp + uint32(media.Samples(media.FrameDuration, s.terms.codec.media.ClockRate()))
			}
			_ = s.writePacket(payloadType, false, at, nextPacket())
			mine = s.sent.packets
		}
		s.mu.Unlock()
	}
}

// currentTimestamp returns the RTP timestamp for audio that is sent now. The caller must hold mu.
func (s *stream) currentTimestamp() uint32 {
	if s.sent.packets == 0 {
		return s.header.Timestamp
	}
	return s.header.Timestamp + uint32(time.Since(s.sent.at).Seconds()*float64(s.terms.codec.media.ClockRate()))
}

// agreement returns the current agreement.
func (s *stream) agreement() *agreement {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.terms
}

// track maps the sequence numbers and timestamps of another stream's packets to those of this stream.
type track struct {
	ssrc      uint32
	sequence  uint16 // difference that is added to the sequence number of the other stream
	timestamp uint32
	sent      uint32 // number of packets that this stream had sent when the newest one was forwarded
}

// forwardPacket sends a packet of another stream with a payload type of this stream. It keeps the order of the packets
// and the gaps that lost packets leave.
func (s *stream) forwardPacket(t *track, payloadType uint8, p *rtp.Packet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sendingDigits || s.terms == nil || s.terms.isHeld {
		*t = track{}
		return
	}
	marker, newest := p.Marker, s.header
	if t.ssrc != p.SSRC || t.sent != s.sent.packets { // the other stream has begun, or this stream has sent other packets since
		marker = true
		t.ssrc, t.sequence, t.timestamp = p.SSRC, newest.SequenceNumber+1-p.SequenceNumber, s.currentTimestamp()-p.Timestamp
	}
	sequence := p.SequenceNumber + t.sequence
	s.header.SequenceNumber = sequence - 1
	_ = s.writePacket(payloadType, marker, p.Timestamp+t.timestamp, p.Payload)
	if int16(sequence-newest.SequenceNumber) < 0 {
		s.header.SequenceNumber, s.header.Timestamp = newest.SequenceNumber, newest.Timestamp
	}
	t.sent = s.sent.packets
}

const (
	// drainWait is longer than it takes to read a packet from the socket's buffer. maxDrained is more packets than the
	// system buffers.
	drainWait  = 2 * time.Millisecond
	maxDrained = 1024
)

// dropReceived drops the packets that have arrived so far.
func (s *stream) dropReceived() {
	var buf [1500]byte
	for range maxDrained {
		deadline := time.Now().Add(drainWait)
		_ = s.conn.SetReadDeadline(deadline)
		_, _, err := s.conn.ReadFromUDPAddrPort(buf[:])
		if err != nil && time.Since(deadline) < drainWait { // if more time has passed, the process was held up, and packets may be left
			return
		}
	}
}

// voiceEnd is the pause after which the model's voice counts as ended. Packets are sent every 20 ms, but may be delayed
// on a busy machine.
const voiceEnd = 200 * time.Millisecond

// SpokenTimeout limits the wait for the end of the sentence that the model says before a transfer.
const SpokenTimeout = 15 * time.Second

// waitVoiceEnd blocks until the model's voice has ended. It fails if that takes longer than [SpokenTimeout].
func (s *stream) waitVoiceEnd(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, SpokenTimeout)
	defer cancel()
	for {
		s.mu.Lock()
		left := voiceEnd - time.Since(s.sent.voice)
		s.mu.Unlock()
		if left <= 0 {
			return nil
		}
		select {
		case <-time.After(left):
		case <-ctx.Done():
			return errors.New("the voice did not end")
		}
	}
}

// writePacket sends a packet with this payload type. Network errors are ignored, because the peer may be
// reachable again soon. The caller must hold mu.
func (s *stream) writePacket(payloadType uint8, marker bool, timestamp uint32, payload []byte) error {
	to := s.latched
	if !to.IsValid() {
		to = s.terms.remote
	}
	h := &s.header
	h.Version, h.SSRC, h.PayloadType, h.Marker, h.Timestamp = rtpVersion, s.ssrc, payloadType, marker, timestamp
	h.SequenceNumber++
	n, err := h.MarshalTo(s.plain[:])
	if err != nil {
		return err
	}
	raw := append(s.plain[:n], payload...)
	if s.out != nil {
		if s.raw, err = s.out.EncryptRTP(s.raw, raw, h); err != nil {
			return err
		}
		raw = s.raw
	}
	s.sent.packets++
	s.sent.bytes += uint32(len(payload))
	s.sent.at = time.Now()
	_, _ = s.conn.WriteToUDPAddrPort(raw, to)
	return nil
}

// readRTCP reads the peer's RTCP reports until the stream is closed.
func (s *stream) readRTCP() {
	buf := make([]byte, 1500)
	var reports rtpaudio.Reports
	for {
		n, from, err := s.control.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		for _, r := range s.receiveReports(buf[:n], from.Addr().Unmap()) {
			if r.SSRC != s.ssrc {
				continue
			}
			lost, of := reports.AddReport(r)
			if of == 0 {
				continue
			}
			s.outgoingQuality.AddReport(lost, of, r.Jitter, s.agreement().codec.media.ClockRate())
			if onLoss := s.onLoss.Load(); onLoss != nil {
				(*onLoss)(lost, of)
			}
		}
	}
}

// receiveReports decrypts an RTCP packet, and returns the peer's reports on our packets. It also records that the peer
// is still there.
func (s *stream) receiveReports(raw []byte, from netip.Addr) (list []rtcp.ReceptionReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.terms == nil || from != s.terms.remote.Addr() && from != s.latched.Addr() {
		return nil
	}
	if s.in != nil {
		clear, err := s.in.DecryptRTCP(nil, raw, nil)
		if err != nil {
			return nil
		}
		raw = clear
	}
	packets, err := rtcp.Unmarshal(raw)
	if err != nil {
		return nil
	}
	if !s.mayBeGone.Load() {
		s.lastPacket.Store(time.Now().UnixNano()) // a report shows that the peer is there, even if it sends no audio
	}
	for _, p := range packets {
		switch p := p.(type) {
		case *rtcp.ReceiverReport:
			list = append(list, p.Reports...)
		case *rtcp.SenderReport:
			list = append(list, p.Reports...)
		}
	}
	return list
}

// reportEvery is the interval between our RTCP reports: the minimum of RFC 3550, section 6.2. Some trunks require
// reports.
const reportEvery = 5 * time.Second

// sendReport sends an RTCP report on our packets.
func (s *stream) sendReport(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.terms == nil {
		return
	}
	clock := s.terms.codec.media.ClockRate()
	elapsed := uint32(0)
	if s.sent.packets > 0 {
		elapsed = uint32(now.Sub(s.sent.at).Seconds() * float64(clock))
	}
	const since1900 = 2_208_988_800 // the Unix epoch in NTP seconds
	ntp := uint64(now.Unix()+since1900)<<32 | uint64(now.Nanosecond())<<32/uint64(time.Second)
	raw, err := rtcp.Marshal([]rtcp.Packet{
		&rtcp.SenderReport{
			SSRC:        s.ssrc,
			NTPTime:     ntp,
			RTPTime:     s.header.Timestamp + elapsed,
			PacketCount: s.sent.packets,
			OctetCount:  s.sent.bytes,
		},
		&rtcp.SourceDescription{
			Chunks: []rtcp.SourceDescriptionChunk{{Source: s.ssrc, Items: []rtcp.SourceDescriptionItem{{Type: rtcp.SDESCNAME, Text: "voxgate"}}}},
		},
	})
	if err == nil && s.out != nil {
		raw, err = s.out.EncryptRTCP(nil, raw, nil)
	}
	to := s.latched
	if !to.IsValid() {
		to = s.terms.remote
	}
	if err == nil && to.Port() < 65535 {
		_, _ = s.control.WriteToUDPAddrPort(raw, netip.AddrPortFrom(to.Addr(), to.Port()+1))
	}
}

// resetSilence restarts the measurement of the time without packets.
func (s *stream) resetSilence() { s.lastPacket.Store(time.Now().UnixNano()) }

// silentFor returns the time since the last packet.
func (s *stream) silentFor(now time.Time) time.Duration {
	return now.Sub(time.Unix(0, s.lastPacket.Load()))
}

// closePort closes the sockets, and returns the port to the pool.
func (s *stream) closePort() {
	s.conn.Close()
	s.control.Close()
	s.reading.Wait()
	if s.ports.ranged {
		s.ports.mu.Lock()
		s.ports.free = append(s.ports.free, usedPort{s.port, s.remoteSSRC.Load()})
		s.ports.mu.Unlock()
	}
}
