package signaling_test

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/pion/ice/v4"
	"github.com/pion/webrtc/v4"
)

// leak is a socket that loses one datagram of DTLS: the nth that comes, or goes.
type leak struct {
	net.PacketConn
	goes bool
	nth  int

	mu   sync.Mutex
	seen int
	lost time.Time // zero: not yet
}

// loses tells whether a datagram of DTLS (RFC 7983, section 7) is the one to be lost.
func (l *leak) loses(goes bool, b []byte) bool {
	if goes != l.goes || len(b) == 0 || b[0] < 20 || b[0] > 63 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen++
	if l.seen != l.nth {
		return false
	}
	l.lost = time.Now()
	return true
}

func (l *leak) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		n, from, err := l.PacketConn.ReadFrom(b)
		if err != nil || !l.loses(false, b[:n]) {
			return n, from, err
		}
	}
}

func (l *leak) WriteTo(b []byte, to net.Addr) (int, error) {
	if l.loses(true, b) {
		return len(b), nil
	}
	return l.PacketConn.WriteTo(b, to)
}

// A packet of the handshake that is lost costs a tenth of a second, and not a whole one.
func TestALostHandshakeIsResentSoon(t *testing.T) {
	t.Parallel()
	const most = 600 * time.Millisecond
	for _, c := range []struct {
		goes bool
		nth  int
	}{{false, 1}, {false, 2}, {false, 3}, {true, 1}, {true, 2}} {
		name := fmt.Sprintf("datagram %d that comes", c.nth)
		if c.goes {
			name = fmt.Sprintf("datagram %d that goes", c.nth)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t)
			var took time.Duration
			for range 3 { // on a busy machine one may take longer
				conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
				if err != nil {
					t.Fatal(err)
				}
				l := &leak{PacketConn: conn, goes: c.goes, nth: c.nth}
				mux := ice.NewUDPMuxDefault(ice.UDPMuxParams{UDPConn: l})
				t.Cleanup(func() { mux.Close(); conn.Close() })
				var settings webrtc.SettingEngine
				settings.SetIncludeLoopbackCandidate(true)
				settings.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeUDP4})
				settings.SetICEUDPMux(mux)
				p := newPhoneWith(t, connect(t, g, `{}`), phoneOptions{}, settings)
				p.offer(false)
				p.connected()
				l.mu.Lock()
				lost := l.lost
				l.mu.Unlock()
				if lost.IsZero() {
					t.Fatal("nothing was lost: this proves nothing")
				}
				if took = time.Since(lost); took <= most {
					return
				}
			}
			t.Errorf("connected %v after a packet was lost", took)
		})
	}
}
