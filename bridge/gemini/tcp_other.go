//go:build !linux

package gemini

import "syscall"

// tuneSocket does nothing on this system. A dead connection is detected only by writeTimeout, a few seconds later than
// with TCP_USER_TIMEOUT.
func tuneSocket(_, _ string, _ syscall.RawConn) error { return nil }
