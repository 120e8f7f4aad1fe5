//go:build !linux

package gemini

import "syscall"

// tuneSocket does nothing on this system: a dead connection is detected by the write deadline only, a few seconds later.
func tuneSocket(_, _ string, _ syscall.RawConn) error { return nil }
