package media

import (
	"encoding/base64"
	"strings"
)

// SampleReader decodes a stream of 16-bit little-endian PCM in chunks of any length. A sample may be split between two
// chunks. If a client loses a byte, at most one chunk becomes noise, because later chunks are aligned again. The zero
// value is ready for use.
type SampleReader struct {
	halfSample byte
	hasHalf    bool
	hasOdd     bool // a chunk of odd length was read
}

// Append decodes data and appends the samples to pcm. A sample may be split between two calls.
func (r *SampleReader) Append(pcm []int16, data []byte) []int16 {
	if len(data) == 0 {
		return pcm
	}
	r.hasOdd = r.hasOdd || len(data)%2 != 0
	if r.hasOdd && r.isMisaligned(data) {
		if r.hasHalf {
			r.hasHalf = false
		} else {
			data = data[1:]
		}
	}
	if r.hasHalf && len(data) > 0 {
		pcm = append(pcm, int16(uint16(r.halfSample)|uint16(data[0])<<8))
		data, r.hasHalf = data[1:], false
	}
	if len(data)%2 != 0 {
		r.halfSample, r.hasHalf = data[len(data)-1], true
		data = data[:len(data)-1]
	}
	return AppendSamples(pcm, data)
}

// isMisaligned reports whether data looks like sound that is one byte off. The low bytes of such sound are read as high
// bytes, which gives full-scale noise.
func (r *SampleReader) isMisaligned(data []byte) bool {
	const fewest = 64 // bytes needed to judge
	if len(data) < fewest {
		return false
	}
	whole, shifted := roughness(data), roughness(data[1:])
	if r.hasHalf {
		whole, shifted = shifted, whole
	}
	return whole > 4*shifted
}

// roughness returns the sum of differences between neighbouring samples of data.
func roughness(data []byte) (sum int) {
	for i := 3; i < len(data); i += 2 {
		difference := int(int8(data[i]))<<8 + int(data[i-1]) - int(int8(data[i-2]))<<8 - int(data[i-3])
		sum += max(difference, -difference)
	}
	return sum
}

// Reset drops the half sample that was kept from the last chunk, because the stream starts again.
func (r *SampleReader) Reset() { r.hasHalf = false }

// DecodeBase64 decodes base64 as different clients send it: in either alphabet of RFC 4648, with or without padding,
// and with line breaks.
func DecodeBase64(text string) ([]byte, error) {
	data, err := base64.StdEncoding.DecodeString(text)
	if err == nil {
		return data, nil
	}
	text = base64Forms.Replace(text)
	return base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
}

// base64Forms converts the URL-safe alphabet to the standard one and removes white space.
var base64Forms = strings.NewReplacer("-", "+", "_", "/", " ", "", "\t", "", "\r", "", "\n", "")
