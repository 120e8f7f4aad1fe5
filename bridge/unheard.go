package bridge

import (
	"fmt"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/turns"
)

// leastUnheard is the minimum length of unplayed voice about which the model gets a note: a few words.
const leastUnheard = time.Second

// recordUnheard records that the rest of an interrupted answer was not played. The model needs a note about that,
// because Gemini assumes that all the voice that it has sent was heard.
func (m *modelOutput) recordUnheard(i Interrupted, unplayed time.Duration) {
	// If Gemini has detected the interruption itself, it knows what was not played, so it needs no note.
	byGateway := i.By != ByVoice || m.keeper.Config().Options.Turns.By == turns.ByGateway
	if i.By != ByClear && byGateway && unplayed >= leastUnheard && i.Turn > 0 {
		m.unheardTurn = i.Turn
	}
}

// takeUnheardNote returns a note about how much of the interrupted answer was heard. It returns the note once, and then
// "".
func (m *modelOutput) takeUnheardNote() string {
	if m.unheardTurn == 0 {
		return ""
	}
	played := m.transcript.PlayedAnswer(m.unheardTurn)
	m.unheardTurn = 0
	if played.Content != "" {
		return fmt.Sprintf("(The person interrupted your last answer, and heard of it only: %q)", played.Content)
	}
	return fmt.Sprintf("(The person interrupted your last answer, and heard only its first %.1f seconds.)", played.Played.Seconds())
}

// sendUnheardNote sends the model a note about an interrupted answer, if the model accepts notes without answering
// them. Other models get the note with the next typed text: see [modelOutput.takeTextNote].
func (m *modelOutput) sendUnheardNote() {
	// In the state turnDropped the model is still generating the interrupted answer.
	if m.unheardTurn == 0 || !m.keeper.Config().Profile.Appends || m.turn.state == turnDropped {
		return
	}
	m.queueNote(m.takeUnheardNote())
}

func (m *modelOutput) queueNote(note string) {
	turn := wire.Content{Role: "user", Parts: wire.TextPart(note).JSON()}
	// An error means that the queue is full. The note is then dropped, because what is in the queue is more important.
	_ = m.uplink.QueueMessage(wire.ClientMessage{ClientContent: &wire.ClientContent{Turns: []wire.Content{turn}}})
}

// takeTextNote returns a note to put before a typed text, or "". The note says how much of the interrupted answer was
// heard.
func (m *modelOutput) takeTextNote() string {
	note := m.takeUnheardNote()
	// A model with Appends accepts the note as a turn of its own.
	if note != "" && m.keeper.Config().Profile.Appends {
		m.queueNote(note)
		return ""
	}
	return note
}

// prependUnheardNote returns a typed text. If there is a note about an interrupted answer, the text begins with it.
func (m *modelOutput) prependUnheardNote(text string) string {
	if note := m.takeTextNote(); note != "" {
		return note + "\n" + text
	}
	return text
}
