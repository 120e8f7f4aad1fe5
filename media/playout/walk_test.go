package playout_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/media"
	"voxgate/media/playout"
)

// checker is an output that reports an error for each frame that it must not get.
type checker struct {
	t        *testing.T
	lead     time.Duration
	attached bool
	gen      *uint32
	flushed  *bool // whether a fade-out may still come
}

func (c *checker) MaxLead() time.Duration { return c.lead }

func (c *checker) WriteFrame(f media.Frame) error {
	if !c.attached {
		c.t.Error("a frame for an output that is detached")
	}
	if f.Generation != *c.gen {
		c.t.Errorf("a frame of generation %d after flush %d", f.Generation, *c.gen)
	}
	sound := f.PCM
	if c.lead == 0 && *c.flushed { // the frame may begin with the fade-out of the old sound
		sound = f.PCM[media.Samples(5*ms, outRate):]
		*c.flushed = false
	}
	for _, x := range sound { // sound of an even generation is positive, and of an odd generation negative
		if x > 0 && *c.gen%2 == 1 || x < 0 && *c.gen%2 == 0 {
			c.t.Errorf("sound %d in a frame of generation %d", x, *c.gen)
			break
		}
	}
	return nil
}

// TestPlayoutWalk makes random calls to a playout. Marks must be called once and in order, and no old sound may be heard. A flush
// must not report more unheard sound than was written since the flush before it.
func TestPlayoutWalk(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 3))
				ticker := playout.NewTicker()
				defer ticker.Close()
				p := playout.NewPacer(ticker, outRate)
				defer p.Close()
				var (
					gen           uint32
					held, flushed bool
					set           int
					fired         []int
					current       *checker
					sinceFlush    time.Duration
				)
				tap := &single{t: t}
				for range 400 {
					synctest.Wait()
					switch k := rng.IntN(20); {
					case k < 7:
						level := int16(2000)
						if gen%2 == 1 {
							level = -2000
						}
						n := rng.IntN(4) * rng.IntN(2000)
						if k == 0 {
							n = rng.IntN(12 * outRate)
						}
						d := time.Duration(n) * time.Second / outRate
						if err := p.WritePCM(slices.Repeat([]int16{level}, n)); err == nil {
							sinceFlush += d
						}
					case k < 10:
						gen++ // Wait has left the ticker idle, so that later frames come only in calls of this test
						flushed = true
						cut := p.Flush()
						if cut.Generation != gen {
							t.Fatalf("generation %d", cut.Generation)
						}
						if cut.Unplayed < 0 || cut.Unplayed > sinceFlush+ms {
							t.Fatalf("%v unheard of %v written since the last flush", cut.Unplayed, sinceFlush)
						}
						sinceFlush = 0
						if q := p.QueuedDuration(); q != 0 {
							t.Fatalf("%v queued after a flush", q)
						}
					case k < 11:
						p.Duck(float64(12 * rng.IntN(2)))
						if rng.IntN(2) == 0 {
							p.Suspend(playout.DipSearch)
						} else {
							p.Resume()
						}
					case k < 12:
						held = !held
						p.SetHold(held)
					case k < 13:
						var out media.Output
						old := current
						current = nil
						if rng.IntN(4) > 0 {
							current = &checker{t: t, lead: time.Duration(rng.IntN(2)) * 200 * ms, attached: true, gen: &gen, flushed: &flushed}
							out = current
						}
						p.AttachOutput(out)
						if old != nil {
							old.attached = false
						}
					case k < 16:
						i := set
						set++
						p.AddMark(func(bool) { fired = append(fired, i) })
					case k < 17:
						if rng.IntN(2) == 0 {
							p.SetTap(tap)
						} else {
							p.SetTap(nil)
							tap.end = time.Time{}
						}
					default:
						d := time.Duration(rng.IntN(300)) * ms
						if rng.IntN(10) == 0 {
							d *= 30
						}
						time.Sleep(d)
					}
				}
				p.Close()
				synctest.Wait()
				if len(fired) != set || !slices.IsSorted(fired) {
					t.Errorf("%d marks, %d called: %v", set, len(fired), fired)
				}
			})
		})
	}
}

type single struct {
	t   *testing.T
	end time.Time
}

func (s *single) WriteModel(pcm []int16, at time.Time) {
	if at.Before(s.end.Add(-time.Millisecond)) {
		s.t.Errorf("the tap hears two frames at once: %v before the end of the last", s.end.Sub(at))
	}
	s.end = at.Add(time.Duration(len(pcm)) * time.Second / outRate)
}

func (s *single) TruncateModel(at time.Time) {
	if at.Before(s.end) {
		s.end = at
	}
}

// TestUnplayedCountsSoundOnly checks the unheard duration of an output with a lead. It must not include the silence that fills a
// frame.
func TestUnplayedCountsSoundOnly(t *testing.T) {
	play(t, 200*ms, func(t *testing.T, p *playout.Pacer, _ *speaker) {
		must(t, p.WritePCM(constant(2*ms, 1000)))
		time.Sleep(22 * ms) // the playout pads the sound to a frame
		if cut := p.Flush(); cut.Unplayed > 2*ms {
			t.Errorf("%v unheard of 2 ms", cut.Unplayed)
		}
	})
}

// TestUnplayedAfterLostClient detaches the playout of a lost socket client and then flushes it. The sound that the client had not
// yet played counts as unheard.
func TestUnplayedAfterLostClient(t *testing.T) {
	play(t, 200*ms, func(t *testing.T, p *playout.Pacer, _ *speaker) {
		l := &ledger{start: time.Now(), pcm: map[time.Duration]int16{}}
		p.SetTap(l)
		must(t, p.WritePCM(constant(5*time.Second, 1000)))
		time.Sleep(1000 * ms)
		p.SetHold(true) // as a session does when its caller has left
		p.AttachOutput(nil)
		if cut := p.Flush(); cut.Unplayed < 3990*ms {
			t.Errorf("%v unheard of 5 s, of which 1 s was heard", cut.Unplayed)
		}
		for at := range l.pcm {
			if at > 1020*ms {
				t.Fatalf("recorded as heard at %v, though nobody was there after 1 s", at)
			}
		}
	})
}
