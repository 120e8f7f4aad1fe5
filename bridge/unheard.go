package bridge

import (
	"fmt"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/turns"
)

// leastUnheard is the minimum length of unplayed voice for which the model gets a note: a few words.
const leastUnheard = time.Second

// recordUnheard remembers an interrupted answer whose rest was not played. Gemini assumes that all the voice it has
// sent was heard.
func (m *modelOutput) recordUnheard(i Interrupted, unplayed time.Duration) {
	// If Gemini has detected the interruption itself, it knows what was not played, and needs no note.
	byGateway := i.By != ByVoice || m.keeper.Config().Options.Turns.By == turns.ByGateway
	if i.By != ByClear && byGateway && unplayed >= leastUnheard && i.Turn > 0 {
		m.unheardTurn = i.Turn
	}
}

// takeUnheardNote returns a note about what was heard of the interrupted answer, once, or "".
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

// sendUnheardNote informs the model of an interrupted answer, if the model accepts notes without answering them.
// [modelOutput.noteFor] serves other models.
func (m *modelOutput) sendUnheardNote() {
	// In turnDropped the model still generates the interrupted answer.
	if m.unheardTurn == 0 || !m.keeper.Config().Profile.Appends || m.turn.state == turnDropped {
		return
	}
	m.queueNote(m.takeUnheardNote())
}

func (m *modelOutput) queueNote(note string) {
	turn := wire.Content{Role: "user", Parts: wire.TextPart(note).JSON()}
	// An error means that the queue is full. The note is then dropped: what is queued is more important.
	_ = m.uplink.QueueMessage(wire.ClientMessage{ClientContent: &wire.ClientContent{Turns: []wire.Content{turn}}})
}

// noteFor returns a note to put before a typed text, or "". The note says what was heard of the interrupted answer.
func (m *modelOutput) noteFor() string {
	note := m.takeUnheardNote()
	// A model with Appends accepts the note as a turn of its own.
	if note != "" && m.keeper.Config().Profile.Appends {
		m.queueNote(note)
		return ""
	}
	return note
}

// withNote returns a typed text with its note, if there is one, in front.
func (m *modelOutput) withNote(text string) string {
	if note := m.noteFor(); note != "" {
		return note + "\n" + text
	}
	return text
}
