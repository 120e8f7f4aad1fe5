package harness

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

func TestParseMachine(t *testing.T) {
	before, err := parseMachine("cpu  10 0 10 70 10 0 0 0 0 0\ncpu0 1 2 3\n")
	if err != nil {
		t.Fatal(err)
	}
	after, err := parseMachine("cpu  20 0 30 120 20 0 0 10 5 0\n")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := after.Since(before), (MachineUse{Busy: 0.4, Steal: 0.1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if _, err := parseMachine("intr 1 2 3 4 5 6 7 8 9"); err == nil {
		t.Error("another line is accepted")
	}
}
