package rtpaudio

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/pion/rtp"

	"voxgate/media"
	"voxgate/media/opus"
)

// Writer sends one RTP packet. It must not keep p, and sets its SSRC.
type Writer interface {
	WriteRTP(p *rtp.Packet) error
}

var errFrameSize = errors.New("frame is not 20 ms long")

const (
	// senderRate is the rate of Gemini's voice. Opus takes it as it is.
	senderRate = 24000

	// lossy is the share of lost packets above which the robust encoder takes over: below 3 % Opus at 48 kb/s without FEC
	// sounds better than at 32 kb/s with it (opus.NewEncoder). healthy is the share below which it goes back, after
	// healthyReports in a row: the robust voice costs four times the CPU, but a voice that changes every second is worse.
	lossy          = 0.03
	healthy        = 0.01
	healthyReports = 3
	// leastReported is how many packets a judgement needs: of fewer than one second's, one loss would be more than 2 %.
	leastReported = 50
)

// Sender is a [media.Output] that sends Opus over RTP (RFC 7587), with copies of earlier packets (RFC 2198) where the peer
// takes them. Its frames are written by one goroutine at a time; Negotiated and Report may be called by others.
type Sender struct {
	w      Writer
	base   uint32 // RTP timestamp of PTS 0, random: RFC 3550, section 5.1
	packet rtp.Packet
	buf    [opus.MaxFrameBytes]byte
	red    redPacker

	clean  *opus.Encoder
	robust *opus.Encoder // nil until it is first needed
	tough  bool          // robust is in use
	primed [opus.MaxFrameBytes]byte
	last   []int16 // the frame before, for an encoder that begins

	types  atomic.Uint32 // payload types: Opus | RED<<8; RED 0: none
	losses atomic.Uint32 // in percent, to be expected; 0: the path is clean

	// Owned by whoever calls Report.
	reported, lost int
	quietReports   int
}

// NewSender returns a sender of sound at 24 kHz that writes to w. Until Negotiated has been called the payload type is left
// to w.
func NewSender(w Writer) (*Sender, error) {
	enc, err := opus.NewEncoder(senderRate)
	if err != nil {
		return nil, err
	}
	s := &Sender{w: w, clean: enc, base: rand.Uint32()}
	s.packet.Version = 2
	s.packet.SequenceNumber = uint16(rand.Uint32())
	return s, nil
}

// Negotiated says which payload types the peer takes for Opus and for Opus with copies (RED); redType is 0 if it takes none.
func (s *Sender) Negotiated(opusType, redType uint8) {
	s.types.Store(uint32(opusType) | uint32(redType)<<8)
}

// Report says how many packets the peer has missed since the last report (RFC 3550, section 6.4.1), of how many. Above 3 %
// the voice goes on with in-band FEC, at 32 kb/s; below 1 % for a few seconds of voice, without. One goroutine at a time.
func (s *Sender) Report(lost, of int) {
	s.lost += max(lost, 0)
	s.reported += max(of, 0)
	if s.reported < leastReported {
		return
	}
	share := min(1, float64(s.lost)/float64(s.reported))
	s.lost, s.reported = 0, 0
	switch {
	case share > lossy:
		s.losses.Store(uint32(100 * share))
		s.quietReports = 0
	case share > healthy:
		s.quietReports = 0
	default:
		if s.quietReports++; s.quietReports >= healthyReports {
			s.losses.Store(0)
		}
	}
}

// Rate returns 24000.
func (s *Sender) Rate() int { return senderRate }

// Lead returns 0: a browser's jitter buffer wants a packet every 20 ms.
func (s *Sender) Lead() time.Duration { return 0 }

// WriteFrame encodes and sends f. The RTP timestamp follows its PTS, so it advances through pauses in which nothing is
// sent, and the marker says that such a pause ends (RFC 3551, section 4.1; RFC 7587, section 4.2).
func (s *Sender) WriteFrame(f media.Frame) error {
	if len(f.PCM) != media.Samples(media.FrameDuration, senderRate) {
		return fmt.Errorf("encode %d samples: %w", len(f.PCM), errFrameSize)
	}
	n, err := s.encode(f.PCM, f.Hurried)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	s.packet.Marker = f.Start
	s.packet.Timestamp = s.base + uint32(int64(f.PTS/time.Microsecond)*(clockRate/1000)/1000) // exact for 20 ms, for years
	s.packet.Payload = s.buf[:n]
	types := s.types.Load()
	s.packet.PayloadType = uint8(types)
	if red := uint8(types >> 8); red != 0 {
		s.packet.PayloadType = red
		s.packet.Payload = s.red.pack(s.packet.Payload, s.packet.Timestamp, uint8(types))
	}
	err = s.w.WriteRTP(&s.packet)
	s.packet.SequenceNumber++ // even after an error: the far end conceals what it did not get
	return err
}

// encode makes a packet with the encoder that the path asks for. The one that takes over is given the frame before first,
// so that it does not begin out of nothing, which would click.
func (s *Sender) encode(pcm []int16, hurried bool) (int, error) {
	losses := int(s.losses.Load())
	if losses > 0 && s.robust == nil {
		var err error
		if s.robust, err = opus.NewRobustEncoder(senderRate); err != nil {
			return 0, err
		}
	}
	enc := s.clean
	if losses > 0 {
		enc = s.robust
		if err := enc.Expect(losses); err != nil {
			return 0, err
		}
	}
	if tough := losses > 0; tough != s.tough {
		s.tough = tough
		if len(s.last) > 0 {
			if _, err := enc.Encode(s.last, s.primed[:]); err != nil {
				return 0, err
			}
		}
	}
	s.last = append(s.last[:0], pcm...)
	if err := enc.Hurry(hurried); err != nil {
		return 0, err
	}
	return enc.Encode(pcm, s.buf[:])
}
