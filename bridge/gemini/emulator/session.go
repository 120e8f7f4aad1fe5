package emulator

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
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

	// mostHeld bounds what waits for the end of a stall: some minutes of voice. What is more is lost.
	mostHeld = 4096
)

// session is one Live connection. Its loop owns everything in it and is the only one that writes, pongs apart.
type session struct {
	// Static after construction.
	e        *Emulator
	endpoint endpoint
	number   int // of the connection, from 1
	token    *token
	ws       *websocket.Conn

	in     chan []byte // from the reader
	pings  chan string // from the reader, if pongs are slow
	voiced chan voiced // from the goroutines that speak
	work   sync.WaitGroup
	ear    atomic.Pointer[chan struct{}] // not nil: the reader reads nothing before it is closed

	timer  *time.Timer // the next step of a turn
	agenda *agenda

	born         time.Time // when it became a conversation's connection
	setup        setup
	opened       bool // setupComplete was sent, or is held
	departed     bool
	conversation *conversation
	history      []Turn
	seeding      bool // the history is yet to come, in clientContent
	consumed     int  // index of the last message of the client, the setup being 0
	seen         map[Moment]int

	stalled  time.Duration // 0: not
	stallEnd time.Time
	held     []object // what will be sent after it

	vad     *vad
	manual  []int16 // what was said since activityStart
	talking bool    // between activityStart and activityEnd
	rate    int     // of manual
	video   bool    // there were pictures

	unended     []int16 // of the speech under way when the session departed
	unendedRate int

	turn    *turn
	queue   []*script
	toVoice []voiced     // texts for the next goroutine that speaks
	wanted  map[int]bool // serials of texts that are being voiced
	serial  int
	calls   map[string]*call
	asked   time.Time     // when the newest call was sent
	input   time.Duration // audio heard, for the usage
	beep    beeper
}

func newSession(e *Emulator, to endpoint) *session {
	s := &session{
		e: e, endpoint: to,
		// Enough for 5 s of audio in 20 ms; a client that is further ahead waits.
		in:     make(chan []byte, 256),
		pings:  make(chan string, 16), // of which nobody sends more than one in some seconds
		voiced: make(chan voiced),
		calls:  make(map[string]*call),
		wanted: make(map[int]bool),
		seen:   make(map[Moment]int),
		agenda: newAgenda(),
		timer:  time.NewTimer(Forever),
	}
	s.timer.Stop()
	return s
}

// run serves the connection until one side ends it, and returns why. It waits for all that it has started.
func (s *session) run(ctx context.Context, ws *websocket.Conn) error {
	s.ws = ws
	ctx, cancel := context.WithCancel(ctx)
	s.ws.SetReadLimit(messageLimit)
	if s.e.scenario.SlowPongs > 0 {
		s.ws.SetPingHandler(func(data string) error {
			select {
			case s.pings <- data:
			default:
			}
			return nil
		})
	}
	var readErr error
	s.work.Go(func() {
		defer close(s.in)
		readErr = s.read(ctx)
	})
	err := s.loop(ctx)
	s.depart()
	end, told := isClosing(err)
	if told && end.code != websocket.CloseAbnormalClosure {
		s.goodbye(end)
	}
	cancel()
	_ = s.ws.Close()
	for range s.in {
		continue // the reader may be waiting to hand over
	}
	s.work.Wait()
	s.timer.Stop()
	s.agenda.timer.Stop()
	if _, goodbye := errors.AsType[*websocket.CloseError](readErr); err == nil || !told && goodbye {
		err = readErr // a write may have failed because the client has left
	}
	s.tellEnd(err)
	return err
}

// tellEnd reports how the connection ended.
func (s *session) tellEnd(err error) {
	ev := Event{What: Closed, Code: websocket.CloseAbnormalClosure}
	if end, ok := errors.AsType[*closing](err); ok {
		ev.Code, ev.Text = end.code, end.reason
	} else if end, ok := errors.AsType[*websocket.CloseError](err); ok {
		ev.Code, ev.Text = end.Code, end.Text
	}
	if ev.PCM, ev.Rate = s.unended, s.unendedRate; !s.opened {
		ev.What = Refused
	}
	s.tell(ev)
}

// read hands the client's messages to the loop.
func (s *session) read(ctx context.Context) error {
	for {
		if ear := s.ear.Load(); ear != nil {
			select {
			case <-*ear:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
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
		in := s.in
		if s.ear.Load() != nil {
			in = nil
		}
		var err error
		select {
		case <-ctx.Done():
			return goingAway()
		case data, open := <-in:
			if !open {
				return nil
			}
			err = s.message(data)
		case data := <-s.pings:
			s.agenda.add(s.e.scenario.SlowPongs, func() error { return s.pong(data) })
		case v := <-s.voiced:
			err = s.answerVoiced(v)
		case <-s.timer.C:
			err = s.proceed()
		case <-s.agenda.timer.C:
			err = s.agenda.run()
		}
		if err != nil {
			return err
		}
		s.voice(ctx)
	}
}

// goingAway ends a session because the emulator ends.
func goingAway() error { return &closing{closeGoingAway, "The service is currently unavailable."} }

// start takes the setup.
func (s *session) start(ctx context.Context) error {
	var data []byte
	select {
	case <-ctx.Done():
		return goingAway()
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
	if s.setup, err = readSetup(tree, s.endpoint); err != nil {
		return err
	}
	s.vad, s.born = newVAD(s.setup.vad, 16000), time.Now()
	if handle != "" {
		if err := s.resume(ctx, handle); err != nil {
			return err
		}
	} else {
		s.conversation = &conversation{}
		s.e.memory.enter(s.conversation, s, true)
		s.seeding = s.setup.initialHistory
	}
	if !s.e.occupy(s) {
		return &closing{closeInternal, "RESOURCE_EXHAUSTED: " + quotaExceeded}
	}
	return s.open(handle != "")
}

// open accepts the setup.
func (s *session) open(resumed bool) error {
	if err := s.moment(OnSetup); err != nil {
		return err
	}
	if resumed {
		if err := s.moment(OnResume); err != nil {
			return err
		}
	}
	s.tell(Event{
		What: Opened, Resumed: resumed, History: s.history, Text: s.setup.instruction, Tools: sortedKeys(s.setup.functions),
	})
	s.opened = true
	if err := s.send(object{"setupComplete": object{}}); err != nil {
		return err
	}
	s.live()
	return s.moment(OnReady)
}

// send writes one message, as a binary frame, which is what Google sends. During a stall it waits, or is lost if there
// is no end to it.
func (s *session) send(message object) error {
	switch s.stalled {
	case 0:
	case Forever:
		return nil
	default:
		if len(s.held) < mostHeld {
			s.held = append(s.held, message)
		}
		return nil
	}
	if _, first := message["setupComplete"]; s.e.scenario.EmptyMessages && !first {
		for _, empty := range []object{{}, {"serverContent": object{}}} {
			if err := s.write(encode(empty)); err != nil {
				return err
			}
		}
	}
	return s.write(encode(s.e.scenario.distort(message)))
}

func (s *session) write(data []byte) error {
	if err := s.ws.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	return s.ws.WriteMessage(websocket.BinaryMessage, data)
}

// pong answers a ping. It is no message: a model that hangs sits behind a server that answers. An error is the reader's
// to notice.
func (s *session) pong(data string) error {
	_ = s.ws.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(patience))
	return nil
}

// content sends a serverContent.
func (s *session) content(fields object) error { return s.send(object{"serverContent": fields}) }
