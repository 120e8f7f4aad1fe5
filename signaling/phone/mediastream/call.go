package mediastream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"voxgate/bridge"
	"voxgate/internal/crash"
	"voxgate/media"
	"voxgate/signaling"
	"voxgate/signaling/phone"
)

const (
	// maxMessage limits the size of a message, in bytes. Exotel has the longest messages: 100 kB, according to its
	// documentation.
	maxMessage = 128 << 10
	// maxPrelude limits the number of messages before the start message, because an overloaded provider may send sound
	// before it. 250 messages are 5 s of sound.
	maxPrelude = 250
	// playbackReportWait limits how long we wait for the provider's report that the voice was played, counted from when
	// the voice should have ended. The time covers the buffers of the networks.
	playbackReportWait = 2 * time.Second
	// messagesPerKeepAlive is the number of received sound messages, 20 s, after which we send a keep-alive. Sinch
	// disconnects after a minute without one.
	messagesPerKeepAlive = 1000
	// maxLoggedErrors limits the log entries about malformed messages, per call.
	maxLoggedErrors = 5
)

// newParty returns the party with the numbers and the name that a provider sends.
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

// mergeParty returns p, with empty fields filled in from fallback. It also adds the attributes of fallback.
func mergeParty(p, fallback phone.Party) phone.Party {
	p.Number, p.Name, p.Called = cmp.Or(p.Number, fallback.Number), cmp.Or(p.Name, fallback.Name), cmp.Or(p.Called, fallback.Called)
	for name, value := range fallback.Attributes {
		p.Attributes.Add(name, value)
	}
	return p
}

// call is one phone call. It implements bridge.Caller.
type call struct {
	*signaling.Socket
	server       *Server
	dialectCodec *dialectCodec
	log          *slog.Logger

	ticket                    // the ticket of the call, with the caller and the agent
	format       format       // format of the sound in both directions
	isProbe      bool         // connection test of the provider, without a caller
	voice        *voiceSender // sender of the model's voice; nil until the start message
	endOnce      sync.Once
	disconnected chan struct{} // closed when the provider's messages are no longer read, for example because it has disconnected

	// The following fields are used only by the goroutine that handles the provider's messages.
	mic          media.Sink
	reorder      reorderBuffer
	sampleReader media.SampleReader
	pcm          []int16 // buffer for decoded sound
	errorCount   int     // unreadable messages so far
	soundCount   int     // messages with sound so far
	keypad       *phone.Keypad
	menu         *phone.Menu // the phone menu that an outgoing call may reach; nil for an incoming call

	session       atomic.Pointer[bridge.Session] // nil until the conversation has begun
	isTransferred atomic.Bool                    // the call was transferred
}

func (srv *Server) newCall(t ticket, codec *dialectCodec) *call {
	return &call{
		server: srv, dialectCodec: codec, ticket: t, log: srv.Logger, disconnected: make(chan struct{}), keypad: phone.NewKeypad(),
	}
}

// run handles a call from the connection to its end. It blocks until then.
func (c *call) run(ctx context.Context, s *signaling.Socket) error {
	c.Socket = s
	if rule, err := c.prepareCall(ctx); ctx.Err() != nil {
		return context.Cause(ctx)
	} else if err != nil {
		c.server.countRefusal(c.provider.Name, rule, err)
		return &bridge.Error{Code: bridge.CodeForbidden, Message: "This call is refused."}
	}
	s.MarkOpened()
	if c.isProbe {
		return c.answerProbe(ctx)
	}
	err := c.server.Host.Serve(ctx, c, c.buildSessionRequest())
	c.log.Info("call ended", "reason", err)
	c.endCallAfterPlayback()
	return err
}

