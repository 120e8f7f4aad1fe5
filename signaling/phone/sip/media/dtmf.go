package media

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pion/rtp"

	"voxgate/media"
	"voxgate/media/rtpaudio"
)

// readKeyPacket calls onKey if a packet is a telephone-event and begins a new digit.
func (s *stream) readKeyPacket(p *rtp.Packet, agreed *agreement, onKey func(digit byte)) {
	if slices.Contains(agreed.events, p.PayloadType) {
		s.keyReader.detectDigit(rtpaudio.Event{SSRC: p.SSRC, Sequence: p.SequenceNumber, Timestamp: p.Timestamp, Payload: p.Payload}, onKey)
	}
}

// readKeys passes pressed keys to onKey until ctx is done, and discards the audio.
func (s *stream) readKeys(ctx context.Context, onKey func(digit byte)) {
	defer s.stopReadsOnDone(ctx)()
	var buf [2048]byte
	var packet rtp.Packet
	for {
		n, err := s.Read(buf[:])
		if err != nil {
			return
		}
		if packet.Unmarshal(buf[:n]) == nil {
			s.readKeyPacket(&packet, s.agreement(), onKey)
		}
	}
}

const (
	digitLength = 100 * time.Millisecond // length of a digit, longer than any receiver needs: 40 ms (ITU-T Q.24)
	digitPause  = 60 * time.Millisecond
	// digitVolume is the level of a digit, as on a phone, in dB below the maximum (RFC 4733, section 2.3.3).
	digitVolume = 10
	// digitEnds is the number of times that the last packet of a digit, which has the end bit, is sent (RFC 4733,
	// section 2.5.1.4). Some of these packets may be lost.
	digitEnds = 3
	// maxDigits limits the digits of one call of sendDigits.
	maxDigits = 64
)

var errNoDigits = errors.New("the other side does not accept digits")

// sendDigits sends digits as telephone events instead of audio. It blocks until they are sent. "," is a pause of half a
// second.
func (s *stream) sendDigits(ctx context.Context, digits string) error {
	digits = strings.ToUpper(digits)
	if len(digits) == 0 || len(digits) > maxDigits || strings.Trim(digits, keys+",") != "" {
		return fmt.Errorf("%q must be at most %d of the digits %s, and commas for a pause of half a second", digits, maxDigits, keys)
	}
	s.mu.Lock()
	able := s.terms != nil && s.terms.event != nil && !s.sendingDigits
	s.sendingDigits = s.sendingDigits || able
	s.mu.Unlock()
	if !able {
		return errNoDigits
	}
	defer func() {
		s.mu.Lock()
		s.sendingDigits = false
		s.mu.Unlock()
	}()
	tick := time.NewTicker(media.FrameDuration)
	defer tick.Stop()
	wait := func(d time.Duration) error {
		for ; d > 0; d -= media.FrameDuration {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	}
	for _, digit := range digits {
		err := wait(digitPause)
		if digit == ',' {
			err = wait(500 * time.Millisecond)
		} else if err == nil {
			err = s.sendDigit(byte(strings.IndexRune(keys, digit)), wait)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) sendDigit(code byte, wait func(time.Duration) error) error {
	s.mu.Lock()
	e, at := s.terms.event, s.currentTimestamp()
	s.mu.Unlock()
	if e == nil { // a new agreement does not include telephone events
		return errNoDigits
	}
	step := media.Samples(media.FrameDuration, e.clock)
	send := func(duration int, first, last bool) error {
		payload := [4]byte{code, digitVolume}
		if last {
			payload[1] |= 0x80
		}
		binary.BigEndian.PutUint16(payload[2:], uint16(duration))
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.writePacket(e.number, first, at, payload[:])
	}
	duration := step
	for ; duration <= media.Samples(digitLength, e.clock); duration += step {
		if err := send(duration, duration == step, false); err != nil {
			return err
		}
		if err := wait(media.FrameDuration); err != nil {
			return err
		}
	}
	for range digitEnds {
		if err := send(duration, false, true); err != nil {
			return err
		}
	}
	return nil
}
