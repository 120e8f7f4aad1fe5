package emulator

import "time"

// Event is something that happens on the server's side, for tests. Which fields are set depends on Kind.
type Event struct {
	Kind       EventKind
	Connection int // number of the connection, from 1, in the order of the handshakes
	At         time.Time

	Resumed bool    // EventOpened: the session was resumed
	History []Turn  // EventOpened: the initial history. EventAppended: the added turns
	PCM     []int16 // EventUserTurn, EventClosed: the user's speech at Rate Hz. It may be kept
	Rate    int
	ID      string   // EventToolCall, EventToolResponse: ID of the function call
	Name    string   // EventToolCall, EventToolResponse: name of the function
	Ignored bool     // EventToolResponse: no call waits for this response
	Tools   []string // EventOpened, EventContextUpdate: the declared functions
	Code    int      // EventRefused, EventClosed: HTTP status or close code; 1006 without a close frame

	// Text is described at each EventKind.
	Text string
}

// EventKind is the kind of an Event.
type EventKind string

// The kinds of events.
const (
	EventRefused       EventKind = "refused"  // a handshake or setup was refused; Text is the reason
	EventOpened        EventKind = "opened"   // setupComplete is about to be sent; Text is the system instruction
	EventUserTurn      EventKind = "heard"    // the user has spoken a turn
	EventTypedText     EventKind = "typed"    // typed text that requests an answer; Text is that text
	EventAppended      EventKind = "appended" // turns that do not request an answer, including initial history
	EventModelTurn     EventKind = "said"     // the model's turn was sent completely; Text is its transcript
	EventToolCall      EventKind = "called"   // toolCall; Text has the arguments
	EventToolResponse  EventKind = "answered" // a response in a toolResponse; Text is the result
	EventContextUpdate EventKind = "updated"  // contextUpdate: Text if the instruction was set, Tools (not nil) if the tools were
	EventFault         EventKind = "faulted"  // a fault occurs; Text is its Moment
	EventClosed        EventKind = "closed"   // the connection has ended; Text is the reason, PCM the start of unfinished speech
)

// Turn is one turn of the history. Role is "user", "model" or "tool".
type Turn struct{ Role, Text string }

// report sends an event to Options.Observe.
func (s *session) report(ev Event) {
	if s.e.observe == nil {
		return
	}
	ev.Connection, ev.At = s.number, time.Now()
	s.e.observe(ev)
}
