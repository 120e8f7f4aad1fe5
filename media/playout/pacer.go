// Package playout paces the voice of the model: it comes in bursts, and goes out in frames of 20 ms on the wall clock.
package playout

import (
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"voxgate/media"
)

const (
	// trailFrames is how many frames of silence follow a talkspurt before packets stop. Measured in Chromium: after a
	// bare stop its jitter buffer invents 65 ms of the old voice; after five frames it falls silent at once.
	trailFrames = 5
	// maxQueue bounds what waits to be played. The model sends an answer faster than it is spoken, and a single answer of more than two
	// minutes is a fault.
	maxQueue = 2 * time.Minute
	// maxAtOnce bounds a frame of a [media.BackpressureOutput]: much may have waited for room.
	maxAtOnce = time.Second
	// maxHeld bounds what waits while nobody listens yet. A client that connects later wants the end, not the beginning.
	maxHeld = 10 * time.Second
)

var (
	// ErrFull says that a write was refused because two minutes of sound are waiting already.
	ErrFull = errors.New("playout is full")
	// ErrClosed says that a write came after Close.
	ErrClosed = errors.New("playout is closed")
)

// Tap hears what is heard: see [Pacer.Tap]. It is called with the pacer locked, as a [media.Output] is.
type Tap interface {
	// Model takes a frame of the voice that is heard from the given time on. It must not keep pcm.
	Model(pcm []int16, at time.Time)
	// Cut takes back what was to be heard after the given time.
	Cut(at time.Time)
}

// Flushed is what a flush has cut off.
type Flushed struct {
	Unheard    time.Duration // of the sound written, to the millisecond; what is on the way to the ear counts as heard
	Generation uint32        // of the frames from now on
	Left       time.Duration // until its fade-out is handed over; 0: there is none
}

// Stats counts what a Pacer did since it was made.
type Stats struct {
	Frames        uint64        // handed over with sound in them
	SilenceFrames uint64        // handed over in the trail of a talkspurt
	Underruns     uint64        // times the sound was late: it came after the trail had begun and before it ended
	Flushes       uint64        // calls of Flush
	WriteErrors   uint64        // frames the output refused
	Dropped       time.Duration // sound refused by a full queue, or too old when it was on hold
}

// Pacer paces the voice of one call: it takes sound as fast as the model sends it and hands it to an output in frames of
// 20 ms on the wall clock. Its methods may be called by any goroutine.
//
// An idle pacer hands over its first frame at once, within WritePCM; the rest follow on the ticker.
type Pacer struct {
	shard *shard
	rate  int
	frame int       // samples in a frame
	epoch time.Time // PTS 0

	// Crashed takes a panic of the output in the ticker's goroutine, after which nothing more is played; nil: nobody needs it. It is set
	// before the first Attach, and must not block.
	Crashed func(error)
	Logger  *slog.Logger // of that panic; nil: the default one

	// firing is held while marks are called, so that they run in order. It is taken before mu.
	firing sync.Mutex

	mu     sync.Mutex
	out    media.Output // nil: sound is discarded
	lead   time.Duration
	hold   bool
	closed bool
	tap    Tap
	ticked bool // the shard serves it
	queue  queue
	end    int64  // samples ever queued
	marks  []mark // waiting, by position
	fired  []mark // decided, not yet called
	inMark bool   // a mark is being called
	stats  Stats

	talking bool          // within a talkspurt or its trail
	next    time.Duration // the earliest PTS of the next frame
	sound   time.Duration // the PTS at which the sound handed over ends
	given   time.Duration // how much of it this output got since the last flush
	trail   int           // frames of silence to come; 0 before the trail
	dry     bool          // the queue ran empty: sound that comes before the trail is over is faded in
	flushed bool          // pcm is a fade-out that is to be sent
	kicked  time.Duration // when sound was last queued
	pcm     []int16       // the frame in hand
	last    int16         // the last sample of the frame before

	generation uint32
	recalled   time.Duration // sound that a former output had ahead of its time
	gain, duck float64       // of the frame before, and of the next: 1 is as it came
}

type mark struct {
	at    int64 // samples queued before it
	f     func(heard bool)
	heard bool
}

