package bridge

import (
	"time"

	"voxgate/media/record"
)

// record begins or ends the recording, as the configuration in force wants it. One that Gemini may still refuse does neither:
// a refused one would break the recording in two.
func (s *Session) record() {
	o := s.host.options
	wanted := o.Recordings != "" && (s.keeper.Config().Options.Record || o.RecordAll)
	switch f := s.recording.file.Load(); {
	case wanted && f == nil:
		f, err := record.Create(o.Recordings, s.id, time.Now())
		if err != nil {
			s.log.Error("recording", "err", err)
			return
		}
		s.log.Info("recording begun")
		s.recording.file.Store(f)
		s.playout.Tap(f)
	case !wanted:
		s.closeRecording()
	}
}

// closeRecording ends the recording, if there is one. The host waits for the rest of it to be written: a disk that hangs, as
// one at the other end of a network may, must not hold up the conversation, nor its end.
func (s *Session) closeRecording() {
	f := s.recording.file.Swap(nil)
	if f == nil {
		return
	}
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
	switch {
	case recorded && !told:
		s.notify(Log{Level: "info", Message: "This conversation is recorded."})
	case told && !recorded:
		s.notify(Log{Level: "info", Message: "This conversation is no longer recorded."})
	case s.keeper.Config().Options.Record && !recorded:
		s.warn("This conversation is not recorded: the gateway has no place for recordings.")
	}
}
