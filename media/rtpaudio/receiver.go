// Package rtpaudio takes a call's sound out of RTP and puts it into RTP, by any [media.Codec], with or without copies of
// earlier packets (RFC 2198).
//
// A Receiver reads RTP packets, puts them in order, decodes and conceals them and writes mono PCM to a sink. A Sender
// encodes the frames of a playout.
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
	// maxConcealed is how long lost sound is concealed before silence: beyond it Opus has only noise left, and appendix I of G.711 nothing.
	maxConcealed = 60 * time.Millisecond
	// maxDropout and maxMisorder bound what is taken for loss and for lateness: RFC 3550, appendix A.1. Beyond them the
	// sender has started anew. The appendix wants two packets to believe that; SRTP has made sure of the first.
	maxDropout  = 3000
	maxMisorder = 100
	// maxReadErrors in a row end Run: a UDP socket reports a few of them (ICMP) and goes on.
	maxReadErrors = 50
	// maxPacketSize is a bit more than what fits in an Ethernet frame.
	maxPacketSize = 2048
)

// Reader is where RTP packets come from: a net.Conn, or a few lines around pion's TrackRemote.
type Reader interface {
	Read(b []byte) (int, error)
	SetReadDeadline(t time.Time) error
}

// ReceiverStats counts what a Receiver met.
type ReceiverStats struct {
	Packets      uint64 // in the stream: all but malformed and foreign ones
	Late         uint64 // dropped: what they held was given up before
	Duplicate    uint64 // dropped
	Reordered    uint64 // put back in their place in time
	Lost         uint64 // given up
	Recovered    uint64 // lost, but their sound came within the next packet: Opus FEC
	Copied       uint64 // not lost, since a copy came in a later packet: RED
	Asked        uint64 // asked for again: NACK, each time counted
	Padding      uint64 // without payload, such as Chrome's probes
	Malformed    uint64 // not RTP, or nothing that the codec can read
	OtherPayload uint64 // of a payload type that is not the codec's
	Resets       uint64 // streams begun, after the first
	ReadErrors   uint64
	Concealed    time.Duration // sound made up
	Jitter       time.Duration // by how much the delays of two packets in a row differ, on average
	Silence      time.Duration // silence inserted for what was not sent, or not in time
	Skipped      time.Duration // left out of pauses since the sink was ahead of the clock
	Stretched    time.Duration // added to pauses since the sink was behind the clock
}

// ReceiverOptions say what a Receiver may expect.
type ReceiverOptions struct {
	Codec media.Codec
	Types []uint8 // payload types of the codec
	RED   []uint8 // payload types of the codec with copies of earlier packets: RFC 2198

	// Event takes the packets of these payload types, which are no sound, as those of telephone-event (RFC 4733): each once,
	// in the order of their sequence numbers, and between the sound around them. It is called by Run and must not block. Nil:
	// they are left out.
	Event  func(Event)
	Events []uint8

	// NACK asks the sender for packets again (RFC 4585, section 6.2.1). It must not block, nor keep missing. Nil: the sender
	// does not answer.
	NACK func(ssrc uint32, missing []uint16)
	// RTT is the round trip to the sender, 0 while it is unknown. Nil: it is never known.
	RTT func() time.Duration
	// Loss gets, every two seconds of sound, how many packets were lost since the last call, and of how many. It is called by Run and must
	// not block. Nil: nobody wants to know.
	Loss func(lost, of int)
}

// Event is a packet that is no sound. Its payload is good until the call returns.
type Event struct {
	SSRC      uint32 // of the stream: its timestamps are its own
	Sequence  uint16
	Timestamp uint32
	Payload   []byte
}

// Receiver turns the RTP stream of one track into the PCM of a [media.Sink] that follows the wall clock.
type Receiver struct {
	sink    media.Sink
	options ReceiverOptions
	stats   ReceiverStats
	told    struct{ lost, of uint64 } // what Loss knows of
}

// NewReceiver returns a receiver that decodes to sink, whose rate must be one that the codec decodes to.
func NewReceiver(sink media.Sink, o ReceiverOptions) *Receiver {
	return &Receiver{sink: sink, options: o}
}

// Stats returns the counters. It must not be called while Run runs.
func (r *Receiver) Stats() ReceiverStats { return r.stats }

