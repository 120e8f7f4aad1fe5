package bridge

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"voxgate/internal/crash"
	"voxgate/media/playout"
	"voxgate/media/record"
)

// recording manages the recording of a conversation, and the listeners to the conversation. The session's loop opens
// and closes the file. The microphone and the playout write to it.
type recording struct {
	subscribers *subscribers
	observer    observer
	log         *slog.Logger
	playout     *playout.Pacer
	id          string
	folder      string          // folder for recordings; empty means that nothing is recorded
	recordAll   bool            // record every conversation, even if its configuration does not ask for it
	writing     *sync.WaitGroup // counts recordings being finished; shared by the host

	file     atomic.Pointer[record.Recording]
	isPaused atomic.Bool // the recording is paused: it gets silence

	listeners atomic.Int32
	tapsLock  sync.Mutex
	taps      atomic.Pointer[[]Listener] // the file and the listeners; replaced, never changed

	// The session's loop owns these fields.
	isAnnounced   bool            // the client was informed that the conversation is recorded
	failed        <-chan struct{} // closed when a write has failed; nil means no file
	hasDiskFailed bool            // a write has failed: recording is not tried again
	files         []string        // paths of the recordings
	pauses        []Span          // the last one has no end while the recording is paused
}

// hasOpenFile reports whether the recording has a file. isRunning reports whether audio is being written to it.
func (r *recording) hasOpenFile() bool { return r.file.Load() != nil }
func (r *recording) isRunning() bool   { return r.hasOpenFile() && !r.isPaused.Load() }

// setPaused pauses the recording, or continues it. During a pause, the file and the listeners get silence, with a short
// tone at the start and the end.
func (r *recording) setPaused(on bool) error {
	now := time.Now()
	switch {
	case !r.hasOpenFile() && on:
		return &Error{Code: CodeInvalidState, Message: "This conversation is not recorded."}
	case on == r.isPaused.Load():
		return nil
	}
	r.isPaused.Store(on)
	message := "The recording is paused."
	if on {
		r.pauses = append(r.pauses, Span{From: now})
	} else {
		message = "The recording continues."
		r.pauses[len(r.pauses)-1].To = now
	}
	for _, f := range r.allTaps() {
		f.TruncateModel(now) // voice after this time was queued but is not played yet
		f.AddGapMark(now)
	}
	r.log.Info("recording paused", "paused", on)
	r.subscribers.notify(Log{Level: "info", Message: message, Details: map[string]any{"recording": r.isRunning()}})
	return nil
}

// applyConfig starts or stops the recording. It must be called only for a configuration that is in force already,
// because undoing a rejected configuration would split the recording.
func (r *recording) applyConfig(isEnabled bool) {
	isEnabled = r.folder != "" && !r.hasDiskFailed && (isEnabled || r.recordAll)
	switch {
	case isEnabled && !r.hasOpenFile():
		f, err := record.Create(r.folder, r.id, time.Now())
		if err != nil {
			r.log.Error("recording", "err", err)
			r.markFailed()
			return
		}
		r.log.Info("recording started")
		r.files = append(r.files, f.Path)
		r.file.Store(f)
		r.failed = f.Failed()
		r.addTap(f)
	case !isEnabled:
		r.close()
	}
}

// markFailed records that the disk cannot take a recording. Recording is not tried again, because a file that begins in
// the middle of the conversation would look complete.
func (r *recording) markFailed() {
	r.hasDiskFailed = true
	r.observer.report(RecordingFailed{})
}

// onFailed ends a failed recording, and tells the client. isRequested means that the configuration requests a
// recording.
func (r *recording) onFailed(isRequested bool) {
	r.markFailed()
	r.close() // logs the reason
	r.announceState(isRequested)
}

// close ends the recording, if there is one. It does not block, because a network disk may hang. The host's shutdown
// waits for the file.
func (r *recording) close() {
	f := r.file.Swap(nil)
	if f == nil {
		return
	}
	r.failed = nil
	r.removeTap(f)
	r.closeFile(f)
}

