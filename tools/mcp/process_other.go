//go:build !unix

package mcp

import "os/exec"

func ownGroup(*exec.Cmd) {}
func kill(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
