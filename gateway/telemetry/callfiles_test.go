package telemetry

import (
	"log/slog"
	"os"
	"testing"

	"voxgate/bridge"
)

// A conversation that moves to another gateway has no call file here. A disk that hangs blocks no conversation.
func TestFilesOfCallsThatAreNotWritten(t *testing.T) {
	failed := 0
	c := &callFileWriter{log: slog.New(slog.DiscardHandler), failed: func() { failed++ }, queue: make(chan endReport, 1)}
	r := &endReporter{receivers: []func(endReport){c.enqueue}}
	r.observe("", bridge.SessionEnded{Reason: bridge.ErrMoved})
	if len(c.queue) != 0 {
		t.Error("a conversation that moves has a file")
	}
	for range 3 {
		r.observe("", bridge.SessionEnded{Reason: bridge.ErrGoodbye})
	}
	if failed != 2 {
		t.Errorf("%d failed", failed)
	}
}

// A conversation that outlives the shutdown has no call file, and its late end does not crash the gateway.
func TestACallThatEndsTooLate(t *testing.T) {
	folder := t.TempDir()
	files := newCallFileWriter(folder, func() {}, slog.New(slog.DiscardHandler))
	for _, id := range []string{"A", "B"} {
		files.enqueue(endReport{SessionEnded: bridge.SessionEnded{Info: bridge.Info{ID: id}}})
	}
	if err := files.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadDir(folder)
	if err != nil || len(written) != 2 || !deletableFile.MatchString(written[0].Name()) {
		t.Errorf("%v, %v", written, err)
	}
	files.enqueue(endReport{SessionEnded: bridge.SessionEnded{Info: bridge.Info{ID: "C"}}})
}
