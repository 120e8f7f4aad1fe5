package impair

import (
	"context"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

const interval = 20 * time.Millisecond // between packets, as in a call

// arrival is a packet that has come out.
type arrival struct {
	packet int
	delay  time.Duration
}

// send passes n packets through a direction, in simulated time.
func send(t *testing.T, seed uint64, p Profile, n, size int, during func(i int, d *direction)) ([]arrival, Stats) {
	var got []arrival
	var stats Stats
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		d := newDirection(seed, 0)
		d.set(p)
		start := time.Now()
		pipe := newPipe(d, func(i int) {
			got = append(got, arrival{i, time.Since(start) - time.Duration(i)*interval})
		})
		go pipe.run(ctx)
		for i := range n {
			if during != nil {
				during(i, d)
			}
			pipe.put(i, size)
			time.Sleep(interval)
		}
		time.Sleep(10 * time.Second)
		stats = d.read()
		cancel()
		synctest.Wait()
	})
	return got, stats
}

func TestSameSeedSameFate(t *testing.T) {
	p := Profile{
		Delay: 30 * time.Millisecond, Jitter: 100 * time.Millisecond, Overtake: true, Loss: 0.1, Reorder: 0.1, Duplicate: 0.1,
		Burst: Burst{Loss: 0.05, Length: 3},
	}
	a, _ := send(t, 1, p, 1000, 100, nil)
	b, _ := send(t, 1, p, 1000, 100, nil)
	c, _ := send(t, 2, p, 1000, 100, nil)
	if !slices.Equal(a, b) {
		t.Error("another fate with the same seed")
	}
	if slices.Equal(a, c) {
		t.Error("the same fate with another seed")
	}
}

func TestAChangeLeavesLaterFatesAsTheyWere(t *testing.T) {
	p := Profile{Loss: 0.2}
	a, _ := send(t, 1, p, 1000, 100, nil)
	b, _ := send(t, 1, p, 1000, 100, func(i int, d *direction) {
		switch i {
		case 100:
			d.set(Profile{Burst: Burst{Loss: 0.5, Length: 9}, Duplicate: 0.5})
		case 200:
			d.set(p)
		}
	})
	late := func(all []arrival) []arrival {
		return slices.DeleteFunc(slices.Clone(all), func(a arrival) bool { return a.packet < 200 })
	}
	if !slices.Equal(late(a), late(b)) {
		t.Error("what came after the change is not as without it")
	}
}

func TestShares(t *testing.T) {
	const n = 20_000
	for name, test := range map[string]struct {
		profile  Profile
		of       func(Stats) uint64
		want     float64
		accuracy float64
	}{
		"loss":      {Profile{Loss: 0.05}, func(s Stats) uint64 { return s.Lost }, 0.05, 0.005},
		"bursts":    {Profile{Burst: Burst{Loss: 0.07, Length: 4}}, func(s Stats) uint64 { return s.Lost }, 0.07, 0.01},
		"reorder":   {Profile{Delay: time.Second, Reorder: 0.25}, func(s Stats) uint64 { return s.Reordered }, 0.25, 0.01},
		"duplicate": {Profile{Duplicate: 0.05}, func(s Stats) uint64 { return s.Duplicated }, 0.05, 0.005},
	} {
		got, stats := send(t, 1, test.profile, n, 100, nil)
		if share := float64(test.of(stats)) / n; math.Abs(share-test.want) > test.accuracy {
			t.Errorf("%s: a share of %.4f, want %.4f", name, share, test.want)
		}
		if stats.In != n || stats.Out != uint64(len(got)) || stats.Out != stats.In-stats.Lost+stats.Duplicated {
			t.Errorf("%s: %+v, and %d came out", name, stats, len(got))
		}
	}
}

func TestBurstLength(t *testing.T) {
	got, stats := send(t, 1, Profile{Burst: Burst{Loss: 0.07, Length: 4}}, 20_000, 100, nil)
	bursts := 0
	for i := range got[1:] {
		if got[i+1].packet > got[i].packet+1 {
			bursts++
		}
	}
	if mean := float64(stats.Lost) / float64(bursts); math.Abs(mean-4) > 0.4 {
		t.Errorf("%.2f packets are lost in a row, want 4", mean)
	}
}

func TestOrder(t *testing.T) {
	inOrder := func(all []arrival) bool {
		return slices.IsSortedFunc(all, func(a, b arrival) int { return a.packet - b.packet })
	}
	p := Profile{Delay: 30 * time.Millisecond, Jitter: 100 * time.Millisecond}
	got, _ := send(t, 1, p, 2000, 100, nil)
	if len(got) != 2000 || !inOrder(got) {
		t.Error("jitter does not keep the order")
	}
	slices.SortFunc(got, func(a, b arrival) int { return int(a.delay - b.delay) })
	if least, most := got[0].delay, got[len(got)-1].delay; least < 30*time.Millisecond || least > 50*time.Millisecond || most < 125*time.Millisecond || most > 130*time.Millisecond {
		t.Errorf("delays from %v to %v, want 30 to 130 ms", least, most)
	}
	p.Overtake = true
	if got, _ := send(t, 1, p, 2000, 100, nil); len(got) != 2000 || inOrder(got) {
		t.Error("nothing is overtaken")
	}
	if got, _ := send(t, 1, Profile{Delay: 30 * time.Millisecond, Reorder: 0.25}, 2000, 100, nil); len(got) != 2000 || inOrder(got) {
		t.Error("nothing is reordered")
	}
}

func TestBlackout(t *testing.T) {
	got, stats := send(t, 1, Profile{Delay: 30 * time.Millisecond}, 300, 100, func(i int, d *direction) {
		if i == 100 {
			d.blackout(2 * time.Second)
		}
	})
	if len(got) != 200 || got[99].packet != 99 || got[100].packet != 200 || stats.Blackout != 100 {
		t.Errorf("%d came out, then %v after %v, %+v", len(got), got[100], got[99], stats)
	}
}

func TestRate(t *testing.T) {
	// 100 bytes each 20 ms are 40 kbit/s.
	got, stats := send(t, 1, Profile{Rate: 20_000, Queue: 200 * time.Millisecond}, 1000, 100, nil)
	if n := len(got); n < 495 || n > 510 || stats.Overflow != uint64(1000-n) {
		t.Errorf("%d of 1000 came out at half the rate, %+v", n, stats)
	}
	for _, a := range got {
		if a.delay > 240*time.Millisecond {
			t.Fatalf("packet %d was queued for %v", a.packet, a.delay)
		}
	}
	if got, _ := send(t, 1, Profile{Rate: 40_000}, 1000, 100, nil); len(got) != 1000 || got[999].delay != interval {
		t.Errorf("%d of 1000 came out at their own rate", len(got))
	}
}
