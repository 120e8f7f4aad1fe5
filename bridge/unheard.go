package bridge

import (
	"fmt"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/turns"
)

// leastUnheard is the least voice that makes a difference to the model if the person did not hear it: a few words.
const leastUnheard = time.Second

// recordUnheard remembers an interrupted answer whose rest was not played. Gemini sends its voice faster than real time, and takes what it
// has sent for heard, so it would refer to words that nobody has heard. If Gemini itself detects interruptions, those by voice are not
// recorded: Gemini handles them.
func (a *modelOutput) recordUnheard(i Interrupted, unplayed time.Duration) {
	byGateway := i.By != ByVoice || a.keeper.Config().Options.Turns.By == turns.ByGateway
	if i.By != ByClear && byGateway && unplayed >= leastUnheard && i.Turn > 0 {
		a.unheardTurn = i.Turn
	}
}

// takeUnheardNote returns a note about what was heard of the interrupted answer, once; "" means that there is nothing
// to say.
func (a *modelOutput) takeUnheardNote() string {
	if a.unheardTurn == 0 {
		return ""
	}
	heard := a.transcript.PlayedAnswer(a.unheardTurn)
	a.unheardTurn = 0
	if heard.Content != "" {
		return fmt.Sprintf("(The person interrupted your last answer, and heard of it only: %q)", heard.Content)
	}
	return fmt.Sprintf("(The person interrupted your last answer, and heard only its first %.1f seconds.)", heard.Played.Seconds())
}

// sendUnheardNote informs the model of an interrupted answer, if the model accepts notes without answering them, and no longer works on
// that answer. Other models get the note with the next typed text: see [modelOutput.noteFor].
func (a *modelOutput) sendUnheardNote() {
	if a.unheardTurn == 0 || !a.keeper.Config().Profile.Appends || a.turn.state == turnDropped {
		return
	}
	a.queueNote(a.takeUnheardNote())
}

func (a *modelOutput) queueNote(note string) {
	turn := wire.Content{Role: "user", Parts: wire.TextPart(note).JSON()}
	// An error means that the queue is full. The note is then dropped: what is queued is more important.
	_ = a.uplink.QueueMessage(wire.ClientMessage{ClientContent: &wire.ClientContent{Turns: []wire.Content{turn}}})
}

// noteFor returns a note to put before a typed text, so that the model knows what was heard of the answer that the text interrupts. It
// returns "" if there is nothing to say. If the model accepts notes by themselves, it sends the note at once and returns "".
func (a *modelOutput) noteFor() string {
	note := a.takeUnheardNote()
	if note != "" && a.keeper.Config().Profile.Appends {
		a.queueNote(note)
		return ""
	}
	return note
}

// withNote returns a typed text behind its note, if there is one.
func (a *modelOutput) withNote(text string) string {
	if note := a.noteFor(); note != "" {
		return note + "\n" + text
	}
	return text
}
