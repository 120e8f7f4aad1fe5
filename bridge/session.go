package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"voxgate/bridge/alarm"
	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/keeper"
	"voxgate/bridge/toolcalls"
	"voxgate/bridge/uplink"
	"voxgate/media"
	"voxgate/media/playout"
	"voxgate/media/record"
)

const (
	// farewellTime is how long the model may go on with an answer when the conversation is to end, and again with its
	// goodbye.
	farewellTime = 15 * time.Second

	// lastWordTime is how long the model may take to begin its goodbye after the tool that ends the conversation has
	// answered, and lastWordSaid if it has said something before it called: then that may have been the goodbye.
	lastWordTime = 6 * time.Second
	lastWordSaid = 2 * time.Second
)

// Session is one conversation. Its loop alone changes its state; the methods may be called from any goroutine.
type Session struct {
	// Static after newSession.
	id         string
	host       *Host
	log        *slog.Logger
	open       Open        // as the first caller wanted it
	scope      setup.Scope // what configurations are read for
	playout    *playout.Pacer
	up         *uplink.Uplink
	transcript *transcript
	keeper     *keeper.Keeper
	calls      *toolcalls.Calls
	requests   chan request
	visits     chan *visit   // of callers, when they come and when they leave
	played     chan struct{} // has a token when the voice may have been played to its end
	over       chan struct{} // closed when the loop has ended; ended says why

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
	dialogue
	steering steering
	move     move
	leaving  error // the conversation ends with this when the answer has been heard
	lastWord bool  // not before the model has begun its answer to the tool by which it ends
	farewell bool  // nor before the model was told to say goodbye, and has
	ended    error // the conversation ends with this now
}

// dialogue is what both sides are about to say.
type dialogue struct {
	answer  answers
	asked   asked
	person  person
	waiting waiting
	spent   spent
	held    []json.RawMessage // parts of a typed turn that is not complete, for a model that takes only whole turns
}

// alarmKind is something the loop has to look after at a certain time.
type alarmKind int

const (
	alarmMicrophone alarmKind = iota // does it still send?
	alarmPark                        // nobody will come back
	alarmLimit                       // the conversation has lasted as long as it may
	alarmFarewell                    // the last answer was long enough
	alarmLastWord                    // there is no goodbye
	alarmMove                        // the caller may be asked again to go to another gateway
	numAlarms
)

// request is a command on its way to the loop. What becomes of it is told by answer, which has room for one.
type request struct {
	command Command
	answer  chan error
}

// ID names the conversation in logs and to the client.
func (s *Session) ID() string { return s.id }

// Origin is who has begun the conversation.
func (s *Session) Origin() Origin { return s.open.Origin }

// Own is what the caller that began the conversation has brought as [Open.Own].
func (s *Session) Own() any { return s.open.Own }

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
	}
	select { // what was taken may be what has ended it
	case err := <-r.answer:
		return err
	default:
		return errOver
	}
}

// resumable tells whether a lost caller is waited for.
func (s *Session) resumable() bool {
	return s.open.Resumable && s.host.options.Park > 0 && s.keeper.Config().Options.Resumption
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
	s.leaving, s.lastWord = reason, s.calls.Calling()
	s.farewell = reason == ErrTimeLimit && s.open.Farewell != ""
	s.clock.Set(alarmFarewell, farewellTime)
	s.onPlayed()
}

// onPlayed ends a session that only waits for the end of an answer.
func (s *Session) onPlayed() {
	over := s.answer.state == turnIdle || s.answer.state == turnCut
	_, expected := s.keeper.Expects()
	if s.leaving == nil || s.lastWord || !over || expected || s.playout.Queued() > 0 {
		return
	}
	if s.farewell {
		s.farewell = false
		s.clock.Set(alarmFarewell, farewellTime)
		if s.respond(s.open.Farewell) == nil {
			return
		}
	}
	s.end(s.leaving)
}

// awaitLastWord begins to wait for the answer to the tool that ends the conversation, which has answered.
func (s *Session) awaitLastWord() {
	switch {
	case !s.lastWord:
	case s.answer.said:
		s.clock.Set(alarmLastWord, lastWordSaid)
	default:
		s.clock.Set(alarmLastWord, lastWordTime)
	}
}

