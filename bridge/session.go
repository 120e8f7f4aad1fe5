package bridge

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/gemini/setup/declaration"
	"voxgate/bridge/gemini/usage"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/transcript"
	"voxgate/bridge/uplink"
	"voxgate/media"
	"voxgate/media/playout"
	"voxgate/tools"
)

// errOver is what a newcomer gets whose conversation ended while it was coming.
var errOver = errors.New("the conversation has ended")

const (
	// idleLink is how long a parked conversation keeps its link to the model. A reloaded page is back sooner; longer, and
	// an abandoned session costs money.
	idleLink = 5 * time.Second

	// farewellTime is how long the model may go on with an answer when the conversation has reached a limit.
	farewellTime = 15 * time.Second
)

// Session is one conversation. Its loop alone changes its state; the methods may be called from any goroutine.
type Session struct {
	// Static after newSession.
	id         string
	host       *Host
	log        *slog.Logger
	playout    *playout.Pacer
	up         *uplink.Uplink
	transcript *transcript.Log
	inbox      *inbox
	commands   chan Command
	arrivals   chan *carriage
	departs    chan *carriage
	dials      chan dialled
	heard      chan heard
	broker     *broker
	poked      chan struct{} // has a token when the voice may have been played to its end
	over       chan struct{} // closed when the loop has ended; err says why
	err        error

	roundTrip atomic.Int64 // to the caller and back; 0: not known
	recording recording
	from      Origin
	declared  []tools.Declaration // of the gateway's own tools

	// Guarded by Host.mu.
	tokens tokens

	// Guarded by mu.
	mu       sync.Mutex
	carriage *carriage // who carries the conversation, or is about to
	listener Caller    // who is told of events

	// Owned by the loop.
	started       time.Time
	wished        bool // the client wants to be waited for when it is lost
	state         State
	clock         *alarms
	config        setup.Config
	base          setup.Config // what the model's session was set up with
	updates       []update     // wanted next, in order
	trial         *trial       // a change in place that Gemini may still refuse
	clearing      bool         // the next session is told nothing
	cleared       int          // CLEAR_CONTEXTs to be answered when it is there
	probe         bool         // others wait to hear how the first dial goes
	link          link
	handle        handle
	drain         drain
	turn          turn
	spoken        []spoken  // the last turns that are over
	recordingTold bool      // the client knows that the conversation is recorded
	asked         time.Time // when the person ended what has no answer yet; zero: nothing
	more          more      // that was asked
	number        int       // of the turn that is spoken, or comes next
	ticks         int       // counts what happens, so that one can tell which of two things came first
	dirty         int       // the tick of the newest thing that a handle should know
	owed          []Event   // answers of a time in which nobody was there to be told
	speaking      bool      // the person does
	speeches      int       // of the person so far
	working       bool      // the model thinks on, whatever its turn says
	lossTold      bool      // the client knows that some speech was lost
	gateTold      bool      // or that it was not heard because of a tool
	watch         watch
	gap           gap
	meter         usage.Meter
	usage         bool  // there was some in this turn
	farewell      error // the conversation ends with this when the answer has been heard
	ended         error
}

// carriage is one caller's time with the session.
type carriage struct {
	caller Caller
	token  string // used to resume; empty for the first
	cancel context.CancelCauseFunc
	seated chan struct{} // closed when the caller has been told where things stand
	left   chan struct{} // closed when the caller's Serve has returned
	parked chan struct{} // closed when the conversation goes on without the caller
}

func newSession(h *Host, config setup.Config, o Open, own []tools.Tool) *Session {
	id := rand.Text()[:10]
	up := uplink.New()
	up.Configure(config.Options.Manual, config.Options.PreRoll)
	s := &Session{
		id: id, host: h, log: h.options.Logger.With("call", id),
		playout: playout.NewPacer(h.ticker, wire.OutputRate), up: up, transcript: &transcript.Log{}, inbox: &inbox{},
		commands: make(chan Command, 16), arrivals: make(chan *carriage), departs: make(chan *carriage),
		dials: make(chan dialled), heard: make(chan heard), poked: make(chan struct{}, 1), over: make(chan struct{}),
		from: o.Origin, declared: declarations(own), state: StateDialing, clock: newAlarms(), config: config, wished: o.Resumable && h.options.Park > 0, number: 1,
	}
	s.broker = newBroker(s, own)
	return s
}

