package client_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
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

	"voxgate/internal/testkit"
	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
	"voxgate/media/opus"
)

// probe is a phone that handles RTCP itself, packet by packet, and sees everything that arrives: it has no
// interceptors, and no protection against duplicate packets.
type probe struct {
	*testkit.Phone
	gateway *testkit.Gateway
	mic     *microphone
	red     bool   // the first offer has RED
	micID   uint32 // the microphone's SSRC

	mu      sync.Mutex
	came    []arrived[rtp.Packet]
	reports []arrived[rtcp.SenderReport]    // sender reports about the voice
	blocks  []arrived[rtcp.ReceptionReport] // the gateway's reports about the microphone
	said    uint16                          // number of packets that the microphone has sent or dropped
	sent    map[uint16]rtp.Packet           // packets of speak, by sequence number
	asked   int                             // number of packets for which the gateway has sent a NACK
	number  uint8                           // id of the header extension for transport-cc, or 0
}

type arrived[T any] struct {
	what T
	at   time.Time
}

// microphone is a track whose packets may also have SSRCs other than that of its offer.
type microphone struct {
	*webrtc.TrackLocalStaticRTP
	to atomic.Pointer[webrtc.TrackLocalWriter]
}

func (m *microphone) Bind(c webrtc.TrackLocalContext) (webrtc.RTPCodecParameters, error) {
	to := c.WriteStream()
	m.to.Store(&to)
	return m.TrackLocalStaticRTP.Bind(c)
}

type probeOptions struct {
	channel  bool // the offer also has a section for data channels, and one of an unknown kind
	red      bool
	feedback []webrtc.RTCPFeedback
	numbers  bool // the offer has the header extension for transport-cc
	mute     bool // the voice uses the socket
}

const transportCC = "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01"

func newProbe(t *testing.T, o probeOptions) *probe {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	codecs := &webrtc.MediaEngine{}
	register := func(id webrtc.PayloadType, mime string, rate uint32, channels uint16, fmtp string, feedback []webrtc.RTCPFeedback) {
		check(codecs.RegisterCodec(webrtc.RTPCodecParameters{PayloadType: id, RTPCodecCapability: webrtc.RTPCodecCapability{
			MimeType: mime, ClockRate: rate, Channels: channels, SDPFmtpLine: fmtp, RTCPFeedback: feedback,
		}}, webrtc.RTPCodecTypeAudio))
	}
	register(111, webrtc.MimeTypeOpus, 48000, 2, "minptime=10;useinbandfec=1", o.feedback)
	if o.red {
		register(63, "audio/red", 48000, 2, "111/111", o.feedback)
	}
	register(9, webrtc.MimeTypeG722, 8000, 0, "", nil)
	register(0, webrtc.MimeTypePCMU, 8000, 0, "", nil)
	if o.numbers {
		check(codecs.RegisterHeaderExtension(webrtc.RTPHeaderExtensionCapability{URI: transportCC}, webrtc.RTPCodecTypeAudio))
	}
	g := testkit.StartGateway(t)
	phone := testkit.NewPhone(t, testkit.OpenConversation(t, g, `{}`), testkit.PhoneOptions{NoAudio: true, Codecs: codecs})
	p := &probe{Phone: phone, gateway: g, red: o.red, sent: map[uint16]rtp.Packet{}}
	track, err := webrtc.NewTrackLocalStaticRTP(
		webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeOpus, ClockRate: 48000, Channels: 2},
		"mic",
		"probe",
	)
	check(err)
	p.mic = &microphone{TrackLocalStaticRTP: track}
	if o.channel {
		_, err := p.PC.CreateDataChannel("other", nil)
		check(err)
	}
	direction := webrtc.RTPTransceiverDirectionSendrecv
	if o.mute {
		direction = webrtc.RTPTransceiverDirectionSendonly
	}
	both, err := p.PC.AddTransceiverFromTrack(p.mic, webrtc.RTPTransceiverInit{Direction: direction})
	check(err)
	sender := both.Sender()
	p.micID = uint32(sender.GetParameters().Encodings[0].SSRC)
	p.Done.Go(func() { p.read(sender.ReadRTCP) })
	p.PC.OnTrack(func(track *webrtc.TrackRemote, receiver *webrtc.RTPReceiver) {
		p.mu.Lock()
		for _, e := range receiver.GetParameters().HeaderExtensions {
			if e.URI == transportCC {
				p.number = uint8(e.ID)
			}
		}
		p.mu.Unlock()
		p.Done.Go(func() { p.read(receiver.ReadRTCP) })
		for {
			packet, _, err := track.ReadRTP()
			if err != nil {
				return
			}
			p.mu.Lock()
			p.came = append(p.came, arrived[rtp.Packet]{*packet, time.Now()})
			p.mu.Unlock()
		}
	})
	p.negotiate()
	return p
}

