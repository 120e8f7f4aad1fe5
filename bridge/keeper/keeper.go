// Package keeper keeps one conversation with Gemini going over many connections. Gemini ends each of them after some ten
// minutes, networks end them sooner, and a model may fall silent on one that stays open. The keeper dials the next one,
// goes on with the newest handle or tells a fresh session what was said, and says again what had no answer.
//
// A [Keeper] belongs to one goroutine, its owner's loop. The loop calls the methods, runs what Work delivers,
// and calls OnAlarm when Alarms does. What the owner must know comes as an [Event], by a call of [Options].Tell from within one of these methods.
package keeper

import (
	"context"
	"log/slog"
	"time"

	"voxgate/bridge/alarm"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/uplink"
)

// Options make a [Keeper]. All fields but Stall and Probe are needed.
type Options struct {
	Client  *api.Client
	Breaker *Breaker
	Probe   bool          // as [Breaker.Admit] has said
	Stall   time.Duration // how long the model may be silent where an answer is due; 0: for ever
	Uplink  *uplink.Uplink
	Logger  *slog.Logger

	// Tell tells the owner what has happened. It must not block.
	Tell func(context.Context, Event)
	// Idle tells whether the owner needs the connection just now: nobody speaks, no answer is under way, no tool runs.
	Idle func() bool
	// Calling tells whether the model waits for a tool: then its silence is none.
	Calling func() bool
	// History is what a fresh session is told of the conversation, or one that goes on of the time since the newest
	// [HandleChanged]; without what is said again, because it has no answer.
	History func(fresh bool) []wire.Content
}

// Event is what the owner is told: one of the types below.
type Event any

type (
	// Message is a message of the model. Its audio is valid until Tell returns.
	Message struct{ *wire.ServerMessage }

	// Linked says that a new connection serves. Fresh: it is another session.
	Linked struct {
		First, Fresh bool
		NewModel     bool // it is fresh because the model is another one
		Cleared      bool // or because the history was to be forgotten
	}

	// CatchUp follows Linked: what the session waits for, as the answers of tools, is to be put into the uplink again.
	CatchUp struct{}

	// SetUp follows CatchUp on the first connection.
	SetUp struct{}

	// Rewound follows CatchUp: so much of what was said has no answer and is said again. Lost is what was said too long ago.
	Rewound struct{ Replayed, Lost time.Duration }

	// Dialled is the outcome of a dial.
	Dialled struct {
		Kind  LinkKind
		Began time.Time
		Cause string // why it has failed: lost, stale handle, quota, fatal or auth; empty: it has not
	}

	// LinkEnd says that a connection is over which was dialled and set up at these times. Cause is empty if we have ended it.
	LinkEnd struct {
		Kind      LinkKind
		Began, Up time.Time
		Cause     string
	}

	// Unlinked says that the connection is gone, and with it the end of an answer that was under way.
	Unlinked struct{}

	// HandleChanged says that there is a new handle, or none any more: Knows has other answers.
	HandleChanged struct{}

	// Configured says that Config has changed.
	Configured struct{}

	// Updated answers Update. Err is why it was refused; then the old configuration goes on.
	Updated struct{ Err error }

	// Cleared answers Clear.
	Cleared struct{}

	// Waiting is told again and again while the model cannot answer: first after 1 s. Long is set from 5 s on. Unsure means
	// that perhaps nobody waits.
	Waiting struct{ Long, Unsure bool }

	// WaitOver says that it can again.
	WaitOver struct{}

	// Stalled says that the model is silent where an answer is due, and what is tried.
	Stalled struct{ Tried Remedy }

	// Unanswered says that nothing that was said will be answered any more. GaveUp: because the model is silent whatever was
	// tried. Unsure: perhaps nothing was said, or not to the model.
	Unanswered struct{ GaveUp, Sure, Aside bool }

	// Dropped says that what was said last was given up: each session that hears it ends.
	Dropped struct{}

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
	Reseeding              // there is none, the next one begins a fresh session that is told what was said
)

