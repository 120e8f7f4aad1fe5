package setup

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

// Find finds a function by its name.
func (l FunctionList) Find(name string) (Function, bool) {
	i := slices.IndexFunc(l, func(f Function) bool { return f.Name == name })
	if i < 0 {
		return Function{}, false
	}
	return l[i], true
}

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
