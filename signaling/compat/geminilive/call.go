package geminilive

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
	"voxgate/signaling/client/protocol"
	"voxgate/tools"
)

const (
	// maxMessage limits a message, in bytes: an image of 8 MiB in base64, the same as in the client protocol.
	maxMessage = 11 << 20
	// maxHeldMessages limits the messages that wait for the conversation to begin. Clients send little while the model is dialled.
	maxHeldMessages = 64
	// maxLogged caps client text in a log line, in bytes.
	maxLogged = 300
)

// call is one WebSocket. It is a [bridge.Caller], and the [media.Output] of its conversation.
type call struct {
	*signaling.Socket
	server    *Server
	log       *slog.Logger
	setupSent chan struct{} // closed once the client was sent setupComplete
	failed    chan error    // receives the error of a rejected configuration change

	session        atomic.Pointer[bridge.Session]       // nil before Serve
	resumedSetup   atomic.Pointer[bridge.SetupComplete] // event of a resumed conversation; nil for a new one
	minGeneration  atomic.Uint32                        // voice of an earlier media.Frame.Generation is not sent any more
	pendingChanges atomic.Int32                         // number of configuration changes by the client that have no result yet

	wantsIndex    bool         // the client wants lastConsumedClientMessageIndex; set before Serve
	consumedCount atomic.Int64 // number of messages consumed after the setup

	reader     messageReader      // parses the client's messages
	mic        *bridge.Microphone // mic and dropLogged are used by the goroutine that handles messages
	dropLogged bool               // dropped content was already logged
	translator translator         // used by Notify, whose calls do not overlap

	mu           sync.Mutex
	hasBegun     bool
	handle       string   // resumption handle of the conversation
	heldMessages [][]byte // messages that wait for setupComplete
}

// requestedConfig holds the newest config that a client requested. It is stored with the conversation.
type requestedConfig struct {
	mu     sync.Mutex
	config []byte
}

// replace stores a config and reports whether it differs from the previous one.
func (r *requestedConfig) replace(config []byte) (changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed = !bytes.Equal(r.config, config)
	r.config = config
	return changed
}

// onRoundTrip records the round-trip time. It does not block.
func (c *call) onRoundTrip(d time.Duration) {
	if s := c.session.Load(); s != nil {
		s.SetRoundTrip(d)
	}
}

// sendMessage queues a message as a binary frame. Google's server sends only binary frames, and browser clients rely on
// them. It holds messages until sendSetupComplete is called, so that a rejected client gets none.
func (c *call) sendMessage(message []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hasBegun {
		if len(c.heldMessages) < maxHeldMessages {
			c.heldMessages = append(c.heldMessages, message)
		}
		return
	}
	c.Put(signaling.Outgoing{Data: message})
}

// sendSetupComplete sends setupComplete, and then the messages that sendMessage has held. Only the first call has an
// effect.
func (c *call) sendSetupComplete(b bridge.SetupComplete) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hasBegun {
		return
	}
	c.hasBegun = true
	c.handle = b.ResumeToken
	list := setupMessages(c.handle, c.consumedIndex())
	for _, message := range append(list, c.heldMessages...) {
		c.Put(signaling.Outgoing{Data: message})
	}
	c.heldMessages = nil
	close(c.setupSent)
}

// consumedIndex returns the index of the newest consumed message, or -1 if the client has not asked for the index.
func (c *call) consumedIndex() int64 {
	if !c.wantsIndex {
		return -1
	}
	return c.consumedCount.Load()
}

// run waits for the setup, authenticates the client, and serves the conversation until it ends or the socket is lost.
func (c *call) run(ctx context.Context, token string) error {
	bound, err := c.server.lookUpToken(ctx, token)
	if err != nil {
		return err
	}
	if bound != nil {
		c.reader.constraints = &bound.Setup
	}
	opening, err := c.awaitSetup(ctx)
	if err != nil {
		return err
	}
	c.wantsIndex = opening.wantsIndex
	agent := c.reader.extractAgent(c.server.Agents)
	config := tools.EncodeOrEmpty(c.reader.config)
	open := bridge.SessionRequest{
		Config: config, Resumable: opening.wantsHandles, ResumeToken: opening.handle,
		NoCues: true, Origin: bridge.Origin{Protocol: protocolName, Agent: agent}, EndpointState: &requestedConfig{config: config},
	}
	if opening.handle != "" {
		open.ResumeError = bridge.ErrNotResumed
	}
	releaseUse, err := c.server.authorizeSession(ctx, token, bound, &open)
	if err != nil {
		return err
	}
	err = c.server.Host.Serve(ctx, c, open)
	select {
	case <-c.setupSent:
	default:
		releaseUse() // the conversation did not start
	}
	return err
}

// awaitSetup waits for the first message. The size limit of this message is lower, because it has no images and the client is not
// authenticated yet.
func (c *call) awaitSetup(ctx context.Context) (*setupOptions, error) {
	m, err := c.ReadFirst(ctx, protocol.MaxControl)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, signaling.ErrNoFirstMessage
	}
	c.MarkOpened()
	if m.Err != nil {
		return nil, newTooLongError(protocol.MaxControl)
	}
	q, err := c.reader.parseMessage(m.Data)
	return q.setup, err
}

func newTooLongError(limit int) error {
	return badMessage("", fmt.Sprintf("The message is too long: at most %d bytes are allowed.", limit))
}

