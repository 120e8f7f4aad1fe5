package bridge

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"voxgate/bridge/gemini"
)

const (
	// maxStrikes is how many dials in a row may fail before the conversation is given up.
	maxStrikes = 3

	// firstBackoff is the longest pause before the second dial; each further one doubles it.
	firstBackoff = 250 * time.Millisecond

	// calm is how long a link must live before the failures before it are forgiven; a session that dies at once each
	// time would otherwise be dialled for ever.
	calm = 10 * time.Second

	// spare is how long before Gemini's deadline a link is replaced at the latest.
	spare = 5 * time.Second
)

type linkState int

const (
	linkDown linkState = iota // nobody needs it now
	linkDialing
	linkLive
	linkWaiting // for the backoff
)

// link is the connection to the model, one epoch at a time. Owned by the loop.
type link struct {
	state   linkState
	epoch   int // counts dials; whatever comes from an older one is void
	dials   int
	strikes int
	setUp   bool // SETUP_COMPLETE was told once
	leaving bool // Gemini has said goAway: to be replaced at the next quiet moment
	token   string
	handle  string
	handles int // how many handles came so far
	since   time.Time
	cancel  context.CancelFunc // of the dial, or of the reader and writer
	conn    *gemini.Conn
	running sync.WaitGroup // dial, reader, writer
}

// dialled is the outcome of a dial.
type dialled struct {
	epoch  int
	config gemini.Config
	handle string
	update bool // config is a new one
	conn   *gemini.Conn
	err    error
}

// heard is what the link's reader or writer has to say. The reader waits for done, because the audio in message is
// overwritten by the next.
type heard struct {
	epoch   int
	message *gemini.ServerMessage
	err     error
	done    chan struct{}
}

// stop closes the link and waits for its reader and writer. A new connection with the same handle is refused while the
// old one is open.
func (l *link) stop() {
	l.epoch++
	l.state = linkDown
	l.leaving = false
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

// resumption keeps the newest handle.
func (l *link) resumption(r *gemini.Resumption) {
	if r.Resumable && r.Handle != "" {
		l.handle = r.Handle
		l.handles++
	}
}

// dial starts a dial with the configuration wanted next. The old link must have been stopped.
func (s *Session) dial(parent context.Context) {
	s.refuse()
	ctx, cancel := context.WithCancel(parent)
	l := &s.link
	l.epoch++
	l.dials++
	l.state = linkDialing
	l.cancel = cancel
	d := dialled{epoch: l.epoch, config: s.config, handle: l.handle}
	if len(s.updates) > 0 {
		d.config, d.update = s.updates[0].config, true
	}
	if d.config.Model != s.config.Model {
		d.handle = "" // the model cannot change on a resume
	}
	l.running.Go(func() {
		defer cancel()
		d.conn, d.err = s.host.options.Client.Dial(ctx, gemini.Setup{Config: d.config, Handle: d.handle})
		select {
		case s.dials <- d:
		case <-ctx.Done():
			if d.conn != nil {
				d.conn.Close()
			}
		}
	})
}

// redial replaces the link by a new one with the newest handle. What is said meanwhile waits in the uplink.
func (s *Session) redial(ctx context.Context) {
	s.unlink()
	s.dial(ctx)
}

// unlink closes the link and forgets what only it knew. The end of a turn that was under way will not come.
func (s *Session) unlink() {
	if s.link.state == linkLive && time.Since(s.link.since) >= calm {
		s.link.strikes = 0
	}
	s.link.stop()
	if s.turn.open && !s.turn.cut {
		s.completeTurn()
	}
	s.turn = turn{}
	s.orphanCalls()
}

func (s *Session) onDialled(ctx context.Context, d dialled) {
	if d.epoch != s.link.epoch {
		if d.conn != nil {
			d.conn.Close()
		}
		return
	}
	if d.err != nil {
		s.onDialFailed(ctx, d)
		return
	}
	l := &s.link
	l.state, l.conn, l.since = linkLive, d.conn, time.Now()
	if d.handle == "" {
		l.handle = ""
		s.orphanCalls()
	}
	s.startLink(ctx, d.conn) // writes at once
	switch {
	case d.config.Model != s.config.Model:
		s.warn("The model has changed, so the conversation begins anew.")
	case d.handle == "" && l.setUp:
		s.warn("The conversation could not be resumed at Gemini; it goes on without its memory.")
	}
	s.config = d.config
	switch {
	case d.update:
		s.updates = s.updates[1:]
		s.notify(s.setupComplete(false))
	case !l.setUp:
		l.setUp = true
		if s.resumable {
			l.token = s.host.newToken(s, "")
		}
		s.notify(s.setupComplete(false))
	default:
		s.log.Info("link resumed", "dials", l.dials)
	}
	s.update(ctx)
}

// onDialFailed decides between giving up, going back to the old configuration, and trying again.
func (s *Session) onDialFailed(ctx context.Context, d dialled) {
	l := &s.link
	l.state = linkDown
	if !l.setUp {
		s.end(dialFailure(d.err))
		return
	}
	var closed *gemini.CloseError
	switch {
	case d.handle != "" && errors.As(d.err, &closed) && staleHandle(closed):
		l.handle = "" // Gemini no longer knows this conversation
	case d.update:
		s.updates = s.updates[1:]
		s.notify(SetupFailed{dialFailure(d.err)})
	default:
		s.strike(d.err)
	}
	if s.ended == nil {
		s.retry(ctx)
	}
}

// onHeard takes what the link's reader and writer report.
func (s *Session) onHeard(ctx context.Context, h heard) {
	if h.done != nil {
		defer close(h.done)
	}
	if h.epoch != s.link.epoch {
		return
	}
	if h.err == nil {
		s.onMessage(ctx, h.message)
		return
	}
	s.log.Warn("link lost", "err", h.err, "age", time.Since(s.link.since).Round(time.Millisecond))
	s.unlink()
	s.strike(h.err)
	if s.ended == nil && !s.parked { // else dialled when somebody is back
		s.retry(ctx)
	}
}

// strike counts a failure of the link and ends the session when it is one too many, or one that must repeat itself.
func (s *Session) strike(err error) {
	s.link.strikes++
	failure := dialFailure(err)
	if s.link.strikes > maxStrikes || failure.Code == CodeRefused || failure.Code == CodeBusy || failure.Code == CodeBadConfig {
		s.end(failure)
	}
}

// retry dials again, after a pause that grows with the failures.
func (s *Session) retry(ctx context.Context) {
	pause := time.Duration(0)
	if s.link.strikes > 1 {
		pause = rand.N(firstBackoff << (s.link.strikes - 2))
	}
	s.link.state = linkWaiting
	epoch := s.link.epoch
	s.after(ctx, pause, func() {
		if s.link.epoch == epoch && s.link.state == linkWaiting {
			s.dial(ctx)
		}
	})
}

// onGoAway prepares for the end that Gemini has announced: the link is replaced when nobody speaks, or just before it
// is cut. The timer is the loop's own, because a server may fall silent after goAway.
func (s *Session) onGoAway(ctx context.Context, left time.Duration) {
	s.log.Info("gemini will close the link", "in", left)
	s.link.leaving = true
	epoch := s.link.epoch
	s.after(ctx, max(0, left-spare), func() {
		if s.link.epoch == epoch && s.link.leaving {
			s.redial(ctx)
		}
	})
}

// quiet tells whether the link can be replaced without cutting anything off.
func (s *Session) quiet() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.turn.open && len(s.calls) == 0
}