// prepareCall reads messages until the start message, and selects the agent. If it fails, rule names the check that
// rejected the call.
func (c *call) prepareCall(ctx context.Context) (rule string, err error) {
	m, err := c.awaitStart(ctx)
	if err != nil {
		return "start", err
	}
	if c.provider.signatureScheme() != nil && c.call != m.start.call {
		return "token", errors.New("the token belongs to another call")
	}
	if c.call == "" {
		c.call = phone.SanitizeField(m.start.call)
	}
	c.format, c.party = m.start.format, mergeParty(c.party, m.start.party)
	if c.party.IsOutbound {
		c.menu = &phone.Menu{}
	}
	if c.isProbe = m.start.isProbe; c.isProbe {
		c.log = c.server.Logger.With("provider", c.provider.Name)
		c.acceptAndStartVoice()
		return "", nil
	}
	if c.agent == nil {
		c.agent = phone.FindAgent(c.server.Agents, protocolName, c.party.Called)
	}
	if c.agent == nil {
		return "agent", errors.New("no agent answers calls to " + strconv.Quote(phone.SanitizeField(c.party.Called)))
	}
	c.open.Origin.Protocol, c.open.Origin.Agent = protocolName, c.agent.Name
	if err := c.server.Agents.Select(&c.open, nil); err != nil { // a token may be limited to another agent
		return "agent", err
	}
	c.log = c.server.Logger.With("provider", c.provider.Name, "caller", phone.SanitizeField(c.party.Number), "provider_call", c.call)
	c.acceptAndStartVoice()
	return "", nil
}

// awaitStart reads messages until the start message. It skips sound and unreadable messages before the start message, so that one bad
// message does not end the call.
func (c *call) awaitStart(ctx context.Context) (message, error) {
	var last error
	for range maxPrelude {
		in, err := c.ReadFirst(ctx, maxMessage)
		if err != nil {
			return message{}, err
		}
		m, err := message{}, in.Err
		if err == nil {
			m, err = c.dialectCodec.parseProviderMessage(in.Data, in.Text)
		}
		switch {
		case m.kind == kindStart:
			return m, err
		case err != nil:
			last = err
		case m.kind == kindStop:
			return m, errors.New("the call ended before it began")
		}
	}
	if last == nil {
		return message{}, fmt.Errorf("no start message among the first %d messages", maxPrelude)
	}
	return message{}, fmt.Errorf("no start message among the first %d messages; last error: %w", maxPrelude, last)
}

// acceptAndStartVoice accepts the call, and creates the sender of the model's voice.
func (c *call) acceptAndStartVoice() {
	c.voice = newVoiceSender(c.dialectCodec, c.format, c.Put, c.log)
	c.voice.sendCommand(acceptCall)
}

// answerProbe answers a provider's connection test, without starting a conversation.
func (c *call) answerProbe(ctx context.Context) error {
	c.log.Info("connection probe answered")
	for range maxPrelude {
		in, err := c.ReadFirst(ctx, maxMessage)
		if err != nil {
			return err
		}
		if m, err := c.dialectCodec.parseProviderMessage(in.Data, in.Text); err == nil && in.Err == nil {
			if m.kind == kindStop {
				c.voice.confirmPeerHangUp()
				return nil
			}
			c.handleControl(m)
		}
	}
	return errors.New("the connection probe did not end")
}

// buildSessionRequest builds the session request for the call.
func (c *call) buildSessionRequest() bridge.SessionRequest {
	open := c.open
	phone.ConfigureSession(&open, c.agent, c.party)
	open.Tools, open.Grant = c.buildTools(), c.server.config.limitGrant(open.Grant)
	open.Origin.Identity, open.Origin.Key = phone.SanitizeField(c.party.Number), protocolName+" "+c.provider.Name
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
	c.log.Info("call", "call", s.ID(), "called", phone.SanitizeField(c.party.Called))
	s.AttachOutput(c.voice)
	s.HoldVoice(false)
	// The provider's messages are still read after ctx is done, because endCallAfterPlayback waits for the report that
	// the voice was played.
	listening, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, func() { c.endCallAfterPlayback(); stop(context.Cause(ctx)) })()
	var typing sync.WaitGroup
	typing.Go(func() {
		crash.Run(c.log, "keypad", s.Crash, func() { c.keypad.Run(listening, c.log, c.agent.Keys, s.Do) })
	})
	defer typing.Wait()
	defer stop(nil)
	defer close(c.disconnected)
	if err := s.Greet(); err != nil {
		return nil // the session has ended; Host.Serve returns the reason
	}
	if err := c.Receive(listening, c.handleMessage); err != errPeerHungUp {
		return err
	}
	return nil
}

