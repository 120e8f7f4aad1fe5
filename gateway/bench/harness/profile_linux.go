package harness

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"sync"
	"syscall"
)

// The signals that begin and end a profile, so that it holds the load alone and not the making of the calls.
const (
	profileBegin = syscall.SIGUSR1
	profileEnd   = syscall.SIGUSR2
)

// Profiled serves, and writes a CPU profile into a file whenever its parent says so, by BeginProfile and EndProfile. The
// gateway itself has no endpoint for profiles: it would be open to whoever reaches it.
func Profiled(ctx context.Context, file string, serve func(context.Context) error) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, profileBegin, profileEnd)
	var writer sync.WaitGroup
	writer.Go(func() { writeProfiles(file, signals) })
	defer writer.Wait()
	defer close(signals)
	defer signal.Stop(signals)
	return serve(ctx)
}

func writeProfiles(file string, signals <-chan os.Signal) {
	defer pprof.StopCPUProfile()
	for s := range signals {
		if s == profileEnd {
			pprof.StopCPUProfile()
			continue
		}
		out, err := os.Create(file)
		if err == nil {
			err = pprof.StartCPUProfile(out)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "profile:", err)
		}
	}
}

// BeginProfile has a process that is [Profiled] begin its profile.
func (p *Process) BeginProfile() error { return p.cmd.Process.Signal(profileBegin) }

// EndProfile has a process that is [Profiled] write its profile.
func (p *Process) EndProfile() error { return p.cmd.Process.Signal(profileEnd) }
