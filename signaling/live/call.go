package live

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"voxgate/bridge"
	"voxgate/media"
	"voxgate/signaling"
	"voxgate/signaling/protocol"
	"voxgate/tools"
)

const (
	// maxMessage limits a message, in bytes: an image of 8 MiB in base64, the same as in the client protocol.
	maxMessage = 11 << 20
	// maxEarly limits the messages that wait for the conversation to begin. Clients send little while the model is dialled.
	maxEarly = 64
	// maxLogged caps client text in a log line, in bytes.
	maxLogged = 300
)

// call is one WebSocket. It is a [bridge.Caller], and the [media.Output] of its conversation.
type call struct {
	*signaling.Socket
	door   *Door
	log    *slog.Logger
	ready  chan struct{} // closed once the client was sent setupComplete
	failed chan error    // receives the error of a rejected configuration change

	session atomic.Pointer[bridge.Session]       // nil before Serve
	back    atomic.Pointer[bridge.SetupComplete] // of a resumed conversation; nil for a new one
	void    atomic.Uint32                        // first generation whose voice may still be sent
	changes atomic.Int32                         // number of client configuration changes without a result

	transparent bool         // the client wants lastConsumedClientMessageIndex; set before Serve
	consumed    atomic.Int64 // number of messages consumed after the setup

	reader     reader             // parses the client's messages
	mic        *bridge.Microphone // mic and dropped are used by the goroutine that handles messages
	dropped    bool               // dropped content was already logged
	translator translator         // used by Notify, whose calls do not overlap

	mu     sync.Mutex
	begun  bool
	handle string   // resumption handle of the conversation
	early  [][]byte // messages that wait for setupComplete
}

// kept is what this endpoint stores with a conversation: the newest config that a client requested.
type kept struct {
	mu     sync.Mutex
	config []byte
}

// swap stores a config and reports whether it differs from the previous one.
func (k *kept) swap(config []byte) (changed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	changed = !bytes.Equal(k.config, config)
	k.config = config
	return changed
}

// onRoundTrip records the round-trip time. It does not block.
func (c *call) onRoundTrip(d time.Duration) {
	if s := c.session.Load(); s != nil {
		s.SetRoundTrip(d)
	}
}

// put queues a message for the client. Like Google's server it sends binary messages, which browser clients rely on. Messages queued
// before begin are held back, so a rejected client receives none.
func (c *call) put(message []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.begun {
		if len(c.early) < maxEarly {
			c.early = append(c.early, message)
		}
		return
	}
	c.Put(signaling.Outgoing{Data: message})
}

// begin sends setupComplete and the waiting messages. Only the first call has an effect.
func (c *call) begin(b bridge.SetupComplete) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun {
		return
	}
	c.begun = true
	c.handle = b.ResumeToken
	list := ready(c.handle, c.index())
	for _, message := range append(list, c.early...) {
		c.Put(signaling.Outgoing{Data: message})
	}
	c.early = nil
	close(c.ready)
}

// index returns the index of the newest consumed message, or -1 if the client did not ask for it.
func (c *call) index() int64 {
	if !c.transparent {
		return -1
	}
	return c.consumed.Load()
}

// run waits for the setup, authenticates the client, and serves the conversation until it ends or the socket is lost.
func (c *call) run(ctx context.Context, token string) error {
	bound, err := c.door.exchange(ctx, token)
	if err != nil {
		return err
	}
	if bound != nil {
		c.reader.bound = &bound.Setup
	}
	opening, err := c.setup(ctx)
	if err != nil {
		return err
	}
	c.transparent = opening.transparent
	agent := c.reader.agent(c.door.Agents)
	config := tools.Encode(c.reader.config)
	open := bridge.SessionRequest{
		Config: config, Resumable: opening.handles, ResumeToken: opening.handle,
		NoCues: true, Origin: bridge.Origin{Protocol: doorName, Agent: agent}, EndpointState: &kept{config: config},
	}
	if opening.handle != "" {
		open.ResumeError = bridge.ErrNotResumed
	}
	free, err := c.door.admit(ctx, token, bound, &open)
	if err != nil {
		return err
	}
	err = c.door.Host.Serve(ctx, c, open)
	select {
	case <-c.ready:
	default:
		free() // the conversation did not start
	}
	return err
}

// setup waits for the first message. Its size limit is lower: it has no images, and the client is not authenticated yet.
func (c *call) setup(ctx context.Context) (*setup, error) {
	m, err := c.ReadFirst(ctx, protocol.MaxControl)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, signaling.ErrNoFirstMessage
	}
	c.MarkOpened()
	if m.Err != nil {
		return nil, tooLong(protocol.MaxControl)
	}
	q, err := c.reader.parse(m.Data)
	return q.setup, err
}

func tooLong(limit int) error {
	return invalid("", fmt.Sprintf("The message is too long: it may have %d bytes.", limit))
}

