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

	"voxgate/bridge/fleet"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/keeper"
	"voxgate/bridge/steps"
	"voxgate/media/playout"
	"voxgate/media/record"
	"voxgate/tools"
	"voxgate/tools/canvas"
)

// Host is every conversation of this process.
type Host struct {
	shared
	ticker   *playout.Ticker
	wg       sync.WaitGroup // session loops
	closing  sync.Once
	breakers keeper.Breakers

	mu       sync.Mutex
	draining bool // no conversation begins any more
	closed   bool
	sessions map[string]*hosted       // by id
	resuming map[string]chan struct{} // closed when a resume of the conversation of that id is over
	guests   map[*guest]struct{}
}

// guest is work beside the sessions: see [Host.Join].
type guest struct {
	name string
	stop context.CancelCauseFunc
}

// hosted is what a host knows of a session.
type hosted struct {
	session *Session
	stop    context.CancelCauseFunc
	gone    chan struct{} // closed when nothing of it is here any more
}

// NewHost returns a host without conversations. Shutdown releases it.
func NewHost(o Options) *Host {
	h := &Host{
		shared: shared{options: o, tokens: newResumeTokens()}, ticker: playout.NewTicker(),
		sessions: map[string]*hosted{}, resuming: map[string]chan struct{}{}, guests: map[*guest]struct{}{},
	}
	h.breakers.Default = api.DefaultModel
	h.fleet = fleet.New(fleet.Options{Store: o.Store, Node: o.Node, SnapshotTTL: o.Park, Quota: &h.breakers, Logger: o.Logger})
	h.checkTools()
	return h
}

// checkTools logs which of the gateway's tools a model cannot use.
func (h *Host) checkTools() {
	own := h.ownTools()
	if len(own) == 0 {
		return
	}
	config, err := setup.Parse(nil, "config", h.scope(own, &Open{Origin: Origin{Screen: true}}, steps.Flow{}))
	if err != nil {
		h.options.Logger.Error("tools cannot be declared", "err", err)
	}
	for _, w := range config.Warnings {
		h.options.Logger.Warn(w)
	}
	h.options.Logger.Info("tools", "own", len(config.Functions))
}

// ownTools are the gateway's, for a conversation that begins.
func (h *Host) ownTools() []tools.Tool {
	if h.options.Tools == nil {
		return nil
	}
	return h.options.Tools()
}

// Backend is what answers: gemini, vertex or emulator.
func (h *Host) Backend() string { return h.options.Backend }

// Models are the names of the models of the Live API, the default first.
func (h *Host) Models() []string { return setup.Models(h.options.Client.Vertex != nil) }

// Serve opens or resumes a conversation and lets c carry it. It returns when c has left (nil), when another caller took
// over ([ErrReplaced]) or when the conversation has ended, with the reason; [AsError] explains those that are failures.
func (h *Host) Serve(ctx context.Context, c Caller, o Open) error {
	if o.Account == nil {
		o.Account = Unlimited
	}
	if s := h.continued(o); s != nil {
		if err := s.serve(ctx, c, o, false, func() {}); !errors.Is(err, errOver) {
			return err
		}
	}
	switch s, done, err := h.resume(ctx, o); {
	case err != nil:
		return err
	case s != nil:
		return s.serve(ctx, c, o, false, done)
	case o.Instead != nil:
		return o.Instead
	}
	config, own, err := h.prepare(o, begun(o))
	if err != nil { // before it is counted: a client loses nothing by a mistake
		return AsError(err)
	}
	first, err := h.afford(o, config, "initialConfig")
	if err != nil {
		return err
	}
	if err := o.Account.Begin(first); err != nil {
		return err
	}
	s, err := h.begin(ctx, o, config, own)
	if err != nil {
		o.Account.End()
		return err
	}
	return s.serve(ctx, c, o, true, func() {})
}

// prepare reads a conversation's configuration, and finds the tools that run here.
func (h *Host) prepare(o Open, backend *steering) (config setup.Config, own []tools.Tool, err error) {
	own = slices.Concat(o.Grant.tools(h.ownTools()), o.Tools) // not append: the operator's list is everybody's
	config, err = setup.Parse(o.layered(o.Config, backend), "initialConfig", h.scope(own, &o, backend.flow))
	if err == nil {
		err = o.Grant.allows(config, "initialConfig")
	}
	return config, own, err
}

