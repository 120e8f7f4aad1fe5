package media

import (
	"sync"
	"time"
)

const (
	// trailFrames is how many frames of silence follow a talkspurt before packets stop. Measured in Chromium: after a
	// bare stop its jitter buffer invents 65 ms of the old voice; after five frames it falls silent at once.
	trailFrames = 5
	// fadeTime is how long the voice takes to fall silent where it is cut: the shortest fade in which no click is heard.
	fadeTime = 5 * time.Millisecond
	// maxQueue bounds what waits to be played. The model sends an answer faster than it is spoken, and answers of more
	// than two minutes at a stretch are a fault.
	maxQueue = 2 * time.Minute
	// maxHeld bounds what waits while nobody listens yet. Who connects later than that wants the end, not the beginning.
	maxHeld = 10 * time.Second
)

// Frame is 20 ms of sound.
type Frame struct {
	PCM   []int16
	PTS   time.Duration // when it is to be heard, on the wall clock, since the playout was made
	Start bool          // opens a talkspurt: nothing was sent right before it
}

// Output takes the frames of a Playout, one goroutine at a time. WriteFrame is called with the playout locked: it must not
// block, must not call the playout, and must not keep f.PCM.
type Output interface {
	// Rate is the number of samples per second, that of the playout.
	Rate() int
	// Lead is how far ahead of their PTS frames may be handed over. 0 means one frame every 20 ms, as RTP wants it, and
	// silence after each talkspurt. An output with a lead (a socket whose client has its own queue, and is told to
	// empty it when the voice is cut) gets frames early, no trailing silence and no fades.
	Lead() time.Duration
	WriteFrame(f Frame) error
}

// PlayoutStats counts what a Playout did since it was made.
type PlayoutStats struct {
	Frames        uint64        // handed over with sound in them
	SilenceFrames uint64        // handed over in the trail of a talkspurt
	Underruns     uint64        // times the sound was late: it came after the trail had begun and before it ended
	Flushes       uint64        // calls of Flush
	WriteErrors   uint64        // frames the output refused
	Dropped       time.Duration // sound refused by a full queue, or too old when it was on hold
}

// Playout paces the voice of one call: it takes sound as fast as the model sends it and hands it to an Output in frames of
// 20 ms on the wall clock. Its methods may be called by any goroutine.
//
// An idle playout hands over its first frame at once, within WritePCM; the rest follow on the ticker.
type Playout struct {
	shard *shard
	rate  int
	frame int       // samples in a frame
	epoch time.Time // PTS 0

	// firing is held while marks are called, so that they run in order. It is taken before mu.
	firing sync.Mutex

	mu     sync.Mutex
	out    Output // nil: sound is discarded
	lead   time.Duration
	hold   bool
	closed bool
	ticked bool // the shard serves it
	queue  pcmQueue
	end    int64  // samples ever queued
	marks  []mark // waiting, by position
	fired  []mark // decided, not yet called
	stats  PlayoutStats

	talking bool          // within a talkspurt or its trail
	next    time.Duration // the earliest PTS of the next frame
	trail   int           // frames of silence to come; 0 before the trail
	dry     bool          // the queue ran empty: sound that comes before the trail is over is faded in
	flushed bool          // pcm is a fade-out that is to be sent
	kicked  time.Duration // when sound was last queued
	pcm     []int16       // the frame in hand
	last    int16         // the last sample of the frame before
}

type mark struct {
	at    int64 // samples queued before it
	f     func(heard bool)
	heard bool
}

// NewPlayout returns a playout for mono PCM of rate, with no output attached.
func NewPlayout(t *Ticker, rate int) *Playout {
	frame := samplesIn(FrameDuration, rate)
	return &Playout{shard: t.shard(), rate: rate, frame: frame, epoch: time.Now(), pcm: make([]int16, frame)}
}

// WritePCM queues a copy of pcm. If two minutes are waiting already it queues nothing and returns ErrPlayoutFull.
func (p *Playout) WritePCM(pcm []int16) error {
	p.mu.Lock()
	defer p.unlock()
	switch {
	case p.closed:
		return ErrPlayoutClosed
	case p.out == nil && !p.hold:
		return nil
	case durationOf(p.queue.len()+len(pcm), p.rate) > maxQueue:
		p.stats.Dropped += durationOf(len(pcm), p.rate)
		return ErrPlayoutFull
	}
	p.queue.push(pcm)
	p.end += int64(len(pcm))
	p.trimHeld()
	p.kick()
	return nil
}

