package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/uplink"
	"voxgate/internal/crash"
)

// closeReasonTime limits how long to wait, after a write has failed, for the server's close frame, which contains the
// reason. It is about a round trip.
const closeReasonTime = 250 * time.Millisecond

func (k *Keeper) onDialResult(ctx context.Context, d dialResult) {
	if d.epoch != k.current.epoch {
		if d.conn != nil {
			d.conn.Close()
		}
		return
	}
	k.current.dialOutcome, k.current.cause = DialOutcome{Kind: d.kind, StartedAt: d.startedAt, Cause: causeText(d.err), Err: d.err}, ""
	k.Notify(ctx, k.current.dialOutcome)
	switch {
	case d.err != nil:
		k.current.isDialing = false
		k.onDialFailed(ctx, d)
	default:
		if !d.config.Profile.IsTextModel { // a text model does not use the Live API's quota
			k.Breakers.ForModel(d.config.Model).closeFor(k.Caller)
			k.IsProbe = false
		}
		k.onConnected(ctx, d)
	}
}

// onConnected puts a new connection into use.
func (k *Keeper) onConnected(ctx context.Context, d dialResult) {
	l := &k.current
	first, fresh := !l.hadSession, d.handle == ""
	l.isDialing, l.conn, l.connectedAt, l.hadSession, l.isResumed = false, d.conn, time.Now(), true, !fresh
	k.handle.isUsed = !fresh
	if k.stall.stage == 0 {
		k.endWait(ctx)
	}
	if conn, ok := d.conn.(namedConn); ok && conn.SessionID() != "" {
		k.Logger.Info("google session", "google_session", conn.SessionID())
	}
	switch {
	case first:
	case fresh:
		k.counts.Reseeded++
		k.Logger.Info("fresh session started", "turns", d.historyTurns, "dials", k.counts.Dials)
	default:
		k.counts.Resumed++
		k.Logger.Info("connection resumed", "dials", k.counts.Dials)
	}
	if fresh {
		k.handle, k.setupConfig = handle{}, d.config
		k.Notify(ctx, HandleChanged{})
	}
	k.Notify(ctx, Connected{
		First: first, Fresh: fresh, NewModel: d.config.Model != k.config.Model, Cleared: len(k.pendingClears) > 0, Renewal: d.isRenewal,
	})
	k.applyConfig(ctx, d.config)
	k.catchUpSession(ctx, fresh)
	k.startReadWrite(ctx, d) // starts writing at once
	k.clock.Set(alarmMaxAge, maxAge)
	if first {
		k.Notify(ctx, SetupComplete{})
	}
	if d.droppedFields != nil {
		k.Notify(ctx, FieldsRejected{d.droppedFields})
	}
	if d.isUpdate {
		k.answerRejectedChanges(ctx)
		k.answerChange(ctx, nil)
	}
	for _, origin := range k.pendingClears {
		k.Notify(ctx, ContextCleared{origin})
	}
	k.pendingClears = nil
	k.applyChanges(ctx)
}

// catchUpSession sends a new connection what its session lacks: the turns since the handle, the results of tools, and
// unanswered input.
func (k *Keeper) catchUpSession(ctx context.Context, isNewSession bool) {
	if !isNewSession && k.config.Profile.Appends {
		if missed := k.History(false, HistoryLimit); len(missed) > 0 {
			k.Uplink.QueueMessageFirst(wire.ClientMessage{ClientContent: &wire.ClientContent{Turns: missed}})
			k.Logger.Info("sent turns since the handle", "turns", len(missed))
		}
	}
	k.Notify(ctx, ResendPending{})
	replayed, lost, hasSpeechStart := k.Uplink.QueueReplay(isNewSession)
	if replayed > 0 {
		k.Logger.Info("speech replayed", "speech", replayed.Round(time.Millisecond))
	}
	if replayed > 0 || lost > 0 {
		k.Notify(ctx, Replayed{Speech: replayed, Lost: lost, Partial: hasSpeechStart})
	}
	if change, ok := k.setupConfig.InPlaceUpdate(k.config); !isNewSession && ok && change != nil {
		k.Uplink.QueueMessageFirst(wire.ClientMessage{ContextUpdate: change}) // a resumed session may keep its original setup
	}
	if k.stall.trigger != forNothing {
		k.stall.isUnderstood = false
		k.clock.Set(alarmStale, k.AnswerExpiry())
		k.setStallAlarm(k.AnswerTimeout() + replayed/uplink.ReplaySpeed)
	}
}

// onConnectionEnd handles the end of a connection.
func (k *Keeper) onConnectionEnd(ctx context.Context, epoch int, err error) {
	if epoch == k.current.epoch {
		k.Logger.Warn("connection lost", "err", err, "age", time.Since(k.current.connectedAt).Round(time.Millisecond))
		k.current.cause = causeText(err)
		k.onConnectionLost(ctx, err)
	}
}

