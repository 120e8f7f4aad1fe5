package record_test

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
	"voxgate/media/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ms = time.Millisecond

// file is a file in memory.
type file struct {
	mu     sync.Mutex
	b      bytes.Buffer
	room   int // number of bytes that can be written; 0 means any number
	stuck  chan struct{}
	closed bool
}

var errFull = errors.New("no space left on device")

func (f *file) Write(p []byte) (int, error) {
	if f.stuck != nil {
		<-f.stuck
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.room > 0 && f.b.Len()+len(p) > f.room {
		return 0, errFull
	}
	return f.b.Write(p)
}

func (f *file) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

func (f *file) bytes() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return bytes.Clone(f.b.Bytes())
}

func markTone(hz float64, d time.Duration, rate int) []int16 {
	return mediatest.Tone(d, rate, hz, 10000)
}

// studio makes a recording in a synctest bubble.
type studio struct {
	t     *testing.T
	f     *file
	r     *record.Recording
	began time.Time
}

func newStudio(t *testing.T) *studio {
	s := &studio{t: t, f: &file{}, began: time.Now()}
	var err error
	if s.r, err = record.New(s.f, s.began); err != nil {
		t.Fatal(err)
	}
	return s
}

// until sleeps until the recording has lasted for d.
func (s *studio) until(d time.Duration) { time.Sleep(time.Until(s.began.Add(d))) }

// say records a person who speaks from the time at on. Each chunk of 20 ms is written when it has been spoken.
func (s *studio) say(pcm []int16, rate int, at time.Duration) {
	for n := rate / 50; len(pcm) >= n; pcm, at = pcm[n:], at+20*ms {
		s.until(at + 20*ms)
		s.r.WriteCaller(pcm[:n], rate, s.began.Add(at))
	}
}

// answer records a model that speaks from the time at on. Each frame is written earlier than it is heard, by ahead.
func (s *studio) answer(pcm []int16, at, ahead time.Duration) {
	for ; len(pcm) >= 480; pcm, at = pcm[480:], at+20*ms {
		s.until(at - ahead)
		s.r.WriteModel(pcm[:480], s.began.Add(at))
	}
}

func (s *studio) close(at time.Duration) sound {
	s.t.Helper()
	s.until(at)
	if err := s.r.Close(); err != nil {
		s.t.Fatal(err)
	}
	if !s.f.closed {
		s.t.Error("the file is still open")
	}
	got := readOgg(s.t, s.f.bytes())
	if !got.ended {
		s.t.Error("the file has no end")
	}
	return got
}

// stretches returns pairs of times between which a channel is loud. Silence of less than 15 ms does not count.
func stretches(pcm []int16) (all []time.Duration) {
	const piece = 24 // 1 ms
	quiet := 0
	for i := 0; i+piece <= len(pcm); i += piece {
		loud := media.RMS(pcm[i:i+piece]) > 500
		at := time.Duration(i/piece) * ms
		switch {
		case loud && len(all)%2 == 0:
			all = append(all, at)
			quiet = 0
		case loud:
			quiet = 0
		case len(all)%2 == 1:
			if quiet++; quiet >= 15 {
				all = append(all, at-time.Duration(quiet-1)*ms)
			}
		}
	}
	if len(all)%2 == 1 {
		all = append(all, time.Duration(len(pcm)/piece)*ms)
	}
	return all
}

func wantStretches(t *testing.T, side string, pcm []int16, within time.Duration, want ...time.Duration) {
	t.Helper()
	got := stretches(pcm)
	ok := len(got) == len(want)
	for i := range min(len(got), len(want)) {
		ok = ok && (got[i]-want[i]).Abs() <= within
	}
	if !ok {
		t.Errorf("%s is heard in %v, want %v", side, got, want)
	}
}

func wantTone(t *testing.T, side string, pcm []int16, from, to time.Duration, hz float64) {
	t.Helper()
	if level := mediatest.ToneLevel(pcm[from*24/ms:to*24/ms], 24000, hz); level < 0.98 {
		t.Errorf("share of %v Hz on the %s from %v is %.3f", hz, side, from, level)
	}
}

