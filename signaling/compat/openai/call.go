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
	// maxDelay limits how long the gateway holds function results until the client sends response.create. They are held
	// because the model answers function results as soon as it gets them. maxDelay also limits how long a
	// response.create waits for a session update.
	maxDelay = time.Second
)

// call is one conversation over a socket or a WebRTC peer. It implements [bridge.Caller] except for Serve.
type call struct {
	log         *slog.Logger
	wake        chan struct{}      // receives a value when pendingCommands is not empty
	delayTimer  *time.Timer        // runs while the dialogue delays commands; on expiry they are executed
	modelReady  chan struct{}      // closed when the model has begun to listen
	callEnded   chan struct{}      // closed at the end of the conversation
	appendAudio func([]byte) error // handles the audio of input_audio_buffer.append; nil in a WebRTC call

	commandMu sync.Mutex // held by decideInOrder while it decides and executes commands; locked before mu
	engine    engine     // nil before and after the conversation

	mu              sync.Mutex
	dialogue        *dialogue
	listeners       []*listener
	pendingCommands []bridge.Command // commands that the engine's events require, to be executed by runCommands
	encoder         audioEncoder
}

// engine is the conversation ([bridge.Session]) that executes the call's commands.
type engine interface {
	ID() string
	Do(bridge.Command) error
}

// listener is a connection that receives the conversation's events. It may be the connection that began the
// conversation, or a later one.
type listener struct {
	out interface { // sends to the client; never blocks
		PutText(event []byte)
		Full() bool
	}
	rateLimiter interface{ ChargeTime(took time.Duration) } // limits the client's events: see [signaling.RateLimiter]

	filtered bool // receives only filteredEvents
}

func newCall(log *slog.Logger, d *dialogue) *call {
	c := &call{
		log: log, dialogue: d, wake: make(chan struct{}, 1), modelReady: make(chan struct{}),
		callEnded: make(chan struct{}), delayTimer: time.NewTimer(maxDelay),
	}
	c.delayTimer.Stop()
	return c
}

// updateDialogue changes the dialogue, and sends the resulting messages. origin is the connection that has caused the
// change; it may be nil.
func (c *call) updateDialogue(origin *listener, change func(d *dialogue)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c.dialogue)
	for _, t := range c.dialogue.drainEvents() {
		for _, l := range c.listeners {
			if (!t.onlySender || l == origin || origin == nil) && (!l.filtered || filteredEvents[t.eventType]) {
				l.out.PutText(t.data)
			}
		}
	}
}

// addListener subscribes a connection to the events of the conversation. removeListener unsubscribes it.
func (c *call) addListener(l *listener) {
	c.updateDialogue(l, func(d *dialogue) {
		c.listeners = append(c.listeners, l)
		d.queueEvent("session.created", object{"session": d.session}, true)
		d.reportToolLosses()
	})
}

func (c *call) removeListener(l *listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners = slices.DeleteFunc(c.listeners, func(o *listener) bool { return o == l })
}

// Notify implements [bridge.Caller].
func (c *call) Notify(e bridge.Event) {
	switch b := e.Body.(type) {
	case bridge.Log:
		if b.Level == "warn" {
			c.log.Info("warning for the client's developer", "message", clipLong(b.Message))
		}
		return
	case bridge.ErrorEvent: // some clients take any error for the end of the session
		c.log.Info("error for the client's developer", "message", clipLong(b.Err.Message))
		return
	}
	c.updateDialogue(nil, func(d *dialogue) {
		wasReady := d.isModelReady
		if b, ok := e.Body.(bridge.ToolLosses); ok {
			d.removeLostTools(b)
			if len(c.listeners) > 0 {
				d.reportToolLosses()
			}
			return
		}
		c.pendingCommands = append(c.pendingCommands, d.handleEngineEvent(e)...)
		if d.isModelReady && !wasReady {
			close(c.modelReady)
		}
		if len(c.pendingCommands) > 0 {
			select {
			case c.wake <- struct{}{}:
			default:
			}
		}
	})
}