// negotiate sends an offer, and waits until WebRTC is connected.
func (p *probe) negotiate() {
	p.T.Helper()
	p.Negotiate(false)
	p.AwaitConnected()
}

// answered returns the gateway's SDP answer.
func (p *probe) answered() string { return p.PC.RemoteDescription().SDP }

// read stores the reports that the function from returns, and retransmits packets of speak for which the gateway sends
// a NACK. It blocks until that function fails.
func (p *probe) read(from func() ([]rtcp.Packet, interceptor.Attributes, error)) {
	for {
		packets, _, err := from()
		if err != nil {
			return
		}
		now := time.Now()
		p.mu.Lock()
		for _, packet := range packets {
			var blocks []rtcp.ReceptionReport
			switch packet := packet.(type) {
			case *rtcp.SenderReport:
				p.reports = append(p.reports, arrived[rtcp.SenderReport]{*packet, now})
				blocks = packet.Reports
			case *rtcp.ReceiverReport:
				blocks = packet.Reports
			case *rtcp.TransportLayerNack:
				for _, pair := range packet.Nacks {
					for _, seq := range pair.PacketList() {
						p.asked++
						if lost, ok := p.sent[seq]; ok {
							(*p.mic.to.Load()).WriteRTP(&lost.Header, lost.Payload)
						}
					}
				}
			}
			for _, b := range blocks {
				if b.SSRC == p.micID {
					p.blocks = append(p.blocks, arrived[rtcp.ReceptionReport]{b, now})
				}
			}
		}
		p.mu.Unlock()
	}
}

func (p *probe) packets() []arrived[rtp.Packet] {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.came)
}

// rests waits until no packet of the voice has arrived for 150 ms, and returns all packets so far.
func (p *probe) rests() []arrived[rtp.Packet] {
	p.T.Helper()
	var all []arrived[rtp.Packet]
	testkit.Eventually(p.T, "voice, and then none", func() bool {
		all = p.packets()
		return len(all) > 0 && time.Since(all[len(all)-1].at) > 150*time.Millisecond
	})
	return all
}

// repeated makes the model answer once more. It returns the packets that arrive meanwhile with a sequence number of a
// packet in before.
func (p *probe) repeated(before []arrived[rtp.Packet]) (packets []rtp.Packet) {
	p.T.Helper()
	p.Client.AskText("and")
	for _, a := range p.packets()[len(before):] {
		if slices.ContainsFunc(before, func(b arrived[rtp.Packet]) bool { return b.what.SequenceNumber == a.what.SequenceNumber }) {
			packets = append(packets, a.what)
		}
	}
	return packets
}

func (p *probe) write(packets ...rtcp.Packet) {
	p.T.Helper()
	if err := p.PC.WriteRTCP(packets); err != nil {
		p.T.Fatal(err)
	}
}

