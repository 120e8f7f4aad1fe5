package keeper

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"voxgate/bridge/gemini"
	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/uplink"
)

// closeReasonTime is how long the reason of a close frame is waited for when sending has failed: a round trip.
const closeReasonTime = 250 * time.Millisecond

// link is the connection to the model. Whatever comes from one that was stopped is void.
type link struct {
	epoch    int          // counts dials
	conn     *gemini.Conn // nil while there is none
	busy     bool         // a dial is under way or waits for its time
	upgraded bool         // the first dial has a WebSocket, but no session yet
	setUp    bool         // there was a session
	since    time.Time
	outcome  Dialled            // of the dial
	cause    string             // of its end; empty: it is ours
	cancel   context.CancelFunc // of the dial, or of the reader and writer
	running  sync.WaitGroup     // dial, reader, writer
}

// handle is the newest one by which the session can go on.
type handle struct {
	text string
	when int // it came; see Keeper.now
}

// dialled is the outcome of a dial.
type dialled struct {
	epoch  int
	config setup.Config
	handle string
	told   int  // turns of the history
	update bool // config is a new one
	conn   *gemini.Conn
	err    error
	kind   LinkKind
	began  time.Time
}

// stop closes the connection and waits for its reader and writer. Gemini refuses a handle while the connection that used it
// is open.
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

// nextConfig is the configuration that the next dial is for, and whether it is a new one.
func (k *Keeper) nextConfig() (config setup.Config, update bool) {
	for _, u := range k.updates {
		if u.refused == nil {
			return u.config, true
		}
	}
	return k.config, false
}

// nextHandle is the handle for a configuration; none if it takes a fresh session. The model cannot change on a resume.
func (k *Keeper) nextHandle(config setup.Config) string {
	if config.Model != k.config.Model || !config.Options.Resumption || k.clears > 0 {
		return ""
	}
	return k.handle.text
}

// dial dials with the configuration wanted next. The old connection must have been stopped.
func (k *Keeper) dial(parent context.Context) {
	k.clock.Clear(alarmLater)
	l := &k.link
	if l.setUp { // else SetUp comes first
		k.answerRefused(parent)
	}
	ctx, cancel := context.WithCancel(parent)
	l.epoch++
	l.busy, l.cancel, l.upgraded = true, cancel, false
	k.counts.Dials++
	d := dialled{epoch: l.epoch, began: time.Now(), kind: ResumedLink}
	d.config, d.update = k.nextConfig()
	d.handle = k.nextHandle(d.config)
	switch {
	case !l.setUp:
		d.kind = FirstLink
	case d.handle == "":
		d.kind = FreshLink
	}
	var history []wire.Content
	if d.handle == "" && k.clears == 0 && k.failures.step < stepBare {
		history = k.History(true)
		d.told = len(history)
	}
	opening := d.config.Setup(d.handle, history)
	if !l.setUp {
		opening.Upgraded = func() {
			k.post(ctx, func(ctx context.Context) {
				if d.epoch == l.epoch {
					l.upgraded = true
				}
			})
		}
	}
	l.running.Go(func() {
		defer cancel()
		d.conn, d.err = gemini.Dial(ctx, k.Client, opening)
		if !k.post(ctx, func(ctx context.Context) { k.onDialled(ctx, d) }) && d.conn != nil {
			d.conn.Close()
		}
	})
}

// post has the owner's loop run f, unless ctx ends before it takes it.
func (k *Keeper) post(ctx context.Context, f func(context.Context)) bool {
	select {
	case k.work <- f:
		return true
	case <-ctx.Done():
		return false
	}
}

// unlink closes the connection and forgets what only it knew.
func (k *Keeper) unlink(ctx context.Context) {
	if k.link.conn != nil && time.Since(k.link.since) >= calmTime {
		k.failures = failures{}
	}
	k.endLink(ctx)
	k.replace = replacement{}
	k.clock.Clear(alarmAge, alarmReplace, alarmHandle, alarmStall, alarmRetry)
	if !k.parked {
		k.clock.Clear(alarmStale) // what was said waits as long as the wait may last
	}
	if k.trial != nil { // the next connection finds out
		k.clock.Clear(alarmTrial)
		old := *k.trial
		k.trial = nil
		k.adopt(ctx, old)
	}
	k.Tell(ctx, Unlinked{})
	if k.watch.what == forMore { // it will not come
		k.watch.what, k.watch.stage = forNothing, 0
	}
}

