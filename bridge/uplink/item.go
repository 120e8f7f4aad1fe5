package uplink

import (
	"encoding/json"
	"errors"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/media"
)

// Chunk is how much audio travels in one message: 20 ms, the least that Google's best practices recommend (20-40 ms).
const Chunk = media.FrameDuration

// Turn is a typed turn. A complete one wants an answer.
type Turn struct {
	Parts    json.RawMessage // an array of Part
	Complete bool
	Picture  *wire.Blob // goes with it, as one more part; nil: none. Many turns may share one.
}

// Mark says where speech begins and ends, or that the microphone pauses. Keep and Drop are about what waits for the next
// Start: it is to be all of that speech, or of none.
type Mark int

// The kinds of [Mark].
const (
	Start Mark = iota
	End
	Pause
	Keep
	Drop
)

// Why a mark is refused: Gemini would close the session for it, or too many wait.
var (
	ErrManual    = errors.New("a pause has no meaning while the client marks speech itself")
	ErrAutomatic = errors.New("the begin and the end of speech are found by Gemini")
	ErrFull      = errors.New("too many marks wait")
)

// Item is one thing to send: a chunk of audio, a typed turn, or another message.
type Item struct {
	Rate    int
	PCM     []int16
	speech  int   // of audio and marks: the number of the speech that it belongs to; 0: silence
	index   int64 // of the last message that it was sent as, on this link; 0: not yet; known
	Turn    *Turn // sent in the form that its model takes
	Message *wire.ClientMessage
	Sent    chan struct{} // if nothing else: closed when its turn comes, because all before it was sent
}

// typed reports whether it is words that want an answer, as speech does.
func (i Item) typed() bool {
	return i.Turn != nil && i.Turn.Complete || i.Message != nil && i.Message.RealtimeInput != nil && i.Message.RealtimeInput.Text != ""
}

// hint reports whether it is words that want none.
func (i Item) hint() bool { return i.Turn != nil && !i.Turn.Complete }

// mark reports whether it keeps its place among the audio.
func (i Item) mark() bool {
	in := i.Message
	return in != nil && in.RealtimeInput != nil &&
		(in.RealtimeInput.ActivityStart || in.RealtimeInput.ActivityEnd || in.RealtimeInput.AudioStreamEnd)
}

func (i Item) duration() time.Duration {
	if i.Rate == 0 {
		return 0
	}
	return time.Duration(len(i.PCM)) * time.Second / time.Duration(i.Rate)
}

// markOf is the message of a mark in a speech.
func markOf(m Mark, speech int) Item {
	return Item{speech: speech, Message: &wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{
		ActivityStart: m == Start, ActivityEnd: m == End, AudioStreamEnd: m == Pause,
	}}}
}
