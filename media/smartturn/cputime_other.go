//go:build !linux

package smartturn

import "time"

var start = time.Now()

// threadTime returns the elapsed time, which is at least the CPU time.
func threadTime() time.Duration { return time.Since(start) }