// closeFile stops a recording, and finishes its file in the background. It does not block.
func (r *recording) closeFile(f *record.Recording) {
	f.Stop()
	r.writing.Go(func() {
		defer crash.Recover(r.log, "recording", nil)
		if err := f.Close(); err != nil {
			r.log.Error("recording", "err", err)
		}
	})
}

// announceState tells the client whether the conversation is recorded, if that has changed. If isRequested is true and
// there is no recording, it warns the client.
func (r *recording) announceState(isRequested bool) {
	recorded, before := r.hasOpenFile(), r.isAnnounced
	r.isAnnounced = recorded
	if recorded && r.isPaused.Load() {
		return // the client was informed of the pause
	}
	say := func(level, message string) {
		r.subscribers.notify(Log{Level: level, Message: message, Details: map[string]any{"recording": recorded}})
	}
	switch {
	case recorded && !before:
		say("info", "This conversation is recorded.")
	case before && r.hasDiskFailed:
		say("error", "This conversation is no longer recorded: the gateway's disk has failed or is full. "+
			"What was recorded so far is kept.")
	case before && !recorded:
		say("info", "This conversation is no longer recorded.")
	case isRequested && !recorded:
		say("warn", "This conversation is not recorded: the gateway has no folder for recordings.")
	}
}

// Listener receives both sides of a conversation. Its methods are called by several goroutines. They must not block,
// and must not keep pcm.
type Listener interface {
	WriteCaller(pcm []int16, rate int, at time.Time) // the person spoke the first sample at about this time
	WriteModel(pcm []int16, at time.Time)            // rate: [VoiceRate]; the first sample is played at this time
	TruncateModel(at time.Time)                      // queued voice after that time is not played
	AddGapMark(at time.Time)                         // a gap in the audio begins or ends at this time
}

// maxListeners limits the listeners of one conversation, because each needs an audio encoder.
const maxListeners = 4

// reserveListener counts another listener. It returns an error if there are maxListeners already. releaseListener stops
// counting one.
func (r *recording) reserveListener() error {
	if r.listeners.Add(1) > maxListeners {
		r.releaseListener()
		return &Error{Code: CodeBusy, Message: "This conversation has too many listeners."}
	}
	return nil
}

func (r *recording) releaseListener() { r.listeners.Add(-1) }

// allTaps returns the file and all listeners. activeTaps returns only those that get the audio at the moment.
func (r *recording) allTaps() []Listener {
	if all := r.taps.Load(); all != nil {
		return *all
	}
	return nil
}

func (r *recording) activeTaps() []Listener {
	if r.isPaused.Load() {
		return nil
	}
	return r.allTaps()
}

// addTap passes the audio of the conversation to f until removeTap is called.
func (r *recording) addTap(f Listener) {
	r.tapsLock.Lock()
	defer r.tapsLock.Unlock()
	all := append(slices.Clone(r.allTaps()), f)
	r.taps.Store(&all)
	r.playout.SetTap(r)
}

func (r *recording) removeTap(f Listener) {
	r.tapsLock.Lock()
	defer r.tapsLock.Unlock()
	all := slices.DeleteFunc(slices.Clone(r.allTaps()), func(other Listener) bool { return other == f })
	r.taps.Store(&all)
	if len(all) == 0 {
		r.playout.SetTap(nil)
	}
}

// writePerson passes audio of the person to the file and the listeners.
func (r *recording) writePerson(pcm []int16, rate int) {
	for _, f := range r.activeTaps() {
		f.WriteCaller(pcm, rate, time.Now().Add(-time.Duration(len(pcm))*time.Second/time.Duration(rate)))
	}
}

// WriteModel implements [playout.Tap].
func (r *recording) WriteModel(pcm []int16, at time.Time) {
	for _, f := range r.activeTaps() {
		f.WriteModel(pcm, at)
	}
}

// TruncateModel implements [playout.Tap].
func (r *recording) TruncateModel(at time.Time) {
	for _, f := range r.activeTaps() {
		f.TruncateModel(at)
	}
}
