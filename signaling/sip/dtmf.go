package sip

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

// keys are the characters of the first 16 events (RFC 4733, section 3.2).
const keys = "0123456789*#ABCD"

// digitReader finds the digits among packets of telephone-event. Each has several packets, all with the timestamp of its begin;
// any of them may be lost, and the last comes three times.
type digitReader struct {
	began bool
	ssrc  uint32 // of the newest
	last  uint32 // its timestamp
}

// read gives press the digit that begins with a packet, if one does.
func (r *digitReader) read(e rtpaudio.Event, press func(digit byte)) {
	old := r.began && e.SSRC == r.ssrc && int32(e.Timestamp-r.last) <= 0 // each stream has timestamps of its own
	if old || len(e.Payload) < 4 || int(e.Payload[0]) >= len(keys) {
		return
	}
	r.began, r.ssrc, r.last = true, e.SSRC, e.Timestamp
	press(keys[e.Payload[0]])
}

// keyIn gives press the digit that begins with a packet, if it is of telephone-event.
func (s *stream) keyIn(p *rtp.Packet, agreed *agreement, press func(digit byte)) {
	if slices.Contains(agreed.events, p.PayloadType) {
		s.pressed.read(rtpaudio.Event{SSRC: p.SSRC, Timestamp: p.Timestamp, Payload: p.Payload}, press)
	}
}

// readInfo returns the digit of an INFO request (application/dtmf-relay: Signal=5, application/dtmf: 5).
func readInfo(contentType, body string) (digit byte, ok bool) {
	contentType, _, _ = strings.Cut(strings.ToLower(contentType), ";")
	text := strings.TrimSpace(body)
	switch strings.TrimSpace(contentType) {
	case "application/dtmf-relay":
		for line := range strings.Lines(body) {
			if name, value, found := strings.Cut(line, "="); found && strings.EqualFold(strings.TrimSpace(name), "signal") {
				text = strings.TrimSpace(value)
				break
			}
		}
	case "application/dtmf":
	default:
		return 0, false
	}
	if code := strings.TrimPrefix(text, "1"); len(text) == 2 && text[0] == '1' && code <= "5" { // 10 is *, 11 is #, by their event
		return keys[10+int(code[0]-'0')], true
	}
	if len(text) != 1 || !strings.Contains(keys, strings.ToUpper(text)) {
		return 0, false
	}
	return strings.ToUpper(text)[0], true
}

const (
	digitLength = 100 * time.Millisecond // longer than any receiver wants: Q.24 has 40 ms
	digitPause  = 60 * time.Millisecond
	// digitVolume is in dB below the most (RFC 4733, section 2.3.3): the level of a telephone.
	digitVolume = 10
	// digitEnds is how often the end of a digit is sent (RFC 4733, section 2.5.1.4).
	digitEnds = 3
	// maxDigits bounds what is sent at once.
	maxDigits = 64
)

var errNoDigits = errors.New("the other side takes no digits")

// sendDigits sends digits in the place of sound. It blocks until they are sent. "," is a pause of half a second.
func (s *stream) sendDigits(ctx context.Context, digits string) error {
	digits = strings.ToUpper(digits)
	if len(digits) == 0 || len(digits) > maxDigits || strings.Trim(digits, keys+",") != "" {
		return fmt.Errorf("%q are no digits: there are %s and the comma, a pause of half a second; %d are the most", digits, keys, maxDigits)
	}
	s.mu.Lock()
	able := s.sound != nil && s.sound.event != nil && !s.digits
	s.digits = s.digits || able
	s.mu.Unlock()
	if !able {
		return errNoDigits
	}
	defer func() {
		s.mu.Lock()
		s.digits = false
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
	e, at := s.sound.event, s.now()
	s.mu.Unlock()
	if e == nil { // the other side took digits until now
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
		return s.write(e.number, first, at, payload[:])
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
