package setup

import (
	"encoding/json"

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

	// WireName is the name that the model knows: Name, unless Google refuses that.
	WireName string

	args   *tools.Schema
	places *textPlaces
}

// Arguments returns a call's arguments as the function declares them: JSON that the model had to write as text is read. Text that is no
// JSON stays.
func (f Function) Arguments(args json.RawMessage) json.RawMessage { return f.places.read(args) }

// Check returns what is wrong with a call's arguments, by the original declaration and not by what the model got.
func (f Function) Check(args json.RawMessage) error {
	if f.Explains {
		return nil
	}
	return f.args.Check(args)
}

// Where is the place where a function runs.
type Where string

// The values of Where.
const (
	InClient  Where = "client"
	InGateway Where = "gateway"
	OnCanvas  Where = "canvas" // in the client, after the gateway has checked what is to be shown
)

// FunctionList are declared functions.
type FunctionList []Function

// callMode is how a model calls functions.
type callMode int

// The values of callMode.
const (
	callsOn      callMode = iota // goes on talking unless the function is declared BLOCKING
	callsWaiting                 // waits unless the function is declared NON_BLOCKING
	callsSync                    // always waits, and takes no behavior
	callsAsync                   // never waits
	callsNothing                 // has no tools at all
)
