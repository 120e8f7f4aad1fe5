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
	// maxEvent limits an event of a client, in bytes: a picture of 8 MiB in base64.
	maxEvent = maxPicture + 1<<20
	// hold is how long results of functions wait for the response.create that clients send after them; the model would
	// answer results at once. It is also how long a response.create waits for the session update before it.
	hold = time.Second
)

// call is one conversation over a socket or a WebRTC peer. It implements [bridge.Caller] except for Serve.
type call struct {
	log    *slog.Logger
	wake   chan struct{}      // has a token when todo is not empty
	late   *time.Timer        // runs while the dialogue delays commands
	begun  chan struct{}      // closed when a model is listening
	over   chan struct{}      // closed at the end of the conversation
	append func([]byte) error // handles audio in events, or nil if those are not accepted

	order  sync.Mutex // held from a decision until its commands are done; locked before mu
	engine engine     // nil before and after the conversation

	mu        sync.Mutex
	dialogue  *dialogue
	listeners []*listener
	todo      []bridge.Command // commands that events require
	encoder   encoder
}

// engine is the conversation that receives the call's commands.
type engine interface {
	ID() string
	Do(bridge.Command) error
}

// listener is a connection that receives the conversation's events: the first one, or a second one.
type listener struct {
	out interface { // sends to the client; never blocks
		PutText(event []byte)
		Full() bool
	}
	pace interface{ ChargeTime(took time.Duration) } // limits the client's events: see [signaling.RateLimiter]

	filtered bool // receives only filteredEvents
}

func newCall(log *slog.Logger, d *dialogue) *call {
	c := &call{
		log: log, dialogue: d, wake: make(chan struct{}, 1), begun: make(chan struct{}), over: make(chan struct{}), late: time.NewTimer(hold),
	}
	c.late.Stop()
	return c
}

// with calls do with the dialogue, and sends the resulting messages. from is the connection that caused them, or nil.
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

// join subscribes a connection; leave unsubscribes it.
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
	case bridge.ErrorEvent: // some clients take any error for the end of the session
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

// carry executes commands that events require until the client is gone, its connection has failed, or ctx is done.
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

// serve sets the engine that executes commands; nil ends that.
func (c *call) serve(s engine) {
	c.order.Lock()
	defer c.order.Unlock()
	c.engine = s
}

// receive handles a message that a client has sent over a connection.
func (c *call) receive(l *listener, m signaling.Message) {
	if c.early() { // marks of speech would be rejected
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

// early reports whether the model does not use the client's turn-taking mode yet.
func (c *call) early() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.dialogue.begun && c.dialogue.session.turns() != modelsEar
}

// take handles a client event, or reports err if the event is invalid.
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

// act calls decide, and executes its commands before any other decision. Audio and events may arrive in different
// goroutines, and a mark of speech must not overtake an earlier one. Commands in todo are executed first.
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

// run is act without the timer for delayed commands. Needs order.
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

// hear passes audio to the dialogue, and then to mic.
func (c *call) hear(mic media.Sink, pcm []int16, rate int) error {
	c.order.Lock()
	defer c.order.Unlock()
	c.run(nil, "", func(d *dialogue) []bridge.Command { return d.sound(pcm, rate) })
	return mic.WritePCM(pcm)
}

// Lead implements [media.Output]. OpenAI's server sends a voice faster than real time, and its clients expect that:
// they pace playback themselves, and report by conversation.item.truncate how much was heard.
func (c *call) Lead() time.Duration { return media.UnlimitedLead }

var _ media.BackpressureOutput = (*call)(nil)

// Full implements [media.BackpressureOutput]. It is true only if all connections are full: one slow connection among
// others is lost.
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

// end reports the reason for the end to the connections, if it is an error. own may not have joined.
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
