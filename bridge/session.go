package bridge

import (
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"voxgate/bridge/alarm"
	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/gemini/writer"
	"voxgate/bridge/keeper"
	"voxgate/bridge/toolcalls"
	"voxgate/bridge/transcript"
	"voxgate/bridge/uplink"
	"voxgate/tools"
)

const (
	// farewellTime is how long the model may go on with an answer when the conversation is to end, and again with its
	// goodbye.
	farewellTime = 15 * time.Second

	// lastWordTime is how long the model may take to begin its goodbye after the tool that ends the conversation has
	// answered, and lastWordSaid the same if it spoke before the call, which may have been the goodbye.
	lastWordTime = 6 * time.Second
	lastWordSaid = 2 * time.Second
)

// Session is one conversation. Its loop alone changes its state; the methods may be called from any goroutine.
type Session struct {
	// Static after newSession. Each of these has a mutex of its own, or belongs to the loop.
	*audience
	streams
	received
	id         string
	host       *shared
	log        *slog.Logger
	observer   observer
	open       Open         // as the first caller wanted it; the loop may change its Agent
	own        []tools.Tool // that run here
	transcript *transcript.Transcript
	keeper     *keeper.Keeper
	writer     *writer.Writer // for a model that writes
	calls      *toolcalls.Calls
	answer     *answer
	status     *status
	spending   *spending
	greeted    atomic.Bool
	requests   chan request
	visits     chan *visit   // of callers, when they come and when they leave
	over       chan struct{} // closed when the loop has ended; ended says why
	crashed    chan error    // why it must end: one of its goroutines has panicked

	loopState
}

// loopState is what the loop alone reads and writes.
type loopState struct {
	started   time.Time
	answers   string // the agent's name
	clock     *alarm.Clock[alarmKind]
	parked    bool
	paused    bool
	steering  steering
	undo      []basis // what was before each change that has no answer, in the order of the answers
	handover  handover
	person    person
	held      wire.Parts // of a typed turn that is not complete, for a model that takes only whole turns
	reassured bool       // the person has heard oneMoment in this wait
	ending
}

// unheard reports whether nobody would hear an answer.
func (l *loopState) unheard() bool { return l.parked || l.paused }

// ending is how the conversation comes to its end.
type ending struct {
	leaving  error          // it ends with this when the answer has been heard
	lastWord bool           // but not before the model has begun its answer to the tool that ends it
	appended bool           // parts of a turn went up that no turn has completed
	noSpeech noSpeechFilter // of the model's turn under way
	farewell string         // and not before the model was asked so to say goodbye, and has; empty: it was, or need not
	broke    bool           // there is no money, or there are no tokens, for a turn that has not begun
	ended    error          // it ends with this now
}

// end ends the conversation for a reason; the first one counts.
func (e *ending) end(reason error) {
	if e.ended == nil {
		e.ended = reason
	}
}

// person is what the person does.
type person struct {
	speaking  bool
	speeches  int  // so far
	prompted  int  // how often the model has asked, in the silence that there is, whether they are there
	told      bool // the model was asked to say that a tool takes long
	lossKnown bool // the client knows that some speech was lost
	gateKnown bool // or that it was not heard because of a tool
}

// alarmKind is something for the loop to do at a certain time.
type alarmKind int

const (
	alarmMicrophone alarmKind = iota // does it still send?
	alarmAnswers                     // the turn that has called tools does not end
	alarmPark                        // nobody will come back
	alarmLimit                       // the conversation has lasted as long as it may
	alarmFarewell                    // the last answer was long enough
	alarmLastWord                    // there is no goodbye
	alarmMove                        // the caller may be asked again to go to another gateway
	alarmSilence                     // the person has said nothing for long
	alarmTool                        // a tool has taken long, and nobody says anything
	alarmTurn                        // the model has not ended its turn
	numAlarms
)

// request is a command on its way to the loop. answer, which has room for one, gets its outcome.
type request struct {
	command Command
	answer  chan error
}

