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
	// keyGap is the pause after which the keys pressed so far count as a complete number. It is longer than most pauses
	// between keys, and short enough for a prompt reply to a single key.
	keyGap = 1200 * time.Millisecond
	// secretTail is the time for which further keys stay secret after a valid number. After an invalid number they stay
	// secret for as long as one key may take, so that a slow caller can finish dialling.
	secretTail = 2 * time.Second
)

// MaxKeys limits the keys of one number.
const MaxKeys = agents.MaxKeys

// Keypad routes the keys that a caller presses. While a [Collection] is open, it gets them, because the model must not
// learn the collected number. Otherwise the model gets them.
type Keypad struct {
	log     *slog.Logger // set by Run
	queue   chan byte
	entries chan *pendingEntry
	busy    chan struct{} // holds one value while a collection is open
	stopped chan struct{} // closed when Run returns
	// secret is the collection whose keys are withheld from the model, or nil. Their tones are filtered out of the
	// audio, too.
	secret atomic.Pointer[Collection]

	failures map[*Collection]int // failed attempts per collection; used by the goroutine that holds busy
}

// pendingEntry is a number that is being entered.
type pendingEntry struct {
	collection *Collection
	keys       chan string        // receives the keys of the complete number; buffers one
	done       chan time.Duration // receives how long further keys stay secret, once the entry has ended; buffers one
}

// NewKeypad returns a keypad for one call.
func NewKeypad() *Keypad {
	return &Keypad{
		queue: make(chan byte, MaxKeys), entries: make(chan *pendingEntry), busy: make(chan struct{}, 1), stopped: make(chan struct{}),
		failures: map[*Collection]int{},
	}
}

// InheritSecret keeps the keys of this call secret if they were secret on old, the keypad of the call that this call
// replaces. Call it before Run.
func (k *Keypad) InheritSecret(old *Keypad) { k.secret.Store(old.secret.Load()) }

// PushKey queues a key. It does not block: if the queue is full, because keys come faster than a person can press, it
// drops the key.
func (k *Keypad) PushKey(key byte) {
	select {
	case k.queue <- key:
	default:
	}
}

// Keys returns the queue of keys. It is for callers that do not use Run because they have no model to send keys to.
func (k *Keypad) Keys() <-chan byte { return k.queue }

// Run sends keys to the model, several in one message. A message ends with "#", after maxKeys keys (0 means [MaxKeys]),
// or after a pause of keyGap. Keys of a collection are not sent. Run blocks until ctx is done.
func (k *Keypad) Run(ctx context.Context, log *slog.Logger, maxKeys int, send func(bridge.Command) error) {
	defer close(k.stopped)
	k.log = log
	if maxKeys == 0 {
		maxKeys = MaxKeys
	}
	var keys []byte
	var filledAt time.Time           // when the number of keys last reached maxKeys; zero if not recently
	var timeout <-chan time.Time     // fires when the number is complete or keys are no longer secret; nil while neither is pending
	var open *pendingEntry           // nil while no collection is open
	var entryDone chan time.Duration // reports the end of the newest entry; nil once it has ended
	var secretFor time.Duration      // how long keys stay secret after the newest entry
	if c := k.secret.Load(); c != nil {
		secretFor = c.keyTimeout()
		timeout = time.After(secretFor)
	}
	for {
		done := false
		select {
		case <-ctx.Done():
			return
		case open = <-k.entries:
			k.secret.Store(open.collection)
			log.Info("collecting keys", "collect", open.collection.Name)
			entryDone, timeout = open.done, time.After(open.collection.keyTimeout())
			before := keys
			keys = nil
			for _, key := range before {
				keys, done = open.collection.addKey(keys, key)
			}
			if len(before) == 0 {
				timeout = time.After(open.collection.firstKeyTimeout())
			}
		case secretFor = <-entryDone:
			open, entryDone, keys, timeout = nil, nil, nil, time.After(secretFor)
		case key := <-k.queue:
			switch {
			case open != nil:
				keys, done = open.collection.addKey(keys, key)
				timeout = time.After(open.collection.keyTimeout())
			case k.secret.Load() == nil && key == '#' && maxKeys > 1 && time.Since(filledAt) < keyGap: // # after a number that was sent already
				filledAt = time.Time{}
			case k.secret.Load() == nil:
				keys, timeout = append(keys, key), time.After(keyGap)
				done = key == '#' || len(keys) >= maxKeys
				if len(keys) == maxKeys && key != '#' {
					filledAt = time.Now()
				}
			case entryDone == nil:
				timeout = time.After(secretFor)
			}
		case <-timeout:
			done, timeout = len(keys) > 0 || open != nil, nil
			if open == nil && entryDone == nil {
				k.secret.Store(nil)
			}
		}
		if !done {
			continue
		}
		if open != nil {
			open.keys <- string(keys)
			open = nil
		} else {
			k.log.Info("keys pressed", "count", len(keys)) // never the keys themselves: they may be secret
			if err := send(KeysMessage(string(keys))); err != nil {
				k.log.Warn("keys lost", "err", err)
			}
		}
		keys, timeout = nil, nil
	}
}
