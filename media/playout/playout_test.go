package playout_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
	"voxgate/media/playout"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ms      = time.Millisecond
	outRate = 24000
)

// speaker is an output that stores its frames with their times.
type speaker struct {
	start time.Time
	lead  time.Duration
	late  time.Duration
	fail  error

	mu     sync.Mutex
	frames []heard
}

type heard struct {
	at, pts time.Duration
	start   bool
	pcm     []int16
}

func (s *speaker) MaxLead() time.Duration       { return s.lead }
func (s *speaker) PlaybackDelay() time.Duration { return s.late }

func (s *speaker) WriteFrame(f media.Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frames = append(s.frames, heard{time.Since(s.start), f.PTS, f.Start, slices.Clone(f.PCM)})
	return s.fail
}

func (s *speaker) got() []heard {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.frames)
}

func (s *speaker) pcm() []int16 {
	var all []int16
	for _, f := range s.got() {
		all = append(all, f.pcm...)
	}
	return all
}

// play runs f in a synctest bubble, with a playout that is attached to a speaker.
func play(t *testing.T, lead time.Duration, f func(t *testing.T, p *playout.Pacer, s *speaker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ticker := playout.NewTicker()
		defer ticker.Close()
		p := playout.NewPacer(ticker, outRate)
		defer p.Close()
		s := &speaker{start: time.Now(), lead: lead}
		p.AttachOutput(s)
		f(t, p, s)
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// constant returns sound in which all samples have the value `level`, so that a test can identify the sound.
func constant(d time.Duration, level int16) []int16 {
	return slices.Repeat([]int16{level}, media.Samples(d, outRate))
}

func silent(pcm []int16) bool { return media.RMS(pcm) == 0 }

// TestPlayoutCadence writes ten minutes of sound in bursts. All frames must come in time, complete and without a gap.
func TestPlayoutCadence(t *testing.T) {
	play(t, 0, func(t *testing.T, p *playout.Pacer, s *speaker) {
		time.Sleep(7*ms + 300*time.Microsecond)
		burst := mediatest.SynthesizeSpeech(30*time.Second, outRate)
		for range 20 {
			must(t, p.WritePCM(burst))
			time.Sleep(29 * time.Second)
		}
		time.Sleep(time.Minute)
		frames := s.got()
		if len(frames) != 30000+5 {
			t.Fatalf("%d frames, want 30000 and 5 of silence", len(frames))
		}
		for i, f := range frames {
			if f.start != (i == 0) || f.pts != frames[0].pts+time.Duration(i)*20*ms {
				t.Fatalf("frame %d: PTS %v, start %v", i, f.pts, f.start)
			}
			if i > 1 && f.at-frames[i-1].at != 20*ms {
				t.Fatalf("frame %d comes %v after the one before", i, f.at-frames[i-1].at)
			}
			if ahead := f.pts - f.at; ahead < 0 || ahead > 20*ms {
				t.Fatalf("frame %d is %v ahead of the clock", i, ahead)
			}
		}
		if frames[0].at != 7*ms+300*time.Microsecond {
			t.Errorf("the first frame came at %v, not at once", frames[0].at)
		}
		got := s.pcm()
		for i := range 20 {
			if !slices.Equal(got[i*len(burst):][:len(burst)], burst) {
				t.Fatalf("burst %d was changed", i)
			}
		}
		if st := p.Stats(); st != (playout.Stats{Frames: 30000, SilenceFrames: 5}) {
			t.Errorf("stats %+v", st)
		}
	})
}

// TestPlayoutGaps writes two pieces of sound with a pause between them, and checks the frames and statistics.
func TestPlayoutGaps(t *testing.T) {
	for _, c := range []struct {
		name         string
		first, pause time.Duration // duration of the first piece, and of the pause after it was played
		second       time.Duration
		frames       uint64
		silence      uint64
		underruns    uint64
		starts       int
	}{
		{"whole frames", 100 * ms, -30 * ms, 100 * ms, 10, 5, 0, 1},
		{"a pause shorter than the trail", 100 * ms, 50 * ms, 100 * ms, 10, 5 + 3, 1, 1},
		{"a pause longer than the trail", 100 * ms, 300 * ms, 100 * ms, 10, 5 + 5, 0, 2},
		{"a frame and a half", 30 * ms, time.Second, 100 * ms, 7, 10, 0, 2},
		{"half a frame", 10 * ms, time.Second, 100 * ms, 6, 10, 0, 2},
		{"half a frame, and the rest at once", 10 * ms, -15 * ms, 10 * ms, 1, 5, 0, 1},
		{"half a frame in the trail", 100 * ms, 50 * ms, 10 * ms, 6, 5 + 4, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			play(t, 0, func(t *testing.T, p *playout.Pacer, s *speaker) {
				time.Sleep(5 * ms)
				must(t, p.WritePCM(mediatest.Tone(c.first, outRate, 300, 10000)))
				time.Sleep(c.first + c.pause)
				must(t, p.WritePCM(mediatest.Tone(c.second, outRate, 300, 10000)))
				time.Sleep(time.Second)
				starts := 0
				for _, f := range s.got() {
					if f.start {
						starts++
					}
				}
				st := p.Stats()
				if st.Frames != c.frames || st.SilenceFrames != c.silence || st.Underruns != c.underruns || starts != c.starts {
					t.Errorf("%+v, %d starts", st, starts)
				}
				if step := mediatest.MaxStep(s.pcm()); step > 1000 { // the largest step of the tone itself is 785
					t.Errorf("a click of %d", step)
				}
			})
		})
	}
}

// TestPlayoutFlushTrail checks that silence follows a flush, and that the next sound does not count as an underrun.
func TestPlayoutFlushTrail(t *testing.T) {
	play(t, 0, func(t *testing.T, p *playout.Pacer, s *speaker) {
		must(t, p.WritePCM(constant(time.Second, 5000)))
		time.Sleep(95 * ms)
		p.Flush()
		p.Flush()
		n := len(s.got())
		time.Sleep(time.Second)
		after := s.got()[n:]
		if len(after) != 6 || silent(after[0].pcm) || !silent(after[1].pcm) {
			t.Fatalf("%d frames after the flush", len(after))
		}
		must(t, p.WritePCM(constant(time.Second, 5000)))
		time.Sleep(95 * ms)
		p.Flush()
		must(t, p.WritePCM(constant(100*ms, 3000)))
		time.Sleep(time.Second)
		if st := p.Stats(); st.Underruns != 0 || st.Flushes != 3 {
			t.Errorf("%+v", st)
		}
	})
}

// TestPlayoutMarks checks the times, arguments and order of the calls of marks.
func TestPlayoutMarks(t *testing.T) {
	play(t, 0, func(t *testing.T, p *playout.Pacer, s *speaker) {
		var mu sync.Mutex
		var log []string
		start := time.Now()
		mark := func(name string) {
			p.AddMark(func(heard bool) {
				mu.Lock()
				defer mu.Unlock()
				log = append(log, fmt.Sprintf("%s %v %v", name, heard, time.Since(start).Round(100*ms)))
			})
		}
		mark("none")
		must(t, p.WritePCM(constant(200*ms, 1000)))
		mark("a")
		mark("b")
		must(t, p.WritePCM(constant(110*ms, 1000)))
		mark("c")
		time.Sleep(600 * ms)
		must(t, p.WritePCM(constant(time.Second, 1000)))
		mark("d")
		must(t, p.WritePCM(constant(time.Second, 1000)))
		mark("e")
		time.Sleep(400 * ms)
		p.Flush()
		mu.Lock()
		log = append(log, "flushed")
		mu.Unlock()
		mark("f")
		must(t, p.WritePCM(constant(time.Second, 1000)))
		mark("g")
		p.Close()
		mark("h")
		if err := p.WritePCM(nil); !errors.Is(err, playout.ErrClosed) {
			t.Errorf("write after Close: %v", err)
		}
		want := []string{
			"none true 0s", "a true 200ms", "b true 200ms", "c true 300ms", "d false 1s", "e false 1s", "flushed", "f true 1s",
			"g false 1s", "h false 1s",
		}
		if !slices.Equal(log, want) {
			t.Errorf("got  %q\nwant %q", log, want)
		}
	})
}

// TestPlayoutHold checks that up to ten seconds of sound wait while the playout is on hold.
func TestPlayoutHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ticker := playout.NewTicker()
		defer ticker.Close()
		p := playout.NewPacer(ticker, outRate)
		defer p.Close()
		s := &speaker{start: time.Now()}
		called := make(chan bool, 10)
		mark := func() { p.AddMark(func(heard bool) { called <- heard }) }
		var marks []bool
		collect := func() []bool {
			for len(called) > 0 {
				marks = append(marks, <-called)
			}
			return marks
		}

		must(t, p.WritePCM(constant(time.Second, 1)))
		mark()
		if p.QueuedDuration() != 0 || !slices.Equal(collect(), []bool{true}) {
			t.Fatalf("without output %v wait, marks %v", p.QueuedDuration(), marks)
		}
		p.SetHold(true)
		must(t, p.WritePCM(constant(3*time.Second, 1)))
		mark()
		must(t, p.WritePCM(constant(9*time.Second, 2)))
		mark()
		p.AttachOutput(s)
		time.Sleep(time.Second)
		if p.QueuedDuration() != 10*time.Second || len(s.got()) != 0 || len(collect()) != 1 {
			t.Fatalf("on hold %v wait, %d frames, marks %v", p.QueuedDuration(), len(s.got()), marks)
		}
		must(t, p.WritePCM(constant(5*time.Second, 3)))
		mark()
		if st := p.Stats(); p.QueuedDuration() != 10*time.Second || st.Dropped != 7*time.Second || !slices.Equal(collect(), []bool{true, false}) {
			t.Fatalf("on hold %v wait, %+v, marks %v", p.QueuedDuration(), st, marks)
		}
		p.SetHold(false)
		time.Sleep(3 * time.Second)
		p.SetHold(true)
		time.Sleep(3 * time.Second)
		p.SetHold(false)
		time.Sleep(11 * time.Second)
		if !slices.Equal(collect(), []bool{true, false, true, true}) {
			t.Errorf("marks %v", marks)
		}
		starts, sound := 0, 0
		for _, f := range s.got() {
			if f.start {
				starts++
			}
			if f.pcm[0] == 2 || f.pcm[0] == 3 {
				sound++
			}
		}
		if starts != 2 || sound < 500 {
			t.Errorf("%d talkspurts, %d frames with sound", starts, sound)
		}
		must(t, p.WritePCM(constant(time.Second, 1)))
		mark()
		p.AttachOutput(nil)
		if p.QueuedDuration() != 0 || len(collect()) != 5 || !marks[4] {
			t.Errorf("after Attach(nil) %v wait, marks %v", p.QueuedDuration(), marks)
		}
	})
}