// ID names the conversation in logs and to the client.
func (s *Session) ID() string { return s.id }

// Origin is where the conversation comes from.
func (s *Session) Origin() Origin { return s.open.Origin }

// Greet has the model begin by [Open.Greeting], if there is one. Once in a conversation it does something.
func (s *Session) Greet() error {
	if s.open.Greeting == "" || s.greeted.Swap(true) {
		return nil
	}
	return s.Do(Respond{Instruction: s.open.Greeting})
}

// Own is [Open.Own] of the caller that began the conversation.
func (s *Session) Own() any { return s.open.Own }

// Done is closed when the conversation has ended; Err then says why.
func (s *Session) Done() <-chan struct{} { return s.over }

// Err is why the conversation has ended. It must not be called before Done is closed.
func (s *Session) Err() error { return s.ended }

// Crash ends the conversation because a goroutine of it or of its caller has panicked. Any goroutine may call it; it does not block.
func (s *Session) Crash(err error) {
	select {
	case s.crashed <- err:
	default: // another one has come first
	}
}

// Watch has notify called with every event that the caller gets from now on, after a [SetupComplete] and the [History]
// so far. The rules of [Caller].Notify hold for it. A watcher may also command the session, and is asked to run the
// functions that [Steer] has declared. It lasts until stop is called or the conversation ends, when Done is closed.
func (s *Session) Watch(notify func(Event)) (stop func(), err error) {
	w := &watcher{notify}
	if err := s.Do(watch{w}); err != nil {
		return nil, err
	}
	return func() { s.unwatch(w) }, nil
}

// Do has a command carried out, in order with the others. It blocks until the session has taken it, for microseconds as
// a rule; an error, which [AsError] explains, means that it was not taken. After the end of the conversation it returns
// an error at once. It must not be called by [Caller].Notify.
func (s *Session) Do(c Command) error {
	if mark, ok := c.(Activity); ok { // not through the loop: it must not lose its place among the audio
		select {
		case <-s.over:
			return errOver
		default:
			return markRefused(s.up.QueueMark(uplink.Mark(mark)))
		}
	}
	r := request{command: c, answer: make(chan error, 1)}
	select {
	case s.requests <- r:
	case <-s.over:
		return errOver
	}
	select {
	case err := <-r.answer:
		return err
	case <-s.over:
	}
	select { // what was taken may be what has ended it
	case err := <-r.answer:
		return err
	default:
		return errOver
	}
}

func (s *Session) describe() Info {
	return Info{
		ID: s.id, Door: s.open.Origin.Door, Agent: s.answers, Identity: s.open.Origin.Identity, Key: s.open.Origin.Key,
		Attributes: s.open.Origin.Attributes,
		Step:       s.steering.flow.Step, Model: s.keeper.Config().Model, State: s.status.state, Started: s.started, Turns: s.answer.number - 1,
		Tokens: s.spending.meter.Total().Total, Dollars: s.spending.dollars(),
		Latency: time.Duration(s.answer.latest.Load()), Loss: s.loss.shares(),
	}
}

func (s *Session) counts() Counts {
	c := Counts{Tokens: s.spending.meter.Total(), Links: s.keeper.Counts(), Voice: s.voice.Stats()}
	c.Up.Sent, c.Up.Replayed = s.up.SentChunks.Load(), s.up.ReplayedChunks.Load()
	c.Up.Dropped, c.Up.Speech, c.Up.Gated = s.up.DroppedChunks.Load(), s.up.LostSpeechChunks.Load(), s.up.GatedChunks.Load()
	return c
}

// setupComplete is what the model is set up with now.
func (s *Session) setupComplete() SetupComplete {
	config := s.keeper.Config()
	done := SetupComplete{
		SessionID: s.id, Started: s.started, Model: config.Model, Backend: s.host.options.Backend,
		EffectiveConfig: config.Effective(), Step: s.steering.flow.Step, Recording: s.recording.running(), Tools: []Tool{},
	}
	for _, f := range config.Functions {
		where := setup.InClient
		if f.Where == setup.InGateway {
			where = f.Where
		}
		done.Tools = append(done.Tools, Tool{
			Name: f.Name, Title: f.Title, Behavior: f.Behavior, Scheduling: f.Scheduling, Where: string(where),
		})
	}
	return done
}

