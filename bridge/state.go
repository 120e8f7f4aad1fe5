package bridge

import (
	"context"
	"slices"
)

// State is where a conversation stands.
type State string

// The states of a conversation.
//
//	dialing ─> setup ─> live <─> tool        live, tool and draining serve the caller;
//	   ^         │        │ ^      │         the link to the model is up
//	   └─────────┘        v │      v
//	     retry         draining <──┘         goAway, old age, another configuration:
//	                      │                  the link goes on until nobody speaks
//	        ┌─────────────┴────────────┐
//	        v                          v
//	     resuming ──────────────> reseeding  the link is down: lost, or replaced
//	        │    the handle is dead    │
//	        └──────────> live <────────┘
//
//	every state ─> parked (the caller is gone) ─> live, resuming, reseeding
//	every state ─> ended
const (
	StateDialing   State = "dialing"   // the first connection to the model is opened
	StateSetup     State = "setup"     // it is open, the model has not yet accepted the set-up
	StateLive      State = "live"      // the model listens
	StateTool      State = "tool"      // the model listens, and waits for a tool
	StateDraining  State = "draining"  // the model listens; the link is replaced as soon as nobody speaks
	StateResuming  State = "resuming"  // the link is down, the next one goes on with the newest handle
	StateReseeding State = "reseeding" // the link is down, a fresh session is told of the conversation so far
	StateParked    State = "parked"    // the caller is gone and is waited for
	StateEnded     State = "ended"     // Host.Serve returns the reason
)

// transitions are the steps there are. Parked and ended are left out where every state leads to them.
var transitions = map[State][]State{
	StateDialing:   {StateSetup},
	StateSetup:     {StateDialing, StateLive},
	StateLive:      {StateTool, StateDraining, StateResuming, StateReseeding},
	StateTool:      {StateLive, StateDraining, StateResuming, StateReseeding},
	StateDraining:  {StateLive, StateTool, StateResuming, StateReseeding},
	StateResuming:  {StateReseeding, StateLive},
	StateReseeding: {StateResuming, StateLive}, // back: a new model was refused, and the old one's handle is good
	StateParked:    {StateLive, StateResuming, StateReseeding},
}

// enter goes to another state and tells the caller.
func (s *Session) enter(to State) {
	from := s.state
	if to == from {
		return
	}
	if from == StateEnded || to != StateParked && to != StateEnded && !slices.Contains(transitions[from], to) {
		s.log.Error("impossible step", "from", from, "to", to) // a fault of ours; the tests look for this line
	}
	s.state = to
	s.log.Debug("state", "from", from, "to", to)
	if to != StateEnded { // which the caller learns from Serve
		s.notify(StateChange{State: to, Message: s.gap.message(to)})
	}
}

// linked tells whether the link serves the caller.
func (s *Session) linked() bool {
	return s.state == StateLive || s.state == StateTool || s.state == StateDraining
}

// settle says which of the states with a link it is, and replaces a link that is to be replaced when it can be.
func (s *Session) settle(ctx context.Context) {
	if !s.linked() {
		return
	}
	switch {
	case s.drain.wanted() && s.idle():
		s.replace(ctx)
	case s.drain.wanted():
		s.enter(StateDraining)
	case s.broker.calling():
		s.enter(StateTool)
	default:
		s.enter(StateLive)
	}
}
