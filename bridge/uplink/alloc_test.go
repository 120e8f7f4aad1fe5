package uplink

import "testing"

// chunk is 20 ms of silence or of somebody who speaks.
func chunk(level int16) []int16 {
	pcm := make([]int16, 320)
	for i := range pcm {
		pcm[i] = level * int16(1-i/20%2*2)
	}
	return pcm
}

// On the way of a chunk through the uplink to the connection's writer, only the copy of the chunk is allocated. The copy is
// kept for a replay, and its size is not known before.
func TestAudioPathAllocatesTheChunk(t *testing.T) {
	for name, level := range map[string]int16{"silence": 0, "speech": 8000} {
		u, pcm := New(nil), chunk(level)
		once := func() {
			u.QueueAudio(pcm, 16000)
			if _, _, ok := u.Next(0); !ok {
				t.Fatal("nothing to send")
			}
		}
		for range 2000 { // the buffer fills
			once()
		}
		if n := testing.AllocsPerRun(2000, once); n > 1 {
			t.Errorf("%s: %v allocations a chunk", name, n)
		}
	}
}
