package rtpaudio

import (
	"errors"
	"slices"

	"github.com/pion/rtp"
)

const (
	// maxREDBlocks limits the blocks of a received packet. Chrome sends two blocks, this package three. Nine copies
	// reach back as far as the receiver waits.
	maxREDBlocks = 10
	// redCopies is the number of earlier packets that each packet repeats. Share of speech that Chromium had to conceal
	// at 5, 10 and 30 % loss, with a round trip of 60 ms:
	//
	//   - two copies: 0.07, 0.0 and 2.3 %
	//   - one copy: 0.16, 0.6 and 10 %
	//   - no copies: 3.6, 8.3 and 26.9 %
	redCopies = 2
	// maxREDOffset and maxREDLength are the largest timestamp offset and length that a copy's header can hold: RFC
	// 2198, section 3.
	maxREDOffset = 1<<14 - 1
	maxREDLength = 1<<10 - 1
	// maxREDPacket leaves room for the headers of RTP, SRTP, UDP and IPv6 in 1280 bytes, which every path supports (RFC
	// 8200, section 5).
	maxREDPacket = 1150
)

var errBadRED = errors.New("lengths of RED blocks do not fit")

// redBlock is one block of a RED packet.
type redBlock struct {
	payloadType uint8
	offset      uint32 // difference to the packet's timestamp, in units of the RTP clock
	payload     []byte
}

// parseRED splits a RED payload (RFC 2198, section 3) into its blocks: copies of earlier packets, oldest first, and
// then the primary block. The blocks are slices of payload. They are appended to into, which must be empty.
func parseRED(payload []byte, into []redBlock) ([]redBlock, error) {
	header, size := payload, 0
	for len(header) > 0 && header[0]&0x80 != 0 { // another block follows
		if len(header) < 4 || len(into) == maxREDBlocks-1 {
			return nil, errBadRED
		}
		into = append(into, redBlock{payloadType: header[0] & 0x7f, offset: uint32(header[1])<<6 | uint32(header[2])>>2})
		size += int(header[2]&3)<<8 | int(header[3])
		header = header[4:]
	}
	// The whole payload is rejected, because any of the lengths may be the wrong one.
	if len(header) == 0 || size > len(header)-1 {
		return nil, errBadRED
	}
	primary := redBlock{payloadType: header[0] & 0x7f}
	data := header[1:]
	for i := range into {
		n := int(payload[4*i+2]&3)<<8 | int(payload[4*i+3])
		into[i].payload, data = data[:n:n], data[n:]
	}
	primary.payload = data
	return append(into, primary), nil
}

// unpackRED replaces the payload of a RED packet by its primary block, and returns the copies, oldest first. isSound
// reports whether the payload type of the primary block is the codec's.
func (s *stream) unpackRED(p *rtp.Packet) (copies []redBlock, isSound bool, err error) {
	switch {
	case slices.Contains(s.options.PayloadTypes, p.PayloadType):
		return nil, true, nil
	case !slices.Contains(s.options.REDTypes, p.PayloadType):
		return nil, false, nil
	case len(p.Payload) == 0: // padding
		return nil, true, nil
	}
	blocks, err := parseRED(p.Payload, s.blocks[:0])
	if err != nil {
		return nil, false, err
	}
	last := len(blocks) - 1
	p.Payload, isSound = blocks[last].payload, slices.Contains(s.options.PayloadTypes, blocks[last].payloadType)
	copies = blocks[:0]
	for _, b := range blocks[:last] {
		if len(b.payload) > 0 && b.offset > 0 && slices.Contains(s.options.PayloadTypes, b.payloadType) {
			copies = append(copies, b)
		}
	}
	return copies, isSound, nil
}

// redPacker adds copies of the previous packets to each packet: RFC 2198.
type redPacker struct {
	earlier [redCopies]redCopy // oldest first; may be empty
	buf     []byte
}

type redCopy struct {
	ts      uint32
	payload []byte
}

// packPayload returns the payload of a RED packet: copies of earlier payloads, followed by payload. The result is valid until the
// next call.
func (r *redPacker) packPayload(payload []byte, ts uint32, payloadType uint8) []byte {
	first, size := len(r.earlier), 1+len(payload)
	for first > 0 { // the newest copies that fit
		c := &r.earlier[first-1]
		size += 4 + len(c.payload)
		if len(c.payload) == 0 || len(c.payload) > maxREDLength || ts-c.ts > maxREDOffset || size > maxREDPacket {
			break
		}
		first--
	}
	r.buf = r.buf[:0]
	for _, c := range r.earlier[first:] {
		// A header has 1 bit for "more blocks follow", 7 bits for the payload type, 14 for the timestamp offset, and 10
		// for the length.
		header := 1<<31 | uint32(payloadType)<<24 | (ts-c.ts)<<10 | uint32(len(c.payload))
		r.buf = append(r.buf, byte(header>>24), byte(header>>16), byte(header>>8), byte(header))
	}
	r.buf = append(r.buf, payloadType)
	for _, c := range r.earlier[first:] {
		r.buf = append(r.buf, c.payload...)
	}
	r.buf = append(r.buf, payload...)

	oldest := r.earlier[0].payload
	copy(r.earlier[:], r.earlier[1:])
	r.earlier[redCopies-1] = redCopy{ts: ts, payload: append(oldest[:0], payload...)}
	return r.buf
}
