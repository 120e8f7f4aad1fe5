package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"voxgate/bridge/cluster"
	"voxgate/bridge/flow"
)

// errStoreUnavailable rejects a resume while the store does not answer, because only the store knows which gateway has
// the conversation.
var errStoreUnavailable = &Error{Code: CodeBusy, Message: "The conversation cannot be looked up just now.", Retry: time.Second}

// resumeSession takes over the conversation of a resume token that this gateway does not know. It returns nil if no
// gateway has the conversation.
//
// Other resumes of the conversation wait until unlock is called. Otherwise two resumes could make this gateway run the
// conversation twice.
func (h *Host) resumeSession(ctx context.Context, o SessionRequest) (s *Session, unlock func(), err error) {
	id := parseSessionID(o.ResumeToken)
	if id == "" {
		return nil, nil, nil
	}
	if unlock, err = h.lockResume(ctx, id); err != nil {
		return nil, nil, err
	}
	if s = h.localSession(o); s == nil { // otherwise another resume has taken the conversation meanwhile
		s, err = h.tryTakeOver(ctx, id, o)
	}
	if s == nil {
		unlock()
	}
	return s, unlock, err
}

// tryTakeOver takes over a conversation from another gateway. It returns nil if the conversation does not exist or o
// may not continue it.
func (h *Host) tryTakeOver(ctx context.Context, id string, o SessionRequest) (s *Session, err error) {
	var found *snapshot
	generation, err := h.cluster.TakeOver(ctx, id, func(value []byte) (cluster.Snapshot, error) {
		found = &snapshot{}
		return found, json.Unmarshal(value, found)
	}, func(generation uint64) bool {
		return found.acceptsResume(o) && h.knowsPrice(found.PricedModel) && h.endLocalIfTaken(id, generation)
	})
	switch {
	case errors.Is(err, cluster.ErrUnavailable):
		return nil, errStoreUnavailable
	case err != nil || generation == 0:
		return nil, err
	}
	return h.adoptSession(id, found, generation, o)
}

// lockResume waits until no other resume of the conversation is in progress. It then makes further resumes wait until
// unlock is called.
func (h *Host) lockResume(ctx context.Context, id string) (unlock func(), err error) {
	unlocked := make(chan struct{})
	for {
		h.mu.Lock()
		other := h.resuming[id]
		if other == nil {
			h.resuming[id] = unlocked
		}
		h.mu.Unlock()
		if other == nil {
			return func() {
				h.mu.Lock()
				delete(h.resuming, id)
				h.mu.Unlock()
				close(unlocked)
			}, nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// knowsPrice reports whether this gateway knows the price of a model, which it needs to limit the spending. model is ""
// if no limit is needed.
func (h *Host) knowsPrice(model string) bool {
	_, ok := h.PriceOf(model)
	return ok || model == ""
}

// endLocalIfTaken ends a conversation at this gateway if another gateway has taken it over, and waits until it has
// ended. isGoneHere is false if this gateway still owns the conversation. It is true if the conversation has ended
// here, or was never here. generation is the generation of the conversation in the store.
func (h *Host) endLocalIfTaken(id string, generation uint64) (isGoneHere bool) {
	h.mu.Lock()
	here := h.sessions[id]
	h.mu.Unlock()
	if here == nil {
		return true
	}
	select {
	case <-here.session.done:
	default:
		if !here.session.cluster.entry.EndIfTaken(generation) {
			return false // this gateway owns the conversation, and localSession has already rejected the caller's token
		}
	}
	<-here.removed
	return true
}

// adoptSession starts the loop of a conversation that was taken over.
func (h *Host) adoptSession(id string, found *snapshot, generation uint64, o SessionRequest) (*Session, error) {
	s, err := h.newParkedSession(id, found, o)
	if err != nil {
		return nil, AsError(err)
	}
	o.Account.CountTakenOverSession(Cost{Tokens: firstTurnTokens})
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		o.Account.End()
		return nil, ErrShutdown
	}
	s.cluster.moveWanted, s.cluster.wantedSince = h.draining, time.Now()
	var hashes [2]tokenHash
	for i, t := range found.TokenHashes {
		copy(hashes[i][:], t)
	}
	h.tokens.setTokens(id, hashes)
	h.startSession(s, generation)
	return s, nil
}

// newParkedSession returns a conversation restored from a snapshot. Its loop does not run yet. The conversation is parked
// until its caller arrives.
func (h *Host) newParkedSession(id string, n *snapshot, o SessionRequest) (*Session, error) {
	o.Origin, o.Grant, o.NoCues, o.Resumable = n.Origin, n.Grant, n.NoCues, true
	o.Agent, o.Override, o.Config, o.AgentLocked, o.AgentNamed, o.FarewellPrompt = n.OperatorAgent, n.WebhookAgent, n.Config,
		n.AgentLocked, n.AgentNamed, n.FarewellPrompt
	o.GreetingPrompt = "" // the greeting was spoken at the gateway where the conversation began
	steering := *newSteeringWithFlow(n.Config, flow.ResumeFlow(o.MergedAgent().Steps, n.Step))
	if err := steering.applyUpdate(BackendUpdate{Agent: n.BackendAgent, Functions: n.BackendFunctions}); err != nil {
		return nil, err
	}
	config, own, err := h.prepareConfig(o, &steering)
	if err != nil {
		return nil, err
	}
	s := newSession(h, id, config, o, own, false)
	s.steering = steering
	s.started, s.isParked, s.status.state = n.Started, true, StateParked
	s.receivedIDs.ids = n.Received
	s.costs.restoreUsage(n.UsedTokens, n.ContextTokens, n.Dollars)
	s.recording.pauses = n.Pauses
	s.recording.isPaused.Store(n.isRecordingPaused())
	s.output.turnNumber, s.output.coveredTurn = max(n.NextTurn, 1), n.CoveredTurn
	s.transcript.RestoreEntries(n.Transcript)
	s.voice.SetGeneration(n.VoiceGeneration + 1) // the last interruption may be newer than the snapshot
	s.keepMissed, s.replay.last = true, max(n.LastEvent, o.LastEvent)
	s.keeper.RestoreHandle(n.Handle)
	s.cluster.restoredFrom = n
	return s, nil
}
