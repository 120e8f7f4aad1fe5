package bridge

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/keeper"
	"voxgate/bridge/toolcalls"
	"voxgate/bridge/uplink"
)

// snapshot is what another gateway needs to go on with a conversation. It has secrets in it, and what was said: a store must keep it
// encrypted.
type snapshot struct {
	Node string // that has the conversation; see [Options].Node

	// Of one that cannot be gone on with elsewhere nothing else is set.
	Tokens   [2][]byte `json:",omitempty"` // SHA-256 of the resume tokens: the newest, and the one that was used for it
	Moving   bool      `json:",omitempty"` // its client was told to come to another gateway
	Released bool      `json:",omitempty"` // it has ended here, and so has its connection to the model

	Origin  Origin
	Grant   *Grant          `json:",omitempty"`
	Quiet   bool            `json:",omitempty"`
	Config  json.RawMessage `json:",omitempty"` // as the caller has it
	Door    Agent           // as the door wants the model
	Hook    Agent           // as the session webhook wants it
	Agent   Agent           // as the operator's backend wants it
	Steered json.RawMessage `json:",omitempty"` // the functions that the backend answers

	Handle   string `json:",omitempty"`
	Started  time.Time
	Event    uint64           // number of the newest event
	Received []string         `json:",omitempty"` // ids of the client's messages
	Tokened  wire.Tokens      // that were used
	Turn     int              // that comes next
	Known    int              // the last one that the handle knows
	Speaking int              `json:",omitempty"` // the turn that is being said; 0: none
	Asked    string           `json:",omitempty"` // what was asked and has no answer
	Said     []turnSaid       `json:",omitempty"`
	Calls    []toolcalls.Kept `json:",omitempty"`
}

// turnSaid is an entry of the transcript and its turn.
type turnSaid struct {
	Entry
	Turn int
}

// movable tells whether another gateway could go on with the conversation. What a door or a tool keeps in memory it could not have.
func (s *Session) movable() bool {
	return s.resumable() && s.open.Own == nil && s.open.Tools == nil
}

// snapshot is where the conversation stands. Only the loop calls it.
func (s *Session) snapshot() *snapshot {
	n := &snapshot{Node: s.host.options.Node}
	if !s.movable() {
		return n
	}
	n.Tokens, n.Moving = s.host.tokensOf(s), s.move.wanted
	n.Origin, n.Grant, n.Quiet = s.open.Origin, s.open.Grant, s.open.Quiet
	n.Door, n.Hook = s.open.Agent, s.open.Override
	n.Config, n.Agent, n.Steered = s.steering.raw, s.steering.agent, s.steering.functions
	n.Handle, n.Started, n.Received = s.keeper.Handle(), s.started, s.received.list()
	n.Tokened = s.spent.meter.Total()
	n.Turn, n.Known, n.Speaking = s.answer.number, s.answer.known, s.playing()
	if t := &s.answer.turn; n.Speaking == 0 && t.state == turnSpeaking {
		n.Speaking = t.number
	}
	if s.up.Unanswered() && !s.person.speaking {
		n.Asked = s.transcript.asked(s.question())
	}
	n.Said, n.Calls = s.transcript.newest(), s.calls.Kept()
	s.audience.mu.Lock()
	n.Event = s.audience.ring.last
	s.audience.mu.Unlock()
	return n
}

// tokenFor is a new resume token of a conversation. Its name is part of it, so that any gateway finds what it knows of it.
func tokenFor(id, secret string) string { return id + "." + secret }

// conversationOf is the conversation that a resume token is of; empty: it is none of ours.
func conversationOf(token string) string {
	if id, _, _ := strings.Cut(token, "."); len(id) == idLength {
		return id
	}
	return ""
}

// opens tells whether somebody may go on with the conversation.
func (n *snapshot) opens(o Open) bool {
	hash := sha256.Sum256([]byte(o.ResumeToken))
	known := slices.ContainsFunc(n.Tokens[:], func(t []byte) bool { return slices.Equal(t, hash[:]) })
	return known && n.Origin.Mine(o.Origin) && n.Origin.Door == o.Origin.Door
}

