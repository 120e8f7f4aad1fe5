// Package upstream keeps one conversation with Gemini going over many connections. Gemini ends each connection after
// some ten minutes, networks may end it sooner, and a model may fall silent on an open connection. The keeper then
// dials the next connection. It resumes the session with the newest handle, or begins a new session with the
// transcript, and replays input that was not answered.
//
// A [Keeper] belongs to one goroutine, the loop of its owner. The loop calls the methods, runs the functions from Work,
// and calls OnAlarm when Alarms delivers a value. The methods report to the owner by calling [Options].Notify with an
// [Event].
package upstream

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"voxgate/bridge/alarm"
	"voxgate/bridge/gemini"
	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/uplink"
)

// Options configure a [Keeper]. All fields except StallTimeout, Caller and IsProbe are required.
type Options struct {
	Dial         func(context.Context, gemini.Setup) (Conn, error)
	Breakers     *Breakers
	Caller       string        // name of the caller, as passed to [Breaker.Admit]
	IsProbe      bool          // whether the caller is a probe, as returned by [Breaker.Admit]
	StallTimeout time.Duration // how long the model may be silent when an answer is due; 0 means no limit
	Uplink       *uplink.Uplink
	Logger       *slog.Logger
	OnCrash      func(error) // receives the panic of a goroutine, which ends the conversation; must not block

	// Notify passes an event to the owner. It must not block.
	Notify func(context.Context, Event)
	// IsIdle reports whether the owner can do without the connection now. During speech or an answer, or while a tool
	// runs, it cannot.
	IsIdle func() bool
	// WaitsForTool reports whether the model waits for a tool, so that its silence is expected.
	WaitsForTool func() bool
	// History returns the newest turns, with at most limit bytes of text. It omits unanswered input, which is replayed.
	// If fresh is true it returns all turns, otherwise only those since the newest [HandleChanged].
	History func(fresh bool, limit int) []wire.Content
}

// Conn is a connection to a model; see [gemini.Conn].
type Conn interface {
	Recv(ctx context.Context) (*wire.ServerMessage, error)
	Send(ctx context.Context, m wire.ClientMessage) error
	SendAudio(ctx context.Context, pcm []int16, rate int) error
	LastSentIndex() int64
	Close() error
}

// namedConn is a connection whose server gives its session an ID. Google's support asks for this ID.
type namedConn interface{ SessionID() string }

// Event is one of the types below.
type Event any

type (
	// Message is a message of the model. Its audio is valid until Notify returns.
	Message struct{ *wire.ServerMessage }

	// Connected reports that a new connection is in use. Fresh means that it does not resume a session, but has begun a
	// new one.
	Connected struct {
		First, Fresh bool
		NewModel     bool // fresh because the model has changed
		Cleared      bool // fresh because the history was cleared
		Renewal      bool // fresh because the handle covers less than the transcript (Profile.ForgetfulHandles)
	}

	// ResendPending follows Connected. The owner must now queue again everything that the session lacks, such as the
	// results of tools.
	ResendPending struct{}

	// SetupComplete follows ResendPending, but only on the first connection.
	SetupComplete struct{}

	// Replayed follows ResendPending if unanswered speech is replayed or was lost.
	Replayed struct {
		Speech, Lost time.Duration // Lost is speech that was too old to be replayed
		Partial      bool          // the session already has the beginning of the replayed speech
	}

	// DialOutcome reports whether a dial has succeeded.
	DialOutcome struct {
		Kind      ConnKind
		StartedAt time.Time
		Cause     string // cause of the failure: lost, stale handle, quota, fatal or auth; "" means success
		Err       error  // the failure
	}

	// ConnectionEnd reports the end of a connection that was dialled at StartedAt and set up at ConnectedAt. Cause is
	// empty if the gateway ended it.
	ConnectionEnd struct {
		Kind                   ConnKind
		StartedAt, ConnectedAt time.Time
		Cause                  string
	}

	// Disconnected reports that the connection has ended, and with it any answer in progress.
	Disconnected struct{}

	// HandleChanged reports that a new handle has arrived, or that the handle was dropped. From now on,
	// IsCoveredByHandle may return different results.
	HandleChanged struct{}

	// ConfigChanged reports that the result of Config has changed.
	ConfigChanged struct{}

	// ConfigResult reports the result of a [Keeper.ChangeConfig]. If the change was rejected, Err is the reason, and
	// the old configuration stays in force.
	ConfigResult struct {
		ConfigChange
		Err error
	}

	// ContextCleared reports that a ClearContext is complete. Origin is the value passed to it.
	ContextCleared struct{ Origin any }

	// WaitNotice reports that the model cannot answer at present. It comes after a wait of 1 s, and again later. Long
	// is true after 5 s. Unsure is true if the person may not be waiting for an answer.
	WaitNotice struct{ Long, Unsure bool }

	// WaitOver reports that the model can answer again.
	WaitOver struct{}

	// ModelStalled reports that the model sends nothing although an answer is due, and that Remedy is tried.
	ModelStalled struct{ Remedy Remedy }

	// AnswerAbandoned reports that the keeper no longer expects an answer to the last input.
	AnswerAbandoned struct {
		GaveUp bool // the model stayed silent after all remedies
		Sure   bool // the input was certainly addressed to the model
		Aside  bool // the input was perhaps not addressed to the model
	}

	// InputDropped reports that the last input was dropped, because every session that received it failed.
	InputDropped struct{}

	// FieldsRejected reports that the server has rejected fields of the configuration, so the connection lacks them.
	// Fields has a sentence about each of them.
	FieldsRejected struct{ Fields []string }

	// ConversationFailed reports that the conversation cannot go on. WasConnected is true if there was a connection
	// before.
	ConversationFailed struct {
		Err          error
		WasConnected bool
	}
)

