package bridge

import (
	"time"

	"voxgate/media/record"
)

// record begins or ends the recording, as the configuration in force wants it. One that Gemini may still refuse does neither:
// a refused one would break the recording in two.
func (s *Session) record() {
	o := s.host.options
	wanted := o.Recordings != "" && !s.recording.broken && (s.keeper.Config().Options.Record || o.RecordAll)
	switch f := s.recording.file.Load(); {
	case wanted && f == nil:
		f, err := record.Create(o.Recordings, s.id, time.Now())
		if err != nil {
			s.log.Error("recording", "err", err)
			s.breakRecording()
			return
		}
		s.log.Info("recording begun")
		s.recording.file.Store(f)
		s.recording.failed = f.Failed()
		s.playout.Tap(f)
	case !wanted:
		s.closeRecording()
	}
}

// breakRecording notes that the disk takes no recording. It is not tried again: what begins anew in the middle would be
// taken for whole.
func (s *Session) breakRecording() {
	s.recording.broken = true
	if tell := s.host.options.Observe; tell != nil {
		tell(s.id, RecordingFailed{})
	}
}

// onRecordingFailed ends a recording that the disk has refused, and says so.
func (s *Session) onRecordingFailed() {
	s.breakRecording()
	s.closeRecording() // which logs why
	s.tellRecording()
}

// closeRecording ends the recording, if there is one. The host waits for the rest of it to be written: a disk that hangs, as
// one at the other end of a network may, must not hold up the conversation, nor its end.
func (s *Session) closeRecording() {
	f := s.recording.file.Swap(nil)
	if f == nil {
		return
	}
	s.recording.failed = nil
	s.playout.Tap(nil)
	f.Stop()
	s.host.writing.Go(func() {
		if err := f.Close(); err != nil {
			s.log.Error("recording", "err", err)
		}
	})
}

// tellRecording says whether the conversation is recorded, where that was asked for or has changed.
func (s *Session) tellRecording() {
	recorded, told := s.recording.file.Load() != nil, s.recording.told
	s.recording.told = recorded
	say := func(level, message string) {
		s.notify(Log{Level: level, Message: message, Details: map[string]any{"recording": recorded}})
	}
	switch {
	case recorded && !told:
		say("info", "This conversation is recorded.")
	case told && s.recording.broken:
		say("error", "This conversation is no longer recorded: the gateway's disk has failed or is full. "+
			"What was recorded so far is kept.")
	case told && !recorded:
		say("info", "This conversation is no longer recorded.")
	case s.keeper.Config().Options.Record && !recorded:
		say("warn", "This conversation is not recorded: the gateway has no place for recordings.")
	}
}
