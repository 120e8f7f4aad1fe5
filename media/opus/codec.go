package opus

import (
	"voxgate/media"
)

// Codec is Opus over RTP: RFC 7587.
type Codec struct{ Decoder DecoderChoice }

// ClockRate implements [media.Codec]. The RTP clock of Opus has this rate at any sampling rate: RFC 7587, section 4.1.
func (Codec) ClockRate() int { return 48000 }

// BestDecodeRate implements [media.Codec]. Opus decoders produce 48, 24, 16 or 12 kHz without a resampler.
func (Codec) BestDecodeRate(maxRate int) int {
	for _, rate := range []int{48000, 24000, 16000, 12000} {
		if rate <= maxRate {
			return rate
		}
	}
	return 8000
}

// NewDecoder implements [media.Codec].
func (c Codec) NewDecoder(rate int) (media.Decoder, error) { return NewDecoder(rate, c.Decoder) }

// NewEncoder implements [media.Codec].
func (Codec) NewEncoder(rate int) (media.Encoder, error) {
	clean, err := NewEncoder(rate)
	if err != nil {
		return nil, err
	}
	return &adaptiveEncoder{rate: rate, clean: clean}, nil
}

// adaptiveEncoder encodes with the encoder that suits the path: clean or lossy.
type adaptiveEncoder struct {
	rate      int
	clean     *Encoder
	robust    *Encoder // nil until first needed
	isLossy   bool     // robust is in use
	lastFrame []int16  // the previous frame
}

// SetExpectedLoss implements [media.Encoder]. If it switches encoders, the new encoder first encodes the previous
// frame, which avoids a click.
func (a *adaptiveEncoder) SetExpectedLoss(loss int) (err error) {
	if loss > 0 && a.robust == nil {
		if a.robust, err = NewRobustEncoder(a.rate); err != nil {
			return err
		}
	}
	if loss > 0 {
		if err := a.robust.SetExpectedLoss(loss); err != nil {
			return err
		}
	}
	if lossy := loss > 0; lossy != a.isLossy {
		a.isLossy = lossy
		if len(a.lastFrame) > 0 {
			var unheard [media.MaxPacketBytes]byte
			_, err = a.activeEncoder().Encode(a.lastFrame, unheard[:])
		}
	}
	return err
}

func (a *adaptiveEncoder) activeEncoder() *Encoder {
	if a.isLossy {
		return a.robust
	}
	return a.clean
}

// Encode implements [media.Encoder].
func (a *adaptiveEncoder) Encode(pcm []int16, buf []byte) (int, error) {
	a.lastFrame = append(a.lastFrame[:0], pcm...)
	return a.activeEncoder().Encode(pcm, buf)
}