// errPeerHungUp reports that the other side has ended the call.
var errPeerHungUp = errors.New("the other side has ended the call")

// handleMessage processes one message of the provider.
func (c *call) handleMessage(in signaling.Message) error {
	began := time.Now()
	m, err := message{}, in.Err
	if err == nil {
		m, err = c.dialectCodec.parseProviderMessage(in.Data, in.Text)
	}
	switch {
	case err != nil:
		if c.errorCount++; c.errorCount <= maxLoggedErrors {
			c.log.Warn("invalid message from the provider", "why", err)
		}
	case m.kind == kindStop:
		c.voice.confirmPeerHangUp()
		return errPeerHungUp
	case m.kind == kindSound:
		if c.soundCount++; c.soundCount%messagesPerKeepAlive == 0 {
			c.voice.sendCommand(sendKeepAlive)
		}
		c.voice.sendSilence()
		missing, ready := c.reorder.push(m)
		if missing > 0 {
			c.sampleReader.Reset()
			_ = c.mic.WritePCM(make([]int16, min(missing*len(c.pcm), media.Samples(maxGap, c.format.rate))))
		}
		for _, part := range ready {
			c.pcm = c.format.decodeSound(c.pcm[:0], &c.sampleReader, part)
			_ = c.mic.WritePCM(c.pcm) // never fails
		}
		return nil
	default:
		c.handleControl(m)
	}
	c.ChargeTime(time.Since(began))
	return nil
}

// handleControl processes a message that has no sound.
func (c *call) handleControl(m message) {
	switch m.kind {
	case kindDigit:
		c.keypad.PushKey(m.digit)
	case kindPlayed:
		c.voice.recordPlayedMark(m.mark)
	case kindPause, kindResume:
		c.voice.setPaused(m.kind == kindPause)
	case kindHold, kindUnhold:
		_ = c.runCommand(bridge.Pause{On: m.kind == kindHold}) // fails only after the conversation has ended
	case kindPing:
		c.voice.sendCommand(answerPing)
	}
}

// recordRoundTrip records the round-trip time to the provider.
func (c *call) recordRoundTrip(d time.Duration) {
	if s := c.session.Load(); s != nil {
		s.SetRoundTrip(d)
		c.voice.setRoundTrip(d)
	}
}

// Notify implements bridge.Caller. Providers accept only sound and commands, so most events are ignored.
func (c *call) Notify(e bridge.Event) {
	c.menu.RecordSpeech(e.Body)
	switch b := e.Body.(type) {
	case bridge.Interrupted:
		if b.By != bridge.ByConnectionLoss { // after a loss of the connection to the model, the sound that was already sent stays valid
			c.voice.discardVoice()
		}
	case bridge.TurnComplete:
		c.voice.finishTurn()
	case bridge.Log:
		c.log.Debug(b.Message)
	}
}

// endCallAfterPlayback waits until the voice has been played, and then hangs up. It does not hang up a transferred
// call.
func (c *call) endCallAfterPlayback() {
	c.endOnce.Do(func() {
		c.waitForPlayback()
		if !c.isTransferred.Load() {
			c.voice.hangUpCall()
			c.hangUpByREST()
		}
	})
}

// waitForPlayback blocks until the voice has been played, or the connection has ended.
func (c *call) waitForPlayback() {
	c.voice.waitUntilPlayed(playbackReportWait, c.disconnected, c.WriterDone())
}
