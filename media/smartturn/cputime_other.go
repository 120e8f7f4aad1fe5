//go:build !linux

package smartturn

import "time"

var start = time.Now()

// threadTime returns the elapsed time in place of the CPU time, which this system does not report. It is never less
// than the CPU time.
func threadTime() time.Duration { return time.Since(start) }
