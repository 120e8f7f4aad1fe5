package bridge

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/keeper"
	"voxgate/media/playout"
	"voxgate/store"
	"voxgate/tools"
	"voxgate/tools/canvas"
)

// Options make a [Host].
type Options struct {
	Client  *api.Client
	Backend string        // what answers: gemini, vertex or emulator; clients are told
	Park    time.Duration // how long a resumable conversation waits for its lost caller; 0: not at all
	// Stall is how long the model may be silent where an answer is due; 0: for ever.
	Stall time.Duration
	// MaxTokens ends a conversation that has used so many; 0: no limit.
	MaxTokens int
	// Observe is told what happens in the conversation of this id; nil: nobody is, and nothing is made for it. It is called by
	// several goroutines and must not block.
	Observe func(id string, o Observation)
	// Tools returns the gateway's own tools, for a conversation that begins; nil: there are none.
	Tools func() []tools.Tool
	// SignPicture gives a picture's URL on the internet its address on the gateway, and Chips a page of search suggestions;
	// nil: clients are given none.
	SignPicture, Chips func(string) string
	// Admit is asked before a conversation begins, and may refuse it with an [Error] or set its Override. Nil:
	// nobody is. It may block until ctx is done.
	Admit func(ctx context.Context, id string, o *Open) error
	// Recordings is the folder for conversations that are recorded; empty: none is. RecordAll records those, too, that do not
	// ask for it.
	Recordings string
	RecordAll  bool
	// Store is what this gateway and others know together: a conversation can go on at any of them, by its resume token. Node is how
	// the others know this one: a name that no other has and none had before, and behind a space the URL by which they reach it, if there
	// is one. Nil: there are no others, and no snapshots. They take 0.1 % of the CPU of a call with turns of 9 s.
	Store  store.Store
	Node   string
	Logger *slog.Logger
}

// Host is every conversation of this process.
type Host struct {
	options Options
	ticker  *playout.Ticker
	wg      sync.WaitGroup // session loops
	writing sync.WaitGroup // the ends of recordings
	closing sync.Once
	breaker keeper.Breaker
	nodes   *nodes

	mu       sync.Mutex
	draining bool // no conversation begins any more
	closed   bool
	sessions map[*Session]*hosted
	tokens   map[tokenHash]*Session
	guests   map[*guest]struct{}
}

// guest is what goes on beside the sessions: see [Host.Join].
type guest struct {
	name string
	stop context.CancelCauseFunc
}

// hosted is what a host knows of a session.
type hosted struct {
	stop context.CancelCauseFunc
	gone chan struct{} // closed when nothing of it is here any more

	// The resume tokens: the newest, and the one that was used for it.
	current, previous tokenHash
}

// tokenHash stands for a resume token: the token itself is kept nowhere.
type tokenHash [sha256.Size]byte

// NewHost returns a host without conversations. Shutdown releases it.
func NewHost(o Options) *Host {
	h := &Host{
		options: o, ticker: playout.NewTicker(),
		sessions: map[*Session]*hosted{}, tokens: map[tokenHash]*Session{}, guests: map[*guest]struct{}{},
	}
	h.nodes = newNodes(o, &h.breaker)
	h.checkTools()
	return h
}

// checkTools tells the operator of the gateway's tools that a model cannot be told of.
func (h *Host) checkTools() {
	own := h.tools()
	if len(own) == 0 {
		return
	}
	config, err := setup.Parse(nil, "config", h.scope(declarations(own), true))
	if err != nil {
		h.options.Logger.Error("tools cannot be declared", "err", err)
	}
	for _, w := range config.Warnings {
		h.options.Logger.Warn(w)
	}
	h.options.Logger.Info("tools", "own", len(config.Functions))
}

// tools are the gateway's own, for a conversation that begins.
func (h *Host) tools() []tools.Tool {
	if h.options.Tools == nil {
		return nil
	}
	return h.options.Tools()
}

// Backend is what answers: gemini, vertex or emulator.
func (h *Host) Backend() string { return h.options.Backend }

