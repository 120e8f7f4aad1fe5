package signaling_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pion/interceptor"
	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"

	"voxgate/bridge"
	"voxgate/media"
	"voxgate/media/opus"
)

// modem is a WebRTC client whose network loses packets on the way to the gateway: RTP as it wants it, without interceptors
// that would help.
type modem struct {
	t    *testing.T
	pc   *webrtc.PeerConnection
	mic  *webrtc.TrackLocalStaticRTP
	red  bool
	drop func(packet int) bool

	running sync.WaitGroup
	stop    chan struct{}
	nacked  atomic.Int64 // packets that were asked for again
	again   bool         // and are sent again

	mu     sync.Mutex
	sent   map[uint16]*rtp.Packet
	came   []rtp.Packet // from the gateway
	answer string
}

func newModem(t *testing.T, c *client, red, nack bool, drop func(packet int) bool) *modem {
	t.Helper()
	m := &modem{t: t, red: red, again: nack, drop: drop, stop: make(chan struct{}), sent: map[uint16]*rtp.Packet{}}
	codecs := &webrtc.MediaEngine{}
	opus := webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeOpus, ClockRate: 48000, Channels: 2, SDPFmtpLine: "minptime=10;useinbandfec=1"}
	carrier := opus
	if nack {
		opus.RTCPFeedback = []webrtc.RTCPFeedback{{Type: "nack"}}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if red {
		carrier = webrtc.RTPCodecCapability{MimeType: "audio/red", ClockRate: 48000, Channels: 2, SDPFmtpLine: "96/96"}
		must(codecs.RegisterCodec(webrtc.RTPCodecParameters{RTPCodecCapability: opus, PayloadType: 96}, webrtc.RTPCodecTypeAudio))
		must(codecs.RegisterCodec(webrtc.RTPCodecParameters{RTPCodecCapability: carrier, PayloadType: 97}, webrtc.RTPCodecTypeAudio))
	} else {
		must(codecs.RegisterCodec(webrtc.RTPCodecParameters{RTPCodecCapability: opus, PayloadType: 96}, webrtc.RTPCodecTypeAudio))
	}
	var settings webrtc.SettingEngine
	settings.SetIncludeLoopbackCandidate(true)
	pc, err := webrtc.NewAPI(webrtc.WithSettingEngine(settings), webrtc.WithMediaEngine(codecs), webrtc.WithInterceptorRegistry(&interceptor.Registry{})).
		NewPeerConnection(webrtc.Configuration{})
	must(err)
	m.pc = pc
	m.mic, err = webrtc.NewTrackLocalStaticRTP(carrier, "mic", "modem")
	must(err)
	sender, err := pc.AddTrack(m.mic)
	must(err)
	m.running.Go(func() { m.onRTCP(sender) })
	pc.OnTrack(func(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
		for {
			p, _, err := track.ReadRTP()
			if err != nil {
				return
			}
			m.mu.Lock()
			m.came = append(m.came, *p)
			m.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		close(m.stop)
		pc.GracefulClose()
		m.running.Wait()
	})
	m.connect(c)
	return m
}

// connect offers with all candidates in the offer.
func (m *modem) connect(c *client) {
	m.t.Helper()
	gathered := webrtc.GatheringCompletePromise(m.pc)
	offer, err := m.pc.CreateOffer(nil)
	if err != nil {
		m.t.Fatal(err)
	}
	if err := m.pc.SetLocalDescription(offer); err != nil {
		m.t.Fatal(err)
	}
	<-gathered
	b, err := json.Marshal(map[string]string{"sdp": m.pc.LocalDescription().SDP})
	if err != nil {
		m.t.Fatal(err)
	}
	c.send("WEBRTC_OFFER", string(b))
	var answer struct{ SDP string }
	if err := json.Unmarshal(c.expect("WEBRTC_ANSWER").Payload, &answer); err != nil {
		m.t.Fatal(err)
	}
	m.answer = answer.SDP
	if err := m.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: answer.SDP}); err != nil {
		m.t.Fatal(err)
	}
	eventually(m.t, "connection", func() bool { return m.pc.ConnectionState() == webrtc.PeerConnectionStateConnected })
}

// onRTCP sends again what the gateway asks for.
func (m *modem) onRTCP(sender *webrtc.RTPSender) {
	for {
		packets, _, err := sender.ReadRTCP()
		if err != nil {
			return
		}
		for _, p := range packets {
			nack, ok := p.(*rtcp.TransportLayerNack)
			if !ok {
				continue
			}
			for _, pair := range nack.Nacks {
				for _, seq := range pair.PacketList() {
					m.nacked.Add(1)
					m.mu.Lock()
					lost := m.sent[seq]
					m.mu.Unlock()
					if lost != nil && m.again {
						m.mic.WriteRTP(lost)
					}
				}
			}
		}
	}
}

