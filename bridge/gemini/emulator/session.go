package emulator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge/gemini/emulator/live"
)

// session is one Live connection. Only its loop (run) accesses its state.
type session struct {
	// The following fields do not change.
	e        *Emulator
	endpoint live.Endpoint
	number   int // number of the connection, from 1
	conn     *conn

	refusal *live.Closing // close with which a bad key is refused after the setup; nil if the key is valid

	ctx       context.Context // ends with the connection
	timer     *time.Timer     // fires when the next step of the turn is due
	callbacks chan func() error

	setup        live.Setup
	isOpen       bool // setupComplete was sent
	hasDeparted  bool
	conversation *conversation
	history      []Turn
	inherited    int  // number of turns in history from the session's earlier connections
	appended     int  // number of turns in history that the client has added since the last completed turn
	seeding      bool // the next clientContent is the initial history
	momentCounts map[Moment]int

	vad     *speechDetector
	manual  []int16 // audio since activityStart
	talking bool    // the client is between activityStart and activityEnd
	rate    int     // sample rate of manual

	unfinished     []int16 // unfinished speech when the session departed
	unfinishedRate int

	turn     *turn
	queue    []*script
	voices   int // number of spoken answers so far
	calls    map[string]*call
	lastCall time.Time     // when the newest call was sent
	input    time.Duration // length of the received audio, for the usage
	handleAt time.Duration // value of input at the newest periodic handle
	index    int64         // index of the last client message; the setup is 0
}

func newSession(e *Emulator, to live.Endpoint) *session {
	s := &session{
		e: e, endpoint: to,
		calls:        make(map[string]*call),
		momentCounts: make(map[Moment]int),
		callbacks:    make(chan func() error),
		timer:        time.NewTimer(time.Hour),
	}
	s.timer.Stop()
	return s
}

// run serves the connection until one side ends it, and returns the reason. It waits for all goroutines that it has
// started.
func (s *session) run(ctx context.Context, ws *websocket.Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.ctx, s.conn = ctx, newConn(ctx, ws, &s.e.scenario)
	err := s.loop(ctx)
	s.depart()
	end, refused := errors.AsType[*live.Closing](err)
	readErr := s.conn.close(end)
	cancel()
	s.timer.Stop()
	if _, goodbye := errors.AsType[*websocket.CloseError](readErr); err == nil || !refused && goodbye {
		err = readErr // the reader's error is the cause if a write fails because the client has left
	}
	s.reportEnd(err)
	return err
}

// reportEnd reports how the connection ended.
func (s *session) reportEnd(err error) {
	ev := Event{Kind: EventClosed, Code: websocket.CloseAbnormalClosure}
	if end, ok := errors.AsType[*live.Closing](err); ok {
		ev.Code, ev.Text = end.Code, end.Reason
	} else if end, ok := errors.AsType[*websocket.CloseError](err); ok {
		ev.Code, ev.Text = end.Code, end.Text
	}
	if ev.PCM, ev.Rate = s.unfinished, s.unfinishedRate; !s.isOpen {
		ev.Kind = EventRefused
	}
	s.report(ev)
}

func (s *session) loop(ctx context.Context) error {
	if err := s.start(ctx); err != nil {
		return err
	}
	for {
		var err error
		select {
		case <-ctx.Done():
			return goingAway()
		case data, open := <-s.conn.messages():
			if !open {
				return nil
			}
			err = s.handleMessage(data)
		case <-s.timer.C:
			err = s.proceed()
		case do := <-s.callbacks:
			err = do()
		}
		if err != nil {
			return err
		}
	}
}

// after makes the session's loop call the function do when the time d has passed. An error of the function ends the session.
func (s *session) after(d time.Duration, do func() error) {
	time.AfterFunc(d, func() {
		select {
		case s.callbacks <- do:
		case <-s.ctx.Done():
		}
	})
}

// goingAway returns the error that ends a session because the emulator is being closed.
func goingAway() error {
	return live.NewClosing(websocket.CloseGoingAway, "The service is currently unavailable.")
}

// start waits for the setup and handles it.
func (s *session) start(ctx context.Context) error {
	var data []byte
	select {
	case <-ctx.Done():
		return goingAway()
	case data = <-s.conn.messages():
		if data == nil {
			return errors.New("ended before the setup")
		}
	}
	if s.refusal != nil {
		return s.refusal
	}
	tree, err := live.ParseSetup(data)
	if err != nil {
		return err
	}
	resumption, _ := tree["sessionResumption"].(map[string]any)
	handle, _ := resumption["handle"].(string)
	if s.setup, err = live.ReadSetup(tree, s.endpoint); err != nil {
		return err
	}
	if s.setup.SilenceRequired && s.setup.Detection.SilenceDurationMs == nil {
		s.setup.Detection.SilenceDurationMs = new(longSilence)
	}
	s.vad = newSpeechDetector(s.setup.Detection, 16000, 0)
	if handle != "" {
		if err := s.resume(ctx, handle); err != nil {
			return err
		}
	} else {
		s.conversation = &conversation{}
		s.e.memory.enter(s.conversation, s)
		s.seeding = s.setup.InitialHistory
	}
	return s.open(handle != "")
}

// open accepts the setup: it sends setupComplete.
func (s *session) open(resumed bool) error {
	if err := s.reachMoment(OnSetup); err != nil {
		return err
	}
	s.report(Event{
		Kind: EventOpened, Resumed: resumed, History: s.history, Text: s.setup.Instruction, Tools: s.setup.FunctionNames(),
	})
	s.isOpen = true
	complete := live.Object{}
	if s.endpoint.Vertex {
		complete["sessionId"] = newUUID()
	}
	if err := s.conn.send(live.Object{"setupComplete": complete}); err != nil {
		return err
	}
	s.startTimers()
	return s.reachMoment(OnReady)
}

// sendContent sends a serverContent.
func (s *session) sendContent(fields live.Object) error {
	return s.conn.send(live.Object{"serverContent": fields})
}

// startTimers schedules goAway, the end of the connection and the first handle.
func (s *session) startTimers() {
	sc := &s.e.scenario
	if age := sc.ConnectionAge; age > 0 {
		if sc.GoAwayLead > 0 {
			lead := min(sc.GoAwayLead, age)
			s.after(age-lead, func() error { return s.sendGoAway(lead) })
		}
		s.after(age, s.expire)
	}
	// gemini-3.8-live sends the first handle even if the client has not requested it. It sends no handle on a resumed
	// connection before a turn.
	if s.handlePolicy() == HandlesPrompt && (!s.setup.HandlesAfterTurns || s.inherited == 0) {
		s.after(firstHandle, s.giveHandle)
	}
}

// sendGoAway announces the end of the connection. The Gemini API sends "50s" (recorded twice). The form on Vertex AI is
// not known: the emulator sends a fraction there, which the format allows.
func (s *session) sendGoAway(left time.Duration) error {
	text := seconds(left - time.Millisecond)
	if left%time.Second == 0 && !s.endpoint.Vertex {
		text = fmt.Sprintf("%ds", left/time.Second)
	}
	return s.conn.send(live.Object{"goAway": live.Object{"timeLeft": text}})
}

// expire ends the connection because of its age, unless it is stalled.
func (s *session) expire() error {
	if s.conn.isSilent {
		return nil
	}
	return live.NewClosing(live.ClosePolicy, "")
}
