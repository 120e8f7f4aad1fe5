package opus

import (
	"bytes"
	"testing"
	"time"

	"voxgate/media"
)

func TestOpusPacket(t *testing.T) {
	var codec Codec
	for _, c := range []struct {
		name     string
		packet   []byte
		duration time.Duration
		fec      bool
		first    []byte
	}{
		{"CELT 20 ms", []byte{31 << 3, 1, 2}, 20 * time.Millisecond, false, []byte{1, 2}},
		{"CELT 2.5 ms", []byte{16 << 3, 0xff}, 2500 * time.Microsecond, false, []byte{0xff}},
		{"SILK 20 ms with FEC", []byte{1 << 3, 0x40, 2}, 20 * time.Millisecond, true, []byte{0x40, 2}},
		{"SILK 20 ms without", []byte{1 << 3, 0x80, 2}, 20 * time.Millisecond, false, []byte{0x80, 2}},
		{"SILK 60 ms with FEC", []byte{3 << 3, 0x10}, 60 * time.Millisecond, true, []byte{0x10}},
		{"stereo, FEC in the side", []byte{1<<3 | 4, 0x10}, 20 * time.Millisecond, true, []byte{0x10}},
		{"TOC alone", []byte{1 << 3}, 20 * time.Millisecond, false, []byte{}},
		{"two equal", []byte{1<<3 | 1, 0x40, 2}, 40 * time.Millisecond, true, []byte{0x40, 2}},
		{"two different", []byte{1<<3 | 2, 1, 0x40, 2}, 40 * time.Millisecond, true, []byte{0x40, 2}},
		{
			"two different, long", append([]byte{1<<3 | 2, 252, 1, 0x40}, make([]byte, 300)...), 40 * time.Millisecond, true,
			append([]byte{0x40}, make([]byte, 300)...),
		},
		{"three, padded", []byte{1<<3 | 3, 0x40 | 3, 2, 0x40, 5, 5, 0, 0}, 60 * time.Millisecond, true, []byte{0x40, 5, 5, 0, 0}},
		{"three, of any length", []byte{1<<3 | 3, 0x80 | 3, 1, 1, 0x40, 5, 6}, 60 * time.Millisecond, true, []byte{0x40, 5, 6}},
		{"header cut off", []byte{1<<3 | 3}, 20 * time.Millisecond, false, nil},
		{"lengths cut off", []byte{1<<3 | 3, 0x80 | 3, 1}, 60 * time.Millisecond, false, nil},
		{"48 frames of 60 ms", []byte{3<<3 | 3, 48, 1}, 120 * time.Millisecond, false, []byte{1}},
	} {
		if d := codec.PacketDuration(c.packet); d != c.duration {
			t.Errorf("%s: %v", c.name, d)
		}
		if got := fromFirstFrame(c.packet); !bytes.Equal(got, c.first) || got == nil != (c.first == nil) {
			t.Errorf("%s: first frame % x", c.name, got)
		}
		if got := codec.RedundancyDuration(c.packet); (got > 0) != c.fec {
			t.Errorf("%s: FEC %v", c.name, got)
		}
	}
	if codec.RedundancyDuration(nil) > 0 {
		t.Error("FEC in nothing")
	}
}

// FuzzOpusPacket decodes a packet with both decoders. Both must accept it or both must refuse it, unless it is very short. The
// duration of the result must match the header of the packet.
func FuzzOpusPacket(f *testing.F) {
	for _, seed := range [][]byte{
		{0x08},
		{0xff},
		{0xf8, 0xff, 0xfe},
		{0x0b, 0x43, 2, 0x40, 5, 5, 0, 0},
		{0x0b, 0x83, 1, 1, 0x40, 5, 6},
		{0x79, 1, 2, 3, 4},
		{0x7a, 1, 2, 3, 4},
		{0x1c, 0x10, 9, 9, 9, 9, 9},
		{0x83, 0x30, 1},
		{0xfb, 0xc2, 255, 3, 1},
	} {
		f.Add(seed)
	}
	var codec Codec
	f.Fuzz(func(t *testing.T, packet []byte) {
		fec := codec.RedundancyDuration(packet) > 0
		if len(packet) > 2048 { // larger than an Ethernet frame
			return
		}
		var took [2]bool
		for i, choice := range []DecoderChoice{LibOpus, Pion} {
			dec, err := NewDecoder(16000, choice)
			if err != nil {
				t.Fatal(err)
			}
			pcm := make([]int16, media.Samples(media.MaxPacketDuration, 16000))
			n, err := dec.Decode(packet, pcm)
			if took[i] = err == nil; !took[i] {
				continue
			}
			if want := media.Samples(codec.PacketDuration(packet), 16000); n != want {
				t.Errorf("%s decoded % x to %d samples, want %d", choice, packet, n, want)
			}
			if frame := fromFirstFrame(packet); fec && len(frame) == 0 {
				t.Errorf("FEC in % x, which has no first frame", packet)
			}
			if err := dec.Conceal(packet, pcm[:320]); err != nil && fec && choice == LibOpus {
				t.Errorf("the FEC of % x: %v", packet, err)
			}
		}
		if took[0] != took[1] && len(packet) > dtxBytes {
			t.Errorf("libopus takes % x: %v, pion %v", packet, took[0], took[1])
		}
	})
}