// TestPlayoutSwitchOutput checks that a new output continues where the old output stopped. Its first
// frame must start a talkspurt.
func TestPlayoutSwitchOutput(t *testing.T) {
	for _, leads := range [][2]time.Duration{{0, 0}, {200 * ms, 0}, {0, 200 * ms}, {200 * ms, 200 * ms}} {
		t.Run(fmt.Sprint(leads), func(t *testing.T) {
			play(t, leads[0], func(t *testing.T, p *playout.Pacer, a *speaker) {
				b := &speaker{start: a.start, lead: leads[1]}
				pcm := mediatest.Tone(2*time.Second, outRate, 440, 1000)
				must(t, p.WritePCM(pcm))
				time.Sleep(705 * ms)
				p.AttachOutput(b)
				n := len(a.got())
				time.Sleep(2 * time.Second)
				if len(a.got()) != n {
					t.Error("the old output got more")
				}
				if got := append(a.pcm(), b.pcm()...); !slices.Equal(got[:len(pcm)], pcm) {
					t.Error("sound was lost or changed")
				}
				last, first := a.got()[n-1], b.got()[0]
				if !first.start || first.pts < last.pts+20*ms || first.pts > last.pts+40*ms {
					t.Errorf("PTS %v, then %v, start %v", last.pts, first.pts, first.start)
				}
			})
		})
	}
}

