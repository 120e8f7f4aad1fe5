// Package keeper keeps one conversation with Gemini going over many connections. Gemini ends each of them after some
// ten minutes, networks end them sooner, and a model may fall silent on one that stays open. The keeper dials the next
// one, goes on with the newest handle or gives a fresh session what was said, and says again what had no answer.
//
// A [Keeper] belongs to one goroutine, its owner's loop. The loop calls the methods, runs what Work delivers, and calls
// OnAlarm when Alarms does. What the owner must know comes as an [Event]: these methods call [Options].Tell.
package keeper

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"voxgate/bridge/alarm"
	"voxgate/bridge/gemini"
	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/uplink"
)

// Options make a [Keeper]. All fields but Stall, Caller and IsProbe are needed.
type Options struct {
	Dial     func(context.Context, gemini.Setup) (Conn, error)
	Breakers *Breakers
	Caller   string        // who asks for the conversation, as [Breaker.Admit] knows them
	IsProbe  bool          // as [Breaker.Admit] has said
	Stall    time.Duration // how long the model may be silent where an answer is due; 0: for ever
	Uplink   *uplink.Uplink
	Logger   *slog.Logger
	Crashed  func(error) // takes the panic of a goroutine, which ends the conversation; it must not block

	// Tell gives the owner an event. It must not block.
	Tell func(context.Context, Event)
	// Idle reports whether the owner needs the connection just now: nobody speaks, no answer is under way, no tool runs.
	Idle func() bool
	// Calling reports whether the model waits for a tool: its silence is then expected.
	Calling func() bool
	// History is what a fresh session gets of the conversation, or a resumed one of the time since the newest
	// [HandleChanged]: the newest turns, with limit bytes of text at most. It leaves out what has no answer, which is said
	// again.
	History func(fresh bool, limit int) []wire.Content
}

// Conn is a connection to a model, which [gemini.Conn] describes.
type Conn interface {
	Recv(ctx context.Context) (*wire.ServerMessage, error)
	Send(ctx context.Context, m wire.ClientMessage) error
	SendAudio(ctx context.Context, pcm []int16, rate int) error
	Sent() int64
	Close() error
}

// namedConn is a connection whose server gives its session an ID, which Google's support asks for.
type namedConn interface{ SessionID() string }

// Event is what the owner learns: one of the types below.
type Event any

type (
	// Message is a message of the model. Its audio is valid until Tell returns.
	Message struct{ *wire.ServerMessage }

	// Linked says that a new connection serves. Fresh: it is another session.
	Linked struct {
		First, Fresh bool
		NewModel     bool // it is fresh because the model is another one
		Cleared      bool // or because the history was to be forgotten
		Renewal      bool // or because the handle stands for less than the transcript (Profile.ForgetfulHandles)
	}

	// CatchUp follows Linked: the owner is to put what the session waits for, such as the answers of tools, into the
	// uplink again.
	CatchUp struct{}

	// SetUp follows CatchUp on the first connection.
	SetUp struct{}

	// Rewound follows CatchUp: so much of what was said has no answer and is said again. Lost is what was said too long
	// ago. Rest is set if the session has heard the beginning of what is said again.
	Rewound struct {
		Replayed, Lost time.Duration
		Rest           bool
	}

	// Dialled is the outcome of a dial.
	Dialled struct {
		Kind  LinkKind
		Began time.Time
		Cause string // why it has failed: lost, stale handle, quota, fatal or auth; empty: it has not
	}

	// LinkEnd says that a connection has ended, and when it was dialled and set up. Cause is empty if we have ended it.
	LinkEnd struct {
		Kind      LinkKind
		Began, Up time.Time
		Cause     string
	}

	// Unlinked says that the connection is gone, and with it the end of an answer that was under way.
	Unlinked struct{}

	// HandleChanged says that the handle is new, or gone: Knows may answer differently.
	HandleChanged struct{}

	// Configured says that Config has changed.
	Configured struct{}

	// Updated answers Update, or Adjust, whose name it has. Err is why it was refused; then the old configuration goes on.
	Updated struct {
		Err  error
		Name string
	}

	// Cleared answers Clear.
	Cleared struct{}

	// Waiting repeats while the model cannot answer: first after 1 s. Long is set from 5 s on. Unsure means that perhaps
	// nobody waits.
	Waiting struct{ Long, Unsure bool }

	// WaitOver says that the model can answer again.
	WaitOver struct{}

	// Stalled says that the model is silent where an answer is due, and what is tried.
	Stalled struct{ Tried Remedy }

	// Unanswered says that what was said will not be answered any more. GaveUp: the model stayed silent whatever was
	// tried. Sure: something was certainly said. Aside: perhaps not to the model.
	Unanswered struct{ GaveUp, Sure, Aside bool }

	// Dropped says that what was said last was given up, because each session that hears it dies.
	Dropped struct{}

	// Refused has sentences about fields of the configuration that the server did not take: the connection is without them.
	Refused struct{ Fields []string }

	// Failed says that the conversation cannot go on. Used: there was a connection before.
	Failed struct {
		Err  error
		Used bool
	}
)

