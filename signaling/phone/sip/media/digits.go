package media

import (
	"encoding/binary"
	"strings"

	"voxgate/media/rtpaudio"
)

// keys are the keys of the telephone events 0 to 15, in this order (RFC 4733, section 3.2).
const keys = "0123456789*#ABCD"

// digitReader finds the digits in telephone-event packets. Each digit is sent as several packets, all with the
// timestamp of its beginning. The last packet is sent three times (RFC 4733, section 2.5). Any packet may be lost.
//
// Some senders change the timestamp within a digit, or do not change it for the next digit. So digitReader also looks
// at the key, sequence number, end bit and duration to decide whether a packet continues the previous digit.
type digitReader struct {
	hasBegun  bool
	ssrc      uint32 // SSRC of the newest packet; the fields below are also those of the newest packet
	sequence  uint16
	timestamp uint32
	duration  uint16
	code      byte
	hasEnded  bool // the end bit was set in the newest packet, or in an earlier one of the digit
}

const (
	// maxMisordered limits how many packets late a packet may be. If its sequence number is further back, the sender
	// has restarted the stream.
	maxMisordered = 100
	// endBit is the end bit, in the second byte of an event (RFC 4733, section 2.3.2).
	endBit = 0x80
)

// detectDigit calls onDigit if the packet begins a new digit.
func (r *digitReader) detectDigit(e rtpaudio.Event, onDigit func(digit byte)) {
	if len(e.Payload) < 4 || int(e.Payload[0]) >= len(keys) {
		return
	}
	if late := int16(r.sequence - e.Sequence); r.hasBegun && e.SSRC == r.ssrc && late >= 0 && late < maxMisordered {
		return // the packet is late, or a duplicate
	}
	code, ends, duration := e.Payload[0], e.Payload[1]&endBit != 0, binary.BigEndian.Uint16(e.Payload[2:])
	goesOn := r.hasBegun && e.SSRC == r.ssrc && code == r.code && r.isSameDigit(e, ends, duration)
	*r = digitReader{true, e.SSRC, e.Sequence, e.Timestamp, duration, code, ends || goesOn && r.hasEnded}
	if !goesOn {
		onDigit(keys[code])
	}
}

// isSameDigit reports whether a packet with the same key as the previous packet continues that digit. Otherwise the key
// was pressed again.
func (r *digitReader) isSameDigit(e rtpaudio.Event, isEnd bool, duration uint16) bool {
	passed := int64(int32(e.Timestamp - r.timestamp))
	longer := int64(duration) - int64(r.duration)
	switch {
	case r.hasEnded && !isEnd: // after its end, a digit has only packets with the end bit
		return false
	case passed == 0:
		return true
	case r.hasEnded: // a repeated end packet, unless more time has passed than the digit lasted
		return passed > 0 && longer == 0 && passed < int64(duration)
	case passed == int64(r.duration): // the next segment of a long digit (RFC 4733, section 2.5.1.3)
		return e.Sequence == r.sequence+1
	}
	const shortestPause = 320 // 40 ms at 8 kHz (ITU-T Q.24)
	return passed > 0 && longer >= 0 && passed < longer+shortestPause || e.Sequence == r.sequence+1 && longer > 0
}

// ParseInfoDigit returns the digit in the body of an INFO request: "Signal=5" in application/dtmf-relay, or "5" in
// application/dtmf.
func ParseInfoDigit(contentType, body string) (digit byte, ok bool) {
	contentType, _, _ = strings.Cut(strings.ToLower(contentType), ";")
	text := strings.TrimSpace(body)
	switch strings.TrimSpace(contentType) {
	case "application/dtmf-relay":
		for line := range strings.Lines(body) {
			if name, value, found := strings.Cut(line, "="); found && strings.EqualFold(strings.TrimSpace(name), "signal") {
				text = strings.Trim(value, "\" \t\r\n")
				break
			}
		}
	case "application/dtmf":
	default:
		return 0, false
	}
	if code := strings.TrimPrefix(text, "1"); len(text) == 2 && text[0] == '1' && code <= "5" { // 10 to 15 are event codes: 10 is *, 11 is #
		return keys[10+int(code[0]-'0')], true
	}
	if len(text) != 1 || !strings.Contains(keys, strings.ToUpper(text)) {
		return 0, false
	}
	return strings.ToUpper(text)[0], true
}