// speak sends a sound in real time, and returns how late it was at most: on a busy machine, later than any network.
func (m *modem) speak(pcm []int16) (late time.Duration) {
	m.t.Helper()
	encoder, err := opus.NewEncoder(48000)
	if err != nil {
		m.t.Fatal(err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	buf := make([]byte, 1500)
	var last []byte
	var began time.Time
	for i := 0; len(pcm) >= 960; i++ {
		n, err := encoder.Encode(pcm[:960], buf)
		if err != nil {
			m.t.Fatal(err)
		}
		pcm = pcm[960:]
		opus := append([]byte(nil), buf[:n]...)
		p := &rtp.Packet{Header: rtp.Header{Version: 2, SequenceNumber: uint16(65500 + i), Timestamp: uint32(i) * 960}, Payload: opus}
		if m.red {
			p.Payload = nil
			if last != nil {
				p.Payload = binary.BigEndian.AppendUint32(nil, 1<<31|96<<24|960<<10|uint32(len(last)))
			}
			p.Payload = append(append(append(p.Payload, 96), last...), opus...)
			last = opus
		}
		m.mu.Lock()
		m.sent[p.SequenceNumber] = p
		m.mu.Unlock()
		<-tick.C
		if i == 0 {
			began = time.Now()
		}
		late = max(late, time.Since(began)-time.Duration(i)*20*time.Millisecond)
		if !m.drop(i) {
			m.mic.WriteRTP(p)
		}
	}
	return late
}

// packets are those that the gateway has sent.
func (m *modem) packets() []rtp.Packet {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]rtp.Packet(nil), m.came...)
}

// What gets lost on the way here comes as a copy, or is asked for again, and the model hears it whole.
func TestLostSpeechIsRepaired(t *testing.T) {
	t.Parallel()
	alternate := func(packet int) bool { return packet%2 == 1 }
	burst := func(packet int) bool { return packet%25 > 20 }
	for name, c := range map[string]struct {
		red, nack bool
		drop      func(int) bool
	}{
		"RED, every second packet lost":  {true, false, alternate},
		"NACK, every second packet lost": {false, true, alternate},
		"NACK, bursts":                   {false, true, burst},
		"RED and NACK, bursts":           {true, true, burst},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := connect(t, newGateway(t), `{}`)
			m := newModem(t, client, c.red, c.nack, c.drop)
			wants := map[string]bool{"red/48000/2": c.red, "a=rtcp-fb:96 nack": c.nack}
			for text, want := range wants {
				if strings.Contains(m.answer, text) != want {
					t.Errorf("the answer and %s:\n%s", text, m.answer)
				}
			}
			late := m.speak(append(sentence(440, 2*time.Second, 48000), make([]int16, 48000)...))
			client.expect("TURN_COMPLETE")
			// The parrot says what it heard: two seconds of the tone, without a hole.
			var ear []int16
			decoder, err := opus.NewDecoder(24000, "")
			if err != nil {
				t.Fatal(err)
			}
			pcm := make([]int16, 24000*120/1000)
			copies := 0
			for _, p := range m.packets() {
				payload := p.Payload
				if c.red {
					if p.PayloadType != 97 {
						t.Fatalf("a packet of type %d", p.PayloadType)
					}
					skip := 0
					for payload[0]&0x80 != 0 {
						skip += int(binary.BigEndian.Uint32(payload) & 0x3ff)
						payload = payload[4:]
						copies++
					}
					payload = payload[1+skip:]
				}
				n, err := decoder.Decode(payload, pcm)
				if err != nil {
					t.Fatal(err)
				}
				ear = append(ear, pcm[:n]...)
			}
			if c.red && copies < len(m.packets()) {
				t.Errorf("%d copies in %d packets", copies, len(m.packets()))
			}
			said := loud(ear)
			if len(said) < 24000*19/10 || toneShare(said, 440) < 0.5 {
				t.Errorf("the model heard %.2f s of the tone, of which %.2f is the tone", float64(len(said))/24000, toneShare(said, 440))
			}
			holes := 0
			for i := 0; i+480 <= len(said); i += 480 {
				if media.RMS(said[i:i+480]) < 500 {
					holes++
				}
			}
			if holes > 0 && late < 40*time.Millisecond {
				t.Errorf("%d holes of 20 ms, though nothing was sent later than %v", holes, late)
			}
			if asked := m.nacked.Load(); (asked > 0) != (c.nack && (!c.red || name == "RED and NACK, bursts")) {
				t.Errorf("%d packets were asked for again", asked)
			}
		})
	}
}