// Serve implements bridge.Caller.
func (c *call) Serve(ctx context.Context, s *bridge.Session) error {
	c.session.Store(s)
	defer c.session.Store(nil)
	c.log.Info("client connected", "call", s.ID())
	if err := c.resumeSession(s); err != nil {
		return err
	}
	s.AttachOutput(c)
	messages, ready := c.Messages(), c.setupSent
	for {
		select {
		case <-ready:
			s.HoldVoice(false)
			ready = nil
		case m, ok := <-messages:
			if !ok {
				return nil
			}
			if err := c.handleMessage(s, m); err != nil {
				return err
			}
			c.consumedCount.Add(1)
		case err := <-c.failed:
			s.EndpointState().(*requestedConfig).replace(nil) // the config was rejected
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// resumeSession sends setupComplete to the client of a resumed conversation. If the client has changed the config,
// setupComplete is sent later, when the new config is applied. In a new conversation, resumeSession does nothing.
func (c *call) resumeSession(s *bridge.Session) error {
	resumed, config := c.resumedSetup.Load(), tools.EncodeOrEmpty(c.reader.config)
	switch {
	case resumed == nil:
	case s.EndpointState().(*requestedConfig).replace(config):
		c.pendingChanges.Add(1)
		return s.Do(bridge.UpdateConfig{Config: config})
	default:
		c.sendSetupComplete(*resumed)
	}
	return nil
}

// handleMessage handles one message of the client.
func (c *call) handleMessage(s *bridge.Session, m signaling.Message) error {
	if m.Err != nil {
		return newTooLongError(maxMessage)
	}
	began := time.Now()
	q, err := c.reader.parseMessage(m.Data)
	if err != nil {
		return err
	}
	if q.input == nil || q.input.PCM == nil && q.input.Picture == nil {
		defer func() { c.ChargeTime(time.Since(began)) }()
	}
	if q.dropWarning != "" && !c.dropLogged {
		c.dropLogged = true
		c.log.Info("content of a client message dropped", "call", s.ID(), "what", q.dropWarning)
	}
	if q.input != nil {
		return c.handleRealtimeInput(s, *q.input)
	}
	for _, command := range q.commands {
		if update, ok := command.(bridge.UpdateConfig); ok {
			s.EndpointState().(*requestedConfig).replace(update.Config)
			c.pendingChanges.Add(1)
		}
		if err := s.Do(command); err != nil {
			return err
		}
	}
	for _, a := range q.answers {
		err := s.Do(a)
		if e := bridge.AsError(err); err != nil && e.Code != bridge.CodeInvalidState { // ignore a result for an ended call, as Google does
			return err
		}
	}
	return nil
}

// handleRealtimeInput passes audio, an image, text, or an activity mark to the conversation.
func (c *call) handleRealtimeInput(s *bridge.Session, in protocol.RealtimeInput) error {
	if in.PCM != nil {
		if c.mic == nil || c.mic.Rate() != in.Rate {
			c.flushMicrophone()
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
		c.flushMicrophone()
	}
	for _, command := range in.Commands {
		err := s.Do(command)
		if _, mark := command.(bridge.Activity); mark && err != nil && bridge.AsError(err).Code == bridge.CodeInvalidState {
			return badMessage(nameRealtime,
				"activityStart and activityEnd require automaticActivityDetection.disabled; audioStreamEnd is not allowed with it.")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *call) flushMicrophone() {
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
			c.resumedSetup.Store(&b)
		case !b.Update:
			c.sendSetupComplete(b)
		case c.takeClientChange() && c.resumedSetup.Load() != nil:
			c.sendSetupComplete(*c.resumedSetup.Load())
		}
		return
	case bridge.SetupFailed:
		if !c.takeClientChange() {
			return
		}
		select {
		case c.failed <- b.Err:
		default: // an earlier error is pending, and one is enough
		}
	case bridge.Interrupted:
		if b.By != bridge.ByConnectionLoss {
			c.minGeneration.Store(b.Generation)
		}
	case bridge.Log:
		if b.Level == "warn" {
			c.log.Info("warning for the client's developer", "message", tools.Truncate(setupFieldNames.Replace(b.Message), maxLogged))
		}
	}
	for _, m := range c.translator.translateEvent(e.Body) {
		c.sendMessage(m)
	}
	if _, isEnd := e.Body.(bridge.TurnComplete); isEnd && c.wantsIndex {
		c.mu.Lock()
		handle := c.handle
		c.mu.Unlock()
		if handle != "" {
			c.sendMessage(resumptionMessage(handle, c.consumedIndex()))
		}
	}
}

// takeClientChange is called when a configuration change has ended. If the client has requested the change, it
// decrements pendingChanges and returns true. Changes by the backend are not counted in pendingChanges.
func (c *call) takeClientChange() (isClientChange bool) {
	isClientChange = c.pendingChanges.Load() > 0
	if isClientChange {
		c.pendingChanges.Add(-1)
	}
	return isClientChange
}

// MaxLead implements media.Output. The voice is sent as fast as Google sends it. No voice may come after
// generationComplete, because some clients assume that the voice has then ended (livekit-plugins-google 1.8.9,
// realtime_api.py).
func (c *call) MaxLead() time.Duration { return media.UnlimitedLead }

var _ media.BackpressureOutput = (*call)(nil) // the embedded socket implements Full

// WriteFrame implements media.Output.
func (c *call) WriteFrame(f media.Frame) error {
	c.Put(signaling.Outgoing{Data: encodeVoice(f.PCM), CurrentGeneration: &c.minGeneration, Generation: f.Generation})
	return nil
}
