package bridge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"voxgate/bridge/gemini"
	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/transcript"
	"voxgate/bridge/uplink"
)

// lastWords is how long the reason of a close frame is waited for when sending has failed: a round trip.
const lastWords = 250 * time.Millisecond

// link is the connection to the model, one epoch at a time. Owned by the loop.
type link struct {
	epoch   int          // counts dials; whatever comes from an older one is void
	conn    *gemini.Conn // nil while there is none
	busy    bool         // a dial is under way or waits for its turn
	setUp   bool         // SETUP_COMPLETE was told once
	since   time.Time
	cancel  context.CancelFunc // of the dial, or of the reader and writer
	running sync.WaitGroup     // dial, reader, writer

	failures                 // in a row
	dials, resumed, reseeded int
}

// handle is the newest one by which the session can go on, and what the session behind it knows.
type handle struct {
	text string
	tick int // when it came
	turn int // the last turn it knows
}

// dialled is the outcome of a dial.
type dialled struct {
	epoch    int
	upgraded bool // only half of it: the connection is open, the set-up under way
	config   setup.Config
	handle   string
	history  []wire.Content
	update   bool // config is a new one
	conn     *gemini.Conn
	err      error
}

// heard is what the link's reader or writer has to say. The reader waits for done, because the audio in message is
// overwritten by the next.
type heard struct {
	epoch   int
	message *wire.ServerMessage
	err     error
	done    chan struct{} // gets a token when the loop has seen the message, which is the reader's again
}

// stop closes the link and waits for its reader and writer. A new connection with the same handle is refused while the
// old one is open.
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

// down is the state without a link: with a handle the next one resumes, without it begins anew.
func (s *Session) down() State {
	if s.handle.text == "" || s.clearing {
		return StateReseeding
	}
	return StateResuming
}

// dial starts a dial with the configuration wanted next. The old link must have been stopped.
func (s *Session) dial(parent context.Context) {
	s.refuse()
	l := &s.link
	ctx, cancel := context.WithCancel(parent)
	l.epoch++
	l.dials++
	l.busy = true
	l.cancel = cancel
	d := dialled{epoch: l.epoch, config: s.config, handle: s.handle.text}
	if len(s.updates) > 0 && l.setUp {
		d.config, d.update = s.updates[0].config, true
	}
	if d.config.Model != s.config.Model || !d.config.Options.Resumption || s.clearing {
		d.handle = "" // the model cannot change on a resume
	}
	if d.handle == "" && !s.clearing && l.step < stepBare {
		d.history = s.transcript.Between(0, s.unanswered())
	}
	switch {
	case !l.setUp || s.state == StateParked:
	case d.handle == "":
		s.enter(StateReseeding)
	default:
		s.enter(StateResuming)
	}
	opening := d.config.Setup(d.handle, d.history)
	if !l.setUp {
		opening.Upgraded = func() { s.posted(ctx, dialled{epoch: d.epoch, upgraded: true}) }
	}
	l.running.Go(func() {
		defer cancel()
		d.conn, d.err = gemini.Dial(ctx, s.host.options.Client, opening)
		if !s.posted(ctx, d) && d.conn != nil {
			d.conn.Close()
		}
	})
}

func (s *Session) posted(ctx context.Context, d dialled) bool {
	select {
	case s.dials <- d:
		return true
	case <-ctx.Done():
		return false
	}
}

// unanswered is the number of the first turn whose question is still to be answered: it is said again, not told of.
func (s *Session) unanswered() int {
	if s.up.Unanswered() {
		return s.question()
	}
	return s.question() + 1
}

// unlink closes the link and forgets what only it knew. The end of a turn that was under way will not come.
func (s *Session) unlink() {
	if s.link.conn != nil && time.Since(s.link.since) >= calm {
		s.link.failures = failures{}
	}
	s.link.stop()
	s.drain = drain{}
	s.clock.clear(alarmAge, alarmDrain, alarmFresh, alarmStall, alarmRetry)
	if s.state != StateParked {
		s.clock.clear(alarmStale) // what was said waits as long as the gap may last
	}
	s.working = false
	if s.trial != nil { // the next link finds out
		s.clock.clear(alarmTrial)
		s.adopt(s.trial.old)
		s.trial = nil
	}
	if s.turn.open {
		if !s.turn.cut {
			s.completeTurn(true)
		}
		s.nextTurn()
	}
	s.turn = turn{}
	if s.watch.what == forMore { // it will not come
		s.watch.what, s.watch.stage = forNothing, 0
	}
	s.broker.orphanCalls()
}

func (s *Session) onDialled(ctx context.Context, d dialled) {
	switch {
	case d.epoch != s.link.epoch:
		if d.conn != nil {
			d.conn.Close()
		}
	case d.upgraded:
		s.enter(StateSetup)
	case d.err != nil:
		s.link.busy = false
		s.onDialFailed(d)
	default:
		s.host.breaker.close()
		s.probe = false
		s.onLinked(ctx, d)
	}
}

