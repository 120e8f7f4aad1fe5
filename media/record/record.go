// Package record writes a conversation to an Ogg Opus file with two channels: the caller left, the model right.
//
// Both follow the wall clock, so the file shows overlapping speech and response times. The file is written about a second late, so
// that late sound can still be placed and unplayed sound can still be withdrawn.
package record

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"voxgate/media/opus/libopus"

	"voxgate/internal/crash"
)

const (
	// rate is the sample rate, in Hz, at which the sound is encoded: that of the model's voice. Players decode Opus at
	// 48 kHz whatever this rate is.
	rate = 24000

	frameSamples = rate / 50 // 20 ms

	// bitrate is the rate of both channels together, in bits a second. At 48 kb/s the crosstalk of a tone into the
	// other channel is below -50 dB. At 32 kb/s it reaches -31 dB, because libopus merges the upper bands of the
	// channels. An hour of talk takes 22 MB, an hour of silence 1 MB.
	bitrate = 48000

	// complexity is the effort of the encoder, the same as for the voice: see NewEncoder in media/opus.
	complexity = 5

	// preSkip is the encoder's look-ahead, in samples at 48 kHz: 2.5 ms for RESTRICTED_LOWDELAY. Other applications use
	// SILK, whose stereo prediction would mix the voices.
	preSkip = 120

	// pageTime is the interval between pages. A crash loses this much sound, plus writeDelay.
	pageTime = time.Second

	// maxQueued limits the number of chunks that wait to be encoded. 256 chunks are two seconds of both sides. A disk
	// that works delays a write less than that.
	maxQueued = 256

	// maxChunk limits the length of a chunk, in samples, because a client may send seconds of sound at once and
	// maxQueued chunks may wait in memory.
	maxChunk = 4800
)

// Recording writes one conversation to a file. WriteCaller, WriteModel, TruncateModel and AddGapMark are safe for
// concurrent use. They never block and do not keep pcm.
type Recording struct {
	Path string // path of the file, if the recording has one

	queue    chan *chunk
	closing  chan struct{}
	stopOnce sync.Once
	done     chan struct{}
	failed   chan struct{} // closed with the first error
	dropped  atomic.Int64  // chunks dropped because the queue was full

	// Only runLoop uses these fields. Others may read err once done is closed.
	start    time.Time
	timeline timeline
	encoder  *libopus.Encoder
	ogg      oggWriter
	out      io.WriteCloser
	samples  int64 // samples in packets; the sound in them is delayed by preSkip
	mixed    [2 * frameSamples]int16
	packet   [1275]byte // the largest possible packet (RFC 6716, section 3.4)
	err      error
	end      time.Time
}

// chunk is an entry of the queue: sound, a truncation or a mark.
type chunk struct {
	kind chunkKind
	pcm  []int16
	rate int
	at   time.Time
}

// markTone is the sound of a mark: 0.2 s of 440 Hz at -20 dBFS.
var markTone = func() []int16 {
	pcm := make([]int16, rate/5)
	for i := range pcm {
		pcm[i] = int16(3277 * math.Sin(2*math.Pi*440*float64(i)/rate))
	}
	return pcm
}()

// chunkPool holds used chunks, so that steady sound allocates nothing.
var chunkPool = sync.Pool{New: func() any { return new(chunk) }}

type chunkKind int

const (
	callerAudio chunkKind = iota
	modelAudio
	truncation
	gapMark
)

// New starts a recording to w at the given time. Close closes w.
func New(w io.WriteCloser, startedAt time.Time) (*Recording, error) {
	r := &Recording{
		queue: make(chan *chunk, maxQueued), closing: make(chan struct{}), done: make(chan struct{}), failed: make(chan struct{}),
		start: startedAt, out: w, ogg: oggWriter{w: w, serial: rand.Uint32()},
	}
	var err error
	if r.encoder, err = libopus.NewEncoder(rate, 2, libopus.LowDelay); err == nil {
		err = errors.Join(r.encoder.SetBitrate(bitrate), r.encoder.SetComplexity(complexity), r.ogg.writeHeaders(startedAt))
	}
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("recording: %w", err)
	}
	go r.runLoop()
	return r, nil
}

