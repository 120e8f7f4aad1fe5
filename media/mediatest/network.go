package mediatest

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Impairment is what a bad network does to packets in one direction. The zero value passes them on as they come. Shares are from 0 to 1,
// durations in JSON are nanoseconds.
type Impairment struct {
	Delay     time.Duration `json:"delay"`
	Jitter    time.Duration `json:"jitter"`    // on top of Delay, evenly spread from 0 to this
	Overtake  bool          `json:"overtake"`  // packets keep no order in their jitter
	Loss      float64       `json:"loss"`      // share that is lost, each packet by itself
	Burst     Burst         `json:"burst"`     // losses in a row, besides those
	Reorder   float64       `json:"reorder"`   // share that skips Delay and Jitter, and so overtakes others
	Duplicate float64       `json:"duplicate"` // share that comes twice
	Down      bool          `json:"down"`      // nothing passes
}

// Burst is the Gilbert-Elliott model in its simple form: in the bad state every packet is lost.
type Burst struct {
	Loss   float64 `json:"loss"`   // share that is lost
	Length float64 `json:"length"` // packets in a row, at the mean; 1 at least
}

// Path is one direction of a bad network. What becomes of a packet is decided by a seeded random source: the n-th packet has
// the same fate in every run with the same impairment.
type Path struct {
	mu         sync.Mutex
	random     *rand.Rand
	impairment Impairment
	bad        bool      // in a burst of losses
	last       time.Time // when the last packet that keeps its order arrives
	dark       time.Time // until when nothing passes
}

// NewPath returns a path without faults. The two directions of a network take the same seed and differ in way.
func NewPath(seed, way uint64) *Path {
	return &Path{random: rand.New(rand.NewPCG(seed, way))}
}

// Set changes the impairment for the packets sent from now on.
func (p *Path) Set(impairment Impairment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.impairment = impairment
}

// Blackout loses what is sent before a time. What is on the way still arrives.
func (p *Path) Blackout(until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dark = until
}

// Send decides when a packet that is sent at a time arrives, and how many times: not at all, once or twice. It draws the same
// random numbers for every packet, whatever the impairment, so a change of that leaves the fate of later packets as it
// was.
func (p *Path) Send(now time.Time) (arrives time.Time, copies int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	turn, loss, jitter := p.random.Float64(), p.random.Float64(), p.random.Float64()
	reorder, duplicate := p.random.Float64(), p.random.Float64()
	f := &p.impairment
	if p.burst(turn) || loss < f.Loss || f.Down || now.Before(p.dark) {
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
		if arrives.Before(p.last) {
			arrives = p.last
		}
		p.last = arrives
	}
	return arrives, copies
}

// burst moves between the two states, and reports whether the packet is lost. The bad state is left with probability
// 1/Length, so it lasts Length packets at the mean; it is entered as often as makes Loss the share of time spent in it.
func (p *Path) burst(turn float64) bool {
	b := &p.impairment.Burst
	switch {
	case b.Loss <= 0:
		p.bad = false
	case p.bad:
		p.bad = turn >= 1/max(b.Length, 1)
	default:
		p.bad = turn < b.Loss/(1-b.Loss)/max(b.Length, 1)
	}
	return p.bad
}
