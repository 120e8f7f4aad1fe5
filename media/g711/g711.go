// Package g711 encodes and decodes telephone audio: ITU-T G.711, mu-law and A-law, over RTP (RFC 3551, section 4.5.14: one byte
// per sample, any number of samples in a packet).
package g711

import (
	"fmt"
	"math/bits"
	"time"

	"voxgate/media"
)

// rate is the sampling rate, in Hz.
const rate = 8000

// Codec is G.711 in one of its two laws. It implements [media.Codec].
type Codec struct{ law *law }

// The two laws. Their static payload types are 0 and 8 (RFC 3551, section 6).
var (
	MuLaw = Codec{&muLaw} // PCMU
	ALaw  = Codec{&aLaw}  // PCMA
)

// ClockRate implements [media.Codec].
func (Codec) ClockRate() int { return rate }

// BestDecodeRate implements [media.Codec].
func (Codec) BestDecodeRate(int) int { return rate }

// PacketDuration implements [media.Codec].
func (Codec) PacketDuration(packet []byte) time.Duration {
	return media.Duration(len(packet), rate)
}

// RedundancyDuration implements [media.Codec]. G.711 packets hold no copies of earlier packets.
func (Codec) RedundancyDuration([]byte) time.Duration { return 0 }

// AppendDecoded decodes packet and appends the samples to pcm.
func (c Codec) AppendDecoded(pcm []int16, packet []byte) []int16 {
	for _, b := range packet {
		pcm = append(pcm, c.law.samples[b])
	}
	return pcm
}

// AppendEncoded encodes pcm, which must have 8 kHz, and appends the bytes to b.
func (c Codec) AppendEncoded(b []byte, pcm []int16) []byte {
	for _, s := range pcm {
		b = append(b, c.law.encode(s))
	}
	return b
}

// TranscodeTable returns a table that maps each byte of this law to the byte of the other law for the same sample.
func (c Codec) TranscodeTable(other Codec) *[256]byte {
	var bytes [256]byte
	for b, sample := range c.law.samples {
		bytes[b] = other.law.encode(sample)
	}
	return &bytes
}

// NewEncoder implements [media.Codec]. PCM at a rate other than 8 kHz is resampled, which delays the voice by 2.25 ms.
func (c Codec) NewEncoder(fromRate int) (media.Encoder, error) {
	e := &encoder{codec: c}
	if fromRate != rate {
		e.resampler = media.NewResampler(fromRate, rate)
		e.resampler.RestartWithSilence()
	}
	return e, nil
}

type encoder struct {
	codec     Codec
	resampler *media.Resampler // nil at 8 kHz
}

// SetExpectedLoss implements [media.Encoder]. It has no effect.
func (*encoder) SetExpectedLoss(int) error { return nil }

// Encode implements [media.Encoder].
func (e *encoder) Encode(pcm []int16, buf []byte) (int, error) {
	if e.resampler != nil {
		pcm = e.resampler.Resample(pcm)
	}
	if len(pcm) > len(buf) {
		return 0, fmt.Errorf("%d samples do not fit into %d bytes", len(pcm), len(buf))
	}
	return len(e.codec.AppendEncoded(buf[:0], pcm)), nil
}

// law maps bytes to samples and back.
type law struct {
	samples [256]int16
	encode  func(int16) byte
}

var (
	muLaw = newLaw(decodeMuLaw, encodeMuLaw)
	aLaw  = newLaw(decodeALaw, encodeALaw)
)

func newLaw(decode func(byte) int16, encode func(int16) byte) law {
	l := law{encode: encode}
	for i := range l.samples {
		l.samples[i] = decode(byte(i))
	}
	return l
}

// decodeMuLaw decodes one byte, whose bits are all inverted (G.711, table 2). The byte holds a sign, three bits of
// segment, and four bits of a 14-bit magnitude to which 33 was added.
func decodeMuLaw(b byte) int16 {
	b = ^b
	magnitude := (int16(b&15)<<3+132)<<(b>>4&7) - 132
	if b&0x80 != 0 {
		return -magnitude
	}
	return magnitude
}

func encodeMuLaw(s int16) byte {
	sign := byte(s >> 15) // 0xff if it is negative
	m := min(uint(s^(s>>15))>>2+33, 1<<13-1)
	segment := bits.Len(m) - 6
	return ^(sign&0x80 | byte(segment)<<4 | byte(m>>(segment+1))&15)
}

// decodeALaw decodes one byte, in which every second bit is inverted (G.711, table 1). The byte holds a sign, three
// bits of segment, and four bits of a 12-bit magnitude. The sign bit is 1 for positive samples.
func decodeALaw(b byte) int16 {
	b ^= 0x55
	magnitude := int16(b&15)<<4 + 8
	if segment := b >> 4 & 7; segment > 0 {
		magnitude = (magnitude + 256) << (segment - 1)
	}
	if b&0x80 == 0 {
		return -magnitude
	}
	return magnitude
}

func encodeALaw(s int16) byte {
	sign := ^byte(s >> 15) // 0xff unless it is negative
	m := uint(s^(s>>15)) >> 4
	segment := max(0, bits.Len(m)-4)
	return (sign&0x80 | byte(segment)<<4 | byte(m>>max(0, segment-1))&15) ^ 0x55
}
