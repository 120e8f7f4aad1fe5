// Package toolcalls runs the function calls of a conversation, and answers each of them once: those that run here,
// those that the client runs, and the canvases that it shows.
//
// [Calls] belong to one goroutine, their owner's loop, which also runs what Work delivers.
package toolcalls

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/uplink"
	"voxgate/tools"
	"voxgate/tools/canvas"
)

const (
	// maxCalls bounds the calls of one conversation that run at the same time.
	maxCalls = 16

	// callRate and callBurst limit a model that calls again and again: people ask for less than one thing a second, and a
	// chain of calls is a burst.
	callRate  = rate.Limit(1)
	callBurst = 30

	// failEvery and failBurst limit how often the client hears of calls that were not run.
	failEvery = 5 * time.Second
	failBurst = 10

	// maxReason bounds the reason of a failure that the client gets, in bytes.
	maxReason = 300

	// maxPartial bounds what a call may answer before its last answer.
	maxPartial = 32

	// blockingTimeout is how long a tool may block the model, which hears nothing meanwhile, and gemini-3.1-flash-live
	// cancels the call after some 12 s (livekit/agents PR 5556).
	blockingTimeout = 10 * time.Second

	// lastAnswers is how long the answers of a conversation that ends may take to the model: a round trip.
	lastAnswers = 250 * time.Millisecond
)

// Client runs calls, and learns of those that run here. No method blocks.
type Client interface {
	// Ask asks the client to run these calls and to answer each with [Calls.Answer].
	Ask([]tools.Call)
	// Withdraw cancels these: their answers are no longer wanted.
	Withdraw(ids []string)
	// Status reports a call that runs here.
	Status(Status)
	// Failed reports a call that was not run, or not answered.
	Failed(*Error)
	// Warn is for the client's developer.
	Warn(string)
	// CanShow reports whether a canvas can be shown.
	CanShow() bool
	// IsBackends reports whether the operator's backend runs a function: it alone is asked, and may answer.
	IsBackends(name string) bool
}

// Model is the model that calls. No method blocks.
type Model interface {
	// Find finds a declared function, and Called the one that the model means by a name: see [setup.FunctionList.Called].
	Find(name string) (setup.Function, bool)
	Called(name string) (setup.Function, bool)
	// Expect says that the model has something to react to.
	Expect()
	// Text sends real-time text, Pictures an array of Part in a turn that asks for no answer. False: too much waits.
	Text(string) bool
	Pictures(parts json.RawMessage) bool
	// Happened and Knows say what the session behind the newest handle knows: see keeper.Keeper.
	Happened() (when int)
	Knows(when int) bool
}

// Options make [Calls]. All fields but Tools, SignPicture and Observe are needed.
type Options struct {
	Client      Client
	Model       Model
	Uplink      *uplink.Uplink
	Tools       []tools.Tool        // that run here
	Env         tools.Env           // what they may know of the conversation
	SignPicture func(string) string // see [canvas.NewBoard]
	Observe     func(End)           // gets the end of each call; it must not block
	Logger      *slog.Logger
	Crashed     func(error) // takes the panic of a goroutine, which ends the conversation; it must not block
}

// Status is the state of a call that runs here.
type Status struct {
	ID, Name, Title string
	Status          string // one of the constants below
	Args, Result    json.RawMessage
	Took            time.Duration
	Message         string // why it failed
}

// The values of [Status].Status.
const (
	Running   = "running"
	Done      = "done"
	Failed    = "failed"
	Cancelled = "cancelled"
)

// End is how a call ended.
type End struct {
	Name    string
	Where   string // client, gateway or canvas
	Outcome string // done, failed, timeout, cancelled
	Took    time.Duration
}

// Problem is the kind of an [Error].
type Problem int

// The kinds of problems.
const (
	TooMany Problem = iota // too much waits or runs already
	Unknown                // there is no such function
	Broken                 // it was called wrongly, or did not answer in time
	NotOpen                // no call waits for this answer
	TooLong                // the answer is longer than the model takes
)

// Error is what is wrong with a call or with an answer.
type Error struct {
	Problem Problem
	Message string // a sentence for the client's developer
}

func (e *Error) Error() string { return e.Message }

// Response is a client's answer to a call.
type Response struct {
	ID, Name     string          // without an ID it answers the only open call of that name
	Response     json.RawMessage // any JSON; nil: done
	Scheduling   tools.Scheduling
	WillContinue bool            // more is to come
	Parts        json.RawMessage // pictures for the model, an array of Part; nil: none
	Backend      bool            // it comes from the operator's backend, which may answer whatever is asked
}

// Calls are the function calls of one conversation.
type Calls struct {
	Options
	funcs    map[string]tools.Func // that run here, by name
	board    *canvas.Board
	pace     *rate.Limiter // of calls
	failures *rate.Limiter // as the client hears of them

	work      chan func()   // for the owner's loop
	over      chan struct{} // closed when nothing is taken from work any more
	running   sync.WaitGroup
	abandoned atomic.Int32 // tools that do not return

	open      map[string]*call     // calls without an answer
	questions map[string]*question // what the client was asked and has not answered
	asked     int                  // counts the questions
	answers   []answer             // until a handle knows of them
}

