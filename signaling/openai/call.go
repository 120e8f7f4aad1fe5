package openai

import (
	"context"
	"errors"
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
	events chan event    // that have come, of all connections
	wake   chan struct{} // has a token when there is something in todo
	over   chan struct{} // closed when the conversation is

	order     sync.Mutex // held while something is decided and carried out; taken before mu
	mu        sync.Mutex
	dialogue  *dialogue
	listeners []*listener
	todo      []bridge.Command // what events ask for; the loop carries it out
	decoder   decoder
	encoder   encoder
}

// listener is a connection that gets the conversation's events: the one that carries it, or a second one.
type listener struct {
	out  outlet
	pace pace // of what comes by it
}

// outlet takes what goes to a client, and never blocks. A [signaling.Socket] is one.
type outlet interface {
	PutText(event []byte)
	Full() bool
}

// pace has a client wait for as long as its events take too long: see [signaling.Pace].
type pace interface{ Spent(took time.Duration) }

// read reads an event that has come.
func (l *listener) read(data []byte) event {
	began := time.Now()
	e := event{from: l}
	e.clientEvent, e.err = readEvent(data)
	l.spent(e, began)
	return e
}

// spent counts the time since something began to be done for an event, but for sound.
func (l *listener) spent(e event, began time.Time) {
	if e.Type != "input_audio_buffer.append" || e.err != nil {
		l.pace.Spent(time.Since(began))
	}
}

// event is one of a client.
type event struct {
	clientEvent
	err  error // it cannot be used
	from *listener
}

func newCall(log *slog.Logger, d *dialogue) *call {
	return &call{log: log, dialogue: d, events: make(chan event), wake: make(chan struct{}, 1), over: make(chan struct{})}
}

// with has the dialogue do something, and sends what comes of it. from is the connection that has asked; nil: none has.
func (c *call) with(from *listener, do func(d *dialogue)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do(c.dialogue)
	for _, t := range c.dialogue.drain() {
		for _, l := range c.listeners {
			if !t.alone || l == from || from == nil {
				l.out.PutText(t.data)
			}
		}
	}
}

// join subscribes a connection, and leave unsubscribes it.
func (c *call) join(l *listener) {
	c.mu.Lock()
	c.listeners = append(c.listeners, l)
	c.mu.Unlock()
	c.with(l, func(d *dialogue) { d.created(true) })
}

func (c *call) leave(l *listener) {
	c.mu.Lock()
	c.listeners = slices.DeleteFunc(c.listeners, func(o *listener) bool { return o == l })
	c.mu.Unlock()
}

// Notify implements [bridge.Caller].
func (c *call) Notify(e bridge.Event) {
	switch b := e.Body.(type) {
	case bridge.Log:
		if b.Level == "warn" {
			c.log.Info("for the client's developer", "message", clipLong(b.Message))
		}
		return
	case bridge.Failure: // some clients take any error for the end
		c.log.Info("for the client's developer", "message", clipLong(b.Err.Message))
		return
	}
	var asked []bridge.Command
	c.with(nil, func(d *dialogue) {
		asked = d.happen(e.Body)
		c.todo = append(c.todo, asked...)
	})
	if _, setUp := e.Body.(bridge.SetupComplete); setUp || len(asked) > 0 {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}

// clipLong is what a line of the log repeats of what may be a stranger's.
func clipLong(text string) string {
	const most = 300
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}

// carry does what clients and events ask for, until lost or ctx is done. own sends by in, which may be nil. hear takes
// the sound that comes by events; nil: none does.
func (c *call) carry(
	ctx context.Context, s *bridge.Session, own *listener, in <-chan signaling.Message, lost <-chan struct{}, hear func(sound []byte) error,
) error {
	late := time.NewTimer(hold)
	late.Stop()
	defer late.Stop()
	for {
		events, in := c.events, in
		if c.early() {
			events, in = nil, nil // marks of speech would be refused
		}
		var e event
		select {
		case e = <-events:
		case m, ok := <-in:
			if !ok {
				return nil
			}
			e = own.event(m)
		case <-c.wake:
			c.act(s, event{}, func(*dialogue) (todo []bridge.Command) {
				todo, c.todo = c.todo, nil
				return todo
			})
		case <-late.C:
			c.act(s, event{}, (*dialogue).takeLate)
		case <-lost:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if e.from == nil {
			continue
		}
		began := time.Now()
		c.take(s, e, hear)
		if e.from.spent(e, began); e.Type == "input_audio_buffer.append" {
			continue
		}
		if c.holds() {
			late.Reset(hold)
		} else {
			late.Stop()
		}
	}
}

// early reports whether the model does not take turns yet as the client wants to take them.
func (c *call) early() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.dialogue.begun && c.dialogue.session.turns() != modelsEar
}

func (c *call) holds() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.dialogue.results)+len(c.dialogue.asked) > 0
}

