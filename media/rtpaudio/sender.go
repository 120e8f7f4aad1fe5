package rtpaudio

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/pion/rtp"

	"voxgate/media"
)

// Writer sends one RTP packet. It sets the packet's SSRC and must not keep p.
type Writer interface {
	WriteRTP(p *rtp.Packet) error
}

const (
	// senderRate is the sample rate of Gemini's voice. Opus encodes this rate directly. For G.711 it is resampled.
	senderRate = 24000

	// lossyShare is the share of lost packets above which the encoder is told to expect losses. Below 3 %, Opus at 48
	// kb/s without FEC sounds better than at 32 kb/s with FEC.
	lossyShare = 0.03
	// healthyReports is the number of reports in a row with less loss than healthyShare after which the encoder is told
	// to expect no losses. FEC costs four times the CPU time, but switching every second would sound worse.
	healthyShare   = 0.01
	healthyReports = 3
	// minReported is the number of packets, one second, that reports must cover before the loss is judged. With fewer
	// packets, a single loss would exceed 2 %.
	minReported = 50
)

// Sender is a [media.Output] at 24 kHz that sends audio over RTP, with copies of earlier packets (RED, RFC 2198) if the
// peer supports them. Only one goroutine at a time may call WriteFrame. Others may call SetPayloadTypes and ReportLoss
// meanwhile.
type Sender struct {
	w      Writer
	base   uint32 // RTP timestamp of PTS 0, random: RFC 3550, section 5.1
	packet rtp.Packet
	buf    [media.MaxPacketBytes]byte
	red    redPacker

	clock       int64 // rate of the RTP timestamps, in Hz
	encoder     media.Encoder
	encoderLoss uint32 // loss that the encoder is set to, in percent

	types        atomic.Uint32 // payload types: codec | RED<<8; RED is 0 if it is not used
	expectedLoss atomic.Uint32 // loss to expect, in percent; 0 for a clean path

	// Only ReportLoss uses these fields.
	reportedPackets, lostPackets int
	goodReports                  int
}

// NewSender returns a sender of audio at 24 kHz that writes to w. Until SetPayloadTypes is called, w sets the payload type.
func NewSender(w Writer, codec media.Codec) (*Sender, error) {
	enc, err := codec.NewEncoder(senderRate)
	if err != nil {
		return nil, err
	}
	s := &Sender{w: w, clock: int64(codec.ClockRate()), encoder: enc, base: rand.Uint32()}
	s.packet.Version = 2
	s.packet.SequenceNumber = uint16(rand.Uint32())
	return s, nil
}

// SetPayloadTypes sets the payload types that the peer accepts: codecType for the codec, and redType for the codec with
// RED. redType is 0 if the peer does not support RED.
func (s *Sender) SetPayloadTypes(codecType, redType uint8) {
	s.types.Store(uint32(codecType) | uint32(redType)<<8)
}

// ReportLoss records a peer's report (RFC 3550, section 6.4.1): of total packets since the last report, lost were lost.
// Above 3 % loss the encoder expects losses. After a few seconds of voice with less than 1 % it expects none.
// ReportLoss must not be called concurrently.
func (s *Sender) ReportLoss(lost, total int) {
	s.lostPackets += max(lost, 0)
	s.reportedPackets += max(total, 0)
	if s.reportedPackets < minReported {
		return
	}
	share := min(1, float64(s.lostPackets)/float64(s.reportedPackets))
	s.lostPackets, s.reportedPackets = 0, 0
	switch {
	case share > lossyShare:
		s.expectedLoss.Store(uint32(100 * share))
		s.goodReports = 0
	case share > healthyShare:
		s.goodReports = 0
	default:
		if s.goodReports++; s.goodReports >= healthyReports {
			s.expectedLoss.Store(0)
		}
	}
}

// MaxLead returns 0, because a browser's jitter buffer expects a packet every 20 ms.
func (s *Sender) MaxLead() time.Duration { return 0 }

// WriteFrame encodes and sends f. The RTP timestamp follows the PTS of f, so it also counts pauses. The marker bit
// signals the end of a pause (RFC 3551, section 4.1; RFC 7587, section 4.2).
func (s *Sender) WriteFrame(f media.Frame) error {
	if len(f.PCM) != media.Samples(media.FrameDuration, senderRate) {
		return fmt.Errorf("a frame of %d samples is not 20 ms long", len(f.PCM))
	}
	if losses := s.expectedLoss.Load(); losses != s.encoderLoss {
		s.encoderLoss = losses
		if err := s.encoder.SetExpectedLoss(int(losses)); err != nil {
			return fmt.Errorf("encoder: %w", err)
		}
	}
	n, err := s.encoder.Encode(f.PCM, s.buf[:])
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	s.packet.Marker = f.Start
	s.packet.Timestamp = s.base + uint32(int64(f.PTS/time.Microsecond)*(s.clock/1000)/1000) // exact for multiples of 20 ms, for years
	s.packet.Payload = s.buf[:n]
	types := s.types.Load()
	s.packet.PayloadType = uint8(types)
	if red := uint8(types >> 8); red != 0 {
		s.packet.PayloadType = red
		s.packet.Payload = s.red.packPayload(s.packet.Payload, s.packet.Timestamp, uint8(types))
	}
	err = s.w.WriteRTP(&s.packet)
	s.packet.SequenceNumber++ // also after an error, so that the receiver conceals the packet
	return err
}