// ID names the conversation in logs and to the client.
func (s *Session) ID() string { return s.id }

// Mic opens a microphone for mono PCM at rate Hz, 8000 to 48000. The model takes any such rate and is told which.
func (s *Session) Mic(rate int) (*Microphone, error) {
	if rate < 8000 || rate > 48000 {
		return nil, fmt.Errorf("a sample rate of %d Hz is not between 8000 and 48000", rate)
	}
	return &Microphone{up: s.up, tap: &s.recording, rate: rate}, nil
}

// Attach says where the voice goes from now on; nil discards it.
func (s *Session) Attach(out media.Output) { s.playout.Attach(out) }

// Hold keeps the voice (its newest 10 s) instead of playing it, until it is let go.
func (s *Session) Hold(on bool) { s.playout.Hold(on) }

// Arrived notes that the client's message of this id has arrived, and reports false if it had before: it is not to be
// acted on again.
func (s *Session) Arrived(id string) bool { return s.inbox.add(id) }

// Do has a command carried out, in order with the others. An error means that it was not accepted.
func (s *Session) Do(c Command) error {
	switch c := c.(type) {
	case ToolResponse:
		return s.broker.answer(c)
	case Activity: // not through the loop: it must not lose its place among the audio
		select {
		case <-s.over:
			return errOver
		default:
			return markRefused(s.up.Mark(uplink.Mark(c)))
		}
	case Message: // what cannot be encoded would fail on every link
		if !json.Valid(c.Parts) || !bytes.HasPrefix(bytes.TrimSpace(c.Parts), []byte("[")) {
			return &Error{Code: CodeBadMessage, Message: "The parts of a message must be an array."}
		}
	}
	select {
	case <-s.over: // alone first: the queue may have room, but nobody takes from it
		return errOver
	default:
	}
	select {
	case s.commands <- c:
		return nil
	case <-s.over:
		return errOver
	}
}

// notify tells the caller, if there is one.
func (s *Session) notify(e Event) {
	s.mu.Lock()
	c := s.listener
	s.mu.Unlock()
	if c != nil {
		c.Notify(e)
	}
}

// attended tells whether there is a caller to be told.
func (s *Session) attended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listener != nil
}

// tell is notify for what must not be lost: a caller that is away is told when it is back.
func (s *Session) tell(e Event) {
	if s.state != StateParked {
		s.notify(e)
	} else if len(s.owed) < maxOwed {
		s.owed = append(s.owed, e)
	}
}

// maxOwed bounds what is told to a caller that is back: every update of a busy minute.
const maxOwed = 64

// resumable tells whether a lost caller is waited for.
func (s *Session) resumable() bool { return s.wished && s.config.Options.Resumption }

// warn tells the client's developer.
func (s *Session) warn(message string) { s.notify(Log{Level: "warn", Message: message}) }

// fail tells the client of something that went wrong while the conversation goes on.
func (s *Session) fail(code Code, message string) {
	s.notify(Failure{&Error{Code: code, Message: message}})
}

// carry lets c carry the conversation until it leaves, is replaced, or the conversation ends. token is the one it came
// with, empty for the caller that opened the session.
func (s *Session) carry(ctx context.Context, c Caller, token string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	mine := &carriage{
		caller: c, token: token, cancel: cancel,
		seated: make(chan struct{}), left: make(chan struct{}), parked: make(chan struct{}),
	}
	s.mu.Lock()
	old := s.carriage
	s.carriage = mine
	s.mu.Unlock()
	if old != nil {
		old.cancel(ErrReplaced)
		<-old.left
	}
	select {
	case s.arrivals <- mine:
	case <-s.over:
		close(mine.left)
		if token != "" {
			return errOver
		}
		return s.err
	}
	<-mine.seated
	err := c.Serve(ctx, s)
	s.playout.Hold(true) // before Attach: what waits to be played is kept for the next caller
	s.playout.Attach(nil)
	close(mine.left)
	select {
	case s.departs <- mine:
	case <-s.over:
	}
	if errors.Is(context.Cause(ctx), ErrReplaced) {
		return ErrReplaced
	}
	select {
	case <-mine.parked:
	case <-s.over:
		if !errors.Is(s.err, ErrLeft) {
			return s.err
		}
	}
	return err
}

