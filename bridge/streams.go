package bridge

import (
	"fmt"
	"io"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/uplink"
	"voxgate/media"
	"voxgate/media/record"
)

// streams carry sound and pictures between the caller and the model, past the loop of the session. Any goroutine may call their methods.
type streams struct {
	voice     *voice
	up        *uplink.Uplink
	recording *recording
	loss      losses
}

// Mic opens a microphone for mono PCM at rate Hz, 8000 to 48000. Audio goes to the model at this rate.
func (s *streams) Mic(rate int) (*Microphone, error) {
	if rate < 8000 || rate > 48000 {
		return nil, fmt.Errorf("a sample rate of %d Hz is not between 8000 and 48000", rate)
	}
	return &Microphone{up: s.up, tap: s.recording, rate: rate}, nil
}

// Recorded reports whether what is said now is recorded.
func (s *streams) Recorded() bool { return s.recording.running() }

// Hear has l hear the conversation from now on, until stop.
func (s *streams) Hear(l Listener) (stop func(), err error) {
	r := s.recording
	if err := r.admit(); err != nil {
		return nil, err
	}
	r.add(l)
	return func() {
		r.remove(l)
		r.leave()
	}, nil
}

// Listen writes both sides of the conversation to w from now on, about two seconds late: Ogg Opus, the person left, the model right. failed
// is closed when w has refused a write. stop ends it; it waits for the last write, and closes w.
func (s *streams) Listen(w io.WriteCloser) (failed <-chan struct{}, stop func() error, err error) {
	r := s.recording
	if err := r.admit(); err != nil {
		return nil, nil, err
	}
	f, err := record.New(w, time.Now())
	if err != nil {
		r.leave()
		return nil, nil, err
	}
	r.add(f)
	return f.Failed(), func() error {
		defer r.leave()
		r.remove(f)
		return f.Close()
	}, nil
}

// Attach says where the voice goes from now on; nil discards it.
func (s *streams) Attach(out media.Output) { s.voice.AttachOutput(out) }

// Hold keeps the voice (its newest 10 s) instead of playing it, until Hold(false): for an output that will soon be
// attached. [Pause] is for a person who does not listen.
func (s *streams) Hold(on bool) { s.voice.SetHold(on) }

// SetFrame gives the model a picture to look at. The newest wins, and at most one a second is sent. changed is false if
// it shows the same as the one before: then it is sent only while the person speaks.
func (s *streams) SetFrame(mimeType string, data []byte, changed bool) {
	s.up.ShowPicture(wire.Blob{MIMEType: mimeType, Data: data}, changed)
}

// ClearFrame forgets the picture that SetFrame gave: what it showed is no longer to be seen.
func (s *streams) ClearFrame() { s.up.ClearPicture() }

// RoundTrip notes how long the way to the client and back takes.
func (s *streams) RoundTrip(d time.Duration) { s.voice.roundTrip.Store(int64(d)) }

// Loss notes how many packets were lost on their way lately, and of how many: up, from the caller, or down.
func (s *streams) Loss(up bool, lost, of int) { s.loss.note(up, lost, of) }
