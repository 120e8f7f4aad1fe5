package rtpaudio

import (
	"math"
	"testing"
)

// TestEditPause checks that a part of a pause can be left out or repeated without a step, and that its ends stay unchanged.
func TestEditPause(t *testing.T) {
	const size, splice = 320, 40
	room := make([]int16, size)
	for i := range room {
		room[i] = int16(1000 * math.Sin(2*math.Pi*110*float64(i)/16000)) // a tone, in which a step would be visible
	}
	natural := step(room)
	for n := -1; n <= size+10; n++ {
		pcm := append([]int16(nil), room...)
		left := cutSamples(pcm, n, splice)
		if want := size - max(0, min(n, size-splice)); left != want {
			t.Fatalf("%d of %d samples are left, want %d", left, size, want)
		}
		if n > 0 && (pcm[0] != room[0] || pcm[left-1] != room[size-1]) || step(pcm[:left]) > 2000/(splice-1)+natural {
			t.Errorf("%d left out: from %d to %d, a step of %d", n, pcm[0], pcm[left-1], step(pcm[:left]))
		}
		pcm = append(append([]int16(nil), room...), make([]int16, size)...)
		more := repeatSamples(pcm, size, n, splice)
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
