package signaling_test

import (
	"testing"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/webrtc/v4"

	"voxgate/bridge"
	"voxgate/signaling/rtc"
)

// How well the sound came through is told of both directions when a peer is gone.
func TestQualityIsTold(t *testing.T) {
	t.Parallel()
	told := make(chan rtc.Quality, 10)
	c := connect(t, newGateway(t, func(d *doors, _ *bridge.Options) { d.RTC.Observe(func(q rtc.Quality) { told <- q }) }), `{}`)
	p := newPhone(t, c, phoneOptions{codecs: noReports(t)})
	p.offer(false)
	p.connected()
	p.talks(440)
	voice := uint32(p.pc.GetReceivers()[0].Track().SSRC())
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for n := range uint32(20) { // the last ones may come after the goodbye
		report := rtcp.ReceptionReport{SSRC: voice, LastSequenceNumber: 1000 + 100*n, TotalLost: 10 * n, Jitter: 480}
		if err := p.pc.WriteRTCP([]rtcp.Packet{&rtcp.ReceiverReport{SSRC: 1, Reports: []rtcp.ReceptionReport{report}}}); err != nil {
			t.Fatal(err)
		}
		<-tick.C
	}
	p.send("DISCONNECT_GEMINI", "")
	c.expect("GEMINI_DISCONNECTED")
	c.closeCode()
	p.hangUp()
	var up, down rtc.Quality
	for range 2 {
		select {
		case q := <-told:
			if q.Up {
				up = q
			} else {
				down = q
			}
		case <-time.After(patience):
			t.Fatal("nothing is told")
		}
	}
	if up.Packets < 40 || up.Lost > up.Packets/10 {
		t.Errorf("up: %+v", up)
	}
	if down.Packets < 500 || down.Lost < down.Packets/12 || down.Lost > down.Packets/8 || down.Jitter != 10*time.Millisecond {
		t.Errorf("down: %+v", down)
	}
}

// noReports are Pion's codecs; a phone that has them sends no reports of its own.
func noReports(t *testing.T) *webrtc.MediaEngine {
	t.Helper()
	var codecs webrtc.MediaEngine
	if err := codecs.RegisterDefaultCodecs(); err != nil {
		t.Fatal(err)
	}
	return &codecs
}
