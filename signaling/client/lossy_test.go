package client_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"

	"voxgate/internal/testkit"
	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
)

// repairs is the time in which a copy of a lost packet must arrive; after that, silence replaces it. On a machine with
// longer delays the test cannot judge the repair.
const repairs = 200 * time.Millisecond

// A packet that is lost in the uplink arrives as a copy, or is requested again, and the model hears all of it.
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
		"RED and NACK, bursts":           {true, true, burst},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := probeOptions{red: c.red, mute: true}
			if c.nack {
				o.feedback = []webrtc.RTCPFeedback{{Type: "nack"}}
			}
			machine := mediatest.MeasureLateness(t)
			p := newProbe(t, o)
			wants := map[string]bool{"red/48000/2": c.red, "a=rtcp-fb:111 nack": c.nack}
			for text, want := range wants {
				if strings.Contains(p.answered(), text) != want {
					t.Errorf("the answer and %s:\n%s", text, p.answered())
				}
			}
			late := p.speak(p.micID, testkit.MakeSentence(440, 1500*time.Millisecond, 48000), media.FrameDuration, c.drop)
			p.Client.AwaitEvent("TURN_COMPLETE")
			// The model repeats the audio that it has received: 1.5 s of the tone, without a gap.
			said := testkit.TrimSilence(p.Client.ReceivedVoice())
			if (len(said) < 24000*14/10 || testkit.ToneShare(said, 440) < 0.5) && machine.CanJudge(t, repairs) {
				t.Errorf("the model heard %.2f s of the tone, of which %.2f is the tone", float64(len(said))/24000, testkit.ToneShare(said, 440))
			}
			holes := 0
			for i := 0; i+480 <= len(said); i += 480 {
				if media.RMS(said[i:i+480]) < 500 {
					holes++
				}
			}
			// If this machine has sent a packet late, silence in its place is correct.
			if holes > 0 && late < media.FrameDuration && machine.CanJudge(t, repairs) {
				t.Errorf("%d holes of 20 ms, though nothing was sent later than %v", holes, late)
			}
			p.mu.Lock()
			asked := p.asked
			p.mu.Unlock()
			if (asked > 0) != (c.nack && (!c.red || name == "RED and NACK, bursts")) {
				t.Errorf("%d packets were asked for again", asked)
			}
		})
	}
}

// A further offer without RED disables it, for the answer and for the voice; one with RED enables it again.
func TestREDMayBeTakenBack(t *testing.T) {
	t.Parallel()
	p := newProbe(t, probeOptions{red: true})
	check := func(red bool, payloadType uint8) {
		t.Helper()
		if strings.Contains(p.answered(), "red/48000/2") != red {
			t.Errorf("RED in the answer: %v", !red)
		}
		before := len(p.packets())
		p.Client.AskText("Congratulations, my friend.")
		var came []arrived[rtp.Packet]
		testkit.Eventually(t, "voice", func() bool {
			came = p.packets()[before:]
			return len(came) >= 20
		})
		if got := came[len(came)-1].what.PayloadType; got != payloadType {
			t.Errorf("the voice has type %d, want %d", got, payloadType)
		}
	}
	prefer := func(list ...webrtc.RTPCodecParameters) {
		t.Helper()
		if err := p.PC.GetTransceivers()[0].SetCodecPreferences(list); err != nil {
			t.Fatal(err)
		}
		p.negotiate()
	}
	check(true, 63)
	prefer(webrtc.RTPCodecParameters{PayloadType: 111, RTPCodecCapability: webrtc.RTPCodecCapability{
		MimeType: webrtc.MimeTypeOpus, ClockRate: 48000, Channels: 2, SDPFmtpLine: "minptime=10;useinbandfec=1",
	}})
	if strings.Contains(p.PC.LocalDescription().SDP, "red/48000/2") {
		t.Fatal("the offer has RED: this proves nothing")
	}
	check(false, 111)
	prefer()
	check(true, 63)
}

// A client that reports losses gets in-band FEC, and its round trip time is reported with the latency. An RTCP
// datagram that is too long does not end the reading of RTCP.
func TestReportsOfLossAreHeeded(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	p := newProbe(t, probeOptions{})
	robust := func() bool {
		came := p.packets()
		return len(came) > 0 && came[len(came)-1].what.Payload[0]>>3 < 16 // SILK or hybrid: RFC 6716, section 3.1
	}
	const question = "Congratulations, the telecommunication infrastructure is responsive."
	p.Client.AskText(question)
	if robust() {
		t.Fatal("the voice is robust on a clean path")
	}
	report := func(lost uint32) {
		t.Helper()
		came := p.packets()
		last := came[len(came)-1].what
		p.write(&rtcp.ReceiverReport{Reports: []rtcp.ReceptionReport{{
			SSRC: last.SSRC, LastSequenceNumber: uint32(last.SequenceNumber) + 1<<16, TotalLost: lost, FractionLost: 25,
			LastSenderReport: ntp(time.Now().Add(-150 * time.Millisecond)), Delay: 65536 / 20,
		}}})
	}
	long := &rtcp.TransportLayerNack{MediaSSRC: p.packets()[0].what.SSRC}
	for range 250 {
		long.Nacks = append(long.Nacks, rtcp.NackPair{PacketID: 1})
	}
	p.write(long, long)
	report(0)
	p.Client.AskText(question)
	report(20)
	testkit.Eventually(t, "robust voice", func() bool { p.Client.AskText("again"); return robust() })
	all := p.Client.Messages()
	slices.Reverse(all)
	last := slices.IndexFunc(all, func(m testkit.Message) bool { return m.Type == "TURN_LATENCY" })
	var latency struct{ ModelMs, GatewayMs, RoundTripMs, TotalMs float64 }
	if err := json.Unmarshal(all[last].Payload, &latency); err != nil {
		t.Fatal(err)
	}
	if latency.ModelMs <= 0 || latency.GatewayMs <= 0 || latency.RoundTripMs < 100 || latency.RoundTripMs > 400 ||
		latency.TotalMs < latency.ModelMs+latency.GatewayMs+latency.RoundTripMs-1 {
		t.Errorf("latency %+v; 100 ms of round trip were reported", latency)
	}
}

// ntp returns the middle 32 bits of an NTP timestamp, which is the form in report blocks: RFC 3550, section 4.
func ntp(t time.Time) uint32 {
	return uint32((uint64(t.Unix())+2_208_988_800)<<16 | uint64(t.Nanosecond())<<16/1e9)
}
