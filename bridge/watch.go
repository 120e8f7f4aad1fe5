package bridge

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"voxgate/bridge/gemini/setup"
	"voxgate/tools"
)

// Info is where a conversation stands.
type Info struct {
	ID       string
	Door     string // the front door: "web", "sip", …
	Identity string // of the caller; empty: not known
	Key      string // see [Origin]
	Model    string
	State    State
	Started  time.Time
	Turns    int // that are over
	Tokens   int // of the model, in and out
}

// Sessions are the conversations that there are, the oldest first.
func (h *Host) Sessions() []Info {
	h.mu.Lock()
	sessions := make([]*Session, 0, len(h.sessions))
	for s := range h.sessions {
		sessions = append(sessions, s)
	}
	h.mu.Unlock()
	var list []Info
	for _, s := range sessions {
		var i Info
		if s.Do(describe{&i}) == nil { // else it has ended
			list = append(list, i)
		}
	}
	slices.SortFunc(list, func(a, b Info) int { return a.Started.Compare(b.Started) })
	return list
}

// LateFrames is how many frames of all conversations were handed over 20 ms and more after their time.
func (h *Host) LateFrames() uint64 { return h.ticker.Late() }

// Session finds a conversation; nil: there is none of this id.
func (h *Host) Session(id string) *Session {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.sessions {
		if s.id == id {
			return s
		}
	}
	return nil
}

// describe is a [Command] that fills in what is known.
type describe struct{ into *Info }

func (describe) command() {}

func (s *Session) describe() Info {
	return Info{
		ID: s.id, Door: s.open.Origin.Door, Identity: s.open.Origin.Identity, Key: s.open.Origin.Key, Model: s.keeper.Config().Model, State: s.state,
		Started: s.started, Turns: s.answer.number - 1, Tokens: s.spent.meter.Total().Total,
	}
}

// leave is a [Command] that says that the gateway will take no calls any more, and ends in a while; 0: it does not end.
type leave struct{ in time.Duration }

func (leave) command() {}

// watch is a [Command] that adds a watcher.
type watch struct{ watcher *watcher }

func (watch) command() {}

// watcher is told of a conversation that somebody else carries.
type watcher struct{ notify func(Event) }

// Watch has notify told of everything that the caller is told from now on, after a [SetupComplete] and the [History] so far. The
// rules of [Caller].Notify hold for it. Whoever watches may also command the session, and is asked for the answers to functions that [Steer] has
// declared. It ends with stop or with the conversation, when Done is closed.
func (s *Session) Watch(notify func(Event)) (stop func(), err error) {
	w := &watcher{notify}
	if err := s.Do(watch{w}); err != nil {
		return nil, err
	}
	a := &s.audience
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.watchers = slices.DeleteFunc(a.watchers, func(other *watcher) bool { return other == w })
	}, nil
}

// Done is closed when the conversation has ended; Err then says why.
func (s *Session) Done() <-chan struct{} { return s.over }

// Err is why the conversation has ended. It must not be called before Done is closed.
func (s *Session) Err() error { return s.ended }

func (s *Session) addWatcher(w *watcher) {
	a := &s.audience
	a.mu.Lock()
	defer a.mu.Unlock()
	w.notify(Event{Number: a.ring.last, Time: time.Now(), Body: s.setupComplete()})
	w.notify(Event{Number: a.ring.last, Time: time.Now(), Body: History{s.transcript.list()}})
	a.watchers = append(a.watchers, w)
}

// tellWatchers tells nobody else. Needs mu of the audience.
func (a *audience) tellWatchers(e Event) {
	if b, ok := e.Body.(SetupComplete); ok {
		b.ResumeToken = "" // is the caller's alone
		e.Body = b
	}
	for _, w := range a.watchers {
		w.notify(e)
	}
}

// steering is what the operator's backend has changed of a running conversation. It counts whatever the caller configures.
type steering struct {
	raw       json.RawMessage // the configuration as the caller has it
	agent     Agent
	functions json.RawMessage
	names     map[string]bool // of the functions
}

// steer changes the agent, or its functions.
func (t *steering) steer(c Steer) error {
	if len(c.Functions) > 0 {
		var functions []struct{ Name string }
		if err := json.Unmarshal(c.Functions, &functions); err != nil {
			return &Error{Code: CodeBadMessage, Field: "payload.functions", Message: "payload.functions is no array of function declarations."}
		}
		t.functions, t.names = c.Functions, map[string]bool{}
		for _, f := range functions {
			t.names[f.Name] = true
		}
	}
	t.agent = c.Agent.Over(t.agent)
	return nil
}

// config is a config of the caller's with what the backend says.
func (t *steering) config(raw json.RawMessage) json.RawMessage {
	raw = t.agent.config(raw)
	config, ok := object(raw)
	if len(t.names) == 0 || !ok {
		return raw
	}
	list, _ := config["tools"].([]any)
	config["tools"] = append(list, map[string]any{"functionDeclarations": t.functions})
	merged, err := json.Marshal(config)
	if err != nil {
		return raw // what was read can be written
	}
	return merged
}

// read reads a configuration of the caller's, with what it may not change.
func (s *Session) read(raw json.RawMessage) (setup.Config, error) {
	config, err := setup.Parse(s.open.layered(raw, &s.steering), "payload", s.scope)
	if err == nil {
		err = s.open.Grant.allows(config, "payload")
	}
	if err == nil {
		s.steering.raw = raw
	}
	return config, err
}

// steer changes the agent, or its functions.
func (s *Session) steer(ctx context.Context, c Steer) error {
	before := s.steering
	err := s.steering.steer(c)
	var config setup.Config
	if err == nil {
		config, err = s.read(before.raw)
	}
	if err != nil {
		s.steering = before
		return err
	}
	s.keeper.Update(ctx, config, nil)
	return nil
}

// askClient asks whoever has declared a function to run it.
func (s *Session) askClient(calls []tools.Call) {
	var theirs, backends []tools.Call
	for _, c := range calls {
		if s.steering.names[c.Name] {
			backends = append(backends, c)
		} else {
			theirs = append(theirs, c)
		}
	}
	if len(backends) > 0 {
		a := &s.audience
		a.mu.Lock()
		a.tellWatchers(Event{Number: a.ring.last, Time: time.Now(), Body: ToolCall{backends}})
		a.mu.Unlock()
	}
	if len(theirs) > 0 {
		s.notify(ToolCall{theirs})
	}
}