// turnState is where the model's turn stands.
type turnState int

const (
	turnIdle     turnState = iota // no answer is under way
	turnThinking                  // the model makes something; none of it is an answer yet
	turnSpeaking                  // the model makes an answer
	turnOver                      // all of it was made; turnComplete has not come
	turnCut                       // it was cut off; its turnComplete has not come and is no news
)

// turn is the model's turn that is under way.
type turn struct {
	state      turnState
	number     int
	skipping   bool          // it was cut off here, before the model knew: what still comes of it is dropped
	counted    bool          // the next turn has its number already
	spokenOver bool          // the person has begun to speak since it began
	answered   bool          // some of it was an answer, and not a thought
	lost       bool          // some of its voice was not played
	voice      time.Duration // of it so far
	timing     *timing       // nil before its first audio
	began      time.Time     // when the first of it came
}

// making tells whether the model makes something of it that is wanted.
func (t *turn) making() bool { return t.state == turnThinking || t.state == turnSpeaking }

// answers are the model's turns: the one under way, and those that are over and may still be heard.
type answers struct {
	turn
	number   int // of the turn that is spoken, or comes next
	known    int // the last turn that the session behind the newest handle knows
	finished []finishedTurn
	working  bool // the model thinks on, whatever its turn says
	said     bool // something was answered since the person asked

	cutBy    atomic.Pointer[Cause] // why the voice was last dropped, for the marks in it
	thinking atomic.Bool           // the caller knows that an answer is due
}

// finishedTurn is how much voice a turn had that is over, and may still be heard.
type finishedTurn struct {
	number int // 0: a sound of ours, which is no turn's
	voice  time.Duration
}

// spent is the tokens that were used.
type spent struct {
	meter   wire.TokenMeter
	turn    bool        // there were some in this turn
	counted wire.Tokens // by uncounted
	low     bool        // the client was told that little is left
}

// asked is when the questions without an answer ended. A model answers in order, or several at once.
type asked struct {
	oldest time.Time // zero: none
	newest time.Time // of one more; zero: none
	open   bool      // the oldest may have been answered, or not be over: the next question takes its place
}

// timing is the latency of one turn, as it is found out.
type timing struct {
	asked time.Time    // the person had ended
	audio time.Time    // the first audio came
	out   atomic.Int64 // ns from audio to when its first frame was handed over; 0: it was not
}

// person is what the person does.
type person struct {
	speaking bool
	speeches int  // so far
	lossTold bool // the client knows that some speech was lost
	gateTold bool // or that it was not heard because of a tool
	textTurn int  // of which UserText was told, and not all of it; 0: none
}

// waiting is what a person hears and sees who waits.
type waiting struct {
	told    bool // a message was told that it is waited for
	spoken  bool // oneMoment was said
	apology bool // the person was told that there will be no answer
}

// recording is the file that a conversation is recorded to, if it is. The loop opens and closes it; the microphone writes.
type recording struct {
	file atomic.Pointer[record.Recording]

	// Owned by the loop.
	told   bool            // the client knows that the conversation is recorded
	failed <-chan struct{} // closed when the file's disk has refused something; nil: there is none
	broken bool            // the disk has, and nothing is recorded any more
}

// visit is one caller's time with the session.
type visit struct {
	caller Caller
	open   Open
	first  bool // it is the one that opened the session
	cancel context.CancelCauseFunc
	seen   bool          // by the loop: the caller has come
	told   chan struct{} // closed when the caller has been told where things stand
	left   chan struct{} // closed when the caller's Serve has returned
	parked chan struct{} // closed when the conversation goes on without the caller
}

// audience is who carries the conversation, who is told of it, and what they may have missed.
type audience struct {
	mu       sync.Mutex
	visit    *visit // who carries it, or is about to
	listener Caller // who is told; nil: nobody
	ring     ring
	watchers []*watcher
	keep     bool // events for a caller that may come back
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
