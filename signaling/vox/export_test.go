package vox

import (
	"time"

	"voxgate/bridge"
	"voxgate/media"
)

// Translator converts events to messages in JSON.
type Translator struct{ t translator }

// Translate returns the messages.
func (t *Translator) Translate(body bridge.EventBody) (messages []string) {
	for _, m := range t.t.translate(body) {
		messages = append(messages, string(encode(m)))
	}
	return messages
}

// Back records that another client had the conversation before.
func (t *Translator) Back() { t.t.begun, t.t.back = true, true }

// Ready records that ready was sent.
func (t *Translator) Ready() { t.t.begun = true }

// Phrases splits pieces of text into phrases.
func Phrases(pieces ...string) (whole []string) {
	var p phrases
	for _, piece := range pieces {
		whole = append(whole, p.add(piece)...)
	}
	return append(whole, p.end()...)
}

// Voice is the output that joins frames.
type Voice struct{ *voice }

// NewVoice returns a voice that sends to f.
func NewVoice(send func(pcm []byte, generation uint32)) Voice { return Voice{newVoice(send)} }

// Cut discards audio of earlier generations.
func (v Voice) Cut(generation uint32) { v.cut(generation) }

// Together is the wait for the first frames of a talkspurt.
const Together time.Duration = together

var _ media.Output = Voice{}

// Instruction is the system instruction.
var Instruction = instruction

// Voices are the voices of the themes.
var Voices = voices

// ServerMessages has one message of each type, and ClientMessage all fields that a client may send.
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

// KindOf returns the type of a message.
func KindOf(m any) string { return m.(serverMessage).kind() }

// Parse parses a text frame, and returns its type.
func Parse(raw []byte) (kind string, err error) {
	m, err := parse(raw)
	return m.Type, err
}
