// Package impair is a model of a bad network, the same for packets of a socket ([Conn]) and of a link between two network
// namespaces ([Tunnel]). What becomes of a packet is decided by a seeded random source: the n-th packet of a direction has
// the same fate in every run with the same profile.
package impair

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Profile says what one direction does to packets. The zero value passes them on as they come. Shares are from 0 to 1,
// durations in JSON are nanoseconds.
type Profile struct {
	Delay     time.Duration `json:"delay"`
	Jitter    time.Duration `json:"jitter"`    // on top of Delay, evenly spread from 0 to this
	Overtake  bool          `json:"overtake"`  // packets keep no order in their jitter
	Loss      float64       `json:"loss"`      // share that is lost, each packet by itself
	Burst     Burst         `json:"burst"`     // losses in a row, besides those
	Reorder   float64       `json:"reorder"`   // share that skips Delay and Jitter, and so overtakes others
	Duplicate float64       `json:"duplicate"` // share that comes twice
	Rate      float64       `json:"rate"`      // bits per second; 0: no limit
	Queue     time.Duration `json:"queue"`     // the longest wait for the rate: beyond it packets are lost; 0: no limit
	Down      bool          `json:"down"`      // nothing passes
}

// Burst is the model of Gilbert and Elliott in its simple form: in the bad state every packet is lost.
type Burst struct {
	Loss   float64 `json:"loss"`   // share that is lost
	Length float64 `json:"length"` // packets in a row, at the mean; 1 at least
}

// Stats counts the packets of a direction.
type Stats struct {
	In, Lost, Blackout, Overflow, Reordered, Duplicated, Out uint64
}

// direction is one way through the network. Its randomness depends on nothing but the seed and the number of packets.
type direction struct {
	mu      sync.Mutex
	random  *rand.Rand
	profile Profile
	bad     bool      // in a burst of losses
	free    time.Time // when all that is queued for the rate has left
	last    time.Time // when the last packet that keeps its order comes out
	dark    time.Time // until when nothing passes
	stats   Stats
}

func newDirection(seed, way uint64) *direction {
	return &direction{random: rand.New(rand.NewPCG(seed, way))}
}

func (d *direction) set(p Profile) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.profile = p
}

// blackout loses what comes within a time from now on. What is on the way still arrives.
func (d *direction) blackout(length time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dark = time.Now().Add(length)
}

func (d *direction) read() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stats
}

// fate decides when a packet comes out: never, once or twice. It draws the same random numbers for every packet, whatever
// the profile, so that a change of the profile leaves the fate of later packets as it was.
func (d *direction) fate(now time.Time, size int) (at time.Time, copies int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	turn, loss, jitter := d.random.Float64(), d.random.Float64(), d.random.Float64()
	reorder, duplicate := d.random.Float64(), d.random.Float64()
	p := &d.profile
	d.stats.In++
	switch lost := d.burst(turn) || loss < p.Loss; {
	case p.Down || now.Before(d.dark):
		d.stats.Blackout++
		return now, 0
	case lost:
		d.stats.Lost++
		return now, 0
	}
	at = now
	if p.Rate > 0 {
		if d.free.Before(now) {
			d.free = now
		}
		if p.Queue > 0 && d.free.Sub(now) > p.Queue {
			d.stats.Overflow++
			return now, 0
		}
		d.free = d.free.Add(time.Duration(float64(8*size) / p.Rate * float64(time.Second)))
		at = d.free
	}
	copies = 1
	if duplicate < p.Duplicate {
		d.stats.Duplicated++
		copies = 2
	}
	if reorder < p.Reorder {
		d.stats.Reordered++
		return at, copies
	}
	at = at.Add(p.Delay + time.Duration(jitter*float64(p.Jitter)))
	if !p.Overtake {
		if at.Before(d.last) {
			at = d.last
		}
		d.last = at
	}
	return at, copies
}

// burst moves between the two states, and tells whether the packet is lost. The bad state is left with probability
// 1/Length, so it lasts Length packets at the mean; it is entered as often as makes Loss the share of time spent in it.
func (d *direction) burst(turn float64) bool {
	b := &d.profile.Burst
	switch {
	case b.Loss <= 0:
		d.bad = false
	case d.bad:
		d.bad = turn >= 1/max(b.Length, 1)
	default:
		d.bad = turn < b.Loss/(1-b.Loss)/max(b.Length, 1)
	}
	return d.bad
}