// endLink closes the connection, or ends the dial, and tells of it.
func (k *Keeper) endLink(ctx context.Context) {
	l := &k.link
	was := l.conn != nil
	l.stop()
	if was {
		k.Tell(ctx, LinkEnd{Kind: l.outcome.Kind, Began: l.outcome.Began, Up: l.since, Cause: l.cause})
	}
}

// causeText is the cause of an error in a word or two; empty: there is no error.
func causeText(err error) string {
	if err == nil {
		return ""
	}
	cause, _ := causeOf(err)
	return cause.String()
}

func (k *Keeper) onDialled(ctx context.Context, d dialled) {
	if d.epoch != k.link.epoch {
		if d.conn != nil {
			d.conn.Close()
		}
		return
	}
	k.link.outcome, k.link.cause = Dialled{Kind: d.kind, Began: d.began, Cause: causeText(d.err)}, ""
	k.Tell(ctx, k.link.outcome)
	switch {
	case d.err != nil:
		k.link.busy = false
		k.onDialFailed(ctx, d)
	default:
		k.Breaker.close()
		k.Probe = false
		k.onLinked(ctx, d)
	}
}

// onLinked begins to use a new connection.
func (k *Keeper) onLinked(ctx context.Context, d dialled) {
	l := &k.link
	first, fresh := !l.setUp, d.handle == ""
	l.busy, l.conn, l.since, l.setUp = false, d.conn, time.Now(), true
	if k.watch.stage == 0 {
		k.endWait(ctx)
	}
	switch {
	case first:
	case fresh:
		k.counts.Reseeded++
		k.Logger.Info("session begun anew", "told_turns", d.told, "dials", k.counts.Dials)
	default:
		k.counts.Resumed++
		k.Logger.Info("link resumed", "dials", k.counts.Dials)
	}
	if fresh {
		k.handle, k.opened = handle{}, d.config
		k.Tell(ctx, HandleChanged{})
	}
	k.Tell(ctx, Linked{First: first, Fresh: fresh, NewModel: d.config.Model != k.config.Model, Cleared: k.clears > 0})
	k.adopt(ctx, d.config)
	k.catchUp(ctx, fresh)
	k.serve(ctx, d) // writes at once
	k.clock.Set(alarmAge, maxAge)
	if first {
		k.Tell(ctx, SetUp{})
	}
	if d.update {
		k.answerRefused(ctx)
		k.answerUpdate(ctx, nil)
	}
	for ; k.clears > 0; k.clears-- {
		k.Tell(ctx, Cleared{})
	}
	k.update(ctx)
}

// catchUp tells a new connection what its session does not know yet: turns since the handle, answers of tools, and what was
// said and not answered.
func (k *Keeper) catchUp(ctx context.Context, fresh bool) {
	if !fresh && k.config.Profile.Appends {
		if missed := k.History(false); len(missed) > 0 {
			k.Uplink.First(wire.ClientMessage{ClientContent: &wire.ClientContent{Turns: missed}})
			k.Logger.Info("told what the handle does not know", "turns", len(missed))
		}
	}
	k.Tell(ctx, CatchUp{})
	replayed, lost := k.Uplink.Rewind(fresh)
	if replayed > 0 {
		k.Logger.Info("said again", "speech", replayed.Round(time.Millisecond))
	}
	if replayed > 0 || lost > 0 {
		k.Tell(ctx, Rewound{Replayed: replayed, Lost: lost})
	}
	if change, ok := k.opened.InPlace(k.config); !fresh && ok && change != nil {
		k.Uplink.First(wire.ClientMessage{ContextUpdate: change}) // a resumed session may keep what it was set up with
	}
	if k.watch.what != forNothing {
		k.watch.heard = false
		k.clock.Set(alarmStale, k.ShelfLife())
		k.await(k.patience() + replayed/uplink.ReplaySpeed)
	}
}

// onEnded takes the end of a connection.
func (k *Keeper) onEnded(ctx context.Context, epoch int, err error) {
	if epoch == k.link.epoch {
		k.Logger.Warn("link lost", "err", err, "age", time.Since(k.link.since).Round(time.Millisecond))
		k.link.cause = causeText(err)
		k.onLost(ctx, err)
	}
}

