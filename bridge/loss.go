package bridge

import "sync"

// Loss is the share of packets that were lost lately, from 0 to 1, up from the caller and down to it. nil: it is not known, or no
// packets carry the sound.
type Loss struct{ Up, Down *float64 }

// lossWindow is how many packets are "lately" at least: 10 s of sound.
const lossWindow = 500

// losses counts the packets that were lost lately. Any goroutine may call its methods.
type losses struct {
	mu       sync.Mutex
	up, down way
}

// way is one way of the two.
type way struct{ lost, of float64 }

func (l *losses) note(up bool, lost, of int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &l.down
	if up {
		w = &l.up
	}
	if w.of >= lossWindow { // what is older counts half
		w.lost, w.of = w.lost/2, w.of/2
	}
	w.lost, w.of = w.lost+float64(lost), w.of+float64(of)
}

func (l *losses) shares() Loss {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Loss{l.up.share(), l.down.share()}
}

func (w way) share() *float64 {
	if w.of == 0 {
		return nil
	}
	share := w.lost / w.of
	return &share
}

func (l *losses) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.up, l.down = way{}, way{}
}