// begin makes a session and starts its loop.
func (h *Host) begin(ctx context.Context, o Open, config setup.Config, own []tools.Tool) (*Session, error) {
	id := rand.Text()[:idLength]
	if h.options.Admit != nil {
		if err := h.options.Admit(ctx, id, &o); err != nil {
			return nil, err
		}
		var err error
		if config, own, err = h.prepare(o, begun(o)); err == nil {
			_, err = h.afford(o, config, "initialConfig")
		}
		if err != nil {
			return nil, AsError(err)
		}
	}
	probe := false
	breaker := h.breakers.ForModel(config.Model)
	if !config.Profile.Writes {
		var retry time.Duration
		if probe, retry = breaker.Admit(o.caller()); retry > 0 {
			return nil, &Error{Code: CodeBusy, Message: quotaMessage, Retry: retry}
		}
	}
	if err := h.use(o.Account); err != nil {
		if probe {
			breaker.Release()
		}
		return nil, err
	}
	s := newSession(h, id, config, o, own, probe)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.stopping(); err != nil {
		return nil, err
	}
	h.start(s, 1)
	return s, nil
}

// use uses up what a caller has shown for one conversation, unless none may begin.
func (h *Host) use(account Account) error {
	h.mu.Lock()
	err := h.stopping()
	h.mu.Unlock()
	if err != nil {
		return err
	}
	return account.Use()
}

// stopping is why no conversation may begin any more; nil: one may. Needs mu.
func (h *Host) stopping() error {
	switch {
	case h.closed:
		return ErrShutdown
	case h.draining:
		return &Error{Code: CodeBusy, Message: "This gateway is about to stop.", Retry: drainRetry}
	}
	return nil
}

// Join registers work that is no session of this host, such as a REST call: Drain and Shutdown wait for it, and
// Shutdown ends ctx with [ErrShutdown]. leave must be called when it is over. Join fails when no conversation may
// begin. It does not block.
func (h *Host) Join(parent context.Context, name string) (ctx context.Context, leave func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.stopping(); err != nil {
		return nil, nil, err
	}
	ctx, stop := context.WithCancelCause(parent)
	g := &guest{name, stop}
	h.guests[g] = struct{}{}
	h.wg.Add(1)
	return ctx, func() {
		stop(nil)
		h.mu.Lock()
		delete(h.guests, g)
		h.mu.Unlock()
		h.wg.Done()
	}, nil
}

// start starts the loop of a session that has this generation in the store. Needs mu.
func (h *Host) start(s *Session, generation uint64) {
	// Not the caller's context: the conversation may outlive the connection that opened it.
	running, stop := context.WithCancelCause(context.Background())
	session := &hosted{session: s, stop: stop, gone: make(chan struct{})}
	h.sessions[s.id] = session
	s.handover.record = h.fleet.AddEntry(s.id, generation, func() {
		s.log.Info("taken by another gateway")
		_ = s.Do(superseded{}) // fails if it has just ended
	})
	h.wg.Go(func() {
		s.loop(running)
		stop(nil)
		h.forget(s)
		close(session.gone)
		if s.observer.on() {
			s.observer.report(Ended{
				s.describe(), time.Now(), s.ended, s.counts(), s.transcript.Entries(), s.recording.files, s.recording.pauses, s.steering.flow.Fields,
				s.open.Wanted().Outcome, s.open.Account,
			})
		}
	})
}

// scope is what a config is parsed for. Of the tools that run here the agent has those that its file names; the door's own it has anyway.
func (h *shared) scope(own []tools.Tool, o *Open, flow steps.Flow) setup.Scope {
	scope := setup.Scope{
		Vertex: h.options.Client.Vertex, Canvas: canvas.Declarations(), Screen: o.Origin.Screen, MaxPreRoll: o.MaxPreRoll, Hides: flow.HidesTool,
		Writers: o.Generate != nil, Findings: h.options.Findings,
	}
	if next := flow.FunctionDeclaration(); next != nil {
		scope.Tools = append(scope.Tools, *next)
	}
	uses := o.Wanted().Tools
	for i, t := range own {
		if doors := i >= len(own)-len(o.Tools); uses == nil || doors || Matches(uses, t.Name) {
			scope.Tools = append(scope.Tools, t.Declaration)
		}
	}
	return scope
}

// drainRetry is when a client that was refused by a stopping gateway may try again: it reaches another gateway, or the
// next one here.
const drainRetry = 5 * time.Second

// Leave refuses new conversations. If there are other gateways, it asks the callers that can to go there, each when
// nobody speaks. It returns at once; [Host.Sessions] lists those left. A caller that is lost meanwhile may come back.
func (h *Host) Leave() { h.leave(0) }

