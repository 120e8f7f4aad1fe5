package liveconfig

import (
	"encoding/json"

	"voxgate/tools"
)

// Function is a declared function with the rules for its calls.
type Function struct {
	tools.Declaration

	// Where is the place where the function runs.
	Where Where

	// Blocking is set if the model waits for the response to a call. Some models close the session if they receive
	// audio before the response.
	Blocking bool

	// Schedules is set if the model accepts scheduling in the response to a call. Continues is set if the model accepts
	// interim responses to a call.
	Schedules, Continues bool

	// WireName is the name declared to the model. It is Name, unless Google rejects that name.
	WireName string

	args   *tools.Schema
	places *textPlaces
}

// Arguments returns a call's arguments in the form that the function declares. It decodes the JSON that the model had
// to write as text.
func (f Function) Arguments(args json.RawMessage) json.RawMessage { return f.places.decodeTexts(args) }

// Check validates a call's arguments against the original declaration. The model may violate that declaration, because
// it has seen only a looser schema: Google's schemas support fewer keywords.
func (f Function) Check(args json.RawMessage) error {
	if f.ValidatesItself {
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
	OnCanvas  Where = "canvas" // in the client's canvas, after validation by the gateway
)

// FunctionList is a list of declared functions.
type FunctionList []Function

// callMode is the way a model calls functions.
type callMode int

// The values of callMode.
const (
	callsOn      callMode = iota // the model goes on talking during a call, unless the function is declared BLOCKING
	callsWaiting                 // the model waits unless the function is declared NON_BLOCKING
	callsSync                    // the model always waits, and supports no behavior
	callsAsync                   // the model never waits
	callsNothing                 // the model supports no tools
)
