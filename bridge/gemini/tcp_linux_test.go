package gemini_test

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"voxgate/bridge/gemini"
)

// The end of the other side is noticed within ten seconds, whether something is sent or not.
func TestDeadPeersAreNoticed(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := gemini.TCPDialer.DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	option := func(level, name int) (value int) {
		t.Helper()
		if cerr := raw.Control(func(fd uintptr) { value, err = unix.GetsockoptInt(int(fd), level, name) }); cerr != nil || err != nil {
			t.Fatal(cerr, err)
		}
		return value
	}
	if ms := option(unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT); ms != 8000 {
		t.Errorf("what is sent may be without acknowledgement for %d ms", ms)
	}
	idle, interval, count := option(
		unix.IPPROTO_TCP,
		unix.TCP_KEEPIDLE,
	), option(
		unix.IPPROTO_TCP,
		unix.TCP_KEEPINTVL,
	), option(
		unix.IPPROTO_TCP,
		unix.TCP_KEEPCNT,
	)
	if on := option(unix.SOL_SOCKET, unix.SO_KEEPALIVE); on != 1 || idle+interval*count > 10 {
		t.Errorf("probes %d: after %d s, %d times every %d s", on, idle, count, interval)
	}
}
