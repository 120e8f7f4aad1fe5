package media

import (
	"encoding/base64"
	"strings"
)

// SampleReader decodes a stream of 16-bit little-endian PCM that comes in pieces of any length: half a sample at the end
// of a piece is completed by the next one. A client that loses half a sample is noise for at most one piece, since a
// reader that has seen a piece of odd length checks how its samples are aligned. The zero value has read nothing.
type SampleReader struct {
	half   byte
	isHalf bool
	hasOdd bool // a piece of odd length has come
}

// Append appends the samples that are whole with data to pcm.
func (r *SampleReader) Append(pcm []int16, data []byte) []int16 {
	if len(data) == 0 {
		return pcm
	}
	r.hasOdd = r.hasOdd || len(data)%2 != 0
	if r.hasOdd && r.isMisaligned(data) {
		if r.isHalf {
			r.isHalf = false
		} else {
			data = data[1:]
		}
	}
	if r.isHalf && len(data) > 0 {
		pcm = append(pcm, int16(uint16(r.half)|uint16(data[0])<<8))
		data, r.isHalf = data[1:], false
	}
	if len(data)%2 != 0 {
		r.half, r.isHalf = data[len(data)-1], true
		data = data[:len(data)-1]
	}
	return AppendSamples(pcm, data)
}

// isMisaligned reports whether data is sound only if its samples begin one byte later or earlier than the reader expects.
// The lower halves of samples, taken for the upper ones, are noise over the whole range.
func (r *SampleReader) isMisaligned(data []byte) bool {
	const fewest = 64 // bytes that can be judged
	if len(data) < fewest {
		return false
	}
	whole, shifted := roughness(data), roughness(data[1:])
	if r.isHalf {
		whole, shifted = shifted, whole
	}
	return whole > 4*shifted
}

// roughness returns by how much neighbouring samples of data differ, in sum.
func roughness(data []byte) (sum int) {
	for i := 3; i < len(data); i += 2 {
		difference := int(int8(data[i]))<<8 + int(data[i-1]) - int(int8(data[i-2]))<<8 - int(data[i-3])
		sum += max(difference, -difference)
	}
	return sum
}

// Reset forgets half a sample: the stream begins again.
func (r *SampleReader) Reset() { r.isHalf = false }

// DecodeBase64 decodes base64 as clients write it: in either alphabet of RFC 4648, with padding or without, and with line
// breaks.
func DecodeBase64(text string) ([]byte, error) {
	data, err := base64.StdEncoding.DecodeString(text)
	if err == nil {
		return data, nil
	}
	text = base64Forms.Replace(text)
	return base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
}

// base64Forms turns the URL-safe alphabet into the standard one, and takes white space out.
var base64Forms = strings.NewReplacer("-", "+", "_", "/", " ", "", "\t", "", "\r", "", "\n", "")