// A further offer without RED takes it back, for the answer and for the voice; one with it brings it back.
func TestREDMayBeTakenBack(t *testing.T) {
	t.Parallel()
	c := connect(t, newGateway(t), `{}`)
	m := newModem(t, c, true, false, func(int) bool { return false })
	check := func(red bool, payloadType uint8) {
		t.Helper()
		if strings.Contains(m.answer, "red/48000/2") != red {
			t.Errorf("RED in the answer: %v", !red)
		}
		at, before := len(c.all()), len(m.packets())
		c.send("SEND_MESSAGE", typed("Congratulations, my friend."))
		c.wait(at, "TURN_COMPLETE", func(m message) bool { return m.Type == "TURN_COMPLETE" })
		var came []rtp.Packet
		eventually(t, "voice", func() bool {
			came = m.packets()[before:]
			return len(came) >= 20
		})
		if got := came[len(came)-1].PayloadType; got != payloadType {
			t.Errorf("the voice has type %d, want %d", got, payloadType)
		}
	}
	prefer := func(list ...webrtc.RTPCodecParameters) {
		t.Helper()
		if err := m.pc.GetTransceivers()[0].SetCodecPreferences(list); err != nil {
			t.Fatal(err)
		}
		m.connect(c)
	}
	check(true, 97)
	prefer(webrtc.RTPCodecParameters{PayloadType: 96, RTPCodecCapability: webrtc.RTPCodecCapability{
		MimeType: webrtc.MimeTypeOpus, ClockRate: 48000, Channels: 2, SDPFmtpLine: "minptime=10;useinbandfec=1",
	}})
	if strings.Contains(m.pc.LocalDescription().SDP, "red/48000/2") {
		t.Fatal("the offer has RED: this proves nothing")
	}
	check(false, 96)
	prefer()
	check(true, 97)
}

