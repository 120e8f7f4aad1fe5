package media

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pion/rtp"
)

// RTPWriter sends one RTP packet; pion's TrackLocalStaticRTP is one. It must not keep p, and sets its payload type and
// SSRC.
type RTPWriter interface {
	WriteRTP(p *rtp.Packet) error
}

// rtpOutputRate is the rate of Gemini's voice. Opus takes it as it is.
const rtpOutputRate = 24000

// RTPOutput is an Output that sends Opus over RTP (RFC 7587). Its frames are written by one goroutine at a time.
type RTPOutput struct {
	w      RTPWriter
	enc    *OpusEncoder
	base   uint32 // RTP timestamp of PTS 0, random: RFC 3550, section 5.1
	packet rtp.Packet
	buf    [maxOpusFrame]byte
}

// NewRTPOutput returns an Output at 24 kHz that sends to w.
func NewRTPOutput(w RTPWriter) (*RTPOutput, error) {
	enc, err := NewOpusEncoder(rtpOutputRate)
	if err != nil {
		return nil, err
	}
	o := &RTPOutput{w: w, enc: enc, base: rand.Uint32()}
	o.packet.Version = 2
	o.packet.SequenceNumber = uint16(rand.Uint32())
	return o, nil
}

// Rate returns 24000.
func (o *RTPOutput) Rate() int { return rtpOutputRate }

// Lead returns 0: a browser's jitter buffer wants a packet every 20 ms.
func (o *RTPOutput) Lead() time.Duration { return 0 }

// WriteFrame encodes and sends f. The RTP timestamp follows its PTS, so it advances through pauses in which nothing is
// sent, and the marker says that such a pause ends (RFC 3551, section 4.1; RFC 7587, section 4.2).
func (o *RTPOutput) WriteFrame(f Frame) error {
	if len(f.PCM) != samplesIn(FrameDuration, rtpOutputRate) {
		return fmt.Errorf("encode %d samples: %w", len(f.PCM), errFrameSize)
	}
	n, err := o.enc.Encode(f.PCM, o.buf[:])
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	o.packet.Marker = f.Start
	o.packet.Timestamp = o.base + uint32(int64(f.PTS/time.Microsecond)*(opusClock/1000)/1000) // exact for 20 ms, for years
	o.packet.Payload = o.buf[:n]
	err = o.w.WriteRTP(&o.packet)
	o.packet.SequenceNumber++ // even after an error: the far end conceals what it did not get
	return err
}