// onMessage takes a message of a connection.
func (k *Keeper) onMessage(ctx context.Context, epoch int, m *wire.ServerMessage) {
	if epoch != k.link.epoch {
		return
	}
	k.Tell(ctx, Message{m})
	if h := m.Resumption; h != nil && h.Resumable && h.Handle != "" && k.config.Options.Resumption { // 3.8 gives one unasked
		k.now++
		k.handle = handle{text: h.Handle, when: k.now}
		k.Uplink.Handled()
		k.Tell(ctx, HandleChanged{})
	}
	if left := m.GoAway; left != nil {
		k.Logger.Info("gemini will close the link", "in", *left)
		k.replaceSoon(ctx, "goAway", *left-goAwaySpare)
	}
}

// serve starts the reader and the writer of a new connection.
func (k *Keeper) serve(parent context.Context, d dialled) {
	conn, epoch := d.conn, k.link.epoch
	ctx, cancel := context.WithCancel(parent)
	k.link.cancel = cancel
	k.link.running.Go(func() { k.read(ctx, epoch, conn) })
	k.link.running.Go(func() {
		err := k.write(ctx, conn, d.config)
		if err == nil {
			return
		}
		// A server that closes says why, which the reader may not have read yet, and which decides what follows.
		select {
		case <-time.After(closeReasonTime):
			k.post(ctx, func(ctx context.Context) { k.onEnded(ctx, epoch, fmt.Errorf("send: %w", err)) })
		case <-ctx.Done(): // the reader has reported
		}
	})
}

// read hands every message to the owner's loop, and waits until it is done with it: the next one overwrites its audio.
func (k *Keeper) read(ctx context.Context, epoch int, conn *gemini.Conn) {
	var m *wire.ServerMessage
	done := make(chan struct{}, 1)
	handle := func(ctx context.Context) { // one for all messages, since each would be allocated
		k.onMessage(ctx, epoch, m)
		done <- struct{}{}
	}
	for {
		var err error
		m, err = conn.Recv(ctx)
		if _, bad := errors.AsType[*wire.FrameError](err); bad {
			k.Logger.Warn("message from gemini skipped", "err", err)
			continue
		}
		if err != nil {
			k.post(ctx, func(ctx context.Context) { k.onEnded(ctx, epoch, err) })
			return
		}
		if !k.post(ctx, handle) {
			return
		}
		select {
		case <-done:
		case <-ctx.Done(): // the loop waits for us to end
			return
		}
	}
}

// write sends what waits in the uplink, in the form that the model of config takes. It is the only writer of conn.
func (k *Keeper) write(ctx context.Context, conn *gemini.Conn, config setup.Config) error {
	early := time.NewTimer(time.Hour)
	defer early.Stop()
	for {
		it, wait, ok := k.Uplink.Next()
		if !ok {
			early.Stop()
			if wait > 0 {
				early.Reset(wait)
			}
			select {
			case <-k.Uplink.Ready:
			case <-early.C:
			case <-ctx.Done():
				return nil
			}
			continue
		}
		if err := send(ctx, conn, config, it); err != nil {
			return err
		}
	}
}

func send(ctx context.Context, conn *gemini.Conn, config setup.Config, it uplink.Item) error {
	switch {
	case it.PCM != nil:
		return conn.SendAudio(ctx, it.PCM, it.Rate)
	case it.Message != nil:
		return conn.Send(ctx, *it.Message)
	case it.Sent != nil:
		close(it.Sent)
		return nil
	}
	for _, m := range config.Typed(withPicture(it.Turn.Parts, it.Turn.Picture), it.Turn.Complete) {
		if err := conn.Send(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// withPicture is the parts of a turn with its picture. They are joined when they are sent: turns that wait share their
// picture, and the loop does not wait for megabytes of base64.
func withPicture(parts json.RawMessage, picture *wire.Blob) json.RawMessage {
	parts = bytes.TrimSpace(parts)
	if picture == nil || !bytes.HasSuffix(parts, []byte("]")) {
		return parts
	}
	inline, err := json.Marshal(map[string]*wire.Blob{"inlineData": picture})
	if err != nil {
		return parts
	}
	return slices.Concat(parts[:len(parts)-1], []byte(","), inline, []byte("]")) // a turn without parts has no picture
}
