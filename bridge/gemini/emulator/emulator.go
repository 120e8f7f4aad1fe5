// Package emulator is a server of the Live API that needs no key. It has the same paths, messages and checks as Google's. Its
// model is an echo. Voxgate uses it in tests, in benchmarks, and if no key is set.
//
// The echo repeats what the user says, and speaks typed text. It also supports some commands as typed text:
//
//	/tool NAME {json}   calls a declared function with these arguments
//	/tools [CALL,…]     calls several functions at once, each CALL being {"name":"NAME","args":{…}}
//	/cancel             cancels all pending calls
//	/ground             answers with the metadata of a Google search
//	/history            says the conversation so far
//	/goaway 5s          announces that the connection ends in 5 s, and ends it then
//	/close 1011 reason  closes the connection with this code and reason; the default reason is Google's
//	/drop               drops the TCP connection
//
// Keys and access tokens are not checked, but those that begin with "invalid" or "expired" are refused as Google refuses them. On a
// WebSocket, a key is refused with a close frame after the setup, and an access token with an HTTP status. Vertex paths require an
// access token. Paths for ephemeral tokens require a token that begins with "auth_tokens/". On Vertex, a session with transparent
// resumption also gets a handle after every ten messages, with the index of the last message, and can be resumed in the middle of
// speech.
//
// Without a Scenario there are no faults. A Scenario defines faults, and the lifetime of connections and handles.
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

// NoVoice is a value of Options.Espeak: the emulator whistles instead of speaking.
const NoVoice = "none"

// Options configures New. The zero value is valid.
type Options struct {
	Logger *slog.Logger // nil means that nothing is logged

	// Espeak is the path of espeak-ng, which speaks typed text. "" searches for it; NoVoice disables it.
	Espeak string

	// Scenario defines lifetimes and faults.
	Scenario Scenario

	// Guide makes the emulator explain what it understands to users of the VOX assistant, where it would otherwise repeat
	// what they have said.
	Guide bool

	// Observe, if not nil, receives events, for tests. It is called by the goroutines of the connections, in order for each
	// connection, and must not block.
	Observe func(Event)
}

// Emulator serves the Live API, and from the REST API the descriptions of models and content generation. It accepts any
// prefix before the paths. It is an http.Handler.
type Emulator struct {
	log      *slog.Logger
	espeak   string // path of espeak-ng, or ""
	guide    bool
	scenario Scenario
	observe  func(Event)

	memory memory

	sessions sync.WaitGroup // running sessions; Add is called with mu held, and not after Close

	mu          sync.Mutex
	closed      bool
	cancel      map[*session]context.CancelFunc // ends each running session
	count       int                             // number of connections so far
	faultCounts []int                           // how often each fault of the scenario has occurred
	words       []string                        // transcripts in Scenario.Hears that were not used yet
}

// New returns an emulator. Call Close at the end. New panics if the scenario is invalid: see [Scenario.Validate].
func New(o Options) *Emulator {
	if err := o.Scenario.Validate(); err != nil {
		panic("emulator: scenario: " + err.Error())
	}
	e := &Emulator{
		log: o.Logger, espeak: o.Espeak, guide: o.Guide, scenario: o.Scenario, observe: o.Observe,
		memory:      memory{ttl: cmp.Or(o.Scenario.HandleTTL, handleTTL)},
		cancel:      make(map[*session]context.CancelFunc),
		faultCounts: make([]int, len(o.Scenario.Faults)), words: o.Scenario.Hears,
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

// Close ends all sessions and waits for them. New sessions are refused from then on.
func (e *Emulator) Close() {
	e.mu.Lock()
	e.closed = true
	for _, cancel := range e.cancel {
		cancel()
	}
	e.mu.Unlock()
	e.sessions.Wait()
}

// takeNextTranscript returns the next transcript of the user's speech from Scenario.Hears, or "".
func (e *Emulator) takeNextTranscript() (words string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.words) > 0 {
		words, e.words = e.words[0], e.words[1:]
	}
	return words
}

var slashes = regexp.MustCompile(`//+`)

// ServeHTTP implements http.Handler. The request must have its original path: some SDKs send two slashes before "ws",
// for which http.ServeMux would redirect, and WebSocket clients do not follow redirects.
func (e *Emulator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := slashes.ReplaceAllString(r.URL.Path, "/")
	if to, ok := live.EndpointOf(path); ok {
		e.serveLive(w, r, to)
		return
	}
	e.serveREST(w, r, path)
}

// upgrader accepts every origin, like Google, because the emulator has nothing to protect.
var upgrader = websocket.Upgrader{
	ReadBufferSize:  8 << 10,
	WriteBufferSize: 8 << 10,
	CheckOrigin:     func(*http.Request) bool { return true },
}

func (e *Emulator) serveLive(w http.ResponseWriter, r *http.Request, endpoint live.Endpoint) {
	// The session has its own context, because the request's context ends with the upgrade. Close cancels it.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	s := newSession(e, endpoint)
	if !e.addSession(s, cancel) {
		refusals[http.StatusServiceUnavailable].write(w)
		return
	}
	defer e.removeSession(s)
	refused := checkCredentials(r, endpoint)
	if refused != nil && refused.Code == http.StatusBadRequest { // a bad key is refused only after the setup
		s.refusal, refused = live.NewClosing(live.CloseInvalid, refused.Message), nil
	}
	if refused == nil {
		var dropped bool
		if refused, dropped = s.applyHandshakeFaults(ctx, r); dropped {
			s.report(Event{Kind: EventRefused, Code: websocket.CloseAbnormalClosure})
			dropConnection(w)
			return
		}
	}
	if refused != nil {
		s.report(Event{Kind: EventRefused, Code: refused.Code, Text: refused.Message})
		refused.write(w)
		return
	}
	ws, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // Upgrade has sent an error response
	}
	start := time.Now()
	err = s.run(ctx, ws)
	e.log.Info("live session ended", "connection", s.number, "model", s.setup.Model, "duration", time.Since(start), "reason", err)
}

// addSession numbers a new connection and stores its cancel function. It returns false if the emulator is closed.
func (e *Emulator) addSession(s *session, cancel context.CancelFunc) (isAdded bool) {
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

func (e *Emulator) removeSession(s *session) {
	e.mu.Lock()
	delete(e.cancel, s)
	e.mu.Unlock()
	e.sessions.Done()
}