// A sender may change to another SSRC than that of its offer, and return to the first one: its audio is received all
// the time.
func TestAnotherSSRCIsHeard(t *testing.T) {
	t.Parallel()
	for _, channel := range []bool{false, true} {
		t.Run(fmt.Sprintf("channel %v", channel), func(t *testing.T) {
			t.Parallel()
			p := newProbe(t, probeOptions{channel: channel})
			for _, ssrc := range []uint32{p.micID, p.micID + 1, p.micID} {
				at := len(p.Client.Messages())
				p.speak(ssrc, testkit.MakeSentence(440, time.Second, 48000), media.FrameDuration, nil)
				p.Client.AwaitMatch(at, "USER_SPEAKING", func(m testkit.Message) bool {
					return m.Type == "USER_SPEAKING" && strings.Contains(string(m.Payload), "true")
				})
			}
		})
	}
}

// A peer whose microphone uses more and more SSRCs is closed, and the client and the log get the reason; one that
// uses a few is not.
func TestTooManySSRCs(t *testing.T) {
	t.Parallel()
	p := newProbe(t, probeOptions{})
	use := func(from, n uint32) {
		for i := range n {
			p.speak(from+i, make([]int16, 960), 2*time.Millisecond, nil)
		}
	}
	use(1000, 20)
	p.Client.AskText("and")
	if n := p.Client.CountMessages("GEMINI_ERROR"); n > 0 {
		t.Fatalf("errors: %v", p.Client.Messages())
	}
	use(2000, 500)
	const why = "More than 34 sources (SSRC)"
	if m := p.Client.AwaitError("peer_failed", ""); !strings.Contains(string(m.Payload), why) {
		t.Errorf("the client got %v, want %q", m, why)
	}
	testkit.Eventually(t, "log line of the reason", func() bool { return strings.Contains(p.gateway.Logs.String(), why) })
	checkStillWorks(t, p.Client)
}

// Packets that the peer requests again are retransmitted unchanged, and no others, if it has negotiated NACK. RED,
// wherever the offer has it, is first in the answer, since browsers send the first format. Packets have transport-cc
// numbers if that was negotiated.
func TestTheVoiceIsSentAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ red, nack, numbers bool }{
		"Opus": {nack: true, numbers: true}, "RED": {red: true, nack: true, numbers: true}, "nothing negotiated": {red: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := probeOptions{red: c.red, numbers: c.numbers}
			if c.numbers {
				o.feedback = append(o.feedback, webrtc.RTCPFeedback{Type: "transport-cc"})
			}
			if c.nack {
				o.feedback = append(o.feedback, webrtc.RTCPFeedback{Type: "nack"})
			}
			p := newProbe(t, o)
			carrier, offered, answered := uint8(111), " 111 9 0", " 111"
			if c.red {
				carrier, offered, answered = 63, " 111 63 9 0", " 63 111"
			}
			if formats(p.PC.LocalDescription().SDP) != offered || formats(p.answered()) != answered {
				t.Errorf("of%s the answer has%s, want%s", offered, formats(p.answered()), answered)
			}
			if got := strings.Contains(p.answered(), fmt.Sprintf("a=rtcp-fb:%d nack\r\n", carrier)); got != c.nack {
				t.Errorf("NACK in the answer: %v\n%s", got, p.answered())
			}
			p.Client.AskText("again")
			before := p.rests()
			if len(before) < 20 {
				t.Fatalf("%d packets", len(before))
			}
			first, second := before[len(before)-18].what, before[len(before)-9].what
			if first.PayloadType != carrier {
				t.Fatalf("the voice has type %d", first.PayloadType)
			}
			p.checkNumbers(before, c.numbers)
			p.write(&rtcp.TransportLayerNack{
				MediaSSRC: first.SSRC, Nacks: rtcp.NackPairsFromSequenceNumbers([]uint16{first.SequenceNumber, second.SequenceNumber}),
			})
			got := p.repeated(before)
			if !c.nack {
				if len(got) > 0 {
					t.Errorf("%d packets are sent again though NACK was not negotiated", len(got))
				}
				return
			}
			if len(got) != 2 {
				t.Fatalf("%d packets for two that were asked for", len(got))
			}
			for i, want := range []rtp.Packet{first, second} {
				a, b := testkit.Must(want.Marshal()), testkit.Must(got[i].Marshal())
				if !bytes.Equal(a, b) {
					t.Errorf("asked for packet %d again, and got packet %d:\n%x\n%x", want.SequenceNumber, got[i].SequenceNumber, a, b)
				}
			}
		})
	}
}

