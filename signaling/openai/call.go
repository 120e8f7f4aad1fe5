package openai

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"voxgate/bridge"
	"voxgate/media"
	"voxgate/signaling"
)

const (
	// maxEvent bounds an event of a client, in bytes: a picture of 8 MiB in base64.
	maxEvent = maxPicture + 1<<20
	// hold is how long the results of functions wait for the response.create that clients send after them, because the
	// model answers results, and how long a response.create waits for a change of the session before it.
	hold = time.Second
)

// call is one conversation, carried by a socket or a WebRTC peer. It is a [bridge.Caller], but for Serve.
type call struct {
	log    *slog.Logger
	wake   chan struct{}      // has a token when there is something in todo
	late   *time.Timer        // runs while something waits in the dialogue
	begun  chan struct{}      // closed when there is a model that listens
	over   chan struct{}      // closed when the conversation is
	append func([]byte) error // takes the sound that comes by events; nil: none does

	order  sync.Mutex // held while something is decided and carried out; taken before mu
	engine engine     // nil: the conversation has not begun, or is over

	mu        sync.Mutex
	dialogue  *dialogue
	listeners []*listener
	todo      []bridge.Command // what events ask for
	encoder   encoder
}

// engine is the conversation, as far as a call gives it commands.
type engine interface {
	ID() string
	Do(bridge.Command) error
}

// listener is a connection that gets the conversation's events: the one that carries it, or a second one.
type listener struct {
	out interface { // takes what goes to the client, and never blocks
		PutText(event []byte)
		Full() bool
	}
	pace interface{ ChargeTime(took time.Duration) } // of what comes: see [signaling.RateLimiter]

	filtered bool // it gets filteredEvents alone
}

func newCall(log *slog.Logger, d *dialogue) *call {
	c := &call{
		log: log, dialogue: d, wake: make(chan struct{}, 1), begun: make(chan struct{}), over: make(chan struct{}), late: time.NewTimer(hold),
	}
	c.late.Stop()
	return c
}

// with has the dialogue do something, and sends what comes of it. from is the connection that has asked; nil: none has.
func (c *call) with(from *listener, do func(d *dialogue)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do(c.dialogue)
	for _, t := range c.dialogue.drain() {
		for _, l := range c.listeners {
			if (!t.alone || l == from || from == nil) && (!l.filtered || filteredEvents[t.kind]) {
				l.out.PutText(t.data)
			}
		}
	}
}

// join subscribes a connection, and leave unsubscribes it.
func (c *call) join(l *listener) {
	c.with(l, func(d *dialogue) {
		c.listeners = append(c.listeners, l)
		d.put("session.created", object{"session": d.session}, true)
		d.reportLosses()
	})
}

func (c *call) leave(l *listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners = slices.DeleteFunc(c.listeners, func(o *listener) bool { return o == l })
}

// Notify implements [bridge.Caller].
func (c *call) Notify(e bridge.Event) {
	switch b := e.Body.(type) {
	case bridge.Log:
		if b.Level == "warn" {
			c.log.Info("for the client's developer", "message", clipLong(b.Message))
		}
		return
	case bridge.ErrorEvent: // some clients take any error for the end
		c.log.Info("for the client's developer", "message", clipLong(b.Err.Message))
		return
	}
	c.with(nil, func(d *dialogue) {
		begun := d.begun
		if b, ok := e.Body.(bridge.ToolLosses); ok {
			d.loseTools(b)
			if len(c.listeners) > 0 {
				d.reportLosses()
			}
			return
		}
		c.todo = append(c.todo, d.happen(e.Body)...)
		if d.begun && !begun {
			close(c.begun)
		}
		if len(c.todo) > 0 {
			select {
			case c.wake <- struct{}{}:
			default:
			}
		}
	})
}

