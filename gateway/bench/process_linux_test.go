package bench

import (
	"os"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	got, err := parseStat("42 (a (b) c) S 1 42 42 0 -1 4194560 1033 0 0 0 150 50 0 0 20 0 1 0 100 200 300")
	if err != nil || got != 2*time.Second {
		t.Errorf("%v, %v; want 2s", got, err)
	}
	if _, err := parseStat("42 (a) S"); err == nil {
		t.Error("a short line is accepted")
	}
}

func TestOwnProcess(t *testing.T) {
	if n, err := residentBytes(os.Getpid()); err != nil || n < 1<<20 {
		t.Errorf("%d bytes resident, %v", n, err)
	}
	if _, err := cpuTime(os.Getpid()); err != nil {
		t.Error(err)
	}
}