// checkNumbers checks that packets have consecutive transport-cc numbers, or none at all.
func (p *probe) checkNumbers(packets []arrived[rtp.Packet], negotiated bool) {
	p.T.Helper()
	if got := p.number != 0; got != negotiated {
		p.T.Fatalf("transport-cc in the answer: %v\n%s", got, p.answered())
	}
	var first uint16
	for i, a := range packets {
		if !negotiated {
			if len(a.what.Extensions) > 0 {
				p.T.Fatalf("packet %d has an extension", i)
			}
			continue
		}
		var number rtp.TransportCCExtension
		if err := number.Unmarshal(a.what.GetExtension(p.number)); err != nil {
			p.T.Fatalf("packet %d has no number: %v", i, err)
		}
		if i == 0 {
			first = number.TransportSequence
		}
		if want := a.what.SequenceNumber - packets[0].what.SequenceNumber; number.TransportSequence-first != want {
			p.T.Fatalf("%d packets after the first the number is %d, and was %d", want, number.TransportSequence, first)
		}
	}
}

// The sender reports tell a player the wall-clock time at which to play a packet of the voice, also after a pause. The
// RTP clock continues during pauses.
func TestSenderReportsAreTheVoicesClock(t *testing.T) { // not parallel, because it measures milliseconds
	p, machine := newProbe(t, probeOptions{}), mediatest.MeasureLateness(t)
	// Packets are sent up to a frame before the time of their timestamp. The difference varies between talkspurts.
	const most, mostAfter = 10 * time.Millisecond, media.FrameDuration + 10*time.Millisecond
	var off, offAfter time.Duration
	for range 6 { // a busy machine may delay one packet
		p.Client.AskText("and")
		voice := p.rests()
		before := len(voice)
		var report arrived[rtcp.SenderReport]
		testkit.Eventually(t, "sender report after the voice", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			if len(p.reports) > 0 {
				report = p.reports[len(p.reports)-1]
			}
			return report.at.After(voice[before-1].at)
		})
		p.Client.AskText("and")
		all := p.rests()
		if len(all) <= before {
			t.Fatal("no voice after the pause")
		}
		if report.what.SSRC != all[0].what.SSRC || int(report.what.PacketCount) != before {
			t.Errorf("a report of %d packets of %d, want %d of %d", report.what.PacketCount, report.what.SSRC, before, all[0].what.SSRC)
		}
		wall := wallClock(report.what.NTPTime)
		if late := report.at.Sub(wall); late < -time.Millisecond || late > time.Second && machine.CanJudge(t, time.Second) {
			t.Errorf("a report of %v came at %v", wall, report.at)
		}
		// lag returns the delay of the fastest packet, which is the offset between the clocks.
		lag := func(packets []arrived[rtp.Packet]) time.Duration {
			least := time.Hour
			for _, a := range packets {
				ahead := time.Duration(int32(a.what.Timestamp-report.what.RTPTime)) * time.Second / 48000
				least = min(least, a.at.Sub(wall.Add(ahead)))
			}
			return least
		}
		off, offAfter = lag(all[:before]).Abs(), lag(all[before:]).Abs()
		if off <= most && offAfter <= mostAfter {
			return
		}
	}
	if machine.CanJudge(t, most) {
		t.Errorf("by the sender reports the voice is %v off, and %v after the pause", off, offAfter)
	}
}

// wallClock returns the time of an NTP timestamp: RFC 3550, section 4.
func wallClock(ntp uint64) time.Time {
	return time.Unix(int64(ntp>>32)-2_208_988_800, int64(ntp&0xffffffff*1e9>>32))
}

