package gemini

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// tuneSocket sets TCP_USER_TIMEOUT, so that the kernel closes a connection whose peer does not acknowledge data in
// time. The option also limits the time to connect.
func tuneSocket(_, _ string, raw syscall.RawConn) error {
	var err error
	if cerr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
	}); cerr != nil {
		return cerr
	}
	return err
}
