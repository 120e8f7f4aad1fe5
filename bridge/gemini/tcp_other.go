//go:build !linux

package gemini

import "syscall"

// tuneSocket does nothing on this system. So only the write deadline detects a dead connection, a few seconds later.
func tuneSocket(_, _ string, _ syscall.RawConn) error { return nil }