// From the receiver reports a client learns how its microphone arrives, and the round trip time once it has sent a
// report itself.
func TestReceiverReportsAnswerTheMicrophone(t *testing.T) {
	t.Parallel()
	for _, block := range []bool{false, true} {
		t.Run(fmt.Sprintf("with a block on the voice: %v", block), func(t *testing.T) {
			t.Parallel()
			p, machine := newProbe(t, probeOptions{}), mediatest.MeasureLateness(t)
			p.Client.AskText("and") // so that there is a voice that our report covers
			voice := p.rests()[0].what.SSRC
			done, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				tick := time.NewTicker(20 * time.Millisecond)
				defer tick.Stop()
				for i := uint16(1); ; i++ {
					select {
					case <-tick.C:
					case <-done:
						return
					}
					if i%10 != 0 { // is lost
						p.mic.WriteRTP(
							&rtp.Packet{Header: rtp.Header{Version: 2, SequenceNumber: 100 + i, Timestamp: uint32(i) * 960}, Payload: []byte{0xf8, 0xff, 0xfe}},
						)
					}
				}
			}()
			defer func() { close(done); <-stopped }()
			blocks := func() []arrived[rtcp.ReceptionReport] {
				p.mu.Lock()
				defer p.mu.Unlock()
				return slices.Clone(p.blocks)
			}
			testkit.Eventually(t, "receiver report on 30 packets", func() bool {
				b := blocks()
				return len(b) > 0 && b[len(b)-1].what.LastSequenceNumber >= 130
			})
			first := blocks()[0].what
			if first.LastSenderReport != 0 || first.Delay != 0 {
				t.Errorf("the client has sent no report, and this one is answered: %+v", first)
			}
			sent := time.Now()
			stamp := uint64(sent.Unix()+2_208_988_800)<<32 | uint64(sent.Nanosecond())<<32/1e9
			ours := &rtcp.SenderReport{SSRC: p.micID, NTPTime: stamp, RTPTime: 48000}
			if block {
				ours.Reports = []rtcp.ReceptionReport{{SSRC: voice}}
			}
			p.write(ours)
			from := len(blocks())
			var got []arrived[rtcp.ReceptionReport]
			testkit.Eventually(t, "answer to our report", func() bool {
				got = slices.DeleteFunc(blocks()[from:], func(b arrived[rtcp.ReceptionReport]) bool { return b.what.LastSenderReport == 0 })
				return len(got) > 0 || len(blocks()) > from+2
			})
			if len(got) == 0 {
				t.Fatalf("three reports do not answer ours: %+v", blocks()[from:])
			}
			b := got[0]
			if want := uint32(stamp >> 16); b.what.LastSenderReport != want {
				t.Errorf("LSR %x, want %x", b.what.LastSenderReport, want)
			}
			delay := time.Duration(b.what.Delay) * time.Second / 65536
			if trip := b.at.Sub(sent) - delay; trip < -time.Millisecond || trip > time.Second && machine.CanJudge(t, time.Second) {
				t.Errorf("answered after %v, of which it says it lay there %v", b.at.Sub(sent), delay)
			}
			if lost, of := b.what.TotalLost, b.what.LastSequenceNumber-100; of < 20 || lost < of/10-1 || lost > of/10+1 {
				t.Errorf("%d of %d packets are said to be lost, a tenth is", lost, of)
			}
		})
	}
}

// formats returns the payload types of the audio section, in order.
func formats(sdp string) string {
	for line := range strings.Lines(sdp) {
		if rest, ok := strings.CutPrefix(line, "m=audio "); ok {
			_, list, _ := strings.Cut(rest, "SAVPF")
			return strings.TrimRight(list, "\r\n")
		}
	}
	return " nothing"
}

