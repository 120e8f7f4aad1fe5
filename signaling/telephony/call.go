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
	// maxMessage limits a message, in bytes. Exotel's are the longest: 100 kB, according to its documentation.
	maxMessage = 128 << 10
	// maxPrelude limits the messages before the start message. A loaded provider may send sound too early; this allows for 5 s of it.
	maxPrelude = 250
	// echoTime is how long we wait for playback reports after the voice should have ended. It covers the buffers of the networks.
	echoTime = 2 * time.Second
	// aliveEvery is the number of messages with sound between two keep-alives: 20 s. Sinch disconnects after a minute without one.
	aliveEvery = 1000
	// maxReported limits the log entries about malformed messages, per call.
	maxReported = 5
)

// newParty describes the caller, from the numbers and the name that a provider sends.
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

// or fills in the empty fields of p from other.
func or(p, other phone.Party) phone.Party {
	p.Number, p.Name, p.Called = cmp.Or(p.Number, other.Number), cmp.Or(p.Name, other.Name), cmp.Or(p.Called, other.Called)
	for name, value := range other.Attributes {
		p.Attributes.Add(name, value)
	}
	return p
}

// call is one phone call. It implements bridge.Caller.
type call struct {
	*signaling.Socket
	door  *Door
	codec *dialectCodec
	log   *slog.Logger

	ticket          // identifies the caller and selects the agent
	format  format  // of the sound
	isProbe bool    // connection test of the provider, without a caller
	speech  *speech // nil until the call has begun
	ending  sync.Once
	gone    chan struct{} // closed when the other side has gone: nothing more is read from it

	// The following fields are used by the goroutine that calls take.
	mic        media.Sink
	order      inOrder
	stream     media.SampleReader
	pcm        []int16 // buffer for decoded sound
	reported   int     // unreadable messages so far
	heardSound int     // messages with sound so far
	keypad     *phone.Keypad
	menu       *phone.Menu // for outgoing calls; nil for incoming calls

	session atomic.Pointer[bridge.Session] // nil until the conversation has begun
	moved   atomic.Bool                    // the call was transferred
}

func (d *Door) newCall(t ticket, codec *dialectCodec) *call {
	return &call{
		door: d, codec: codec, ticket: t, log: d.Logger, gone: make(chan struct{}), keypad: phone.NewKeypad(),
	}
}

