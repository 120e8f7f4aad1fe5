package telephony

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"voxgate/bridge"
	"voxgate/crash"
	"voxgate/media"
	"voxgate/signaling"
	"voxgate/signaling/phone"
)

const (
	// maxMessage bounds a message, in bytes: Exotel's, the longest, have 100 kB (its documentation).
	maxMessage = 128 << 10
	// maxPrelude is how many messages may come before the one that begins the call: sound of 5 s, which a loaded provider sends too early.
	maxPrelude = 250
	// echoTime is how long after its time the end of the voice may be played: what the networks' buffers hold.
	echoTime = 2 * time.Second
	// aliveEvery is after how many messages with sound, 20 s, the other side learns that we are there: Sinch waits for a minute.
	aliveEvery = 1000
	// maxReported is how many malformed messages of a call the log has.
	maxReported = 5
)

// newParty returns the other side of a call that comes in, as a provider of this dialect describes it.
func (d *dialect) newParty(from, to, name string) phone.Party {
	return phone.Party{Number: d.parseCaller(from), Called: d.parseCalled(to), Name: phone.CallerName(name)}
}

func (d *dialect) parseCaller(text string) phone.Number {
	if d.fullNumbers {
		return phone.ParseFullNumber(text)
	}
	return phone.ParseCaller(text)
}

func (d *dialect) parseCalled(text string) phone.Number {
	if d.fullNumbers {
		return phone.ParseFullNumber(text)
	}
	return phone.ParseNumber(text)
}

// or completes what is known of the other side.
func or(p, other phone.Party) phone.Party {
	p.Number, p.Name, p.Called = cmp.Or(p.Number, other.Number), cmp.Or(p.Name, other.Name), cmp.Or(p.Called, other.Called)
	for name, value := range other.Attributes {
		p.Attributes.Add(name, value)
	}
	return p
}

// call is one telephone call. It implements bridge.Caller.
type call struct {
	*signaling.Socket
	door  *Door
	codec codec
	lead  time.Duration
	log   *slog.Logger

	ticket          // who it is, and who answers
	format  format  // of its sound
	isProbe bool    // the provider tries the connection, and there is no caller
	speech  *speech // nil: the call has not begun
	ending  sync.Once
	gone    chan struct{} // closed when the other side is

	// Owned by take.
	mic        media.Sink
	order      inOrder
	stream     media.SampleReader
	pcm        []int16 // the newest
	reported   int     // messages that could not be read
	heardSound int     // messages with sound
	keypad     *phone.Keypad
	menu       *phone.Menu // of an outgoing call; nil: it came in

	session atomic.Pointer[bridge.Session] // nil: the conversation has not begun
	moved   atomic.Bool                    // somebody else has the call
}

func (d *Door) newCall(t ticket, codec codec, lead time.Duration) *call {
	return &call{
		door: d, codec: codec, lead: lead, ticket: t, log: d.Logger, gone: make(chan struct{}), keypad: phone.NewKeypad(),
	}
}

// run is the life of a call from its connection to its end.
func (c *call) run(ctx context.Context, s *signaling.Socket) error {
	c.Socket = s
	if rule, err := c.begin(ctx); ctx.Err() != nil {
		return context.Cause(ctx)
	} else if err != nil {
		c.door.refused(c.from(), rule, err)
		return &bridge.Error{Code: bridge.CodeForbidden, Message: "This call is not taken."}
	}
	s.MarkOpened()
	if c.isProbe {
		return c.answerProbe(ctx)
	}
	err := c.door.Host.Serve(ctx, c, c.conversation())
	c.log.Info("call ended", "reason", err)
	c.end()
	return err
}

// from is the provider, for the log.
func (c *call) from() string {
	if c.provider == nil {
		return "audiosocket"
	}
	return c.provider.Name
}

// begin reads until the call has begun, and finds out who answers it. rule is what refuses it.
func (c *call) begin(ctx context.Context) (rule string, err error) {
	m, err := c.awaitStart(ctx)
	if err != nil {
		return "start", err
	}
	if c.provider != nil && c.provider.signing() != nil && c.call != m.start.call {
		return "token", errors.New("the token is another call's")
	}
	if c.call == "" {
		c.call = phone.ClipField(m.start.call)
	}
	c.format, c.party = m.start.format, or(c.party, m.start.party)
	if c.party.IsOutbound {
		c.menu = &phone.Menu{}
	}
	if c.isProbe = m.start.isProbe; c.isProbe {
		c.log = c.door.Logger.With("provider", c.from())
		c.startSpeech()
		return "", nil
	}
	if c.agent == nil {
		c.agent = phone.FindAgent(c.door.Agents, doorName, c.party.Called)
	}
	if c.agent == nil {
		return "agent", errors.New("no agent answers calls to " + strconv.Quote(phone.ClipField(c.party.Called)))
	}
	c.open.Origin.Protocol, c.open.Origin.Agent = doorName, c.agent.Name
	if err := c.door.Agents.Select(&c.open, nil); err != nil { // a token may be for another one
		return "agent", err
	}
	c.log = c.door.Logger.With("provider", c.from(), "caller", phone.ClipField(c.party.Number), "theirs", c.call)
	c.startSpeech()
	return "", nil
}

