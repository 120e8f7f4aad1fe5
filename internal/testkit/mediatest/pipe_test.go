package mediatest

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

const interval = 20 * time.Millisecond // between packets, as in a call

// arrival is a delivered packet: its number and its delay.
type arrival struct {
	packet int
	delay  time.Duration
}

// send passes n packets through a path, in simulated time.
func send(t *testing.T, seed uint64, profile Impairment, n int, during func(i int, p *Path)) []arrival {
	var got []arrival
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		path := NewPath(seed, 0)
		path.SetImpairment(profile)
		start := time.Now()
		pipe := NewPipe(path, func(p Packet) {
			i := int(binary.BigEndian.Uint32(p.Data))
			got = append(got, arrival{i, time.Since(start) - time.Duration(i)*interval})
		})
		go pipe.Run(ctx)
		for i := range n {
			if during != nil {
				during(i, path)
			}
			pipe.Put(binary.BigEndian.AppendUint32(nil, uint32(i)), nil)
			time.Sleep(interval)
		}
		time.Sleep(10 * time.Second)
		cancel()
		synctest.Wait()
	})
	return got
}

func TestPathIsDeterministic(t *testing.T) {
	p := Impairment{
		Delay: 30 * time.Millisecond, Jitter: 100 * time.Millisecond, Overtake: true, Loss: 0.1, Reorder: 0.1, Duplicate: 0.1,
		Burst: Burst{Loss: 0.05, Length: 3},
	}
	a, b, c := send(t, 1, p, 1000, nil), send(t, 1, p, 1000, nil), send(t, 2, p, 1000, nil)
	if !slices.Equal(a, b) {
		t.Error("another fate with the same seed")
	}
	if slices.Equal(a, c) {
		t.Error("the same fate with another seed")
	}
}

// The measured shares and burst lengths equal those of the Impairment.
func TestImpairmentShares(t *testing.T) {
	const n = 20_000
	lost := func(got []arrival) float64 { return n - float64(len(got)) }
	for name, test := range map[string]struct {
		profile  Impairment
		of       func([]arrival) float64
		want     float64
		accuracy float64
	}{
		"loss":   {Impairment{Loss: 0.05}, lost, 0.05, 0.005},
		"bursts": {Impairment{Burst: Burst{Loss: 0.07, Length: 4}}, lost, 0.07, 0.01},
		"in how many": {Impairment{Burst: Burst{Loss: 0.07, Length: 4}}, func(got []arrival) float64 {
			bursts := 0.
			for i := range got[1:] {
				if got[i+1].packet > got[i].packet+1 {
					bursts++
				}
			}
			return bursts
		}, 0.07 / 4, 0.002},
		"reorder": {Impairment{Delay: time.Second, Reorder: 0.25}, func(got []arrival) float64 {
			early := 0.
			for _, a := range got {
				if a.delay == 0 {
					early++
				}
			}
			return early
		}, 0.25, 0.01},
		"duplicate": {Impairment{Duplicate: 0.05}, func(got []arrival) float64 { return float64(len(got)) - n }, 0.05, 0.005},
	} {
		got := test.of(send(t, 1, test.profile, n, nil)) / n
		if math.Abs(got-test.want) > test.accuracy {
			t.Errorf("%s: a share of %.4f, want %.4f", name, got, test.want)
		}
	}
}

func TestPathOrder(t *testing.T) {
	inOrder := func(all []arrival) bool {
		return slices.IsSortedFunc(all, func(a, b arrival) int { return a.packet - b.packet })
	}
	p := Impairment{Delay: 30 * time.Millisecond, Jitter: 100 * time.Millisecond}
	got := send(t, 1, p, 2000, nil)
	if len(got) != 2000 || !inOrder(got) {
		t.Error("jitter does not keep the order")
	}
	slices.SortFunc(got, func(a, b arrival) int { return int(a.delay - b.delay) })
	if least, most := got[0].delay, got[len(got)-1].delay; least < 30*time.Millisecond || least > 50*time.Millisecond ||
		most < 125*time.Millisecond ||
		most > 130*time.Millisecond {
		t.Errorf("delays from %v to %v, want 30 to 130 ms", least, most)
	}
	p.Overtake = true
	if got := send(t, 1, p, 2000, nil); len(got) != 2000 || inOrder(got) {
		t.Error("nothing is overtaken")
	}
	if got := send(t, 1, Impairment{Delay: 30 * time.Millisecond, Reorder: 0.25}, 2000, nil); len(got) != 2000 || inOrder(got) {
		t.Error("nothing is reordered")
	}
}

func TestBlackout(t *testing.T) {
	got := send(t, 1, Impairment{Delay: 30 * time.Millisecond}, 300, func(i int, p *Path) {
		if i == 100 {
			p.Blackout(time.Now().Add(2 * time.Second))
		}
	})
	if len(got) != 200 || got[99].packet != 99 || got[100].packet != 200 {
		t.Errorf("%d came out, then %v after %v", len(got), got[100], got[99])
	}
}
