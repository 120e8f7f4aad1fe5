package bridge

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"voxgate/bridge/cluster"
	"voxgate/bridge/flow"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/upstream"
	"voxgate/media/playout"
	"voxgate/media/record"
	"voxgate/tools"
	"voxgate/tools/canvas"
)

// Host runs all conversations of this process.
type Host struct {
	hostState
	ticker   *playout.Ticker
	wg       sync.WaitGroup // counts the session loops
	closing  sync.Once
	breakers upstream.Breakers

	mu       sync.Mutex
	draining bool // new conversations are rejected
	closed   bool
	sessions map[string]*hostedSession // running sessions by ID
	resuming map[string]chan struct{}  // resumes in progress, by the conversation's ID; each is closed when the resume has ended
	work     map[*workItem]struct{}
}

// workItem is work outside the sessions: see [Host.RegisterWork].
type workItem struct {
	name string
	stop context.CancelCauseFunc
}

// hostedSession is a session that is running in a host.
type hostedSession struct {
	session *Session
	stop    context.CancelCauseFunc
	removed chan struct{} // closed when the session has been removed
}

// NewHost returns a host without conversations. Shutdown releases it.
func NewHost(o Options) *Host {
	h := &Host{
		hostState: hostState{options: o, tokens: newResumeTokens()}, ticker: playout.NewTicker(),
		sessions: map[string]*hostedSession{}, resuming: map[string]chan struct{}{}, work: map[*workItem]struct{}{},
	}
	h.breakers.Default = api.DefaultModel
	h.cluster = cluster.New(cluster.Options{Store: o.Store, Node: o.Node, SnapshotTTL: o.Park, Quota: &h.breakers, Logger: o.Logger})
	h.logUnusableTools()
	return h
}

// logUnusableTools logs the gateway's tools that the default model cannot use.
func (h *Host) logUnusableTools() {
	operatorTools := h.configuredTools()
	if len(operatorTools) == 0 {
		return
	}
	config, err := liveconfig.Parse(nil, "config", h.configScope(operatorTools, &SessionRequest{Origin: Origin{HasScreen: true}}, flow.Flow{}))
	if err != nil {
		h.options.Logger.Error("tools cannot be declared", "err", err)
	}
	for _, w := range config.Warnings {
		h.options.Logger.Warn(w)
	}
	h.options.Logger.Info("tools", "own", len(config.Functions))
}

// configuredTools returns the gateway's tools for a new conversation.
func (h *Host) configuredTools() []tools.Tool {
	if h.options.Tools == nil {
		return nil
	}
	return h.options.Tools()
}

// Backend returns the kind of backend: gemini, vertex or emulator.
func (h *Host) Backend() string { return h.options.Backend }

// Models returns the names of the models of the Live API, the default first.
func (h *Host) Models() []string { return liveconfig.Models(h.options.Client.Vertex != nil) }

// Serve opens or resumes a conversation and serves c. It blocks until c has left or was replaced, or the conversation
// has ended. It returns nil if c has left, and [ErrReplaced] if another caller has taken over the conversation.
// Otherwise it returns the reason why the conversation ended; see [AsError].
func (h *Host) Serve(ctx context.Context, c Caller, o SessionRequest) error {
	if o.Account == nil {
		o.Account = Unlimited
	}
	if s := h.localSession(o); s != nil {
		if err := s.serveCaller(ctx, c, o, false, func() {}); !errors.Is(err, errEnded) {
			return err
		}
	}
	switch s, done, err := h.resumeSession(ctx, o); {
	case err != nil:
		return err
	case s != nil:
		return s.serveCaller(ctx, c, o, false, done)
	case o.ResumeError != nil:
		return o.ResumeError
	}
	config, own, err := h.prepareConfig(o, newSteering(o))
	if err != nil { // rejected before the conversation is counted, so that a mistake costs the client nothing
		return AsError(err)
	}
	first, err := h.checkBudget(o, config, "initialConfig")
	if err != nil {
		return err
	}
	if err := o.Account.BeginSession(first); err != nil {
		return err
	}
	s, err := h.beginSession(ctx, o, config, own)
	if err != nil {
		o.Account.End()
		return err
	}
	return s.serveCaller(ctx, c, o, true, func() {})
}

