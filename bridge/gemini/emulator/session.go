package emulator

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

const (
	// messageLimit is what a client may send at once; Google's own limit is not published.
	messageLimit = 16 << 20

	// patience is how long a client may not read.
	patience = 5 * time.Second

	// farewell is how long the answer to a close frame is waited for.
	farewell = time.Second

	// firstHandle is when the handle for resumption comes after setupComplete, measured on gemini-3.8-live.
	firstHandle = 100 * time.Millisecond
)

// session is one Live connection. Its loop owns everything in it and is the only one that writes.
type session struct {
	e       *Emulator
	ws      *websocket.Conn
	version string // of the API, "" for Vertex
	token   *token

	in     chan []byte // from the reader
	voiced chan voiced // from the goroutines that speak
	work   sync.WaitGroup
	timer  *time.Timer // the next step of a turn
	handle *time.Timer // the first handle

	setup   setup
	history []memo
	seeding bool // the history is yet to come, in clientContent

	vad     *vad
	manual  []int16 // what was said since activityStart
	talking bool    // between activityStart and activityEnd
	rate    int     // of manual

	turn    *turn
	queue   []*script
	toVoice []voiced     // texts for the next goroutine that speaks
	wanted  map[int]bool // serials of texts that are being voiced
	serial  int
	calls   map[string]*call
	input   time.Duration // audio heard, for the usage
	beep    beeper
}

func newSession(e *Emulator, version string, t *token) *session {
	return &session{
		e: e, version: version, token: t,
		// Enough for 5 s of audio in 20 ms; a client that is further ahead waits.
		in:     make(chan []byte, 256),
		voiced: make(chan voiced),
		calls:  make(map[string]*call),
		wanted: make(map[int]bool),
	}
}

// run serves the connection until one side ends it, and returns why. It waits for all that it has started.
func (s *session) run(ctx context.Context, ws *websocket.Conn) error {
	s.ws = ws
	ctx, cancel := context.WithCancel(ctx)
	s.timer, s.handle = time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	s.timer.Stop()
	s.handle.Stop()
	s.ws.SetReadLimit(messageLimit)
	var readErr error
	s.work.Go(func() {
		defer close(s.in)
		readErr = s.read(ctx)
	})
	err := s.loop(ctx)
	if end, told := isClosing(err); told {
		s.goodbye(end)
	}
	cancel()
	_ = s.ws.Close()
	for range s.in {
		continue // the reader may be waiting to hand over
	}
	s.work.Wait()
	s.timer.Stop()
	s.handle.Stop()
	if err == nil {
		return readErr
	}
	return err
}

// read hands the client's messages to the loop.
func (s *session) read(ctx context.Context) error {
	for {
		_, data, err := s.ws.ReadMessage() // text or binary
		if err != nil {
			return err
		}
		select {
		case s.in <- data:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// goodbye sends a close frame and waits for the client's. A connection closed with unread input is reset, and the
// reset overtakes the frame that says why.
func (s *session) goodbye(end *closing) {
	if s.ws.WriteControl(websocket.CloseMessage, end.frame(), time.Now().Add(farewell)) != nil {
		return
	}
	deadline := time.NewTimer(farewell)
	defer deadline.Stop()
	for {
		select {
		case _, open := <-s.in:
			if !open {
				return
			}
		case <-s.voiced:
		case <-deadline.C:
			return
		}
	}
}

func (s *session) loop(ctx context.Context) error {
	if err := s.start(ctx); err != nil {
		return err
	}
	for {
		var err error
		select {
		case <-ctx.Done():
			return &closing{closeGoingAway, "The service is currently unavailable."}
		case data, open := <-s.in:
			if !open {
				return nil
			}
			err = s.message(data)
		case v := <-s.voiced:
			err = s.answerVoiced(v)
		case <-s.timer.C:
			err = s.proceed()
		case <-s.handle.C:
			err = s.giveHandle()
		}
		if err != nil {
			return err
		}
		s.voice(ctx)
	}
}

// start takes the setup.
func (s *session) start(ctx context.Context) error {
	var data []byte
	select {
	case <-ctx.Done():
		return &closing{closeGoingAway, "The service is currently unavailable."}
	case data = <-s.in:
		if data == nil {
			return errors.New("ended before the setup")
		}
	}
	tree, err := decodeSetup(data)
	if err != nil {
		return err
	}
	resumption, _ := tree["sessionResumption"].(map[string]any)
	handle, _ := resumption["handle"].(string)
	if s.token != nil {
		if !s.e.tokens.spend(s.token, handle != "") {
			return &closing{closePolicy, "Token has been used too many times or has expired for new sessions."}
		}
		tree = s.token.lock(tree)
	}
	if s.setup, err = readSetup(tree, s.version); err != nil {
		return err
	}
	s.vad = newVAD(s.setup.vad, 16000)
	if handle != "" {
		saved, ok := s.e.memory.find(handle)
		switch {
		case !ok:
			return &closing{closePolicy, "BidiGenerateContent session not found"}
		case saved.model != s.setup.model:
			return invalid("Request contains an invalid argument.") // the model cannot change
		}
		s.history = saved.history
	} else {
		s.seeding = s.setup.initialHistory
	}
	if err := s.send(object{"setupComplete": object{}}); err != nil {
		return err
	}
	if s.setup.resumption {
		s.handle.Reset(firstHandle)
	}
	return nil
}

// send writes one message, as a binary frame, which is what Google sends.
func (s *session) send(message object) error {
	if err := s.ws.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	return s.ws.WriteMessage(websocket.BinaryMessage, encode(message))
}

// content sends a serverContent.
func (s *session) content(fields object) error { return s.send(object{"serverContent": fields}) }

// memo is one turn as it is remembered.
type memo struct{ role, text string }

// saved is a session that can be continued.
type saved struct {
	model   string
	history []memo
}

// memory holds the sessions that handles were given for. A handle is never taken back, only forgotten.
type memory struct {
	mu      sync.Mutex
	handles map[string]saved
	order   []string
}

// maxHandles bounds the memory of a long-running emulator.
const maxHandles = 4096

func (m *memory) save(s saved) string {
	handle := rand.Text()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.handles == nil {
		m.handles = make(map[string]saved)
	}
	if len(m.order) >= maxHandles {
		delete(m.handles, m.order[0])
		m.order = m.order[1:]
	}
	m.handles[handle] = s
	m.order = append(m.order, handle)
	return handle
}

func (m *memory) find(handle string) (saved, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.handles[handle]
	return s, ok
}

// giveHandle sends a handle for the session as it is now.
func (s *session) giveHandle() error {
	handle := s.e.memory.save(saved{s.setup.model, s.history[:len(s.history):len(s.history)]})
	return s.send(object{"sessionResumptionUpdate": object{"newHandle": handle, "resumable": true}})
}

// remember adds a turn to the history.
func (s *session) remember(role, text string) {
	const most = 200 // turns; nothing but /history reads them
	if len(s.history) >= most {
		s.history = s.history[1:]
	}
	s.history = append(s.history[:len(s.history):len(s.history)], memo{role, text})
}