// NewPacer returns a pacer for mono PCM of rate, with no output attached.
func NewPacer(t *Ticker, rate int) *Pacer {
	frame := media.Samples(media.FrameDuration, rate)
	return &Pacer{shard: t.shard(), rate: rate, frame: frame, epoch: time.Now(), pcm: make([]int16, frame), gain: 1, duck: 1}
}

// WritePCM queues a copy of pcm. If two minutes are waiting already it queues nothing and returns ErrFull. No sound of it is handed over
// before the marks that were decided earlier have been called, also those that the ticker is calling.
func (p *Pacer) WritePCM(pcm []int16) error {
	p.mu.Lock()
	for p.inMark || len(p.fired) > 0 {
		p.mu.Unlock()
		p.fire()
		p.mu.Lock()
	}
	defer p.unlock()
	switch {
	case p.closed:
		return ErrClosed
	case p.out == nil && !p.hold:
		return nil
	case media.Duration(p.queue.len()+len(pcm), p.rate) > maxQueue:
		p.stats.Dropped += media.Duration(len(pcm), p.rate)
		return ErrFull
	}
	p.queue.push(pcm)
	p.end += int64(len(pcm))
	p.trimHeld()
	p.kick()
	return nil
}

// Mark calls f once: with true when all sound written before has been handed to the output, or at once if none is waiting; with false when
// it was flushed or dropped. Marks are called one at a time, in order, by the ticker or within a method of the pacer. f must not block and
// must not call the pacer; it may post to a channel that has room.
func (p *Pacer) Mark(f func(heard bool)) {
	p.mu.Lock()
	defer p.unlock()
	p.marks = append(p.marks, mark{at: p.end, f: f})
	if !p.hold || p.closed {
		p.settle(!p.closed)
	}
}

// CallInOrder calls f after all sound written before has been handed over to an output with [media.UnlimitedLead], or dropped, which
// given = false says. For other outputs, whose sound arrives as it is heard, it calls f at once. The rules of Mark apply to f.
func (p *Pacer) CallInOrder(f func(given bool)) {
	p.mu.Lock()
	inOrder := p.lead == media.UnlimitedLead
	p.mu.Unlock()
	if inOrder {
		p.Mark(f)
		return
	}
	f(true)
}

// Flush drops all waiting sound. When it returns, the marks of that sound have been called with false, and no frame of it is written any
// more, with one exception: an output without lead gets a fade-out of 5 ms within 20 ms, then the trail of silence. An output with lead
// gets nothing: what it got early is void, and the next frame's PTS is the time of that frame again.
func (p *Pacer) Flush() Flushed {
	p.mu.Lock()
	p.stats.Flushes++
	p.generation++
	cut := Flushed{Generation: p.generation}
	switch {
	case p.lead > 0:
		cut.Unheard = p.recall()
		p.talking = false
	case p.talking:
		if p.voiced() {
			n := 0
			if !p.hold {
				n = p.queue.pop(p.pcm[:media.Samples(media.FadeDuration, p.rate)])
			}
			p.adjust(p.pcm[:n])
			p.fadeOut(n)
			p.flushed = true
			now := time.Since(p.epoch)
			due := max(now, p.next-media.FrameDuration-1) // see step
			cut.Left = p.shard.after(p.epoch.Add(due)).Sub(p.epoch) - now
		}
		p.trail = trailFrames
		p.dry = false
	}
	cut.Unheard += media.Duration(p.queue.len(), p.rate) + p.recalled
	p.recalled = 0
	p.dropQueue(false)
	p.mu.Unlock()
	p.fire()
	return cut
}

// Duck makes the voice quieter by so many decibels within the next frame; 0 restores its level.
func (p *Pacer) Duck(db float64) {
	p.mu.Lock()
	p.duck = math.Pow(10, -db/20)
	if !p.voiced() { // nothing is heard that could jump
		p.gain = p.duck
	}
	p.mu.Unlock()
}

// Tap gives t what is heard from now on; nil: nobody gets it.
func (p *Pacer) Tap(t Tap) {
	p.mu.Lock()
	p.tap = t
	p.mu.Unlock()
}

