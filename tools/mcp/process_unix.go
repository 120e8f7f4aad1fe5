//go:build unix

package mcp

import (
	"os/exec"
	"syscall"
)

func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
func kill(cmd *exec.Cmd)     { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
