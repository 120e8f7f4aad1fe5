package rtpaudio_test

import (
	"testing"
	"time"

	"voxgate/media"
	"voxgate/media/mediatest"
	"voxgate/media/opus"
)

// Once losses are reported, each packet holds a copy of the frame before (in-band FEC): a frame that is lost is heard as it
// was, and not as what a decoder makes up.
func TestLostFramesAreInTheNextPacket(t *testing.T) {
	out, s, say := output(t)
	out.Report(10, 100)
	say(4 * time.Second)
	// hear decodes the voice; with a loss of every fourth packet, repair fills in.
	const frame = outRate / 50
	hear := func(repair func(dec media.Decoder, next []byte, pcm []int16) error) []int16 {
		t.Helper()
		dec, err := opus.NewDecoder(outRate, opus.LibOpus)
		if err != nil {
			t.Fatal(err)
		}
		heard := make([]int16, len(s.packets)*frame)
		pcm := make([]int16, outRate*120/1000)
		for i, p := range s.packets {
			if lost := i%4 == 2 && i+1 < len(s.packets); lost && repair != nil {
				err = repair(dec, s.packets[i+1].Payload, pcm[:frame])
			} else {
				_, err = dec.Decode(p.Payload, pcm)
			}
			if err != nil {
				t.Fatal(err)
			}
			copy(heard[i*frame:], pcm[:frame])
		}
		return heard
	}
	whole := hear(nil)
	copied := hear(func(dec media.Decoder, next []byte, pcm []int16) error { return dec.Conceal(next, pcm) })
	madeUp := hear(func(dec media.Decoder, _ []byte, pcm []int16) error { return dec.Conceal(nil, pcm) })
	var want, fec, plc []int16
	for i := 2; i+1 < len(s.packets); i += 4 {
		if was := whole[i*frame:][:frame]; media.RMS(was) > 300 {
			want = append(want, was...)
			fec = append(fec, copied[i*frame:][:frame]...)
			plc = append(plc, madeUp[i*frame:][:frame]...)
		}
	}
	if len(want) < 20*frame {
		t.Fatalf("%d frames with a voice", len(want)/frame)
	}
	withCopy, without := mediatest.SNR(want, fec), mediatest.SNR(want, plc)
	t.Logf("lost frames are heard with %.1f dB of SNR, and without the copies with %.1f dB", withCopy, without)
	if withCopy < without+4 {
		t.Errorf("lost frames are heard with %.1f dB of SNR, made up ones with %.1f dB: the packets hold no copies", withCopy, without)
	}
	if got := media.RMS(fec) / media.RMS(want); got < 0.8 || got > 1.25 {
		t.Errorf("lost frames come back %.2f times as loud", got)
	}
}
