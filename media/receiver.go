package media

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"time"
)

const (
	// gapWait is how long a missing packet is waited for once a later one has come. Three packets: what has overtaken
	// another is mostly one or two ahead, a retransmission takes one round trip, and it is as much as concealment can
	// cover. It costs delay only where packets are missing.
	gapWait = 60 * time.Millisecond
	// jitterSlack is how late a packet may be before silence takes its place. The sink has no clock but what is written,
	// so lateness costs it nothing, while silence within a word does: hence the jitter of a bad WLAN, not of a good line,
	// and 20 ms more than the longest loss that is concealed, since silence written before would stand in its place.
	jitterSlack = maxConcealed + 20*time.Millisecond
	// maxConcealed is how long the voice is made up before silence: beyond it Opus has nothing left but noise.
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

// RTPReader is where RTP packets come from: a net.Conn, or a few lines around pion's TrackRemote.
type RTPReader interface {
	Read(b []byte) (int, error)
	SetReadDeadline(t time.Time) error
}

// ReceiverStats counts what a Receiver met since it was made.
type ReceiverStats struct {
	Packets      uint64 // in the stream: all but malformed and foreign ones
	Late         uint64 // dropped: what they held was given up before
	Duplicate    uint64 // dropped
	Reordered    uint64 // put back in their place in time
	Lost         uint64 // given up
	Recovered    uint64 // lost, but their sound came as a copy within the next packet
	Padding      uint64 // without payload, such as Chrome's probes
	Malformed    uint64 // not RTP, or not Opus
	OtherPayload uint64 // of a payload type that is not Opus
	Resets       uint64 // streams begun, after the first
	ReadErrors   uint64
	Concealed    time.Duration // sound made up
	Silence      time.Duration // silence inserted for what was not sent, or not in time
	Skipped      time.Duration // decoded silence left out since the sink was ahead of the clock
}

// Receiver turns the RTP stream of one Opus track into the PCM of a Sink that follows the wall clock.
type Receiver struct {
	sink   Sink
	types  []uint8
	choice DecoderChoice
	n      struct {
		packets, late, duplicate, reordered, lost, recovered, padding, malformed, otherPayload, resets, readErrors,
		concealed, silence, skipped atomic.Uint64
	}
}

// NewReceiver returns a receiver that decodes packets of the given payload types to sink, whose rate must be 8, 12, 16, 24
// or 48 kHz.
func NewReceiver(sink Sink, opusPayloadTypes []uint8, choice DecoderChoice) *Receiver {
	return &Receiver{sink: sink, types: slices.Clone(opusPayloadTypes), choice: choice}
}

// Stats returns the counters. It may be called at any time by any goroutine.
func (r *Receiver) Stats() ReceiverStats {
	n := &r.n
	return ReceiverStats{
		Packets: n.packets.Load(), Late: n.late.Load(), Duplicate: n.duplicate.Load(), Reordered: n.reordered.Load(),
		Lost: n.lost.Load(), Recovered: n.recovered.Load(), Padding: n.padding.Load(), Malformed: n.malformed.Load(),
		OtherPayload: n.otherPayload.Load(), Resets: n.resets.Load(), ReadErrors: n.readErrors.Load(),
		Concealed: time.Duration(n.concealed.Load()), Silence: time.Duration(n.silence.Load()),
		Skipped: time.Duration(n.skipped.Load()),
	}
}

// Run reads packets from src and writes their sound until src ends (it returns nil), ctx is cancelled (it returns the
// cause), the sink fails or src fails 50 times in a row. It owns the read deadline of src and leaves it anywhere.
//
// A packet in order is decoded and written before Run reads the next one, so a clean path adds no delay. From the first
// packet on, the sink is the clock of the model that listens: what was not sent (DTX, mute) or is lost becomes silence in
// time, on a grid of 20 ms. Speech that comes after its time was filled with silence is still written, since a model can
// wait but not recover a word; later silence is left out until the sink is back on the wall clock.
func (r *Receiver) Run(ctx context.Context, src RTPReader) error {
	dec, err := NewOpusDecoder(r.sink.Rate(), r.choice)
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
	s := &stream{
		Receiver: r,
		dec:      dec,
		rate:     r.sink.Rate(),
		pcm:      make([]int16, samplesIn(maxOpusPacket, r.sink.Rate())),
		silence:  make([]int16, samplesIn(FrameDuration, r.sink.Rate())),
	}
	return s.run(ctx, src)
}

// run is the loop of Run.
func (s *stream) run(ctx context.Context, src RTPReader) error {
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
		if !want.IsZero() && (deadline.IsZero() || want.Before(deadline) || want.After(deadline) && deadline.Sub(now) < 2*FrameDuration) {
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
		case timedOut(err) && now.Sub(deadline) > FrameDuration/2:
			// This process was held up. Packets may be waiting, and they come before silence.
			deadline, notBefore = time.Time{}, now.Add(time.Millisecond)
			continue
		case timedOut(err):
			deadline = time.Time{}
			err = s.tick(now)
		case ended(err):
			return nil
		default:
			s.n.readErrors.Add(1)
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

// ended tells whether err says that there is nothing to read any more.
func ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe)
}

// receive handles one datagram.
func (s *stream) receive(b []byte, now time.Time) error {
	p := &s.rtp
	if err := p.Unmarshal(b); err != nil || p.Version != 2 {
		s.n.malformed.Add(1)
		return nil
	}
	opus := slices.Contains(s.types, p.PayloadType)
	if !opus {
		s.n.otherPayload.Add(1)
		if !s.synced || p.SSRC != s.ssrc {
			return nil
		}
		p.Payload = nil // it takes a sequence number of this stream (telephone-event, comfort noise), but no time
	}
	s.n.packets.Add(1)
	if opus && len(p.Payload) == 0 {
		s.n.padding.Add(1)
	}
	return s.order(packet{seq: p.SequenceNumber, ts: p.Timestamp, arrived: now, payload: p.Payload}, p.SSRC)
}