// Counts are what a keeper has done so far, for the log.
type Counts struct {
	Dials, Resumed, Reseeded  int
	Nudges, Resumes, Restarts int // because the model was silent
	LongestWait               time.Duration
}

// Keeper keeps one conversation going. See the package comment for who may call its methods.
type Keeper struct {
	Options
	work   chan func(context.Context) // of dials, and of the reader and the writer of the connection
	clock  *alarm.Clock[alarmKind]
	counts Counts

	config  setup.Config  // in force
	opened  setup.Config  // what the model's session was set up with
	updates []update      // wanted next, in order
	trial   *setup.Config // a change in place may still be refused: then this goes on
	clears  int           // calls of Clear without an answer

	link     link
	handle   handle
	failures failures
	replace  replacement
	watch    watch
	wait     wait
	parked   bool
	paused   bool
	failed   bool

	// now counts what happens, so that one can tell which of two things came first; unsaved is when the newest thing happened
	// that a handle should know of.
	now, unsaved int
}

// alarmKind is something to be looked after at a certain time.
type alarmKind int

const (
	alarmLater   alarmKind = iota // no configuration has come: dial with the one there is
	alarmRetry                    // dial again
	alarmAge                      // the connection is so old that its end is near, though no goAway came
	alarmReplace                  // the connection is replaced now, whoever speaks
	alarmHandle                   // nobody speaks, but the handle is not the newest: it is waited for no longer
	alarmTrial                    // Gemini has not objected to a change of the configuration
	alarmStall                    // the model should have said something
	alarmStale                    // what was said will not be answered any more
	alarmWait                     // the next thing a person hears or sees who waits
	alarmIdle                     // nobody has come back: the connection costs money
	numAlarms
)

const (
	// idleTime is how long a parked conversation keeps its connection. A reloaded page is back sooner; longer, and an
	// abandoned session costs money.
	idleTime = 5 * time.Second

	// laterTime is how long a client that configures after connecting may take. Clients of OpenAI's protocol send their
	// session.update with the first round trip.
	laterTime = 800 * time.Millisecond
)

// New returns a keeper that does nothing before Start.
func New(o Options, config setup.Config) *Keeper {
	o.Uplink.Configure(config.Options.Manual, config.Options.PreRoll)
	return &Keeper{Options: o, work: make(chan func(context.Context)), clock: alarm.New(numAlarms), config: config}
}

// Start dials. With later it waits for the first Update, but not for long.
func (k *Keeper) Start(ctx context.Context, later bool) {
	if later {
		k.clock.Set(alarmLater, laterTime)
		return
	}
	k.dial(ctx)
}

// Restore has a keeper, instead of Start, go on with a conversation that another one has kept, from its newest handle; empty: there is
// none. It dials at Return.
func (k *Keeper) Restore(handleText string) {
	k.link.setUp, k.parked = true, true
	k.opened = k.config
	k.now = 1
	k.handle = handle{text: handleText, when: 1}
	k.failures.silent = true // the last connection may be open still, for all that Gemini knows
}

// Handle is the newest handle; empty: there is none.
func (k *Keeper) Handle() string { return k.handle.text }

// Quiet tells whether the conversation could go on elsewhere without anything being cut off. With known the newest handle must
// know of all, too.
func (k *Keeper) Quiet(known bool) bool {
	return k.serving() && !k.Uplink.Unanswered() && k.watch.what == forNothing && k.Idle() && (!known || k.handle.when > k.unsaved)
}

// Close ends the connection and waits for what the keeper has started.
func (k *Keeper) Close() {
	k.clock.Stop()
	if k.Probe {
		k.Breaker.release()
	}
	k.endLink(context.Background())
}

// Work delivers functions that the owner's loop is to run.
func (k *Keeper) Work() <-chan func(context.Context) { return k.work }

