// Package toolcalls runs the function calls of a conversation, and answers each call once. A function runs in the
// gateway or in the client, or it shows a canvas in the client.
//
// [Calls] belongs to one goroutine, the loop of its owner. The loop must also run the functions that it receives from
// Work.
package toolcalls

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/uplink"
	"voxgate/tools"
	"voxgate/tools/canvas"
)

const (
	// maxCalls limits the concurrent calls of one conversation.
	maxCalls = 16

	// callRate (calls a second) and callBurst limit a model that repeats calls endlessly. People make less than one
	// request a second. A request may need a chain of calls, so a burst is allowed.
	callRate  = rate.Limit(1)
	callBurst = 30

	// failEvery and failBurst limit how often the client is told of calls that were not run. It is told failBurst times
	// without delay, and then once per failEvery.
	failEvery = 5 * time.Second
	failBurst = 10

	// maxReason limits the length, in bytes, of the text that tells the client why a call failed.
	maxReason = 300

	// maxPartial limits the partial answers of a call.
	maxPartial = 32

	// blockingTimeout limits how long a tool may block the model. It must be short: gemini-3.1-flash-live cancels the
	// call after some 12 s (livekit/agents PR 5556).
	blockingTimeout = 10 * time.Second

	// flushTime limits how long the end of a conversation is delayed until its last answers are sent: about one round
	// trip.
	flushTime = 250 * time.Millisecond
)

// Options configure [Calls]. All fields except Tools and SignPicture are required. None of the functions may block.
type Options struct {
	Notify    func(Event) // receives the events
	Functions FunctionList
	Handles   Handles
	Uplink    *uplink.Uplink
	Tools     []tools.Tool // tools that run in the gateway
	Env       tools.Env    // information about the conversation for the tools
	// CanShowCanvas reports whether the client can show a canvas.
	CanShowCanvas func() bool
	SignPicture   func(string) string // see [canvas.NewBoard]
	Logger        *slog.Logger
	OnCrash       func(error) // receives the panic of a goroutine, which ends the conversation
}

// FunctionList holds the functions that are declared to the model.
type FunctionList interface {
	// FindFunction returns the declared function with this name. isCallable reports whether it may be called now.
	FindFunction(name string) (f liveconfig.Function, isCallable bool)
	// ResolveFunction returns the function that the model means by a name: see [liveconfig.FunctionList.FindCalled].
	ResolveFunction(name string) (f liveconfig.Function, ok bool)
	// RunsInBackend reports whether the operator's backend runs a function. If so, only the backend is asked, and only
	// its answer is accepted.
	RunsInBackend(name string) bool
}

// Handles tells which events the newest session resumption handle covers. upstream.Keeper implements it.
type Handles interface {
	// RecordEvent returns the number of an event that happens now. Handles that Gemini sends later may cover it.
	RecordEvent() (event int)

	IsCoveredByHandle(event int) bool
}

// Event is one of the types below.
type Event any

type (
	// ClientCalls asks the client to run these calls, and to answer each with [Calls.HandleResponse].
	ClientCalls struct{ Calls []tools.Call }

	// CallsWithdrawn reports that the answers to these requests are no longer needed.
	CallsWithdrawn struct{ IDs []string }

	// CallRejected reports a call that was not run, or not answered.
	CallRejected struct{ Err *Error }

	// Warning is a warning for the client's developer.
	Warning struct{ Message string }

	// ReplyExpected reports that the model has received answers to which it should react.
	ReplyExpected struct{}

	// PersonAnswered reports that the wait of the model or a tool for the person is over: the person has answered or
	// closed the question, or has not answered a canvas in time.
	PersonAnswered struct{}

	// Text asks the owner to send real-time text to the model. If Function is set, the text is the late result of that
	// function. Otherwise it is input into a canvas.
	Text struct{ Text, Function string }

	// Pictures asks the owner to send pictures to the model, in a turn that needs no answer. Parts is an array of Part.
	Pictures struct{ Parts json.RawMessage }
)

// Status is an event that reports the state of a call that runs in the gateway.
type Status struct {
	ID, Name, Title string
	Status          string // one of the constants below
	Args, Result    json.RawMessage
	Took            time.Duration
	Message         string // reason of the failure
}

