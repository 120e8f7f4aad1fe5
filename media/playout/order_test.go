package playout_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"voxgate/media"
	"voxgate/media/playout"
)

// TestMarkOrder writes sound with marks between its parts in one burst. With any lead, a mark is called when the sound before it has
// been sent, including the rest of its last frame. The call comes before the sound after the mark.
func TestMarkOrder(t *testing.T) {
	for _, lead := range []time.Duration{0, 40 * ms, 200 * ms, 5 * time.Second, media.UnlimitedLead} {
		for _, part := range []time.Duration{7 * ms, 20 * ms, 50 * ms, 110 * ms, 1500 * ms} {
			t.Run(fmt.Sprint("lead ", lead, ", parts of ", part), func(t *testing.T) {
				play(t, lead, func(t *testing.T, p *playout.Pacer, s *speaker) {
					const parts = 20
					p.SetHold(true)
					var called atomic.Int32
					for i := range parts {
						must(t, p.WritePCM(constant(min(part, 450*ms), 100)))
						p.AddMark(func(heard bool) {
							called.Add(1)
							want := min(part, 450*ms) * time.Duration(i+1)
							got := media.Duration(len(s.pcm()), outRate)
							if over := got - want; over < 0 || over >= 20*ms || !heard {
								t.Errorf("mark %d comes at %v, want %v; heard %v", i, got, want, heard)
							}
						})
					}
					p.SetHold(false)
					time.Sleep(20 * time.Second)
					if n := called.Load(); n != parts {
						t.Errorf("%d of %d marks were called", n, parts)
					}
				})
			})
		}
	}
}

// TestSoundWaitsForMarks writes sound while the ticker calls a mark. The sound must not be sent before the mark has returned.
func TestSoundWaitsForMarks(t *testing.T) {
	ticker := playout.NewTicker()
	defer ticker.Close()
	p := playout.NewPacer(ticker, outRate)
	defer p.Close()
	s := &filler{speaker: speaker{start: time.Now(), lead: media.UnlimitedLead}, full: true}
	p.AttachOutput(s)
	must(t, p.WritePCM(constant(time.Second, 100)))
	var writing sync.WaitGroup
	done := make(chan struct{})
	p.AddMark(func(bool) {
		defer close(done)
		before := len(s.pcm())
		writing.Go(func() { _ = p.WritePCM(constant(100*ms, 200)) })
		for range 10_000 {
			runtime.Gosched()
		}
		if n := len(s.pcm()); n != before {
			t.Errorf("%d samples overtake a mark", n-before)
		}
	})
	s.set(false)
	<-done
	writing.Wait()
	if n := len(s.pcm()); n != media.Samples(1100*ms, outRate) {
		t.Errorf("%d samples were handed over", n)
	}
}

// filler is a speaker whose Full method returns a value that the test sets.
type filler struct {
	speaker
	full bool
}

func (f *filler) Full() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.full
}

func (f *filler) set(full bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.full = full
}
