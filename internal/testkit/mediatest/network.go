package mediatest

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Impairment describes what a bad network does to packets in one direction. The zero value forwards them at once. Shares are 0
// to 1; durations in JSON are nanoseconds.
type Impairment struct {
	Delay     time.Duration `json:"delay"`
	Jitter    time.Duration `json:"jitter"`    // added to Delay, evenly distributed from 0 to this
	Overtake  bool          `json:"overtake"`  // jitter may reorder packets
	Loss      float64       `json:"loss"`      // share lost, independently
	Burst     Burst         `json:"burst"`     // losses in a row, in addition to Loss
	Reorder   float64       `json:"reorder"`   // share that skips Delay and Jitter, and so overtakes earlier packets
	Duplicate float64       `json:"duplicate"` // share delivered twice
	Down      bool          `json:"down"`      // everything is lost
}

// Burst describes losses of several packets in a row. It is the simple Gilbert-Elliott model: in the bad state every packet is lost.
type Burst struct {
	Loss   float64 `json:"loss"`   // share of packets lost in bursts
	Length float64 `json:"length"` // mean number of packets in a row, at least 1
}

// Path is one direction of a bad network. It decides with a seeded random source, so that it treats the n-th packet in
// the same way in every run.
type Path struct {
	mu            sync.Mutex
	random        *rand.Rand
	impairment    Impairment
	inBurst       bool      // in a burst of losses
	lastArrival   time.Time // arrival of the newest packet that later ones may not overtake
	blackoutUntil time.Time // packets sent before this time are lost
}

// NewPath returns an unimpaired path. For the two directions of a network, use the same seed and different values of
// direction.
func NewPath(seed, direction uint64) *Path {
	return &Path{random: rand.New(rand.NewPCG(seed, direction))}
}

// SetImpairment changes the impairment for the packets sent from now on.
func (p *Path) SetImpairment(impairment Impairment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.impairment = impairment
}

// Blackout makes the path lose packets that are sent from now until the given time. Packets in flight still arrive.
func (p *Path) Blackout(until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blackoutUntil = until
}

// Send decides when a packet that is sent now arrives, in 0, 1 or 2 copies. For each packet it draws the same number of
// random numbers, so that the numbers for later packets do not depend on the impairment.
func (p *Path) Send(now time.Time) (arrives time.Time, copies int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	turn, loss, jitter := p.random.Float64(), p.random.Float64(), p.random.Float64()
	reorder, duplicate := p.random.Float64(), p.random.Float64()
	f := &p.impairment
	if p.advanceBurst(turn) || loss < f.Loss || f.Down || now.Before(p.blackoutUntil) {
		return now, 0
	}
	copies = 1
	if duplicate < f.Duplicate {
		copies = 2
	}
	if reorder < f.Reorder {
		return now, copies
	}
	arrives = now.Add(f.Delay + time.Duration(jitter*float64(f.Jitter)))
	if !f.Overtake {
		if arrives.Before(p.lastArrival) {
			arrives = p.lastArrival
		}
		p.lastArrival = arrives
	}
	return arrives, copies
}

// advanceBurst begins or ends a burst of losses, or continues it. It reports whether the next packet is lost in a
// burst. A burst lasts Length packets on average. Loss is the share of all packets that are lost in bursts.
func (p *Path) advanceBurst(random float64) (isLost bool) {
	b := &p.impairment.Burst
	switch {
	case b.Loss <= 0:
		p.inBurst = false
	case p.inBurst:
		p.inBurst = random >= 1/max(b.Length, 1)
	default:
		p.inBurst = random < b.Loss/(1-b.Loss)/max(b.Length, 1)
	}
	return p.inBurst
}