// runCommands executes pendingCommands and delayed commands. It blocks until the client has left, its connection has
// failed, or ctx is done.
func (c *call) runCommands(ctx context.Context, gone <-chan struct{}, failed <-chan error) error {
	defer c.setEngine(nil)
	for {
		select {
		case <-c.wake:
			c.decideInOrder(nil, "", func(*dialogue) []bridge.Command { return nil })
		case <-c.delayTimer.C:
			c.decideInOrder(nil, "", (*dialogue).takeDelayedCommands)
		case <-gone:
			return nil
		case err := <-failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// setEngine sets the engine that executes commands. If s is nil, commands are no longer executed.
func (c *call) setEngine(s engine) {
	c.commandMu.Lock()
	defer c.commandMu.Unlock()
	c.engine = s
}

// handleMessage handles a message that a client has sent over a connection. It blocks until the model has the session's
// turn-taking mode.
func (c *call) handleMessage(l *listener, m signaling.Message) {
	if c.isAwaitingTurnMode() { // until then, the engine rejects a bridge.Activity
		select {
		case <-c.modelReady:
		case <-c.callEnded:
			return
		}
	}
	began := time.Now()
	var e clientEvent
	var err error
	switch {
	case m.Err != nil:
		err = newError("invalid_event", "", "The event is too long: at most %d bytes are allowed.", maxEvent)
	case !m.Text:
		err = newError("invalid_event", "", "Expected a text WebSocket message; binary frames are not supported.")
	default:
		e, err = parseEvent(m.Data)
	}
	c.handleEvent(l, e, err)
	if e.Type != "input_audio_buffer.append" || err != nil {
		l.rateLimiter.ChargeTime(time.Since(began))
	}
}

// isAwaitingTurnMode reports whether the model must still be set up for the turn-taking mode of the client's session.
// It is false in the mode engineDetectsTurns, which needs no setup.
func (c *call) isAwaitingTurnMode() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.dialogue.isModelReady && c.dialogue.session.turnMode() != engineDetectsTurns
}

// handleEvent handles a client event, or reports err if the event is invalid.
func (c *call) handleEvent(l *listener, e clientEvent, err error) {
	if err == nil && e.Type == "input_audio_buffer.append" {
		if err = newError("invalid_value", "type", "A WebRTC call accepts audio only by its track."); c.appendAudio != nil {
			err = c.appendAudio(e.Audio)
		}
		if err == nil {
			return
		}
	}
	c.decideInOrder(l, e.EventID, func(d *dialogue) (commands []bridge.Command) {
		if err == nil {
			commands, err = d.handleClientEvent(e)
		}
		if err != nil {
			d.emitError(e.EventID, err)
		}
		return commands
	})
}

// decideInOrder calls decide and executes the commands that decide returns. No other decision can begin before they are
// executed, because marks of speech ([bridge.Activity]) must stay in order although audio and events come from
// different goroutines.
func (c *call) decideInOrder(origin *listener, eventID string, decide func(*dialogue) []bridge.Command) {
	c.commandMu.Lock()
	defer c.commandMu.Unlock()
	c.runDecision(origin, eventID, decide)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dialogue.hasDelayedCommands() {
		c.delayTimer.Reset(maxDelay)
	} else {
		c.delayTimer.Stop()
	}
}

// runDecision executes pendingCommands, calls decide, and executes the commands that decide returns. The caller must
// hold commandMu.
func (c *call) runDecision(origin *listener, eventID string, decide func(*dialogue) []bridge.Command) {
	if c.engine == nil {
		return
	}
	c.mu.Lock()
	todo := c.pendingCommands
	c.pendingCommands = nil
	c.mu.Unlock()
	c.executeCommands(nil, "", todo)
	var commands []bridge.Command
	c.updateDialogue(origin, func(d *dialogue) { commands = decide(d) })
	c.executeCommands(origin, eventID, commands)
}

func (c *call) executeCommands(origin *listener, eventID string, commands []bridge.Command) {
	for _, command := range commands {
		err := c.engine.Do(command)
		if _, mark := command.(bridge.Activity); err != nil && !mark {
			c.log.Info("client event failed", "call", c.engine.ID(), "event", clip(eventID), "err", clipLong(err.Error()))
		}
		c.updateDialogue(origin, func(d *dialogue) { d.onCommandDone(eventID, command, err) })
	}
}

// writeAudio passes audio to the dialogue, and then to mic.
func (c *call) writeAudio(mic media.Sink, pcm []int16, rate int) error {
	c.commandMu.Lock()
	defer c.commandMu.Unlock()
	c.runDecision(nil, "", func(d *dialogue) []bridge.Command { return d.receiveAudio(pcm, rate) })
	return mic.WritePCM(pcm)
}

// MaxLead implements [media.Output]. The voice is sent faster than real time, because OpenAI's clients expect that. They
// report by conversation.item.truncate how much of the voice they have played.
func (c *call) MaxLead() time.Duration { return media.UnlimitedLead }

var _ media.BackpressureOutput = (*call)(nil)

// Full implements [media.BackpressureOutput]. It returns true only if all connections are full, because a single slow
// connection must not delay the others. A slow connection is closed if its queue grows too long.
func (c *call) Full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.listeners) > 0 && !slices.ContainsFunc(c.listeners, func(l *listener) bool { return !l.out.Full() })
}

// WriteFrame implements [media.Output].
func (c *call) WriteFrame(f media.Frame) error {
	c.updateDialogue(nil, func(d *dialogue) {
		encoded := c.encoder.encodeAudio(d.session.Audio.Output.Format.Type, f.PCM)
		d.addVoice(encoded, media.Duration(len(f.PCM), bridge.VoiceRate))
	})
	return nil
}

// endCall reports an error to all connections, and to opener, which may not be a listener yet.
func (c *call) endCall(opener *listener, err error) {
	c.updateDialogue(nil, func(d *dialogue) {
		if !slices.Contains(c.listeners, opener) {
			c.listeners = append(c.listeners, opener)
		}
		if e := endError(err); e != nil {
			d.emitError("", e)
		}
	})
	close(c.callEnded)
}
