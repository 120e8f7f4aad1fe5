package emulator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"voxgate/bridge/gemini/emulator/live"
)

// The values of [Scenario].Handles, which explains them.
const (
	HandlesPrompt   = "prompt"
	HandlesWithheld = "withheld"
)

// Scenario defines lifetimes and faults. The zero value has no faults, and connections never end.
//
// A scenario file is one JSON object with the fields below, named by their tags. Durations are strings, such as "10m" or "1.5s":
//
//	{
//	  "connectionAge": "10m",
//	  "goAwayLead": "60s",
//	  "slowPongs": "20s",
//	  "faults": [
//	    {"on": "handshake", "connections": [2], "http": 429},
//	    {"on": "setup", "connections": [3], "stall": true},
//	    {"on": "answer", "after": "300ms", "nth": 2, "times": 1, "close": 1011, "reason": "Internal error encountered."},
//	    {"on": "speechStart", "after": "2s", "connections": [5], "drop": true}
//	  ]
//	}
type Scenario struct {
	// ConnectionAge is the time from the setup of a connection until the emulator ends it; 0 means no limit. For Google
	// it is about 10 minutes.
	ConnectionAge time.Duration `json:"connectionAge"`

	// GoAwayLead is the time from goAway to the end of the connection. If it is 0, the emulator sends no goAway, as
	// Google does sometimes.
	GoAwayLead time.Duration `json:"goAwayLead"`

	// HandleTTL is the lifetime of a handle after the last connection of its session has ended; 0 means 2 hours, as for
	// Google.
	HandleTTL time.Duration `json:"handleTTL"`

	// Handles is the policy for handles. "prompt" sends them soon after the setup and after each change. "withheld"
	// sends them after a turn. "" means "withheld" for models of version 2.5, and "prompt" for others.
	Handles string `json:"handles"`

	// SlowPongs delays the answers to pings. Google's servers were measured to take 8 to 30 s.
	SlowPongs time.Duration `json:"slowPongs"`

	// Hears lists the transcripts of the user's speech, in order, for all connections. When the list is used up, the
	// transcript states only the length of the speech.
	Hears []string `json:"hears"`

	Faults []Fault `json:"faults"`
}

// Fault is one failure: when it occurs, on which connections, and one action.
type Fault struct {
	On Moment `json:"on"`

	// After is the delay of the fault after the moment. For OnAnswer, After is a length of voice sent in the turn, and
	// voice is sent faster than real time.
	After time.Duration `json:"after"`

	// Nth selects the n-th occurrence of the moment on a connection; 0 means all.
	Nth int `json:"nth"`

	// Connections lists the numbers of the connections on which the fault occurs. The first handshake has number 1. An
	// empty list means all connections.
	Connections []int `json:"connections"`

	// Times limits how often the fault occurs in total; 0 means no limit.
	Times int `json:"times"`

	// Exactly one of the following fields is set. It is the action of the fault.

	// HTTP refuses the handshake: 401, 403, 429 or 503, with Google's body.
	HTTP int `json:"http"`

	// Close closes the connection with this code. 1006 has the same effect as Drop, and 1005 sends a close frame
	// without a code.
	Close int `json:"close"`
	// Reason is the reason in the close frame. The default is the usual reason of the code: 1007 "Request contains an
	// invalid argument.", 1008 "The operation was aborted", 1011 "Internal error encountered.". Google also sends other
	// reasons:
	//
	//   - 1008 "Operation is not implemented, or supported, or enabled.", "Requested entity was not found."
	//   - 1011 "Deadline expired before operation could complete.", "The service is currently unavailable.", "You exceeded
	//     your current quota, please check your plan and billing details."
	Reason string `json:"reason"`

	// Drop ends the TCP connection without a close frame.
	Drop bool `json:"drop"`

	// Stall stops sending and leaves the connection open. Pings are still answered.
	Stall bool `json:"stall"`
	// Deaf, together with Stall, also stops reading. The emulator then lets the client resume the session on another
	// connection, because without reading it cannot detect the end of this connection.
	Deaf bool `json:"deaf"`

	// GoAway announces the end of the connection after this time, and then ends it.
	GoAway time.Duration `json:"goAway"`

	// Send sends this text as a message. It need not be JSON.
	Send string `json:"send"`
}

// Moment is an event on a connection at which faults can occur.
type Moment string

// Values of Moment. A fault without After occurs as soon as its moment is reached, before all other effects of that
// moment.
const (
	OnHandshake    Moment = "handshake"    // the upgrade is requested
	OnSetup        Moment = "setup"        // a valid setup was received; setupComplete is not sent yet
	OnReady        Moment = "ready"        // setupComplete was sent
	OnSpeechStart  Moment = "speechStart"  // the user starts to speak
	OnSpeechEnd    Moment = "speechEnd"    // the user has stopped speaking
	OnText         Moment = "text"         // typed text that requests an answer was received
	OnAnswer       Moment = "answer"       // the first voice of the model's turn was sent
	OnTurnComplete Moment = "turnComplete" // turnComplete was sent
	OnToolCall     Moment = "toolCall"     // toolCall was sent
	OnToolResponse Moment = "toolResponse" // toolResponse was received
)

