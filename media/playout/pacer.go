// Package playout paces the model's voice, which arrives in bursts: it sends the voice in real time, in frames of 20 ms.
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
	// trailFrames is the number of silent frames after a talkspurt. Without them, Chromium's jitter buffer extends the
	// old voice by 65 ms (measured).
	trailFrames = 5
	// maxQueue limits the queued sound. The model sends faster than real time. An answer of more than two minutes is a
	// fault.
	maxQueue = 2 * time.Minute
	// maxAtOnce limits the duration of one frame for a [media.BackpressureOutput]. Without this limit, one frame could
	// hold all the sound that waited while the output was full.
	maxAtOnce = time.Second
	// maxHeld limits the sound that is kept on hold: only the newest 10 s stay. A client that connects later needs the
	// end of the answer, not its beginning.
	maxHeld = 10 * time.Second
)

var (
	// ErrFull means that a write was rejected because two minutes of sound are already waiting.
	ErrFull = errors.New("playout is full")
	// ErrClosed means that a write came after Close.
	ErrClosed = errors.New("playout is closed")
)

// Tap receives a copy of the played sound: see [Pacer.SetTap]. Its methods are called with the pacer locked, like a
// [media.Output].
type Tap interface {
	// WriteModel adds a frame of the model's voice that is played from the given time on. It must not keep pcm.
	WriteModel(pcm []int16, at time.Time)
	// TruncateModel discards the voice that was to be played after the given time.
	TruncateModel(at time.Time)
}

// FlushResult describes what a flush has cut off.
type FlushResult struct {
	Unplayed   time.Duration // unplayed part of the sound written, to the millisecond; sound in flight counts as played
	Generation uint32        // generation of the frames from now on
	FadeDelay  time.Duration // time until the fade-out is sent; 0 without a fade-out
}

// Stats counts what a Pacer did since it was created.
type Stats struct {
	Frames        uint64        // frames sent with sound
	SilenceFrames uint64        // silent frames sent at the end of a talkspurt
	Underruns     uint64        // how often sound arrived late, after its talkspurt had run dry
	Flushes       uint64        // calls of Flush
	WriteErrors   uint64        // frames rejected by the output
	Dropped       time.Duration // sound rejected by a full queue, or too old when it was on hold
}

// Pacer paces the voice of one call. It accepts sound as fast as the model sends it. It passes the sound to an output
// in frames of 20 ms on the wall clock. Its methods may be called from any goroutine.
//
// An idle pacer sends its first frame at once, within WritePCM. The ticker sends the later ones.
type Pacer struct {
	shard *shard
	rate  int
	frame int       // samples per frame
	epoch time.Time // the time of PTS 0

	// OnCrash is called if the output panics in the ticker's goroutine. Then nothing more is played. It may be nil,
	// must not block, and must be set before AttachOutput.
	OnCrash func(error)
	Logger  *slog.Logger // logger for a panic of the output; nil means the default logger

	// markMu is held while callbacks of marks run, so that they run in order. It is locked before mu.
	markMu sync.Mutex

	mu            sync.Mutex
	out           media.Output // receives the frames; nil discards sound
	lead          time.Duration
	isHeld        bool
	suspended     suspension
	isClosed      bool
	tap           Tap
	isTicking     bool // the ticker calls onTick
	queue         queue
	queuedTotal   int64  // samples queued in total
	marks         []mark // marks whose sound is waiting, by position
	readyMarks    []mark // marks whose callback is to be called next
	isCallingMark bool   // the callback of a mark is running
	stats         Stats

	inTalkspurt bool          // within a talkspurt or its trail
	nextPTS     time.Duration // earliest PTS that the next frame may have
	soundEnd    time.Duration // PTS at which the sound sent so far ends
	delivered   time.Duration // duration of the sound that this output has received since the last flush
	trailLeft   int           // silent frames still to send at the end of the talkspurt; 0 while it has sound
	ranDry      bool          // the queue ran empty: sound that arrives before the end of the trail is faded in
	fadePending bool          // pcm is a fade-out that is still to be sent
	lastQueued  time.Duration // when sound was last queued
	pcm         []int16       // the current frame
	lastSample  int16         // last sample of the previous frame

	generation       uint32
	recalled         time.Duration // sound that a former output received but had not played
	gain, targetGain float64       // volume of the previous frame, and of the next one: 1 is the original volume
	measuresLevel    bool
	level            float64 // level of the current frame in dBov, if it is measured
}

type mark struct {
	position int64 // number of samples queued before the mark
	callback func(heard bool)
	isPlayed bool
}

