package media

import "time"

// heldPackets is how many packets a gap in the sequence can hold back: more than come in the 60 ms it is waited for, even
// at 2.5 ms a packet. A power of two, since sequence numbers wrap around within it.
const heldPackets = 64

// packet is one RTP packet that takes a sequence number. One without payload holds no sound.
type packet struct {
	seq     uint16
	ts      uint32
	arrived time.Time
	payload []byte
}

// reorderer holds the packets that came ahead of one that is missing.
type reorderer struct {
	next    uint16 // the sequence number that is due
	newest  uint16 // the latest that is held
	history uint64 // bit i: next-1-i has come
	held    int
	slots   [heldPackets]packet
	present uint64 // bit i: slots[i] holds a packet
}

// reset makes seq the one that is due.
func (r *reorderer) reset(seq uint16) {
	r.next, r.history, r.held, r.present = seq, 0, 0, 0
}

// came tells whether seq, at most 64 before next, has come.
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

// hold keeps a copy of p, less than heldPackets after next, and returns false if it holds it already.
func (r *reorderer) hold(p packet) bool {
	i := p.seq % heldPackets
	if r.present>>i&1 != 0 {
		return false
	}
	r.present |= 1 << i
	if r.held == 0 || !r.overtaken(p.seq) {
		r.newest = p.seq
	}
	r.held++
	p.payload = append(r.slots[i].payload[:0], p.payload...)
	r.slots[i] = p
	return true
}

// overtaken tells whether seq comes after one that follows it.
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
		if i := seq % heldPackets; r.present>>i&1 != 0 {
			return &r.slots[i]
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
