package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"voxgate/bridge/fleet"
	"voxgate/bridge/steps"
)

// errStoreAway refuses a resume that cannot be looked up.
var errStoreAway = &Error{Code: CodeBusy, Message: "The conversation cannot be looked up just now.", Retry: time.Second}

// resume finds the conversation of a resume token that is not known here; a nil session: there is none. Resumes of one
// conversation come one after the other: two at once would take it from each other, and two loops of it run here. The next
// one begins when done is called.
func (h *Host) resume(ctx context.Context, o Open) (s *Session, done func(), err error) {
	id := conversationOf(o.ResumeToken)
	if id == "" {
		return nil, nil, nil
	}
	if done, err = h.alone(ctx, id); err != nil {
		return nil, nil, err
	}
	if s = h.continued(o); s == nil { // else another resume has taken it meanwhile
		s, err = h.take(ctx, id, o)
	}
	if s == nil {
		done()
	}
	return s, done, err
}

// take takes over a conversation from the gateway that has it, or had it.
func (h *Host) take(ctx context.Context, id string, o Open) (*Session, error) {
	var found *snapshot
	generation, err := h.fleet.TakeOver(ctx, id, func(value []byte) (fleet.Snapshot, error) {
		found = &snapshot{}
		return found, json.Unmarshal(value, found)
	}, func(generation uint64) bool {
		return found.opens(o) && h.knowsPrice(found.Priced) && h.isGone(id, generation)
	})
	switch {
	case errors.Is(err, fleet.ErrUnavailable):
		return nil, errStoreAway
	case err != nil || generation == 0:
		return nil, err
	}
	return h.adopt(id, found, generation, o)
}

// alone waits until no other resume of a conversation is under way, and has others wait until done is called.
func (h *Host) alone(ctx context.Context, id string) (done func(), err error) {
	mine := make(chan struct{})
	for {
		h.mu.Lock()
		other := h.resuming[id]
		if other == nil {
			h.resuming[id] = mine
		}
		h.mu.Unlock()
		if other == nil {
			return func() {
				h.mu.Lock()
				delete(h.resuming, id)
				h.mu.Unlock()
				close(mine)
			}, nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// knowsPrice reports whether what a model spends can be limited here; "" need not be.
func (h *Host) knowsPrice(model string) bool {
	_, ok := h.Price(model)
	return ok || model == ""
}

// isGone reports whether a conversation, of this generation in the store, does not run here. It waits for one that is
// just ending, or that another gateway had meanwhile.
func (h *Host) isGone(id string, generation uint64) bool {
	h.mu.Lock()
	here := h.sessions[id]
	h.mu.Unlock()
	if here == nil {
		return true
	}
	select {
	case <-here.session.over:
	default:
		if !here.session.handover.record.EndIfTaken(generation) {
			return false // its tokens are known here, and this is not one of them
		}
	}
	<-here.gone
	return true
}

// adopt starts the loop of a conversation that was taken.
func (h *Host) adopt(id string, found *snapshot, generation uint64, o Open) (*Session, error) {
	s, err := h.restored(id, found, o)
	if err != nil {
		return nil, AsError(err)
	}
	o.Account.Continue(Cost{Tokens: firstTurn})
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		o.Account.End()
		return nil, ErrShutdown
	}
	s.handover.wanted, s.handover.since = h.draining, time.Now()
	var hashes [2]tokenHash
	for i, t := range found.Tokens {
		copy(hashes[i][:], t)
	}
	h.tokens.set(id, hashes)
	h.start(s, generation)
	return s, nil
}

// restored is a conversation that goes on here: parked, until its caller comes in.
func (h *Host) restored(id string, n *snapshot, o Open) (*Session, error) {
	o.Origin, o.Grant, o.Quiet, o.Resumable = n.Origin, n.Grant, n.Quiet, true
	o.Agent, o.Override, o.Config, o.Locked, o.Named, o.Farewell = n.Door, n.Hook, n.Config, n.Locked, n.Named, n.Farewell
	o.Greeting = "" // it was said where the conversation began
	steering := *steeringOf(n.Config, steps.ResumeFlow(o.Wanted().Steps, n.Step))
	if err := steering.change(Steer{Agent: n.Agent, Functions: n.Steered}); err != nil {
		return nil, err
	}
	config, own, err := h.prepare(o, &steering)
	if err != nil {
		return nil, err
	}
	s := newSession(h, id, config, o, own, false)
	s.steering = steering
	s.started, s.parked, s.status.state = n.Started, true, StateParked
	s.received.ids = n.Received
	s.spending.restore(n.Tokened, n.Context, n.Dollars)
	s.recording.pauses = n.Pauses
	s.recording.paused.Store(n.paused())
	s.answer.number, s.answer.known = max(n.Turn, 1), n.Known
	s.transcript.RestoreEntries(n.Said)
	s.voice.SetGeneration(n.Voice + 1) // the last cut may be newer than what the store has
	s.keep, s.ring.last = true, max(n.Event, o.LastEvent)
	s.keeper.RestoreHandle(n.Handle)
	s.handover.from = n
	return s, nil
}
