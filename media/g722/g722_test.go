package g722_test

import (
	"testing"
	"time"

	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
	"voxgate/media/g722"
)

// TestRoundTrip encodes and decodes tones, and checks that the wide band of the voice is kept.
func TestRoundTrip(t *testing.T) {
	enc, err := g722.Codec{}.NewEncoder(24000)
	if err != nil {
		t.Fatal(err)
	}
	dec, err := g722.Codec{}.NewDecoder(16000)
	if err != nil {
		t.Fatal(err)
	}
	for _, hz := range []float64{440, 5500} { // the second is above the band of G.711
		var heard []int16
		pcm := mediatest.Tone(time.Second, 24000, hz, 8000)
		for len(pcm) >= 480 {
			var packet [media.MaxPacketBytes]byte
			n, err := enc.Encode(pcm[:480], packet[:])
			if err != nil || n != 160 {
				t.Fatalf("%d bytes, %v", n, err)
			}
			if d := (g722.Codec{}).PacketDuration(packet[:n]); d != 20*time.Millisecond {
				t.Fatalf("a packet of %v", d)
			}
			var out [1920]int16
			if n, err = dec.Decode(packet[:n], out[:]); err != nil || n != 320 {
				t.Fatalf("%d samples, %v", n, err)
			}
			heard = append(heard, out[:n]...)
			pcm = pcm[480:]
		}
		if level := mediatest.ToneLevel(heard[1600:], 16000, hz); level < 0.98 {
			t.Errorf("%v Hz: the tone is %.3f of what came", hz, level)
		}
	}
}

// TestConcealment checks that a lost frame is replaced from the frames before it, without a step, and that the sound fades.
func TestConcealment(t *testing.T) {
	enc, err := g722.Codec{}.NewEncoder(16000)
	if err != nil {
		t.Fatal(err)
	}
	dec, err := g722.Codec{}.NewDecoder(16000)
	if err != nil {
		t.Fatal(err)
	}
	tone := mediatest.Tone(100*time.Millisecond, 16000, 300, 8000)
	var heard []int16
	for i := range 5 {
		var packet [media.MaxPacketBytes]byte
		n, err := enc.Encode(tone[320*i:320*(i+1)], packet[:])
		if err != nil {
			t.Fatal(err)
		}
		out := make([]int16, 1920)
		if n, err = dec.Decode(packet[:n], out); err != nil {
			t.Fatal(err)
		}
		heard = append(heard, out[:n]...)
	}
	step := mediatest.MaxStep(heard)
	lost := make([]int16, 320)
	var levels []float64
	for range 4 {
		if err := dec.Conceal(nil, lost); err != nil {
			t.Fatal(err)
		}
		heard = append(heard, lost...)
		levels = append(levels, media.RMS(lost))
	}
	if levels[0] < 2000 || levels[2] > levels[0]/2 || levels[3] > 1 {
		t.Errorf("levels of what was made up: %.0f", levels)
	}
	if after := mediatest.MaxStep(heard); after > 2*step {
		t.Errorf("a step of %d after one of %d", after, step)
	}
	if _, err := dec.Decode(nil, lost); err == nil {
		t.Error("an empty packet was decoded")
	}
}
