package rtpaudio

import (
	"errors"
	"slices"

	"github.com/pion/rtp"
)

// maxREDBlocks bounds the blocks of a packet. Chrome sends two, we send three, and nine copies reach back as far as a gap
// is waited for.
const maxREDBlocks = 10

var errBadRED = errors.New("lengths of RED blocks do not fit")

// redBlock is one block of a RED packet.
type redBlock struct {
	payloadType uint8
	offset      uint32 // by how much its timestamp is before that of the packet, in units of the RTP clock
	payload     []byte
}

// parseRED splits the payload of a RED packet (RFC 2198, section 3) into its blocks: copies of earlier packets, the oldest
// first, and last what the packet would hold without RED. The blocks lie in payload and are appended to into, which must
// be empty. A payload whose lengths do not fit is refused as a whole: nothing tells which of them is wrong.
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

// unpack replaces the payload of a RED packet by what it would be without RED, and returns the copies of earlier packets
// that it held, oldest first. isSound tells whether the payload is the codec's.
func (s *stream) unpack(p *rtp.Packet) (copies []redBlock, isSound bool, err error) {
	switch {
	case slices.Contains(s.options.Types, p.PayloadType):
		return nil, true, nil
	case !slices.Contains(s.options.RED, p.PayloadType):
		return nil, false, nil
	case len(p.Payload) == 0: // padding
		return nil, true, nil
	}
	blocks, err := parseRED(p.Payload, s.blocks[:0])
	if err != nil {
		return nil, false, err
	}
	last := len(blocks) - 1
	p.Payload, isSound = blocks[last].payload, slices.Contains(s.options.Types, blocks[last].payloadType)
	copies = blocks[:0]
	for _, b := range blocks[:last] {
		if len(b.payload) > 0 && b.offset > 0 && slices.Contains(s.options.Types, b.payloadType) {
			copies = append(copies, b)
		}
	}
	return copies, isSound, nil
}