// ConnKind is the purpose of a connection.
type ConnKind string

// Kinds of connections.
const (
	FirstConn   ConnKind = "first"
	ResumedConn ConnKind = "resume" // the session is continued
	FreshConn   ConnKind = "fresh"  // a new session in the same conversation
)

// Phase is the state of the connection.
type Phase int

// Phases of the connection.
const (
	Dialing   Phase = iota // opening the first connection
	SettingUp              // connection open, setup not yet accepted by the model
	Up                     // the model is listening
	Resuming               // no connection; the next one resumes the session with the newest handle
	Reseeding              // no connection; the next one begins a fresh session with the transcript
)

// Counts holds statistics of a keeper, for the log.
type Counts struct {
	Dials, Resumed, Reseeded  int
	Nudges, Resumes, Restarts int // numbers of remedies for a silent model
	Repeats                   int // repetitions of questions whose turn ended without an answer
	LongestWait               time.Duration
}

// Keeper keeps one conversation going. Only the goroutine of its owner may call its methods: see the package comment.
type Keeper struct {
	Options
	work   chan func(context.Context) // functions from dials, and from the reader and the writer of the connection
	clock  *alarm.Clock[alarmKind]
	counts Counts

	config        liveconfig.Config // configuration in force
	setupConfig   liveconfig.Config // configuration with which the model's current session was set up
	changes       []pendingChange   // changes not yet answered, in order; Gemini may still reject the first ones, see trialCount
	trySingly     bool              // try each change separately, because one of several was rejected
	pendingClears []any             // origins of the unanswered calls of ClearContext

	current   connection
	handle    handle
	failures  failures
	planned   replacement
	stall     stallWatch
	wait      waitState
	isParked  bool
	onHold    bool
	hasFailed bool

	eventCount int // number of events so far
	lastEvent  int // number of the newest event that a handle should cover
}

// connection is the connection to the model. What arrives from a connection that was stopped is ignored.
type connection struct {
	epoch        int  // number of the dial that made this connection
	conn         Conn // nil if not connected
	isDialing    bool // a dial is in progress or scheduled
	hasWebSocket bool // the first dial has a WebSocket, but no session yet
	hadSession   bool // this or an earlier connection has had a session
	isResumed    bool // the connection continues the session of an earlier one
	connectedAt  time.Time
	dialOutcome  DialOutcome        // outcome of the dial
	cause        string             // cause of the connection's end, or "" if the gateway ended it
	cancel       context.CancelFunc // cancels the dial, or the reader and writer
	goroutines   sync.WaitGroup     // counts the goroutines of the dial, the reader and the writer
}

// handle is the newest session resumption handle. A new connection can continue the session with it.
type handle struct {
	value  string
	event  int  // number of the handle's arrival; see Keeper.eventCount
	isUsed bool // a connection was resumed with it
}

// pendingChange is a change of the configuration whose result was not reported yet.
type pendingChange struct {
	ConfigChange
	previous *liveconfig.Config // the configuration before the change, while Gemini may still reject the change; otherwise nil
}

