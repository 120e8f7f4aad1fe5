package smartturn

import (
	"syscall"
	"time"
)

// rusageThread is RUSAGE_THREAD of getrusage(2).
const rusageThread = 1

// threadTime returns the CPU time of the calling thread, or 0 if the system does not report it.
func threadTime() time.Duration {
	var r syscall.Rusage
	if syscall.Getrusage(rusageThread, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
