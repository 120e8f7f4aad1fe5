package g722_test

import (
	"testing"

	"voxgate/media/g722"
)

// FuzzDecoder decodes two arbitrary packets and conceals a loss after each. The decoder must not report more samples than the
// buffer holds.
func FuzzDecoder(f *testing.F) {
	f.Add([]byte{}, []byte{0xff})
	f.Add(make([]byte, 160), []byte("speech"))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		d, err := g722.Codec{}.NewDecoder(16000)
		if err != nil {
			t.Fatal(err)
		}
		pcm := make([]int16, 320)
		for _, packet := range [][]byte{first, second} {
			if n, err := d.Decode(packet, pcm); err == nil && (n < 0 || n > len(pcm)) {
				t.Errorf("%d samples of a packet of %d bytes", n, len(packet))
			}
			_ = d.Conceal(second, pcm[:160])
		}
	})
}
