// Package declaration reads the functions that a conversation declares: by which rules their calls run, and what the model is
// told of them. A schema is told in the subset of OpenAPI that the Live API takes; the arguments are checked against the
// original.
package declaration

import (
	"encoding/json"
	"slices"

	"voxgate/tools"
)

// Function is a declared function, and the rules by which its calls run.
type Function struct {
	tools.Declaration

	// Where it runs.
	Where Where

	// Blocking is set if the model waits for the answer to a call, and closes the session when it hears audio before.
	Blocking bool

	// Schedules is set if the model takes a scheduling with the answer, and Continues if it takes answers before the last one.
	Schedules, Continues bool

	args *tools.Schema
}

// Check returns what is wrong with a call's arguments, as they were declared and not as the model was told of them.
func (f Function) Check(args json.RawMessage) error { return f.args.Check(args) }

// Where is the place where a function runs.
type Where string

// The values of Where.
const (
	InClient  Where = "client"
	InGateway Where = "gateway"
	OnCanvas  Where = "canvas" // in the client, after the gateway has looked at what shall be shown
)

// List are declared functions.
type List []Function

// Find finds a function by its name.
func (l List) Find(name string) (Function, bool) {
	i := slices.IndexFunc(l, func(f Function) bool { return f.Name == name })
	if i < 0 {
		return Function{}, false
	}
	return l[i], true
}

// Calls is how a model calls functions.
type Calls int

// The values of Calls.
const (
	CallsOn      Calls = iota // goes on talking unless the function is declared BLOCKING
	CallsWaiting              // waits unless the function is declared NON_BLOCKING
	CallsSync                 // always waits, and takes no behavior
	CallsAsync                // never waits
	CallsNothing              // has no tools at all
)