// loop owns the session from its first dial to its end.
func (s *Session) loop(parent context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent)) // the last answers go up after a shutdown, too
	s.started = time.Now()
	s.log.Info("conversation started", "model", s.config.Model, "resumable", s.resumable())
	s.playout.Hold(true)
	s.adopt(s.config)
	s.record()
	for s.ended == nil {
		select {
		case <-parent.Done():
			s.ended = context.Cause(parent)
		case c := <-s.arrivals:
			s.onArrival(ctx, c)
		case c := <-s.departs:
			s.onDeparture(ctx, c)
		case d := <-s.dials:
			s.onDialled(ctx, d)
		case h := <-s.heard:
			s.onHeard(ctx, h)
		case c := <-s.commands:
			s.onCommand(ctx, c)
		case r := <-s.broker.results:
			s.broker.onResult(r)
		case a := <-s.broker.asks:
			s.broker.onAsk(a)
		case <-s.up.Turned:
			s.onSpeech()
		case <-s.poked:
			s.onPlayed()
		case <-s.clock.timer.C:
			for a, ok := s.clock.due(); ok && s.ended == nil; a, ok = s.clock.due() {
				s.onAlarm(ctx, a)
			}
		}
		if s.ended == nil {
			s.settle(ctx)
		}
	}
	s.broker.bequeath()
	s.clock.timer.Stop()
	cancel()
	if s.probe {
		s.host.breaker.release()
	}
	s.link.stop()
	s.enter(StateEnded)
	s.broker.running.Wait()
	s.playout.Close()
	s.closeRecording()
	s.finish()
}

func (s *Session) onAlarm(ctx context.Context, a alarm) {
	switch a {
	case alarmRetry:
		s.dial(ctx)
	case alarmAge:
		s.leave("age", ageSpare)
	case alarmDrain, alarmFresh:
		if s.state == StateParked {
			s.unlink() // nobody listens
		}
		s.replace(ctx)
	case alarmTrial:
		s.accepted()
	case alarmStall:
		s.onStall(ctx)
	case alarmStale:
		s.up.Answered()
		s.letGo()
	case alarmMic:
		s.listen()
	case alarmGap:
		s.onGap()
	case alarmIdleLink:
		s.unlink()
	case alarmPark:
		s.end(ErrLeft)
	case alarmLimit:
		s.bid(ErrTimeLimit)
	case alarmFarewell:
		s.end(s.farewell)
	}
}

// finish tells everybody that the session is over.
func (s *Session) finish() {
	s.err = s.ended
	s.mu.Lock()
	current := s.carriage
	s.listener = nil
	s.mu.Unlock()
	close(s.over)
	if current != nil {
		current.cancel(s.err)
	}
	voice, total := s.playout.Stats(), s.meter.Total()
	s.log.Info("conversation ended", "reason", s.err, "duration", time.Since(s.started).Round(time.Millisecond),
		"chunks_up", s.up.Frames.Load(), "chunks_dropped", s.up.Dropped.Load(), "speech_dropped", s.up.Lost.Load(), "chunks_gated", s.up.Gated.Load(),
		"chunks_replayed", s.up.Replayed.Load(),
		"frames_down", voice.Frames, "underruns", voice.Underruns, "flushes", voice.Flushes,
		"turns", s.number-1, "tokens", total.Total, "tokens_in", total.Prompt, "tokens_in_by", total.PromptBy,
		"tokens_out", total.Response, "tokens_out_by", total.ResponseBy,
		"dials", s.link.dials, "resumed", s.link.resumed, "reseeded", s.link.reseeded,
		"late_answers", s.broker.late.Load(), "stalls", s.watch.counts, "longest_gap", s.gap.longest.Round(time.Millisecond))
}

// end ends the session for a reason; the first one counts.
func (s *Session) end(reason error) {
	if s.ended == nil {
		s.ended = reason
	}
}

// adopt puts a configuration in force.
func (s *Session) adopt(c setup.Config) {
	if !c.Options.Resumption {
		s.handle = handle{}
		s.host.void(s)
	}
	s.config = c
	s.up.Configure(c.Options.Manual, c.Options.PreRoll)
	s.clock.clear(alarmLimit)
	if c.Options.MaxDuration > 0 {
		s.clock.set(alarmLimit, c.Options.MaxDuration-time.Since(s.started))
	}
}

