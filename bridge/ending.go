package bridge

import (
	"slices"
	"time"
)

const (
	// maxEndings bounds the ends of calls that a client is told again when it is back: all that may run at the same time, twice.
	maxEndings = 2 * maxCalls

	// unheard is how long the connection of a client may have been dead before it is given up, and a little more.
	unheard = 40 * time.Second
)

// ending is what the client was told of the end of a call, or of a question of a tool.
type ending struct {
	id    string // of the call or the question
	event Event
	at    time.Time
}

// over tells the client of an end.
func (b *broker) over(id string, e Event) {
	b.keep(id, e)
	b.s.notify(e)
}

// takeBack tells the client which of its calls and questions are not to be answered any more.
func (b *broker) takeBack(ids []string) {
	if len(ids) == 0 {
		return
	}
	for _, id := range ids {
		b.keep(id, ToolCallCancellation{[]string{id}})
	}
	b.s.notify(ToolCallCancellation{ids})
}

// keep has a client that is away, or whose network is dead though nobody knows yet, told of an end when it is back. Else it would
// take what has ended for running for ever.
func (b *broker) keep(id string, e Event) {
	if len(b.endings) == maxEndings {
		b.endings = slices.Delete(b.endings, 0, 1)
	}
	b.endings = append(b.endings, ending{id: id, event: e, at: time.Now()})
}

// begun forgets how a call ended whose id is used again.
func (b *broker) begun(id string) {
	b.endings = slices.DeleteFunc(b.endings, func(e ending) bool { return e.id == id })
}

// forgetEndings drops those that a client must have heard which is there, or has been until now.
func (b *broker) forgetEndings() {
	b.endings = slices.DeleteFunc(b.endings, func(e ending) bool { return time.Since(e.at) > unheard })
}

// repeatEndings tells a client that is back what it may not have heard.
func (b *broker) repeatEndings() {
	if b.s.state != StateParked { // else what ended meanwhile was told to nobody, however long ago
		b.forgetEndings()
	}
	for _, e := range b.endings {
		b.s.notify(e.event)
	}
}
