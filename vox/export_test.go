package vox

import (
	"time"

	"voxgate/bridge"
	"voxgate/media"
)

// Translator converts events to messages in JSON.
type Translator struct{ t translator }

// Translate returns the messages for an event.
func (t *Translator) Translate(body bridge.EventBody) (messages []string) {
	for _, m := range t.t.translateEvent(body) {
		messages = append(messages, string(encodeMessage(m)))
	}
	return messages
}

// Back marks the conversation as resumed: "ready" was sent, to another client.
func (t *Translator) Back() { t.t.readySent, t.t.isResumed = true, true }

// Ready records that ready was sent.
func (t *Translator) Ready() { t.t.readySent = true }

// Phrases splits pieces of text into phrases.
func Phrases(pieces ...string) (whole []string) {
	var p phraseSplitter
	for _, piece := range pieces {
		whole = append(whole, p.addText(piece)...)
	}
	return append(whole, p.takeRest()...)
}

// Voice is the output of a client, which joins the frames of the playout.
type Voice struct{ *voiceOutput }

// NewVoice returns a voice that calls send with each frame.
func NewVoice(send func(pcm []byte, generation uint32)) Voice { return Voice{newVoiceOutput(send)} }

// Cut discards audio of earlier generations.
func (v Voice) Cut(generation uint32) { v.discardBefore(generation) }

// Together is the wait for the first frames of a talkspurt.
const Together time.Duration = startDelay

var _ media.Output = Voice{}

// Instruction builds the system instruction.
var Instruction = buildInstruction

// Voices are the voices of the themes.
var Voices = themeVoices

// ServerMessages has one message of each type, and ClientMessage all fields that a client may send.
var (
	ServerMessages = []any{
		readyFrame{},
		transcript{},
		toolCall{},
		toolResult{},
		uiAction{},
		errorFrame{},
		sessionEnd{},
		interruptedFrame{},
		stateFrame{},
		logFrame{},
		question{},
		latency{},
		usage{},
	}
	ClientMessage any = clientMessage{}
	ClientTypes       = []string{typeStart, typeMute, typeEnd, typeText, typeAnswer, typeVersion, typeInterrupt, typeTalk}
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
	m, err := parseMessage(raw)
	return m.Type, err
}