// leave is Leave; callers learn how long they have; 0: they may stay.
func (h *Host) leave(within time.Duration) {
	h.mu.Lock()
	h.draining = true
	h.mu.Unlock()
	h.fleet.StopAccepting()
	for _, s := range h.running() {
		_ = s.Do(leave{within}) // fails if it has just ended
	}
}

// running lists the conversations.
func (h *Host) running() (list []*Session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, here := range h.sessions {
		list = append(list, here.session)
	}
	return list
}

// Drain is Leave, but lets callers know how long they have, and waits until the last has ended or ctx is done.
func (h *Host) Drain(ctx context.Context) {
	deadline, _ := ctx.Deadline()
	h.leave(time.Until(deadline).Round(time.Second))
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
	for _, s := range h.running() {
		var i Info
		if s.Do(describe{&i}) == nil { // else it has ended
			list = append(list, i)
		}
	}
	slices.SortFunc(list, func(a, b Info) int { return a.Started.Compare(b.Started) })
	return list
}

// LateFrames is how many frames of all conversations were handed over at least 20 ms late.
func (h *Host) LateFrames() uint64 { return h.ticker.LateFrames() }

// Session finds a conversation by its id; nil: there is none.
func (h *Host) Session(id string) *Session {
	h.mu.Lock()
	defer h.mu.Unlock()
	if here := h.sessions[id]; here != nil {
		return here.session
	}
	return nil
}

// Ready reports whether conversations may begin.
func (h *Host) Ready() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.draining && !h.closed
}

// Shutdown ends every conversation, parked ones too, and waits for them, for their recordings for a while, or for ctx:
// the error names the conversations that have not ended by then.
func (h *Host) Shutdown(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	for _, session := range h.sessions {
		session.stop(ErrShutdown)
	}
	for g := range h.guests {
		g.stop(ErrShutdown)
	}
	h.mu.Unlock()
	done := make(chan struct{})
	go func() {
		h.wg.Wait()
		h.closing.Do(func() {
			h.ticker.Close()
			h.fleet.Close()
		})
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("conversations that do not end: %s: %w", strings.Join(h.unfinished(), ", "), ctx.Err())
	}
	return h.written(ctx)
}

// unfinished lists the ids of the conversations and the names of the guests. It asks none of them, as they may hang.
func (h *Host) unfinished() (ids []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id := range h.sessions {
		ids = append(ids, id)
	}
	for g := range h.guests {
		ids = append(ids, g.name)
	}
	slices.Sort(ids)
	return ids
}

// Record begins the recording of people who talk on when the agent has left their conversation, which was recorded. end may be called once.
func (h *Host) Record(s *Session) (f *record.Recording, end func(), err error) {
	if f, err = record.Create(h.options.Recordings, s.id+"-bridged", time.Now()); err != nil {
		return nil, nil, err
	}
	r := &recording{log: s.log, writing: &h.writing}
	return f, func() { r.finish(f) }, nil
}

// lastPages is how long the ends of recordings may take to be written at a shutdown. A working disk takes milliseconds;
// on one that hangs, each file lacks some two seconds, as after a crash.
const lastPages = 2 * time.Second

// written waits for the recordings.
func (h *Host) written(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		h.writing.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-time.After(lastPages):
		h.options.Logger.Error("recordings left unfinished: the disk hangs")
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// continued is the conversation that a caller goes on with; nil: none.
func (h *Host) continued(o Open) *Session {
	if o.TakeOver != nil || o.ResumeToken == "" {
		return o.TakeOver
	}
	s := h.Session(h.tokens.find(o.ResumeToken))
	if s == nil || !s.open.Origin.Mine(o.Origin) || s.open.Origin.Door != o.Origin.Door {
		return nil
	}
	return s
}

// forget drops an ended session and its tokens.
func (h *Host) forget(s *Session) {
	h.tokens.void(s.id)
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sessions, s.id)
}

// Node is the gateway that has a conversation; empty: no known gateway has it.
func (h *Host) Node(ctx context.Context, id string) string { return h.fleet.FindOwner(ctx, id) }

// Nodes are the other gateways that have conversations or may have some, and how many each has.
func (h *Host) Nodes(ctx context.Context) (map[string]int, error) { return h.fleet.OtherGateways(ctx) }

// Name is how the other gateways know this one, without its URL; empty: there are none.
func (h *Host) Name() string {
	name, _, _ := strings.Cut(h.options.Node, " ")
	return name
}
