package rtpaudio

const (
	// redCopies is how many earlier packets travel again with each one. Measured in Chromium, 15 s at a round trip of 60 ms:
	// of speech that lost 5, 10 and 30 % of its packets it made up 0.07, 0.0 and 2.3 % with two copies, 0.16, 0.6 and 10 %
	// with one, and 3.6, 8.3 and 26.9 % with none.
	redCopies = 2
	// maxREDOffset and maxREDLength are what the header of a copy can say: RFC 2198, section 3.
	maxREDOffset = 1<<14 - 1
	maxREDLength = 1<<10 - 1
	// maxREDPacket leaves room for the headers of RTP, SRTP, UDP and IPv6 in 1280 bytes, which every path carries (RFC 8200,
	// section 5).
	maxREDPacket = 1150
)

// redPacker puts copies of the packets before into each packet: RFC 2198.
type redPacker struct {
	earlier [redCopies]redCopy // oldest first; an empty payload is none
	buf     []byte
}

type redCopy struct {
	ts      uint32
	payload []byte
}

// pack returns the payload of a packet with copies. It is valid until the next call.
func (r *redPacker) pack(payload []byte, ts uint32, payloadType uint8) []byte {
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
		// 1 bit: more follow; 7: payload type; 14: how much earlier; 10: length
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