// Attach sends what is waiting and what follows to out, of the pacer's rate; its first frame opens a talkspurt. With nil,
// sound is discarded and marks are called with true at once, unless the pacer is on hold. After Attach returns, the
// former output gets no more frames.
func (p *Pacer) Attach(out media.Output) {
	p.mu.Lock()
	defer p.unlock()
	if p.closed {
		return
	}
	p.recalled = 0
	if out == nil && p.lead > 0 { // whoever had it ahead of its time is gone
		p.recalled = p.recall()
	}
	p.given = 0
	p.out, p.lead = out, 0
	if out != nil {
		p.lead = out.Lead()
	}
	p.talking, p.flushed, p.dry, p.trail = false, false, false, 0
	p.attend()
}

// Hold(true) keeps sound, at most the newest 10 s, instead of handing it over or discarding it, and lets marks wait.
func (p *Pacer) Hold(on bool) {
	p.mu.Lock()
	p.hold = on
	p.trimHeld()
	if !on {
		p.settle(true) // marks before the first sound, which are called before it
	}
	p.unlock()
	p.mu.Lock()
	defer p.unlock()
	p.attend()
}

// SetGeneration sets the generation of the frames that are written next: a voice that goes on from another pacer's counts on.
func (p *Pacer) SetGeneration(generation uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.generation = generation
}

// Generation is that of the frames that are written now: see [Flushed].
func (p *Pacer) Generation() uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.generation
}

// Queued returns how much sound is waiting.
func (p *Pacer) Queued() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return media.Duration(p.queue.len(), p.rate)
}

// Stats returns the counters.
func (p *Pacer) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

// Close drops all waiting sound and calls its marks with false. Nothing is written after it returns.
func (p *Pacer) Close() {
	p.mu.Lock()
	p.closed = true
	p.out = nil
	p.dropQueue(false)
	p.mu.Unlock()
	p.fire()
}

// unlock releases mu and calls the marks that were decided under it, and those another goroutine decided before.
func (p *Pacer) unlock() {
	pending := len(p.fired) > 0
	p.mu.Unlock()
	if pending {
		p.fire()
	}
}

func (p *Pacer) fire() {
	p.firing.Lock()
	defer p.firing.Unlock()
	for {
		p.mu.Lock()
		if p.inMark = len(p.fired) > 0; !p.inMark {
			p.mu.Unlock()
			return
		}
		m := p.fired[0]
		p.fired = slices.Delete(p.fired, 0, 1)
		p.mu.Unlock()
		m.f(m.heard)
	}
}

// What follows is called with mu held.

// recall takes back what an output with lead got ahead of its time, and returns how much sound that is.
func (p *Pacer) recall() time.Duration {
	now := time.Since(p.epoch)
	heard := p.sound
	if o, ok := p.out.(media.DelayedOutput); ok {
		heard += o.PlaybackDelay()
	}
	sound := max(0, min(heard-now, p.given))
	p.given = 0
	if p.next > now {
		p.next, p.sound = now, now
		if p.tap != nil {
			p.tap.Cut(p.epoch.Add(now))
		}
	}
	return sound
}

// settle decides the marks behind which no sound is waiting any more.
func (p *Pacer) settle(heard bool) {
	done := p.end - int64(p.queue.len())
	n := 0
	for ; n < len(p.marks) && p.marks[n].at <= done; n++ {
		p.marks[n].heard = heard
	}
	p.fired = append(p.fired, p.marks[:n]...)
	p.marks = slices.Delete(p.marks, 0, n)
}

func (p *Pacer) dropQueue(heard bool) {
	p.queue.drop(p.queue.len())
	p.settle(heard)
}

func (p *Pacer) trimHeld() {
	if over := p.queue.len() - media.Samples(maxHeld, p.rate); p.hold && over > 0 {
		p.queue.drop(over)
		p.stats.Dropped += media.Duration(over, p.rate)
		p.settle(false)
	}
}

// attend starts or stops the voice after the output or the hold has changed.
func (p *Pacer) attend() {
	if p.out == nil && !p.hold {
		p.dropQueue(true)
	}
	p.kick()
}
