package tools

import (
	"encoding/json"
	"regexp"
	"time"
)

// Behavior says whether the model waits for an answer; "" is the model's own way.
type Behavior string

// The values of Behavior, as the Live API has them.
const (
	Blocking    Behavior = "BLOCKING"
	NonBlocking Behavior = "NON_BLOCKING"
)

// Scheduling says when the model speaks of the answer to a call that it does not wait for; "" is its own way, which is
// WHEN_IDLE.
type Scheduling string

// The values of Scheduling, as the Live API has them.
const (
	WhenIdle  Scheduling = "WHEN_IDLE"
	Interrupt Scheduling = "INTERRUPT"
	Silent    Scheduling = "SILENT"
)

// Declaration is what a model gets of a tool, and the rules by which the tool runs.
type Declaration struct {
	Name        string
	Title       string // what it does, for people: "Taking photo…"
	Description string
	Parameters  json.RawMessage // JSON Schema of the arguments; nil: there are none
	Behavior    Behavior
	Scheduling  Scheduling
	Timeout     time.Duration // 0: the usual one
	Repeats     bool          // a call like one that runs, or whose answer was not spoken of yet, is another one
	Explains    bool          // the tool itself checks its arguments, and says what is wrong with them
}

// MaxTimeout bounds what a declaration may ask for: a person has as long to answer.
const MaxTimeout = PersonTimeout

var validName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.:-]{0,127}$`)

// ValidName reports whether a function of this name can be declared to a model: a letter or _, then letters, digits, _ . : or -, 128 at
// most (https://ai.google.dev/api/caching#FunctionDeclaration).
func ValidName(name string) bool { return validName.MatchString(name) }

// Tool is a function with its declaration.
type Tool struct {
	Declaration
	Run Func
}
