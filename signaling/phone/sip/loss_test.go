package sip_test

import (
	"net"
	"testing"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/rtp"

	"voxgate/internal/testkit"
)

// Packet loss is known during a call: for our packets from the phone's reports, for the phone's from our count.
func TestPacketLossDuringCall(t *testing.T) {
	t.Parallel()
	o := startGateway(t, config)
	h := startCall(t, o)
	o.sendText("hello")
	h.audio.SetReadDeadline(time.Now().Add(patience))
	var ours rtp.Packet
	buf := make([]byte, 1500)
	n, _, err := h.audio.ReadFrom(buf)
	if err == nil {
		err = ours.Unmarshal(buf[:n])
	}
	if err != nil {
		t.Fatal(err)
	}
	reports := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: h.gateway.(*net.UDPAddr).Port + 1}
	for seq := uint32(0); ; seq++ {
		if seq%5 != 0 {
			h.sendAudioPacket(uint16(seq), 160*seq)
		}
		if seq%50 == 0 {
			heard := rtcp.ReceptionReport{SSRC: ours.SSRC, LastSequenceNumber: 1000 + 2*seq, TotalLost: seq / 5}
			raw, err := rtcp.Marshal([]rtcp.Packet{&rtcp.ReceiverReport{SSRC: 1, Reports: []rtcp.ReceptionReport{heard}}})
			if err == nil {
				_, err = h.audio.WriteTo(raw, reports)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		loss := o.host.Sessions()[0].Loss
		if isNear(loss.Up, 0.2) && isNear(loss.Down, 0.1) {
			return
		}
		if seq > 50*uint32(testkit.Patience/time.Second) {
			t.Fatalf("lost are %+v", loss)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func isNear(share *float64, want float64) bool {
	return share != nil && *share > want-0.03 && *share < want+0.03
}

// sendAudioPacket sends a packet of silence.
func (h *handset) sendAudioPacket(seq uint16, timestamp uint32) {
	h.t.Helper()
	p := rtp.Packet{Header: rtp.Header{Version: 2, SequenceNumber: seq, Timestamp: timestamp, SSRC: 7}, Payload: make([]byte, 160)}
	raw, err := p.Marshal()
	if err == nil {
		_, err = h.audio.WriteTo(raw, h.gateway)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}