// LinkKind is what a connection is for.
type LinkKind string

// The kinds of connections.
const (
	FirstLink   LinkKind = "first"
	ResumedLink LinkKind = "resume" // the session goes on
	FreshLink   LinkKind = "fresh"  // another session begins, in the same conversation
)

// Phase is where the connection stands.
type Phase int

// The phases of a conversation's connections.
const (
	Dialing   Phase = iota // the first one is opened
	SettingUp              // it is open, the model has not yet accepted the set-up
	Up                     // the model listens
	Resuming               // there is none, the next one goes on with the newest handle
	Reseeding              // there is none, the next one begins a fresh session with what was said
)

// Counts are what a keeper has done so far, for the log.
type Counts struct {
	Dials, Resumed, Reseeded  int
	Nudges, Resumes, Restarts int // because the model was silent
	Repeats                   int // because it has ended its turn without an answer
	LongestWait               time.Duration
}

// Keeper keeps one conversation going. The package comment says which goroutine may call its methods.
type Keeper struct {
	Options
	work   chan func(context.Context) // of dials, and of the reader and the writer of the connection
	clock  *alarm.Clock[alarmKind]
	counts Counts

	config  setup.Config // in force
	opened  setup.Config // what the model's session was set up with
	updates []update     // wanted next, in order
	trial   trial        // of changes in place, which may still be refused
	clears  int          // calls of Clear without an answer

	link     link
	handle   handle
	failures failures
	replace  replacement
	watch    watch
	wait     wait
	parked   bool
	paused   bool
	failed   bool

	// now counts what happens, which orders events; unsaved is its value at the newest event that a handle should know of.
	now, unsaved int
}

// link is the connection to the model. Whatever comes from a stopped one is void.
type link struct {
	epoch     int  // counts dials
	conn      Conn // nil while there is none
	busy      bool // a dial is under way or waits for its time
	upgraded  bool // the first dial has a WebSocket, but no session yet
	setUp     bool // there was a session
	isResumed bool // the connection goes on with an earlier one's session
	since     time.Time
	outcome   Dialled            // of the dial
	cause     string             // of its end; empty: it is ours
	cancel    context.CancelFunc // of the dial, or of the reader and writer
	running   sync.WaitGroup     // dial, reader, writer
}

// handle is the newest one by which the session can go on with all that was said before it.
type handle struct {
	text   string
	when   int  // it came; see Keeper.now
	isUsed bool // a connection was resumed by it
}

// trial is changes in place that Gemini has not accepted yet. The zero value is none.
type trial struct {
	before *setup.Config // goes on if one is refused; nil: there is none
	of     int           // so many of the updates
	single bool          // each is tried by itself, because one of several was refused
}

// update is a configuration without an answer.
type update struct {
	config  setup.Config
	refused error
	name    string // of one by Adjust
}

// replacement is the plan to replace the connection, which serves until nobody needs it.
type replacement struct {
	why      string
	earliest time.Time // not before; see [Keeper.earliestReplacement]
	until    time.Time // at the latest; zero: no plan
}

// wait is a time in which the model cannot answer.
type wait struct {
	since  time.Time // zero: none
	unsure bool      // perhaps nobody waits
}

// alarmKind is something to do at a certain time.
type alarmKind int