// run handles a call from the connection to its end. It blocks until then.
func (c *call) run(ctx context.Context, s *signaling.Socket) error {
	c.Socket = s
	if rule, err := c.begin(ctx); ctx.Err() != nil {
		return context.Cause(ctx)
	} else if err != nil {
		c.door.refused(c.provider.Name, rule, err)
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

// begin reads until the start message and selects the agent. On errors, rule names the check that rejected the call.
func (c *call) begin(ctx context.Context) (rule string, err error) {
	m, err := c.awaitStart(ctx)
	if err != nil {
		return "start", err
	}
	if c.provider.signing() != nil && c.call != m.start.call {
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
		c.log = c.door.Logger.With("provider", c.provider.Name)
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
	if err := c.door.Agents.Select(&c.open, nil); err != nil { // a token may be limited to another agent
		return "agent", err
	}
	c.log = c.door.Logger.With("provider", c.provider.Name, "caller", phone.ClipField(c.party.Number), "theirs", c.call)
	c.startSpeech()
	return "", nil
}

// awaitStart reads messages until the start message. It skips early sound and unreadable messages before it, so one bad message does not
// end the call.
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
	if last == nil {
		return message{}, fmt.Errorf("none of the first %d messages begins a call", maxPrelude)
	}
	return message{}, fmt.Errorf("none of the first %d messages begins a call; the last that could not be read: %w", maxPrelude, last)
}

// startSpeech accepts the call. From then on, the voice can be sent.
func (c *call) startSpeech() {
	c.speech = newSpeech(c.codec, c.format, c.Put, c.log)
	c.speech.reply(accept)
}

// answerProbe answers a provider's connection test, without starting a conversation.
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

// conversation builds the session request for the call.
func (c *call) conversation() bridge.SessionRequest {
	open := c.open
	phone.ConfigureSession(&open, c.agent, c.party)
	open.Tools, open.Grant = c.tools(), c.door.config.limit(open.Grant)
	open.Origin.Identity, open.Origin.Key = phone.ClipField(c.party.Number), doorName+" "+c.provider.Name
	open.Origin.Attributes = c.party.Attributes
	return open
}

// Serve implements bridge.Caller.
func (c *call) Serve(ctx context.Context, s *bridge.Session) (err error) {
	mic, err := s.NewMicrophone(c.format.rate)
	if err != nil {
		return err
	}
	c.mic = c.keypad.FilterSecret(mic)
	c.session.Store(s)
	c.log.Info("call", "call", s.ID(), "called", phone.ClipField(c.party.Called))
	s.AttachOutput(c.speech)
	s.HoldVoice(false)
	// Playback reports are still read after ctx has ended, until the call is over.
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
		return nil // the session has ended; Host.Serve returns the reason
	}
	if err := c.Receive(listening, c.take); err != errStopped {
		return err
	}
	return nil
}

// errStopped reports that the other side has ended the call.
var errStopped = errors.New("the other side has ended the call")

// take processes one message of the provider.
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

// hear processes a message without sound.
func (c *call) hear(m message) {
	switch m.kind {
	case digit:
		c.keypad.PushKey(m.digit)
	case played:
		c.speech.played(m.mark)
	case paused, resumed:
		c.speech.pause(m.kind == paused)
	case held, released:
		_ = c.do(bridge.Pause{On: m.kind == held}) // fails only after the conversation has ended
	case pinged:
		c.speech.reply(pong)
	}
}

// roundTrip records the round-trip time to the provider.
func (c *call) roundTrip(d time.Duration) {
	if s := c.session.Load(); s != nil {
		s.SetRoundTrip(d)
		c.speech.roundTrip(d)
	}
}

// Notify implements bridge.Caller. Providers accept only sound and commands, so most events are ignored.
func (c *call) Notify(e bridge.Event) {
	c.menu.HandleEvent(e.Body)
	switch b := e.Body.(type) {
	case bridge.Interrupted:
		if b.By != bridge.ByConnectionLoss { // after a connection loss, the sound already sent stays valid
			c.speech.clear()
		}
	case bridge.TurnComplete:
		c.speech.finish()
	case bridge.Log:
		c.log.Debug(b.Message)
	}
}

// end waits until the voice has been played, then hangs up, unless the call was transferred.
func (c *call) end() {
	c.ending.Do(func() {
		c.heard()
		if !c.moved.Load() {
			c.speech.end()
			c.hangUp()
		}
	})
}

// heard blocks until the voice has been played, or the connection has ended.
func (c *call) heard() { c.speech.heard(echoTime, c.gone, c.WriterDone()) }

const (
	// maxEarly is the number of out-of-order messages that wait for a missing one. maxGap limits the silence inserted for lost messages.
	maxEarly = 2
	maxGap   = 200 * time.Millisecond
	// maxJump is the largest plausible jump of the counter. After a larger one, counting restarts.
	maxJump = 100
	// maxOdd is the number of consecutive messages that may be late or follow a gap. After that, the counter is reset or ignored.
	maxOdd = 3
)

// inOrder reorders sound by its message counter, and reports gaps so that silence can fill them: without it, the splice would be taken for
// speech. Some providers restart the counter from 1, count all tracks together, count milliseconds, or do not count. If the counter does
// not fit, counting restarts, or the counter is ignored.
type inOrder struct {
	next      int // next expected number; 0 before the first message
	early     []message
	late      []message // consecutive late messages
	gaps      int       // consecutive messages that followed a gap
	unordered bool      // the counter is ignored
	ready     [][]byte
}

// take adds a message. It returns the sound to play now, valid until the next call, and the number of missing messages before it.
func (o *inOrder) take(m message) (missing int, ready [][]byte) {
	o.ready = o.ready[:0]
	if m.chunk <= 0 || o.unordered {
		o.ready = append(o.ready, m.sound)
		return 0, o.ready
	}
	if o.next == 0 || m.chunk < o.next-maxJump || m.chunk > o.next+maxJump {
		o.flush(m.chunk)
	}
	if m.chunk < o.next { // late, a duplicate, or the first of a new count
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
		if first.chunk < o.next { // duplicate
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

// flush releases the waiting messages and restarts the count at next.
func (o *inOrder) flush(next int) {
	for _, m := range o.early {
		o.ready = append(o.ready, m.sound)
	}
	o.next, o.early, o.late, o.gaps = next, o.early[:0], o.late[:0], 0
}

// restart handles a series of late messages. If they are in order, they begin a new count; otherwise the counter is ignored from now on.
func (o *inOrder) restart() {
	o.unordered = !slices.IsSortedFunc(o.late, func(a, b message) int { return a.chunk + 1 - b.chunk })
	late := o.late
	o.flush(late[len(late)-1].chunk + 1)
	for _, m := range late {
		o.ready = append(o.ready, m.sound)
	}
}