// Run reads packets from src and writes their sound until src ends (it returns nil), ctx is cancelled (it returns the
// cause), the sink fails or src fails 50 times in a row. It owns the read deadline of src and leaves it anywhere.
//
// A packet in order is decoded and written before Run reads the next one, so a clean path adds no delay. What is missing is
// looked for in the packets after it (RED), asked for again (NACK), and waited for: 60 ms, and up to 200 ms where packets are
// that late or can come again. Then it is restored from a copy (Opus FEC) or made up.
//
// From the first packet on, the sink is the clock of the model that listens: what was not sent (DTX, mute), is lost or later
// than lately usual (80 to 240 ms) becomes silence in time, on a grid of 20 ms. Speech that comes after its time was filled
// with silence is still written, since a model can wait but not recover a word. What the sink is then ahead of the wall clock
// is left out of later pauses, and what it is behind is added to them: so it follows that clock for hours, though the sender
// has one of its own.
func (r *Receiver) Run(ctx context.Context, src Reader) error {
	dec, err := r.options.Codec.NewDecoder(r.sink.Rate())
	if err != nil {
		return err
	}
	if err := src.SetReadDeadline(time.Time{}); err != nil && !ended(err) { // an earlier Run may have left one
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
	s.reorder.units = func(payload []byte) uint32 {
		return uint32(media.Samples(r.options.Codec.PacketDuration(payload), s.meter.clock))
	}
	defer func() { r.stats.Jitter = s.meter.jitter.mean() }()
	return s.run(ctx, src)
}

// run is the loop of Run.
func (s *stream) run(ctx context.Context, src Reader) error {
	var (
		buf       = make([]byte, maxPacketSize)
		deadline  time.Time // in force; zero: none
		notBefore time.Time // of the next deadline
		failures  int
		now       time.Time
	)
	for {
		want := s.wake()
		if !want.IsZero() && want.Before(notBefore) {
			want = notBefore
		}
		// The deadline is moved when it is too late or has passed, and when it is about to pass for nothing: moving it at
		// every packet would allocate 50 times a second, and being woken costs two switches of threads.
		if !want.IsZero() && (deadline.IsZero() || want.Before(deadline) || want.After(deadline) && deadline.Sub(now) < 2*media.FrameDuration) {
			deadline = want
			if err := src.SetReadDeadline(deadline); err != nil && !ended(err) { // if it has ended, Read says so
				return fmt.Errorf("set read deadline: %w", err)
			}
		}
		if ctx.Err() != nil { // looked at only now, since the deadline just set may have replaced the one that wakes us
			return context.Cause(ctx)
		}
		n, err := src.Read(buf)
		now = time.Now()
		switch {
		case err == nil:
			failures = 0
			err = s.receive(buf[:n], now)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case timedOut(err) && now.Sub(deadline) > media.FrameDuration/2:
			// This process was held up. Packets may be waiting, and they come before silence.
			deadline, notBefore = time.Time{}, now.Add(time.Millisecond)
			continue
		case timedOut(err):
			deadline = time.Time{}
			err = s.tick(now)
		case ended(err):
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

func timedOut(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// ended reports whether err says that there is nothing more to read.
func ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe)
}

// receive handles one datagram.
func (s *stream) receive(b []byte, now time.Time) error {
	p := &s.rtp
	if err := p.Unmarshal(b); err != nil || p.Version != 2 {
		s.stats.Malformed++
		return nil
	}
	copies, isSound, err := s.unpack(p)
	if err != nil {
		s.stats.Malformed++
		return nil // to the sequence it is lost
	}
	next := packet{seq: p.SequenceNumber, ts: p.Timestamp, arrived: now, payload: p.Payload}
	if !isSound { // it takes a sequence number of this stream (telephone-event, comfort noise), but no time
		s.stats.OtherPayload++
		next.payload = nil
		if s.options.Event != nil && slices.Contains(s.options.Events, p.PayloadType) {
			next.event = Event{p.SSRC, p.SequenceNumber, p.Timestamp, p.Payload}
		} else if !s.synced || p.SSRC != s.ssrc {
			return nil
		}
	}
	s.stats.Packets++
	if isSound && len(p.Payload) == 0 {
		s.stats.Padding++
	}
	s.reportLoss()
	return s.order(next, p.SSRC, copies)
}
