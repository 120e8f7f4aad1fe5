package bridge

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"voxgate/crash"
	"voxgate/media/playout"
	"voxgate/media/record"
)

// recording is the file that a conversation is recorded to, if it is, and those that listen to it. The loop opens and closes the file; the
// microphone and the playout, whose tap it is, write to all.
type recording struct {
	audience *audience
	observer observer
	log      *slog.Logger
	playout  *playout.Pacer
	id       string
	folder   string          // empty: none
	all      bool            // also what does not ask for it
	writing  *sync.WaitGroup // of the host: the ends of recordings

	file   atomic.Pointer[record.Recording]
	paused atomic.Bool // what is said now is not to be kept

	listeners atomic.Int32
	adding    sync.Mutex
	taps      atomic.Pointer[[]Listener] // the file and the listeners; never changed, but replaced

	// Owned by the loop.
	announced bool            // the client knows that the conversation is recorded
	failed    <-chan struct{} // closed when the disk has refused a write; nil: there is no file
	broken    bool            // the disk has refused one: nothing is recorded any more
	files     []string        // their paths
	pauses    []Span          // the last one has no end while it lasts
}

// on reports whether there is a file, running whether what is said now goes into it.
func (r *recording) on() bool      { return r.file.Load() != nil }
func (r *recording) running() bool { return r.on() && !r.paused.Load() }

// pause leaves out what is said from now on, or goes on. In the file, and for listeners, there is silence meanwhile, with a short tone at
// either end.
func (r *recording) pause(on bool) error {
	now := time.Now()
	switch {
	case !r.on() && on:
		return &Error{Code: CodeInvalidState, Message: "This conversation is not recorded."}
	case on == r.paused.Load():
		return nil
	}
	r.paused.Store(on)
	message := "The recording is paused."
	if on {
		r.pauses = append(r.pauses, Span{From: now})
	} else {
		message = "The recording goes on."
		r.pauses[len(r.pauses)-1].To = now
	}
	for _, f := range r.tapped() {
		f.TruncateModel(now) // what was handed over and is not heard yet
		f.AddMark(now)
	}
	r.log.Info("recording paused", "paused", on)
	r.audience.notify(Log{Level: "info", Message: message, Details: map[string]any{"recording": r.running()}})
	return nil
}

// follow begins or ends the recording, as the configuration in force wants it. A configuration that Gemini may still
// refuse does neither: it might break the recording in two.
func (r *recording) follow(wanted bool) {
	wanted = r.folder != "" && !r.broken && (wanted || r.all)
	switch {
	case wanted && !r.on():
		f, err := record.Create(r.folder, r.id, time.Now())
		if err != nil {
			r.log.Error("recording", "err", err)
			r.giveUp()
			return
		}
		r.log.Info("recording begun")
		r.files = append(r.files, f.Path)
		r.file.Store(f)
		r.failed = f.Failed()
		r.add(f)
	case !wanted:
		r.close()
	}
}

// giveUp notes that the disk takes no recording. Recording is not tried again: a file that begins in the middle would
// look complete.
func (r *recording) giveUp() {
	r.broken = true
	r.observer.report(RecordingFailed{})
}

// onFailed ends a recording that the disk has refused, and says so.
func (r *recording) onFailed(wanted bool) {
	r.giveUp()
	r.close() // which logs why
	r.announce(wanted)
}

// close ends the recording, if there is one. The host waits for the rest of it to be written: a disk that hangs, as a
// network disk may, must not hold up the conversation or its end.
func (r *recording) close() {
	f := r.file.Swap(nil)
	if f == nil {
		return
	}
	r.failed = nil
	r.remove(f)
	r.finish(f)
}

// finish ends a file.
func (r *recording) finish(f *record.Recording) {
	f.Stop()
	r.writing.Go(func() {
		defer crash.Recover(r.log, "recording", nil)
		if err := f.Close(); err != nil {
			r.log.Error("recording", "err", err)
		}
	})
}

// announce says whether the conversation is recorded, where that is wanted or has changed.
func (r *recording) announce(wanted bool) {
	recorded, before := r.on(), r.announced
	r.announced = recorded
	if recorded && r.paused.Load() {
		return // the client knows that it is paused
	}
	say := func(level, message string) {
		r.audience.notify(Log{Level: level, Message: message, Details: map[string]any{"recording": recorded}})
	}
	switch {
	case recorded && !before:
		say("info", "This conversation is recorded.")
	case before && r.broken:
		say("error", "This conversation is no longer recorded: the gateway's disk has failed or is full. "+
			"What was recorded so far is kept.")
	case before && !recorded:
		say("info", "This conversation is no longer recorded.")
	case wanted && !recorded:
		say("warn", "This conversation is not recorded: the gateway has no place for recordings.")
	}
}

// Listener hears both sides of a conversation. Its methods must not block, and must not keep pcm. Several goroutines call them.
type Listener interface {
	WriteCaller(pcm []int16, rate int, at time.Time) // spoken from at on, as far as is known
	WriteModel(pcm []int16, at time.Time)            // at [VoiceRate], heard from at on
	TruncateModel(at time.Time)                      // what was to be heard of the model after at is not
	AddMark(at time.Time)                            // here begins or ends what is left out
}

// maxListeners bounds those of one conversation: each has an encoder at work.
const maxListeners = 4

// admit counts one more listener, whom leave takes away.
func (r *recording) admit() error {
	if r.listeners.Add(1) > maxListeners {
		r.leave()
		return &Error{Code: CodeBusy, Message: "This conversation has too many listeners."}
	}
	return nil
}

func (r *recording) leave() { r.listeners.Add(-1) }

// tapped are the file and the listeners; hearing are those that get what is said now.
func (r *recording) tapped() []Listener {
	if all := r.taps.Load(); all != nil {
		return *all
	}
	return nil
}

func (r *recording) hearing() []Listener {
	if r.paused.Load() {
		return nil
	}
	return r.tapped()
}

// add has f hear the conversation, until remove.
func (r *recording) add(f Listener) {
	r.adding.Lock()
	defer r.adding.Unlock()
	all := append(slices.Clone(r.tapped()), f)
	r.taps.Store(&all)
	r.playout.SetTap(r)
}

func (r *recording) remove(f Listener) {
	r.adding.Lock()
	defer r.adding.Unlock()
	all := slices.DeleteFunc(slices.Clone(r.tapped()), func(other Listener) bool { return other == f })
	r.taps.Store(&all)
	if len(all) == 0 {
		r.playout.SetTap(nil)
	}
}

// person takes what the person has said by now.
func (r *recording) person(pcm []int16, rate int) {
	for _, f := range r.hearing() {
		f.WriteCaller(pcm, rate, time.Now().Add(-time.Duration(len(pcm))*time.Second/time.Duration(rate)))
	}
}

// WriteModel implements [playout.Tap].
func (r *recording) WriteModel(pcm []int16, at time.Time) {
	for _, f := range r.hearing() {
		f.WriteModel(pcm, at)
	}
}

// TruncateModel implements [playout.Tap].
func (r *recording) TruncateModel(at time.Time) {
	for _, f := range r.hearing() {
		f.TruncateModel(at)
	}
}
