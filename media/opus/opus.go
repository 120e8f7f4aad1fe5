// Package opus encodes and decodes the audio of calls: RFC 6716.
//
// It has two decoders, libopus in C and pion's in Go, and one encoder, libopus.
package opus

import (
	"errors"
	"fmt"

	pion "github.com/pion/opus"
	"voxgate/media/opus/libopus"

	"voxgate/media"
)

var errEmptyPacket = errors.New("empty Opus packet")

// DecoderChoice selects the Opus decoder. The empty choice is LibOpus.
type DecoderChoice string

// The two decoders. Without losses, the difference between their outputs is at least 50 dB below the signal, and 32 dB
// on streams with DTX (tests).
//
// Libopus is the default on all paths. It takes 16 to 32 us for 20 ms of real speech, pion 26 to 78 us. Pion allocates
// 17 times (7 KB) for each packet that carries FEC, libopus never.
//
// At 5 % packet loss libopus reaches 24 dB with FEC and 8 dB without it, pion 10 dB and 6 dB. Pion has no FEC and
// conceals with a fade. Pion is for operators who do not want C code to parse untrusted bytes.
//
// Source: `go test ./media/opus -run 'Agree|Loss' -bench Decoder -v`, pion/opus v0.1.0, libopus 1.3.1.
const (
	LibOpus DecoderChoice = "libopus" // in C
	Pion    DecoderChoice = "pion"    // in Go
)

// ParseDecoderChoice parses a setting: "", "libopus" or "pion".
func ParseDecoderChoice(s string) (DecoderChoice, error) {
	switch c := DecoderChoice(s); c {
	case "", LibOpus, Pion:
		return c, nil
	}
	return "", fmt.Errorf("unknown Opus decoder %q (want libopus or pion)", s)
}

// NewDecoder returns a decoder to mono PCM at 8, 12, 16, 24 or 48 kHz. Decoding directly to the rate that the caller
// needs saves a resampler's delay, and up to half of the CPU time.
func NewDecoder(rate int, choice DecoderChoice) (media.Decoder, error) {
	if choice == Pion {
		// The output always has one channel, because pion/opus v0.1.0 decodes the right channel of a mono stream
		// wrongly when the mode changes.
		d, err := pion.NewDecoderWithOutput(rate, 1)
		if err != nil {
			return nil, fmt.Errorf("new pion/opus decoder at %d Hz: %w", rate, err)
		}
		return &pionDecoder{d: d, rate: rate}, nil
	}
	d, err := libopus.NewDecoder(rate, 1)
	if err != nil {
		return nil, fmt.Errorf("new libopus decoder at %d Hz: %w", rate, err)
	}
	return libDecoder{d}, nil
}

type libDecoder struct{ d *libopus.Decoder }

func (l libDecoder) Decode(packet []byte, pcm []int16) (int, error) {
	return l.d.Decode(packet, pcm)
}

func (l libDecoder) Conceal(next []byte, pcm []int16) error {
	if len(next) == 0 {
		return l.d.Conceal(pcm)
	}
	return l.d.DecodeFEC(next, pcm)
}

// pionDecoder adds concealment to pion/opus v0.1.0, and works around its error after packets without sound.
type pionDecoder struct {
	d           pion.Decoder
	rate        int
	lastSamples []int16 // the last 5 ms decoded
}

// dtxBytes is the size of the largest packet without sound (RFC 7587, section 3.1.3; RFC 6716, section 2.1.9). If
// pion/opus decodes such a packet, the next word is up to 16 dB too loud. So this code writes silence for it instead,
// and the difference from libopus's output is 29 dB below the signal.
const dtxBytes = 2

func (p *pionDecoder) Decode(packet []byte, pcm []int16) (int, error) {
	if len(packet) == 0 {
		return 0, errEmptyPacket
	}
	if len(packet) <= dtxBytes {
		n := min(media.Samples(Codec{}.PacketDuration(packet), p.rate), len(pcm))
		if n == 0 {
			return 0, errEmptyPacket
		}
		return n, p.Conceal(nil, pcm[:n])
	}
	n, err := p.d.DecodeToInt16(packet, pcm)
	if err != nil {
		return 0, err
	}
	p.lastSamples = append(p.lastSamples[:0], pcm[max(0, n-media.Samples(media.FadeDuration, p.rate)):n]...)
	return n, nil
}

// Conceal fills pcm in place of a lost packet. It plays the previous 5 ms backwards, which avoids a step, and fades
// them out. Silence follows.
func (p *pionDecoder) Conceal(_ []byte, pcm []int16) error {
	clear(pcm)
	media.WriteFadeOut(pcm, p.lastSamples)
	p.lastSamples = p.lastSamples[:0]
	return nil
}

// Encoder encodes audio with fixed libopus settings. It must not be used concurrently.
type Encoder struct{ e *libopus.Encoder }

// complexity is libopus's CPU budget for a frame, 0 to 10.
const complexity = 5

// NewEncoder returns an encoder for a clean path, for mono PCM of rate 8, 12, 16, 24 or 48 kHz.
//
// Measured on speech at 24 kHz: RESTRICTED_LOWDELAY at complexity 5 costs 39 us a frame and looks ahead 2.5 ms. VOIP at
// complexity 9 costs 240 us and looks ahead 6.5 ms.
//
// RESTRICTED_LOWDELAY at 48 kb/s has 1.13 dB of log-spectral distance, VOIP at 32 kb/s 1.66 dB. Complexity 3 would take
// 24 us but be 0.1 dB worse, because it has no pitch filter.
func NewEncoder(rate int) (*Encoder, error) {
	return newEncoder(rate, libopus.LowDelay, 48000)
}

// NewRobustEncoder returns an encoder for a lossy path. After SetExpectedLoss its packets repeat the previous frame
// (in-band FEC). Only VOIP supports this. It costs 163 us a frame and looks ahead 6.5 ms.
func NewRobustEncoder(rate int) (*Encoder, error) {
	o, err := newEncoder(rate, libopus.VoIP, 32000)
	if err == nil {
		err = o.e.SetInBandFEC(true)
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

func newEncoder(rate int, application libopus.Application, bitrate int) (*Encoder, error) {
	e, err := libopus.NewEncoder(rate, 1, application)
	if err == nil {
		err = e.SetComplexity(complexity)
	}
	if err == nil {
		err = e.SetBitrate(bitrate)
	}
	if err != nil {
		return nil, fmt.Errorf("new libopus encoder at %d Hz: %w", rate, err)
	}
	return &Encoder{e}, nil
}

// SetExpectedLoss sets the packet loss to expect, in percent.
func (e *Encoder) SetExpectedLoss(percent int) error { return e.e.SetPacketLoss(percent) }

// Encode writes pcm, which must be 2.5, 5, 10, 20, 40 or 60 ms, as one packet to buf and returns its size.
func (e *Encoder) Encode(pcm []int16, buf []byte) (int, error) {
	return e.e.Encode(pcm, buf)
}
