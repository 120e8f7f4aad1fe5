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
	// maxConcealed limits how long lost sound is concealed. Then silence follows. After this time the concealment of
	// Opus produces only noise, and that of G.711 (appendix I) silence.
	maxConcealed = 60 * time.Millisecond
	// maxDropout and maxMisorder limit the jumps of the sequence number. A jump ahead within the limit is a loss, and a
	// jump back is a late packet (RFC 3550, appendix A.1). A larger jump means that the sender has restarted. The RFC
	// waits for a second packet as proof. With SRTP one packet is enough.
	maxDropout  = 3000
	maxMisorder = 100
	// maxReadErrors is the number of read errors in a row after which Run gives up. A UDP socket that works may report
	// some errors (ICMP).
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

	// OnEvent is called with each packet whose payload type is one of EventTypes, such as telephone-event (RFC 4733),
	// in order with the sound. Run calls it, so it must not block. If it is nil, such packets are ignored.
	OnEvent    func(Event)
	EventTypes []uint8

	// SendNACK asks the sender to retransmit packets (RFC 4585, section 6.2.1). It must not block, and must not keep
	// missing. If it is nil, no packets are requested.
	SendNACK func(ssrc uint32, missing []uint16)
	// RTT returns the round-trip time to the sender, or 0 while it is unknown. It may be nil.
	RTT func() time.Duration
	// OnLoss is called after every two seconds of sound with the number of packets lost and sent since the previous
	// call. Run calls it, so it must not block. It may be nil.
	OnLoss func(lost, total int)
}

// Event is a packet that carries an event instead of sound. Its payload is valid until OnEvent returns.
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

// NewReceiver returns a receiver that writes to sink. The codec must be able to decode to the rate of sink.
func NewReceiver(sink media.Sink, o ReceiverOptions) *Receiver {
	return &Receiver{sink: sink, options: o}
}

// Stats returns the counters. It must not be called while Run runs.
func (r *Receiver) Stats() ReceiverStats { return r.stats }

// Run reads packets from src and writes their sound to the sink. It blocks until src ends (it then returns nil), ctx is
// cancelled (it returns the cause), the sink fails, or src fails 50 times in a row. It sets the read deadline of src
// and does not reset it.
//
// A packet in order is written at once, so a clean path adds no delay. A missing packet is replaced by its copy in a
// later packet (RED) or requested again (NACK). Run waits for it for 60 ms, or up to 200 ms on a slow path. Then it
// restores the sound from the next packet's copy (Opus FEC) or conceals the loss.
//
// The model measures time by the sound in the sink. So missing sound (DTX, mute, loss, packets later than 80 to 240 ms)
// is replaced by silence in real time, in steps of 20 ms. Speech that comes too late is still written, because a model
// can wait, but cannot recover a word.
//
// If the sink is ahead of the wall clock, later pauses are shortened. If it is behind, they are stretched. So the sink
// follows the wall clock for hours, although the sender's clock runs at its own rate.
func (r *Receiver) Run(ctx context.Context, src Reader) error {
	dec, err := r.options.Codec.NewDecoder(r.sink.Rate())
	if err != nil {
		return err
	}
	if err := src.SetReadDeadline(time.Time{}); err != nil && !isEndOfInput(err) { // an earlier Run may have set one
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
	return s.runLoop(ctx, src)
}

// runLoop reads and handles packets until there is nothing more to read. Run returns its result.
func (s *stream) runLoop(ctx context.Context, src Reader) error {
	var (
		buf       = make([]byte, maxPacketSize)
		deadline  time.Time // read deadline that is set; zero means none
		notBefore time.Time // earliest next deadline
		failures  int
		now       time.Time
	)
	for {
		want := s.nextWakeAt()
		if !want.IsZero() && want.Before(notBefore) {
			want = notBefore
		}
		// Setting the deadline at every packet would allocate 50 times a second. So it is set only if the old one is
		// too late, or is so close that it would cause a needless wakeup, which costs two thread switches.
		if !want.IsZero() && (deadline.IsZero() || want.Before(deadline) || want.After(deadline) && deadline.Sub(now) < 2*media.FrameDuration) {
			deadline = want
			if err := src.SetReadDeadline(deadline); err != nil && !isEndOfInput(err) { // if src has ended, Read returns the error
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
			// The deadline passed long ago, so this process was delayed. Packets that arrived meanwhile must be played
			// before silence is written for them.
			deadline, notBefore = time.Time{}, now.Add(time.Millisecond)
			continue
		case isTimeout(err):
			deadline = time.Time{}
			err = s.tick(now)
		case isEndOfInput(err):
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

// isEndOfInput reports whether err means that there is nothing more to read.
func isEndOfInput(err error) bool {
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
	s.reportLossIfDue()
	return s.handlePacket(next, p.SSRC, copies)
}
