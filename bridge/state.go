package bridge

// State is the state of a conversation.
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
//	     resuming <─────────────> reseeding  no connection: it was lost, or is being replaced
//	        │                          │
//	        └──────────> live <────────┘
//
//	every state ─> parked (the caller is gone) ─> live, resuming, reseeding
//	every state ─> ended
const (
	StateDialing   State = "dialing"   // opening the first connection to the model
	StateSetup     State = "setup"     // connection open, setup not yet accepted by the model
	StateLive      State = "live"      // the model is listening
	StateTool      State = "tool"      // the model is listening, and waits for a tool
	StateDraining  State = "draining"  // the model is listening; the connection is replaced as soon as nobody speaks
	StateResuming  State = "resuming"  // no connection; the next one resumes the session with the newest handle
	StateReseeding State = "reseeding" // no connection; a fresh session gets the conversation so far
	StateParked    State = "parked"    // waiting for the lost caller
	StateEnded     State = "ended"     // Host.Serve returns the reason
)

// isServing reports whether the model is connected and listens to the caller.
func (s State) isServing() bool { return s == StateLive || s == StateTool || s == StateDraining }

// waitMessage returns a message for the person who has to wait because of this state.
func (s State) waitMessage() string {
	if s == StateResuming || s == StateReseeding {
		return "Reconnecting to Gemini…"
	}
	return "Waiting for Gemini's answer…"
}
