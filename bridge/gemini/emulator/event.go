package emulator

import "time"

// Event is an event on the server's side, for tests. The fields that are set depend on What.
type Event struct {
	What       What
	Connection int // connection number, counted from 1 by handshakes
	At         time.Time

	Resumed bool    // Opened: the session is a resumed one
	History []Turn  // Opened: the initial history. Appended: the added turns
	PCM     []int16 // Heard, Closed: the user's speech at Rate Hz. It may be kept
	Rate    int
	ID      string   // Called, Answered: ID of the function call
	Name    string   // Called, Answered: name of the function
	Ignored bool     // Answered: no call waits for this response
	Tools   []string // Opened, Updated: the declared functions
	Code    int      // Refused, Closed: HTTP status or close code, 1006 without a frame

	// Text depends on What: arguments (Called), result (Answered), typed text (Typed), system instruction (Opened,
	// Updated), the model's text (Said) or the reason (Refused, Closed).
	Text string
}

// What names the kind of an Event.
type What string

// The kinds of events.
const (
	Refused  What = "refused"  // a handshake or setup was refused
	Opened   What = "opened"   // setupComplete is about to be sent
	Heard    What = "heard"    // the user has spoken a turn
	Typed    What = "typed"    // text that requests an answer
	Appended What = "appended" // turns that do not request an answer, including initial history
	Said     What = "said"     // the model's turn was sent completely; Text is its transcript
	Called   What = "called"   // toolCall
	Answered What = "answered" // a response in a toolResponse
	Updated  What = "updated"  // contextUpdate: Text if the instruction was set, Tools (not nil) if the tools were
	Faulted  What = "faulted"  // a fault occurs; Text is its moment
	Closed   What = "closed"   // the connection has ended; PCM is the start of unfinished speech
)

// Turn is one turn of the history. Role is user, model or tool.
type Turn struct{ Role, Text string }

// report sends an event to Options.Observe.
func (s *session) report(ev Event) {
	if s.e.observe == nil {
		return
	}
	ev.Connection, ev.At = s.number, time.Now()
	s.e.observe(ev)
}
