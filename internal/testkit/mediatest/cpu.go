package mediatest

import (
	"syscall"
	"testing"
	"time"
)

// CPUTime returns the CPU time used by this process. Unlike elapsed time, it does not depend on other processes.
func CPUTime(t testing.TB) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
