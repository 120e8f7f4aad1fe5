package bridge

import "sync"

// Loss is the recent packet loss in each direction, from 0 to 1: Up from the caller, Down to the caller. nil means that
// the loss is unknown or that there were no packets.
type Loss struct{ Up, Down *float64 }

// lossWindow is the number of packets, 10 s of audio, after which the weight of the packets so far is halved.
const lossWindow = 500

// lossCounters count recently lost packets. Their methods are safe for concurrent use.
type lossCounters struct {
	mu       sync.Mutex
	up, down lossCounter
}

// lossCounter counts the packets of one direction.
type lossCounter struct{ lost, total float64 }

func (l *lossCounters) recordLoss(isFromCaller bool, lost, total int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &l.down
	if isFromCaller {
		w = &l.up
	}
	if w.total >= lossWindow { // halves the weight of older packets
		w.lost, w.total = w.lost/2, w.total/2
	}
	w.lost, w.total = w.lost+float64(lost), w.total+float64(total)
}

func (l *lossCounters) lossShares() Loss {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Loss{l.up.lossShare(), l.down.lossShare()}
}

func (l lossCounter) lossShare() *float64 {
	if l.total == 0 {
		return nil
	}
	share := l.lost / l.total
	return &share
}

func (l *lossCounters) resetCounters() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.up, l.down = lossCounter{}, lossCounter{}
}