// Models are the names of the models that talk, the default first.
func (h *Host) Models() []string { return setup.Models(h.options.Client.Vertex != nil) }

// Serve opens or resumes a conversation and lets c carry it. It returns when c has left (nil), when another caller took
// over ([ErrReplaced]) or when the conversation has ended, with the reason; [AsError] explains those that are failures.
func (h *Host) Serve(ctx context.Context, c Caller, o Open) error {
	if o.Account == nil {
		o.Account = Unlimited
	}
	if s := h.continued(o); s != nil {
		if err := s.serve(ctx, c, o, false); !errors.Is(err, errOver) {
			return err
		}
	}
	switch s, err := h.take(ctx, o); {
	case err != nil:
		return err
	case s != nil:
		return s.serve(ctx, c, o, false)
	case o.Instead != nil:
		return o.Instead
	}
	config, own, err := h.prepare(o, &steering{})
	if err != nil { // before it is counted: who corrects it has lost nothing
		return AsError(err)
	}
	if err := o.Account.Begin(); err != nil {
		return err
	}
	s, err := h.begin(ctx, o, config, own)
	if err != nil {
		o.Account.End()
		return err
	}
	return s.serve(ctx, c, o, true)
}

// prepare reads what a conversation shall be, and finds the tools that run here.
func (h *Host) prepare(o Open, backend *steering) (config setup.Config, own []tools.Tool, err error) {
	own = slices.Concat(o.Grant.tools(h.tools()), o.Tools) // not append: the operator's list is everybody's
	config, err = setup.Parse(o.layered(o.Config, backend), "initialConfig", h.scope(declarations(own), o.Origin.Screen))
	if err == nil {
		err = o.Grant.allows(config, "initialConfig")
	}
	return config, own, err
}

// idLength is the length of a session's id, in base32: 80 bits, so that of a million conversations at many gateways no two have the same.
const idLength = 16

// begin makes a session and starts its loop.
func (h *Host) begin(ctx context.Context, o Open, config setup.Config, own []tools.Tool) (*Session, error) {
	id := rand.Text()[:idLength]
	if h.options.Admit != nil {
		if err := h.options.Admit(ctx, id, &o); err != nil {
			return nil, err
		}
		if o.Override != (Agent{}) {
			var err error
			if config, own, err = h.prepare(o, &steering{}); err != nil {
				return nil, AsError(err)
			}
		}
	}
	probe, retry := h.breaker.Admit()
	if retry > 0 {
		return nil, &Error{Code: CodeBusy, Message: quotaMessage, Retry: retry}
	}
	s := newSession(h, id, config, o, h.scope(declarations(own), o.Origin.Screen), own, probe)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.stopping(); err != nil {
		return nil, err
	}
	h.start(s, 1)
	return s, nil
}

// stopping is why nothing begins here any more; nil: it may. Needs mu.
func (h *Host) stopping() error {
	switch {
	case h.closed:
		return ErrShutdown
	case h.draining:
		return &Error{Code: CodeBusy, Message: "This gateway is about to stop.", Retry: drainRetry}
	}
	return nil
}

// Join counts something that is no session of this host, as a REST call is: Drain and Shutdown wait for it, and Shutdown ends ctx with
// [ErrShutdown]. leave must be called when it is over. It fails where no conversation may begin either. It does not block.
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

// start starts the loop of a session, which is of a generation in the store. Needs mu.
func (h *Host) start(s *Session, generation uint64) {
	// Not the caller's context: the conversation may outlive the connection that opened it.
	running, stop := context.WithCancelCause(context.Background())
	session := &hosted{stop: stop, gone: make(chan struct{})}
	h.sessions[s] = session
	h.nodes.add(s, generation)
	h.wg.Go(func() {
		s.loop(running)
		stop(nil)
		h.forget(s)
		close(session.gone)
		if tell := h.options.Observe; tell != nil {
			tell(s.id, s.summary())
		}
	})
}

// scope is what a config is parsed for.
func (h *Host) scope(own []tools.Declaration, screen bool) setup.Scope {
	return setup.Scope{Vertex: h.options.Client.Vertex, Tools: own, Canvas: canvas.Declarations(), Screen: screen}
}

