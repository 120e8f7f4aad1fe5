package playout_test

import (
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
	"voxgate/media/playout"
)

// TestFlushGenerations interrupts an answer after each millisecond of the first half second. Only a fade of 5 ms of the old voice
// may follow, within one tick. The sound must not click, the new answer must be whole, and the generations must distinguish the
// two answers.
func TestFlushGenerations(t *testing.T) {
	const old, next = 8000, 5001 // no sample of the fade has the second value
	for _, lead := range []time.Duration{0, 200 * ms} {
		for at := range 500 {
			play(t, lead, func(t *testing.T, p *playout.Pacer, s *speaker) {
				taken := &generations{speaker: s}
				p.AttachOutput(taken)
				at := time.Duration(at+1)*ms + time.Duration(at%7*100+50)*time.Microsecond // never at the moment of a burst
				var generation uint32
				flushed := make(chan struct{})
				time.AfterFunc(at, func() {
					generation = p.Flush().Generation
					close(flushed)
				})
				for end := false; !end; { // bursts of 50 ms, faster than real time, until the flush
					must(t, p.WritePCM(constant(50*ms, old)))
					select {
					case <-flushed:
						end = true
					case <-time.After(33 * ms):
					}
				}
				time.Sleep(time.Second)
				must(t, p.WritePCM(constant(100*ms, next)))
				time.Sleep(time.Second)
				heard := 0
				for i, f := range s.got() {
					whole, stale := 0, 0
					for _, v := range f.pcm {
						switch {
						case v == next:
							heard++
						case v == old:
							whole++
							stale++
						case v > next:
							stale++
						}
					}
					switch late := f.at > at; {
					case late && taken.at[i] < generation, !late && taken.at[i] >= generation && whole > 0:
						t.Fatalf("interrupted at %v: the frame at %v has generation %d, where the next is %d", at, f.at, taken.at[i], generation)
					case late && (stale > media.Samples(5*ms, outRate) || stale > 0 && (lead > 0 || f.at > at+20*ms)):
						t.Fatalf("interrupted at %v: %d old samples at %v", at, stale, f.at)
					}
				}
				if step := mediatest.MaxStep(s.pcm()); lead == 0 && step > next {
					t.Fatalf("interrupted at %v: a click of %d", at, step)
				}
				if want := media.Samples(100*ms, outRate); heard != want {
					t.Fatalf("interrupted at %v: %d of %d samples of the next answer are heard", at, heard, want)
				}
			})
		}
	}
}

// generations is a speaker that records the generation of each frame.
type generations struct {
	*speaker
	at []uint32
}

func (g *generations) WriteFrame(f media.Frame) error {
	g.at = append(g.at, f.Generation)
	return g.speaker.WriteFrame(f)
}

// TestFlushReportsUnplayed checks the duration of unheard sound that Flush returns. With a lead it is exact to the millisecond.
func TestFlushReportsUnplayed(t *testing.T) {
	for _, lead := range []time.Duration{0, 200 * ms} {
		for _, at := range []time.Duration{0, 10 * ms, 555 * ms, 1000 * ms, 1999 * ms, 2100 * ms} {
			play(t, lead, func(t *testing.T, p *playout.Pacer, s *speaker) {
				must(t, p.WritePCM(constant(2*time.Second, 1000)))
				time.Sleep(at)
				got := 2*time.Second - p.Flush().Unplayed
				want := min(at, 2*time.Second)
				// Without a lead a frame counts as heard when it is sent, up to 20 ms before its end is heard.
				if off := got - want; off < 0 || lead > 0 && off > ms || off > 26*ms {
					t.Errorf("lead %v: %v were heard %v after the begin", lead, got, at)
				}
			})
		}
	}
}

func TestDuck(t *testing.T) {
	play(t, 0, func(t *testing.T, p *playout.Pacer, s *speaker) {
		must(t, p.WritePCM(constant(time.Second, 10000)))
		time.Sleep(205 * ms)
		p.Duck(12)
		time.Sleep(200 * ms)
		p.Duck(0)
		time.Sleep(time.Second)
		all := s.pcm()
		quiet := 10000 / math.Pow(10, 12.0/20)
		for i, v := range all[:media.Samples(time.Second, outRate)] {
			at := time.Duration(i) * time.Second / outRate
			low, high := 10000., 10000.
			switch { // the gain changes within the next frame
			case at >= 220*ms && at < 240*ms || at >= 420*ms && at < 440*ms:
				low = quiet
			case at >= 240*ms && at < 420*ms:
				low, high = quiet, quiet
			}
			if x := float64(v); x < low-1 || x > high+1 {
				t.Fatalf("the sample at %v is %d, want %.0f to %.0f", at, v, low, high)
			}
			if i > 0 && math.Abs(float64(v)-float64(all[i-1])) > 10000./480 {
				t.Fatalf("a step at %v: from %d to %d", at, all[i-1], v)
			}
		}
	})
}

// ledger is a Tap that stores one sample for each millisecond of the heard sound.
type ledger struct {
	mu    sync.Mutex
	start time.Time
	pcm   map[time.Duration]int16 // by time since the start, in steps of 1 ms
}

func (l *ledger) WriteModel(pcm []int16, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := 0; i < len(pcm); i += 24 {
		l.pcm[at.Sub(l.start)+time.Duration(i/24)*ms] = pcm[i]
	}
}

func (l *ledger) TruncateModel(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for t := range l.pcm {
		if t >= at.Sub(l.start) {
			delete(l.pcm, t)
		}
	}
}

// TestTap checks that a tap gets the sound that the person hears, with the time at which they hear it.
func TestTap(t *testing.T) {
	for _, lead := range []time.Duration{0, 200 * ms} {
		play(t, lead, func(t *testing.T, p *playout.Pacer, s *speaker) {
			l := &ledger{start: time.Now(), pcm: map[time.Duration]int16{}}
			p.SetTap(l)
			must(t, p.WritePCM(constant(time.Second, 1000)))
			time.Sleep(500 * ms)
			p.Flush()
			time.Sleep(250 * ms)
			must(t, p.WritePCM(constant(100*ms, 2000)))
			time.Sleep(time.Second)
			p.SetTap(nil)
			must(t, p.WritePCM(constant(100*ms, 3000)))
			synctest.Wait()
			l.mu.Lock()
			defer l.mu.Unlock()
			for at := time.Duration(0); at < 1200*ms; at += ms {
				var want int16
				switch {
				case at < 500*ms:
					want = 1000
				case lead == 0 && (at >= 500*ms && at < 530*ms || at >= 850*ms && at < 856*ms): // fades
					continue
				case at >= 750*ms && at < 850*ms:
					want = 2000
				}
				if l.pcm[at] != want {
					t.Fatalf("lead %v: %d is heard at %v, want %d", lead, l.pcm[at], at, want)
				}
			}
			for at, v := range l.pcm {
				if v == 3000 {
					t.Fatalf("it hears at %v what comes after its end", at)
				}
			}
		})
	}
}
