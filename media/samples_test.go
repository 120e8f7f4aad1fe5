package media_test

import (
	"encoding/base64"
	"math"
	"slices"
	"strings"
	"testing"

	"voxgate/media"
)

// TestSampleReader cuts a stream into pieces of several sizes, and checks that the samples are the same for each size.
func TestSampleReader(t *testing.T) {
	want := make([]int16, 1000)
	for i := range want {
		want[i] = int16(i*37 - 20000)
	}
	stream := media.AppendBytes(nil, want)
	for _, size := range []int{1, 2, 3, 7, 159, 161, 1323, len(stream)} {
		var r media.SampleReader
		var got []int16
		for piece := range slices.Chunk(stream, size) {
			got = r.Append(got, nil)
			got = r.Append(got, piece)
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pieces of %d bytes: %d samples", size, len(got))
		}
	}
	var r media.SampleReader
	r.Append(nil, []byte{1})
	r.Reset()
	if got := r.Append(nil, []byte{2, 0}); len(got) != 1 || got[0] != 2 {
		t.Errorf("after a reset: %v", got)
	}
}

// TestLostHalfOfASample sends a few bytes too many or one too few within a stream of speech. One piece later the samples must be
// right again.
func TestLostHalfOfASample(t *testing.T) {
	want := make([]int16, 1600)
	for i := range want {
		want[i] = int16(3000 * math.Sin(float64(i)/9))
	}
	stream := media.AppendBytes(nil, want)
	strays := map[string][]byte{"a byte too many": {77}, "three too many": {1, 2, 3}, "a piece with a byte too few": stream[:319]}
	for name, stray := range strays {
		for _, size := range []int{160, 161, 333, 640} {
			var r media.SampleReader
			r.Append(nil, stray)
			var got []int16
			for piece := range slices.Chunk(stream, size) {
				got = r.Append(got, piece)
			}
			if n := len(got); n < len(want)-1 || !slices.Equal(got[n-1200:], want[len(want)-1200:]) {
				t.Errorf("%s, in pieces of %d bytes: %d samples, or other ones", name, size, n)
			}
		}
	}
}

// TestDecodeBase64 decodes base64 in the standard and URL-safe alphabets, with and without padding, spaces and line breaks.
// Invalid text must give an error.
func TestDecodeBase64(t *testing.T) {
	data := []byte{0xfb, 0xff, 0xfe, 1, 2, 3, 4}
	for _, size := range []int{0, 1, 2, 3, 5, 7} {
		want := data[:size]
		standard := base64.StdEncoding.EncodeToString(want)
		for name, text := range map[string]string{
			"standard": standard, "without padding": strings.TrimRight(standard, "="), "URL-safe": base64.URLEncoding.EncodeToString(want),
			"URL-safe without padding": base64.RawURLEncoding.EncodeToString(want), "lines": strings.Join(strings.Split(standard, ""), "\r\n"),
			"spaces": " " + strings.Join(strings.Split(standard, ""), " ") + "\n", "too much padding": standard + "==",
		} {
			if got, err := media.DecodeBase64(text); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s of %d bytes: %x, %v", name, size, got, err)
			}
		}
	}
	for _, bad := range []string{"a", "!!!!", "ab=c", "\x00"} {
		if got, err := media.DecodeBase64(bad); err == nil {
			t.Errorf("%q is %x", bad, got)
		}
	}
}
