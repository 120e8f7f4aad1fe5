package openai

import (
	"encoding/json"

	"voxgate/bridge"
	"voxgate/media"
	"voxgate/media/g711"
)

// Names of the audio formats.
const (
	formatPCM   = "audio/pcm"
	formatMuLaw = "audio/pcmu"
	formatALaw  = "audio/pcma"
)

// g711Codecs maps the telephone formats to their codecs.
var g711Codecs = map[string]*g711.Codec{formatMuLaw: &g711.MuLaw, formatALaw: &g711.ALaw}

// Sample rates in Hz. voiceRate is the rate of audio/pcm, because OpenAI's API has no other. phoneRate is the rate of
// G.711.
const (
	voiceRate = bridge.VoiceRate
	phoneRate = 8000
)

// base64Audio is audio from a message, decoded from any variant of base64.
type base64Audio []byte

// UnmarshalJSON implements [json.Unmarshaler].
func (b *base64Audio) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return err
	}
	sound, err := media.DecodeBase64(text)
	*b = sound
	return err
}

// audioDecoder decodes a client's audio. The zero value is ready to use.
type audioDecoder struct {
	stream media.SampleReader
	pcm    []int16
}

// decodeAudio returns the samples of a piece of audio and their rate in Hz. The samples are valid until the next call.
func (d *audioDecoder) decodeAudio(format string, encoded []byte) (pcm []int16, rate int) {
	if law := g711Codecs[format]; law != nil {
		d.stream.Reset()
		d.pcm = law.AppendDecoded(d.pcm[:0], encoded)
		return d.pcm, phoneRate
	}
	d.pcm = d.stream.Append(d.pcm[:0], encoded)
	return d.pcm, voiceRate
}

// audioEncoder encodes the model's voice for a client. The zero value is ready to use.
type audioEncoder struct {
	resampler *media.Resampler // nil until the first resampling
}

func (e *audioEncoder) encodeAudio(format string, pcm []int16) []byte {
	law := g711Codecs[format]
	if law == nil {
		return media.AppendBytes(nil, pcm)
	}
	if e.resampler == nil {
		e.resampler = media.NewResampler(bridge.VoiceRate, phoneRate)
	}
	return law.AppendEncoded(nil, e.resampler.Resample(pcm))
}
