package media

import "time"

// Codec describes an audio encoding: an RTP payload type, or the format of a streaming protocol. See media/opus and
// media/g711. It has no state and is safe for concurrent use.
type Codec interface {
	// ClockRate returns the rate of the RTP timestamps, in Hz.
	ClockRate() int
	// BestDecodeRate returns the rate, in Hz, at which the codec decodes best without a resampler. It is at most limit
	// if the codec supports such a rate.
	BestDecodeRate(limit int) int
	// NewDecoder returns a decoder that produces mono PCM at rate, in Hz. It returns an error if rate would need a
	// resampler.
	NewDecoder(rate int) (Decoder, error)
	// NewEncoder returns an encoder for mono PCM at rate, in Hz.
	NewEncoder(rate int) (Encoder, error)
	// PacketDuration returns how much sound a packet holds.
	PacketDuration(packet []byte) time.Duration
	// RedundancyDuration returns the duration of the copy of earlier sound (FEC) in packet, which [Decoder.Conceal] can
	// use. It returns 0 for a packet without a copy.
	RedundancyDuration(packet []byte) time.Duration
}

const (
	// MaxPacketDuration is the longest sound of one packet of any codec: Opus allows 120 ms (RFC 6716, section 3.2,
	// requirement R5).
	MaxPacketDuration = 120 * time.Millisecond
	// MaxPacketBytes is the size of the largest encoded frame of 20 ms of any codec. Opus has the largest (RFC 6716,
	// section 3.2.1).
	MaxPacketBytes = 1275
)

// Decoder decodes the packets of one stream, in order, to one channel. It must not be used concurrently.
type Decoder interface {
	// Decode writes the packet's sound to pcm, which must have room for MaxPacketDuration, and returns the number of samples.
	Decode(packet []byte, pcm []int16) (int, error)
	// Conceal fills pcm with an estimate of lost sound. The length of pcm is a multiple of 2.5 ms. next is the packet
	// after the loss if it contains a copy of the lost sound (see [Codec.RedundancyDuration]), else nil.
	Conceal(next []byte, pcm []int16) error
}

// Encoder encodes consecutive frames of 20 ms. It must not be used concurrently.
type Encoder interface {
	// Encode writes 20 ms of PCM as one packet to buf, which must have room for MaxPacketBytes, and returns the packet's size.
	Encode(pcm []int16, buf []byte) (int, error)
	// SetExpectedLoss sets the packet loss to expect from now on, in percent.
	SetExpectedLoss(loss int) error
}