// bid ends the session for a reason, but lets the model finish what it says.
func (s *Session) bid(reason error) {
	if s.farewell != nil {
		return
	}
	s.farewell = reason
	s.clock.set(alarmFarewell, farewellTime)
	s.onPlayed()
}

// onPlayed ends a session that only waits for the end of an answer.
func (s *Session) onPlayed() {
	if s.farewell != nil && !s.turn.open && s.playout.Queued() == 0 {
		s.end(s.farewell)
	}
}

// onArrival seats a caller: it is told where things stand and gets what it missed.
func (s *Session) onArrival(ctx context.Context, c *carriage) {
	defer close(c.seated)
	s.mu.Lock()
	s.listener = c.caller
	s.mu.Unlock()
	s.roundTrip.Store(0) // was that of another connection
	s.clock.clear(alarmIdleLink, alarmPark)
	if c.token == "" { // SETUP_COMPLETE follows when the dial is done
		for _, w := range s.config.Warnings {
			s.warn(w)
		}
		s.tellRecording()
	} else {
		s.log.Info("caller is back")
		done := s.setupComplete()
		done.Resumed, done.Received = true, s.inbox.list()
		done.ResumeToken = s.host.newToken(s, c.token)
		s.notify(done)
		if s.playout.Queued() > 0 { // nobody was told, or one that is gone
			s.notify(Speaking{})
		}
		for _, e := range s.owed {
			s.notify(e)
		}
		s.owed = nil
		s.broker.repeatEndings()
		s.broker.repeatCalls()
	}
	switch {
	case s.link.conn != nil && s.state == StateParked:
		s.enter(StateLive)
		s.update()
		if s.watch.what != forNothing {
			s.await(s.patience())
		}
	case s.link.conn != nil:
		s.notify(StateChange{State: s.state, Message: s.gap.message(s.state)})
	case s.state == StateParked:
		s.enter(s.down())
		s.wait()
		fallthrough
	default:
		if !s.link.busy {
			s.dial(ctx)
		}
	}
}

// onDeparture parks the conversation, or ends it.
func (s *Session) onDeparture(ctx context.Context, c *carriage) {
	s.mu.Lock()
	current := s.carriage == c
	if current {
		s.carriage, s.listener = nil, nil
	}
	s.mu.Unlock()
	if !current {
		close(c.parked)
		return // replaced: the newcomer is at the door
	}
	for len(s.commands) > 0 && s.ended == nil {
		s.onCommand(ctx, <-s.commands) // its last words, a goodbye perhaps
	}
	if s.ended != nil || !s.resumable() || !s.link.setUp {
		s.end(ErrLeft)
		return
	}
	s.log.Info("caller lost, conversation parked", "for", s.host.options.Park)
	s.broker.forgetEndings()
	s.cutVoice() // who comes back does not want to hear what was said to nobody
	if s.config.Options.Manual && s.speaking {
		_ = s.up.Mark(uplink.End) // it has ended, for all we know; if there is no room, others are before it
	}
	s.enter(StateParked)
	close(c.parked)
	s.waited()
	if s.clock.isSet(alarmRetry) {
		s.link.busy = false
	}
	s.clock.clear(alarmStall, alarmRetry, alarmFresh)
	s.clock.set(alarmIdleLink, idleLink)
	s.clock.set(alarmPark, s.host.options.Park)
}

func (s *Session) onCommand(ctx context.Context, c Command) {
	ok := true
	switch c := c.(type) {
	case Goodbye:
		s.end(ErrGoodbye)
	case Message:
		ok = s.sendTyped(c)
	case Text:
		ok = s.sendText(c.Text)
	case UpdateConfig:
		s.onUpdate(c)
	case GetContext:
		s.notify(History{s.transcript.List()})
	case ClearContext:
		s.onClear(ctx)
	default:
		s.log.Error("unknown command", "type", fmt.Sprintf("%T", c))
	}
	if !ok {
		s.fail(CodeStreamLimitExceeded, "Too many messages wait for Gemini; this one was dropped.")
	}
}

// sendText sends real-time text.
func (s *Session) sendText(text string) bool {
	s.transcript.Typed(s.question(), text)
	ok := s.up.Send(wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{Text: text}})
	s.wasAsked(time.Now())
	s.expect(forText)
	return ok
}

