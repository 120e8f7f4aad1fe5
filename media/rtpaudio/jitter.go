package rtpaudio

import "time"

// maxHeldPackets limits the packets held behind a gap. Only packets of 2.5 ms could reach the limit within the maximum
// wait of 200 ms. Sequence numbers modulo maxHeldPackets are the indexes of slots. It must be a power of two, because
// sequence numbers wrap around.
const maxHeldPackets = 64

// packet is one RTP packet. A packet without payload holds no sound.
type packet struct {
	seq     uint16
	ts      uint32
	arrived time.Time
	payload []byte
	isCopy  bool // the packet is a copy that came in a later packet
	event   Event
}

// request records when a missing packet was found to be missing, and when it was requested.
type request struct {
	since       time.Time // arrival of the first packet after the missing one
	lastRequest time.Time // when it was last requested
	count       int       // how often it was requested
}

// reorderer holds packets while a packet with an earlier number is missing.
type reorderer struct {
	payloadUnits func(payload []byte) uint32 // duration of a payload in units of the RTP clock
	next         uint16                      // the next sequence number to play
	newest       uint16                      // the latest sequence number held
	history      uint64                      // bit i: next-1-i has arrived
	heldCount    int
	slots        [maxHeldPackets]packet
	present      uint64                  // bit i: slots[i] holds a packet
	missing      [maxHeldPackets]request // packets missing between next and newest
}

// reset drops all held packets and makes seq the next sequence number to play.
func (r *reorderer) reset(seq uint16) {
	r.next, r.history, r.heldCount, r.present = seq, 0, 0, 0
}

// hasArrived reports whether the packet with number seq has arrived. seq must be 1 to 64 before next.
func (r *reorderer) hasArrived(seq uint16) bool {
	return r.history>>(r.next-1-seq)&1 != 0
}

// advancePast records that packet seq is played, and makes seq+1 the next sequence number. It returns how many missing
// packets were skipped before seq.
func (r *reorderer) advancePast(seq uint16) (lostPackets int) {
	lostPackets = int(seq - r.next)
	r.next = seq + 1
	r.history = r.history<<(lostPackets+1) | 1
	return lostPackets
}

// holds reports whether the packet with number seq is held. seq must be less than maxHeldPackets after next.
func (r *reorderer) holds(seq uint16) bool { return r.present>>(seq%maxHeldPackets)&1 != 0 }

// holdPacket keeps a copy of p. The number of p must be less than maxHeldPackets after next. It returns false if a
// packet with that number is held already.
func (r *reorderer) holdPacket(p packet) (isNew bool) {
	i := p.seq % maxHeldPackets
	if r.holds(p.seq) {
		return false
	}
	r.present |= 1 << i
	if r.heldCount == 0 || !r.hasLaterPacket(p.seq) {
		from := r.next
		if r.heldCount > 0 {
			from = r.newest + 1
		}
		for seq := from; seq != p.seq; seq++ {
			r.missing[seq%maxHeldPackets] = request{since: p.arrived}
		}
		r.newest = p.seq
	}
	r.heldCount++
	p.payload = append(r.slots[i].payload[:0], p.payload...)
	p.event.Payload = append(r.slots[i].event.Payload[:0], p.event.Payload...)
	r.slots[i] = p
	return true
}

// hasLaterPacket reports whether a packet with a number after seq is held.
func (r *reorderer) hasLaterPacket(seq uint16) bool {
	return r.heldCount > 0 && int16(seq-r.newest) < 0
}

// takeFirstHeld removes and returns the held packet with the lowest number. At least one packet must be held. The
// returned packet is valid until the next call of holdPacket.
func (r *reorderer) takeFirstHeld() *packet {
	p := r.firstHeld()
	r.present &^= 1 << (p.seq % maxHeldPackets)
	r.heldCount--
	return p
}

func (r *reorderer) firstHeld() *packet {
	for seq := r.next; ; seq++ {
		if r.holds(seq) {
			return &r.slots[seq%maxHeldPackets]
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

// lastSoundBefore returns the last held packet before seq that has sound, or nil.
func (r *reorderer) lastSoundBefore(seq uint16) *packet {
	for ; seq != r.next; seq-- {
		if p := &r.slots[(seq-1)%maxHeldPackets]; r.holds(seq-1) && len(p.payload) > 0 {
			return p
		}
	}
	return nil
}

// adoptCopies holds the copies that p carries (oldest first) in place of the missing packets that they repeat. ts is
// the timestamp of the next sound to play.
func (r *reorderer) adoptCopies(p packet, copies []redBlock, ts uint32) {
	seq, end := p.seq-1, p.ts // number and timestamp of the position before which the next copy belongs
	// The place of a copy is found by its timestamp. Its sequence number is unknown, because padding packets also use
	// numbers.
	for i := len(copies) - 1; i >= 0; i-- {
		c := packet{ts: p.ts - copies[i].offset, arrived: p.arrived, payload: copies[i].payload, isCopy: true}
		for ; seq-r.next < maxHeldPackets && r.holds(seq); seq-- {
			if h := &r.slots[seq%maxHeldPackets]; len(h.payload) > 0 {
				if int32(c.ts-h.ts) >= 0 {
					break
				}
				end = h.ts
			}
		}
		if seq-r.next >= maxHeldPackets {
			return
		}
		begin := ts
		if h := r.lastSoundBefore(seq); h != nil {
			begin = h.ts + r.payloadUnits(h.payload)
		}
		if r.holds(seq) || int32(c.ts-begin) < 0 || int32(end-c.ts-r.payloadUnits(c.payload)) < 0 {
			continue // the packet itself has arrived
		}
		c.seq = seq
		r.holdPacket(c)
		seq, end = seq-1, c.ts
	}
}
