package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"voxgate/bridge/cluster"
	"voxgate/bridge/flow"
)

// errStoreUnavailable rejects a resume while the store is unreachable. Only the store knows the conversation's gateway.
var errStoreUnavailable = &Error{Code: CodeBusy, Message: "The conversation cannot be looked up just now.", Retry: time.Second}

// resumeSession takes over the conversation of a resume token that this gateway does not know. It returns nil if no
// gateway has it.
//
// Until done is called, other resumes of the conversation wait. Without this, two resumes could make this gateway run
// the conversation twice.
func (h *Host) resumeSession(ctx context.Context, o SessionRequest) (s *Session, done func(), err error) {
	id := parseSessionID(o.ResumeToken)
	if id == "" {
		return nil, nil, nil
	}
	if done, err = h.lockResume(ctx, id); err != nil {
		return nil, nil, err
	}
	if s = h.localSession(o); s == nil { // otherwise another resume has taken the conversation meanwhile
		s, err = h.takeOverSession(ctx, id, o)
	}
	if s == nil {
		done()
	}
	return s, done, err
}

// takeOverSession takes a conversation over from another gateway. It returns nil if the conversation does not exist, or
// if o may not continue it.
func (h *Host) takeOverSession(ctx context.Context, id string, o SessionRequest) (*Session, error) {
	var found *snapshot
	generation, err := h.cluster.TakeOver(ctx, id, func(value []byte) (cluster.Snapshot, error) {
		found = &snapshot{}
		return found, json.Unmarshal(value, found)
	}, func(generation uint64) bool {
		return found.acceptsResume(o) && h.knowsPrice(found.PricedModel) && h.waitUntilGone(id, generation)
	})
	switch {
	case errors.Is(err, cluster.ErrUnavailable):
		return nil, errStoreUnavailable
	case err != nil || generation == 0:
		return nil, err
	}
	return h.adoptSession(id, found, generation, o)
}

// lockResume waits until no other resume of a conversation is in progress, and blocks others until done is called.
func (h *Host) lockResume(ctx context.Context, id string) (done func(), err error) {
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

// knowsPrice reports whether this gateway knows the price of a model, so that it can limit the spending. "" means
// that no limit is needed.
func (h *Host) knowsPrice(model string) bool {
	_, ok := h.PriceOf(model)
	return ok || model == ""
}

// waitUntilGone waits until a conversation has ended at this gateway, and returns true. It returns false at once if
// this gateway still owns the conversation. generation is the conversation's generation in the store.
func (h *Host) waitUntilGone(id string, generation uint64) bool {
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
	s, err := h.restoreSession(id, found, o)
	if err != nil {
		return nil, AsError(err)
	}
	o.Account.ContinueSession(Cost{Tokens: firstTurnTokens})
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

// restoreSession returns a conversation restored from a snapshot: parked, until its caller arrives.
func (h *Host) restoreSession(id string, n *snapshot, o SessionRequest) (*Session, error) {
	o.Origin, o.Grant, o.NoCues, o.Resumable = n.Origin, n.Grant, n.NoCues, true
	o.Agent, o.Override, o.Config, o.AgentLocked, o.AgentNamed, o.FarewellPrompt = n.OperatorAgent, n.WebhookAgent, n.Config,
		n.AgentLocked, n.AgentNamed, n.FarewellPrompt
	o.GreetingPrompt = "" // the greeting was spoken at the gateway where the conversation began
	steering := *newSteeringAt(n.Config, flow.ResumeFlow(o.MergedAgent().Steps, n.Step))
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