// awaitStart reads until a message begins the call. Messages before it that cannot be read are skipped, and so is sound that comes too
// early: an error of one message does not end the call.
func (c *call) awaitStart(ctx context.Context) (message, error) {
	var last error
	for range maxPrelude {
		in, err := c.ReadFirst(ctx, maxMessage)
		if err != nil {
			return message{}, err
		}
		m, err := message{}, in.Err
		if err == nil {
			m, err = c.codec.read(in.Data, in.Text)
		}
		switch {
		case m.kind == started:
			return m, err
		case err != nil:
			last = err
		case m.kind == stopped:
			return m, errors.New("the call has ended before it began")
		}
	}
	return message{}, fmt.Errorf("none of the first %d messages begins a call; the last that could not be read: %w", maxPrelude, last)
}

// startSpeech accepts the call; its voice can be sent then.
func (c *call) startSpeech() {
	var p packing
	if c.provider != nil {
		p = c.provider.profile.dialect.packing
	}
	c.speech = newSpeech(c.codec, c.format, p, c.lead, c.Put, c.log)
	c.speech.reply(accept)
}

// answerProbe answers a provider that tries the connection, without a conversation.
func (c *call) answerProbe(ctx context.Context) error {
	c.log.Info("connection probe answered")
	for range maxPrelude {
		in, err := c.ReadFirst(ctx, maxMessage)
		if err != nil {
			return err
		}
		if m, err := c.codec.read(in.Data, in.Text); err == nil && in.Err == nil {
			if m.kind == stopped {
				c.speech.stop()
				return nil
			}
			c.hear(m)
		}
	}
	return errors.New("a probe that does not end")
}

// conversation is what the call opens.
func (c *call) conversation() bridge.SessionRequest {
	open := c.open
	phone.ConfigureSession(&open, c.agent, c.party)
	open.Tools, open.Grant = c.tools(), c.door.config.limit(open.Grant)
	open.Origin.Identity, open.Origin.Key = phone.ClipField(c.party.Number), doorName+" "+c.from()
	open.Origin.Attributes = c.party.Attributes
	return open
}

// Serve implements bridge.Caller.
func (c *call) Serve(ctx context.Context, s *bridge.Session) (err error) {
	mic, err := s.NewMicrophone(c.format.rate)
	if err != nil {
		return err
	}
	music := ""
	if c.provider != nil {
		music = c.provider.Music
	}
	c.mic = c.keypad.FilterSecret(phone.WithoutMusic(mic, music))
	c.session.Store(s)
	c.log.Info("call", "call", s.ID(), "called", phone.ClipField(c.party.Called))
	s.AttachOutput(c.speech)
	s.HoldVoice(false)
	// What the other side says of what was played is heard until the end.
	listening, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, func() { c.end(); stop(context.Cause(ctx)) })()
	var typing sync.WaitGroup
	typing.Go(func() {
		crash.Run(c.log, "keypad", s.Crash, func() { c.keypad.Run(listening, c.log, c.agent.Keys, s.Do) })
	})
	defer typing.Wait()
	defer stop(nil)
	defer close(c.gone)
	if err := s.Greet(); err != nil {
		return nil // it is over: Host.Serve says why
	}
	if err := c.Receive(listening, c.take); err != errStopped {
		return err
	}
	return nil
}

// errStopped is the other side's end of a call.
var errStopped = errors.New("the other side has ended the call")

// take takes a message.
func (c *call) take(in signaling.Message) error {
	began := time.Now()
	m, err := message{}, in.Err
	if err == nil {
		m, err = c.codec.read(in.Data, in.Text)
	}
	switch {
	case err != nil:
		if c.reported++; c.reported <= maxReported {
			c.log.Warn("a message that cannot be read", "why", err)
		}
	case m.kind == stopped:
		c.speech.stop()
		return errStopped
	case m.kind == sound:
		if c.heardSound++; c.heardSound%aliveEvery == 0 {
			c.speech.reply(keepAlive)
		}
		c.speech.fill()
		missing, ready := c.order.take(m)
		if missing > 0 {
			c.stream.Reset()
			_ = c.mic.WritePCM(make([]int16, min(missing*len(c.pcm), media.Samples(maxGap, c.format.rate))))
		}
		for _, part := range ready {
			c.pcm = c.format.decode(c.pcm[:0], &c.stream, part)
			_ = c.mic.WritePCM(c.pcm) // never fails
		}
		return nil
	default:
		c.hear(m)
	}
	c.ChargeTime(time.Since(began))
	return nil
}

