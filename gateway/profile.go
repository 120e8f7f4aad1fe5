//go:build cpuprofile

package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"
)

// A gateway built with the tag cpuprofile writes a CPU profile to the file that CPU_PROFILE names, from SIGUSR1 to SIGUSR2:
// so it holds the load alone, and not how the calls were made. The program has no endpoint for profiles, which would be open
// to whoever reaches it. gateway/bench -profile uses this.
func init() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2)
	go func() {
		for s := range signals {
			if s == syscall.SIGUSR2 {
				pprof.StopCPUProfile()
				continue
			}
			file, err := os.Create(os.Getenv("CPU_PROFILE"))
			if err == nil {
				err = pprof.StartCPUProfile(file)
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, "profile:", err)
			}
		}
	}()
}
