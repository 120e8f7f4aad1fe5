package record_test

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"strings"
	"testing"
	"time"

	"voxgate/media/opus/libopus"
)

// sound is the content of a recorded file, at 24 kHz.
type sound struct {
	left, right []int16
	pages       int
	ended       bool // the last page has the end-of-stream flag
}

func (s sound) length() time.Duration { return time.Duration(len(s.left)) * time.Second / 24000 }

// readOgg reads a file, and fails the test at violations of the format that players tolerate.
func readOgg(t testing.TB, b []byte) sound {
	t.Helper()
	var s sound
	var packets [][]byte
	var open []byte
	var granule, serial uint64
	for len(b) > 0 {
		if len(b) < 27 || string(b[:5]) != "OggS\x00" {
			t.Fatalf("page %d does not begin with OggS", s.pages)
		}
		if s.ended {
			t.Fatal("there is a page after the last")
		}
		segments := int(b[26])
		size := 27 + segments
		for _, n := range b[27:size] {
			size += int(n)
		}
		page := append([]byte(nil), b[:size]...)
		if sum := binary.LittleEndian.Uint32(page[22:]); sum != oggSum(page) {
			t.Fatalf("page %d has the checksum %x", s.pages, sum)
		}
		g := binary.LittleEndian.Uint64(page[6:])
		id := uint64(binary.LittleEndian.Uint32(page[14:]))
		if s.pages == 0 {
			serial = id
		}
		if n := binary.LittleEndian.Uint32(page[18:]); int(n) != s.pages || id != serial || g < granule || (page[5]&2 != 0) != (s.pages == 0) {
			t.Fatalf("page %d: number %d, serial %x, granule %d after %d, flags %x", s.pages, n, id, g, granule, page[5])
		}
		granule = g
		s.ended = page[5]&4 != 0
		data := page[27+segments:]
		for _, n := range page[27 : 27+segments] {
			open = append(open, data[:n]...)
			data = data[n:]
			if n < 255 {
				packets = append(packets, open)
				open = nil
			}
		}
		b = b[size:]
		s.pages++
	}
	if len(open) > 0 || len(packets) < 2 {
		t.Fatalf("%d packets and %d bytes", len(packets), len(open))
	}
	head := packets[0]
	if string(head[:8]) != "OpusHead" || head[8] != 1 || head[9] != 2 || len(head) != 19 || head[18] != 0 {
		t.Fatalf("header %q", head)
	}
	if !strings.HasPrefix(string(packets[1]), "OpusTags") {
		t.Fatalf("tags %q", packets[1])
	}
	skip := int(binary.LittleEndian.Uint16(head[10:])) / 2
	d, err := libopus.NewDecoder(24000, 2)
	if err != nil {
		t.Fatal(err)
	}
	pcm := make([]int16, 2*24000/10)
	for i, p := range packets[2:] {
		n, err := d.Decode(p, pcm)
		if err != nil || n != 480 {
			t.Fatalf("packet %d: %d samples, %v", i, n, err)
		}
		for j := range n {
			s.left = append(s.left, pcm[2*j])
			s.right = append(s.right, pcm[2*j+1])
		}
	}
	total := int(granule) / 2
	if total > len(s.left) || s.ended && len(s.left)-total >= 480 || !s.ended && total != len(s.left) {
		t.Fatalf("granule %d with %d samples", granule, len(s.left))
	}
	s.left, s.right = s.left[skip:total], s.right[skip:total]
	return s
}

// oggSum computes Ogg's checksum by the reflected CRC of hash/crc32.
func oggSum(page []byte) uint32 {
	b := append([]byte(nil), page...)
	clear(b[22:26])
	// hash/crc32 starts with ones, ends with a complement, and reflects the bits. Ogg's checksum does none of this. Four bytes
	// of ones in front make the start state zero.
	prefix := []byte{0xff, 0xff, 0xff, 0xff}
	for i := range b {
		b[i] = bits.Reverse8(b[i])
	}
	return bits.Reverse32(^crc32.ChecksumIEEE(append(prefix, b...)))
}
