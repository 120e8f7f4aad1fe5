package mediatest

import (
	"syscall"
	"testing"
	"time"
)

// CPUTime is the processor time that this process has used. What a test judges by it, other processes do not make slower.
func CPUTime(t testing.TB) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
