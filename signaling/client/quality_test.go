package client_test

import (
	"testing"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/webrtc/v4"

	"voxgate/bridge"
	"voxgate/internal/testkit"
	"voxgate/signaling/rtc"
)

// While a peer is connected, the loss of both directions is known. After its end, the quality of both is reported.
func TestCallQualityIsReported(t *testing.T) {
	t.Parallel()
	got := make(chan rtc.Quality, 10)
	g := testkit.StartGateway(t, func(d *testkit.Endpoints, _ *bridge.Options) { d.RTC.OnQuality(func(q rtc.Quality) { got <- q }) })
	c := testkit.OpenConversation(t, g, `{}`)
	p := testkit.NewPhone(t, c, testkit.PhoneOptions{Codecs: noReports(t)})
	p.Negotiate(false)
	p.AwaitConnected()
	p.CheckAudioBothWays(440)
	voice := uint32(p.PC.GetReceivers()[0].Track().SSRC())
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for n := range uint32(20) { // the last ones may arrive after the close message
		report := rtcp.ReceptionReport{SSRC: voice, LastSequenceNumber: 1000 + 100*n, TotalLost: 10 * n, Jitter: 480}
		if err := p.PC.WriteRTCP([]rtcp.Packet{&rtcp.ReceiverReport{SSRC: 1, Reports: []rtcp.ReceptionReport{report}}}); err != nil {
			t.Fatal(err)
		}
		<-tick.C
	}
	if !testkit.PollUntil(testkit.Patience, func() bool {
		l := g.Host.Sessions()[0].Loss
		return l.Up != nil && *l.Up < 0.1 && l.Down != nil && *l.Down > 0.08 && *l.Down < 0.12
	}) {
		t.Errorf("lost are %+v", g.Host.Sessions()[0].Loss)
	}
	p.Send("DISCONNECT_GEMINI", "")
	c.AwaitEvent("GEMINI_DISCONNECTED")
	c.AwaitCloseCode()
	p.HangUp()
	var up, down rtc.Quality
	for range 2 {
		select {
		case q := <-got:
			if q.Up {
				up = q
			} else {
				down = q
			}
		case <-time.After(testkit.Patience):
			t.Fatal("nothing is reported")
		}
	}
	if up.Packets < 40 || up.LostPackets > up.Packets/10 {
		t.Errorf("up: %+v", up)
	}
	if down.Packets < 500 || down.LostPackets < down.Packets/12 || down.LostPackets > down.Packets/8 || down.Jitter != 10*time.Millisecond {
		t.Errorf("down: %+v", down)
	}
}

// noReports returns a media engine with Pion's codecs; a phone that uses it sends no reports of its own.
func noReports(t *testing.T) *webrtc.MediaEngine {
	t.Helper()
	var codecs webrtc.MediaEngine
	if err := codecs.RegisterDefaultCodecs(); err != nil {
		t.Fatal(err)
	}
	return &codecs
}
