package emulator

import "time"

// Event is something that a test may want to know of the server's side. Which fields are set depends on What.
type Event struct {
	What       What
	Connection int // its number, counted from 1 by the handshakes
	At         time.Time

	Resumed bool    // Opened: it continues a session
	History []Turn  // Opened: what it begins with. Appended: what was added
	PCM     []int16 // Heard, Closed: the person's speech at Rate Hz. It may be kept
	Rate    int
	ID      string   // Called, Answered: of the function call
	Name    string   // Called, Answered: of the function
	Ignored bool     // Answered: nobody waits for this answer
	Tools   []string // Opened, Updated: the declared functions
	Code    int      // Refused, Closed: HTTP status or close code, 1006 without a frame

	// Text is the arguments (Called), the result (Answered), the typed words (Typed), the system instruction (Opened,
	// Updated), what was said (Said) or why (Refused, Closed).
	Text string
}

// What is the kind of an Event.
type What string

// The kinds of events.
const (
	Refused  What = "refused"  // a handshake or a setup was
	Opened   What = "opened"   // setupComplete is about to be sent
	Heard    What = "heard"    // the person has spoken a turn
	Typed    What = "typed"    // text that asks for an answer
	Appended What = "appended" // turns that ask for none, initial history among them
	Said     What = "said"     // the model's turn has all been sent; Text is its transcript
	Called   What = "called"   // toolCall
	Answered What = "answered" // an answer in a toolResponse
	Updated  What = "updated"  // contextUpdate: Text if the instruction was set, Tools (not nil) if the tools were
	Faulted  What = "faulted"  // a fault strikes; Text is its moment
	Closed   What = "closed"   // the connection is over; PCM is what was heard of a speech that had not ended
)

// Turn is one turn as it is remembered. Role is user, model or tool.
type Turn struct{ Role, Text string }

// report sends an event to Options.Observe.
func (s *session) report(ev Event) {
	if s.e.observe == nil {
		return
	}
	ev.Connection, ev.At = s.number, time.Now()
	s.e.observe(ev)
}
