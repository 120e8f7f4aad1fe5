package mcp

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/tools"
)

// logOf returns a writer for a child's stderr, and the log of its lines without time and level.
func logOf() (*lines, *strings.Builder) {
	log := &strings.Builder{}
	w := &lines{stream: "stderr"}
	w.log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}}))
	return w, log
}

func TestStderr(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, log := logOf()
		for _, part := range []string{"on", "e\n", "\n\r\n  \n", "two\nthree\n" + strings.Repeat("x", maxLine+1) + "\n", "four"} {
			if n, err := io.WriteString(w, part); n != len(part) || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		}
		w.flushRest()
		const want = "msg=stderr line=one\nmsg=stderr line=two\nmsg=stderr line=three\n" +
			"msg=stderr line=xxx\nmsg=stderr line=x\nmsg=stderr line=four\n"
		if got := strings.Replace(log.String(), strings.Repeat("x", maxLine), "xxx", 1); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// TestStderrFlood: only the first maxLines lines of each second are logged, and then the number of the dropped lines.
func TestStderrFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, log := logOf()
		var want strings.Builder
		for second := range 3 {
			for i := range 3 * maxLines {
				fmt.Fprintf(w, "%d %d\n", second, i)
				if i < maxLines {
					fmt.Fprintf(&want, "msg=stderr line=\"%d %d\"\n", second, i)
				}
			}
			fmt.Fprintf(&want, "msg=\"stderr: lines were left out\" lines=%d\n", 2*maxLines)
			if second < 2 {
				time.Sleep(time.Second)
				synctest.Wait()
			}
		}
		w.flushRest()
		if got := log.String(); got != want.String() {
			t.Errorf("%s, want %s", got, want.String())
		}
	})
}

// TestStderrIsCheap: the cost of a chunk of up to 32 KiB is linear in its size, also with many short lines.
func TestStderrIsCheap(t *testing.T) {
	w := &lines{log: slog.New(slog.DiscardHandler)}
	defer w.flushRest()
	for _, line := range []string{"\n", "x\n"} {
		chunk := bytes.Repeat([]byte(line), 32<<10/len(line))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = w.Write(chunk)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
			t.Errorf("32 KiB of %q took %d KiB of memory", line, used>>10)
		}
	}
}

func TestToolName(t *testing.T) {
	for name, want := range map[string]string{
		"greet": "greet", "greet (structured)": "greet__structured_", "2fa": "_2fa", "grüße/now": "gr__e_now", "a.b:c-d": "a.b:c-d",
		strings.Repeat("x", 200): strings.Repeat("x", 127), "": "_",
	} {
		if got := sanitizeToolName(name); got != want || name != "" && !tools.IsValidName(got) {
			t.Errorf("%q became %q, want %q", name, got, want)
		}
	}
}
