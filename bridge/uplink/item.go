package uplink

import (
	"encoding/json"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/media"
)

// Chunk is the length of the audio in one message: 20 ms, the minimum in Google's best practices (20 to 40 ms).
const Chunk = media.FrameDuration

// Turn is a typed turn. The model answers only a complete turn.
type Turn struct {
	Parts    json.RawMessage // JSON array of Part
	Complete bool
	Picture  *wire.Blob // picture to add as one more part, or nil; several turns may share it
}

// Mark is the start or end of speech, or a pause of the microphone. After MarkKeep, the next speech begins with the
// audio that came since the last speech or mark. MarkDrop drops that audio. Audio between MarkKeep and MarkStart is
// left out.
type Mark int

// The kinds of [Mark].
const (
	MarkStart Mark = iota
	MarkEnd
	MarkPause
	MarkKeep
	MarkDrop
)

// Item is one thing to send: a chunk of audio, a typed turn, or another message.
type Item struct {
	Rate         int
	PCM          []int16
	speechNumber int           // number of the speech that audio or a mark belongs to; 0 means silence
	index        int64         // index of the last message that carried the item on this connection; 0 means not sent yet; or coveredEarlier
	Silence      time.Duration // silence after a speech, so that the model detects its end; sent faster than real time
	Turn         *Turn         // sent in a form that the model accepts
	Message      *wire.ClientMessage
	Flushed      chan struct{} // set without other fields; closed when all items before this one were sent
}

// isPrompt reports whether the item is text that makes the model answer, as speech does.
func (i Item) isPrompt() bool {
	return i.Turn != nil && i.Turn.Complete || i.Message != nil && i.Message.RealtimeInput != nil && i.Message.RealtimeInput.Text != ""
}

// isIncompleteTurn reports whether the item is text that the model does not answer.
func (i Item) isIncompleteTurn() bool { return i.Turn != nil && !i.Turn.Complete }

// isToolAnswer reports whether the item is the result of a tool.
func (i Item) isToolAnswer() bool { return i.Message != nil && i.Message.ToolResponse != nil }

// isMark reports whether the item is a mark. A mark keeps its place between the chunks of audio.
func (i Item) isMark() bool {
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

// milliTokens returns the maximum number of tokens of the item, in thousandths. A second of audio has 25 tokens, and a
// video frame 258 (https://ai.google.dev/gemini-api/docs/tokens). Any other picture has 1,120 tokens
// (…/media-resolution). Two bytes of text count as one token.
func (i Item) milliTokens() uint64 {
	const picture, frame, text = 1_120_000, 258_000, 500
	switch {
	case i.PCM != nil, i.Silence > 0:
		return uint64((i.duration() + i.Silence).Milliseconds()) * 25
	case i.Turn != nil:
		n := uint64(0)
		if i.Turn.Picture != nil {
			n = picture
		}
		parts, _ := wire.ParseParts(i.Turn.Parts) // no error to handle: the model rejects what is not an array of parts
		if !parts.OnlyText() {
			n += uint64(parts.Len()) * picture
		}
		return n + uint64(len(parts.Text()))*text
	case i.Message == nil || i.isMark():
		return 0
	case i.Message.RealtimeInput != nil && i.Message.RealtimeInput.Video != nil:
		return frame
	}
	raw, _ := json.Marshal(i.Message) // the form in which the message is sent
	return uint64(len(raw)) * text
}

// newMark returns the item that sends a mark. speech is the number of the speech to which the mark belongs.
func newMark(m Mark, speech int) Item {
	return Item{speechNumber: speech, Message: &wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{
		ActivityStart: m == MarkStart, ActivityEnd: m == MarkEnd, AudioStreamEnd: m == MarkPause,
	}}}
}
