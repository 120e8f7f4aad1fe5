// Package emulator is a Gemini Live server that runs without a key: same paths, same frames, same strictness, and a
// model that is a parrot. Voxgate runs on it in tests, in benchmarks, and when no key is set.
//
// The parrot says back what it hears, speaks what is typed, and knows some commands as typed text:
//
//	/tool NAME {json}   calls a declared function with these arguments
//	/tools [CALL,…]     calls several functions at once, each CALL being {"name":"NAME","args":{…}}
//	/cancel             takes back all calls that were not answered
//	/ground             answers with the metadata of a Google search
//	/history            says what it remembers of the conversation
//	/goaway 5s          announces that the connection ends in 5 s, and ends it then
//	/close 1011 reason  closes the connection with this code; without a reason with the one that Google gives
//	/drop               ends the TCP connection without a word
//
// Keys and access tokens are not checked, except that those which begin with "invalid" or "expired" are refused as Google refuses
// them: on a WebSocket a key with a close frame behind the setup, an access token with an HTTP status. Vertex paths want an access token,
// and those for ephemeral tokens one that begins with "auth_tokens/". There a session with a transparent resumption gets a handle
// after each ten messages, too, with the index of the last of them, and goes on from it in the middle of a speech.
//
// By itself nothing goes wrong. A Scenario says what should, and how long connections and handles last.
package emulator

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"os/exec"
	"regexp"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge/gemini/emulator/live"
)

// NoVoice as Options.Espeak makes the parrot whistle what it would speak.
const NoVoice = "none"

// Options are the settings of New. The zero value is fine.
type Options struct {
	Logger *slog.Logger // nil discards

	// Espeak is the program that speaks typed text. "" looks for espeak-ng, NoVoice has none.
	Espeak string

	// Scenario says how long things last and what goes wrong.
	Scenario Scenario

	// Observe, if not nil, gets what happens, for tests. The goroutines of the connections call it, for each
	// connection in order, and must not block.
	Observe func(Event)
}

// Emulator serves the Live API, and of the REST API the description of a model, on any prefix of any path. It is an http.Handler.
type Emulator struct {
	log      *slog.Logger
	espeak   string // path, "" without
	scenario Scenario
	observe  func(Event)

	memory memory

	sessions sync.WaitGroup // Add under mu, while not closed

	mu     sync.Mutex
	closed bool
	cancel map[*session]context.CancelFunc // of those that run
	count  int                             // of connections so far
	struck []int                           // how often each fault has
	hears  []string                        // of the scenario, that nobody has said yet
}

// New returns an emulator. Close ends it. It panics if the scenario makes no sense: its Validate says so before.
func New(o Options) *Emulator {
	if err := o.Scenario.Validate(); err != nil {
		panic("emulator: scenario: " + err.Error())
	}
	e := &Emulator{
		log: o.Logger, espeak: o.Espeak, scenario: o.Scenario, observe: o.Observe,
		memory: memory{ttl: cmp.Or(o.Scenario.HandleTTL, handleTTL)},
		cancel: make(map[*session]context.CancelFunc),
		struck: make([]int, len(o.Scenario.Faults)), hears: o.Scenario.Hears,
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	switch e.espeak {
	case NoVoice:
		e.espeak = ""
	case "":
		e.espeak, _ = exec.LookPath("espeak-ng")
	}
	return e
}

// Close ends all sessions and waits for them. New ones are refused.
func (e *Emulator) Close() {
	e.mu.Lock()
	e.closed = true
	for _, cancel := range e.cancel {
		cancel()
	}
	e.mu.Unlock()
	e.sessions.Wait()
}

// understood is what a person says next, where the scenario has words for it.
func (e *Emulator) understood() (words string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.hears) > 0 {
		words, e.hears = e.hears[0], e.hears[1:]
	}
	return words
}

var slashes = regexp.MustCompile(`//+`)

// ServeHTTP implements http.Handler. It must see the path as it came: the JavaScript and Python SDKs send two slashes
// before "ws", which http.ServeMux answers with a redirect that no WebSocket client follows.
func (e *Emulator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := slashes.ReplaceAllString(r.URL.Path, "/")
	if to, ok := live.EndpointOf(path); ok {
		e.serveLive(w, r, to)
		return
	}
	serveREST(w, r, path)
}

// upgrader accepts every origin: so does Google, and there is nothing here to protect.
var upgrader = websocket.Upgrader{
	ReadBufferSize:  8 << 10,
	WriteBufferSize: 8 << 10,
	CheckOrigin:     func(*http.Request) bool { return true },
}

func (e *Emulator) serveLive(w http.ResponseWriter, r *http.Request, to live.Endpoint) {
	// The session's end is a matter of the emulator: the request's context ends with the upgrade.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	s := newSession(e, to)
	if !e.enter(s, cancel) {
		refusals[http.StatusServiceUnavailable].write(w)
		return
	}
	defer e.leave(s)
	refused := admit(r, to)
	if refused != nil && refused.Code == http.StatusBadRequest { // a bad key is refused at the setup
		s.refusal, refused = live.NewClosing(live.CloseInvalid, refused.Message), nil
	}
	if refused == nil {
		var dropped bool
		if refused, dropped = s.handshake(ctx, r); dropped {
			s.report(Event{What: Refused, Code: websocket.CloseAbnormalClosure})
			drop(w)
			return
		}
	}
	if refused != nil {
		s.report(Event{What: Refused, Code: refused.Code, Text: refused.Message})
		refused.write(w)
		return
	}
	ws, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // Upgrade has answered
	}
	start := time.Now()
	err = s.run(ctx, ws)
	e.log.Info("live session ended", "connection", s.number, "model", s.setup.Model, "duration", time.Since(start), "reason", err)
}

// enter numbers a connection that begins, unless the emulator is closed.
func (e *Emulator) enter(s *session, cancel context.CancelFunc) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.sessions.Add(1)
	e.cancel[s] = cancel
	e.count++
	s.number = e.count
	return true
}

func (e *Emulator) leave(s *session) {
	e.mu.Lock()
	delete(e.cancel, s)
	e.mu.Unlock()
	e.sessions.Done()
}