// take does what a client's event asks for.
func (c *call) take(s engine, e event, hear func([]byte) error) {
	err := e.err
	switch {
	case err != nil:
	case e.Type != "input_audio_buffer.append":
		c.act(s, e, func(d *dialogue) []bridge.Command {
			commands, err := d.take(e.clientEvent)
			if err != nil {
				d.fail(e.EventID, err)
			}
			return commands
		})
		return
	case hear == nil:
		err = &apiError{Code: "invalid_value", Param: "type", Message: "The sound of a call comes by its track."}
	default:
		err = hear(e.Audio)
	}
	if err != nil {
		c.with(e.from, func(d *dialogue) { d.fail(e.EventID, err) })
	}
}

// engine is the conversation, as far as a call gives it commands.
type engine interface {
	ID() string
	Do(bridge.Command) error
}

// act has the dialogue decide what an event asks for, and the engine carry it out before anything else is decided:
// sound may come by another goroutine than events, and a mark of speech must not overtake the one before.
func (c *call) act(s engine, e event, decide func(*dialogue) []bridge.Command) {
	c.order.Lock()
	defer c.order.Unlock()
	c.run(s, e, decide)
}

// run is act. Needs order.
func (c *call) run(s engine, e event, decide func(*dialogue) []bridge.Command) {
	var commands []bridge.Command
	c.with(e.from, func(d *dialogue) { commands = decide(d) })
	for _, command := range commands {
		err := s.Do(command)
		if _, mark := command.(bridge.Activity); err != nil && !mark {
			c.log.Info("not carried out", "call", s.ID(), "event", clip(e.Type), "err", clipLong(err.Error()))
		}
		c.with(e.from, func(d *dialogue) { d.done(e.EventID, command, err) })
	}
}

// hear has the dialogue hear sound before it goes to mic.
func (c *call) hear(s engine, mic media.Sink, pcm []int16) error {
	c.order.Lock()
	defer c.order.Unlock()
	c.run(s, event{}, func(d *dialogue) []bridge.Command { return d.sound(pcm, mic.Rate()) })
	return mic.WritePCM(pcm)
}

// Lead and WriteFrame implement [media.Output]. OpenAI's server sends a voice faster than it is played, and its clients
// are made for that: they keep to the time themselves, and say by conversation.item.truncate how much was heard.
func (c *call) Lead() time.Duration { return media.AtOnce }

var _ media.Filler = (*call)(nil)

// Full implements [media.Filler]. A connection that reads too slowly beside one that does not is lost in the end.
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
	c.mu.Lock()
	if !slices.Contains(c.listeners, own) {
		c.listeners = append(c.listeners, own)
	}
	c.mu.Unlock()
	if e := ending(err); e != nil {
		c.with(nil, func(d *dialogue) { d.fail("", e) })
	}
	close(c.over)
}

// ending is the error that a client gets for an end; nil: it is none.
func ending(err error) *apiError {
	var own *apiError
	var limit bridge.Limit
	switch {
	case err == nil,
		errors.Is(err, bridge.ErrLeft),
		errors.Is(err, bridge.ErrGoodbye),
		errors.Is(err, bridge.ErrReplaced),
		errors.Is(err, signaling.ErrSlow):
		return nil
	case errors.As(err, &own):
		return own
	case errors.Is(err, bridge.ErrShutdown), errors.Is(err, context.Canceled):
		return &apiError{Type: "server_error", Code: "server_shutdown", Message: "The gateway is shutting down."}
	case errors.As(err, &limit):
		return &apiError{Code: "session_expired", Message: limit.Error()}
	}
	switch e := bridge.AsError(err); e.Code {
	case bridge.CodeUnauthorized:
		return &apiError{Code: "invalid_api_key", Message: e.Message}
	case bridge.CodeForbidden:
		if e.Field != "" {
			return &apiError{Code: "invalid_model", Message: e.Message, Param: "model"}
		}
		return &apiError{Code: "permission_denied", Message: e.Message}
	case bridge.CodeBusy:
		return &apiError{Code: "rate_limit_exceeded", Message: e.Message}
	case bridge.CodeBadConfig:
		return &apiError{Code: "invalid_value", Message: inSession.Replace(e.Message), Param: "session"}
	default:
		return &apiError{Type: "server_error", Code: string(e.Code), Message: e.Message}
	}
}
