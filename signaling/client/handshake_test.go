package client_test

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pion/ice/v4"
	"github.com/pion/webrtc/v4"

	"voxgate/internal/testkit"
	"voxgate/internal/testkit/mediatest"
)

// leak is a socket that drops the first sent datagram of DTLS (RFC 7983, section 7).
type leak struct {
	net.PacketConn
	lost atomic.Pointer[time.Time] // time of the dropped datagram; nil before the drop
}

func (l *leak) WriteTo(b []byte, to net.Addr) (int, error) {
	if now := time.Now(); len(b) > 0 && b[0] >= 20 && b[0] <= 63 && l.lost.CompareAndSwap(nil, &now) {
		return len(b), nil
	}
	return l.PacketConn.WriteTo(b, to)
}

// A lost packet of the DTLS handshake delays the connection by a tenth of a second, not by a second.
func TestALostHandshakeIsResentSoon(t *testing.T) {
	t.Parallel()
	const most = 600 * time.Millisecond
	g, machine := testkit.StartGateway(t), mediatest.MeasureLateness(t)
	var took time.Duration
	for range 3 { // on a busy machine one may take longer
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		l := &leak{PacketConn: conn}
		mux := ice.NewUDPMuxDefault(ice.UDPMuxParams{UDPConn: l})
		t.Cleanup(func() { mux.Close(); conn.Close() })
		p := testkit.NewPhone(t, testkit.OpenConversation(t, g, `{}`), testkit.PhoneOptions{Network: func(s *webrtc.SettingEngine) {
			s.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeUDP4})
			s.SetICEUDPMux(mux)
		}})
		p.Negotiate(false)
		p.AwaitConnected()
		lost := l.lost.Load()
		if lost == nil {
			t.Fatal("nothing was lost: this proves nothing")
		}
		if took = time.Since(*lost); took <= most {
			return
		}
	}
	if machine.CanJudge(t, most) {
		t.Errorf("connected %v after a packet was lost", took)
	}
}