// resumable reports whether the conversation waits for a lost caller.
func (s *Session) resumable() bool {
	return s.open.Resumable && s.host.options.Park > 0 && s.keeper.Config().Options.Resumption
}

// read parses a configuration of the caller's, together with what it may not change.
func (s *Session) read(raw json.RawMessage) (setup.Config, error) {
	config, err := setup.Parse(s.open.layered(raw, &s.steering), "payload", s.host.scope(s.own, &s.open, s.steering.flow))
	if err == nil {
		err = s.open.Grant.allows(config, "payload")
	}
	if err == nil {
		_, err = s.host.afford(s.open, config, "payload")
	}
	if err == nil {
		s.steering.raw = raw
	}
	return config, err
}

// asked begins to wait for the answer to words that go to the model now, and interrupt it by a cause.
func (s *Session) asked(by Cause) {
	s.status.apologise(false)
	s.answer.ask(time.Now())
	s.answer.prompts.words(by)
	s.keeper.ExpectReply(keeper.ForText)
}

// goodbyeInSilence is the instruction by which the model says goodbye to a person who does not answer any more.
const goodbyeInSilence = "The person does not answer any more. " +
	"Say goodbye in one short sentence, in the language that you have spoken so far."

// endAfterSpeaking ends the session for a reason when the model has finished speaking: see endIfSaid.
func (s *Session) endAfterSpeaking(reason error) {
	if s.leaving != nil {
		return
	}
	s.leaving, s.lastWord = reason, s.calls.HasRunningCall()
	switch reason {
	case ErrTimeLimit:
		s.farewell = s.open.Farewell
	case ErrSilence:
		s.farewell = goodbyeInSilence
	}
	s.clock.Set(alarmFarewell, farewellTime)
}

// endOverBudget ends the session, after what the model has begun to say, if there is a limit that it has reached. Nothing goes up any
// more: the model would be asked again.
func (s *Session) endOverBudget(limit error) {
	if limit == nil || s.broke {
		return
	}
	s.broke = true
	s.up.SetPaused(true)
	s.calls.CancelAll()
	s.endAfterSpeaking(limit) // unless it is to end anyway: then there is no goodbye any more
	s.farewell, s.lastWord = "", false
}

// stateNow is the state that follows from what is known.
func (s *Session) stateNow() State {
	if s.parked {
		return StateParked
	}
	switch s.keeper.Phase() {
	case keeper.Dialing:
		return StateDialing
	case keeper.SettingUp:
		return StateSetup
	case keeper.Resuming:
		return StateResuming
	case keeper.Reseeding:
		return StateReseeding
	}
	switch {
	case s.keeper.IsReplacementPlanned():
		return StateDraining
	case s.calls.HasRunningCall():
		return StateTool
	}
	return StateLive
}

// due reports whether the person waits for an answer.
func (s *Session) due() bool {
	if s.unheard() || s.person.speaking {
		return false
	}
	return s.answer.turn.state == turnThinking || s.answer.working || s.calls.HasRunningCall() || s.keeper.ReplyPending()
}

// received remembers the newest messages of the client by their ids. Its methods may be called by any goroutine.
type received struct {
	mu  sync.Mutex
	ids []string
}

// maxReceived is how many ids of messages are remembered.
const maxReceived = 256

// Arrived notes that the client's message of this id has arrived, and reports false if it had before: a duplicate to be
// ignored.
func (r *received) Arrived(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.ids, id) {
		return false
	}
	if len(r.ids) == maxReceived {
		r.ids = slices.Delete(r.ids, 0, 1)
	}
	r.ids = append(r.ids, id)
	return true
}

func (r *received) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ids)
}