// prepareConfig parses a conversation's configuration, and selects the tools that run in the gateway.
func (h *Host) prepareConfig(o SessionRequest, backend *steering) (config liveconfig.Config, gatewayTools []tools.Tool, err error) {
	gatewayTools = slices.Concat(o.Grant.filterTools(h.configuredTools()), o.Tools) // not append: the operator's list is shared
	config, err = liveconfig.Parse(o.buildConfig(o.Config, backend), "initialConfig", h.configScope(gatewayTools, &o, backend.flow))
	if err == nil {
		err = o.Grant.checkModel(config, "initialConfig")
	}
	return config, gatewayTools, err
}

// beginSession creates a session and starts its loop.
func (h *Host) beginSession(ctx context.Context, o SessionRequest, config liveconfig.Config, gatewayTools []tools.Tool) (*Session, error) {
	id := rand.Text()[:idLength]
	if h.options.Admit != nil {
		if err := h.options.Admit(ctx, id, &o); err != nil {
			return nil, err
		}
		var err error
		if config, gatewayTools, err = h.prepareConfig(o, newSteering(o)); err == nil {
			_, err = h.checkBudget(o, config, "initialConfig")
		}
		if err != nil {
			return nil, AsError(err)
		}
	}
	probe := false
	breaker := h.breakers.ForModel(config.Model)
	if !config.Profile.IsTextModel {
		var retry time.Duration
		if probe, retry = breaker.Admit(o.callerID()); retry > 0 {
			if h.options.OnQuotaRefusal != nil {
				h.options.OnQuotaRefusal()
			}
			return nil, &Error{Code: CodeBusy, Message: quotaMessage, Retry: retry}
		}
	}
	if err := h.consumeToken(o.Account); err != nil {
		if probe {
			breaker.PassProbe()
		}
		return nil, err
	}
	s := newSession(h, id, config, o, gatewayTools, probe)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.checkAdmission(); err != nil {
		return nil, err
	}
	h.startSession(s, 1)
	return s, nil
}

// ClosedModels returns the models for which no conversation can begin, because Google's quota is used up. The value of
// each is the time until the next attempt.
func (h *Host) ClosedModels() map[string]time.Duration { return h.breakers.ClosedModels() }

// consumeToken marks a caller's single-use token as used. If the host accepts no new conversations, it returns an
// error, and the token stays valid.
func (h *Host) consumeToken(account Account) error {
	h.mu.Lock()
	err := h.checkAdmission()
	h.mu.Unlock()
	if err != nil {
		return err
	}
	return account.ConsumeToken()
}

// checkAdmission returns an error if the host accepts no new conversations. The caller must hold mu.
func (h *Host) checkAdmission() error {
	switch {
	case h.closed:
		return ErrShutdown
	case h.draining:
		return &Error{Code: CodeBusy, Message: "This gateway is about to stop.", Retry: drainRetry}
	}
	return nil
}

// RegisterWork registers work that belongs to no session, such as a REST call. Drain and Shutdown wait for it. Shutdown
// cancels the returned context with [ErrShutdown]. leave must be called when the work is done.
//
// It fails if the host accepts no new conversations. It does not block.
func (h *Host) RegisterWork(parent context.Context, name string) (ctx context.Context, leave func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.checkAdmission(); err != nil {
		return nil, nil, err
	}
	ctx, stop := context.WithCancelCause(parent)
	g := &workItem{name, stop}
	h.work[g] = struct{}{}
	h.wg.Add(1)
	return ctx, func() {
		stop(nil)
		h.mu.Lock()
		delete(h.work, g)
		h.mu.Unlock()
		h.wg.Done()
	}, nil
}

