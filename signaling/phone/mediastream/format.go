package mediastream

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"voxgate/media"
	"voxgate/media/g711"
	"voxgate/signaling/phone"
)

// format is an audio format.
type format struct {
	law  *g711.Codec // G.711 variant; nil for linear PCM, 16 bits, little-endian
	rate int         // sample rate in Hz
}

// maxRate is the highest sample rate of a format, in Hz.
const maxRate = 48000

// encodings maps normalized encoding names (see [normalizeEncoding]) to formats. A rate of 0 means that the name does
// not determine the rate.
var encodings = map[string]format{
	"mulaw": {&g711.MuLaw, 8000}, "ulaw": {&g711.MuLaw, 8000}, "pcmu": {&g711.MuLaw, 8000},
	"basic": {&g711.MuLaw, 8000}, "g711u": {&g711.MuLaw, 8000}, "g711ulaw": {&g711.MuLaw, 8000}, "g711mulaw": {&g711.MuLaw, 8000},
	"alaw": {&g711.ALaw, 8000}, "pcma": {&g711.ALaw, 8000}, "g711a": {&g711.ALaw, 8000}, "g711alaw": {&g711.ALaw, 8000},
	"l16": {}, "linear16": {}, "raw": {}, "rawslin": {}, "base64": {}, // the last three are Exotel's names
	"slin": {nil, 8000}, "slin12": {nil, 12000}, "slin16": {nil, 16000}, "slin24": {nil, 24000}, "slin32": {nil, 32000},
	"slin44": {nil, 44100}, "slin48": {nil, 48000},
}

// normalizeEncoding normalizes the name of an encoding: "audio/x-mulaw", "PCMU/8000", "g711_ulaw".
func normalizeEncoding(name string) string {
	name = strings.ToLower(strings.TrimSpace(name))
	name = strings.TrimPrefix(strings.TrimPrefix(name, "audio/"), "x-")
	name = strings.TrimSuffix(name, "/8000")
	return strings.NewReplacer("-", "", "_", "", "/", "", ".", "", " ", "").Replace(name)
}

// parseRate parses a sample rate in Hz: "8000", "8000.0", "8000 Hz". For an empty text it returns 0, which means
// unknown.
func parseRate(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	rate, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.ToLower(text), "hz")), 64)
	if err != nil || rate != math.Trunc(rate) || rate < 0 || rate > maxRate {
		return 0, fmt.Errorf("invalid sample rate %q", phone.SanitizeField(text))
	}
	return int(rate), nil
}

// parseFormat parses a format as providers write it: "audio/l16;rate=16000", or a name and a rate. Missing parts are
// taken from fallback.
func parseFormat(encoding string, rate int, fallback format) (format, error) {
	name, parameters, _ := strings.Cut(encoding, ";")
	if value := phone.ParameterValue(parameters, "rate"); value != "" {
		var err error
		if rate, err = parseRate(value); err != nil {
			return format{}, err
		}
	}
	f := fallback
	if name != "" {
		known, ok := encodings[normalizeEncoding(name)]
		if !ok {
			return format{}, fmt.Errorf("unsupported encoding %q", phone.SanitizeField(name))
		}
		if f.law = known.law; known.rate > 0 {
			f.rate = known.rate
		}
	}
	if rate > 0 {
		f.rate = rate
	}
	if f.law != nil && f.rate != 8000 || f.rate < 8000 || f.rate > maxRate {
		return format{}, fmt.Errorf("unsupported encoding %q at %d Hz", phone.SanitizeField(encoding), f.rate)
	}
	return f, nil
}

// decodeSound decodes the next piece of an audio stream and appends it to pcm.
func (f format) decodeSound(pcm []int16, stream *media.SampleReader, sound []byte) []int16 {
	if f.law != nil {
		return f.law.AppendDecoded(pcm, sound)
	}
	return stream.Append(pcm, sound)
}

// encodeSound encodes pcm and appends it to sound.
func (f format) encodeSound(sound []byte, pcm []int16) []byte {
	if f.law != nil {
		return f.law.AppendEncoded(sound, pcm)
	}
	return media.AppendBytes(sound, pcm)
}

// frameSize returns the size of 20 ms of sound, in bytes.
func (f format) frameSize() int {
	if f.law != nil {
		return f.rate / 50
	}
	return f.rate / 50 * 2
}