// TestPlayoutLead checks an output with a lead, which gets its frames early.
func TestPlayoutLead(t *testing.T) {
	play(t, 200*ms, func(t *testing.T, p *playout.Pacer, s *speaker) {
		time.Sleep(3 * ms)
		pcm := mediatest.SynthesizeSpeech(2030*ms, outRate)
		var marked time.Duration
		must(t, p.WritePCM(pcm))
		p.AddMark(func(bool) { marked = time.Since(s.start) })
		if n := len(s.got()); n != 10 {
			t.Fatalf("%d frames at once, want 200 ms", n)
		}
		time.Sleep(3 * time.Second)
		frames := s.got()
		if len(frames) != 102 || p.Stats().SilenceFrames != 0 {
			t.Fatalf("%d frames", len(frames))
		}
		if marked != frames[101].at || marked < 1800*ms || marked > 2*time.Second {
			t.Errorf("marked at %v, the last frame came at %v", marked, frames[101].at)
		}
		for i, f := range frames {
			if f.start != (i == 0) || f.pts != 3*ms+time.Duration(i)*20*ms || f.pts-f.at >= 200*ms || f.pts < f.at {
				t.Fatalf("frame %d at %v: PTS %v, start %v", i, f.at, f.pts, f.start)
			}
		}
		must(t, p.WritePCM(pcm))
		time.Sleep(100 * ms)
		n := len(s.got())
		p.Flush()
		time.Sleep(time.Second)
		if len(s.got()) != n {
			t.Error("frames after the flush")
		}
		must(t, p.WritePCM(pcm[:480]))
		if f := s.got()[n]; !f.start || f.pts != f.at {
			t.Errorf("after a flush PTS is %v at %v, start %v", f.pts, f.at, f.start)
		}
	})
}

