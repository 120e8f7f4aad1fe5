package uplink

import "testing"

// The way of a chunk of audio through the uplink to the link's writer allocates nothing, whether somebody speaks or not.
func TestAudioPathDoesNotAllocate(t *testing.T) {
	for name, level := range map[string]int16{"silence": 0, "speech": 8000} {
		u := New()
		pcm := make([]int16, 320)
		for i := range pcm {
			pcm[i] = level * int16(1-i/20%2*2)
		}
		once := func() {
			u.Audio(pcm, 16000)
			if _, _, ok := u.Next(); !ok {
				t.Fatal("nothing to send")
			}
		}
		for range 2000 { // the ring fills
			once()
		}
		if n := testing.AllocsPerRun(2000, once); n > 0 {
			t.Errorf("%s: %v allocations a chunk", name, n)
		}
	}
}
