//go:build !linux

package bench

import (
	"errors"
	"os/exec"
	"time"
)

var errNoProc = errors.New("CPU time and memory of a process are measured on Linux only")

func dieWithParent(*exec.Cmd) {}

func cpuTime(int) (time.Duration, error) { return 0, errNoProc }

func residentBytes(int) (int64, error) { return 0, errNoProc }

func cpuModel() string { return "" }