func TestBothSidesAreAligned(t *testing.T) {
	for _, rate := range []int{8000, 11025, 16000, 24000, 44100, 48000} {
		synctest.Test(t, func(t *testing.T) {
			s := newStudio(t)
			s.say(markTone(440, time.Second, rate), rate, 500*ms)
			s.answer(markTone(1000, 2*time.Second, 24000), 1800*ms, 0)
			got := s.close(5 * time.Second)
			if d := got.length(); d != 5*time.Second {
				t.Errorf("%d Hz: it is %v long", rate, d)
			}
			wantStretches(t, "the person", got.left, 5*ms, 500*ms, 1500*ms)
			wantStretches(t, "the model", got.right, 5*ms, 1800*ms, 3800*ms)
			wantTone(t, "left", got.left, 600*ms, 1400*ms, 440)
			wantTone(t, "right", got.right, 1900*ms, 3700*ms, 1000)
		})
	}
}

// TestNoCrosstalk measures the level of a tone of one channel in the other channel, with noise of -40 dBFS and without.
func TestNoCrosstalk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, noise := range []float64{0, 300} {
			for _, hz := range []float64{300, 1000, 3000, 6000, 9000} {
				s := newStudio(t)
				other := make([]int16, 3*24000)
				for i := range other {
					other[i] = int16(noise * rand.NormFloat64())
				}
				for i, pcm := 0, markTone(hz, 3*time.Second, 24000); i < len(pcm); i += 480 {
					at := s.began.Add(time.Duration(i) * time.Second / 24000)
					s.r.WriteCaller(pcm[i:i+480], 24000, at)
					s.r.WriteModel(other[i:i+480], at)
					s.until(time.Duration(i) * time.Second / 24000)
				}
				got := s.close(3 * time.Second)
				from, to := 24000, 48000
				loud := media.RMS(got.left[from:to])
				leak := media.RMS(got.right[from:to]) * math.Sqrt(mediatest.ToneLevel(got.right[from:to], 24000, hz))
				db := 20 * math.Log10((leak+1e-3)/loud)
				t.Logf("%v Hz, noise %v: %.0f dB", hz, noise, db)
				if db > -40 {
					t.Errorf("%v Hz leaks by %.1f dB", hz, db)
				}
			}
		}
	})
}

func TestBurstsAndDelaysAreAligned(t *testing.T) {
	for _, c := range []struct {
		name string
		// comes returns the arrival time of a chunk whose end was spoken at the time `spoken`.
		comes func(spoken time.Duration) time.Duration
		want  []time.Duration // expected stretches
	}{
		{"at once", func(d time.Duration) time.Duration { return d }, []time.Duration{1000 * ms, 3000 * ms}},
		{"jitter", func(d time.Duration) time.Duration { return d + d*7919%(60*ms) }, []time.Duration{1030 * ms, 3030 * ms}},
		{
			"bursts of 100 ms", func(d time.Duration) time.Duration { return (d + 99*ms) / (100 * ms) * (100 * ms) },
			[]time.Duration{1050 * ms, 3050 * ms},
		},
		{"held up for 600 ms", func(d time.Duration) time.Duration {
			if d > 2000*ms && d < 2600*ms {
				return 2600 * ms
			}
			return d
		}, []time.Duration{1000 * ms, 3000 * ms}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStudio(t)
				last := time.Duration(0)
				pcm := markTone(440, 2*time.Second, 16000)
				for at := 1000 * ms; len(pcm) > 0; at += 20 * ms {
					last = max(last, c.comes(at+20*ms))
					s.until(last)
					s.r.WriteCaller(pcm[:320], 16000, time.Now().Add(-20*ms)) // the time as a gateway estimates it
					pcm = pcm[320:]
				}
				got := s.close(5 * time.Second)
				wantStretches(t, "the person", got.left, 60*ms, c.want...)
				from, to := stretches(got.left)[0]+100*ms, stretches(got.left)[1]-100*ms
				wantTone(t, "left", got.left, from, to, 440) // without a gap or a jump, which would change the tone
			})
		})
	}
}

func TestPausesKeepTheirLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStudio(t)
		s.say(markTone(440, 200*ms, 16000), 16000, 0)
		s.say(markTone(440, 200*ms, 16000), 16000, 400*ms)
		s.say(markTone(440, 200*ms, 48000), 48000, 3*time.Second) // from a microphone with another rate
		s.answer(markTone(440, 200*ms, 24000), 5*time.Second, 100*ms)
		s.answer(markTone(440, 200*ms, 24000), 5400*ms, 100*ms)
		got := s.close(6 * time.Second)
		wantStretches(t, "the person", got.left, 5*ms, 0, 200*ms, 400*ms, 600*ms, 3000*ms, 3200*ms)
		wantStretches(t, "the model", got.right, 5*ms, 5000*ms, 5200*ms, 5400*ms, 5600*ms)
	})
}

func TestTruncateModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStudio(t)
		s.answer(markTone(440, time.Second, 24000), 1000*ms, 200*ms) // the last frame is written at 1.78 s
		s.r.TruncateModel(s.began.Add(1800 * ms))
		s.answer(markTone(440, 500*ms, 24000), 2200*ms, 200*ms)
		s.r.TruncateModel(s.began.Add(2600 * ms))
		s.answer(markTone(440, 500*ms, 24000), 6000*ms, 200*ms)
		got := s.close(6300 * ms) // the recording ends before the end of the voice is heard
		wantStretches(t, "the model", got.right, 6*ms, 1000*ms, 1800*ms, 2200*ms, 2600*ms, 6000*ms, 6300*ms)
	})
}

// A gap in the recording has a short tone at either end, in the model's channel. The unplayed voice before the gap is removed.
func TestMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStudio(t)
		s.answer(markTone(1000, 1000*ms, 24000), 500*ms, 200*ms)
		s.until(1300 * ms)
		s.r.TruncateModel(s.began.Add(1300 * ms))
		s.r.AddGapMark(s.began.Add(1300 * ms))
		s.until(4000 * ms)
		s.r.AddGapMark(s.began.Add(4000 * ms))
		got := s.close(5 * time.Second)
		wantStretches(t, "the model", got.right, 6*ms, 500*ms, 1500*ms, 4000*ms, 4200*ms)
		for _, at := range []time.Duration{1300 * ms, 4000 * ms} {
			wantTone(t, "the model", got.right, at+20*ms, at+180*ms, 440)
		}
	})
}

// TestVoiceFarAhead: the voice for a client that paces it itself is written far ahead of its time, and recorded whole.
func TestVoiceFarAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStudio(t)
		for at := time.Second; at < 31*time.Second; at += 200 * ms {
			s.r.WriteModel(markTone(440, 200*ms, 24000), s.began.Add(at))
			synctest.Wait()
		}
		s.until(29 * time.Second)
		s.r.TruncateModel(s.began.Add(29 * time.Second))
		wantStretches(t, "the model", s.close(32*time.Second).right, 6*ms, time.Second, 29*time.Second)
	})
}

// TestClockDrift simulates a user's clock with 2000 ppm for two minutes, which has the same effect as 200 ppm for 20 minutes.
func TestClockDrift(t *testing.T) {
	for name, ppm := range map[string]int{"exact": 0, "fast": 2000, "slow": -2000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const length, rate = 2 * time.Minute, 16000
				s := newStudio(t)
				word, pause := markTone(440, 200*ms, rate), make([]int16, rate/50)
				voice := markTone(880, 200*ms, 24000)
				// The person's microphone has its own clock, and says a word every 5 s of this clock.
				at := time.Duration(0) // time of the person's clock
				wall := func(d time.Duration) time.Duration { return d - d/1000*time.Duration(ppm)/1000 }
				for wall(at) < length-time.Second {
					chunk := pause
					if n := at % (5 * time.Second); n < 200*ms {
						chunk = word[int(n/ms)*rate/1000:][:rate/50]
					}
					at += 20 * ms
					s.until(wall(at))
					s.r.WriteCaller(chunk, rate, time.Now().Add(-20*ms))
					if n := at % (5 * time.Second); n >= 1000*ms && n < 1200*ms { // the model speaks by the wall clock
						s.r.WriteModel(voice[(n-1000*ms)*24/ms:][:480], s.began.Add(wall(at/(5*time.Second)*(5*time.Second))+n))
					}
				}
				got := s.close(length)
				if d := got.length(); d != length {
					t.Errorf("it is %v long", d)
				}
				left, right := stretches(got.left), stretches(got.right)
				if len(left) != len(right) || len(left) < 2*int(length/(5*time.Second)-1) {
					t.Fatalf("%d and %d words", len(left)/2, len(right)/2)
				}
				worst := time.Duration(0)
				for i := 0; i < len(left); i += 2 {
					worst = max(worst, (left[i] - wall(time.Duration(i/2)*5*time.Second)).Abs(),
						(right[i] - left[i] - time.Second).Abs())
				}
				t.Logf("worst place: %v", worst)
				if limit := 20*ms + time.Duration(min(1, max(ppm, -ppm)))*40*ms; worst > limit {
					t.Errorf("a word is %v from its place", worst)
				}
			})
		})
	}
}

func TestFileIsPlayableAfterCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStudio(t)
		s.say(markTone(440, 5*time.Second, 16000), 16000, 0)
		synctest.Wait()
		got := readOgg(t, s.f.bytes())
		if d := got.length(); got.ended || d < 3*time.Second {
			t.Errorf("after 5 s %v are in the file", d)
		}
		wantTone(t, "left", got.left, 100*ms, 2500*ms, 440)
		s.close(5 * time.Second)
	})
}

func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &file{room: 10_000}
		r, err := record.New(f, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for range 500 {
			r.WriteCaller(markTone(440, 20*ms, 16000), 16000, time.Now())
			time.Sleep(20 * ms)
		}
		select {
		case <-r.Failed():
		default:
			t.Error("nobody learns of it")
		}
		if err := r.Close(); !errors.Is(err, errFull) {
			t.Errorf("Close returned %v", err)
		}
		if err := r.Close(); !errors.Is(err, errFull) {
			t.Errorf("Close returned %v the second time", err)
		}
		if !f.closed {
			t.Error("the file is open")
		}
		r.WriteCaller(make([]int16, 320), 16000, time.Now()) // after Close: has no effect
		readOgg(t, f.bytes())
		full := &file{room: 1}
		if _, err := record.New(full, time.Now()); !errors.Is(err, errFull) || !full.closed {
			t.Errorf("New returned %v; closed: %v", err, full.closed)
		}
	})
}

// TestSlowDiskDoesNotBlock: a disk that hangs blocks neither the conversation nor the end of the recording, and the
// file ends there.
func TestSlowDiskDoesNotBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := make(chan struct{}, 2)
		disk <- struct{}{} // for the headers
		disk <- struct{}{}
		f := &file{stuck: disk}
		began := time.Now()
		r, err := record.New(f, began)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		for range 1000 {
			r.WriteModel(make([]int16, 480), time.Now())
		}
		r.Stop()
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("it took %v", took)
		}
		time.Sleep(time.Minute)
		r.WriteCaller(make([]int16, 16000), 16000, time.Now()) // too late
		close(disk)                                            // the disk works again
		if err := r.Close(); err == nil || !strings.Contains(err.Error(), "dropped") {
			t.Errorf("Close returned %v", err)
		}
		if d := readOgg(t, f.bytes()).length(); d != 3*time.Second {
			t.Errorf("it is %v long", d)
		}
	})
}

// TestChangingRates: a client may use another rate with each message. Each rate has its own filter; that must not cost
// a core.
func TestChangingRates(t *testing.T) {
	r, err := record.New(&file{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	began := mediatest.CPUTime(t)
	const n = 200
	for i := range n {
		r.WriteCaller(make([]int16, 1), 47999-i%9*2, time.Now()) // one sample in a message of 100 bytes
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if took := mediatest.CPUTime(t) - began; took > time.Second {
		t.Errorf("%d messages of one sample took %v of a core", n, took)
	}
}

// TestRandomInput calls the recorder with extreme and invalid times and rates.
func TestRandomInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStudio(t)
		for _, at := range []time.Duration{-time.Hour, -10 * ms, 0, 24 * time.Hour, 400 * 24 * time.Hour, time.Second} {
			for _, n := range []int{0, 1, 320, 4801, 48000} {
				s.r.WriteModel(markTone(440, time.Second, 48000)[:n], s.began.Add(at))
				for _, rate := range []int{0, 7999, 8000, 44101, 48000, 48001} {
					s.r.WriteCaller(markTone(440, time.Second, 48000)[:n], rate, s.began.Add(at))
				}
				s.r.TruncateModel(s.began.Add(at))
				time.Sleep(100 * ms)
			}
		}
		if d := s.close(4 * time.Second).length(); d > 30*time.Second {
			t.Errorf("it is %v long", d)
		}
	})
}

func TestCreate(t *testing.T) {
	dir := t.TempDir()
	began := time.Now().In(time.FixedZone("CET", 3600))
	r, err := record.Create(dir, "A1B2", began)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := record.Create(dir, "A1B2", began); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second one of the same name: %v", err)
	}
	path := filepath.Join(dir, began.UTC().Format("2006-01-02T15-04-05.000Z")+"-A1B2.ogg")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	readOgg(t, b)
	for _, id := range []string{"", "..", "../x", "a/b", "x.y", strings.Repeat("x", 200)} {
		if _, err := record.Create(dir, id, began); err == nil {
			t.Errorf("%q became a file", id)
		}
	}
	if _, err := record.Create(filepath.Join(dir, "none"), "A", began); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in a folder that is not there: %v", err)
	}
}
