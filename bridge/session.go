package bridge

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"voxgate/bridge/alarm"
	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/keeper"
	"voxgate/bridge/toolcalls"
	"voxgate/bridge/transcript"
	"voxgate/bridge/uplink"
	"voxgate/media"
	"voxgate/media/playout"
	"voxgate/tools"
)

// errOver is what a command or a newcomer gets whose conversation has ended.
var errOver = errors.New("the conversation has ended")

// farewellTime is how long the model may go on with an answer when the conversation is to end.
const farewellTime = 15 * time.Second

// Session is one conversation. Its loop alone changes its state; the methods may be called from any goroutine.
type Session struct {
	// Static after newSession.
	id         string
	host       *Host
	log        *slog.Logger
	origin     Origin
	scope      setup.Scope // what configurations are read for
	wait       bool        // for a caller that is lost, if the configuration lets us
	playout    *playout.Pacer
	up         *uplink.Uplink
	transcript *transcript.Log
	keeper     *keeper.Keeper
	calls      *toolcalls.Calls
	requests   chan request
	arrivals   chan *visit
	departures chan *visit
	played     chan struct{} // has a token when the voice may have been played to its end
	over       chan struct{} // closed when the loop has ended; err says why
	err        error

	tokens    tokens       // guarded by Host.mu
	audience  audience     // has a mutex of its own
	received  received     // likewise
	roundTrip atomic.Int64 // to the caller and back, in ns; 0: not known
	recording recording    // written to by the microphone

	// Owned by the loop.
	started time.Time
	clock   *alarm.Clock[alarmKind]
	state   State
	parked  bool
	paused  bool
	answer  answers
	asked   asked
	person  person
	waiting waiting
	spent   spent
	held    []json.RawMessage // parts of a typed turn that is not complete, for a model that takes only whole turns
	leaving error             // the conversation ends with this when the answer has been heard
	ended   error
}

// alarmKind is something the loop has to look after at a certain time.
type alarmKind int

const (
	alarmMicrophone alarmKind = iota // does it still send?
	alarmPark                        // nobody will come back
	alarmLimit                       // the conversation has lasted as long as it may
	alarmFarewell                    // the last answer was long enough
	numAlarms
)

// request is a command on its way to the loop. What becomes of it is told by answer, which has room for one.
type request struct {
	command Command
	answer  chan error
}

func newSession(h *Host, config setup.Config, o Open, scope setup.Scope, own []tools.Tool, probe bool) *Session {
	id := rand.Text()[:10]
	log := h.options.Logger.With("call", id)
	s := &Session{
		id: id, host: h, log: log, origin: o.Origin, scope: scope, wait: o.Resumable && h.options.Park > 0,
		playout: playout.NewPacer(h.ticker, wire.OutputRate), up: uplink.New(), transcript: &transcript.Log{},
		requests: make(chan request), arrivals: make(chan *visit), departures: make(chan *visit),
		played: make(chan struct{}, 1), over: make(chan struct{}),
		clock: alarm.New(numAlarms), state: StateDialing, answer: answers{number: 1},
	}
	s.keeper = keeper.New(keeper.Options{
		Client: h.options.Client, Breaker: &h.breaker, Probe: probe, Stall: h.options.Stall, Uplink: s.up, Logger: log,
		Tell: s.onKeeper, Idle: s.idle, Calling: func() bool { return s.calls.Calling() }, History: s.history,
	}, config)
	s.calls = toolcalls.New(toolcalls.Options{
		Client: toolClient{s}, Model: toolModel{s}, Uplink: s.up, Tools: own,
		Env:         tools.Env{Session: id, Door: o.Origin.Door, Caller: o.Origin.Identity, Grant: o.Origin.Grant},
		SignPicture: h.options.SignPicture, Observe: h.options.ObserveCall, Logger: log,
	})
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

// Hold keeps the voice (its newest 10 s) instead of playing it, until it is let go: for an output that is about to be there.
// [Pause] is for a person who does not listen.
func (s *Session) Hold(on bool) { s.playout.Hold(on) }

// Arrived notes that the client's message of this id has arrived, and reports false if it had before: it is not to be
// acted on again.
func (s *Session) Arrived(id string) bool { return s.received.add(id) }

// Do has a command carried out, in order with the others. It blocks until the session has taken it, for microseconds as a rule;
// an error, which [AsError] explains, means that it was not taken. After the end of the conversation it returns an error at
// once. It must not be called by [Caller].Notify.
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
		return errOver
	}
}

// resumable tells whether a lost caller is waited for.
func (s *Session) resumable() bool { return s.wait && s.keeper.Config().Options.Resumption }

