package phone

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"voxgate/agents"
	"voxgate/bridge"
)

const (
	// keyGap is the pause that ends a number: longer than most people take from one key to the next, and short enough that an answer to a
	// single key does not seem to be missing.
	keyGap = 1200 * time.Millisecond
	// afterSecret is how long no key may come after a valid secret before keys are the model's again. After another it is the pause that
	// the secret allows: who was too slow, or was interrupted, goes on pressing.
	afterSecret = 2 * time.Second
)

// MaxKeys bounds a number.
const MaxKeys = agents.MaxKeys

// Keypad is the keys of a caller's telephone. What is pressed goes to the model, or to the collection that is open.
type Keypad struct {
	log     *slog.Logger // set by Run
	pressed chan byte
	begin   chan *entry
	one     chan struct{} // holds one while a collection is open
	gone    chan struct{} // closed when Run has returned
	// secret is the collection that keys, and their sound, are for and nobody else; nil: they are the model's.
	secret atomic.Pointer[Collection]

	failed map[*Collection]int // how often each did not succeed; of who is in one
}

// entry is what is collected.
type entry struct {
	of   *Collection
	keys chan string        // gets what was pressed; it has room for one
	over chan time.Duration // gets how long keys stay a secret without it, once it is done with or not wanted; it has room for one
}

// NewKeypad returns a keypad for one call.
func NewKeypad() *Keypad {
	return &Keypad{
		pressed: make(chan byte, MaxKeys), begin: make(chan *entry), one: make(chan struct{}, 1), gone: make(chan struct{}),
		failed: map[*Collection]int{},
	}
}

// Follow has the keys be a secret if those of another call are, whose conversation goes on here. It must be called before Run.
func (p *Keypad) Follow(old *Keypad) { p.secret.Store(old.secret.Load()) }

// Press takes a key. One that comes faster than a person can press is dropped.
func (p *Keypad) Press(key byte) {
	select {
	case p.pressed <- key:
	default:
	}
}

// Pressed is what is pressed where the keypad is not run: when no model listens.
func (p *Keypad) Pressed() <-chan byte { return p.pressed }

// Run sends the model what is pressed, as one turn: up to a #, to as many keys as most says (0: [MaxKeys]), or until nothing more comes for
// 1.2 s. What is pressed while a collection is open, and right before and after, is not the model's. It returns when ctx is done.
func (p *Keypad) Run(ctx context.Context, log *slog.Logger, most int, do func(bridge.Command) error) {
	defer close(p.gone)
	p.log = log
	if most == 0 {
		most = MaxKeys
	}
	var keys []byte
	var full time.Time          // when they were as many as most; zero: not lately
	var late <-chan time.Time   // nil: nothing is pressed
	var open *entry             // nil: nothing is collected
	var over chan time.Duration // of the newest entry; nil: it is done with
	var rest time.Duration      // what it has said
	if c := p.secret.Load(); c != nil {
		rest = c.pause()
		late = time.After(rest)
	}
	for {
		done := false
		select {
		case <-ctx.Done():
			return
		case open = <-p.begin:
			p.secret.Store(open.of)
			log.Info("collecting keys", "collect", open.of.Name)
			over, late = open.over, time.After(open.of.pause())
			before := keys
			keys = nil
			for _, key := range before {
				keys, done = open.of.press(keys, key)
			}
			if len(before) == 0 {
				late = time.After(open.of.firstPause())
			}
		case rest = <-over:
			open, over, keys, late = nil, nil, nil, time.After(rest)
		case key := <-p.pressed:
			switch {
			case open != nil:
				keys, done = open.of.press(keys, key)
				late = time.After(open.of.pause())
			case p.secret.Load() == nil && key == '#' && most > 1 && time.Since(full) < keyGap: // it ends what has gone already
				full = time.Time{}
			case p.secret.Load() == nil:
				keys, late = append(keys, key), time.After(keyGap)
				done = key == '#' || len(keys) >= most
				if len(keys) == most && key != '#' {
					full = time.Now()
				}
			case over == nil:
				late = time.After(rest)
			}
		case <-late:
			done, late = len(keys) > 0 || open != nil, nil
			if open == nil && over == nil {
				p.secret.Store(nil)
			}
		}
		if !done {
			continue
		}
		if open != nil {
			open.keys <- string(keys)
			open = nil
		} else {
			p.log.Info("keys pressed", "count", len(keys)) // not which: they may be a secret
			if err := do(Pressed(string(keys))); err != nil {
				p.log.Warn("keys lost", "err", err)
			}
		}
		keys, late = nil, nil
	}
}
