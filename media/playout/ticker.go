package playout

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"voxgate/media"
)

// maxCatchUp is the largest number of missed ticks that the ticker makes up for by sending their frames at once. Ten
// frames are 200 ms, which a browser's jitter buffer absorbs. After a longer stall the voice continues with a delay.
const maxCatchUp = 10

// Ticker is the 20 ms clock of all pacers of a process. A frame takes about 70 us, so one goroutine could serve only
// 285 pacers. Therefore the pacers are spread over one goroutine (shard) per Go thread (GOMAXPROCS). A shard without a
// voice to play sleeps.
type Ticker struct {
	shards     []*shard
	stop       chan struct{}
	wg         sync.WaitGroup
	lateFrames atomic.Uint64

	mu        sync.Mutex
	nextIndex int // the shard of the next pacer
}

// NewTicker starts the clock. Close stops it.
func NewTicker() *Ticker {
	t := &Ticker{shards: make([]*shard, runtime.GOMAXPROCS(0)), stop: make(chan struct{})}
	epoch := time.Now()
	for i := range t.shards {
		// Phases are staggered so that the shards' bursts of packets do not meet.
		phase := media.FrameDuration * time.Duration(i) / time.Duration(len(t.shards))
		s := &shard{epoch: epoch.Add(phase), wake: make(chan struct{}, 1)}
		t.shards[i] = s
		t.wg.Go(func() { s.runLoop(t.stop, &t.lateFrames) })
	}
	return t
}

// Close stops the clock and waits until no pacer is being served. Pacers that are still open fall silent.
func (t *Ticker) Close() {
	close(t.stop)
	t.wg.Wait()
}

// LateFrames returns how many frames were sent at least 20 ms late, because the machine was busy.
func (t *Ticker) LateFrames() uint64 { return t.lateFrames.Load() }

// nextShard returns the shard for a new pacer, in rotation.
func (t *Ticker) nextShard() *shard {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.shards[t.nextIndex]
	t.nextIndex = (t.nextIndex + 1) % len(t.shards)
	return s
}

type shard struct {
	epoch time.Time     // time of the first tick; all others are multiples of 20 ms later
	wake  chan struct{} // signals new pacers in added

	mu    sync.Mutex
	added []*Pacer // waiting for their first tick
}

// addPacer makes the shard tick p from the next tick on, until its onTick returns false.
func (s *shard) addPacer(p *Pacer) {
	s.mu.Lock()
	s.added = append(s.added, p)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// appendAdded appends the newly added pacers to active.
func (s *shard) appendAdded(active []*Pacer) []*Pacer {
	s.mu.Lock()
	defer s.mu.Unlock()
	active = append(active, s.added...)
	clear(s.added)
	s.added = s.added[:0]
	return active
}

func (s *shard) runLoop(stop <-chan struct{}, lateFrames *atomic.Uint64) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var active []*Pacer
	var due time.Time // time of the next tick; computed from the previous one, so that delays do not add up
	for {
		if len(active) == 0 {
			select {
			case <-s.wake:
			case <-stop:
				return
			}
			due = s.nextTick(time.Now())
		}
		timer.Reset(time.Until(due))
		select {
		case <-timer.C:
		case <-stop:
			return
		}
		missed := time.Since(due) / media.FrameDuration
		if missed > maxCatchUp {
			due = due.Add((missed - maxCatchUp) * media.FrameDuration)
		}
		active = tickAll(s.appendAdded(active), due)
		if missed > 0 {
			lateFrames.Add(uint64(len(active)))
		}
		due = due.Add(media.FrameDuration)
	}
}

// nextTick returns the first tick after now.
func (s *shard) nextTick(now time.Time) time.Time {
	k := now.Sub(s.epoch)/media.FrameDuration + 1
	if now.Before(s.epoch) {
		k = 0
	}
	return s.epoch.Add(k * media.FrameDuration)
}

// tickAll serves the pacers and returns those that have more to play.
func tickAll(active []*Pacer, at time.Time) (remaining []*Pacer) {
	more := active[:0]
	for _, p := range active {
		if p.onTick(at) {
			more = append(more, p)
		}
	}
	clear(active[len(more):])
	return more
}