// call is a function call without an answer.
type call struct {
	tools.Call
	function setup.Function
	cancel   context.CancelCauseFunc // of its goroutine; nil if it has none
	timers   []*time.Timer
	began    time.Time
	when     int // it came: an older handle does not know of it
	partial  int // answers before the last one

	again   []again // equal calls that came while it was open, and get its answer
	dropped bool    // the model has taken it back, but not those in again

	pictures []json.RawMessage // of these, until the model does not wait any more
	detached bool              // the model, which would wait, knows that the result follows as text
}

// again is a call equal to another one.
type again struct {
	tools.Call
	when int
}

// wanted are the calls that wait for the answer of this one, itself first.
func (o *call) wanted() []again {
	if o.dropped {
		return o.again
	}
	return append([]again{{o.Call, o.when}}, o.again...)
}

// blocks reports whether the model waits for it.
func (o *call) blocks() bool { return o.function.Blocking && !o.detached }

func (o *call) stop() {
	for _, t := range o.timers {
		t.Stop()
	}
	if o.cancel != nil {
		o.cancel(tools.ErrCancelled)
	}
}

// answer is a call with its answer, kept until a handle knows of both.
type answer struct {
	call tools.Call
	reply
	came, sent int       // when the call came and the answer was sent: see [ModelPrices].Happened
	at         time.Time // of sending
	known      bool      // the session behind the newest handle knows of it
	spoken     bool      // the model has gone on to speak: the person knows of it
	asked      bool      // the person has asked something since
	orphaned   time.Time // when a session took over that never saw the call; zero: none has
}

// question is what the client was asked and has not answered: to run a function of its own, to show a canvas, or to ask
// the person something for a tool of the gateway.
type question struct {
	tools.Call       // as the client gets it
	of         *call // without an answer; nil: it has one, and what a person puts into the canvas goes up as text
	number     int   // the order in which they came
	backend    bool  // the operator's backend was asked: nobody else may answer

	person      bool                // the answer is a person's
	interactive bool                // there is something to put in, or a button
	tool        chan<- personAnswer // a tool of the gateway asks; it has room for one
}

// reply is what goes up for a call.
type reply struct {
	response   json.RawMessage
	scheduling tools.Scheduling
	parts      json.RawMessage // pictures, an array of Part; nil: none
	behind     bool            // the pictures go behind the answer
	whole      bool            // it is the result of a call that did not fail
}

// New returns the calls of a conversation that begins. Finish releases them.
func New(o Options) *Calls {
	c := &Calls{
		Options: o, funcs: map[string]tools.Func{}, board: canvas.NewBoard(o.SignPicture),
		pace: rate.NewLimiter(callRate, callBurst), failures: rate.NewLimiter(rate.Every(failEvery), failBurst),
		work: make(chan func()), over: make(chan struct{}), open: map[string]*call{}, questions: map[string]*question{},
	}
	for _, t := range o.Tools {
		c.funcs[t.Name] = t.Run
	}
	return c
}

// Work delivers functions that the owner's loop is to run.
func (c *Calls) Work() <-chan func() { return c.work }

// IsOpen reports whether a call or a question of this id waits for the client, or the call runs here.
func (c *Calls) IsOpen(id string) bool { return c.questions[id] != nil || c.open[id] != nil }

// Calling reports whether a call is open whose answer comes by itself. A person's answer may take minutes, and a model
// that does not wait for it goes on.
func (c *Calls) Calling() bool {
	for _, o := range c.open {
		if o.blocks() || !c.withPerson(o) {
			return true
		}
	}
	return false
}

// Idle reports whether no call is open, and the person is asked nothing.
func (c *Calls) Idle() bool { return len(c.open) == 0 && len(c.questions) == 0 }

// Gate keeps audio from a model that waits for a tool and would close the session for it. Each such call has a time
// limit, so the gate opens again whatever happens.
func (c *Calls) Gate() { c.Uplink.SetGate(c.Blocking()) }

// Blocking reports whether the model waits for a call, and can neither hear nor speak meanwhile.
func (c *Calls) Blocking() bool {
	for _, o := range c.open {
		if o.blocks() {
			return true
		}
	}
	return false
}

// post makes the owner's loop run f. It blocks until f has begun, and reports false if the conversation ends first.
func (c *Calls) post(f func()) bool {
	select {
	case c.work <- f:
		return true
	case <-c.over:
		return false
	}
}

// after makes the owner's loop run f in d, unless the call has ended by then.
func (c *Calls) after(o *call, d time.Duration, f func()) {
	o.timers = append(o.timers, time.AfterFunc(d, func() {
		c.post(func() {
			if c.isCurrent(o) {
				f()
			}
		})
	}))
}

func (c *Calls) isCurrent(o *call) bool { return c.open[o.ID] == o }

// status reports a call that runs here to the client.
func (c *Calls) status(o *call, status string, result json.RawMessage, message string) {
	if o.function.Where == setup.InGateway {
		c.Client.Status(Status{
			ID: o.ID, Name: o.Name, Title: o.Title, Status: status, Args: o.Args, Result: result,
			Took: time.Since(o.began), Message: message,
		})
	}
}

func (c *Calls) observe(o *call, outcome string) {
	if c.Observe != nil {
		c.Observe(End{Name: o.Name, Where: string(o.function.Where), Outcome: outcome, Took: time.Since(o.began)})
	}
}
