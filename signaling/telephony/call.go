package telephony

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"voxgate/bridge"
	"voxgate/media"
	"voxgate/signaling"
	"voxgate/signaling/phone"
)

// transport is a connection that carries a call. A [signaling.Line] is one.
type transport interface {
	Read(limit int) (message []byte, text bool, err error) // message is good until the next call
	Write(message []byte, text bool) error
	Spent(took time.Duration)        // on something that is no sound
	Goodbye(code int, reason string) // Read ends a second later at the latest
	Close()
}

const (
	// maxMessage bounds a message, in bytes: Exotel's, the longest, have 100 kB (its documentation).
	maxMessage = 128 << 10
	// maxPrelude is how many messages may come before the one that begins the call.
	maxPrelude = 10
	// digitGap is how long nothing is pressed until what was pressed is one number; maxPressed bounds it.
	digitGap   = 2 * time.Second
	maxPressed = 64
	// echoTime is how long after its time the end of the voice may be played: what the networks' buffers hold.
	echoTime = 2 * time.Second
	// maxReported is how many malformed messages of a call the log has.
	maxReported = 5
)

// or completes what is known of the other side.
func or(p, other phone.Party) phone.Party {
	return phone.Party{Number: cmp.Or(p.Number, other.Number), Name: cmp.Or(p.Name, other.Name), Called: cmp.Or(p.Called, other.Called)}
}

// call is one telephone call. It implements bridge.Caller.
type call struct {
	door  *Door
	codec codec
	line  transport
	lead  time.Duration
	out   *signaling.Outbox[packet]
	log   *slog.Logger

	ticket         // who it is, and who answers
	format format  // of its sound
	speech *speech // nil: the call has not begun
	order  inOrder // of the reader
	ending sync.Once

	written chan struct{} // closed when nothing is written any more
	gone    chan struct{} // closed when the other side is
	pressed chan byte     // keys

	session atomic.Pointer[bridge.Session] // nil: the conversation has not begun
	moved   atomic.Bool                    // somebody else has the call
}

func (d *Door) newCall(t ticket, codec codec, lead time.Duration) *call {
	return &call{
		door: d, codec: codec, lead: lead, ticket: t, out: signaling.NewOutbox[packet](),
		log: d.Logger, written: make(chan struct{}), gone: make(chan struct{}), pressed: make(chan byte, maxPressed),
	}
}

// run is the life of a call from its connection to its end. opened is called when the call has begun.
func (c *call) run(ctx context.Context, opened func()) {
	// A gateway that shuts down does not wait for first messages.
	interrupted := context.AfterFunc(ctx, func() { c.line.Goodbye(signaling.Goodbye(bridge.ErrShutdown)) })
	rule, err := c.begin()
	if !interrupted() {
		return
	}
	if err != nil {
		c.door.refused(c.from(), rule, err)
		c.line.Goodbye(signaling.Goodbye(&bridge.Error{Code: bridge.CodeForbidden, Message: "This call is not taken."}))
		c.drain()
		return
	}
	opened()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	running.Go(func() { // the goodbye is written, too
		defer close(c.written)
		if err := c.out.Run(context.WithoutCancel(ctx), func(_ context.Context, p packet) error { return c.line.Write(p.data, p.text) }); err != nil {
			cancel(err)
		}
	})
	err = c.door.Host.Serve(ctx, c, c.conversation())
	c.log.Info("call over", "why", err)
	c.end(err)
	c.drain()
	cancel(nil)
	running.Wait()
}

// drain reads what the other side still sends after our goodbye, until it ends or for a second: a socket that is closed with something
// unread is reset, and what we have sent last may be lost.
func (c *call) drain() {
	for {
		if _, _, err := c.line.Read(maxMessage); err != nil && !errors.Is(err, signaling.ErrTooLong) {
			return
		}
	}
}

// from is the provider, for the log.
func (c *call) from() string {
	if c.provider == nil {
		return "audiosocket"
	}
	return c.provider.Name
}

// begin reads until the call has begun, and finds out who answers it. rule is what refuses it.
func (c *call) begin() (rule string, err error) {
	var m message
	for range maxPrelude {
		data, text, err := c.line.Read(maxMessage)
		if err != nil {
			return "start", err
		}
		if m, err = c.codec.read(data, text); err != nil {
			return "start", err
		}
		if m.kind == started || m.kind == stopped {
			break
		}
	}
	if m.kind != started {
		return "start", errors.New("the call has not begun")
	}
	if c.provider != nil && c.provider.profile.sign != nil && c.call != m.start.call {
		return "token", errors.New("the token is another call's")
	}
	if c.call == "" {
		c.call = phone.Clip(m.start.call)
	}
	c.format, c.party = m.start.format, or(c.party, m.start.party)
	if c.agent == nil {
		c.agent = phone.AgentFor(c.door.config.Agents, c.party.Called)
	}
	if c.agent == nil {
		return "agent", errors.New("no agent answers calls to " + strconv.Quote(phone.Clip(c.party.Called)))
	}
	c.log = c.door.Logger.With("provider", c.from(), "caller", phone.Clip(c.party.Number), "theirs", c.call)
	var frames int
	if c.provider != nil {
		frames = c.provider.profile.dialect.frames
	}
	c.speech = newSpeech(c.codec, c.format, frames, c.lead, c.out, c.log)
	return "", nil
}

// conversation is what the call opens.
func (c *call) conversation() bridge.Open {
	open, begun := c.agent.Open(c.party), c.open
	open.Tools, open.Grant, open.Account = c.tools(), c.door.config.limit(begun.Grant), begun.Account
	open.Origin = begun.Origin
	open.Origin.Door, open.Origin.Identity, open.Origin.Key = doorName, phone.Clip(c.party.Number), c.from()
	return open
}

