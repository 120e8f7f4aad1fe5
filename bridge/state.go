package bridge

// State is where a conversation stands.
type State string

// The states of a conversation.
//
//	dialing ─> setup ─> live <─> tool        live, tool and draining serve the caller;
//	   ^         │        │ ^      │         there is a connection to the model
//	   └─────────┘        v │      v
//	     retry         draining <──┘         goAway, old age, another configuration:
//	                      │                  the connection serves until nobody speaks
//	        ┌─────────────┴────────────┐
//	        v                          v
//	     resuming <─────────────> reseeding  there is none: it was lost, or is replaced
//	        │                          │
//	        └──────────> live <────────┘
//
//	every state ─> parked (the caller is gone) ─> live, resuming, reseeding
//	every state ─> ended
const (
	StateDialing   State = "dialing"   // the first connection to the model is opened
	StateSetup     State = "setup"     // it is open, the model has not yet accepted the set-up
	StateLive      State = "live"      // the model listens
	StateTool      State = "tool"      // the model listens, and waits for a tool
	StateDraining  State = "draining"  // the model listens; the connection is replaced as soon as nobody speaks
	StateResuming  State = "resuming"  // there is no connection, the next one goes on with the newest handle
	StateReseeding State = "reseeding" // there is none, a fresh session learns the conversation so far
	StateParked    State = "parked"    // the caller is gone and is waited for
	StateEnded     State = "ended"     // Host.Serve returns the reason
)

// served reports whether the model listens to the caller.
func (s State) served() bool { return s == StateLive || s == StateTool || s == StateDraining }

// waitMessage is what a person reads while waiting in a state.
func (s State) waitMessage() string {
	if s == StateResuming || s == StateReseeding {
		return "Reconnecting to Gemini…"
	}
	return "Waiting for Gemini's answer…"
}