// startLink starts the reader and the writer of a new link.
func (s *Session) startLink(parent context.Context, conn *gemini.Conn) {
	ctx, cancel := context.WithCancel(parent)
	s.link.cancel = cancel
	epoch := s.link.epoch
	s.link.running.Go(func() { s.read(ctx, epoch, conn) })
	s.link.running.Go(func() {
		if err := s.write(ctx, conn); err != nil {
			s.report(ctx, heard{epoch: epoch, err: fmt.Errorf("send: %w", err)})
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
	for {
		m, err := conn.Recv(ctx)
		if bad := (*gemini.FrameError)(nil); errors.As(err, &bad) {
			s.log.Warn("message from gemini skipped", "err", err)
			continue
		}
		if err != nil {
			s.report(ctx, heard{epoch: epoch, err: err})
			return
		}
		h := heard{epoch: epoch, message: m, done: make(chan struct{})}
		select {
		case s.heard <- h:
		case <-ctx.Done():
			return
		}
		select {
		case <-h.done:
		case <-ctx.Done(): // the loop is waiting for us to end
			return
		}
	}
}

// write sends what waits in the uplink. It is the only writer of conn.
func (s *Session) write(ctx context.Context, conn *gemini.Conn) error {
	for {
		message, audio, ok := s.up.next()
		switch {
		case !ok:
			select {
			case <-s.up.ready:
			case <-ctx.Done():
				return nil
			}
		case message != nil:
			if err := conn.Send(ctx, message.ClientMessage); err != nil {
				s.up.unsent(*message)
				return err
			}
		default:
			if err := conn.SendAudio(ctx, audio.pcm, audio.rate); err != nil {
				s.up.unsentAudio(audio)
				return err
			}
			s.up.recycle(audio)
		}
	}
}
