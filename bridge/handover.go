package bridge

import (
	"encoding/json"
	"slices"
	"time"

	"voxgate/bridge/fleet"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/steps"
	"voxgate/bridge/toolcalls"
	"voxgate/bridge/transcript"
)

// snapshot is what another gateway needs to go on with a conversation. It holds secrets and what was said: a store must
// keep it encrypted.
type snapshot struct {
	fleet.SnapshotHeader // alone, for a conversation that cannot go on elsewhere

	Tokens [2][]byte `json:",omitempty"` // SHA-256 of the resume tokens: the newest, and the one that was used for it

	Origin  Origin
	Grant   *Grant          `json:",omitempty"`
	Quiet   bool            `json:",omitempty"`
	Config  json.RawMessage `json:",omitempty"` // as the caller has it
	Door    Agent           // as the operator's file has the model
	Hook    Agent           // as the session webhook wants it
	Agent   Agent           // as the operator's backend wants it
	Steered json.RawMessage `json:",omitempty"` // the functions that the backend answers
	Step    steps.State     // where the conversation is in the agent's steps

	Locked   bool   `json:",omitempty"`
	Named    bool   `json:",omitempty"` // Hook is an agent that the backend has named
	Farewell string `json:",omitempty"`

	Handle   string `json:",omitempty"`
	Started  time.Time
	Event    uint64                     // number of the newest event
	Voice    uint32                     `json:",omitempty"` // generation of the frames
	Received []string                   `json:",omitempty"` // ids of the client's messages
	Tokened  wire.Tokens                // that were used
	Context  wire.Tokens                // that the next turn reads
	Dollars  *float64                   `json:",omitempty"` // that they have cost; nil: it is not known
	Turn     int                        // that comes next
	Pauses   []Span                     `json:",omitempty"` // of the recording, which is paused if the last one has no end
	Priced   string                     `json:",omitempty"` // the model whose price a gateway must know to go on, because money is limited
	Known    int                        // the last one that the handle knows
	Speaking int                        `json:",omitempty"` // the turn that is being said; 0: none
	Asked    string                     `json:",omitempty"` // what was asked and has no answer
	Acted    bool                       `json:",omitempty"` // the model has acted on that by calling a tool, and the handle knows of it
	Said     []transcript.NumberedEntry `json:",omitempty"`
	Calls    []toolcalls.CallSnapshot   `json:",omitempty"`
}

// paused reports whether the recording is paused.
func (n *snapshot) paused() bool { return len(n.Pauses) > 0 && n.Pauses[len(n.Pauses)-1].To.IsZero() }

// opens reports whether a caller may go on with the conversation.
func (n *snapshot) opens(o Open) bool {
	hash := hashOf(o.ResumeToken)
	known := slices.ContainsFunc(n.Tokens[:], func(t []byte) bool { return slices.Equal(t, hash[:]) })
	return known && n.Origin.Mine(o.Origin) && n.Origin.Door == o.Origin.Door
}

// handover is what a session knows about its move to or from another gateway. Owned by the loop.
type handover struct {
	record  *fleet.Entry
	from    *snapshot // what it goes on from; nil: it began here, or has caught up
	unsaved bool      // something has happened that the store should know of
	placed  bool      // the store knows where it is, and needs nothing else
	wanted  bool      // its caller is to go to another gateway
	stops   bool      // this gateway is being drained, and then stops
	since   time.Time // it is wanted
	asked   bool      // the caller was asked to go a moment ago
}

// changed notes that something has happened that the store should know of.
func (h *handover) changed() { h.unsaved = true }

// save writes the conversation to the store, if it has changed. If it cannot go on elsewhere, save writes only its
// gateway, once.
func (h *handover) save(movable bool, snapshot func() *snapshot) {
	changed := h.unsaved
	h.unsaved = false
	if !changed || h.record == nil || h.placed && !movable {
		return
	}
	h.placed = !movable
	h.record.QueueSnapshot(snapshot())
}

// want notes that the caller is to be asked, at a good moment, to go to another gateway. It reports false if that was
// noted already.
func (h *handover) want() bool {
	if h.wanted {
		return false
	}
	h.wanted, h.since = true, time.Now()
	h.changed()
	return true
}
