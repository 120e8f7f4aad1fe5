package bridge

import (
	"strings"

	"voxgate/bridge/gemini/wire"
	"voxgate/tools"
)

// noSpeech is the transcript that gemini-3.8-live-extended-thinking sends for a turn in which it says nothing. Such a
// turn has one sample of audio (openclaw #152646, September 2026).
const noSpeech = "<no speech>"

// noSpeechFilter removes the marker noSpeech from the model's output. The marker may arrive in pieces, so text that may
// be its beginning is held back.
type noSpeechFilter struct {
	heldText  string // text of the transcript that may be part of the marker
	isDecided bool   // the current turn does not consist of the marker
}

// filterMessage removes the marker from a message of the model, or holds back text that may be its beginning.
func (f *noSpeechFilter) filterMessage(c *wire.ServerContent) {
	if c.Interrupted {
		*f = noSpeechFilter{}
	}
	if !f.isDecided && (c.OutputTranscription != "" || len(c.Audio) > 0 || c.HasText) {
		text := f.heldText + c.OutputTranscription
		isMark := len(c.Audio) <= 1 && !c.HasText &&
			(strings.HasPrefix(noSpeech, strings.TrimSpace(text)) || strings.TrimSpace(text) == noSpeech)
		if isMark && text != "" {
			f.heldText = text
			c.Audio, c.OutputTranscription, c.Transcript = nil, "", nil
		} else {
			f.releaseText(c)
		}
	}
	if c.TurnComplete {
		if f.heldText != "" && strings.TrimSpace(f.heldText) != noSpeech {
			f.releaseText(c) // the held text was the whole transcript of the turn
		}
		*f = noSpeechFilter{}
	}
}

// releaseText puts the held text back into the message.
func (f *noSpeechFilter) releaseText(c *wire.ServerContent) {
	f.isDecided = true
	if f.heldText == "" {
		return
	}
	c.OutputTranscription = f.heldText + c.OutputTranscription
	c.Transcript = tools.EncodeOrEmpty(map[string]any{"outputTranscription": map[string]string{"text": c.OutputTranscription}})
	f.heldText = ""
}
