package picture

import (
	"github.com/pion/rtp"
	"github.com/pion/rtp/codecs"
)

// keyFrame collects the packets of a key frame (RFC 7741). They may come in any order after the first.
type keyFrame struct {
	isOpen    bool
	timestamp uint32
	first     uint16            // sequence number
	last      int               // last packet, counted from first; -1 if not received yet
	parts     map[uint16][]byte // by sequence number, counted from first
	size      int               // bytes in parts
	newest    uint32            // timestamp of the newest packet after the frame
	end       uint16            // upper limit for the number of the last packet, counted from first
	requests  int               // how often missing packets were requested
}

// maxRequests limits how often the missing packets of a frame are requested. After three requests, the next key frame
// arrives sooner than a retransmission.
const maxRequests = 3

// addPacket adds a packet of the current key frame. If isDue is true, the first packet of a newer key frame replaces
// the current frame. hasGap reports whether an incomplete frame was dropped.
func (f *keyFrame) addPacket(p *rtp.Packet, isDue bool) (hasGap bool) {
	if f.isOpen && p.Timestamp == f.timestamp {
		return f.addPart(p)
	}
	var h codecs.VP8Packet
	data, err := h.Unmarshal(p.Payload)
	if err != nil || h.S == 0 || h.PID != 0 {
		return false
	}
	if _, _, key := parseKeyFrameSize(data); !key || !isDue {
		return false
	}
	hasGap = f.isOpen
	*f = keyFrame{isOpen: true, timestamp: p.Timestamp, first: p.SequenceNumber, last: -1, parts: map[uint16][]byte{}}
	return f.addPart(p) || hasGap
}

// addPart adds a packet of the current frame. hasGap reports whether the frame got too large and was dropped.
func (f *keyFrame) addPart(p *rtp.Packet) (hasGap bool) {
	var h codecs.VP8Packet
	data, err := h.Unmarshal(p.Payload)
	if err != nil || len(data) == 0 { // padding
		return false
	}
	at := p.SequenceNumber - f.first
	if f.parts[at] != nil || at >= 1<<15 { // duplicate, or before the first
		return false
	}
	f.parts[at] = append([]byte(nil), data...) // p belongs to the caller
	f.size += len(data)
	if p.Marker {
		f.last = int(at)
	}
	if f.size > maxBytes || at >= maxPackets {
		f.reset()
		return true
	}
	return false
}

// takeMissingPackets returns the sequence numbers of the frame's missing packets if p belongs to a newer frame. The
// caller then requests them again. It returns them once for each newer frame, and at most maxRequests times.
func (f *keyFrame) takeMissingPackets(p *rtp.Packet) (sequenceNumbers []uint16) {
	length := p.SequenceNumber - f.first
	if !f.isOpen || p.Timestamp == f.timestamp || p.Timestamp == f.newest || length >= maxPackets || f.requests == maxRequests {
		return nil
	}
	if f.newest = p.Timestamp; f.requests == 0 || length < f.end {
		f.end = length
	}
	if f.last >= 0 {
		f.end = uint16(f.last)
	}
	f.requests++
	for i := range f.end {
		if f.parts[i] == nil {
			sequenceNumbers = append(sequenceNumbers, f.first+i)
		}
	}
	return sequenceNumbers
}

// assembleIfComplete returns the frame if it is complete, else nil.
func (f *keyFrame) assembleIfComplete() []byte {
	if !f.isOpen || f.last < 0 || len(f.parts) != f.last+1 {
		return nil
	}
	data := make([]byte, 0, f.size)
	for i := range f.last + 1 {
		part := f.parts[uint16(i)]
		if part == nil { // there are enough parts, so one of them lies beyond the last packet
			return nil
		}
		data = append(data, part...)
	}
	return data
}

func (f *keyFrame) reset() { *f = keyFrame{} }

// parseKeyFrameSize returns the size in the header of a key frame (RFC 6386, section 9.1), and false for anything else.
func parseKeyFrameSize(data []byte) (width, height int, ok bool) {
	if len(data) < 10 || data[0]&1 != 0 || data[3] != 0x9d || data[4] != 0x01 || data[5] != 0x2a {
		return 0, 0, false
	}
	// The upper two bits of width and height are a hint for upscaling.
	return int(data[7]&0x3f)<<8 | int(data[6]), int(data[9]&0x3f)<<8 | int(data[8]), true
}