// A client that reports losses gets in-band FEC, and its round trip is told with the latency.
func TestReportsOfLossAreHeeded(t *testing.T) {
	t.Parallel()
	c := connect(t, newGateway(t), `{}`)
	m := newModem(t, c, false, false, func(int) bool { return false })
	robust := func() bool {
		p := m.packets()
		return len(p) > 0 && p[len(p)-1].Payload[0]>>3 < 16 // SILK or hybrid: RFC 6716, section 3.1
	}
	ask := func(text string) {
		t.Helper()
		at := len(c.all())
		c.send("SEND_MESSAGE", `{"parts":[{"text":"`+text+`"}]}`)
		c.wait(at, "TURN_COMPLETE", func(m message) bool { return m.Type == "TURN_COMPLETE" })
	}
	const question = "Congratulations, the international telecommunication infrastructure remains extraordinarily responsive."
	ask(question)
	if robust() {
		t.Fatal("the voice is robust on a clean path")
	}
	report := func(lost uint32) {
		t.Helper()
		p := m.packets()
		last := p[len(p)-1]
		err := m.pc.WriteRTCP([]rtcp.Packet{&rtcp.ReceiverReport{Reports: []rtcp.ReceptionReport{{
			SSRC: last.SSRC, LastSequenceNumber: uint32(last.SequenceNumber) + 1<<16, TotalLost: lost, FractionLost: 25,
			LastSenderReport: ntp(time.Now().Add(-150 * time.Millisecond)), Delay: 65536 / 20,
		}}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	report(0)
	ask(question)
	report(20)
	eventually(t, "robust voice", func() bool { ask("again"); return robust() })
	var latency struct{ ModelMs, GatewayMs, RoundTripMs, TotalMs float64 }
	all := c.all()
	for _, got := range all {
		if got.Type != "TURN_LATENCY" {
			continue
		}
		if err := json.Unmarshal(got.Payload, &latency); err != nil {
			t.Fatal(err)
		}
	}
	if latency.ModelMs <= 0 || latency.GatewayMs <= 0 || latency.RoundTripMs < 100 || latency.RoundTripMs > 400 ||
		latency.TotalMs < latency.ModelMs+latency.GatewayMs+latency.RoundTripMs-1 {
		t.Errorf("latency %+v; 100 ms of round trip were reported", latency)
	}
}

// A NACK of one datagram that names the same packets hundreds of times is not answered hundreds of times: each answer is
// sealed and sent by the process that all conversations share. And each is the same to the last bit as what was sent first.
func TestARequestIsNotAnsweredHundredsOfTimes(t *testing.T) {
	t.Parallel()
	p := newProbe(t, probeOptions{numbers: true, feedback: []webrtc.RTCPFeedback{{Type: "nack"}}})
	p.ask("Congratulations, the international telecommunication infrastructure remains.")
	before := p.rests()
	if len(before) < 40 {
		t.Fatalf("%d packets", len(before))
	}
	last := before[len(before)-1].what
	nack := &rtcp.TransportLayerNack{MediaSSRC: last.SSRC}
	for range 250 {
		nack.Nacks = append(nack.Nacks, rtcp.NackPair{PacketID: last.SequenceNumber - 16, LostPackets: 0xffff})
	}
	p.write(nack)
	again := p.repeated(before)
	if len(again) > 100 {
		t.Errorf("one datagram of 1 KB had %d packets sent", len(again))
	} else if len(again) == 0 {
		t.Error("the NACK was not answered at all: this proves nothing")
	}
	for _, got := range again {
		i := slices.IndexFunc(before, func(a arrived[rtp.Packet]) bool { return a.what.SequenceNumber == got.SequenceNumber })
		if len(got.Header.Extensions) == 0 || !bytes.Equal(must(got.Marshal()), must(before[i].what.Marshal())) {
			t.Errorf("packet %d differs from what was sent first, or has no number", got.SequenceNumber)
		}
	}
}

// A datagram of RTCP that is longer than usual does not end the reading of RTCP for good.
func TestReportsAreReadAfterALongDatagram(t *testing.T) {
	t.Parallel()
	c := connect(t, newGateway(t), `{}`)
	m := newModem(t, c, false, false, func(int) bool { return false })
	ask := func() {
		at := len(c.all())
		c.send("SEND_MESSAGE", `{"parts":[{"text":"Congratulations, the international telecommunication infrastructure remains extraordinarily responsive."}]}`)
		c.wait(at, "TURN_COMPLETE", func(m message) bool { return m.Type == "TURN_COMPLETE" })
	}
	ask()
	ssrc := m.packets()[0].SSRC
	long := &rtcp.TransportLayerNack{MediaSSRC: ssrc}
	for range 250 {
		long.Nacks = append(long.Nacks, rtcp.NackPair{PacketID: 1})
	}
	p := m.packets()
	last := p[len(p)-1]
	report := &rtcp.ReceiverReport{Reports: []rtcp.ReceptionReport{{
		SSRC: last.SSRC, LastSequenceNumber: uint32(last.SequenceNumber),
		LastSenderReport: ntp(time.Now().Add(-150 * time.Millisecond)), Delay: 65536 / 20,
	}}}
	for _, packets := range [][]rtcp.Packet{{long, long}, {report}} {
		if err := m.pc.WriteRTCP(packets); err != nil {
			t.Fatal(err)
		}
	}
	var latency struct{ RoundTripMs float64 }
	eventually(t, "round trip in an answer's latency, from the report after a long datagram", func() bool {
		at := len(c.all())
		c.send("SEND_MESSAGE", `{"parts":[{"text":"again"}]}`)
		got, _ := c.wait(at, "TURN_LATENCY", func(m message) bool { return m.Type == "TURN_LATENCY" })
		if err := json.Unmarshal(got.Payload, &latency); err != nil {
			t.Fatal(err)
		}
		return latency.RoundTripMs >= 90
	})
}

// ntp is the middle of an NTP timestamp: RFC 3550, section 4.
func ntp(t time.Time) uint32 {
	return uint32((uint64(t.Unix())+2_208_988_800)<<16 | uint64(t.Nanosecond())<<16/1e9)
}

// A client without WebRTC is told which chunks are void.
func TestChunksHaveGenerations(t *testing.T) {
	t.Parallel()
	c := connect(t, newGateway(t, func(_ *doors, _ *bridge.Options) {}), `{}`)
	c.send("SEND_MESSAGE", `{"parts":[{"text":"Once upon a time there was a parrot that never stopped talking to its friends."}]}`)
	c.expect("AUDIO_CHUNK")
	at := len(c.all())
	c.send("SEND_MESSAGE", `{"parts":[{"text":"stop"}]}`)
	c.wait(at, "TURN_COMPLETE", func(m message) bool { return m.Type == "TURN_COMPLETE" })
	type payload struct {
		Generation uint32
		Heard      *string
		PlayedMs   *int64
	}
	var before, cut payload
	interrupted := false
	for _, m := range c.all() {
		var p payload
		if m.Type != "AUDIO_CHUNK" && m.Type != "INTERRUPTED" {
			continue
		}
		if err := json.Unmarshal(m.Payload, &p); err != nil {
			t.Fatal(err)
		}
		switch {
		case m.Type == "INTERRUPTED":
			interrupted, cut = true, p
		case !interrupted:
			before = p
		case p.Generation < cut.Generation:
			t.Fatalf("a chunk of generation %d after INTERRUPTED said %d", p.Generation, cut.Generation)
		}
	}
	if !interrupted || cut.Generation <= before.Generation || cut.Heard == nil || cut.PlayedMs == nil {
		t.Errorf("chunks of generation %d, then INTERRUPTED %+v", before.Generation, cut)
	}
}