// replacement is a plan to replace the connection. The connection stays in use until it is idle.
type replacement struct {
	reason   string
	earliest time.Time // see [Keeper.earliestReplacement]
	deadline time.Time // zero if no replacement is planned
}

// waitState tracks a wait: a time in which the model cannot answer.
type waitState struct {
	since  time.Time // when the wait began; zero if there is none
	unsure bool      // the person may not be waiting
}

// alarmKind identifies a timer of the keeper.
type alarmKind int

const (
	alarmFirstConfig alarmKind = iota // no configuration has arrived: dial with the current one
	alarmRetry                        // time to dial again
	alarmMaxAge                       // the connection will end soon, although no goAway came
	alarmGoAway                       // the deadline in goAway is near
	alarmReplace                      // replace the connection now, even during speech
	alarmNoHandle                     // the connection is idle, but the awaited handle has not arrived
	alarmEarliest                     // the connection is old enough to be replaced
	alarmTrialEnd                     // Gemini has not rejected a change of the configuration
	alarmStall                        // the model should have reacted
	alarmStale                        // the input will not be answered any more
	alarmWait                         // next notice to a waiting person
	alarmIdle                         // the caller has not returned: the connection costs money
	numAlarms
)

// New returns a keeper that is idle until Start.
func New(o Options, config liveconfig.Config) *Keeper {
	o.Uplink.Configure(uplinkConfig(config))
	return &Keeper{Options: o, work: make(chan func(context.Context)), clock: alarm.New(numAlarms), config: config}
}

// Work returns a channel of functions that the owner's loop must run.
func (k *Keeper) Work() <-chan func(context.Context) { return k.work }

// Alarms returns a channel. When it delivers a value, the owner's loop must call OnAlarm.
func (k *Keeper) Alarms() <-chan time.Time { return k.clock.C }

// Config returns the configuration in force.
func (k *Keeper) Config() *liveconfig.Config { return &k.config }

// Counts returns the statistics so far.
func (k *Keeper) Counts() Counts { return k.counts }

// ResumptionHandle returns the handle with which the next connection would resume the session, or "".
func (k *Keeper) ResumptionHandle() string { return k.nextHandle(k.config) }

// Connected reports whether the model is connected. The caller may be absent.
func (k *Keeper) Connected() bool { return k.current.conn != nil }

// EverConnected reports whether the model was ever connected.
func (k *Keeper) EverConnected() bool { return k.current.hadSession }

// isServing reports whether both the model and a caller are connected.
func (k *Keeper) isServing() bool { return k.current.conn != nil && !k.isParked }

// RecordEvent records an event that the next handle should cover, and returns the event's number.
func (k *Keeper) RecordEvent() (event int) {
	k.eventCount++
	k.lastEvent = k.eventCount
	return k.eventCount
}

// IsCoveredByHandle reports whether the newest handle covers the event with that number.
func (k *Keeper) IsCoveredByHandle(event int) bool {
	return k.handle.value != "" && event < k.handle.event
}

// uplinkConfig returns the part of a configuration that the uplink needs.
func uplinkConfig(c liveconfig.Config) uplink.Config {
	return uplink.Config{
		IsManual: c.Options.Manual, Turns: c.Options.Turns, PreRoll: c.Options.PreRoll, EndSilence: c.EndSilence(),
	}
}

// applyConfig puts a configuration in force.
func (k *Keeper) applyConfig(ctx context.Context, c liveconfig.Config) {
	if !c.Options.Resumption {
		k.handle = handle{}
	}
	k.config = c
	k.Uplink.Configure(uplinkConfig(c))
	k.Notify(ctx, ConfigChanged{})
}

// stopAndWait closes the connection and waits for its goroutines. The next connection must not be dialled earlier,
// because Gemini rejects a handle while the connection that used it last is open.
func (c *connection) stopAndWait() {
	c.epoch++
	c.isDialing = false
	if c.cancel != nil {
		c.cancel()
		c.cancel = nil
	}
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
	c.goroutines.Wait()
}

func (r *replacement) isPlanned() bool { return !r.deadline.IsZero() }

// Reasons why the keeper itself, and not Gemini, rejects a change of the configuration.
var (
	ErrTooManyChanges  = errors.New("too many configuration changes are queued for Gemini")
	ErrTooManyMessages = errors.New("too many messages are queued for Gemini")
)