// TestPlayoutLate checks that sound which a late output has not played yet counts as unheard.
func TestPlayoutLate(t *testing.T) {
	unheard := func(late time.Duration) (d time.Duration) {
		play(t, 200*ms, func(t *testing.T, p *playout.Pacer, s *speaker) {
			s.late = late
			must(t, p.WritePCM(mediatest.SynthesizeSpeech(2*time.Second, outRate)))
			time.Sleep(time.Second)
			d = p.Flush().Unplayed
		})
		return d
	}
	for late, want := range map[time.Duration]time.Duration{0: time.Second, 300 * ms: 1300 * ms, time.Hour: 2 * time.Second} {
		if d := unheard(late); d != want {
			t.Errorf("%v late: after a second of two, %v were not heard, want %v", late, d, want)
		}
	}
}

// TestPlayoutAtOnce checks an output that keeps the time itself. It gets all sound at once, and no silence is added.
func TestPlayoutAtOnce(t *testing.T) {
	play(t, media.UnlimitedLead, func(t *testing.T, p *playout.Pacer, s *speaker) {
		time.Sleep(3 * ms)
		pcm := mediatest.SynthesizeSpeech(3*time.Second, outRate)
		for _, part := range [][]int16{pcm[:100], pcm[100:30000], pcm[30000:]} {
			must(t, p.WritePCM(part))
			time.Sleep(50 * ms)
		}
		frames := s.got()
		if len(frames) != 3 || !slices.Equal(s.pcm(), pcm) || p.QueuedDuration() != 0 {
			t.Fatalf("%d frames, %d samples of %d, %v waits", len(frames), len(s.pcm()), len(pcm), p.QueuedDuration())
		}
		if f := frames[2]; f.at != 103*ms || f.pts != frames[1].pts+media.Duration(29900, outRate) {
			t.Errorf("the last one came at %v and is to be heard at %v", f.at, f.pts)
		}
		cut := p.Flush() // 150 ms after the first frame, including a pause of about 50 ms
		if heard := 3*time.Second - cut.Unplayed; heard < 95*ms || heard > 105*ms {
			t.Errorf("%v of it was heard", heard)
		}
		must(t, p.WritePCM(pcm[:480]))
		if f := s.got()[3]; !f.start || f.pts != f.at {
			t.Errorf("after a flush PTS is %v at %v, start %v", f.pts, f.at, f.start)
		}
	})
}

func TestPlayoutBounds(t *testing.T) {
	play(t, 0, func(t *testing.T, p *playout.Pacer, s *speaker) {
		minute := constant(time.Minute, 1)
		s.fail = errors.New("broken")
		must(t, p.WritePCM(minute))
		must(t, p.WritePCM(minute))
		if err := p.WritePCM(minute); !errors.Is(err, playout.ErrFull) {
			t.Errorf("a third minute: %v", err)
		}
		if st := p.Stats(); st.Dropped != time.Minute {
			t.Errorf("%+v", st)
		}
		time.Sleep(990 * ms)
		if st := p.Stats(); st.WriteErrors != 50 {
			t.Errorf("%+v", st)
		}
	})
}

