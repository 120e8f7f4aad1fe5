package bridge

import (
	"strings"

	"voxgate/bridge/gemini/wire"
	"voxgate/tools"
)

// noSpeech is what gemini-3.8-live-extended-thinking writes into the transcript of a turn in which it chooses to say nothing, beside
// one sample of sound (openclaw #152646, September 2026).
const noSpeech = "<no speech>"

// noSpeechFilter takes the mark of a turn without speech out of what the model says. The mark comes in pieces, so what may be the
// beginning of one is kept back until it is known.
type noSpeechFilter struct {
	kept    string // of the transcript
	decided bool   // the turn under way says something else
}

// filter changes a message of the model.
func (f *noSpeechFilter) filter(c *wire.ServerContent) {
	if c.Interrupted {
		*f = noSpeechFilter{}
	}
	if !f.decided && (c.OutputTranscription != "" || len(c.Audio) > 0 || c.Written) {
		text := f.kept + c.OutputTranscription
		isMark := len(c.Audio) <= 1 && !c.Written &&
			(strings.HasPrefix(noSpeech, strings.TrimSpace(text)) || strings.TrimSpace(text) == noSpeech)
		if isMark && text != "" {
			f.kept = text
			c.Audio, c.OutputTranscription, c.Transcript = nil, "", nil
		} else {
			f.release(c)
		}
	}
	if c.TurnComplete {
		if f.kept != "" && strings.TrimSpace(f.kept) != noSpeech {
			f.release(c) // it was all that the model has said
		}
		*f = noSpeechFilter{}
	}
}

// release gives back what was kept.
func (f *noSpeechFilter) release(c *wire.ServerContent) {
	f.decided = true
	if f.kept == "" {
		return
	}
	c.OutputTranscription = f.kept + c.OutputTranscription
	c.Transcript = tools.Encode(map[string]any{"outputTranscription": map[string]string{"text": c.OutputTranscription}})
	f.kept = ""
}
