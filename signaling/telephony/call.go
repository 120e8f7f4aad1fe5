package telephony

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"voxgate/bridge"
	"voxgate/media"
	"voxgate/signaling"
	"voxgate/signaling/phone"
)

// transport is a connection that carries a call. A [signaling.Line] is one.
type transport interface {
	Read(limit int) (message []byte, text bool, err error)
	Write(message []byte, text bool) error
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
	// maxHeld is how many messages wait for a provider that can take none: 20 s of the voice.
	maxHeld = 1000
	// echoTime is how long after its time the end of the voice may be played: what the networks' buffers hold.
	echoTime = 2 * time.Second
	// maxReported is how many malformed messages of a call the log has.
	maxReported = 5
)

// or completes what is known of the other side.
func or(p, other phone.Party) phone.Party {
	return phone.Party{Number: cmp.Or(p.Number, other.Number), Name: cmp.Or(p.Name, other.Name), Called: cmp.Or(p.Called, other.Called)}
}

// call is one telephone call. It implements bridge.Caller and media.Output.
type call struct {
	door  *Door
	codec codec
	line  transport
	lead  time.Duration
	out   *signaling.Outbox[packet]
	log   *slog.Logger

	ticket         // who it is, and who answers
	format format  // of its sound
	order  inOrder // of the reader
	ending sync.Once

	written chan struct{} // closed when nothing is written any more
	gone    chan struct{} // closed when the other side is

	mu       sync.Mutex
	session  *bridge.Session // nil: the conversation has not begun
	down     *media.Resampler
	gathered []byte        // encoded, less than a message
	paused   bool          // the other side can take nothing
	held     []packet      // until it can
	heardBy  time.Time     // when what was sent will have been played
	marks    int           // sent
	echoed   int           // the newest that has come back
	echo     chan struct{} // closed and replaced when one does
	moved    bool          // somebody else has the call
	pressed  string
	pressing *time.Timer
}

func (d *Door) newCall(t ticket, codec codec, lead time.Duration) *call {
	return &call{
		door: d, codec: codec, lead: lead, ticket: t, out: signaling.NewOutbox[packet](),
		log: d.Logger, written: make(chan struct{}), gone: make(chan struct{}), echo: make(chan struct{}),
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
		return
	}
	opened()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	running.Go(func() {
		defer close(c.written)
		if err := c.out.Run(ctx, func(_ context.Context, p packet) error { return c.line.Write(p.data, p.text) }); err != nil {
			cancel(err)
		}
	})
	err = c.door.Host.Serve(ctx, c, c.conversation())
	c.log.Info("call over", "why", err)
	c.end(err)
	cancel(nil)
	running.Wait()
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
	if c.format.rate != bridge.VoiceRate {
		c.down = media.NewResampler(bridge.VoiceRate, c.format.rate)
		c.down.Delay()
	}
	c.log = c.door.Logger.With("provider", c.from(), "caller", phone.Clip(c.party.Number), "theirs", c.call)
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
	c.mu.Lock()
	c.session = s
	c.mu.Unlock()
	c.log.Info("call", "call", s.ID(), "called", phone.Clip(c.party.Called))
	s.Attach(c)
	s.Hold(false)
	stop := context.AfterFunc(ctx, func() { c.end(context.Cause(ctx)) }) // which ends the reading below
	defer stop()
	defer close(c.gone)
	defer c.hush()
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
		var m message
		if err == nil {
			m, err = c.codec.read(data, text)
		}
		if err != nil {
			if reported++; reported <= maxReported {
				c.log.Warn("a message that cannot be read", "why", err)
			}
			continue
		}
		if m.kind == stopped {
			return nil
		}
		if m.kind == sound {
			missing, parts := c.order.take(m)
			_ = mic.WritePCM(make([]int16, min(missing*len(pcm), media.Samples(maxGap, c.format.rate))))
			for _, part := range parts {
				pcm = c.format.decode(pcm[:0], part)
				_ = mic.WritePCM(pcm) // never fails
			}
			continue
		}
		c.hear(m)
	}
}

// hear takes what is no sound.
func (c *call) hear(m message) {
	switch m.kind {
	case digit:
		c.press(m.digit)
	case played:
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.echoed = c.marks; m.mark != "" {
			c.echoed, _ = strconv.Atoi(m.mark) // what is none of ours is before them all
		}
		close(c.echo)
		c.echo = make(chan struct{})
	case paused, resumed:
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.paused = m.kind == paused; !c.paused {
			for _, p := range c.held {
				c.out.Put(p, len(p.data))
			}
			c.held = nil
		}
	}
}

// press takes a key. What is pressed up to #, or until nothing is for a while, is one turn.
func (c *call) press(key byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pressed += string(key)
	if c.pressing == nil {
		c.pressing = time.AfterFunc(digitGap, c.typed)
	}
	if key == '#' || len(c.pressed) >= maxPressed {
		c.pressing.Reset(0)
	} else {
		c.pressing.Reset(digitGap)
	}
}

// typed tells the model what was pressed.
func (c *call) typed() {
	c.mu.Lock()
	keys, s := c.pressed, c.session // there is one: nobody reads keys before
	c.pressed = ""
	c.mu.Unlock()
	if keys == "" {
		return
	}
	c.log.Info("keys pressed", "count", len(keys)) // not which: they may be a secret
	if err := s.Do(phone.Pressed(keys)); err != nil {
		c.log.Warn("keys lost", "err", err)
	}
}