// NewPacer returns a pacer for mono PCM at rate, without an output.
func NewPacer(t *Ticker, rate int) *Pacer {
	frame := media.Samples(media.FrameDuration, rate)
	return &Pacer{shard: t.nextShard(), rate: rate, frame: frame, epoch: time.Now(), pcm: make([]int16, frame), gain: 1, targetGain: 1}
}

// WritePCM queues a copy of pcm. It returns ErrFull if two minutes are queued already. It blocks until the callbacks of
// all marks reached so far have returned.
func (p *Pacer) WritePCM(pcm []int16) error {
	p.mu.Lock()
	for p.isCallingMark || len(p.readyMarks) > 0 {
		p.mu.Unlock()
		p.callReadyMarks()
		p.mu.Lock()
	}
	defer p.unlockAndCallMarks()
	switch {
	case p.isClosed:
		return ErrClosed
	case p.out == nil && !p.isHeld:
		return nil
	case media.Duration(p.queue.len()+len(pcm), p.rate) > maxQueue:
		p.stats.Dropped += media.Duration(len(pcm), p.rate)
		return ErrFull
	}
	p.queue.push(pcm)
	p.queuedTotal += int64(len(pcm))
	p.trimHeldSound()
	p.sendQueued()
	return nil
}

// AddMark calls f once: with true when all earlier sound has been passed to the output, or with false if that sound was
// dropped. Without queued sound it calls f at once.
//
// Callbacks are called one at a time, in order, by the ticker or a method of the pacer. f must not block or call the
// pacer. It may post to a channel that has room.
func (p *Pacer) AddMark(f func(heard bool)) {
	p.mu.Lock()
	defer p.unlockAndCallMarks()
	p.marks = append(p.marks, mark{position: p.queuedTotal, callback: f})
	if p.isClosed || !p.isHeld && !p.suspended.hasStopped() {
		p.resolveMarks(!p.isClosed)
	}
}

// CallInOrder calls f with true after all earlier sound was sent to an output with an [media.UnlimitedLead], or with
// false if that sound was dropped. For any other output it calls f at once. The rules of AddMark apply to f.
func (p *Pacer) CallInOrder(f func(isSent bool)) {
	p.mu.Lock()
	inOrder := p.lead == media.UnlimitedLead
	p.mu.Unlock()
	if inOrder {
		p.AddMark(f)
		return
	}
	f(true)
}

// Flush drops all queued sound, and calls the callbacks of its marks with false before it returns. An output without a
// lead still receives a fade-out of 5 ms within 20 ms, and the silent frames that end a talkspurt.
//
// An output with a lead receives no fade-out. Sound that it received ahead of its time counts as not played. The PTS of
// the next frame is the current time again.
func (p *Pacer) Flush() FlushResult {
	p.mu.Lock()
	p.stats.Flushes++
	p.generation++
	cut := FlushResult{Generation: p.generation}
	switch {
	case p.lead > 0:
		cut.Unplayed = p.withdrawUnplayedLead()
		p.inTalkspurt = false
	case p.inTalkspurt:
		if p.isBeforeTrail() {
			n := 0
			if p.sendableSamples() > 0 {
				n = p.queue.pop(p.pcm[:media.Samples(media.FadeDuration, p.rate)])
			}
			p.applyGain(p.pcm[:n])
			p.fadeOutAfter(n)
			p.fadePending = true
			now := time.Since(p.epoch)
			due := max(now, p.nextPTS-media.FrameDuration-1) // advance sends nothing before this time
			cut.FadeDelay = p.shard.nextTick(p.epoch.Add(due)).Sub(p.epoch) - now
		}
		p.trailLeft = trailFrames
		p.ranDry = false
	}
	cut.Unplayed += media.Duration(p.queue.len(), p.rate) + p.recalled
	p.recalled = 0
	p.suspended = suspension{}
	p.dropQueue(false)
	p.mu.Unlock()
	p.callReadyMarks()
	return cut
}

// Duck lowers the volume by db decibels, gradually during the next frame. 0 restores the volume.
func (p *Pacer) Duck(db float64) {
	p.mu.Lock()
	p.targetGain = math.Pow(10, -db/20)
	if !p.isBeforeTrail() { // no sound is playing that could step
		p.gain = p.targetGain
	}
	p.mu.Unlock()
}

// SetTap sets the tap that receives the sound that is played from now on. nil removes the tap.
func (p *Pacer) SetTap(t Tap) {
	p.mu.Lock()
	p.tap = t
	p.mu.Unlock()
}

