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

// streams carry audio and pictures between the caller and the model, outside the loop. Their methods are safe for
// concurrent use.
type streams struct {
	voice     *voice
	uplink    *uplink.Uplink
	recording *recording
	loss      lossCounters
}

// NewMicrophone opens a microphone for mono PCM at the given rate, from 8000 to 48000 Hz. The audio is sent to the
// model at this rate.
func (s *streams) NewMicrophone(rate int) (*Microphone, error) {
	if rate < 8000 || rate > 48000 {
		return nil, fmt.Errorf("sample rate %d Hz: must be between 8000 and 48000", rate)
	}
	return &Microphone{up: s.uplink, tap: s.recording, rate: rate}, nil
}

// IsRecorded reports whether audio is being recorded.
func (s *streams) IsRecorded() bool { return s.recording.isRunning() }

// AddListener passes the audio of the conversation to l, until stop is called.
func (s *streams) AddListener(l Listener) (stop func(), err error) {
	r := s.recording
	if err := r.reserveListener(); err != nil {
		return nil, err
	}
	r.addTap(l)
	return func() {
		r.removeTap(l)
		r.releaseListener()
	}, nil
}

// RecordTo writes both sides of the conversation to w as Ogg Opus, about two seconds late. The person is on the left
// channel. failed is closed when a write has failed. stop waits for the last write, and closes w.
func (s *streams) RecordTo(w io.WriteCloser) (failed <-chan struct{}, stop func() error, err error) {
	r := s.recording
	if err := r.reserveListener(); err != nil {
		return nil, nil, err
	}
	f, err := record.New(w, time.Now())
	if err != nil {
		r.releaseListener()
		return nil, nil, err
	}
	r.addTap(f)
	return f.Failed(), func() error {
		defer r.releaseListener()
		r.removeTap(f)
		return f.Close()
	}, nil
}

// AttachOutput sets the output of the voice. If out is nil, the voice is discarded.
func (s *streams) AttachOutput(out media.Output) { s.voice.AttachOutput(out) }

// HoldVoice keeps the newest 10 s of the voice until HoldVoice(false) is called. Use it if an output will be attached
// soon. If the person does not want to listen, use [Pause].
func (s *streams) HoldVoice(on bool) { s.voice.SetHold(on) }

// SetFrame sets the picture that the model sees. At most one picture a second is sent, and always the newest. An
// unchanged picture is sent only while the person speaks.
func (s *streams) SetFrame(mimeType string, data []byte, hasChanged bool) {
	s.uplink.ShowPicture(wire.Blob{MIMEType: mimeType, Data: data}, hasChanged)
}

// ClearFrame removes the picture that SetFrame has set, because the person no longer shows it.
func (s *streams) ClearFrame() { s.uplink.ClearPicture() }

// SetRoundTrip sets the round-trip time of the client.
func (s *streams) SetRoundTrip(d time.Duration) { s.voice.roundTrip.Store(int64(d)) }

// RecordLoss records recent packet loss in one direction: lost of total packets. isFromCaller means the direction from
// the caller to the gateway.
func (s *streams) RecordLoss(isFromCaller bool, lost, total int) {
	s.loss.recordLoss(isFromCaller, lost, total)
}