// onLinked begins to use a new link.
func (s *Session) onLinked(ctx context.Context, d dialled) {
	l := &s.link
	first, fresh := !l.setUp, d.handle == ""
	l.busy, l.conn, l.since, l.setUp = false, d.conn, time.Now(), true
	if s.watch.stage == 0 {
		s.waited()
	}
	if s.state != StateParked {
		s.enter(StateLive)
	}
	if fresh {
		s.handle, s.base = handle{}, d.config
		s.meter.NewSession()
		s.broker.orphanCalls()
	}
	switch {
	case first:
	case fresh:
		l.reseeded++
		s.log.Info("session begun anew", "told_turns", len(d.history), "dials", l.dials)
		if d.config.Model != s.config.Model {
			s.warn("The model has changed, so a fresh session goes on; it was told what was said so far.")
		} else if !s.clearing && s.config.Options.Resumption {
			s.fail(CodeResumptionFailed, "The session could not be resumed at Gemini. A fresh one goes on; some of the conversation may be lost.")
		}
	default:
		l.resumed++
		s.log.Info("link resumed", "dials", l.dials)
	}
	s.adopt(d.config)
	s.record()
	s.catchUp(fresh)
	s.startLink(ctx, d) // writes at once
	s.clock.set(alarmAge, maxAge)
	switch {
	case d.update:
		s.updates = s.updates[1:]
		s.updated()
	case first:
		done := s.setupComplete()
		if s.resumable() {
			done.ResumeToken = s.host.newToken(s, "")
		}
		s.notify(done)
	}
	for s.clearing = false; s.cleared > 0; s.cleared-- {
		s.tell(History{[]transcript.Entry{}})
	}
	s.update()
}

// catchUp tells a new link what its session does not know yet: turns since the handle, answers of tools, and what was
// said and not answered.
func (s *Session) catchUp(fresh bool) {
	if !fresh && s.config.Profile.Appends {
		if missed := s.transcript.Between(s.handle.turn, s.unanswered()); len(missed) > 0 {
			s.up.First(wire.ClientMessage{ClientContent: &wire.ClientContent{Turns: missed}})
			s.log.Info("told what the handle does not know", "turns", len(missed))
		}
	}
	s.broker.repeatAnswers()
	s.broker.gate()
	again, lost := s.up.Rewind(fresh)
	if again > 0 {
		s.log.Info("said again", "speech", again.Round(time.Millisecond))
		s.transcript.Unsay(s.question())
	}
	if lost > 0 {
		s.fail(CodeAudioStream, fmt.Sprintf("The connection to Gemini was lost in a long sentence: the first %.0f s of it cannot be said again.", lost.Seconds()))
	}
	if change, ok := s.base.InPlace(s.config); !fresh && ok && change != nil {
		s.up.First(wire.ClientMessage{ContextUpdate: change}) // a resumed session may keep what it was set up with
	}
	if s.watch.what != forNothing {
		s.watch.heard = false
		s.clock.set(alarmStale, s.shelfLife())
		s.await(s.patience() + again/uplink.ReplaySpeed)
	}
}

// onHeard takes what the link's reader and writer report.
func (s *Session) onHeard(ctx context.Context, h heard) {
	if h.done != nil {
		defer func() { h.done <- struct{}{} }()
	}
	if h.epoch != s.link.epoch {
		return
	}
	if h.err == nil {
		s.onMessage(ctx, h.message)
		return
	}
	s.log.Warn("link lost", "err", h.err, "state", s.state, "age", time.Since(s.link.since).Round(time.Millisecond))
	s.onLost(h.err)
}

// startLink starts the reader and the writer of a new link.
func (s *Session) startLink(parent context.Context, d dialled) {
	conn := d.conn
	ctx, cancel := context.WithCancel(parent)
	s.link.cancel = cancel
	epoch := s.link.epoch
	s.link.running.Go(func() { s.read(ctx, epoch, conn) })
	s.link.running.Go(func() {
		err := s.write(ctx, conn, d.config)
		if err == nil {
			return
		}
		// A server that closes says why, which the reader may not have read yet, and which decides what follows.
		select {
		case <-time.After(lastWords):
			s.report(ctx, heard{epoch: epoch, err: fmt.Errorf("send: %w", err)})
		case <-ctx.Done(): // the reader has reported
		}
	})
}

func (s *Session) report(ctx context.Context, h heard) {
	select {
	case s.heard <- h:
	case <-ctx.Done():
	}
}

// read hands every message to the loop.
func (s *Session) read(ctx context.Context, epoch int, conn *gemini.Conn) {
	done := make(chan struct{}, 1)
	for {
		m, err := conn.Recv(ctx)
		if _, bad := errors.AsType[*wire.FrameError](err); bad {
			s.log.Warn("message from gemini skipped", "err", err)
			continue
		}
		if err != nil {
			s.report(ctx, heard{epoch: epoch, err: err})
			return
		}
		h := heard{epoch: epoch, message: m, done: done}
		select {
		case s.heard <- h:
		case <-ctx.Done():
			return
		}
		select {
		case <-done:
		case <-ctx.Done(): // the loop is waiting for us to end
			return
		}
	}
}

// write sends what waits in the uplink, in the form that the model of config takes. It is the only writer of conn.
func (s *Session) write(ctx context.Context, conn *gemini.Conn, config setup.Config) error {
	early := time.NewTimer(time.Hour)
	defer early.Stop()
	for {
		it, wait, ok := s.up.Next()
		if !ok {
			early.Stop()
			if wait > 0 {
				early.Reset(wait)
			}
			select {
			case <-s.up.Ready:
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