// hush forgets keys that nobody waits for any more.
func (c *call) hush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pressed = ""
	if c.pressing != nil {
		c.pressing.Stop()
	}
}

// roundTrip notes how long the way to the provider and back takes.
func (c *call) roundTrip(d time.Duration) {
	c.mu.Lock()
	s := c.session
	c.mu.Unlock()
	if s != nil {
		s.RoundTrip(d)
	}
}

// Notify implements bridge.Caller: what a telephone is told is said.
func (c *call) Notify(e bridge.Event) {
	switch b := e.Body.(type) {
	case bridge.Interrupted:
		if b.By != bridge.ByLink { // else nothing is void
			c.clear()
		}
	case bridge.TurnComplete:
		c.mu.Lock()
		c.mark()
		c.mu.Unlock()
	case bridge.Log:
		c.log.Debug(b.Message)
	}
}

// clear drops what was sent and not heard.
func (c *call) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gathered, c.held, c.paused, c.heardBy = nil, nil, false, time.Time{}
	if p, ok := c.codec.say(clearVoice, ""); ok {
		c.out.Put(p, len(p.data))
	}
}

// mark asks to be told when what was sent was played; false: nobody can tell. Needs mu.
func (c *call) mark() bool {
	c.send()
	p, ok := c.codec.say(putMark, strconv.Itoa(c.marks+1))
	if ok {
		c.marks++
		c.post(p)
	}
	return ok
}

// Rate, Lead and WriteFrame implement media.Output.
func (c *call) Rate() int           { return bridge.VoiceRate }
func (c *call) Lead() time.Duration { return c.lead }

// WriteFrame implements media.Output.
func (c *call) WriteFrame(f media.Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	pcm := f.PCM
	if c.down != nil {
		if f.Start {
			c.down.Delay() // forgets the end of the talkspurt before
		}
		pcm = c.down.Resample(pcm)
	}
	if f.Start {
		c.send()
	}
	if now := time.Now(); c.heardBy.Before(now) {
		c.heardBy = now
	}
	c.heardBy = c.heardBy.Add(media.FrameDuration)
	c.gathered = c.format.encode(c.gathered, pcm)
	if len(c.gathered) >= c.format.frame()*c.frames() {
		c.send()
	}
	return nil
}

// frames is how many make a message.
func (c *call) frames() int {
	if c.provider == nil {
		return 1
	}
	return max(1, c.provider.profile.dialect.frames)
}

// send sends what is gathered. Needs mu.
func (c *call) send() {
	if len(c.gathered) > 0 {
		c.post(c.codec.voice(c.gathered))
		c.gathered = c.gathered[:0]
	}
}

// post sends a message, or keeps it until the other side can take it. Needs mu.
func (c *call) post(p packet) {
	if !c.paused {
		c.out.Put(p, len(p.data))
		return
	}
	if len(c.held) == maxHeld {
		c.log.Warn("voice lost: the other side takes none")
		c.held = nil
	}
	c.held = append(c.held, p)
}

// end says goodbye when all was heard that was said, and hangs up. It returns when that is done.
func (c *call) end(err error) {
	c.ending.Do(func() {
		c.heard(echoTime)
		c.mu.Lock()
		if p, ok := c.codec.say(hangUp, ""); ok && !c.moved {
			c.out.Put(p, len(p.data))
		}
		c.mu.Unlock()
		c.hangUp()
		c.out.Close()
		<-c.written
		c.line.Goodbye(signaling.Goodbye(err))
	})
}

// heard waits until what was sent was played, or was to be played by all that is known, and so much longer at most.
func (c *call) heard(more time.Duration) {
	c.mu.Lock()
	if c.heardBy.IsZero() { // nothing was
		c.mu.Unlock()
		return
	}
	marked := c.mark()
	wanted, left := c.marks, time.Until(c.heardBy)
	c.mu.Unlock()
	if marked {
		left = max(0, left) + more
	}
	timeout := time.NewTimer(left)
	defer timeout.Stop()
	for {
		c.mu.Lock()
		done, echo := marked && c.echoed >= wanted, c.echo
		c.mu.Unlock()
		if done {
			return
		}
		select {
		case <-echo:
		case <-timeout.C:
			return
		case <-c.gone:
			return
		case <-c.written: // nothing can be sent any more
			return
		}
	}
}

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
}

// take returns the sound that is to be heard now, and how many messages are missing before it.
func (o *inOrder) take(m message) (missing int, parts [][]byte) {
	if m.chunk <= 0 {
		return 0, [][]byte{m.sound}
	}
	if o.next == 0 || m.chunk < o.next-maxJump || m.chunk > o.next+maxJump {
		o.next, o.early = m.chunk, nil
	}
	o.early = append(o.early, m)
	slices.SortStableFunc(o.early, func(a, b message) int { return a.chunk - b.chunk })
	for len(o.early) > 0 && (o.early[0].chunk <= o.next || len(o.early) > maxEarly) {
		first := o.early[0]
		o.early = o.early[1:]
		if first.chunk < o.next { // too late, or once more
			continue
		}
		missing += first.chunk - o.next
		parts = append(parts, first.sound)
		o.next = first.chunk + 1
	}
	return missing, parts
}
