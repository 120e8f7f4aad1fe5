package peer

import (
	"bytes"
	"testing"
)

func TestPack(t *testing.T) {
	var track voiceTrack
	if got, want := track.pack(111, 960, []byte("one")), append([]byte{111}, "one"...); !bytes.Equal(got, want) {
		t.Errorf("the first packet is %v, want %v", got, want)
	}
	// 1 for "more follows" and the type, 14 bits of 960, 10 bits of 3, the type of the packet itself.
	want := append([]byte{0x80 | 111, 960 >> 6, 960 & 0x3f << 2, 3, 111}, "onetwo"...)
	if got := track.pack(111, 1920, []byte("two")); !bytes.Equal(got, want) {
		t.Errorf("the second packet is %v, want %v", got, want)
	}
}
