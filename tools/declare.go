package tools

import (
	"encoding/json"
	"regexp"
	"time"
)

// Behavior says whether the model waits for the response to a call; "" is the model's default.
type Behavior string

// The values of Behavior in the Live API.
const (
	Blocking    Behavior = "BLOCKING"
	NonBlocking Behavior = "NON_BLOCKING"
)

// Scheduling says when the model speaks about the response to a non-blocking call. "" is the model's default,
// WHEN_IDLE.
type Scheduling string

// The values of Scheduling in the Live API.
const (
	WhenIdle  Scheduling = "WHEN_IDLE"
	Interrupt Scheduling = "INTERRUPT"
	Silent    Scheduling = "SILENT"
)

// Declaration describes a tool to a model, and says how the gateway must run it.
type Declaration struct {
	Name            string
	Title           string // the activity, for users: "Taking photo…"
	Description     string
	Parameters      json.RawMessage // JSON Schema of the arguments (nil: no arguments)
	Behavior        Behavior
	Scheduling      Scheduling
	Timeout         time.Duration // time limit of a call; 0 means the default
	Repeats         bool          // allow a call that is identical to one that still runs, or whose result was not reported yet
	ValidatesItself bool          // the tool validates its arguments itself
}

// MaxTimeout bounds the timeout of a declaration. It is the time that a user has to answer a question.
const MaxTimeout = PersonTimeout

var validName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.:-]{0,127}$`)

// IsValidName reports whether a function of this name can be declared to a model (at most 128 characters):
// https://ai.google.dev/api/caching#FunctionDeclaration.
func IsValidName(name string) bool { return validName.MatchString(name) }

// Tool is a function with its declaration.
type Tool struct {
	Declaration
	Run Func
}