// Mark has f called once: with true when all sound written before has been handed to the output, or at once if none is
// waiting; with false when it was flushed or dropped. Marks are called one at a time, in order, by the ticker or within
// a method of the playout. f must not block and must not call the playout; it may post to a channel that has room.
func (p *Playout) Mark(f func(heard bool)) {
	p.mu.Lock()
	defer p.unlock()
	p.marks = append(p.marks, mark{at: p.end, f: f})
	p.settle(!p.closed)
}

// Flush drops all waiting sound. When it returns, the marks of that sound have been called with false, and no frame of it is
// written any more, but for one: an output without lead gets a fade-out of 5 ms within 20 ms, then the trail of silence. An
// output with lead is not told: what it got early is void, and the next frame's PTS is the time of that frame again.
func (p *Playout) Flush() {
	p.mu.Lock()
	p.stats.Flushes++
	switch {
	case p.lead > 0:
		p.talking = false
		p.next = min(p.next, time.Since(p.epoch))
	case p.talking:
		if p.voiced() {
			n := 0
			if !p.hold {
				n = p.queue.pop(p.pcm[:samplesIn(fadeTime, p.rate)])
			}
			p.fadeOut(n)
			p.flushed = true
		}
		p.trail = trailFrames
		p.dry = false
	}
	p.dropQueue(false)
	p.mu.Unlock()
	p.fire()
}

// Attach sends what is waiting and what follows to out, of the playout's rate; its first frame opens a talkspurt. With nil,
// sound is discarded and marks are called with true at once, unless the playout is on hold. After Attach returns, the
// former output gets no more frames.
func (p *Playout) Attach(out Output) {
	p.mu.Lock()
	defer p.unlock()
	if p.closed {
		return
	}
	p.out, p.lead = out, 0
	if out != nil {
		p.lead = out.Lead()
	}
	p.talking, p.flushed, p.dry, p.trail = false, false, false, 0
	p.attend()
}

// Hold(true) keeps sound, at most the newest 10 s, instead of handing it over or discarding it, and lets marks wait.
func (p *Playout) Hold(on bool) {
	p.mu.Lock()
	defer p.unlock()
	p.hold = on
	p.trimHeld()
	p.attend()
}

// Queued returns how much sound is waiting.
func (p *Playout) Queued() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return durationOf(p.queue.len(), p.rate)
}

// Stats returns the counters.
func (p *Playout) Stats() PlayoutStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

// Close drops all waiting sound and calls its marks with false. Nothing is written after it returns.
func (p *Playout) Close() {
	p.mu.Lock()
	p.closed = true
	p.out = nil
	p.dropQueue(false)
	p.mu.Unlock()
	p.fire()
}

// unlock releases mu and calls the marks that were decided under it, and those another goroutine decided before.
func (p *Playout) unlock() {
	pending := len(p.fired) > 0
	p.mu.Unlock()
	if pending {
		p.fire()
	}
}

func (p *Playout) fire() {
	p.firing.Lock()
	defer p.firing.Unlock()
	for {
		p.mu.Lock()
		if len(p.fired) == 0 {
			p.mu.Unlock()
			return
		}
		m := p.fired[0]
		p.fired[0] = mark{} // what f refers to must not outlive it here
		p.fired = p.fired[1:]
		p.mu.Unlock()
		m.f(m.heard)
	}
}

// What follows is called with mu held.

// settle decides the marks behind which no sound is waiting any more.
func (p *Playout) settle(heard bool) {
	done := p.end - int64(p.queue.len())
	for len(p.marks) > 0 && p.marks[0].at <= done {
		p.marks[0].heard = heard
		p.fired = append(p.fired, p.marks[0])
		p.marks[0] = mark{}
		p.marks = p.marks[1:]
	}
}

func (p *Playout) dropQueue(heard bool) {
	p.queue.drop(p.queue.len())
	p.settle(heard)
}

func (p *Playout) trimHeld() {
	if over := p.queue.len() - samplesIn(maxHeld, p.rate); p.hold && over > 0 {
		p.queue.drop(over)
		p.stats.Dropped += durationOf(over, p.rate)
		p.settle(false)
	}
}

// attend starts or stops the voice after the output or the hold has changed.
func (p *Playout) attend() {
	if p.out == nil && !p.hold {
		p.dropQueue(true)
	}
	p.kick()
}