// hear takes what is no sound.
func (c *call) hear(m message) {
	switch m.kind {
	case digit:
		c.keypad.PushKey(m.digit)
	case played:
		c.speech.played(m.mark)
	case paused, resumed:
		c.speech.pause(m.kind == paused)
	case held, released:
		_ = c.do(bridge.Pause{On: m.kind == held}) // fails if the conversation is over
	case pinged:
		c.speech.reply(pong)
	}
}

// roundTrip notes how long the way to the provider and back takes.
func (c *call) roundTrip(d time.Duration) {
	if s := c.session.Load(); s != nil {
		s.SetRoundTrip(d)
		c.speech.roundTrip(d)
	}
}

// Notify implements bridge.Caller. Nothing goes to a telephone but sound.
func (c *call) Notify(e bridge.Event) {
	c.menu.HandleEvent(e.Body)
	switch b := e.Body.(type) {
	case bridge.Interrupted:
		if b.By != bridge.ByConnectionLoss { // else nothing is void
			c.speech.clear()
		}
	case bridge.TurnComplete:
		c.speech.finish()
	case bridge.Log:
		c.log.Debug(b.Message)
	}
}

// end waits until everything said was heard, and hangs up.
func (c *call) end() {
	c.ending.Do(func() {
		c.heard()
		if !c.moved.Load() {
			c.speech.end()
			c.hangUp()
		}
	})
}

// heard waits until everything said was heard, or the call cannot go on.
func (c *call) heard() { c.speech.heard(echoTime, c.gone, c.WriterDone()) }

const (
	// maxEarly is how many messages wait for one that they have overtaken, and maxGap how much silence stands for lost
	// ones.
	maxEarly = 2
	maxGap   = 200 * time.Millisecond
	// maxJump is how far a count may go astray; beyond it a new count has begun.
	maxJump = 100
	// maxOdd is how many messages in a row may come late, or after a gap. More of them have another count.
	maxOdd = 3
)

// inOrder puts sound in order whose messages are counted, and silence where some of it is missing: a splice would be
// heard as speech. Providers count in other ways, too: anew from 1, all tracks together, in milliseconds, or not at all. A count that does
// not fit is begun anew, or not looked at any more.
type inOrder struct {
	next      int // 0: none has come
	early     []message
	late      []message // in a row
	gaps      int       // messages in a row before which others were missing
	unordered bool      // the count says nothing
	ready     [][]byte
}

// take returns the sound that is to be heard now, good until the next call, and how many messages are missing before
// it.
func (o *inOrder) take(m message) (missing int, ready [][]byte) {
	o.ready = o.ready[:0]
	if m.chunk <= 0 || o.unordered {
		o.ready = append(o.ready, m.sound)
		return 0, o.ready
	}
	if o.next == 0 || m.chunk < o.next-maxJump || m.chunk > o.next+maxJump {
		o.flush(m.chunk)
	}
	if m.chunk < o.next { // too late, or once more, or of a new count
		if o.late = append(o.late, m); len(o.late) == maxOdd {
			o.restart()
		}
		return 0, o.ready
	}
	o.late = o.late[:0]
	o.early = append(o.early, m)
	slices.SortStableFunc(o.early, func(a, b message) int { return a.chunk - b.chunk })
	taken := 0
	for ; taken < len(o.early) && (o.early[taken].chunk <= o.next || len(o.early)-taken > maxEarly); taken++ {
		first := o.early[taken]
		if first.chunk < o.next { // once more
			continue
		}
		if o.gaps++; first.chunk == o.next {
			o.gaps = 0
		}
		missing += first.chunk - o.next
		o.ready = append(o.ready, first.sound)
		o.next = first.chunk + 1
	}
	o.early = slices.Delete(o.early, 0, taken)
	if o.gaps >= maxOdd {
		o.unordered = true
		o.flush(0)
	}
	return missing, o.ready
}

// flush gives out what waits, and begins a count.
func (o *inOrder) flush(next int) {
	for _, m := range o.early {
		o.ready = append(o.ready, m.sound)
	}
	o.next, o.early, o.late, o.gaps = next, o.early[:0], o.late[:0], 0
}

// restart takes the late messages for the first ones of a new count, if they are in order, or of none.
func (o *inOrder) restart() {
	o.unordered = !slices.IsSortedFunc(o.late, func(a, b message) int { return a.chunk + 1 - b.chunk })
	late := o.late
	o.flush(late[len(late)-1].chunk + 1)
	for _, m := range late {
		o.ready = append(o.ready, m.sound)
	}
}
