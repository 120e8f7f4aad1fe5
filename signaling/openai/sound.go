package openai

import (
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

// decoder decodes a client's sound. The zero value has heard nothing.
type decoder struct {
	odd []byte // half a sample, which the next piece completes
	pcm []int16
}

// decode returns what a piece of sound holds, good until the next call, and its rate in Hz.
func (d *decoder) decode(format string, sound []byte) (pcm []int16, rate int) {
	if law := laws[format]; law != nil {
		d.odd = nil
		d.pcm = law.Append(d.pcm[:0], sound)
		return d.pcm, phoneRate
	}
	if len(d.odd) > 0 {
		sound = append(d.odd, sound...)
	}
	d.odd = append([]byte(nil), sound[len(sound)&^1:]...)
	d.pcm = media.AppendSamples(d.pcm[:0], sound)
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