// AttachOutput sends the queued and all later sound to out, at the pacer's rate. The first frame opens a talkspurt. The
// former output receives no more frames.
//
// If out is nil, sound is discarded and the callbacks of its marks are called at once, as if the sound had been played.
// While the pacer is on hold (SetHold), sound and marks wait instead.
func (p *Pacer) AttachOutput(out media.Output) {
	p.mu.Lock()
	defer p.unlockAndCallMarks()
	if p.isClosed {
		return
	}
	p.recalled = 0
	if out == nil && p.lead > 0 { // the client is gone, and has not played all sound that it received early
		p.recalled = p.withdrawUnplayedLead()
	}
	p.delivered = 0
	p.suspended = suspension{}
	p.out, p.lead = out, 0
	if out != nil {
		p.lead = out.MaxLead()
	}
	p.inTalkspurt, p.fadePending, p.ranDry, p.trailLeft = false, false, false, 0
	p.onOutputChanged()
}

// SetHold makes the pacer keep sound, at most the newest 10 s, instead of sending or discarding it. The callbacks of
// marks wait, too. SetHold(false) ends the hold.
func (p *Pacer) SetHold(on bool) {
	p.mu.Lock()
	p.isHeld = on
	p.trimHeldSound()
	if !on {
		p.resolveMarks(true) // callbacks of marks before the first sound are called before it is sent
	}
	p.unlockAndCallMarks()
	p.mu.Lock()
	defer p.unlockAndCallMarks()
	p.onOutputChanged()
}

// SetGeneration sets the generation of the next frames. A pacer that continues the voice of another pacer uses it to
// continue the other's count.
func (p *Pacer) SetGeneration(generation uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.generation = generation
}

// Generation returns the generation of the frames that are written now: see [FlushResult].
func (p *Pacer) Generation() uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.generation
}

// QueuedDuration returns the duration of the queued sound.
func (p *Pacer) QueuedDuration() time.Duration {
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

// Close drops all queued sound and calls the callbacks of its marks with false. Nothing is written after it returns.
func (p *Pacer) Close() {
	p.mu.Lock()
	p.isClosed = true
	p.out = nil
	p.dropQueue(false)
	p.mu.Unlock()
	p.callReadyMarks()
}

// unlockAndCallMarks releases mu and then calls the callbacks of all marks in readyMarks, including marks that other
// goroutines added.
func (p *Pacer) unlockAndCallMarks() {
	pending := len(p.readyMarks) > 0
	p.mu.Unlock()
	if pending {
		p.callReadyMarks()
	}
}

// callReadyMarks runs the callbacks of the marks that have been reached.
func (p *Pacer) callReadyMarks() {
	p.markMu.Lock()
	defer p.markMu.Unlock()
	for {
		p.mu.Lock()
		if p.isCallingMark = len(p.readyMarks) > 0; !p.isCallingMark {
			p.mu.Unlock()
			return
		}
		m := p.readyMarks[0]
		p.readyMarks = slices.Delete(p.readyMarks, 0, 1)
		p.mu.Unlock()
		m.callback(m.isPlayed)
	}
}

// The following methods are called with mu held.

// withdrawUnplayedLead counts the sound that an output with a lead received ahead of its time as not played, and
// returns its duration.
func (p *Pacer) withdrawUnplayedLead() time.Duration {
	now := time.Since(p.epoch)
	playedUntil := p.soundEnd
	if o, ok := p.out.(media.DelayedOutput); ok {
		playedUntil += o.PlaybackDelay()
	}
	sound := max(0, min(playedUntil-now, p.delivered))
	p.delivered = 0
	if p.nextPTS > now {
		p.nextPTS, p.soundEnd = now, now
		if p.tap != nil {
			p.tap.TruncateModel(p.epoch.Add(now))
		}
	}
	return sound
}

// resolveMarks moves the marks whose sound has left the queue to readyMarks. Their callbacks will receive isPlayed.
func (p *Pacer) resolveMarks(isPlayed bool) {
	done := p.queuedTotal - int64(p.queue.len())
	n := 0
	for ; n < len(p.marks) && p.marks[n].position <= done; n++ {
		p.marks[n].isPlayed = isPlayed
	}
	p.readyMarks = append(p.readyMarks, p.marks[:n]...)
	p.marks = slices.Delete(p.marks, 0, n)
}

func (p *Pacer) dropQueue(isPlayed bool) {
	p.queue.drop(p.queue.len())
	p.resolveMarks(isPlayed)
}

func (p *Pacer) trimHeldSound() {
	if over := p.queue.len() - media.Samples(maxHeld, p.rate); p.isHeld && over > 0 {
		p.queue.drop(over)
		p.stats.Dropped += media.Duration(over, p.rate)
		p.resolveMarks(false)
	}
}

// onOutputChanged starts or stops the voice after the output or the hold has changed.
func (p *Pacer) onOutputChanged() {
	if p.out == nil && !p.isHeld {
		p.dropQueue(true)
	}
	p.sendQueued()
}