// startSession starts the loop of a session. generation is the session's generation in the store. The caller must hold
// mu.
func (h *Host) startSession(s *Session, generation uint64) {
	// The context is not derived from the caller's, because the conversation may outlive the connection that opened it.
	running, stop := context.WithCancelCause(context.Background())
	session := &hostedSession{session: s, stop: stop, removed: make(chan struct{})}
	h.sessions[s.id] = session
	s.cluster.entry = h.cluster.AddEntry(s.id, generation, func() {
		s.log.Info("taken by another gateway")
		_ = s.Do(takenCommand{}) // fails if the session has just ended
	})
	h.wg.Go(func() {
		s.runLoop(running)
		stop(nil)
		h.removeSession(s)
		close(session.removed)
		if s.observer.isEnabled() {
			s.observer.report(SessionEnded{
				s.buildInfo(), time.Now(), s.endReason, s.collectCounts(), s.transcript.Entries(), s.recording.files, s.recording.pauses,
				s.steering.flow.Fields,
				s.request.MergedAgent().Outcome, s.request.Account,
			})
		}
	})
}

// configScope returns the scope for parsing a config. The scope contains the gateway's tools that the agent's file
// lists, and all tools of the request.
func (h *hostState) configScope(gatewayTools []tools.Tool, o *SessionRequest, flow flow.Flow) liveconfig.Scope {
	scope := liveconfig.Scope{
		Vertex: h.options.Client.Vertex, Canvas: canvas.Declarations(), Screen: o.Origin.HasScreen, MaxPreRoll: o.MaxPreRoll,
		Hides:      flow.HidesTool,
		TextModels: o.Dial != nil, Findings: h.options.Findings,
	}
	if next := flow.FunctionDeclaration(); next != nil {
		scope.Tools = append(scope.Tools, *next)
	}
	uses := o.MergedAgent().Tools
	for i, t := range gatewayTools {
		if isEndpointTool := i >= len(gatewayTools)-len(o.Tools); uses == nil || isEndpointTool || MatchesAny(uses, t.Name) {
			scope.Tools = append(scope.Tools, t.Declaration)
		}
	}
	return scope
}

// drainRetry is the wait that a draining gateway asks of a client that it has rejected. The client's next attempt
// reaches another gateway.
const drainRetry = 5 * time.Second

// BeginDrain rejects new conversations from now on. If there are other gateways, it asks callers to move to them. Lost
// callers may still return to this gateway. It does not block. [Host.Sessions] lists the conversations that remain.
func (h *Host) BeginDrain() { h.beginDrain(0) }

// beginDrain does the same as BeginDrain, and tells the sessions how soon the gateway stops. 0 means that the gateway
// keeps running.
func (h *Host) beginDrain(within time.Duration) {
	h.mu.Lock()
	h.draining = true
	h.mu.Unlock()
	h.cluster.StopAccepting()
	for _, s := range h.activeSessions() {
		_ = s.Do(drainCommand{within}) // fails if the session has just ended
	}
}

// activeSessions lists the conversations.
func (h *Host) activeSessions() (list []*Session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, here := range h.sessions {
		list = append(list, here.session)
	}
	return list
}

