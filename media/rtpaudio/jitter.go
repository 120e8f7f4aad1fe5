package rtpaudio

import "time"

// heldPackets is how many packets a gap in the sequence can hold back: more than come in the 200 ms it is waited for at the
// most, but for packets of 2.5 ms. A power of two, since sequence numbers wrap around within it.
const heldPackets = 64

// packet is one RTP packet that takes a sequence number. One without payload holds no sound.
type packet struct {
	seq     uint16
	ts      uint32
	arrived time.Time
	payload []byte
	copied  bool // it is a copy that came in a later packet
	event   Event
}

// request is what is known of a missing packet.
type request struct {
	since time.Time // when the first packet after it came
	asked time.Time // when it was last asked for
	times int       // it was asked for
}

// reorderer holds the packets that came ahead of one that is missing.
type reorderer struct {
	units   func(payload []byte) uint32 // how long the sound of a packet is in units of the RTP clock
	next    uint16                      // the sequence number that is due
	newest  uint16                      // the latest that is held
	history uint64                      // bit i: next-1-i has come
	held    int
	slots   [heldPackets]packet
	present uint64               // bit i: slots[i] holds a packet
	missing [heldPackets]request // of what is not present between next and newest
}

// reset makes seq the one that is due.
func (r *reorderer) reset(seq uint16) {
	r.next, r.history, r.held, r.present = seq, 0, 0, 0
}

// came reports whether seq, at most 64 before next, has come.
func (r *reorderer) came(seq uint16) bool {
	return r.history>>(r.next-1-seq)&1 != 0
}

// advance moves on to the sequence number after seq, which has come, and returns how many before it have not.
func (r *reorderer) advance(seq uint16) (lost int) {
	lost = int(seq - r.next)
	r.next = seq + 1
	r.history = r.history<<(lost+1) | 1
	return lost
}

// holds reports whether seq, less than heldPackets after next, is held.
func (r *reorderer) holds(seq uint16) bool { return r.present>>(seq%heldPackets)&1 != 0 }

// hold keeps a copy of p, less than heldPackets after next, and returns false if it holds it already.
func (r *reorderer) hold(p packet) bool {
	i := p.seq % heldPackets
	if r.holds(p.seq) {
		return false
	}
	r.present |= 1 << i
	if r.held == 0 || !r.overtaken(p.seq) {
		from := r.next
		if r.held > 0 {
			from = r.newest + 1
		}
		for seq := from; seq != p.seq; seq++ {
			r.missing[seq%heldPackets] = request{since: p.arrived}
		}
		r.newest = p.seq
	}
	r.held++
	p.payload = append(r.slots[i].payload[:0], p.payload...)
	p.event.Payload = append(r.slots[i].event.Payload[:0], p.event.Payload...)
	r.slots[i] = p
	return true
}

// overtaken reports whether seq comes after one that follows it.
func (r *reorderer) overtaken(seq uint16) bool {
	return r.held > 0 && int16(seq-r.newest) < 0
}

// take returns the first packet that is held; there must be one. It is valid until the next hold.
func (r *reorderer) take() *packet {
	p := r.first()
	r.present &^= 1 << (p.seq % heldPackets)
	r.held--
	return p
}

func (r *reorderer) first() *packet {
	for seq := r.next; ; seq++ {
		if r.holds(seq) {
			return &r.slots[seq%heldPackets]
		}
	}
}

// waitingSince returns when the first of the held packets arrived.
func (r *reorderer) waitingSince() time.Time {
	var since time.Time
	for i := range r.slots {
		if r.present>>i&1 != 0 && (since.IsZero() || r.slots[i].arrived.Before(since)) {
			since = r.slots[i].arrived
		}
	}
	return since
}

// before returns the last held packet with sound before seq; nil if there is none.
func (r *reorderer) before(seq uint16) *packet {
	for ; seq != r.next; seq-- {
		if p := &r.slots[(seq-1)%heldPackets]; r.holds(seq-1) && len(p.payload) > 0 {
			return p
		}
	}
	return nil
}

// adopt holds copies of earlier packets, oldest first, that came in p, which is held, as the packets that are missing before
// it. Sequence numbers do not say which those are, since padding takes some of them, so each copy goes where its timestamp
// fits: ts is that of the sound that is due.
func (r *reorderer) adopt(p packet, copies []redBlock, ts uint32) {
	seq, end := p.seq-1, p.ts // the place before which to look, and when the sound after it begins
	for i := len(copies) - 1; i >= 0; i-- {
		c := packet{ts: p.ts - copies[i].offset, arrived: p.arrived, payload: copies[i].payload, copied: true}
		for ; seq-r.next < heldPackets && r.holds(seq); seq-- {
			if h := &r.slots[seq%heldPackets]; len(h.payload) > 0 {
				if int32(c.ts-h.ts) >= 0 {
					break
				}
				end = h.ts
			}
		}
		if seq-r.next >= heldPackets {
			return
		}
		begin := ts
		if h := r.before(seq); h != nil {
			begin = h.ts + r.units(h.payload)
		}
		if r.holds(seq) || int32(c.ts-begin) < 0 || int32(end-c.ts-r.units(c.payload)) < 0 {
			continue // it came itself
		}
		c.seq = seq
		r.hold(c)
		seq, end = seq-1, c.ts
	}
}
