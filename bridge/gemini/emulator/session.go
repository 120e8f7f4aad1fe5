package emulator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge/gemini/emulator/live"
)

// session is one Live connection. Its loop owns all its state.
type session struct {
	// Constant after construction.
	e        *Emulator
	endpoint live.Endpoint
	number   int // number of the connection, from 1
	conn     *conn

	refusal *live.Closing // refusal because of the key; nil if the key is valid

	ctx       context.Context // ends with the connection
	timer     *time.Timer     // the next step of a turn
	callbacks chan func() error

	setup        live.Setup
	isOpen       bool // setupComplete was sent
	hasDeparted  bool
	conversation *conversation
	history      []Turn
	inherited    int  // number of turns from the session's earlier connections
	appended     int  // number of turns added by the client since the last completed turn
	seeding      bool // the initial history is still to come, in clientContent
	momentCounts map[Moment]int

	vad     *speechDetector
	manual  []int16 // audio since activityStart
	talking bool    // between activityStart and activityEnd
	rate    int     // sample rate of manual

	unfinished     []int16 // unfinished speech when the session departed
	unfinishedRate int

	turn     *turn
	queue    []*script
	voices   int // number of spoken answers so far
	calls    map[string]*call
	lastCall time.Time     // when the newest call was sent
	input    time.Duration // audio received, for the usage
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

// run serves the connection until one side ends it, and returns the reason. It waits for everything it has started.
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
		err = readErr // a write may have failed because the client has left
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

// after makes the session's loop call do after the time d. An error of do ends the session.
func (s *session) after(d time.Duration, do func() error) {
	time.AfterFunc(d, func() {
		select {
		case s.callbacks <- do:
		case <-s.ctx.Done():
		}
	})
}

// goingAway ends a session because the emulator closes.
func goingAway() error {
	return live.NewClosing(websocket.CloseGoingAway, "The service is currently unavailable.")
}

// start handles the setup.
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

// open accepts the setup.
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
	// gemini-3.8-live sends the first handle whether it was requested or not, and none on a resumed connection without a turn.
	if s.handlePolicy() == HandlesPrompt && (!s.setup.HandlesAfterTurns || s.inherited == 0) {
		s.after(firstHandle, s.giveHandle)
	}
}

// sendGoAway announces the end of the connection. The Gemini API sends "50s" (recorded twice). For Vertex AI nothing is
// known: the emulator sends a fraction, which the format allows.
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