// Drain does the same as BeginDrain, and tells callers that the gateway stops at the deadline of ctx. It blocks until
// the last conversation has ended or ctx is done.
func (h *Host) Drain(ctx context.Context) {
	deadline, _ := ctx.Deadline()
	h.beginDrain(time.Until(deadline).Round(time.Second))
	done := make(chan struct{})
	go func() {
		h.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// Sessions lists the conversations, oldest first.
func (h *Host) Sessions() []Info {
	var list []Info
	for _, s := range h.activeSessions() {
		var i Info
		if s.Do(infoRequest{&i}) == nil { // otherwise the session has ended
			list = append(list, i)
		}
	}
	slices.SortFunc(list, func(a, b Info) int { return a.Started.Compare(b.Started) })
	return list
}

// LateFrames returns how many frames of all conversations were delivered at least 20 ms late.
func (h *Host) LateFrames() uint64 { return h.ticker.LateFrames() }

// Session returns the conversation with this ID, or nil.
func (h *Host) Session(id string) *Session {
	h.mu.Lock()
	defer h.mu.Unlock()
	if here := h.sessions[id]; here != nil {
		return here.session
	}
	return nil
}

// IsReady reports whether the host accepts new conversations.
func (h *Host) IsReady() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.draining && !h.closed
}

// Shutdown ends all conversations, including parked ones. It blocks until they have ended or ctx is done, and then for
// at most recordingFlushTime until their recordings are written. The error names the conversations that have not ended.
func (h *Host) Shutdown(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	for _, session := range h.sessions {
		session.stop(ErrShutdown)
	}
	for g := range h.work {
		g.stop(ErrShutdown)
	}
	h.mu.Unlock()
	done := make(chan struct{})
	go func() {
		h.wg.Wait()
		h.closing.Do(func() {
			h.ticker.Close()
			h.cluster.Close()
		})
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("conversations not ended: %s: %w", strings.Join(h.unfinishedWork(), ", "), ctx.Err())
	}
	return h.waitForRecordings(ctx)
}

// unfinishedWork lists the IDs of the conversations and the names of other work. It asks nothing of the conversations'
// loops, because a loop may hang.
func (h *Host) unfinishedWork() (ids []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id := range h.sessions {
		ids = append(ids, id)
	}
	for g := range h.work {
		ids = append(ids, g.name)
	}
	slices.Sort(ids)
	return ids
}

// RecordBridged creates a recording of two people who go on talking after the agent has left. end stops the recording.
// It must not be called twice.
func (h *Host) RecordBridged(s *Session) (f *record.Recording, end func(), err error) {
	if f, err = record.Create(h.options.Recordings, s.id+"-bridged", time.Now()); err != nil {
		return nil, nil, err
	}
	r := &recording{log: s.log, writing: &h.writing}
	return f, func() { r.closeFile(f) }, nil
}

// recordingFlushTime limits how long a shutdown waits until recordings are written. A disk that works needs
// milliseconds. If the disk hangs, the last two seconds or so are missing from each file.
const recordingFlushTime = 2 * time.Second

// waitForRecordings waits until the recordings are written, but at most for recordingFlushTime.
func (h *Host) waitForRecordings(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		h.writing.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-time.After(recordingFlushTime):
		h.options.Logger.Error("recordings left unfinished: the disk hangs")
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// localSession returns the conversation at this gateway that a caller continues, or nil.
func (h *Host) localSession(o SessionRequest) *Session {
	if o.Replaces != nil || o.ResumeToken == "" {
		return o.Replaces
	}
	s := h.Session(h.tokens.findSession(o.ResumeToken))
	if s == nil || !s.request.Origin.SameCaller(o.Origin) || s.request.Origin.Protocol != o.Origin.Protocol {
		return nil
	}
	return s
}

// removeSession removes an ended session and its tokens.
func (h *Host) removeSession(s *Session) {
	h.tokens.revokeTokens(s.id)
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sessions, s.id)
}

// FindNode returns the gateway that has a conversation, or "" if that is unknown. It may block: see
// [cluster.Cluster.FindOwner].
func (h *Host) FindNode(ctx context.Context, id string) string { return h.cluster.FindOwner(ctx, id) }

// OtherNodes returns the other gateways that have or accept conversations, with the number of conversations of each.
func (h *Host) OtherNodes(ctx context.Context) (map[string]int, error) {
	return h.cluster.OtherGateways(ctx)
}

// NodeName returns the name of this gateway in the cluster, without its URL, or "" if there is no cluster.
func (h *Host) NodeName() string {
	name, _, _ := strings.Cut(h.options.Node, " ")
	return name
}
