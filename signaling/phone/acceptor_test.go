package phone_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"

	"voxgate/signaling/phone"
)

// fakeListener is a listener with a connection from each of these addresses, or an error for "". After the last it is closed.
type fakeListener struct {
	net.Listener
	from []string
	ends []net.Conn // the other sides of the connections
}

func (f *fakeListener) Accept() (net.Conn, error) {
	if len(f.from) == 0 {
		return nil, net.ErrClosed
	}
	from := f.from[0]
	f.from = f.from[1:]
	if from == "" {
		return nil, syscall.EMFILE
	}
	ours, theirs := net.Pipe()
	f.ends = append(f.ends, theirs)
	return fakeConn{ours, net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 5060))}, nil
}

type fakeConn struct {
	net.Conn
	from net.Addr
}

func (c fakeConn) RemoteAddr() net.Addr { return c.from }

// An accept error does not end the acceptor. Unverified connections need one of a few slots, known addresses need none.
func TestAcceptor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := &fakeListener{from: []string{"", "192.0.2.1", "192.0.2.2", "192.0.2.3", "::ffff:192.0.2.9", "192.0.2.4", "192.0.2.5"}}
		var refused []string
		failures := 0
		a := &phone.Acceptor{
			Listener: list, IsKnown: func(from netip.Addr) bool { return from == netip.MustParseAddr("192.0.2.9") },
			Unverified: make(chan struct{}, 2),
			OnRefused:  func(from net.Addr) { refused = append(refused, from.String()) },
			OnError: func(why error) {
				if failures++; !errors.Is(why, syscall.EMFILE) {
					t.Error(why)
				}
			},
		}
		next := func(want string, isKnown bool) (known func()) {
			t.Helper()
			conn, known, err := a.Next()
			if err != nil {
				t.Fatal(err)
			}
			if got := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap().String(); got != want || (known == nil) != isKnown {
				t.Errorf("%s comes, and not %s; known %v", got, want, known == nil)
			}
			return known
		}
		leave := next("192.0.2.1", false)
		next("192.0.2.2", false)
		next("192.0.2.9", true) // 192.0.2.3 gets no slot
		leave()
		leave() // a second call frees no slot
		next("192.0.2.4", false)
		if _, _, err := a.Next(); !errors.Is(err, net.ErrClosed) { // 192.0.2.5 gets no slot, either
			t.Errorf("the end is %v", err)
		}
		if want := []string{"192.0.2.3:5060", "192.0.2.5:5060"}; failures != 1 || !slices.Equal(refused, want) {
			t.Errorf("%d failures; refused %v", failures, refused)
		}
		if _, err := list.ends[2].Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("a connection that is refused is not closed: %v", err)
		}
	})
}