// The values of [Status].Status.
const (
	Running   = "running"
	Done      = "done"
	Failed    = "failed"
	Cancelled = "cancelled"
)

// CallEnd is an event that reports the end of a call.
type CallEnd struct {
	Name    string
	Where   string // side that ran the function: client, gateway or canvas
	Outcome string // done, failed, timeout, cancelled
	Took    time.Duration
}

// Problem is the kind of an [Error].
type Problem int

// The kinds of problems.
const (
	TooMany         Problem = iota // too much is queued or running
	UnknownFunction                // no such function
	BrokenCall                     // called wrongly, or timed out
	NoOpenCall                     // no call waits for this answer
	ResponseTooLong                // the answer exceeds the limit of the model
)

// Error describes a rejected call or answer.
type Error struct {
	Problem Problem
	Message string // a sentence for the client's developer
}

func (e *Error) Error() string { return e.Message }

// Response is a client's answer to a call.
type Response struct {
	ID, Name     string          // if ID is empty, the response answers the only open call with that name
	Response     json.RawMessage // any JSON; nil means success without a result
	Scheduling   tools.Scheduling
	WillContinue bool            // more answers follow
	Parts        json.RawMessage // pictures for the model, an array of Part, or nil
	Backend      bool            // the response comes from the operator's backend, which may answer every call
}

// Calls holds the function calls of one conversation.
type Calls struct {
	Options
	gatewayFuncs   map[string]tools.Func // functions that run in the gateway, by name
	board          *canvas.Board
	callLimiter    *rate.Limiter // limits the calls of the model
	failureLimiter *rate.Limiter // limits the failures reported to the client

	work      chan func()   // functions for the owner's loop
	done      chan struct{} // closed when nothing reads from work any more
	running   sync.WaitGroup
	abandoned atomic.Int32 // number of tools that do not return

	openCalls     map[string]*call     // unanswered calls
	questions     map[string]*question // unanswered questions to the client
	questionCount int                  // number of questions so far
	answers       []answer             // answered calls, kept until a handle covers them, or to answer equal calls
}

// call is an unanswered function call.
type call struct {
	tools.Call
	function     liveconfig.Function
	cancel       context.CancelCauseFunc // cancels the call's goroutine; nil if there is none
	timers       []*time.Timer
	startedAt    time.Time
	event        int // number of the call's arrival: see [Handles]
	partialCount int // number of partial answers so far

	duplicates  []duplicateCall // equal calls that came while it was open, and get its answer
	isWithdrawn bool            // the model has cancelled it, but not its duplicates

	pictures   []json.RawMessage // pictures of partial answers, kept until the model no longer waits
	isDetached bool              // the model has an interim answer, and gets the result later as text
}

// duplicateCall is a call that is equal to a call that is still open.
type duplicateCall struct {
	tools.Call
	event int
}

// waitingCalls returns the call and its duplicates, which wait for the same answer. It omits the call itself if the
// model has cancelled it.
func (c *call) waitingCalls() []duplicateCall {
	if c.isWithdrawn {
		return c.duplicates
	}
	return append([]duplicateCall{{c.Call, c.event}}, c.duplicates...)
}

// blocksModel reports whether the model waits for the answer to the call.
func (c *call) blocksModel() bool { return c.function.Blocking && !c.isDetached }

func (c *call) stopCall() {
	for _, t := range c.timers {
		t.Stop()
	}
	if c.cancel != nil {
		c.cancel(tools.ErrCancelled)
	}
}

// answer is an answered call. It is kept until a handle covers the call and its answer.
type answer struct {
	call tools.Call
	reply
	callEvent, answerEvent int       // numbers of the call's arrival and of the answer: see [Handles]
	sentAt                 time.Time // when the answer was sent
	isCovered              bool      // the newest handle covers the answer
	modelSpoke             bool      // the model has spoken since, so the person knows the result
	personAsked            bool      // the person has asked something since
	orphanedAt             time.Time // when the session that made the call was found to be gone; zero means that it is not gone
}

