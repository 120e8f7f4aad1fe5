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

// pid is the child process of the server.
func pid(t *testing.T, s *mcp.Server) int {
	t.Helper()
	got, err := run(t, t.Context(), s, "process", `{}`)
	var process struct{ PID int }
	if err != nil || json.Unmarshal([]byte(got), &process) != nil || process.PID == 0 {
		t.Fatalf("%s, %v", got, err)
	}
	return process.PID
}

// large is more than a pipe holds (64 KiB).
var large = `{"x":"` + strings.Repeat("x", 200_000) + `"}`

// TestHungServer: a child that does not read holds up no call for longer than its time, and is started again.
func TestHungServer(t *testing.T) {
	t.Parallel() // it is noticed after a second
	for _, kind := range []string{"newest", "legacy"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			o := ourselves(kind)
			var l *logged
			l, o.Logger = newLogged()
			s := connect(t, o)
			first := pid(t, s)
			if err := syscall.Kill(first, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			cancelled, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(tools.ErrCancelled) }) // the pipe is full by then
			if _, err := run(t, cancelled, s, "text", large); !errors.Is(err, tools.ErrCancelled) {
				t.Errorf("%v", err)
			}
			ctx, cancelTimeout := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, tools.ErrTimeout)
			defer cancelTimeout()
			if _, err := run(t, ctx, s, "text", `{}`); !errors.Is(err, tools.ErrTimeout) {
				t.Errorf("%v", err)
			}
			// The next one finds the server hanging, or begins on it and is made again.
			if second := pid(t, s); second == first {
				t.Error("it is the same process")
			}
			l.wait(t, "it does not read its input")
		})
	}
}

// TestSlowServer: a child that reads slowly is not killed, though a call runs out of its time before it is delivered.
func TestSlowServer(t *testing.T) {
	t.Parallel() // it takes seconds
	s := connect(t, ourselves("slow"))
	first := pid(t, s)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, tools.ErrTimeout)
	defer cancel()
	if _, err := run(t, ctx, s, "text", large); !errors.Is(err, tools.ErrTimeout) {
		t.Errorf("%v", err)
	}
	if second := pid(t, s); second != first {
		t.Error("it is another process")
	}
}

// TestCloseHungServer: Close ends a child that does not read, and the calls that are stuck in the pipe to it.
func TestCloseHungServer(t *testing.T) {
	t.Parallel() // a child has seconds to end by itself
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
	_ = s.Close()
	if err := <-done; err == nil {
		t.Error("the call outlived its server")
	}
}