// restored is a conversation that goes on here: parked, until its caller comes in.
func (h *Host) restored(id string, n *snapshot, o Open) (*Session, error) {
	o.Origin, o.Grant, o.Quiet, o.Resumable = n.Origin, n.Grant, n.Quiet, true
	o.Agent, o.Override, o.Config = n.Door, n.Hook, n.Config
	steering := steering{raw: n.Config}
	if err := steering.steer(Steer{Agent: n.Agent, Functions: n.Steered}); err != nil {
		return nil, err
	}
	config, own, err := h.prepare(o, &steering)
	if err != nil {
		return nil, err
	}
	s := newSession(h, id, config, o, h.scope(declarations(own), o.Origin.Screen), own, false)
	s.steering = steering
	s.started, s.parked, s.state = n.Started, true, StateParked
	s.received.ids = n.Received
	s.spent.meter.Add(n.Tokened)
	s.spent.meter.EndTurn()
	s.spent.counted = n.Tokened
	s.answer.number, s.answer.known = max(n.Turn, 1), n.Known
	s.transcript.restore(n.Said)
	s.audience.keep = true
	s.audience.ring.last = max(n.Event, o.LastEvent)
	s.keeper.Restore(n.Handle)
	s.move.from = n
	return s, nil
}

// catchUp tells the caller, who is about to come in, what has become of what was under way where the conversation was before, and asks
// the model again what it was asked. Only the loop calls it, before anything else.
func (s *Session) catchUp() {
	n := s.move.from
	s.move.from = nil
	if n.Speaking > 0 {
		kept := s.transcript.cut(n.Speaking, -1)
		s.notify(Interrupted{Turn: n.Speaking, By: ByLink, Generation: s.playout.Generation(), Heard: kept.Content, Played: kept.Played})
		if s.answer.number == n.Speaking {
			s.nextTurn()
		}
	}
	s.calls.Restore(n.Calls)
	if n.Asked != "" {
		if s.up.Say(uplink.Turn{Parts: joined(textPart(n.Asked)), Complete: true}) {
			s.ask(time.Now())
			s.keeper.Expect(keeper.ForText)
		}
	}
}

// move is what a session has to do with other gateways. Owned by the loop.
type move struct {
	from    *snapshot // what it goes on from; nil: it began here, or has caught up
	unsaved bool      // something has happened that the store should know of
	placed  bool      // the store knows where it is, and nothing else is to be known
	wanted  bool      // its caller shall go to another gateway
	since   time.Time // it is wanted
	asked   bool      // the caller was, a moment ago
}

const (
	// moveAgain is when a caller that was asked to go, and has not, is asked again: the way there may have been closed.
	moveAgain = 5 * time.Second
	// knownTime is how long a handle is waited for that knows the last turn, before a caller is asked to go without one.
	knownTime = 10 * time.Second
)

// save has the store told where the conversation stands, if that has changed and somebody could go on with it. Of one
// that cannot be gone on with elsewhere the store is told once, where it is.
func (s *Session) save() {
	m := &s.move
	if !m.unsaved {
		return
	}
	m.unsaved = false
	movable := s.movable()
	if s.host.nodes.store == nil || m.placed && !movable {
		return
	}
	m.placed = !movable
	s.host.nodes.put(s, s.snapshot())
}

// leave has the caller go to another gateway, if it can and there is one.
func (s *Session) leave(stops time.Duration) {
	if stops > 0 {
		s.notify(Log{
			Level: "warn", Message: fmt.Sprintf("The gateway stops in %v; this conversation has until then.", stops),
			Details: map[string]any{"stopsInMs": stops.Milliseconds()},
		})
	}
	if !s.movable() || s.move.wanted {
		return
	}
	s.move.wanted, s.move.since, s.move.unsaved = true, time.Now(), true
	if s.parked {
		s.letGo()
	}
}

// askToMove asks the caller to go, at a moment when nothing is cut off by that.
func (s *Session) askToMove() {
	m := &s.move
	quiet := m.wanted && !m.asked && s.state == StateLive && s.playout.Queued() == 0
	if !quiet || !s.keeper.Quiet(time.Since(m.since) < knownTime) {
		return
	}
	m.asked = true
	s.clock.Set(alarmMove, moveAgain)
	if s.host.nodes.alone() {
		return
	}
	s.log.Info("caller asked to go to another gateway")
	s.notify(Move{})
}

// letGo ends the conversation here if its caller has gone to another gateway, or will come back to one.
func (s *Session) letGo() bool {
	if !s.move.wanted || !s.movable() || s.host.nodes.alone() {
		return false
	}
	s.end(ErrMoved)
	return true
}

// goesOn tells whether the conversation, which has ended here, goes on elsewhere.
func (s *Session) goesOn() bool { return s.ended == ErrMoved || s.ended == ErrReplaced }

// lastSnapshot is where the conversation has ended here; nil: nobody goes on with it, or somebody does already.
func (s *Session) lastSnapshot() *snapshot {
	if s.ended != ErrMoved {
		return nil
	}
	n := s.snapshot()
	n.Released = true
	return n
}