// onMessage handles a message of a connection.
func (k *Keeper) onMessage(ctx context.Context, epoch int, m *wire.ServerMessage) {
	if epoch != k.current.epoch {
		return
	}
	k.Notify(ctx, Message{m})
	// gemini-3.8-live sends handles even if the setup does not ask for them, so the option is checked here.
	if h := m.Resumption; h != nil && h.Resumable && h.Handle != "" && k.config.Options.Resumption && !k.mustReuseHandle() {
		k.acceptHandle(ctx, h)
	}
	if left := m.GoAway; left != nil {
		k.Logger.Info("gemini will close the connection", "in", *left)
		k.onGoAway(ctx, *left)
	}
}

// acceptHandle stores a new handle. It reports HandleChanged only if the handle covers more than the previous one,
// because each report causes a write to the cluster's store. gemini-3.1-flash-live sends two handles a second during
// audio (seen in recorded sessions).
func (k *Keeper) acceptHandle(ctx context.Context, h *wire.Resumption) {
	knowsMore := k.handle.value == "" || k.handle.event <= k.lastEvent || h.Covered > 0
	k.eventCount++
	k.handle = handle{value: h.Handle, event: k.eventCount}
	if knowsMore {
		k.Uplink.RecordHandle(h.Covered)
		k.Notify(ctx, HandleChanged{})
	}
}

// startReadWrite starts the reader and the writer of a new connection.
func (k *Keeper) startReadWrite(parent context.Context, d dialResult) {
	conn, epoch := d.conn, k.current.epoch
	ctx, cancel := context.WithCancel(parent)
	k.current.cancel = cancel
	k.goRecovered(func() { k.readMessages(ctx, epoch, conn) })
	k.goRecovered(func() {
		err := k.writeItems(ctx, conn, d.config)
		if err == nil {
			return
		}
		// The recovery depends on the reason in the server's close frame. The reader may not have read that frame yet.
		select {
		case <-time.After(closeReasonTime):
			k.runInLoop(ctx, func(ctx context.Context) { k.onConnectionEnd(ctx, epoch, fmt.Errorf("send: %w", err)) })
		case <-ctx.Done(): // the reader has reported the end
		}
	})
}

// goRecovered starts a goroutine of the connection. If it panics, OnCrash is called.
func (k *Keeper) goRecovered(f func()) {
	k.current.goroutines.Go(func() { crash.Run(k.Logger, "model connection", k.OnCrash, f) })
}

// readMessages passes every message to the owner's loop. It waits until the loop has processed the message, because the
// next message overwrites its audio. It blocks until the connection has ended or ctx is done.
func (k *Keeper) readMessages(ctx context.Context, epoch int, conn Conn) {
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
			k.runInLoop(ctx, func(ctx context.Context) { k.onConnectionEnd(ctx, epoch, err) })
			return
		}
		if !k.runInLoop(ctx, handle) {
			return
		}
		select {
		case <-done:
		case <-ctx.Done(): // the loop waits for this goroutine to end
			return
		}
	}
}

// writeItems sends the items of the uplink in the form that the model in config accepts. Nothing else writes to conn.
// It blocks until ctx is done or a message cannot be sent.
func (k *Keeper) writeItems(ctx context.Context, conn Conn, config liveconfig.Config) error {
	probe := time.NewTimer(time.Hour)
	defer probe.Stop()
	for {
		it, wait, ok := k.Uplink.Next(conn.LastSentIndex())
		if !ok {
			probe.Stop()
			if wait > 0 {
				probe.Reset(wait)
			}
			select {
			case <-k.Uplink.Ready:
			case <-probe.C:
			case <-ctx.Done():
				return nil
			}
			continue
		}
		if err := sendItem(ctx, conn, config, it); err != nil {
			return err
		}
	}
}

func sendItem(ctx context.Context, conn Conn, config liveconfig.Config, it uplink.Item) error {
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
	for _, m := range config.TypedTurnMessages(withPicture(it.Turn.Parts, it.Turn.Picture), it.Turn.Complete) {
		if err := conn.Send(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// sendSilence sends silence of this length. It sends chunks of 100 ms without waiting between them, because the server
// measures time by its input.
func sendSilence(ctx context.Context, conn Conn, length time.Duration, rate int) error {
	const piece = 100 * time.Millisecond
	pcm := make([]int16, int(piece.Seconds()*float64(rate)))
	for ; length > 0; length -= piece {
		if err := conn.SendAudio(ctx, pcm[:int(min(length, piece).Seconds()*float64(rate))], rate); err != nil {
			return err
		}
	}
	return nil
}

// withPicture returns the parts of a turn together with its picture. It is called only when the turn is sent, because
// several queued turns share one picture in memory.
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