func declarations(list []tools.Tool) (declared []tools.Declaration) {
	for _, t := range list {
		declared = append(declared, t.Declaration)
	}
	return declared
}

// drainRetry is when a client may come back that was refused because the gateway is about to stop: to another one, or the next.
const drainRetry = 5 * time.Second

// Leave lets no conversation begin any more. Where there are other gateways, it has the callers go there that can, each when nobody
// speaks. It returns at once; [Host.Sessions] tells who is left. Who is lost meanwhile may come back.
func (h *Host) Leave() {
	for _, s := range h.retire() {
		_ = s.Do(leave{}) // fails if it has just ended
	}
}

// retire lets no conversation begin any more, and returns those that run.
func (h *Host) retire() []*Session {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draining = true
	h.nodes.withdraw()
	return slices.Collect(maps.Keys(h.sessions))
}

// Drain is Leave, tells those that run how long they have, and waits until the last has ended or ctx is done.
func (h *Host) Drain(ctx context.Context) {
	deadline, _ := ctx.Deadline()
	left := time.Until(deadline).Round(time.Second)
	for _, s := range h.retire() {
		_ = s.Do(leave{left}) // fails if it has just ended
	}
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

// Ready tells whether conversations may begin.
func (h *Host) Ready() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.draining && !h.closed
}

// Shutdown ends every conversation, parked ones too, and waits for them, for their recordings for a while, or for ctx: the error names
// the conversations that have not ended by then.
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
			h.nodes.close()
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

// unfinished are the ids of the conversations that there are, and the names of the guests. It asks none of them, as they may hang.
func (h *Host) unfinished() (ids []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.sessions {
		ids = append(ids, s.id)
	}
	for g := range h.guests {
		ids = append(ids, g.name)
	}
	slices.Sort(ids)
	return ids
}

// lastPages is how long the ends of recordings may take to be written at a shutdown. A disk that works takes milliseconds; of
// one that hangs each file lacks some two seconds, as after a crash.
const lastPages = 2 * time.Second

// written waits for the recordings.
func (h *Host) written(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		h.writing.Wait()
		close(done)
	}()
	timer := time.NewTimer(lastPages)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
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
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.tokens[sha256.Sum256([]byte(o.ResumeToken))]
	if s == nil || !s.open.Origin.Mine(o.Origin) || s.open.Origin.Door != o.Origin.Door {
		return nil
	}
	return s
}

// newToken gives s its next token. The one that was used for it stays valid until the new one is used, because the
// answer that carries the new one may be lost with the connection; any other is void.
func (h *Host) newToken(s *Session, used string) string {
	secret := make([]byte, 32)
	rand.Read(secret) // never fails (crypto/rand)
	token := tokenFor(s.id, base64.RawURLEncoding.EncodeToString(secret))
	h.mu.Lock()
	defer h.mu.Unlock()
	session := h.voided(s)
	session.current = sha256.Sum256([]byte(token))
	h.tokens[session.current] = s
	if used != "" {
		session.previous = sha256.Sum256([]byte(used))
		h.tokens[session.previous] = s
	}
	return token
}

// tokensOf are the tokens of a session, the newest first; nil: there is none.
func (h *Host) tokensOf(s *Session) (tokens [2][]byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, t := range []tokenHash{h.sessions[s].current, h.sessions[s].previous} {
		if t != (tokenHash{}) {
			tokens[i] = t[:]
		}
	}
	return tokens
}

// void makes the tokens of a session worthless.
func (h *Host) void(s *Session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.voided(s)
}

// voided is a session without tokens. Needs mu.
func (h *Host) voided(s *Session) *hosted {
	session := h.sessions[s]
	delete(h.tokens, session.previous)
	delete(h.tokens, session.current)
	session.current, session.previous = tokenHash{}, tokenHash{}
	return session
}

// forget drops an ended session and its tokens.
func (h *Host) forget(s *Session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.voided(s)
	delete(h.sessions, s)
}