var moments = []Moment{
	OnHandshake, OnSetup, OnReady, OnSpeechStart, OnSpeechEnd, OnText, OnAnswer, OnTurnComplete, OnToolCall, OnToolResponse,
}

// ParseScenario parses a scenario file. Its errors name the invalid field.
func ParseScenario(data []byte) (Scenario, error) {
	var s Scenario
	err := s.decode(data)
	if err == nil {
		err = s.Validate()
	}
	if err != nil {
		return Scenario{}, fmt.Errorf("scenario: %w", err)
	}
	return s, nil
}

// decode decodes JSON in which durations are strings. Unknown names are errors, because a scenario with a misspelt name would
// not test anything.
func (s *Scenario) decode(data []byte) error {
	tree, err := live.Decode(data)
	if err == nil {
		err = convertDurations(tree)
	}
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(live.Encode(tree)))
	decoder.DisallowUnknownFields()
	return decoder.Decode(s)
}

// durations lists the names of the fields that are durations.
var durations = []string{"connectionAge", "goAwayLead", "handleTTL", "slowPongs", "after", "goAway"}

// convertDurations replaces durations in a JSON tree, such as "1.5s", by nanoseconds.
func convertDurations(tree any) error {
	switch v := tree.(type) {
	case []any:
		for _, element := range v {
			if err := convertDurations(element); err != nil {
				return err
			}
		}
	case map[string]any:
		for name, value := range v {
			if !slices.Contains(durations, name) {
				if err := convertDurations(value); err != nil {
					return err
				}
				continue
			}
			text, _ := value.(string)
			d, err := time.ParseDuration(text)
			if err != nil {
				return fmt.Errorf(`%s must be a duration as "1.5s"`, name)
			}
			v[name] = d
		}
	}
	return nil
}

// Validate returns an error if the scenario is invalid.
func (s *Scenario) Validate() error {
	switch {
	case min(s.ConnectionAge, s.GoAwayLead, s.HandleTTL, s.SlowPongs) < 0:
		return errors.New("durations must not be negative")
	case s.GoAwayLead > 0 && s.ConnectionAge == 0:
		return errors.New("goAwayLead needs a connectionAge")
	case s.GoAwayLead > s.ConnectionAge:
		return errors.New("goAwayLead must not be more than connectionAge")
	case !slices.Contains([]string{"", HandlesPrompt, HandlesWithheld}, s.Handles):
		return fmt.Errorf("handles %q must be prompt or withheld", s.Handles)
	}
	for i, f := range s.Faults {
		if err := f.validate(); err != nil {
			return fmt.Errorf("faults[%d]: %w", i, err)
		}
	}
	return nil
}

func (f *Fault) validate() error {
	actions := 0
	for _, set := range []bool{f.HTTP != 0, f.Close != 0, f.Drop, f.Stall, f.GoAway != 0, f.Send != ""} {
		if set {
			actions++
		}
	}
	onHandshake := f.On == OnHandshake
	switch {
	case !slices.Contains(moments, f.On):
		return fmt.Errorf("on %q must be one of %v", f.On, moments)
	case actions != 1:
		return errors.New("must have exactly one of http, close, drop, stall, goAway, send")
	case f.HTTP != 0 && !slices.Contains([]int{401, 403, 429, 503}, f.HTTP):
		return fmt.Errorf("http %d must be 401, 403, 429 or 503", f.HTTP)
	case f.HTTP != 0 && !onHandshake:
		return errors.New("http is for the handshake")
	case onHandshake && (f.Close != 0 || f.GoAway != 0 || f.Send != "" || f.Deaf):
		return errors.New("a handshake can meet http, drop and stall only")
	case f.Close != 0 && !live.IsValidCloseCode(f.Close):
		return fmt.Errorf("close %d cannot be sent", f.Close)
	case f.Reason != "" && f.Close == 0:
		return errors.New("reason needs close")
	case f.Deaf && !f.Stall:
		return errors.New("deaf needs stall")
	case min(f.After, f.GoAway) < 0 || f.Nth < 0 || f.Times < 0:
		return errors.New("after, goAway, nth and times must not be negative")
	}
	return nil
}

// isDue reports whether a fault applies to the nth occurrence of its moment on a connection. Both numbers begin with 1.
func (f *Fault) isDue(connection, nth int) bool {
	return (f.Connections == nil || slices.Contains(f.Connections, connection)) && (f.Nth == 0 || f.Nth == nth)
}
