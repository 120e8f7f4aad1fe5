package rtpaudio

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

func TestParseRED(t *testing.T) {
	long := bytes.Repeat([]byte{7}, 1023)
	for _, c := range []struct {
		name    string
		payload []byte
		want    []redBlock // nil means that the payload is rejected
	}{
		{"the primary alone", []byte{111, 1, 2, 3}, []redBlock{{111, 0, []byte{1, 2, 3}}}},
		{"an empty primary", []byte{111}, []redBlock{{111, 0, []byte{}}}},
		{
			"one copy, as Chrome sends it",
			[]byte{0x80 | 111, 960 >> 6, 960 << 2 & 0xff, 2, 111, 1, 2, 3},
			[]redBlock{{111, 960, []byte{1, 2}}, {111, 0, []byte{3}}},
		},
		{"an empty copy", []byte{0x80 | 111, 0, 4, 0, 111, 3}, []redBlock{{111, 1, []byte{}}, {111, 0, []byte{3}}}},
		{
			"two copies of different types",
			[]byte{0x80 | 111, 1920 >> 6, 0, 1, 0x80 | 101, 960 >> 6, 0, 2, 111, 1, 2, 3, 4},
			[]redBlock{{111, 1920, []byte{1}}, {101, 960, []byte{2, 3}}, {111, 0, []byte{4}}},
		},
		{
			"the longest copy, the farthest", slices.Concat([]byte{0x80 | 127, 0xff, 0xff, 0xff, 127}, long),
			[]redBlock{{127, 1<<14 - 1, long}, {127, 0, []byte{}}},
		},
		{"nothing", []byte{}, nil},
		{"half a header", []byte{0x80 | 111, 0, 4}, nil},
		{"no primary", []byte{0x80 | 111, 0, 4, 0}, nil},
		{"a copy longer than the packet", []byte{0x80 | 111, 0, 4, 3, 111, 1, 2}, nil},
		{"copies longer together", []byte{0x80 | 111, 0, 8, 2, 0x80 | 111, 0, 4, 2, 111, 1, 2, 3}, nil},
		{"too many copies", append(bytes.Repeat([]byte{0x80 | 111, 0, 4, 0}, maxREDBlocks), 111), nil},
		{"headers without end", bytes.Repeat([]byte{0xff}, 1000), nil},
	} {
		got, err := parseRED(c.payload, nil)
		if c.want == nil != errors.Is(err, errBadRED) || !slices.EqualFunc(got, c.want, func(a, b redBlock) bool {
			return a.payloadType == b.payloadType && a.offset == b.offset && bytes.Equal(a.payload, b.payload)
		}) {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
}
