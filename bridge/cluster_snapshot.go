package bridge

import (
	"encoding/json"
	"slices"
	"time"

	"voxgate/bridge/cluster"
	"voxgate/bridge/flow"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/toolcalls"
	"voxgate/bridge/transcript"
)

// snapshot holds what another gateway needs to continue a conversation. It contains secrets: a store must encrypt it.
type snapshot struct {
	cluster.SnapshotHeader // the only field that is set for a conversation that cannot move

	TokenHashes [2][]byte `json:"Tokens,omitempty"` // SHA-256 of the resume tokens: the newest token, and the token used to get it

	Origin           Origin
	Grant            *Grant          `json:",omitempty"`
	NoCues           bool            `json:"Quiet,omitempty"`
	Config           json.RawMessage `json:",omitempty"`        // configuration from the caller
	OperatorAgent    Agent           `json:"Door"`              // agent of the operator's file
	WebhookAgent     Agent           `json:"Hook"`              // agent of the session webhook
	BackendAgent     Agent           `json:"Agent"`             // agent of the operator's backend
	BackendFunctions json.RawMessage `json:"Steered,omitempty"` // functions that the backend runs
	Step             flow.State      // state of the agent's steps

	AgentLocked    bool   `json:"Locked,omitempty"`
	AgentNamed     bool   `json:"Named,omitempty"` // WebhookAgent was named by the backend
	FarewellPrompt string `json:"Farewell,omitempty"`

	Handle          string `json:",omitempty"`
	Started         time.Time
	LastEvent       uint64      `json:"Event"`           // number of the newest event
	VoiceGeneration uint32      `json:"Voice,omitempty"` // number that every interruption of the voice increments
	Received        []string    `json:",omitempty"`      // IDs of the client's messages
	UsedTokens      wire.Tokens `json:"Tokened"`         // tokens used so far
	ContextTokens   wire.Tokens `json:"Context"`         // tokens of the context, which the next turn reads
	Dollars         *float64    `json:",omitempty"`      // cost of the tokens; nil means unknown
	NextTurn        int         `json:"Turn"`            // number of the next turn
	Pauses          []Span      `json:",omitempty"`      // pauses of the recording; if the last pause has no end, the recording is paused
	// PricedModel is the model whose price a gateway must know to continue the conversation. It is set if the
	// conversation has a money limit.
	PricedModel  string                     `json:"Priced,omitempty"`
	CoveredTurn  int                        `json:"Known"`              // last turn that Handle covers
	SpeakingTurn int                        `json:"Speaking,omitempty"` // turn in progress; 0 means none
	OpenQuestion string                     `json:"Asked,omitempty"`    // question that the model has not answered
	ActedOn      bool                       `json:"Acted,omitempty"`    // Handle covers a tool call made for OpenQuestion
	Transcript   []transcript.NumberedEntry `json:"Said,omitempty"`
	Calls        []toolcalls.CallSnapshot   `json:",omitempty"`
}

// isRecordingPaused reports whether the recording is paused.
func (s *snapshot) isRecordingPaused() bool {
	return len(s.Pauses) > 0 && s.Pauses[len(s.Pauses)-1].To.IsZero()
}

// acceptsResume reports whether a caller may continue the conversation.
func (s *snapshot) acceptsResume(o SessionRequest) bool {
	hash := hashToken(o.ResumeToken)
	isKnown := slices.ContainsFunc(s.TokenHashes[:], func(t []byte) bool { return slices.Equal(t, hash[:]) })
	return isKnown && s.Origin.SameCaller(o.Origin) && s.Origin.Protocol == o.Origin.Protocol
}

// clusterState tracks the move of a session to or from another gateway. It belongs to the session's loop.
type clusterState struct {
	entry         *cluster.Entry
	restoredFrom  *snapshot // snapshot to continue from; nil means the session began at this gateway, or is already restored
	hasChanges    bool      // the conversation has changed since the last snapshot
	isOwnerStored bool      // the conversation cannot move, and the store has its gateway's name; nothing more is written
	moveWanted    bool      // the caller should move to another gateway
	isStopping    bool      // this gateway drains, and then stops
	wantedSince   time.Time // when moveWanted was set
	callerAsked   bool      // the caller was asked to move recently
}

// markChanged records that the conversation has changed since the last snapshot.
func (c *clusterState) markChanged() { c.hasChanges = true }

// queueSnapshotIfChanged queues a snapshot of the conversation for the store if the conversation has changed. If the
// conversation cannot move, it is queued only once, and the snapshot has only the name of its gateway.
func (c *clusterState) queueSnapshotIfChanged(isMovable bool, build func() *snapshot) {
	changed := c.hasChanges
	c.hasChanges = false
	if !changed || c.entry == nil || c.isOwnerStored && !isMovable {
		return
	}
	c.isOwnerStored = !isMovable
	c.entry.QueueSnapshot(build())
}

// requestMove records that the caller should move; the loop will ask it at a good moment. isNew is false if this was
// recorded before.
func (c *clusterState) requestMove() (isNew bool) {
	if c.moveWanted {
		return false
	}
	c.moveWanted, c.wantedSince = true, time.Now()
	c.markChanged()
	return true
}
