package network

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"voxgate/gateway/bench/harness"
	"voxgate/gateway/bench/impair"
	"voxgate/gateway/bench/model"
	"voxgate/gateway/bench/speech"
)

// shortSpan is that of the floors: long enough for some 300 voiced blocks.
var shortSpan = span{settle: time.Second, clean: 2 * time.Second, bad: 7 * time.Second, after: backTime + 2*time.Second}

// What times may be. A loaded machine adds its own lateness, which the person's microphone shows.
const (
	recoveryFloor = 300 * time.Millisecond
	backFloor     = 10 * time.Millisecond
)

// tooLate is how late the microphone's packets may be, at the 99th percentile, for anything to be said about the gateway.
const tooLate = 100 * time.Millisecond

// TestFloors makes three calls over bad networks in real time, side by side. `gateway bench -impair` makes all. What one seed
// shows another must show, too: a machine with other work loses packets of its own, but not in each minute.
func TestFloors(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "gateway") // without the race detector: what is measured is not its cost
	if out, err := exec.Command("go", "build", "-o", binary, "voxgate/gateway").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	m, gateway, err := model.Start(t.Context(), binary)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	defer gateway.Stop()
	floors := map[string]float64{"5 % lost": 0.98, "20 % lost": 0.9, "nothing passes for 2 s": 0.98}
	chosen := slices.DeleteFunc(slices.Clone(conditions), func(c condition) bool { return floors[c.name] == 0 })
	const seeds = 2
	for seed := uint64(1); ; seed++ {
		calls, err := callAll(t.Context(), chosen, gateway, m, seed, shortSpan, t.Logf)
		if err != nil {
			t.Fatalf("%v\n%s", err, gateway.Log())
		}
		var late time.Duration
		for _, c := range calls {
			late = max(late, harness.Quantile(c.late, 0.99))
		}
		faults := faultsOf(t, chosen, calls, floors)
		if len(faults) == 0 {
			return
		}
		if seed < seeds {
			t.Logf("seed %d: %s", seed, strings.Join(faults, "; "))
			continue
		}
		if late >= tooLate {
			t.Skipf("this machine is too busy for calls in real time: packets were sent %v late", late)
		}
		for _, f := range faults {
			t.Error(f)
		}
		return
	}
}

// faultsOf says what calls show that is below the floors.
func faultsOf(t *testing.T, chosen []condition, calls []*call, floors map[string]float64) []string {
	var faults []string
	fault := func(format string, a ...any) { faults = append(faults, fmt.Sprintf(format, a...)) }
	for i, c := range chosen {
		if !calls[i].copies {
			fault("%s: no copies were negotiated", c.name)
		}
		load := 2 * harness.Quantile(calls[i].late, 0.99)
		up, down := calls[i].results()
		for way, got := range map[string]measured{"to the model": up, "to the person": down} {
			t.Logf("%s, %s: %.1f %% of %d blocks, %s; again after %s; packets sent late by %s",
				c.name, way, 100*got.share, got.blocks, got.delays(), harness.Milliseconds(got.recovery), harness.Milliseconds(load/2))
			if got.blocks < 150 {
				fault("%s, %s: only %d blocks were said", c.name, way, got.blocks)
			}
			if got.share < floors[c.name] {
				fault("%s, %s: %.1f %% of the speech arrive, want %.0f %%", c.name, way, 100*got.share, 100*floors[c.name])
			}
			if c.blackout > 0 && got.recovery > recoveryFloor+load {
				fault("%s, %s: a voice again after %v", c.name, way, got.recovery)
			}
			if got.back > backFloor+load {
				fault("%s, %s: the delay is still %v longer, %v after the end", c.name, way, got.back, backTime)
			}
		}
	}
	return faults
}

func TestWrite(t *testing.T) {
	var b bytes.Buffer
	chosen := []condition{{name: "bad", profile: impair.Profile{Loss: 0.5}}}
	if err := write(&b, time.Now(), Options{Command: "gateway bench -impair", Seed: 7}, chosen, []*call{nil}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"seed 7", "| bad | not measured |"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
}

func TestRecovery(t *testing.T) {
	from := time.Now()
	at := func(spoken, delay int, present bool) speech.Verdict {
		return speech.Verdict{Spoken: from.Add(time.Duration(spoken) * time.Millisecond), Present: present, Delay: time.Duration(delay) * time.Millisecond}
	}
	for want, all := range map[time.Duration][]speech.Verdict{
		30 * time.Millisecond: {at(-100, 30, true), at(-80, 0, false), at(0, 30, true), at(20, 30, true)},
		31 * time.Millisecond: {at(0, 0, false), at(100, 0, false), at(120, -89, true)}, // 31 ms after the first word
		32 * time.Millisecond: {at(-20, 52, true), at(0, 40, true)},                     // of a word from before
		time.Hour:             {at(-100, 30, true), at(0, 0, false)},
	} {
		if got := recovery(all, from); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

// Of a call in which nothing comes back after the end, nobody may say that its delay is what it was.
func TestWhatNeverComesBackIsLate(t *testing.T) {
	now := time.Now()
	c := &call{condition: &condition{}, span: shortSpan, begin: now, end: now.Add(shortSpan.bad)}
	var all []speech.Verdict
	for i := range 600 {
		at := now.Add(time.Duration(i-100) * 20 * time.Millisecond)
		all = append(all, speech.Verdict{Spoken: at, Present: at.Before(c.end), Delay: 30 * time.Millisecond})
	}
	if m := c.measure(all); m.share != 1 || m.back < time.Second {
		t.Errorf("%.2f of it heard, and back after %v", m.share, m.back)
	}
}
