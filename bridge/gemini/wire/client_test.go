package wire_test

import (
	"encoding/base64"
	"encoding/binary"
	"testing"

	"voxgate/bridge/gemini/wire"
)

// TestAppendAudio checks the boundaries of the pieces in which the samples are encoded.
func TestAppendAudio(t *testing.T) {
	frame := make([]byte, 0, 8<<10)
	for _, n := range []int{0, 1, 2, 191, 192, 193, 320, 384, 385, 640} {
		pcm, raw := make([]int16, n), []byte(nil)
		for i := range pcm {
			pcm[i] = int16(i*7919 - 1<<15)
			raw = binary.LittleEndian.AppendUint16(raw, uint16(pcm[i]))
		}
		want := `{"realtimeInput":{"audio":{"data":"` + base64.StdEncoding.EncodeToString(raw) + `","mimeType":"audio/pcm;rate=16000"}}}`
		if got := string(wire.AppendAudio(frame, pcm, 16000)); got != want {
			t.Errorf("%d samples: %s\nwant %s", n, got, want)
		}
		if n := testing.AllocsPerRun(100, func() { wire.AppendAudio(frame, pcm, 16000) }); n > 0 {
			t.Errorf("%v allocations", n)
		}
	}
}