// question is an unanswered request to the client: to run a function, to show a canvas, or to ask the person something
// for a tool of the gateway.
type question struct {
	tools.Call       // the call as the client gets it
	call       *call // call to answer; nil if the call is answered already: input into the canvas is then sent as text
	number     int   // number in the order of arrival
	forBackend bool  // only the operator's backend was asked, and may answer

	forPerson  bool                // a person has to answer
	hasInput   bool                // the canvas has input fields or a button
	toolAnswer chan<- personAnswer // delivers the answer to a tool of the gateway; has a buffer of one
}

// reply is the content of an answer to the model.
type reply struct {
	response      json.RawMessage
	scheduling    tools.Scheduling
	parts         json.RawMessage // pictures, an array of Part, or nil
	picturesAfter bool            // the pictures go after the answer
	succeeded     bool            // result of a call that did not fail
}

// New returns the calls of a new conversation. Finish releases them.
func New(o Options) *Calls {
	c := &Calls{
		Options: o, gatewayFuncs: map[string]tools.Func{}, board: canvas.NewBoard(o.SignPicture),
		callLimiter: rate.NewLimiter(callRate, callBurst), failureLimiter: rate.NewLimiter(rate.Every(failEvery), failBurst),
		work: make(chan func()), done: make(chan struct{}), openCalls: map[string]*call{}, questions: map[string]*question{},
	}
	for _, t := range o.Tools {
		c.gatewayFuncs[t.Name] = t.Run
	}
	return c
}

// Work returns a channel of functions that the owner's loop must run.
func (c *Calls) Work() <-chan func() { return c.work }

// IsOpen reports whether a call or a question with this ID is open.
func (c *Calls) IsOpen(id string) bool { return c.questions[id] != nil || c.openCalls[id] != nil }

// HasRunningCall reports whether an open call blocks the model, or runs without waiting for a person. Calls that only
// wait for a person do not count, because they may take minutes while the model goes on.
func (c *Calls) HasRunningCall() bool {
	for _, o := range c.openCalls {
		if o.blocksModel() || !c.waitsForPerson(o) {
			return true
		}
	}
	return false
}

// IsIdle reports whether no call and no question is open.
func (c *Calls) IsIdle() bool { return len(c.openCalls) == 0 && len(c.questions) == 0 }

// UpdateAudioGate stops the audio while a call blocks the model, because some models would close the session if they
// received audio. Such calls have a time limit, so the audio always goes on.
func (c *Calls) UpdateAudioGate() { c.Uplink.SetAudioGate(c.IsModelBlocked()) }

// IsModelBlocked reports whether the model waits for the answer to a call. Meanwhile it can neither receive input nor
// speak.
func (c *Calls) IsModelBlocked() bool {
	for _, o := range c.openCalls {
		if o.blocksModel() {
			return true
		}
	}
	return false
}

// runInLoop makes the owner's loop run f. It blocks until the loop takes f. isAccepted is false if the conversation
// ends first.
func (c *Calls) runInLoop(f func()) (isAccepted bool) {
	select {
	case c.work <- f:
		return true
	case <-c.done:
		return false
	}
}

// runAfter makes the owner's loop run f after the duration d, unless the call has ended by then.
func (c *Calls) runAfter(o *call, d time.Duration, f func()) {
	o.timers = append(o.timers, time.AfterFunc(d, func() {
		c.runInLoop(func() {
			if c.isStillOpen(o) {
				f()
			}
		})
	}))
}

func (c *Calls) isStillOpen(o *call) bool { return c.openCalls[o.ID] == o }

// reportStatus tells the client the state of a call that runs in the gateway. For all other calls it does nothing.
func (c *Calls) reportStatus(o *call, status string, result json.RawMessage, message string) {
	if o.function.Where == liveconfig.InGateway {
		c.Notify(Status{
			ID: o.ID, Name: o.Name, Title: o.Title, Status: status, Args: o.Args, Result: result,
			Took: time.Since(o.startedAt), Message: message,
		})
	}
}

func (c *Calls) reportEnd(o *call, outcome string) {
	c.Notify(CallEnd{Name: o.Name, Where: string(o.function.Where), Outcome: outcome, Took: time.Since(o.startedAt)})
}
