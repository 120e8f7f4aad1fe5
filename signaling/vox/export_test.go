package vox

import (
	"time"

	"voxgate/bridge"
	"voxgate/media"
)

// Translator is what makes messages of events, as JSON.
type Translator struct{ t translator }

// Translate returns the messages.
func (t *Translator) Translate(body bridge.EventBody) (messages []string) {
	for _, m := range t.t.translate(body) {
		messages = append(messages, string(encode(m)))
	}
	return messages
}

// Back says that another client was there before.
func (t *Translator) Back() { t.t.begun, t.t.back = true, true }

// Ready says that there was a ready.
func (t *Translator) Ready() { t.t.begun = true }

// Phrases cuts pieces into phrases.
func Phrases(pieces ...string) (whole []string) {
	var p phrases
	for _, piece := range pieces {
		whole = append(whole, p.add(piece)...)
	}
	return append(whole, p.end()...)
}

// Voice is the output that joins frames.
type Voice struct{ *voice }

// NewVoice returns one that sends to f.
func NewVoice(send func(pcm []byte, generation uint32)) Voice { return Voice{newVoice(send)} }

// Cut forgets what is older than a generation.
func (v Voice) Cut(generation uint32) { v.cut(generation) }

// Together is how long the first frames of a talkspurt are waited for.
const Together time.Duration = together

var _ media.Output = Voice{}

// Instruction is the system instruction.
var Instruction = instruction

// Voices are those of the themes.
var Voices = voices

// ServerMessages are one of each type, and ClientMessage is all that a client may send.
var (
	ServerMessages = []any{
		ready{},
		transcript{},
		toolCall{},
		toolResult{},
		uiAction{},
		errorFrame{},
		sessionEnd{},
		interrupted{},
		stateFrame{},
		logFrame{},
		question{},
	}
	ClientMessage any = clientMessage{}
	ClientTypes       = []string{typeStart, typeMute, typeEnd, typeText, typeAnswer, typeVersion, typeInterrupt}
	Codes             = []string{
		string(
			bridge.CodeBadMessage,
		), string(codeTooLarge), string(bridge.CodeInvalidAudioFormat), string(codeNotStarted), string(codeAlreadyStarted),
	}
)

// KindOf is the type of a message.
func KindOf(m any) string { return m.(serverMessage).kind() }

// Parse reads a text frame, and returns its type.
func Parse(raw []byte) (kind string, err error) {
	m, err := parse(raw)
	return m.Type, err
}
