package harness

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tick is the unit of the times in /proc/PID/stat: USER_HZ, which is 100 on every machine that Go runs on.
const tick = 10 * time.Millisecond

// dieWithParent has the kernel kill the child when we end without having stopped it, as after a panic.
func dieWithParent(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// cpuTime returns the CPU time that a process has used, its own and the kernel's on its behalf.
func cpuTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseStat(string(stat))
}

// parseStat reads utime and stime, fields 14 and 15 of proc_pid_stat(5). Field 2 may hold blanks and ends with a bracket.
func parseStat(stat string) (time.Duration, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("unexpected /proc/PID/stat: %q", stat)
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * tick, err
}

// residentBytes returns how much memory of a process is resident.
func residentBytes(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	value, ok := procField(string(status), "VmRSS")
	if !ok {
		return 0, fmt.Errorf("no VmRSS in /proc/%d/status", pid)
	}
	kB, err := strconv.ParseInt(strings.TrimSuffix(value, " kB"), 10, 64)
	return kB << 10, err
}

// cpuModel names the processor; empty if it is not told.
func cpuModel() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	model, _ := procField(string(info), "model name")
	return model
}

// procField returns the first "name: value" of a text in /proc.
func procField(text, name string) (string, bool) {
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}

// MachineTimes are the times of /proc/stat, in ticks, of all cores together.
type MachineTimes struct{ all, idle, steal uint64 }

// ReadMachine returns the times since the machine was started.
func ReadMachine() (MachineTimes, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return MachineTimes{}, err
	}
	return parseMachine(string(stat))
}

// parseMachine reads the first line: user, nice, system, idle, iowait, irq, softirq, steal. Guests are in user already.
func parseMachine(stat string) (MachineTimes, error) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return MachineTimes{}, fmt.Errorf("unexpected /proc/stat: %q", line)
	}
	var t MachineTimes
	for i, field := range fields[1:9] {
		ticks, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			return t, err
		}
		t.all += ticks
		switch i {
		case 3, 4:
			t.idle += ticks
		case 7:
			t.steal = ticks
		}
	}
	return t, nil
}

// Since returns the shares of the time that has passed.
func (t MachineTimes) Since(before MachineTimes) MachineUse {
	all := float64(max(1, t.all-before.all))
	return MachineUse{Busy: 1 - float64(t.idle-before.idle)/all, Steal: float64(t.steal-before.steal) / all}
}
