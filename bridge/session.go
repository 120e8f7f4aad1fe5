package bridge

import (
	"encoding/json"
	"fmt"
	"io"
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
	"voxgate/media"
	"voxgate/media/record"
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
	id         string
	host       *shared
	log        *slog.Logger
	observer   observer
	open       Open         // as the first caller wanted it; the loop may change its Agent
	own        []tools.Tool // that run here
	voice      *voice
	up         *uplink.Uplink
	transcript *transcript.Transcript
	keeper     *keeper.Keeper
	writer     *writer.Writer // for a model that writes
	calls      *toolcalls.Calls
	answer     *answer
	status     *status
	spending   *spending
	recording  *recording
	received   received
	loss       losses
	greeted    atomic.Bool
	requests   chan request
	visits     chan *visit   // of callers, when they come and when they leave
	over       chan struct{} // closed when the loop has ended; ended says why

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
	handover  handover
	person    person
	held      wire.Parts // of a typed turn that is not complete, for a model that takes only whole turns
	reassured bool       // the person has heard oneMoment in this wait
	leaving   error      // the conversation ends with this when the answer has been heard
	lastWord  bool       // but not before the model has begun its answer to the tool that ends it
	farewell  string     // and not before the model was asked so to say goodbye, and has; empty: it was, or need not
	broke     bool       // there is no money, or there are no tokens, for a turn that has not begun
	ended     error      // the conversation ends with this now
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
	alarmPark                        // nobody will come back
	alarmLimit                       // the conversation has lasted as long as it may
	alarmFarewell                    // the last answer was long enough
	alarmLastWord                    // there is no goodbye
	alarmMove                        // the caller may be asked again to go to another gateway
	alarmSilence                     // the person has said nothing for long
	alarmTool                        // a tool has taken long, and nobody says anything
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

// Mic opens a microphone for mono PCM at rate Hz, 8000 to 48000. Audio goes to the model at this rate.
func (s *Session) Mic(rate int) (*Microphone, error) {
	if rate < 8000 || rate > 48000 {
		return nil, fmt.Errorf("a sample rate of %d Hz is not between 8000 and 48000", rate)
	}
	return &Microphone{up: s.up, tap: s.recording, rate: rate}, nil
}

// Recorded reports whether what is said now is recorded.
func (s *Session) Recorded() bool { return s.recording.running() }

// Hear has l hear the conversation from now on, until stop. Any goroutine may call it.
func (s *Session) Hear(l Listener) (stop func(), err error) {
	r := s.recording
	if err := r.admit(); err != nil {
		return nil, err
	}
	r.add(l)
	return func() {
		r.remove(l)
		r.leave()
	}, nil
}

// Listen writes both sides of the conversation to w from now on, about two seconds late: Ogg Opus, the person left, the model right. failed
// is closed when w has refused a write. stop ends it; it waits for the last write, and closes w. Any goroutine may call it.
func (s *Session) Listen(w io.WriteCloser) (failed <-chan struct{}, stop func() error, err error) {
	r := s.recording
	if err := r.admit(); err != nil {
		return nil, nil, err
	}
	f, err := record.New(w, time.Now())
	if err != nil {
		r.leave()
		return nil, nil, err
	}
	r.add(f)
	return f.Failed(), func() error {
		defer r.leave()
		r.remove(f)
		return f.Close()
	}, nil
}

// Attach says where the voice goes from now on; nil discards it.
func (s *Session) Attach(out media.Output) { s.voice.Attach(out) }

// Hold keeps the voice (its newest 10 s) instead of playing it, until Hold(false): for an output that will soon be
// attached. [Pause] is for a person who does not listen.
func (s *Session) Hold(on bool) { s.voice.Hold(on) }

// SetFrame gives the model a picture to look at. The newest wins, and at most one a second is sent. changed is false if
// it shows the same as the one before: then it is sent only while the person speaks.
func (s *Session) SetFrame(mimeType string, data []byte, changed bool) {
	s.up.Picture(wire.Blob{MIMEType: mimeType, Data: data}, changed)
}

// ClearFrame forgets the picture that SetFrame gave: what it showed is no longer to be seen.
func (s *Session) ClearFrame() { s.up.Blind() }

// RoundTrip notes how long the way to the client and back takes.
func (s *Session) RoundTrip(d time.Duration) { s.answer.roundTrip.Store(int64(d)) }

// Loss notes how many packets were lost on their way lately, and of how many: up, from the caller, or down.
func (s *Session) Loss(up bool, lost, of int) { s.loss.note(up, lost, of) }

// Arrived notes that the client's message of this id has arrived, and reports false if it had before: a duplicate to be
// ignored.
func (s *Session) Arrived(id string) bool { return s.received.add(id) }

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
			return markRefused(s.up.Mark(uplink.Mark(mark)))
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

// The commands of the host and of watchers.
type (
	// describe fills in where the conversation stands.
	describe struct{ into *Info }

	// leave says that the gateway takes no more calls, and stops after in; 0: it does not stop.
	leave struct{ in time.Duration }

	// watch adds a watcher.
	watch struct{ watcher *watcher }

	// superseded ends a conversation that goes on at another gateway.
	superseded struct{}
)

func (describe) command()   {}
func (leave) command()      {}
func (watch) command()      {}
func (superseded) command() {}

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
	c.Up.Sent, c.Up.Replayed = s.up.Frames.Load(), s.up.Replayed.Load()
	c.Up.Dropped, c.Up.Speech, c.Up.Gated = s.up.Dropped.Load(), s.up.Lost.Load(), s.up.Gated.Load()
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

// unheard reports whether nobody would hear an answer.
func (s *Session) unheard() bool { return s.parked || s.paused }

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

// end ends the session for a reason; the first one counts.
func (s *Session) end(reason error) {
	if s.ended == nil {
		s.ended = reason
	}
}

// asked begins to wait for the answer to words that go to the model now.
func (s *Session) asked() {
	s.status.apologise(false)
	s.answer.ask(time.Now())
	s.keeper.Expect(keeper.ForText)
}

// goodbyeInSilence is the instruction by which the model says goodbye to a person who does not answer any more.
const goodbyeInSilence = "The person does not answer any more. " +
	"Say goodbye in one short sentence, in the language that you have spoken so far."

// endAfterSpeaking ends the session for a reason when the model has finished speaking: see endIfSaid.
func (s *Session) endAfterSpeaking(reason error) {
	if s.leaving != nil {
		return
	}
	s.leaving, s.lastWord = reason, s.calls.Calling()
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
	s.up.Pause(true)
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
	case s.keeper.Replacing():
		return StateDraining
	case s.calls.Calling():
		return StateTool
	}
	return StateLive
}

// due reports whether the person waits for an answer.
func (s *Session) due() bool {
	if s.unheard() || s.person.speaking {
		return false
	}
	return s.answer.turn.state == turnThinking || s.answer.working || s.calls.Calling() || s.keeper.Due()
}

// received remembers the newest messages of the client by their ids. Its methods may be called by any goroutine.
type received struct {
	mu  sync.Mutex
	ids []string
}

// maxReceived is how many ids of messages are remembered.
const maxReceived = 256

// add reports whether the id is new.
func (r *received) add(id string) bool {
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