// loop owns the session from its first dial to its end.
func (s *Session) loop(parent context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent)) // the last answers go up after a shutdown, too
	config := s.keeper.Config()
	s.started = time.Now()
	s.log.Info("conversation started", "model", config.Model, "resumable", s.resumable())
	s.playout.Hold(true)
	s.configured()
	s.record()
	for s.ended == nil {
		select {
		case <-parent.Done():
			s.ended = context.Cause(parent)
		case v := <-s.arrivals:
			s.onArrival(ctx, v)
		case v := <-s.departures:
			s.onDeparture(ctx, v)
		case r := <-s.keeper.Reports():
			s.keeper.Handle(ctx, r)
		case <-s.keeper.Alarms():
			s.keeper.OnAlarm(ctx)
		case r := <-s.requests:
			r.answer <- s.carryOut(ctx, r.command)
		case f := <-s.calls.Work():
			f()
		case <-s.up.Turned:
			s.onSpeech(ctx)
		case <-s.played:
			s.onPlayed()
		case <-s.clock.C:
			s.onAlarm()
		}
		if s.ended == nil {
			s.keeper.Settle(ctx)
			s.updateState()
		}
	}
	s.calls.Finish(s.keeper.Connected())
	s.clock.Stop()
	cancel()
	s.keeper.Close()
	s.calls.Wait()
	s.playout.Close()
	s.closeRecording()
	s.finish()
}

// updateState tells the caller when the conversation stands somewhere else.
func (s *Session) updateState() {
	state := stateOf(s.keeper.Phase(), s.parked, s.keeper.Replacing(), s.calls.Calling())
	if state == s.state {
		return
	}
	s.log.Debug("state", "from", s.state, "to", state)
	s.state = state
	s.notifyState()
}

func (s *Session) notifyState() {
	change := StateChange{State: s.state}
	switch {
	case s.waiting.told:
		change.Message = s.state.waitMessage()
	case s.waiting.apology:
		change.Message = apology
	}
	s.notify(change)
}

func (s *Session) onAlarm() {
	for s.ended == nil {
		which, ok := s.clock.Due()
		if !ok {
			return
		}
		switch which {
		case alarmMicrophone:
			s.watchMicrophone()
		case alarmPark:
			s.end(ErrLeft)
		case alarmLimit:
			s.endAfterSpeaking(ErrTimeLimit)
		case alarmFarewell:
			s.end(s.leaving)
		}
	}
}

// end ends the session for a reason; the first one counts.
func (s *Session) end(reason error) {
	if s.ended == nil {
		s.ended = reason
	}
}

// endAfterSpeaking ends the session for a reason, but lets the model finish what it says.
func (s *Session) endAfterSpeaking(reason error) {
	if s.leaving != nil {
		return
	}
	s.leaving = reason
	s.clock.Set(alarmFarewell, farewellTime)
	s.onPlayed()
}

// onPlayed ends a session that only waits for the end of an answer.
func (s *Session) onPlayed() {
	if s.leaving != nil && s.answer.state == turnIdle && s.playout.Queued() == 0 {
		s.end(s.leaving)
	}
}

// finish tells everybody that the session is over.
func (s *Session) finish() {
	s.err = s.ended
	s.audience.mu.Lock()
	current := s.audience.visit
	s.audience.listener = nil
	s.audience.mu.Unlock()
	close(s.over)
	if current != nil {
		current.cancel(s.err)
	}
	voice, total, kept := s.playout.Stats(), s.spent.meter.Total(), s.keeper.Counts()
	s.log.Info("conversation ended", "reason", s.err, "duration", time.Since(s.started).Round(time.Millisecond),
		"chunks_up", s.up.Frames.Load(), "chunks_dropped", s.up.Dropped.Load(), "speech_dropped", s.up.Lost.Load(), "chunks_gated", s.up.Gated.Load(),
		"chunks_replayed", s.up.Replayed.Load(),
		"frames_down", voice.Frames, "underruns", voice.Underruns, "flushes", voice.Flushes,
		"turns", s.answer.number-1, "tokens", total.Total, "tokens_in", total.Prompt, "tokens_in_by", total.PromptBy,
		"tokens_out", total.Response, "tokens_out_by", total.ResponseBy,
		"dials", kept.Dials, "resumed", kept.Resumed, "reseeded", kept.Reseeded, "late_answers", s.calls.Late(),
		"stalls", []int{kept.Nudges, kept.Resumes, kept.Restarts}, "longest_wait", kept.LongestWait.Round(time.Millisecond))
}

// configured follows a change of the configuration in force.
func (s *Session) configured() {
	options := s.keeper.Config().Options
	if !options.Resumption {
		s.host.void(s)
	}
	s.audience.mu.Lock()
	s.audience.keep = s.resumable()
	s.audience.mu.Unlock()
	s.clock.Clear(alarmLimit)
	if options.MaxDuration > 0 {
		s.clock.Set(alarmLimit, options.MaxDuration-time.Since(s.started))
	}
}

func (s *Session) setupComplete() SetupComplete {
	config := s.keeper.Config()
	done := SetupComplete{
		SessionID: s.id, Started: s.started, Model: config.Model, Backend: s.host.options.Backend,
		EffectiveConfig: config.Effective(), Recording: s.recording.file.Load() != nil, Tools: []Tool{},
	}
	for _, f := range config.Functions {
		where := setup.InClient
		if f.Where == setup.InGateway {
			where = f.Where
		}
		done.Tools = append(done.Tools, Tool{Name: f.Name, Title: f.Title, Behavior: f.Behavior, Scheduling: f.Scheduling, Where: string(where)})
	}
	return done
}
