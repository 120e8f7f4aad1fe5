package keeper

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/uplink"
	"voxgate/crash"
)

// closeReasonTime is how long to wait for a close frame, which has the reason, when sending has failed: a round trip.
const closeReasonTime = 250 * time.Millisecond

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
		if !d.config.Profile.Writes { // which says nothing of the Live API
			k.Breakers.For(d.config.Model).close(k.Caller)
			k.IsProbe = false
		}
		k.onLinked(ctx, d)
	}
}

// onLinked begins to use a new connection.
func (k *Keeper) onLinked(ctx context.Context, d dialled) {
	l := &k.link
	first, fresh := !l.setUp, d.handle == ""
	l.busy, l.conn, l.since, l.setUp, l.isResumed = false, d.conn, time.Now(), true, !fresh
	k.handle.isUsed = !fresh
	if k.watch.stage == 0 {
		k.endWait(ctx)
	}
	if conn, ok := d.conn.(namedConn); ok && conn.SessionID() != "" {
		k.Logger.Info("session at google", "google_session", conn.SessionID())
	}
	switch {
	case first:
	case fresh:
		k.counts.Reseeded++
		k.Logger.Info("session begun anew", "turns", d.turns, "dials", k.counts.Dials)
	default:
		k.counts.Resumed++
		k.Logger.Info("link resumed", "dials", k.counts.Dials)
	}
	if fresh {
		k.handle, k.opened = handle{}, d.config
		k.Tell(ctx, HandleChanged{})
	}
	k.Tell(ctx, Linked{
		First: first, Fresh: fresh, NewModel: d.config.Model != k.config.Model, Cleared: k.clears > 0, Renewal: d.isRenewal,
	})
	k.adopt(ctx, d.config)
	k.catchUp(ctx, fresh)
	k.serve(ctx, d) // writes at once
	k.clock.Set(alarmAge, maxAge)
	if first {
		k.Tell(ctx, SetUp{})
	}
	if d.dropped != nil {
		k.Tell(ctx, Refused{d.dropped})
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

// catchUp gives a new connection what its session does not know yet: turns since the handle, answers of tools, and what
// was said and not answered.
func (k *Keeper) catchUp(ctx context.Context, fresh bool) {
	if !fresh && k.config.Profile.Appends {
		if missed := k.History(false, HistoryLimit); len(missed) > 0 {
			k.Uplink.QueueFirst(wire.ClientMessage{ClientContent: &wire.ClientContent{Turns: missed}})
			k.Logger.Info("sent what the handle does not know", "turns", len(missed))
		}
	}
	k.Tell(ctx, CatchUp{})
	replayed, lost, rest := k.Uplink.QueueReplay(fresh)
	if replayed > 0 {
		k.Logger.Info("said again", "speech", replayed.Round(time.Millisecond))
	}
	if replayed > 0 || lost > 0 {
		k.Tell(ctx, Rewound{Replayed: replayed, Lost: lost, Rest: rest})
	}
	if change, ok := k.opened.InPlace(k.config); !fresh && ok && change != nil {
		k.Uplink.QueueFirst(wire.ClientMessage{ContextUpdate: change}) // a resumed session may keep what it was set up with
	}
	if k.watch.what != forNothing {
		k.watch.heard = false
		k.clock.Set(alarmStale, k.ShelfLife())
		k.await(k.Patience() + replayed/uplink.ReplaySpeed)
	}
}

// onEnded handles the end of a connection.
func (k *Keeper) onEnded(ctx context.Context, epoch int, err error) {
	if epoch == k.link.epoch {
		k.Logger.Warn("link lost", "err", err, "age", time.Since(k.link.since).Round(time.Millisecond))
		k.link.cause = causeText(err)
		k.onLost(ctx, err)
	}
}

// onMessage handles a message of a connection.
func (k *Keeper) onMessage(ctx context.Context, epoch int, m *wire.ServerMessage) {
	if epoch != k.link.epoch {
		return
	}
	k.Tell(ctx, Message{m})
	// Version 3.8 gives a handle unasked.
	if h := m.Resumption; h != nil && h.Resumable && h.Handle != "" && k.config.Options.Resumption && !k.isHandleReused() {
		k.acceptHandle(ctx, h)
	}
	if left := m.GoAway; left != nil {
		k.Logger.Info("gemini will close the link", "in", *left)
		k.onGoAway(ctx, *left)
	}
}

// acceptHandle stores a new handle. It reports HandleChanged only if something has happened since the previous one:
// gemini-3.1-flash-live sends two handles a second during sound (recorded), and each report is written to the cluster's store.
func (k *Keeper) acceptHandle(ctx context.Context, h *wire.Resumption) {
	knowsMore := k.handle.text == "" || k.handle.when <= k.unsaved || h.Covered > 0
	k.now++
	k.handle = handle{text: h.Handle, when: k.now}
	if knowsMore {
		k.Uplink.RecordHandle(h.Covered)
		k.Tell(ctx, HandleChanged{})
	}
}

// serve starts the reader and the writer of a new connection.
func (k *Keeper) serve(parent context.Context, d dialled) {
	conn, epoch := d.conn, k.link.epoch
	ctx, cancel := context.WithCancel(parent)
	k.link.cancel = cancel
	k.goContained(func() { k.read(ctx, epoch, conn) })
	k.goContained(func() {
		err := k.write(ctx, conn, d.config)
		if err == nil {
			return
		}
		// A server that closes says why, which decides what follows. The reader may not have read it yet.
		select {
		case <-time.After(closeReasonTime):
			k.post(ctx, func(ctx context.Context) { k.onEnded(ctx, epoch, fmt.Errorf("send: %w", err)) })
		case <-ctx.Done(): // the reader has reported
		}
	})
}

// goContained starts a goroutine of the connection.
func (k *Keeper) goContained(f func()) {
	k.link.running.Go(func() { crash.Run(k.Logger, "model connection", k.Crashed, f) })
}

// read hands every message to the owner's loop, and waits until it is done with it: the next one overwrites its audio.
func (k *Keeper) read(ctx context.Context, epoch int, conn Conn) {
	var m *wire.ServerMessage
	done := make(chan struct{}, 1)
	handle := func(ctx context.Context) { // one closure for all messages, to save allocations
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
func (k *Keeper) write(ctx context.Context, conn Conn, config setup.Config) error {
	early := time.NewTimer(time.Hour)
	defer early.Stop()
	for {
		it, wait, ok := k.Uplink.Next(conn.Sent())
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

func send(ctx context.Context, conn Conn, config setup.Config, it uplink.Item) error {
	switch {
	case it.PCM != nil:
		return conn.SendAudio(ctx, it.PCM, it.Rate)
	case it.Silence > 0:
		return sendSilence(ctx, conn, it.Silence, it.Rate)
	case it.Message != nil:
		return conn.Send(ctx, *it.Message)
	case it.Flushed != nil:
		close(it.Flushed)
		return nil
	}
	for _, m := range config.Typed(withPicture(it.Turn.Parts, it.Turn.Picture), it.Turn.Complete) {
		if err := conn.Send(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// sendSilence sends silence in chunks of 100 ms without pacing, since the server measures time by its input.
func sendSilence(ctx context.Context, conn Conn, left time.Duration, rate int) error {
	const piece = 100 * time.Millisecond
	pcm := make([]int16, int(piece.Seconds()*float64(rate)))
	for ; left > 0; left -= piece {
		if err := conn.SendAudio(ctx, pcm[:int(min(left, piece).Seconds()*float64(rate))], rate); err != nil {
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