// For a browser that sends transport-cc the voice gets FEC when packets are lost, but not permanently.
func TestTransportCCReportsAreHeeded(t *testing.T) {
	t.Parallel()
	p := newProbe(t, probeOptions{numbers: true, feedback: []webrtc.RTCPFeedback{{Type: "transport-cc"}}})
	robust := func() bool { // SILK or hybrid: RFC 6716, section 3.1
		t.Helper()
		p.Client.AskText("again")
		all := p.rests()
		return all[len(all)-1].what.Payload[0]>>3 < 16
	}
	if robust() {
		t.Fatal("the voice is robust on a clean path")
	}
	base, sequence := uint16(65500), uint8(0)
	report := func(lost uint16) {
		t.Helper()
		const of = 60
		cc := &rtcp.TransportLayerCC{
			MediaSSRC: p.packets()[0].what.SSRC, BaseSequenceNumber: base, PacketStatusCount: of, ReferenceTime: 1, FbPktCount: sequence,
			PacketChunks: []rtcp.PacketStatusChunk{
				&rtcp.RunLengthChunk{PacketStatusSymbol: rtcp.TypeTCCPacketReceivedSmallDelta, RunLength: 20},
				&rtcp.RunLengthChunk{PacketStatusSymbol: rtcp.TypeTCCPacketNotReceived, RunLength: lost},
				&rtcp.RunLengthChunk{PacketStatusSymbol: rtcp.TypeTCCPacketReceivedSmallDelta, RunLength: of - 20 - lost},
			},
		}
		if lost == 0 {
			cc.PacketChunks = []rtcp.PacketStatusChunk{&rtcp.RunLengthChunk{PacketStatusSymbol: rtcp.TypeTCCPacketReceivedSmallDelta, RunLength: of}}
		}
		for range of - lost {
			cc.RecvDeltas = append(cc.RecvDeltas, &rtcp.RecvDelta{Type: rtcp.TypeTCCPacketReceivedSmallDelta, Delta: 20_000})
		}
		size := cc.MarshalSize()
		cc.Header = rtcp.Header{
			Count: rtcp.FormatTCC, Type: rtcp.TypeTransportSpecificFeedback, Length: uint16(size/4 - 1),
			Padding: 20+2*len(cc.PacketChunks)+len(cc.RecvDeltas) != size,
		}
		base += of
		sequence++
		p.write(cc)
	}
	report(6)
	testkit.Eventually(t, "robust voice", robust)
	for range 3 {
		report(0)
	}
	testkit.Eventually(t, "the voice as before", func() bool { return !robust() })
}

// speak sends audio with an SSRC, one packet per interval, with RED if that was offered. It leaves out packets for which
// drop returns true. Sequence numbers continue from one call to the next. The result late is the longest delay of a
// packet, because a busy machine may delay packets more than any network.
func (p *probe) speak(ssrc uint32, pcm []int16, interval time.Duration, drop func(packet int) bool) (late time.Duration) {
	p.T.Helper()
	encoder, err := opus.NewEncoder(48000)
	if err != nil {
		p.T.Fatal(err)
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	buf := make([]byte, 1500)
	var last []byte
	var began time.Time
	for i := 0; len(pcm) >= 960; i++ {
		n, err := encoder.Encode(pcm[:960], buf)
		if err != nil {
			p.T.Fatal(err)
		}
		pcm = pcm[960:]
		packet := rtp.Packet{
			Header:  rtp.Header{Version: 2, PayloadType: 111, SSRC: ssrc, SequenceNumber: 65500 + p.said, Timestamp: uint32(p.said) * 960},
			Payload: slices.Clone(buf[:n]),
		}
		p.said++
		if p.red {
			var header []byte
			if last != nil {
				header = binary.BigEndian.AppendUint32(nil, 1<<31|111<<24|960<<10|uint32(len(last)))
			}
			packet.PayloadType, packet.Payload, last = 63, slices.Concat(header, []byte{111}, last, packet.Payload), packet.Payload
		}
		p.mu.Lock()
		p.sent[packet.SequenceNumber] = packet
		p.mu.Unlock()
		<-tick.C
		if i == 0 {
			began = time.Now()
		}
		late = max(late, time.Since(began)-time.Duration(i)*interval)
		if drop == nil || !drop(i) {
			(*p.mic.to.Load()).WriteRTP(&packet.Header, packet.Payload)
		}
	}
	return late
}
