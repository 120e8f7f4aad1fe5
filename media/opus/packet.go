package opus

import (
	"time"

	"voxgate/media"
)

// silkFrame is the duration of a SILK frame (RFC 6716, section 4.2.2). A packet has a voice activity flag for each.
const silkFrame = 20 * time.Millisecond

// frameDuration returns the duration of each frame of a packet, from its first byte (RFC 6716, section 3.1, table 2).
func frameDuration(toc byte) time.Duration {
	switch config := toc >> 3; {
	case config < 12: // SILK
		return [...]time.Duration{10, 20, 40, 60}[config&3] * time.Millisecond
	case config < 16: // hybrid
		return [...]time.Duration{10, 20}[config&1] * time.Millisecond
	default: // CELT
		return 2500 * time.Microsecond << (config & 3)
	}
}

// PacketDuration implements [media.Codec] for packets that a decoder has accepted.
func (Codec) PacketDuration(packet []byte) time.Duration {
	frames := 1
	switch code := packet[0] & 3; {
	case code == 3 && len(packet) > 1:
		frames = int(packet[1] & 0x3f)
	case code == 1, code == 2:
		frames = 2
	}
	return min(time.Duration(frames)*frameDuration(packet[0]), media.MaxPacketDuration)
}

// RedundancyDuration implements [media.Codec]. A packet holds a copy of one earlier frame (FEC) or no copy. With pion
// it returns 0, because pion's decoder cannot read the copy.
func (c Codec) RedundancyDuration(packet []byte) time.Duration {
	if c.Decoder == Pion || len(packet) == 0 || packet[0]&0x80 != 0 { // packets with CELT only have no copy
		return 0
	}
	frame := fromFirstFrame(packet)
	if len(frame) == 0 {
		return 0
	}
	d := frameDuration(packet[0])
	silkFrames := max(1, int(d/silkFrame))
	stereo := packet[0]&4 != 0
	// Each channel has one voice activity flag for each SILK frame, and after them one flag that announces a copy
	// (LBRR, RFC 6716, section 4.2.3).
	if frame[0]>>(7-silkFrames)&1 != 0 || stereo && frame[0]>>(6-2*silkFrames)&1 != 0 {
		return d
	}
	return 0
}

// fromFirstFrame returns the rest of a packet from the beginning of its first frame (RFC 6716, section 3.2).
func fromFirstFrame(packet []byte) []byte {
	code, p := packet[0]&3, packet[1:]
	lengths := 0 // number of frame lengths before the first frame
	switch code {
	case 2:
		lengths = 1
	case 3:
		if len(p) == 0 {
			return nil
		}
		header := p[0]
		p = p[1:]
		for more := header&0x40 != 0; more && len(p) > 0; p = p[1:] { // padding length
			more = p[0] == 255
		}
		if header&0x80 != 0 {
			lengths = int(header&0x3f) - 1
		}
	}
	for range lengths {
		if len(p) > 0 && p[0] >= 252 { // two bytes: RFC 6716, section 3.2.1
			p = p[1:]
		}
		if len(p) == 0 {
			return nil
		}
		p = p[1:]
	}
	return p
}
