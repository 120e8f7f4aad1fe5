package phone_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"voxgate/media"
	"voxgate/media/mediatest"
	"voxgate/signaling/phone"
)

// Lasting music is replaced by silence, and no sample of the speech before and after it is lost.
func TestWithoutMusic(t *testing.T) {
	t.Parallel()
	const rate = 8000
	voice := mediatest.Speech(3*time.Second, rate)
	line := slices.Concat(voice, mediatest.Chords(20*time.Second, rate), voice)
	for _, passes := range []string{"", "pass"} {
		out := &tape{rate: rate}
		sink := phone.WithoutMusic(out, passes)
		for packet := range slices.Chunk(line, 160) {
			if err := sink.WritePCM(packet); err != nil {
				t.Fatal(err)
			}
		}
		heard := media.AppendBytes(nil, out.pcm)
		if said := media.AppendBytes(nil, voice); !bytes.HasPrefix(heard, said) || !bytes.HasSuffix(heard, said) {
			t.Errorf("%q: what was said is not heard", passes)
		}
		silent := 0
		for _, s := range out.pcm {
			if s == 0 {
				silent++
			}
		}
		if d := media.Duration(silent, rate); (d > 10*time.Second) != (passes == "") {
			t.Errorf("%q: there is silence for %v", passes, d)
		}
	}
}