// TestPlayoutStall blocks the output once. The playout makes up for a delay of up to 200 ms. After a longer delay the voice
// continues later, in a new talkspurt.
func TestPlayoutStall(t *testing.T) {
	for _, stall := range []time.Duration{50 * ms, 190 * ms, 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			ticker := playout.NewTicker()
			defer ticker.Close()
			p := playout.NewPacer(ticker, outRate)
			defer p.Close()
			s := &stalling{speaker: speaker{start: time.Now()}, at: 20, stall: stall}
			p.AttachOutput(s)
			pcm := mediatest.SynthesizeSpeech(6*time.Second, outRate)
			must(t, p.WritePCM(pcm))
			time.Sleep(10 * time.Second)
			if !slices.Equal(s.pcm()[:len(pcm)], pcm) {
				t.Error("sound was lost")
			}
			starts := 0
			frames := s.got()
			for i, f := range frames {
				if f.start {
					starts++
				}
				if i > 40 && (f.pts < f.at || f.pts-f.at > 20*ms) {
					t.Fatalf("stall %v: frame %d at %v has PTS %v", stall, i, f.at, f.pts)
				}
			}
			want := 1
			if stall > 200*ms {
				want = 2
			}
			if starts != want {
				t.Errorf("stall %v: %d talkspurts", stall, starts)
			}
		})
	}
}

// stalling is a speaker that blocks once, in the call of WriteFrame with the number `at`.
type stalling struct {
	speaker
	at    int
	stall time.Duration
}

func (s *stalling) WriteFrame(f media.Frame) error {
	if s.at--; s.at == 0 {
		time.Sleep(s.stall)
	}
	return s.speaker.WriteFrame(f)
}

// TestTicker runs many playouts on one ticker. It checks the number and distance of their frames, and the phases of the ticks.
func TestTicker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ticker := playout.NewTicker()
		defer ticker.Close()
		var speakers []*speaker
		for i := range 300 {
			p := playout.NewPacer(ticker, outRate)
			defer p.Close()
			s := &speaker{start: time.Now()}
			p.AttachOutput(s)
			must(t, p.WritePCM(constant(time.Duration(i)*10*ms, 100)))
			speakers = append(speakers, s)
		}
		time.Sleep(time.Hour)
		phases := map[time.Duration]bool{}
		for i, s := range speakers {
			frames := s.got()
			if want := (i+1)/2 + 5; i > 0 && len(frames) != want {
				t.Fatalf("playout %d: %d frames, want %d", i, len(frames), want)
			}
			for j := 2; j < len(frames); j++ {
				phases[frames[j].at%(20*ms)] = true
				if frames[j].at-frames[j-1].at != 20*ms {
					t.Fatalf("playout %d: frame %d %v after the one before", i, j, frames[j].at-frames[j-1].at)
				}
			}
		}
		if len(phases) != runtime.GOMAXPROCS(0) {
			t.Errorf("ticks come in %d phases for %d shards", len(phases), runtime.GOMAXPROCS(0))
		}
	})
}

// TestPlayoutRace calls all methods at once, for the race detector. It also checks that marks are called in order, and that
// no frames come after Close.
func TestPlayoutRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ticker := playout.NewTicker()
		defer ticker.Close()
		for range 8 {
			p := playout.NewPacer(ticker, outRate)
			s := &speaker{start: time.Now()}
			p.AttachOutput(s)
			var wg sync.WaitGroup
			var mu sync.Mutex
			var order []int
			for g := range 4 {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(g), 0))
					for i := range 200 {
						switch rng.IntN(8) {
						case 0:
							p.Flush()
						case 1:
							p.SetHold(true)
						case 2:
							p.AttachOutput(s)
						case 3, 4:
							p.SetHold(false)
							if g == 0 {
								p.AddMark(func(bool) { mu.Lock(); order = append(order, i); mu.Unlock() })
							}
						default:
							_ = p.WritePCM(constant(time.Duration(rng.IntN(100))*ms, 1000))
						}
						time.Sleep(time.Duration(rng.IntN(20)) * ms)
					}
				})
			}
			wg.Wait()
			_ = p.WritePCM(constant(time.Second, 1))
			p.Close()
			n := len(s.got())
			time.Sleep(time.Second)
			if len(s.got()) != n {
				t.Error("frames after Close")
			}
			if !slices.IsSorted(order) {
				t.Error("marks out of order")
			}
		}
	})
}
