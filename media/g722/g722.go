// Package g722 encodes and decodes the wideband voice of office telephones: ITU-T G.722 at 64 kb/s, as RTP carries it. Its sound
// has 16 kHz and its RTP clock 8 kHz, by an old mistake that is now the rule (RFC 3551, section 4.5.2).
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
	clock = 8000  // of RTP, in Hz
	// bytes is how many a second has: two samples share one.
	bytes = rate / 2
	// fade is for how long a lost packet is made up of the one before.
	fade = 3 * 20 * rate / 1000
)

// Codec is G.722. It implements [media.Codec].
type Codec struct{}

// ClockRate implements [media.Codec].
func (Codec) ClockRate() int { return clock }

// DecodedRate implements [media.Codec]: there is only one.
func (Codec) DecodedRate(int) int { return rate }

// PacketDuration implements [media.Codec].
func (Codec) PacketDuration(packet []byte) time.Duration { return media.Duration(len(packet), bytes) }

// CopyDuration implements [media.Codec]: there is none.
func (Codec) CopyDuration([]byte) time.Duration { return 0 }

// NewDecoder implements [media.Codec].
func (Codec) NewDecoder(to int) (media.Decoder, error) {
	if to != rate {
		return nil, fmt.Errorf("G.722 is not decoded to %d Hz", to)
	}
	return &decoder{from: g722.NewDecoder(g722.Rate64000, 0)}, nil
}

// NewEncoder implements [media.Codec]. Another rate than 16 kHz is resampled, which delays the voice by 1.1 ms.
func (Codec) NewEncoder(from int) (media.Encoder, error) {
	e := &encoder{to: g722.NewEncoder(g722.Rate64000, 0)}
	if from != rate {
		e.resampler = media.NewResampler(from, rate)
		e.resampler.Delay()
	}
	return e, nil
}

type encoder struct {
	to        *g722.Encoder
	resampler *media.Resampler // nil: none is needed
}

// Expect implements [media.Encoder]: there is nothing to be done about it.
func (*encoder) Expect(int) error { return nil }

// Encode implements [media.Encoder].
func (e *encoder) Encode(pcm []int16, buf []byte) (int, error) {
	if e.resampler != nil {
		pcm = e.resampler.Resample(pcm)
	}
	if len(pcm)/2 > len(buf) {
		return 0, fmt.Errorf("%d samples do not fit into %d bytes", len(pcm), 2*len(buf))
	}
	return e.to.Encode(buf, pcm), nil
}

// decoder decodes a stream and remembers its last packet, which stands, fading, for those that are lost: what G.722 predicts the
// next sample from is then what has come, as its appendix IV wants it, at a hundredth of the cost.
type decoder struct {
	from *g722.Decoder
	last []int16
	made int // samples made up since the last packet
}

var (
	errEmpty = errors.New("packet without samples")
	errLong  = errors.New("packet too long")
)

// Decode implements [media.Decoder].
func (d *decoder) Decode(packet []byte, pcm []int16) (int, error) {
	switch {
	case len(packet) == 0:
		return 0, errEmpty
	case 2*len(packet) > len(pcm):
		return 0, errLong
	}
	n := d.from.Decode(pcm, packet)
	d.last, d.made = append(d.last[:0], pcm[:n]...), 0
	return n, nil
}

// Conceal implements [media.Decoder].
func (d *decoder) Conceal(_ []byte, pcm []int16) error {
	clear(pcm)
	if len(d.last) == 0 {
		return nil
	}
	for i := range pcm {
		left := fade - d.made
		if left <= 0 {
			break
		}
		at := d.made % (2 * len(d.last)) // back and forth, so that there is no step
		if at < len(d.last) {
			at = len(d.last) - 1 - at
		} else {
			at -= len(d.last)
		}
		pcm[i] = int16(int(d.last[at]) * left / fade)
		d.made++
	}
	return nil
}