// carry does what events ask for until the client is gone, its connection has failed, or ctx is done.
func (c *call) carry(ctx context.Context, gone <-chan struct{}, failed <-chan error) error {
	defer c.serve(nil)
	for {
		select {
		case <-c.wake:
			c.act(nil, "", func(*dialogue) []bridge.Command { return nil })
		case <-c.late.C:
			c.act(nil, "", (*dialogue).takeLate)
		case <-gone:
			return nil
		case err := <-failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// serve sets who carries out what clients ask for.
func (c *call) serve(s engine) {
	c.order.Lock()
	defer c.order.Unlock()
	c.engine = s
}

// receive takes what a client has sent by a connection.
func (c *call) receive(l *listener, m signaling.Message) {
	if c.early() { // marks of speech would be refused
		select {
		case <-c.begun:
		case <-c.over:
			return
		}
	}
	began := time.Now()
	var e clientEvent
	var err error
	switch {
	case m.Err != nil:
		err = refusal("invalid_event", "", "The event is too long: it may have %d bytes.", maxEvent)
	case !m.Text:
		err = refusal("invalid_event", "", "Expected a text WebSocket message; binary frames are not supported.")
	default:
		e, err = readEvent(m.Data)
	}
	c.take(l, e, err)
	if e.Type != "input_audio_buffer.append" || err != nil {
		l.pace.ChargeTime(time.Since(began))
	}
}

// early reports whether the model does not take turns yet as the client wants to take them.
func (c *call) early() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.dialogue.begun && c.dialogue.session.turns() != modelsEar
}

// take does what a client's event asks for, or reports why it cannot be used.
func (c *call) take(l *listener, e clientEvent, err error) {
	if err == nil && e.Type == "input_audio_buffer.append" {
		if err = refusal("invalid_value", "type", "The sound of a call comes by its track."); c.append != nil {
			err = c.append(e.Audio)
		}
		if err == nil {
			return
		}
	}
	c.act(l, e.EventID, func(d *dialogue) (commands []bridge.Command) {
		if err == nil {
			commands, err = d.take(e)
		}
		if err != nil {
			d.fail(e.EventID, err)
		}
		return commands
	})
}

// act has the dialogue decide what an event asks for, and the engine carry it out before anything else is decided:
// sound may come by another goroutine than events, and a mark of speech must not overtake the one before. What the
// conversation's own events ask for comes first.
func (c *call) act(from *listener, event string, decide func(*dialogue) []bridge.Command) {
	c.order.Lock()
	defer c.order.Unlock()
	c.run(from, event, decide)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dialogue.waits() {
		c.late.Reset(hold)
	} else {
		c.late.Stop()
	}
}

// run is act, without what waits. Needs order.
func (c *call) run(from *listener, event string, decide func(*dialogue) []bridge.Command) {
	if c.engine == nil {
		return
	}
	c.mu.Lock()
	todo := c.todo
	c.todo = nil
	c.mu.Unlock()
	c.carryOut(nil, "", todo)
	var commands []bridge.Command
	c.with(from, func(d *dialogue) { commands = decide(d) })
	c.carryOut(from, event, commands)
}

func (c *call) carryOut(from *listener, event string, commands []bridge.Command) {
	for _, command := range commands {
		err := c.engine.Do(command)
		if _, mark := command.(bridge.Activity); err != nil && !mark {
			c.log.Info("not carried out", "call", c.engine.ID(), "event", clip(event), "err", clipLong(err.Error()))
		}
		c.with(from, func(d *dialogue) { d.done(event, command, err) })
	}
}

// hear has the dialogue hear sound before it goes to mic.
func (c *call) hear(mic media.Sink, pcm []int16, rate int) error {
	c.order.Lock()
	defer c.order.Unlock()
	c.run(nil, "", func(d *dialogue) []bridge.Command { return d.sound(pcm, rate) })
	return mic.WritePCM(pcm)
}

// Lead and WriteFrame implement [media.Output]. OpenAI's server sends a voice faster than it is played, and its clients
// are made for that: they keep to the time themselves, and say by conversation.item.truncate how much was heard.
func (c *call) Lead() time.Duration { return media.UnlimitedLead }

var _ media.BackpressureOutput = (*call)(nil)

// Full implements [media.BackpressureOutput]. A connection that reads too slowly beside one that does not is lost in the end.
func (c *call) Full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.listeners) > 0 && !slices.ContainsFunc(c.listeners, func(l *listener) bool { return !l.out.Full() })
}

// WriteFrame implements [media.Output].
func (c *call) WriteFrame(f media.Frame) error {
	c.with(nil, func(d *dialogue) {
		encoded := c.encoder.encode(d.session.Audio.Output.Format.Type, f.PCM)
		d.voice(encoded, media.Duration(len(f.PCM), bridge.VoiceRate))
	})
	return nil
}

// end reports to the connections why it is over, if that is an error. own may not have joined.
func (c *call) end(own *listener, err error) {
	c.with(nil, func(d *dialogue) {
		if !slices.Contains(c.listeners, own) {
			c.listeners = append(c.listeners, own)
		}
		if e := ending(err); e != nil {
			d.fail("", e)
		}
	})
	close(c.over)
}
