package bridge

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge/gemini/liveconfig"
	"voxgate/media/record"
)

// stuck simulates a disk that hangs after a file was opened.
type stuck struct {
	open atomic.Bool
	let  chan struct{}
}

func (s *stuck) Write(b []byte) (int, error) {
	if s.open.Load() {
		<-s.let
	}
	return len(b), nil
}

func (s *stuck) Close() error { return nil }

// A hanging disk does not block the loop of a conversation that ends its recording. It delays the shutdown only a little.
func TestAStuckDiskHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHost(Options{Logger: slog.New(slog.DiscardHandler)})
		s := newSession(h, "id", liveconfig.Config{}, SessionRequest{Account: Unlimited}, nil, false)
		disk := &stuck{let: make(chan struct{})}
		f, err := record.New(disk, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		disk.open.Store(true)
		s.recording.file.Store(f)
		time.Sleep(3 * time.Second)
		began := time.Now()
		s.recording.close()
		if took := time.Since(began); took > 0 {
			t.Errorf("the loop waited for %v", took)
		}
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != recordingFlushTime {
			t.Errorf("the shutdown took %v", took)
		}
		close(disk.let)
		h.writing.Wait()
		s.voice.Close()
	})
}

// Without a store, the gateway does not make snapshots.
func TestNoSnapshotsWithoutAStore(t *testing.T) {
	h := NewHost(Options{Logger: slog.New(slog.DiscardHandler)})
	s := newSession(h, "id", liveconfig.Config{}, SessionRequest{Account: Unlimited, Resumable: true}, nil, false)
	made := testing.AllocsPerRun(100, func() {
		s.cluster.markChanged()
		s.cluster.queueSnapshotIfChanged(s.isMovable(), s.buildSnapshot)
	})
	if made > 0 {
		t.Errorf("each took %v allocations", made)
	}
	s.voice.Close()
	if err := h.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}
