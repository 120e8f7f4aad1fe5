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
	speech  int           // of audio and marks: the number of the speech that it belongs to; 0: silence
	index   int64         // of the last message that it was sent as, on this link; 0: not yet; known
	Silence time.Duration // behind a speech, by which the model finds its end; sent at once
	Turn    *Turn         // sent in the form that its model takes
	Message *wire.ClientMessage
	Sent    chan struct{} // if nothing else: closed when its turn comes, because all before it was sent
}

// typed reports whether it is words that want an answer, as speech does.
func (i Item) typed() bool {
	return i.Turn != nil && i.Turn.Complete || i.Message != nil && i.Message.RealtimeInput != nil && i.Message.RealtimeInput.Text != ""
}

// hint reports whether it is words that want none.
func (i Item) hint() bool { return i.Turn != nil && !i.Turn.Complete }

// isToolAnswer reports whether it is the answer of a tool.
func (i Item) isToolAnswer() bool { return i.Message != nil && i.Message.ToolResponse != nil }

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

// tokens is how many thousandths of tokens it has at most: sound 25 a second and a picture of a stream 258
// (https://ai.google.dev/gemini-api/docs/tokens), another picture 1,120 (…/media-resolution), and text one in two bytes.
func (i Item) tokens() uint64 {
	const picture, frame, text = 1_120_000, 258_000, 500
	switch {
	case i.PCM != nil, i.Silence > 0:
		return uint64((i.duration() + i.Silence).Milliseconds()) * 25
	case i.Turn != nil:
		n := uint64(0)
		if i.Turn.Picture != nil {
			n = picture
		}
		parts, _ := wire.ParseParts(i.Turn.Parts) // what is no array of parts is refused by the model
		if !parts.OnlyText() {
			n += uint64(parts.Len()) * picture
		}
		return n + uint64(len(parts.Text()))*text
	case i.Message == nil || i.mark():
		return 0
	case i.Message.RealtimeInput != nil && i.Message.RealtimeInput.Video != nil:
		return frame
	}
	raw, _ := json.Marshal(i.Message) // it goes up in this form
	return uint64(len(raw)) * text
}

// markOf is the message of a mark in a speech.
func markOf(m Mark, speech int) Item {
	return Item{speech: speech, Message: &wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{
		ActivityStart: m == Start, ActivityEnd: m == End, AudioStreamEnd: m == Pause,
	}}}
}
