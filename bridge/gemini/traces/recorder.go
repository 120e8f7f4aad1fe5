package traces

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Recorder writes the messages of one connection, without secrets and sound (see [Redactor]). It is safe for concurrent
// use.
type Recorder struct {
	mu    sync.Mutex
	w     io.Writer
	start time.Time
	err   error

	// The fields sound, soundAt and rate describe the current stretch of speech or silence. The client sends it in many
	// small messages, which are written as one line.
	sound   Sound
	soundAt float64
	rate    int
	redact  Redactor
}

// NewRecorder starts a recording: it writes the comment c as the first line.
func NewRecorder(w io.Writer, c Comment) *Recorder {
	r := &Recorder{w: w, start: time.Now()}
	r.writeLine(struct {
		Comment Comment `json:"comment"`
	}{c})
	return r
}

// Add writes a message that was sent or received. It does not retain the frame.
func (r *Recorder) Add(isSent bool, frame []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if isSent && r.addSound(frame) {
		return
	}
	dir := Down
	if isSent {
		dir = Up
	}
	if isSent || !r.sound.Silent { // received messages do not end a stretch of silence
		r.flushSound()
	}
	r.writeLine(Line{Dir: dir, MS: r.elapsedMS(), Msg: r.redact.RedactMessage(frame)})
}

// Close writes how the server has closed the connection, or nothing if code is 0. It returns the first error of the
// recording.
func (r *Recorder) Close(code int, reason string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flushSound()
	if code != 0 {
		end, err := json.Marshal(Close{code, r.redact.RedactText(reason)})
		if err != nil {
			return err
		}
		r.writeLine(Line{Dir: EndClose, MS: r.elapsedMS(), Msg: end})
	}
	return r.err
}

func (r *Recorder) elapsedMS() *float64 {
	ms := math.Round(float64(time.Since(r.start).Microseconds())) / 1000
	return &ms
}

func (r *Recorder) writeLine(line any) {
	if r.err != nil {
		return
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if r.err = enc.Encode(line); r.err == nil {
		_, r.err = r.w.Write(b.Bytes())
	}
}

// addSound adds a message to the current stretch of sound. It does nothing, and returns false, if the message has
// anything other than audio.
func (r *Recorder) addSound(frame []byte) (isAdded bool) {
	var m struct {
		RealtimeInput *struct{ Audio *Blob }
	}
	if json.Unmarshal(frame, &m) != nil || m.RealtimeInput == nil || m.RealtimeInput.Audio == nil {
		return false
	}
	raw, err := base64.StdEncoding.DecodeString(m.RealtimeInput.Audio.Data)
	rate := 16000
	if _, text, ok := strings.Cut(m.RealtimeInput.Audio.MIMEType, "rate="); ok {
		if n, err := strconv.Atoi(text); err == nil && n > 0 {
			rate = n
		}
	}
	if err != nil {
		return false
	}
	silent := !slices.ContainsFunc(raw, func(b byte) bool { return b != 0 })
	if r.sound.Length > 0 && (r.sound.Silent != silent || r.rate != rate) {
		r.flushSound()
	}
	if r.sound.Length == 0 {
		r.soundAt, r.rate, r.sound.Silent = *r.elapsedMS(), rate, silent
	}
	r.sound.Length += time.Duration(len(raw)/2) * time.Second / time.Duration(rate)
	return true
}

// flushSound writes the current stretch of sound, if any.
func (r *Recorder) flushSound() {
	if r.sound.Length == 0 {
		return
	}
	what := "speech"
	if r.sound.Silent {
		what = "silence"
	}
	data := fmt.Sprintf("<%d ms of %s>", r.sound.Length.Milliseconds(), what)
	at := r.soundAt
	r.sound = Sound{}
	msg := fmt.Appendf(nil, `{"realtimeInput":{"audio":{"mimeType":"audio/pcm;rate=%d","data":%q}}}`, r.rate, data)
	r.writeLine(Line{Dir: Up, MS: &at, Msg: msg})
}
