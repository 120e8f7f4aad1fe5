package rtc

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pion/interceptor"
	"github.com/pion/rtcp"
	"github.com/pion/rtp"
)

// wire holds the packets that a peer's interceptors send, and those that they receive.
type wire struct {
	sent [][]byte
	rtcp []byte
}

func (w *wire) Write(h *rtp.Header, payload []byte, _ interceptor.Attributes) (int, error) {
	b, err := h.Marshal()
	w.sent = append(w.sent, append(b, payload...))
	return len(payload), err
}

func (w *wire) Read(b []byte, a interceptor.Attributes) (int, interceptor.Attributes, error) {
	return copy(b, w.rtcp), a, nil
}

// fakePeer is a resender between the two.
type fakePeer struct {
	t    *testing.T
	wire *wire
	to   interceptor.RTPWriter
	from interceptor.RTCPReader
	next rtp.Header
}

func newFakePeer(t *testing.T, feedback ...interceptor.RTCPFeedback) *fakePeer {
	r, err := resenders{}.NewInterceptor("")
	if err != nil {
		t.Fatal(err)
	}
	l := &fakePeer{t: t, wire: &wire{}, next: rtp.Header{Version: 2, SSRC: 7, SequenceNumber: 65500}}
	l.to = r.BindLocalStream(&interceptor.StreamInfo{SSRC: 7, RTCPFeedback: feedback}, l.wire)
	l.from = r.BindRTCPReader(l.wire)
	return l
}

// sendPacket sends a packet, with its own transport-cc number, from reused memory.
func (f *fakePeer) sendPacket(n int) {
	f.t.Helper()
	payload := make([]byte, 100)
	for range n {
		f.next.SequenceNumber++
		payload[0] = byte(f.next.SequenceNumber)
		if err := f.next.SetExtension(3, []byte{payload[0], 1}); err != nil {
			f.t.Fatal(err)
		}
		if _, err := f.to.Write(&f.next, payload, nil); err != nil {
			f.t.Fatal(err)
		}
	}
}

// requestPackets requests packets by their distance from the newest, and returns the packets that are sent then.
func (f *fakePeer) requestPackets(ssrc uint32, back ...int) [][]byte {
	f.t.Helper()
	request := &rtcp.TransportLayerNack{MediaSSRC: ssrc}
	for _, n := range back {
		request.Nacks = append(request.Nacks, rtcp.NackPair{PacketID: f.next.SequenceNumber - uint16(n)})
	}
	var err error
	if f.wire.rtcp, err = rtcp.Marshal([]rtcp.Packet{request}); err != nil {
		f.t.Fatal(err)
	}
	before := len(f.wire.sent)
	if n, _, err := f.from.Read(make([]byte, 1500), nil); err != nil || n != len(f.wire.rtcp) {
		f.t.Fatal(n, err)
	}
	return f.wire.sent[before:]
}

// A retransmission is identical to the last bit, and only stored packets are retransmitted, one at a time.
func TestRetransmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakePeer(t, interceptor.RTCPFeedback{Type: "nack"})
		l.sendPacket(100) // across the wrap-around of sequence numbers
		first := func(back int) []byte { return l.wire.sent[99-back] }
		for _, back := range []int{0, 5, nackPackets - 1} {
			if got := l.requestPackets(7, back); len(got) != 1 || !bytes.Equal(got[0], first(back)) {
				t.Errorf("asked for the packet %d ago: %x, want %x", back, got, first(back))
			}
		}
		if got := l.requestPackets(7, nackPackets, 99, -1, -500); len(got) > 0 {
			t.Errorf("sent again what is not there: %x", got)
		}
		if got := l.requestPackets(8, 1, 2, 3); len(got) > 0 {
			t.Errorf("sent again what was asked of somebody else: %x", got)
		}
		if got := l.requestPackets(7, 1, 2, 1, 1, 5, 2, 0); len(got) != 2 {
			t.Errorf("%d packets are sent, want two: the others were just sent", len(got))
		}
		time.Sleep(resendPause)
		if got := l.requestPackets(7, 5, 5); len(got) != 1 {
			t.Errorf("%d packets are sent that are lost once more", len(got))
		}
	})
}

// A peer that requests everything repeatedly gets a limited number of packets, and is served as before when it stops.
func TestRetransmissionLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakePeer(t, interceptor.RTCPFeedback{Type: "nack"})
		const seconds = 20
		answers := 0
		for range seconds * 50 {
			l.sendPacket(1)
			for range 4 {
				answers += len(l.requestPackets(7, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))
				time.Sleep(5 * time.Millisecond)
			}
		}
		if want := seconds*resendRate + resendBurst; answers < want*9/10 || answers > want+1 {
			t.Errorf("%d answers in %d s, want %d", answers, seconds, want)
		}
		time.Sleep(time.Second)
		if got := l.requestPackets(7, 0, 1, 2); len(got) != 3 {
			t.Errorf("%d packets are sent a second later", len(got))
		}
	})
}
