// Package rtpaudio receives and sends a call's audio over RTP, with any [media.Codec], with or without redundancy (RED, RFC 2198).
//
// A Receiver reads RTP packets, reorders and decodes them, conceals lost ones, and writes mono PCM to a sink. A Sender encodes the
// frames of a playout.
package rtpaudio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"voxgate/media"
)

const (
	// maxConcealed limits how long lost sound is concealed before silence. By then Opus has only noise left, and
	// appendix I of G.711 nothing.
	maxConcealed = 60 * time.Millisecond
	// maxDropout and maxMisorder limit the jumps of the sequence number that count as loss and lateness (RFC 3550,
	// appendix A.1). A larger jump means a restarted sender. The appendix wants two packets as proof. With SRTP, one
	// packet is enough.
	maxDropout  = 3000
	maxMisorder = 100
	// maxReadErrors is the number of read errors in a row that end Run. A UDP socket reports some (ICMP) and continues
	// to work.
	maxReadErrors = 50
	// maxPacketSize bounds a received packet, in bytes: a bit more than fits in an Ethernet frame.
	maxPacketSize = 2048
)

// Reader is a source of RTP packets: a net.Conn, or a small adapter of pion's TrackRemote.
type Reader interface {
	Read(b []byte) (int, error)
	SetReadDeadline(t time.Time) error
}

// ReceiverStats counts the packets and repairs of a Receiver.
type ReceiverStats struct {
	Packets      uint64 // packets of the stream: all except malformed and foreign ones
	Late         uint64 // came so late that they had been given up, and were dropped
	Duplicate    uint64 // dropped, because they had already arrived
	Reordered    uint64 // reordered in time
	Lost         uint64 // given up, because they did not arrive in time
	Recovered    uint64 // lost, but restored from the next packet: Opus FEC
	Copied       uint64 // restored from a copy in a later packet: RED
	Requested    uint64 // retransmission requests: NACK
	Padding      uint64 // packets without payload, such as Chrome's probes
	Malformed    uint64 // not RTP, or undecodable
	OtherPayload uint64 // packets of a payload type that is not one of the codec's
	Resets       uint64 // new streams after the first
	ReadErrors   uint64
	Concealed    time.Duration // sound concealed
	Jitter       time.Duration // mean difference between the delays of consecutive packets
	Silence      time.Duration // silence inserted for sound that was not sent, or not in time
	Skipped      time.Duration // sound left out of pauses because the sink was ahead of the clock
	Stretched    time.Duration // sound added to pauses because the sink was behind the clock
}

// ReceiverOptions configures a Receiver.
type ReceiverOptions struct {
	Codec        media.Codec
	PayloadTypes []uint8 // payload types of the codec
	REDTypes     []uint8 // payload types of the codec with RED: RFC 2198

	// OnEvent is called with each packet of the EventTypes, such as telephone-event (RFC 4733), in order with the
	// sound. Run calls OnEvent, which must not block. nil ignores such packets.
	OnEvent    func(Event)
	EventTypes []uint8

	// SendNACK asks the sender to retransmit packets (RFC 4585, section 6.2.1). It must not block or keep missing. nil
	// means no retransmission.
	SendNACK func(ssrc uint32, missing []uint16)
	// RTT returns the round-trip time to the sender, or 0 while it is unknown. It may be nil.
	RTT func() time.Duration
	// OnLoss is called every two seconds of sound with the packets lost and sent since then. Run calls OnLoss, which
	// must not block. It may be nil.
	OnLoss func(lost, of int)
}

// Event is a packet without sound. Its payload is valid until the call returns.
type Event struct {
	SSRC      uint32 // SSRC of the stream, which has its own timestamps
	Sequence  uint16
	Timestamp uint32
	Payload   []byte
}

// Receiver converts the RTP stream of one track to the PCM of a [media.Sink], in step with the wall clock.
type Receiver struct {
	sink     media.Sink
	options  ReceiverOptions
	stats    ReceiverStats
	reported struct{ lost, of uint64 } // counters at the last call of OnLoss
}

// NewReceiver returns a receiver that decodes to sink, whose rate the codec must be able to decode to.
func NewReceiver(sink media.Sink, o ReceiverOptions) *Receiver {
	return &Receiver{sink: sink, options: o}
}

// Stats returns the counters. It must not be called during Run.
func (r *Receiver) Stats() ReceiverStats { return r.stats }

