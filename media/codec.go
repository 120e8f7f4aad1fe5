package media

import "time"

// Codec is how packets carry sound: one payload type of RTP, or a door's own form. See media/opus and media/g711. It has no state of its
// own, and may be used by several goroutines.
type Codec interface {
	// ClockRate is that of the RTP timestamps, in Hz.
	ClockRate() int
	// DecodedRate is the best rate to decode to, in Hz, not above most: one that needs no resampling.
	DecodedRate(most int) int
	// NewDecoder returns a decoder to mono PCM of rate, in Hz. A rate that would take a resampler is refused.
	NewDecoder(rate int) (Decoder, error)
	// NewEncoder returns an encoder of mono PCM of rate, in Hz.
	NewEncoder(rate int) (Encoder, error)
	// PacketDuration is how long the sound of a packet is.
	PacketDuration(packet []byte) time.Duration
	// CopyDuration is how much of the sound before it a packet carries once more, for [Decoder.Conceal] to use; 0: none.
	CopyDuration(packet []byte) time.Duration
}

const (
	// MaxPacketDuration is how long the sound of one packet may be: that of Opus (RFC 6716, section 3.2, requirement R5).
	MaxPacketDuration = 120 * time.Millisecond
	// MaxPacketBytes is how long an encoded frame of 20 ms may be: that of Opus (RFC 6716, section 3.2.1).
	MaxPacketBytes = 1275
)

// Decoder decodes the packets of one stream, in order, to one channel. It is used by one goroutine at a time.
type Decoder interface {
	// Decode writes the packet's sound to pcm, which must hold MaxPacketDuration, and returns the number of samples.
	Decode(packet []byte, pcm []int16) (int, error)
	// Conceal fills pcm, a multiple of 2.5 ms, with a guess of the sound between the last packet and the next one. next is the packet after
	// the loss if that has a copy of the lost sound (see Codec.CopyDuration), which is then used, else nil.
	Conceal(next []byte, pcm []int16) error
}

// Encoder encodes frames of 20 ms that follow each other. It is used by one goroutine at a time.
type Encoder interface {
	// Encode writes pcm, 20 ms, as one packet to buf, which must hold MaxPacketBytes, and returns its size.
	Encode(pcm []int16, buf []byte) (int, error)
	// Expect says how many percent of the packets are likely to be lost from now on, 0 to 100.
	Expect(loss int) error
}