// validID matches IDs that may be part of a file name; they cannot lead to another folder.
var validID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`)

// Create starts a recording to a new file in dir. The name of the file consists of the start time, to the millisecond,
// and id. Only the gateway's own user may read the file.
func Create(dir, id string, startedAt time.Time) (*Recording, error) {
	if !validID.MatchString(id) {
		return nil, fmt.Errorf("recording: %q cannot be the name of a file", id)
	}
	f, err := os.OpenFile(filepath.Join(dir, FileName(startedAt, id, ".ogg")), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("recording: %w", err)
	}
	r, err := New(f, startedAt)
	if err == nil {
		r.Path = f.Name()
	}
	return r, err
}

// FileName returns the name of a conversation's file. It consists of the start time, to the millisecond, and id.
func FileName(startedAt time.Time, id, extension string) string {
	return startedAt.UTC().Format("2006-01-02T15-04-05.000Z") + "-" + id + extension
}

// WriteCaller records the caller's sound, at 8 to 48 kHz. at is the time when the sound began to be spoken, as far as
// known. Networks deliver audio in bursts, so pcm is put directly after the previous sound, unless at is far from that
// place.
func (r *Recording) WriteCaller(pcm []int16, rate int, at time.Time) {
	if rate >= 8000 && rate <= 48000 {
		r.enqueueAudio(callerAudio, pcm, rate, at)
	}
}

// WriteModel records a frame of the model's voice at 24 kHz that is played from the given time on.
func (r *Recording) WriteModel(pcm []int16, at time.Time) { r.enqueueAudio(modelAudio, pcm, rate, at) }

// TruncateModel discards the part of the model's voice that was to be played after the given time.
func (r *Recording) TruncateModel(at time.Time) { r.enqueue(truncation, nil, 0, at) }

// AddGapMark puts a short tone on the model's side. It marks the start or end of a stretch that is not recorded.
func (r *Recording) AddGapMark(at time.Time) { r.enqueue(gapMark, nil, 0, at) }

func (r *Recording) enqueueAudio(kind chunkKind, pcm []int16, rate int, at time.Time) {
	for len(pcm) > maxChunk {
		r.enqueue(kind, pcm[:maxChunk], rate, at)
		pcm, at = pcm[maxChunk:], at.Add(maxChunk*time.Second/time.Duration(rate))
	}
	r.enqueue(kind, pcm, rate, at)
}

func (r *Recording) enqueue(kind chunkKind, pcm []int16, rate int, at time.Time) {
	select {
	case <-r.closing:
		return
	default:
	}
	p := chunkPool.Get().(*chunk)
	p.kind, p.pcm, p.rate, p.at = kind, append(p.pcm[:0], pcm...), rate, at
	select {
	case r.queue <- p:
	default:
		r.dropped.Add(1)
	}
}

// Failed returns a channel that is closed when a write to disk has failed. The recording has then stopped, and Close
// returns the error.
func (r *Recording) Failed() <-chan struct{} { return r.failed }

// Stop ends the recording now. Unlike Close it does not block.
func (r *Recording) Stop() {
	r.stopOnce.Do(func() {
		r.end = time.Now()
		close(r.closing)
	})
}

// Close ends the recording. It blocks until the rest is written and the file is closed, so a disk that hangs blocks it.
// It returns the first error of the recording.
func (r *Recording) Close() error {
	r.Stop()
	<-r.done
	if n := r.dropped.Load(); r.err == nil && n > 0 {
		return fmt.Errorf("recording: %d pieces of sound were dropped: the disk did not keep up", n)
	}
	return r.err
}

// runLoop is the goroutine of the recording.
func (r *Recording) runLoop() {
	defer close(r.done)
	defer crash.Recover(nil, "recording", func(err error) {
		r.setError(err)
		_ = r.out.Close()
	})
	crash.RunTestHook("recording")
	tick := time.NewTicker(pageTime)
	defer tick.Stop()
	for {
		select {
		case p := <-r.queue:
			r.handleChunk(p)
		case now := <-tick.C:
			r.encodeUntil(samplesBetween(r.start, now) - writeDelay)
		case <-r.closing:
			r.writeRest()
			return
		}
	}
}

func (r *Recording) handleChunk(p *chunk) {
	if r.err == nil {
		at := samplesBetween(r.start, p.at)
		switch p.kind {
		case callerAudio:
			r.timeline.addCallerSound(p.pcm, p.rate, at)
		case modelAudio:
			r.timeline.right.writeAt(p.pcm, at, r.timeline.start, maxEarlyModel)
		case truncation:
			r.timeline.silenceModelFrom(at)
		case gapMark:
			r.timeline.right.writeAt(markTone, at, r.timeline.start, maxEarlyModel)
		}
	}
	chunkPool.Put(p)
}

// encodeUntil encodes the sound before the given sample, in whole frames.
func (r *Recording) encodeUntil(until int64) {
	for r.err == nil && r.timeline.start+frameSamples <= until {
		r.encodeFrame()
	}
	if r.err == nil {
		r.setError(r.ogg.flushPage(false))
	}
}

// encodeFrame encodes the next 20 ms.
func (r *Recording) encodeFrame() {
	r.timeline.takeFrame(&r.mixed)
	r.samples += frameSamples
	n, err := r.encoder.Encode(r.mixed[:], r.packet[:])
	if err != nil {
		r.setError(err)
		return
	}
	r.setError(r.ogg.addPacket(r.packet[:n], 48000/rate*r.samples))
}

func (r *Recording) setError(err error) {
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("recording: %w", err)
		close(r.failed)
	}
}

// writeRest writes the queued audio, and silence up to the end of the conversation.
func (r *Recording) writeRest() {
	for {
		select {
		case p := <-r.queue:
			r.handleChunk(p)
			continue
		default:
		}
		break
	}
	end := samplesBetween(r.start, r.end)
	r.timeline.silenceModelFrom(end) // nothing more is played
	r.timeline.flushResampler()
	end = max(end, r.timeline.left.end, r.timeline.start)
	// The loop writes at least one frame, because the last page must not be empty.
	for r.err == nil && 48000/rate*r.samples < 48000/rate*end+preSkip {
		r.encodeFrame()
	}
	if r.err == nil {
		r.ogg.granule = 48000/rate*end + preSkip // trims the last frame (RFC 7845, section 4.4)
		r.setError(r.ogg.flushPage(true))
	}
	if err := r.out.Close(); err != nil {
		r.setError(err)
	}
}

// samplesBetween returns the number of samples between two times, rounded.
func samplesBetween(from, to time.Time) int64 {
	const unit = time.Second / rate // really 41,666 ns and two thirds, so it is used only for rounding
	d := to.Sub(from) + unit/2
	return int64(d/time.Second)*rate + int64(d%time.Second)*rate/int64(time.Second)
}