// sendTyped sends a typed turn.
func (s *Session) sendTyped(m Message) bool {
	if m.TurnComplete {
		s.interrupt()
		s.wasAsked(time.Now())
		s.expect(forText)
	}
	turn := s.question()
	if !m.TurnComplete {
		turn-- // the next handle knows it, answered or not
	}
	s.transcript.Typed(turn, textOf(m.Parts))
	t := uplink.Turn{Parts: m.Parts, Complete: m.TurnComplete}
	if m.TurnComplete {
		t.Picture = s.pictureFor(m.Parts)
	}
	return s.up.Say(t)
}

// textOf is the text of a typed turn, and where its pictures are.
func textOf(parts json.RawMessage) string {
	var list []struct {
		Text       string
		InlineData *struct{ MIMEType string }
	}
	if json.Unmarshal(parts, &list) != nil {
		return ""
	}
	var texts []string
	for _, p := range list {
		switch {
		case p.Text != "":
			texts = append(texts, p.Text)
		case p.InlineData != nil:
			texts = append(texts, "("+p.InlineData.MIMEType+")")
		}
	}
	return strings.Join(texts, " ")
}

// onSpeech acts on the begin and the end of the person's speech.
func (s *Session) onSpeech() {
	if !s.lossTold && s.up.Lost.Load() > 0 {
		s.lossTold = true
		s.fail(CodeAudioStream, "Some of what was said is lost: it had to wait for Gemini for more than ten seconds.")
	}
	if !s.gateTold && s.up.Muffled.Load() > 0 {
		s.gateTold = true
		s.fail(CodeAudioStream, "What is said while this model waits for a tool is not heard by it.")
	}
	speaking, speeches, voiced := s.up.Speech()
	if speeches != s.speeches { // a client that sends in bursts may have ended it already
		s.speeches = speeches
		if !s.speaking {
			s.speaking = true
			s.notify(UserSpeaking{true})
		}
		s.turn.spokenOver = s.turn.open
		s.goesOn()
		s.apologised(false)
		s.listen()
		s.duck()
	}
	if !speaking && s.speaking {
		s.speaking = false
		s.notify(UserSpeaking{false})
		s.playout.Duck(0)
		s.clock.clear(alarmMic)
		if voiced >= leastQuestion {
			s.wasAsked(s.up.LastLoud())
			s.expect(forSpeech)
		}
	}
}

// ducking is how much quieter the voice gets while the person speaks over it: enough to show that one is heard, and little
// enough to go on if it was a cough.
const ducking = 12 // dB

// duck makes the voice quieter, if that is wanted.
func (s *Session) duck() {
	if s.config.Options.Ducking {
		s.playout.Duck(ducking)
	}
}

// listen looks whether the microphone still sends while the person speaks.
func (s *Session) listen() {
	if s.speaking && !s.up.Stopped() {
		s.clock.set(alarmMic, uplink.MicPause/2)
	}
}

func (s *Session) setupComplete() SetupComplete {
	return SetupComplete{
		SessionID: s.id, Model: s.config.Model, Backend: s.host.options.Backend, EffectiveConfig: s.config.Effective(),
		Recording: s.recording.file.Load() != nil, Tools: toolsOf(s.config),
	}
}

func toolsOf(config setup.Config) []Tool {
	list := make([]Tool, 0, len(config.Functions))
	for _, f := range config.Functions {
		where := declaration.InClient
		if f.Where == declaration.InGateway {
			where = f.Where
		}
		list = append(list, Tool{Name: f.Name, Title: f.Title, Behavior: f.Behavior, Scheduling: f.Scheduling, Where: string(where)})
	}
	return list
}

// updated answers an update.
func (s *Session) updated() {
	done := s.setupComplete()
	done.Update = true
	s.tell(done)
	s.tellRecording()
}

// maxInbox is how many ids of messages are remembered.
const maxInbox = 256

// inbox remembers the newest messages of the client by their ids. Its methods may be called by any goroutine.
type inbox struct {
	mu  sync.Mutex
	ids []string
}

// add reports whether the id is new.
func (i *inbox) add(id string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if slices.Contains(i.ids, id) {
		return false
	}
	if len(i.ids) == maxInbox {
		i.ids = slices.Delete(i.ids, 0, 1)
	}
	i.ids = append(i.ids, id)
	return true
}

func (i *inbox) list() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.ids)
}
