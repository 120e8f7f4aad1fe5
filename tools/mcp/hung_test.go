package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"voxgate/tools"
	"voxgate/tools/mcp"
)

// pid returns the process ID of the server's child process.
func pid(t *testing.T, s *mcp.Server) int {
	t.Helper()
	got, err := run(t, t.Context(), s, "process", `{}`)
	var process struct{ PID int }
	if err != nil || json.Unmarshal([]byte(got), &process) != nil || process.PID == 0 {
		t.Fatalf("%s, %v", got, err)
	}
	return process.PID
}

// large is an argument larger than the buffer of a pipe (64 KiB).
var large = `{"x":"` + strings.Repeat("x", 200_000) + `"}`

// TestHungServer: calls of a child that does not read end at their timeouts. After enough unanswered calls the child is
// restarted.
func TestHungServer(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel() // in parallel, because a child may take seconds to end
	s := connect(t, ourselves("newest"))
	first := pid(t, s)
	if err := syscall.Kill(first, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for range 16 {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, tools.ErrTimeout)
		if _, err := run(t, ctx, s, "text", large); !errors.Is(err, tools.ErrTimeout) {
			t.Errorf("%v", err)
		}
		cancel()
	}
	// A call that ends before it is sent does not count as unanswered, so further calls may be needed.
	var second struct{ PID int }
	for range 20 {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second, tools.ErrTimeout)
		got, err := run(t, ctx, s, "process", `{}`)
		cancel()
		if err == nil && json.Unmarshal([]byte(got), &second) == nil {
			break
		}
	}
	if second.PID == 0 || second.PID == first {
		t.Errorf("the process is %d, and was %d", second.PID, first)
	}
}

// TestCloseHungServer: Close ends a child that does not read, and the calls that are blocked by the full pipe.
func TestCloseHungServer(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel() // in parallel, because a child may take seconds to end
	s := connect(t, ourselves("legacy"))
	if err := syscall.Kill(pid(t, s), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, err := run(t, t.Context(), s, "text", large)
		done <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _ = run(t, ctx, s, "text", `{}`)
	s.Close()
	if err := <-done; err == nil {
		t.Error("the call outlived its server")
	}
}
