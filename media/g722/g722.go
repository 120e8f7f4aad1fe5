// Package g722 encodes and decodes the wideband audio of office phones: ITU-T G.722 at 64 kb/s, over RTP. The audio is sampled
// at 16 kHz, but its RTP clock runs at 8 kHz: a historical mistake that became the rule (RFC 3551, section 4.5.2).
package g722

import (
	"errors"
	"fmt"
	"time"

	"github.com/gotranspile/g722"

	"voxgate/media"
)

const (
	rate  = 16000 // samples per second
	clock = 8000  // rate of the RTP timestamps, in Hz
	// bytesPerSecond is the encoded rate: a byte holds two samples.
	bytesPerSecond = rate / 2
	// fadeLength is the number of samples after which concealed sound has faded to silence.
	fadeLength = 3 * 20 * rate / 1000
)

// Codec is G.722. It implements [media.Codec].
type Codec struct{}

// ClockRate implements [media.Codec].
func (Codec) ClockRate() int { return clock }

// BestDecodeRate implements [media.Codec].
func (Codec) BestDecodeRate(int) int { return rate }

// PacketDuration implements [media.Codec].
func (Codec) PacketDuration(packet []byte) time.Duration {
	return media.Duration(len(packet), bytesPerSecond)
}

// RedundancyDuration implements [media.Codec]. G.722 packets hold no copies of earlier packets.
func (Codec) RedundancyDuration([]byte) time.Duration { return 0 }

// NewDecoder implements [media.Codec].
func (Codec) NewDecoder(toRate int) (media.Decoder, error) {
	if toRate != rate {
		return nil, fmt.Errorf("G.722 is not decoded to %d Hz", toRate)
	}
	return &decoder{codec: g722.NewDecoder(g722.Rate64000, 0)}, nil
}

// NewEncoder implements [media.Codec]. PCM at a rate other than 16 kHz is resampled, which delays the voice by 1.1 ms.
func (Codec) NewEncoder(fromRate int) (media.Encoder, error) {
	e := &encoder{codec: g722.NewEncoder(g722.Rate64000, 0)}
	if fromRate != rate {
		e.resampler = media.NewResampler(fromRate, rate)
		e.resampler.RestartWithSilence()
	}
	return e, nil
}

type encoder struct {
	codec     *g722.Encoder
	resampler *media.Resampler // nil at 16 kHz
}

// SetExpectedLoss implements [media.Encoder]. It has no effect.
func (*encoder) SetExpectedLoss(int) error { return nil }

// Encode implements [media.Encoder].
func (e *encoder) Encode(pcm []int16, buf []byte) (int, error) {
	if e.resampler != nil {
		pcm = e.resampler.Resample(pcm)
	}
	if len(pcm)/2 > len(buf) {
		return 0, fmt.Errorf("%d samples do not fit into %d bytes", len(pcm), 2*len(buf))
	}
	return e.codec.Encode(buf, pcm), nil
}

// decoder decodes one stream and conceals losses by repeating the last packet with a fade. A loss leaves the predictor
// unchanged, as appendix IV recommends. The concealment in that appendix needs a hundred times the CPU time.
type decoder struct {
	codec      *g722.Decoder
	lastPacket []int16
	concealed  int // samples concealed since the last packet
}

var (
	errEmpty   = errors.New("packet without samples")
	errTooLong = errors.New("packet too long")
)

// Decode implements [media.Decoder].
func (d *decoder) Decode(packet []byte, pcm []int16) (int, error) {
	switch {
	case len(packet) == 0:
		return 0, errEmpty
	case 2*len(packet) > len(pcm):
		return 0, errTooLong
	}
	n := d.codec.Decode(pcm, packet)
	d.lastPacket, d.concealed = append(d.lastPacket[:0], pcm[:n]...), 0
	return n, nil
}

// Conceal implements [media.Decoder].
func (d *decoder) Conceal(_ []byte, pcm []int16) error {
	clear(pcm)
	if len(d.lastPacket) == 0 {
		return nil
	}
	for i := range pcm {
		left := fadeLength - d.concealed
		if left <= 0 {
			break
		}
		at := d.concealed % (2 * len(d.lastPacket)) // the last packet backwards, then forwards, to avoid steps
		if at < len(d.lastPacket) {
			at = len(d.lastPacket) - 1 - at
		} else {
			at -= len(d.lastPacket)
		}
		pcm[i] = int16(int(d.lastPacket[at]) * left / fadeLength)
		d.concealed++
	}
	return nil
}
