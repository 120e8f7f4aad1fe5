package rtpaudio

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"voxgate/media"
)

// TestEditPause checks that a piece of a pause can be left out or repeated without a step, and that the ends stay.
func TestEditPause(t *testing.T) {
	const size, splice = 320, 40
	room := make([]int16, size)
	for i := range room {
		room[i] = int16(1000 * math.Sin(2*math.Pi*110*float64(i)/16000)) // of which a step would be seen
	}
	natural := step(room)
	for n := -1; n <= size+10; n++ {
		pcm := append([]int16(nil), room...)
		left := leaveOut(pcm, n, splice)
		if want := size - max(0, min(n, size-splice)); left != want {
			t.Fatalf("%d of %d samples are left, want %d", left, size, want)
		}
		if n > 0 && (pcm[0] != room[0] || pcm[left-1] != room[size-1]) || step(pcm[:left]) > 2000/(splice-1)+natural {
			t.Errorf("%d left out: from %d to %d, a step of %d", n, pcm[0], pcm[left-1], step(pcm[:left]))
		}
		pcm = append(append([]int16(nil), room...), make([]int16, size)...)
		more := repeat(pcm, size, n, splice)
		want := min(n, size-splice)
		if n < splice {
			want = 0
		}
		if more != want {
			t.Fatalf("%d samples were added, want %d", more, want)
		}
		if pcm[0] != room[0] || pcm[size+more-1] != room[size-1] || step(pcm[:size+more]) > 2000/(splice-1)+natural {
			t.Errorf("%d added: from %d to %d, a step of %d", n, pcm[0], pcm[size+more-1], step(pcm[:size+more]))
		}
	}
}

func step(pcm []int16) (most int16) {
	for i := 1; i < len(pcm); i++ {
		most = max(most, abs(pcm[i]-pcm[i-1]))
	}
	return most
}

func abs(x int16) int16 { return max(x, -x) }

// TestDelayMeter checks how late packets are said to be, in what time that is learnt and forgotten, and that the path's own
// delay is followed.
func TestDelayMeter(t *testing.T) {
	m := delayMeter{clock: 48000}
	begin, ts, sent := time.Now(), uint32(1<<32-50000), time.Duration(0)
	rng := rand.New(rand.NewPCG(1, 1))
	hear := func(d, jitter, path time.Duration) {
		for end := sent + d; sent < end; sent += media.FrameDuration {
			late := path
			if jitter > 0 {
				late += time.Duration(rng.Int64N(int64(jitter)))
			}
			m.observe(ts, begin.Add(sent+late), true)
			ts += 960
		}
	}
	check := func(what string, least, most time.Duration) {
		t.Helper()
		if m.late < least || m.late > most {
			t.Errorf("%s: %v late, want %v to %v", what, m.late, least, most)
		}
	}
	ideal := func(what string, path time.Duration) {
		t.Helper()
		if got := m.ideal(ts).Sub(begin.Add(sent)); got < path-time.Millisecond || got > path+5*time.Millisecond {
			t.Errorf("%s: the next packet is expected %v after it is sent, want %v", what, got, path)
		}
	}
	hear(5*time.Second, 0, 50*time.Millisecond)
	check("a clean path", 0, latenessStep)
	ideal("a clean path", 50*time.Millisecond)
	hear(20*time.Millisecond, 1, 350*time.Millisecond)
	hear(20*time.Millisecond, 0, 330*time.Millisecond)
	check("one thing that held up two packets", 0, latenessStep)
	hear(time.Second, 150*time.Millisecond, 50*time.Millisecond)
	check("a second of jitter", 120*time.Millisecond, 150*time.Millisecond)
	hear(5*time.Second, 0, 50*time.Millisecond)
	check("five seconds later", 0, latenessStep)
	hear(5*time.Second, 0, 120*time.Millisecond)
	ideal("a longer path", 120*time.Millisecond)
	hear(5*time.Second, 0, 50*time.Millisecond)
	check("the shorter path again", 0, latenessStep)
	ideal("the shorter path again", 50*time.Millisecond)
	sent += time.Hour // the microphone was muted, and its timestamps stood still
	hear(media.FrameDuration, 0, 50*time.Millisecond)
	ideal("after mute", 50*time.Millisecond)
	ts += 48000 * 3600 // they jump
	hear(media.FrameDuration, 0, 50*time.Millisecond)
	ideal("after a jump", 50*time.Millisecond)
	ts -= 48000 * 7200
	hear(media.FrameDuration, 0, 50*time.Millisecond)
	ideal("after a jump back", 50*time.Millisecond)
	check("clocks that jump", 0, latenessStep)
}
