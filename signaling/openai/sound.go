package openai

import (
	"encoding/json"

	"voxgate/bridge"
	"voxgate/media"
	"voxgate/media/g711"
)

// The formats of sound, by their names.
const (
	formatPCM   = "audio/pcm"
	formatMuLaw = "audio/pcmu"
	formatALaw  = "audio/pcma"
)

// laws are the formats of telephones.
var laws = map[string]*g711.Codec{formatMuLaw: &g711.MuLaw, formatALaw: &g711.ALaw}

// The sample rates, in Hz: voiceRate is that of audio/pcm, the only one of OpenAI's API, and phoneRate that of G.711.
const (
	voiceRate = bridge.VoiceRate
	phoneRate = 8000
)

// encodedSound is sound that a message has in base64, in any of its forms.
type encodedSound []byte

// UnmarshalJSON implements [json.Unmarshaler].
func (s *encodedSound) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return err
	}
	sound, err := media.DecodeBase64(text)
	*s = sound
	return err
}

// decoder decodes a client's sound. The zero value has heard nothing.
type decoder struct {
	stream media.SampleReader
	pcm    []int16
}

// decode returns what a piece of sound holds, good until the next call, and its rate in Hz.
func (d *decoder) decode(format string, sound []byte) (pcm []int16, rate int) {
	if law := laws[format]; law != nil {
		d.stream.Reset()
		d.pcm = law.Append(d.pcm[:0], sound)
		return d.pcm, phoneRate
	}
	d.pcm = d.stream.Append(d.pcm[:0], sound)
	return d.pcm, voiceRate
}

// encoder encodes the model's voice for a client. The zero value has said nothing.
type encoder struct {
	down *media.Resampler // nil: nothing was resampled
}

func (e *encoder) encode(format string, pcm []int16) []byte {
	law := laws[format]
	if law == nil {
		return media.AppendBytes(nil, pcm)
	}
	if e.down == nil {
		e.down = media.NewResampler(bridge.VoiceRate, phoneRate)
	}
	return law.AppendBytes(nil, e.down.Resample(pcm))
}
