//go:build !linux

package harness

import (
	"context"
	"errors"
	"os/exec"
	"time"
)

var errNoProc = errors.New("CPU time and memory of a process are measured on Linux only")

func dieWithParent(*exec.Cmd) {}

func cpuTime(int) (time.Duration, error) { return 0, errNoProc }

func residentBytes(int) (int64, error) { return 0, errNoProc }

func cpuModel() string { return "" }

// Profiled serves. A profile is written on signals that not every system has.
func Profiled(ctx context.Context, _ string, serve func(context.Context) error) error {
	return serve(ctx)
}

// BeginProfile does nothing here.
func (*Process) BeginProfile() error { return nil }

// EndProfile does nothing here.
func (*Process) EndProfile() error { return nil }

// MachineTimes are told on Linux only.
type MachineTimes struct{}

// ReadMachine fails here.
func ReadMachine() (MachineTimes, error) { return MachineTimes{}, errNoProc }

// Since is never asked here.
func (MachineTimes) Since(MachineTimes) MachineUse { return MachineUse{} }