// Alarms delivers a time whenever the owner's loop is to call OnAlarm.
func (k *Keeper) Alarms() <-chan time.Time { return k.clock.C }

// Config is the configuration in force.
func (k *Keeper) Config() *setup.Config { return &k.config }

// Counts returns what was done so far.
func (k *Keeper) Counts() Counts { return k.counts }

// Connected tells whether there is a connection, also when nobody is served by it.
func (k *Keeper) Connected() bool { return k.link.conn != nil }

// Begun tells whether there ever was a connection.
func (k *Keeper) Begun() bool { return k.link.setUp }

// Phase is where the connection stands now.
func (k *Keeper) Phase() Phase {
	next, _ := k.nextConfig()
	switch {
	case k.link.conn != nil:
		return Up
	case !k.link.setUp && k.link.upgraded:
		return SettingUp
	case !k.link.setUp:
		return Dialing
	case k.nextHandle(next) == "":
		return Reseeding
	}
	return Resuming
}

// serving tells whether somebody is served by a connection.
func (k *Keeper) serving() bool { return k.link.conn != nil && !k.parked }

// Happened notes that something happened which the session's next handle should know of, and returns when: a number that
// grows.
func (k *Keeper) Happened() (when int) {
	k.now++
	k.unsaved = k.now
	return k.now
}

// Knows tells whether the session behind the newest handle knows of what happened then.
func (k *Keeper) Knows(when int) bool { return k.handle.text != "" && when < k.handle.when }

// Park is called when nobody is there to be served any more. The connection is kept for a while.
func (k *Keeper) Park(ctx context.Context) {
	k.parked = true
	k.endWait(ctx)
	if k.clock.IsSet(alarmRetry) {
		k.link.busy = false
	}
	k.clock.Clear(alarmStall, alarmRetry, alarmHandle)
	k.clock.Set(alarmIdle, idleTime)
}

// Return is called when somebody is there again, or somebody else: there is a connection, or it is dialled.
func (k *Keeper) Return(ctx context.Context) {
	was := k.parked
	k.parked = false
	k.clock.Clear(alarmIdle)
	switch {
	case k.link.conn != nil && was:
		k.update(ctx)
		if k.watch.what != forNothing {
			k.await(k.patience())
		}
	case k.link.conn != nil || k.clock.IsSet(alarmLater):
	default:
		if was {
			k.beginWait()
		}
		if !k.link.busy {
			k.dial(ctx)
		}
	}
}

// Pause says that the caller is on hold, or is not any more: then nobody waits for an answer.
func (k *Keeper) Pause(ctx context.Context, on bool) {
	k.paused = on
	switch {
	case on:
		k.stopExpecting(ctx)
	case k.watch.what != forNothing: // it was asked while on hold
		k.await(k.patience())
	}
}

// OnAlarm does what is due. It may be called when nothing is.
func (k *Keeper) OnAlarm(ctx context.Context) {
	for !k.failed {
		which, ok := k.clock.Due()
		if !ok {
			return
		}
		switch which {
		case alarmLater, alarmRetry:
			k.dial(ctx)
		case alarmAge:
			k.replaceSoon(ctx, "age", ageSpare)
		case alarmReplace, alarmHandle:
			k.replaceNow(ctx)
		case alarmTrial:
			k.accepted(ctx)
		case alarmStall:
			k.onStall(ctx)
		case alarmStale:
			k.Uplink.Answered()
			k.abandon(ctx, Unanswered{})
		case alarmWait:
			k.onWait(ctx)
		case alarmIdle:
			k.unlink(ctx)
		}
	}
}

// adopt puts a configuration in force.
func (k *Keeper) adopt(ctx context.Context, c setup.Config) {
	if !c.Options.Resumption {
		k.handle = handle{}
	}
	k.config = c
	k.Uplink.Configure(c.Options.Manual, c.Options.PreRoll)
	k.Tell(ctx, Configured{})
}
