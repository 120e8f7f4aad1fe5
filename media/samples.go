package media

import (
	"encoding/base64"
	"strings"
)

// SampleReader decodes a stream of 16-bit little-endian PCM that comes in pieces of any length: half a sample at the end
// of a piece is completed by the next one. The zero value has read nothing.
type SampleReader struct {
	half   byte
	isHalf bool
}

// Append appends the samples that are whole with data to pcm.
func (r *SampleReader) Append(pcm []int16, data []byte) []int16 {
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