// Serve implements bridge.Caller.
func (c *call) Serve(ctx context.Context, s *bridge.Session) error {
	c.session.Store(s)
	defer c.session.Store(nil)
	c.log.Info("client connected", "call", s.ID())
	if err := c.goOn(s); err != nil {
		return err
	}
	s.AttachOutput(c)
	messages, ready := c.Messages(), c.ready
	for {
		select {
		case <-ready:
			s.HoldVoice(false)
			ready = nil
		case m, ok := <-messages:
			if !ok {
				return nil
			}
			if err := c.take(s, m); err != nil {
				return err
			}
			c.consumed.Add(1)
		case err := <-c.failed:
			s.EndpointState().(*kept).swap(nil) // the config was rejected
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// goOn resumes a conversation; for a new one it does nothing. If the client requests another config, setupComplete waits until it is
// applied.
func (c *call) goOn(s *bridge.Session) error {
	back, config := c.back.Load(), tools.Encode(c.reader.config)
	switch {
	case back == nil:
	case s.EndpointState().(*kept).swap(config):
		c.changes.Add(1)
		return s.Do(bridge.UpdateConfig{Config: config})
	default:
		c.begin(*back)
	}
	return nil
}

// take handles one message of the client.
func (c *call) take(s *bridge.Session, m signaling.Message) error {
	if m.Err != nil {
		return tooLong(maxMessage)
	}
	began := time.Now()
	q, err := c.reader.parse(m.Data)
	if err != nil {
		return err
	}
	if q.input == nil || q.input.PCM == nil && q.input.Picture == nil {
		defer func() { c.ChargeTime(time.Since(began)) }()
	}
	if q.dropped != "" && !c.dropped {
		c.dropped = true
		c.log.Info("not passed on", "call", s.ID(), "what", q.dropped)
	}
	if q.input != nil {
		return c.hear(s, *q.input)
	}
	for _, command := range q.commands {
		if update, ok := command.(bridge.UpdateConfig); ok {
			s.EndpointState().(*kept).swap(update.Config)
			c.changes.Add(1)
		}
		if err := s.Do(command); err != nil {
			return err
		}
	}
	for _, a := range q.answers {
		err := s.Do(a)
		if e := bridge.AsError(err); err != nil && e.Code != bridge.CodeInvalidState { // the call may have ended, as at Google
			return err
		}
	}
	return nil
}

// hear passes audio, an image, text, or an activity mark to the conversation.
func (c *call) hear(s *bridge.Session, in protocol.RealtimeInput) error {
	if in.PCM != nil {
		if c.mic == nil || c.mic.Rate() != in.Rate {
			c.flush()
			var err error
			if c.mic, err = s.NewMicrophone(in.Rate); err != nil {
				return err
			}
		}
		if err := c.mic.WritePCM(in.PCM); err != nil {
			return err
		}
	}
	if in.Picture != nil {
		s.SetFrame(in.MediaType, in.Picture, true)
	}
	if in.Pauses {
		c.flush()
	}
	for _, command := range in.Commands {
		err := s.Do(command)
		if _, mark := command.(bridge.Activity); mark && err != nil && bridge.AsError(err).Code == bridge.CodeInvalidState {
			return invalid(nameRealtime, "activityStart and activityEnd go with automaticActivityDetection.disabled, audioStreamEnd without.")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *call) flush() {
	if c.mic != nil {
		c.mic.Flush()
	}
}

// Notify implements bridge.Caller.
func (c *call) Notify(e bridge.Event) {
	switch b := e.Body.(type) {
	case bridge.SetupComplete:
		switch {
		case b.Resumed: // handled by Serve
			c.back.Store(&b)
		case !b.Update:
			c.begin(b)
		case c.changed() && c.back.Load() != nil:
			c.begin(*c.back.Load())
		}
		return
	case bridge.SetupFailed:
		if !c.changed() {
			return
		}
		select {
		case c.failed <- b.Err:
		default: // one error is enough
		}
	case bridge.Interrupted:
		if b.By != bridge.ByConnectionLoss {
			c.void.Store(b.Generation)
		}
	case bridge.Log:
		if b.Level == "warn" {
			c.log.Info("for the client's developer", "message", tools.Truncate(inSetup.Replace(b.Message), maxLogged))
		}
	}
	for _, m := range c.translator.translate(e.Body) {
		c.put(m)
	}
	if _, over := e.Body.(bridge.TurnComplete); over && c.transparent {
		c.mu.Lock()
		handle := c.handle
		c.mu.Unlock()
		if handle != "" {
			c.put(resumable(handle, c.index()))
		}
	}
}

// changed reports whether a configuration result belongs to a change by the client, and not to one by the operator's backend.
func (c *call) changed() bool {
	ours := c.changes.Load() > 0
	if ours {
		c.changes.Add(-1)
	}
	return ours
}

// Lead implements media.Output. The voice is sent as fast as Google sends it, as clients expect. Some treat generationComplete as its end
// (livekit-plugins-google 1.8.9, realtime_api.py), so no voice may follow it.
func (c *call) Lead() time.Duration { return media.UnlimitedLead }

var _ media.BackpressureOutput = (*call)(nil) // implemented by the socket

// WriteFrame implements media.Output.
func (c *call) WriteFrame(f media.Frame) error {
	c.Put(signaling.Outgoing{Data: encodeVoice(f.PCM), CurrentGeneration: &c.void, Generation: f.Generation})
	return nil
}