// Serve implements bridge.Caller.
func (c *call) Serve(ctx context.Context, s *bridge.Session) error {
	mic, err := s.Mic(c.format.rate)
	if err != nil {
		return err
	}
	c.session.Store(s)
	c.log.Info("call", "call", s.ID(), "called", phone.Clip(c.party.Called))
	s.Attach(c.speech)
	s.Hold(false)
	stop := context.AfterFunc(ctx, func() { c.end(context.Cause(ctx)) }) // which ends the reading below
	defer stop()
	var typing sync.WaitGroup
	typing.Go(func() { c.typing(s) })
	defer typing.Wait()
	defer close(c.pressed)
	defer close(c.gone)
	if greeting := c.agent.Begin(); greeting != "" {
		if err := s.Do(bridge.Respond{Instruction: greeting}); err != nil {
			return nil // it is over: Host.Serve says why
		}
	}
	var pcm []int16
	for reported := 0; ; {
		data, text, err := c.line.Read(maxMessage)
		if err != nil && !errors.Is(err, signaling.ErrTooLong) {
			return nil
		}
		began := time.Now()
		var m message
		if err == nil {
			m, err = c.codec.read(data, text)
		}
		if err != nil {
			if reported++; reported <= maxReported {
				c.log.Warn("a message that cannot be read", "why", err)
			}
			c.line.Spent(time.Since(began))
			continue
		}
		if m.kind == stopped {
			return nil
		}
		if m.kind == sound {
			missing, ready := c.order.take(m)
			if missing > 0 {
				_ = mic.WritePCM(make([]int16, min(missing*len(pcm), media.Samples(maxGap, c.format.rate))))
			}
			for _, part := range ready {
				pcm = c.format.decode(pcm[:0], part)
				_ = mic.WritePCM(pcm) // never fails
			}
			continue
		}
		c.hear(m)
		c.line.Spent(time.Since(began))
	}
}

// hear takes what is no sound.
func (c *call) hear(m message) {
	switch m.kind {
	case digit:
		select {
		case c.pressed <- m.digit:
		default: // nobody presses faster than they are taken
		}
	case played:
		c.speech.played(m.mark)
	case paused, resumed:
		c.speech.pause(m.kind == paused)
	}
}

// typing tells the model what is pressed: up to #, or until nothing is for a while, is one turn. It returns when nobody can press any more.
func (c *call) typing(s *bridge.Session) {
	var keys []byte
	var late <-chan time.Time // nil: nothing is pressed
	for {
		over := true
		select {
		case key, ok := <-c.pressed:
			if !ok {
				return
			}
			keys, late = append(keys, key), time.After(digitGap)
			over = key == '#' || len(keys) == maxPressed
		case <-late:
		}
		if !over {
			continue
		}
		c.log.Info("keys pressed", "count", len(keys)) // not which: they may be a secret
		if err := s.Do(phone.Pressed(string(keys))); err != nil {
			c.log.Warn("keys lost", "err", err)
		}
		keys, late = nil, nil
	}
}

// roundTrip notes how long the way to the provider and back takes.
func (c *call) roundTrip(d time.Duration) {
	if s := c.session.Load(); s != nil {
		s.RoundTrip(d)
		c.speech.roundTrip(d)
	}
}

// Notify implements bridge.Caller: what a telephone is told is said.
func (c *call) Notify(e bridge.Event) {
	switch b := e.Body.(type) {
	case bridge.Interrupted:
		if b.By != bridge.ByLink { // else nothing is void
			c.speech.clear()
		}
	case bridge.TurnComplete:
		c.speech.finish()
	case bridge.Log:
		c.log.Debug(b.Message)
	}
}

// end says goodbye when all was heard that was said, and hangs up. It returns when that is done.
func (c *call) end(err error) {
	c.ending.Do(func() {
		c.heard()
		if !c.moved.Load() {
			c.speech.tell(hangUp, "")
			c.hangUp()
		}
		c.out.Close()
		<-c.written
		c.line.Goodbye(signaling.Goodbye(err))
	})
}

// heard waits until all was heard that was said, or the call cannot go on.
func (c *call) heard() { c.speech.heard(echoTime, c.gone, c.written) }

const (
	// maxEarly is how many messages wait for one that they have overtaken, and maxGap how much silence stands for lost ones.
	maxEarly = 2
	maxGap   = 200 * time.Millisecond
	// maxJump is how far a count may go astray; beyond it a new count has begun.
	maxJump = 100
)

// inOrder puts sound in order whose messages are counted, and silence where some of it is missing: a splice would be heard as speech.
type inOrder struct {
	next  int // 0: none has come
	early []message
	ready [][]byte
}

// take returns the sound that is to be heard now, good until the next call, and how many messages are missing before it.
func (o *inOrder) take(m message) (missing int, ready [][]byte) {
	o.ready = o.ready[:0]
	if m.chunk <= 0 {
		o.ready = append(o.ready, m.sound)
		return 0, o.ready
	}
	if o.next == 0 || m.chunk < o.next-maxJump || m.chunk > o.next+maxJump {
		o.next, o.early = m.chunk, o.early[:0]
	}
	o.early = append(o.early, m)
	slices.SortStableFunc(o.early, func(a, b message) int { return a.chunk - b.chunk })
	taken := 0
	for ; taken < len(o.early) && (o.early[taken].chunk <= o.next || len(o.early)-taken > maxEarly); taken++ {
		first := o.early[taken]
		if first.chunk < o.next { // too late, or once more
			continue
		}
		missing += first.chunk - o.next
		o.ready = append(o.ready, first.sound)
		o.next = first.chunk + 1
	}
	o.early = slices.Delete(o.early, 0, taken)
	return missing, o.ready
}
