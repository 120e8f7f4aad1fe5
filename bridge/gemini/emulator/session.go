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

func newSession(e *Emulator, endpoint live.Endpoint) *session {
	s := &session{
		e: e, endpoint: endpoint,
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
	err := s.runLoop(ctx)
	s.releaseConversation()
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

func (s *session) runLoop(ctx context.Context) error {
	if err := s.acceptSetup(ctx); err != nil {
		return err
	}
	for {
		var err error
		select {
		case <-ctx.Done():
			return newGoingAwayError()
		case data, open := <-s.conn.messages():
			if !open {
				return nil
			}
			err = s.handleMessage(data)
		case <-s.timer.C:
			err = s.sendDueSteps()
		case do := <-s.callbacks:
			err = do()
		}
		if err != nil {
			return err
		}
	}
}

// callAfter makes the session's loop call f after the duration d. If f returns an error, the session ends.
func (s *session) callAfter(d time.Duration, f func() error) {
	time.AfterFunc(d, func() {
		select {
		case s.callbacks <- f:
		case <-s.ctx.Done():
		}
	})
}

// newGoingAwayError returns the error that ends a session because the emulator is being closed.
func newGoingAwayError() error {
	return live.NewClosing(websocket.CloseGoingAway, "The service is currently unavailable.")
}

// acceptSetup waits for the setup and handles it.
func (s *session) acceptSetup(ctx context.Context) error {
	var data []byte
	select {
	case <-ctx.Done():
		return newGoingAwayError()
	case data = <-s.conn.messages():
		if data == nil {
			return errors.New("ended before the setup")
		}
	}
	if s.refusal != nil {
		return s.refusal
	}
	tree, err := live.ParseSetupMessage(data)
	if err != nil {
		return err
	}
	resumption, _ := tree["sessionResumption"].(map[string]any)
	handle, _ := resumption["handle"].(string)
	if s.setup, err = live.BuildSetup(tree, s.endpoint); err != nil {
		return err
	}
	if s.setup.SilenceRequired && s.setup.Detection.SilenceDurationMs == nil {
		s.setup.Detection.SilenceDurationMs = new(longSilence)
	}
	s.vad = newSpeechDetector(s.setup.Detection, 16000, 0)
	if handle != "" {
		if err := s.resumeSession(ctx, handle); err != nil {
			return err
		}
	} else {
		s.conversation = &conversation{}
		s.e.memory.enterConversation(s.conversation, s)
		s.seeding = s.setup.InitialHistory
	}
	return s.completeSetup(handle != "")
}

// completeSetup accepts the setup: it sends setupComplete.
func (s *session) completeSetup(isResumed bool) error {
	if err := s.reachMoment(OnSetup); err != nil {
		return err
	}
	s.report(Event{
		Kind: EventOpened, Resumed: isResumed, History: s.history, Text: s.setup.Instruction, Tools: s.setup.FunctionNames(),
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
			s.callAfter(age-lead, func() error { return s.sendGoAway(lead) })
		}
		s.callAfter(age, s.expire)
	}
	// gemini-3.8-live sends the first handle even if the client has not requested it. It sends no handle on a resumed
	// connection before a turn.
	if s.resumptionHandlePolicy() == HandlesPrompt && (!s.setup.HandlesAfterTurns || s.inherited == 0) {
		s.callAfter(firstHandle, s.sendHandle)
	}
}

// sendGoAway announces the end of the connection. The Gemini API sends whole seconds, "50s" (recorded twice). The form
// on Vertex AI is unknown. There the emulator sends a fraction, which the format allows.
func (s *session) sendGoAway(left time.Duration) error {
	text := formatSeconds(left - time.Millisecond)
	if left%time.Second == 0 && !s.endpoint.Vertex {
		text = fmt.Sprintf("%ds", left/time.Second)
	}
	return s.conn.send(live.Object{"goAway": live.Object{"timeLeft": text}})
}

// expire ends the connection because its time is over. It does nothing on a stalled connection.
func (s *session) expire() error {
	if s.conn.isSilent {
		return nil
	}
	return live.NewClosing(live.ClosePolicy, "")
}