// Run reads packets from src and writes their sound. It blocks until src ends (nil), ctx is cancelled (its cause), the
// sink fails, or src fails 50 times in a row. It sets the read deadline of src and does not reset it.
//
// A packet in order is written at once, so a clean path adds no delay. A missing one is looked for in later packets
// (RED), and requested again (NACK). Run waits for 60 ms, or up to 200 ms on a slow path. Then it restores the packet
// from a copy (Opus FEC) or conceals it.
//
// The sound in the sink is the clock of the model. So missing sound (DTX, mute, loss, lateness of 80 to 240 ms) is
// replaced by silence in time, in steps of 20 ms. Speech that comes too late is still written: a model can wait, but
// not recover a word.
//
// Later pauses are then shortened, or stretched if the sink is behind the wall clock. So the sink follows the wall
// clock for hours, although the sender has its own.
func (r *Receiver) Run(ctx context.Context, src Reader) error {
	dec, err := r.options.Codec.NewDecoder(r.sink.Rate())
	if err != nil {
		return err
	}
	if err := src.SetReadDeadline(time.Time{}); err != nil && !isEnd(err) { // an earlier Run may have set one
		return fmt.Errorf("set read deadline: %w", err)
	}
	cancelled := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(cancelled)
		_ = src.SetReadDeadline(time.Unix(1, 0)) // wakes Read; if it fails, src has ended
	})
	defer func() {
		if !stop() {
			<-cancelled
		}
	}()
	s := &stream{clock: newClock(r), dec: dec}
	s.reorder.payloadUnits = func(payload []byte) uint32 {
		return uint32(media.Samples(r.options.Codec.PacketDuration(payload), s.meter.clock))
	}
	defer func() { r.stats.Jitter = s.meter.jitter.mean() }()
	return s.run(ctx, src)
}

// run reads and handles packets until there is nothing more to read. Its result is the result of Run.
func (s *stream) run(ctx context.Context, src Reader) error {
	var (
		buf       = make([]byte, maxPacketSize)
		deadline  time.Time // read deadline that is set; zero means none
		notBefore time.Time // earliest next deadline
		failures  int
		now       time.Time
	)
	for {
		want := s.nextWake()
		if !want.IsZero() && want.Before(notBefore) {
			want = notBefore
		}
		// The deadline is moved only if it is too late, or would soon cause a needless wakeup, which costs two thread
		// switches. Moving it at every packet would allocate 50 times a second.
		if !want.IsZero() && (deadline.IsZero() || want.Before(deadline) || want.After(deadline) && deadline.Sub(now) < 2*media.FrameDuration) {
			deadline = want
			if err := src.SetReadDeadline(deadline); err != nil && !isEnd(err) { // if src has ended, Read returns the error
				return fmt.Errorf("set read deadline: %w", err)
			}
		}
		if ctx.Err() != nil { // checked after SetReadDeadline, which may have replaced the deadline that wakes Read
			return context.Cause(ctx)
		}
		n, err := src.Read(buf)
		now = time.Now()
		switch {
		case err == nil:
			failures = 0
			err = s.handleDatagram(buf[:n], now)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case isTimeout(err) && now.Sub(deadline) > media.FrameDuration/2:
			// This process was delayed. Packets that wait to be read must be played before silence is written.
			deadline, notBefore = time.Time{}, now.Add(time.Millisecond)
			continue
		case isTimeout(err):
			deadline = time.Time{}
			err = s.tick(now)
		case isEnd(err):
			return nil
		default:
			s.stats.ReadErrors++
			if failures++; failures == maxReadErrors {
				return fmt.Errorf("read RTP: %w", err)
			}
			continue
		}
		if err != nil {
			return err
		}
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// isEnd reports whether err means that there is nothing more to read.
func isEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe)
}

// handleDatagram handles one datagram.
func (s *stream) handleDatagram(b []byte, now time.Time) error {
	p := &s.rtp
	if err := p.Unmarshal(b); err != nil || p.Version != 2 {
		s.stats.Malformed++
		return nil
	}
	copies, isSound, err := s.unpackRED(p)
	if err != nil {
		s.stats.Malformed++
		return nil // its sequence number counts as lost
	}
	next := packet{seq: p.SequenceNumber, ts: p.Timestamp, arrived: now, payload: p.Payload}
	if !isSound { // the packet has a sequence number of this stream (telephone-event, comfort noise), but no sound
		s.stats.OtherPayload++
		next.payload = nil
		if s.options.OnEvent != nil && slices.Contains(s.options.EventTypes, p.PayloadType) {
			next.event = Event{p.SSRC, p.SequenceNumber, p.Timestamp, p.Payload}
		} else if !s.isSynced || p.SSRC != s.ssrc {
			return nil
		}
	}
	s.stats.Packets++
	if isSound && len(p.Payload) == 0 {
		s.stats.Padding++
	}
	s.reportLoss()
	return s.handlePacket(next, p.SSRC, copies)
}