const (
	alarmLater    alarmKind = iota // no configuration has come: dial with the one there is
	alarmRetry                     // dial again
	alarmAge                       // the connection is so old that its end is near, though no goAway came
	alarmGoAway                    // the time that goAway has named is near
	alarmReplace                   // the connection is replaced now, whoever speaks
	alarmHandle                    // nobody speaks, and the handle that was waited for has not come
	alarmEarliest                  // the connection is old enough to be replaced
	alarmTrial                     // Gemini has not objected to a change of the configuration
	alarmStall                     // the model should have said something
	alarmStale                     // what was said will not be answered any more
	alarmWait                      // the next sign for a person who waits
	alarmIdle                      // nobody has come back: the connection costs money
	numAlarms
)

// New returns a keeper that does nothing before Start.
func New(o Options, config setup.Config) *Keeper {
	o.Uplink.Configure(config.Options.Manual, config.Options.PreRoll, config.EndSilence())
	return &Keeper{Options: o, work: make(chan func(context.Context)), clock: alarm.New(numAlarms), config: config}
}

// Work delivers functions that the owner's loop is to run.
func (k *Keeper) Work() <-chan func(context.Context) { return k.work }

// Alarms delivers a time whenever the owner's loop is to call OnAlarm.
func (k *Keeper) Alarms() <-chan time.Time { return k.clock.C }

// Config is the configuration in force.
func (k *Keeper) Config() *setup.Config { return &k.config }

// Counts returns what was done so far.
func (k *Keeper) Counts() Counts { return k.counts }

// Handle is the handle by which the next connection would go on; empty: there is none.
func (k *Keeper) Handle() string { return k.nextHandle(k.config) }

// Connected reports whether there is a connection, even if it serves nobody.
func (k *Keeper) Connected() bool { return k.link.conn != nil }

// Begun reports whether there ever was a connection.
func (k *Keeper) Begun() bool { return k.link.setUp }

// serving reports whether a connection serves somebody.
func (k *Keeper) serving() bool { return k.link.conn != nil && !k.parked }

// RecordEvent notes an event that the session's next handle should know of, and returns its number in their order.
func (k *Keeper) RecordEvent() (when int) {
	k.now++
	k.unsaved = k.now
	return k.now
}

// HandleCovers reports whether the session behind the newest handle knows of the event with that number.
func (k *Keeper) HandleCovers(when int) bool { return k.handle.text != "" && when < k.handle.when }

// adopt puts a configuration in force.
func (k *Keeper) adopt(ctx context.Context, c setup.Config) {
	if !c.Options.Resumption {
		k.handle = handle{}
	}
	k.config = c
	k.Uplink.Configure(c.Options.Manual, c.Options.PreRoll, c.EndSilence())
	k.Tell(ctx, Configured{})
}

// stop closes the connection and waits for its reader and writer: Gemini refuses a handle while the connection that
// used it is open.
func (l *link) stop() {
	l.epoch++
	l.busy = false
	if l.cancel != nil {
		l.cancel()
		l.cancel = nil
	}
	if l.conn != nil {
		l.conn.Close()
		l.conn = nil
	}
	l.running.Wait()
}

func (r *replacement) wanted() bool { return !r.until.IsZero() }

// Why an update is refused here.
var (
	ErrTooManyUpdates  = errors.New("too many changes of the configuration wait for Gemini")
	ErrTooManyMessages = errors.New("too many messages wait for Gemini")
)

// answerUpdate answers the oldest update.
func (k *Keeper) answerUpdate(ctx context.Context, err error) {
	name := k.updates[0].name
	k.updates = k.updates[1:]
	k.Tell(ctx, Updated{err, name})
}

// answerRefused answers the updates that were refused and are next in order.
func (k *Keeper) answerRefused(ctx context.Context) {
	for len(k.updates) > 0 && k.updates[0].refused != nil {
		k.answerUpdate(ctx, k.updates[0].refused)
	}
}

// rejected ends a trial: Gemini has closed the connection. Which of several changes it does not take the next connection finds out.
func (k *Keeper) rejected(ctx context.Context, err error) {
	if k.trial.of == 1 {
		defer k.answerUpdate(ctx, err)
	}
	k.undo(ctx)
}

// undo ends a trial, and has the configuration before it go on.
func (k *Keeper) undo(ctx context.Context) {
	old := *k.trial.before
	k.clock.Clear(alarmTrial)
	k.trial = trial{single: k.trial.of > 1}
	k.adopt(ctx, old)
}
