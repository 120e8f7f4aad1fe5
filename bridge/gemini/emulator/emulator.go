// Package emulator is a Gemini Live server that runs without a key: same paths, same frames, same strictness, and a
// model that is a parrot. Voxgate runs on it in tests, in benchmarks, and when no key is set.
//
// The parrot says back what it hears, speaks what is typed, and knows some commands as typed text:
//
//	/tool NAME {json}   calls a declared function with these arguments
//	/ground             answers with the metadata of a Google search
//	/image              answers with an image part besides the voice
//	/history            says what it remembers of the conversation
//
// Keys are not checked, except that keys which begin with "invalid", "forbidden" or "exhausted" are refused as Google
// refuses them.
package emulator

import (
	"context"
	"log/slog"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// Persona is how the model behaves.
type Persona int

const (
	// Parrot says back what it hears, with the events of a real turn around it.
	Parrot Persona = iota

	// Beep answers the first loud 20 ms after silence with a short tone, at once and in one message. It measures the
	// latency of everything else.
	Beep
)

// NoVoice as Options.Espeak makes the parrot whistle what it would speak.
const NoVoice = "none"

// Options are the settings of New. The zero value is fine.
type Options struct {
	Logger  *slog.Logger // nil discards
	Persona Persona

	// Espeak is the program that speaks typed text. "" looks for espeak-ng, NoVoice has none.
	Espeak string
}

// Emulator serves the Live API and a little of the REST API on any prefix of any path. It is an http.Handler.
type Emulator struct {
	log     *slog.Logger
	persona Persona
	espeak  string // path, "" without

	tokens tokenStore
	memory memory

	sessions sync.WaitGroup // Add under mu, while not closed

	mu     sync.Mutex
	closed bool
	cancel map[*session]context.CancelFunc // of those that run
}

// New returns an emulator. Close ends it.
func New(o Options) *Emulator {
	e := &Emulator{
		log: o.Logger, persona: o.Persona, espeak: o.Espeak,
		cancel: make(map[*session]context.CancelFunc),
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

// livePath matches the Live API below any prefix; the first group is set for Google's own API and names its version,
// the last one is set for ephemeral tokens. Vertex has a slash where the Gemini API has a dot.
var livePath = regexp.MustCompile(`/ws/google\.(?:ai\.generativelanguage\.(v1|v1beta|v1alpha)\.GenerativeService|` +
	`cloud\.aiplatform\.(?:v1|v1beta1)\.LlmBidiService)[./]BidiGenerateContent(Constrained)?$`)

var slashes = regexp.MustCompile(`//+`)

// ServeHTTP implements http.Handler. It must see the path as it came: the JavaScript and Python SDKs send two slashes
// before "ws", which http.ServeMux answers with a redirect that no WebSocket client follows.
func (e *Emulator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := slashes.ReplaceAllString(r.URL.Path, "/")
	if m := livePath.FindStringSubmatch(path); m != nil {
		e.serveLive(w, r, m[1], m[2] != "")
		return
	}
	e.serveREST(w, r, path)
}

// upgrader accepts every origin: so does Google, and there is nothing here to protect.
var upgrader = websocket.Upgrader{
	ReadBufferSize:  8 << 10,
	WriteBufferSize: 8 << 10,
	CheckOrigin:     func(*http.Request) bool { return true },
}

func (e *Emulator) serveLive(w http.ResponseWriter, r *http.Request, version string, constrained bool) {
	token, refused := e.admit(r, constrained)
	if refused != nil {
		refused.write(w)
		return
	}
	// The session's end is a matter of the emulator: the request's context ends with the upgrade.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	s := newSession(e, version, token)
	if !e.enter(s, cancel) {
		(&apiError{http.StatusServiceUnavailable, "UNAVAILABLE", "The service is currently unavailable."}).write(w)
		return
	}
	defer e.leave(s)
	ws, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // Upgrade has answered
	}
	start := time.Now()
	err = s.run(ctx, ws)
	e.log.Info("live session ended", "model", s.setup.model, "duration", time.Since(start), "reason", err)
}

// enter notes a session that begins, unless the emulator is closed.
func (e *Emulator) enter(s *session, cancel context.CancelFunc) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.sessions.Add(1)
	e.cancel[s] = cancel
	return true
}

func (e *Emulator) leave(s *session) {
	e.mu.Lock()
	delete(e.cancel, s)
	e.mu.Unlock()
	e.sessions.Done()
}

// trimModel takes "models/" or the path of a Vertex model off a name.
func trimModel(name string) string {
	return name[strings.LastIndexByte(name, '/')+1:]
}
