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
	// playbackReportWait is how long we wait for playback reports after the voice should have ended. It covers the buffers of the networks.
	playbackReportWait = 2 * time.Second
	// messagesPerKeepAlive is the number of messages with sound between two keep-alives: 20 s. Sinch disconnects after a minute without one.
	messagesPerKeepAlive = 1000
	// maxLoggedErrors limits the log entries about malformed messages, per call.
	maxLoggedErrors = 5
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

// fillParty fills in the empty fields of p from other.
func fillParty(p, other phone.Party) phone.Party {
	p.Number, p.Name, p.Called = cmp.Or(p.Number, other.Number), cmp.Or(p.Name, other.Name), cmp.Or(p.Called, other.Called)
	for name, value := range other.Attributes {
		p.Attributes.Add(name, value)
	}
	return p
}

// call is one phone call. It implements bridge.Caller.
type call struct {
	*signaling.Socket
	server *Server
	codec  *dialectCodec
	log    *slog.Logger

	ticket                    // identifies the caller and selects the agent
	format       format       // of the sound
	isProbe      bool         // connection test of the provider, without a caller
	voice        *voiceSender // nil until the call has begun
	endOnce      sync.Once
	disconnected chan struct{} // closed when the other side has gone: nothing more is read from it

	// The following fields are used by the goroutine that calls take.
	mic          media.Sink
	reorder      reorderBuffer
	sampleReader media.SampleReader
	pcm          []int16 // buffer for decoded sound
	errorCount   int     // unreadable messages so far
	soundCount   int     // messages with sound so far
	keypad       *phone.Keypad
	menu         *phone.Menu // for outgoing calls; nil for incoming calls

	session       atomic.Pointer[bridge.Session] // nil until the conversation has begun
	isTransferred atomic.Bool                    // the call was transferred
}

func (d *Server) newCall(t ticket, codec *dialectCodec) *call {
	return &call{
		server: d, codec: codec, ticket: t, log: d.Logger, disconnected: make(chan struct{}), keypad: phone.NewKeypad(),
	}
}

// run handles a call from the connection to its end. It blocks until then.
func (c *call) run(ctx context.Context, s *signaling.Socket) error {
	c.Socket = s
	if rule, err := c.prepareCall(ctx); ctx.Err() != nil {
		return context.Cause(ctx)
	} else if err != nil {
		c.server.countRefusal(c.provider.Name, rule, err)
		return &bridge.Error{Code: bridge.CodeForbidden, Message: "This call is not taken."}
	}
	s.MarkOpened()
	if c.isProbe {
		return c.answerProbe(ctx)
	}
	err := c.server.Host.Serve(ctx, c, c.buildSessionRequest())
	c.log.Info("call ended", "reason", err)
	c.endCall()
	return err
}

// prepareCall reads until the start message and selects the agent. On errors, rule names the check that rejected the call.
func (c *call) prepareCall(ctx context.Context) (rule string, err error) {
	m, err := c.awaitStart(ctx)
	if err != nil {
		return "start", err
	}
	if c.provider.signatureScheme() != nil && c.call != m.start.call {
		return "token", errors.New("the token is another call's")
	}
	if c.call == "" {
		c.call = phone.ClipField(m.start.call)
	}
	c.format, c.party = m.start.format, fillParty(c.party, m.start.party)
	if c.party.IsOutbound {
		c.menu = &phone.Menu{}
	}
	if c.isProbe = m.start.isProbe; c.isProbe {
		c.log = c.server.Logger.With("provider", c.provider.Name)
		c.startVoice()
		return "", nil
	}
	if c.agent == nil {
		c.agent = phone.FindAgent(c.server.Agents, protocolName, c.party.Called)
	}
	if c.agent == nil {
		return "agent", errors.New("no agent answers calls to " + strconv.Quote(phone.ClipField(c.party.Called)))
	}
	c.open.Origin.Protocol, c.open.Origin.Agent = protocolName, c.agent.Name
	if err := c.server.Agents.Select(&c.open, nil); err != nil { // a token may be limited to another agent
		return "agent", err
	}
	c.log = c.server.Logger.With("provider", c.provider.Name, "caller", phone.ClipField(c.party.Number), "theirs", c.call)
	c.startVoice()
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
			m, err = c.codec.parseMessage(in.Data, in.Text)
		}
		switch {
		case m.kind == kindStart:
			return m, err
		case err != nil:
			last = err
		case m.kind == kindStop:
			return m, errors.New("the call has ended before it began")
		}
	}
	if last == nil {
		return message{}, fmt.Errorf("none of the first %d messages begins a call", maxPrelude)
	}
	return message{}, fmt.Errorf("none of the first %d messages begins a call; the last that could not be read: %w", maxPrelude, last)
}

// startVoice accepts the call. From then on, the voice can be sent.
func (c *call) startVoice() {
	c.voice = newVoiceSender(c.codec, c.format, c.Put, c.log)
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
		if m, err := c.codec.parseMessage(in.Data, in.Text); err == nil && in.Err == nil {
			if m.kind == kindStop {
				c.voice.confirmEnd()
				return nil
			}
			c.handleControl(m)
		}
	}
	return errors.New("a probe that does not end")
}

// buildSessionRequest builds the session request for the call.
func (c *call) buildSessionRequest() bridge.SessionRequest {
	open := c.open
	phone.ConfigureSession(&open, c.agent, c.party)
	open.Tools, open.Grant = c.buildTools(), c.server.config.limitGrant(open.Grant)
	open.Origin.Identity, open.Origin.Key = phone.ClipField(c.party.Number), protocolName+" "+c.provider.Name
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
	s.AttachOutput(c.voice)
	s.HoldVoice(false)
	// Playback reports are still read after ctx has ended, until the call is over.
	listening, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, func() { c.endCall(); stop(context.Cause(ctx)) })()
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
		m, err = c.codec.parseMessage(in.Data, in.Text)
	}
	switch {
	case err != nil:
		if c.errorCount++; c.errorCount <= maxLoggedErrors {
			c.log.Warn("a message that cannot be read", "why", err)
		}
	case m.kind == kindStop:
		c.voice.confirmEnd()
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

// handleControl processes a message without sound.
func (c *call) handleControl(m message) {
	switch m.kind {
	case kindDigit:
		c.keypad.PushKey(m.digit)
	case kindPlayed:
		c.voice.handlePlayed(m.mark)
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
	c.menu.HandleEvent(e.Body)
	switch b := e.Body.(type) {
	case bridge.Interrupted:
		if b.By != bridge.ByConnectionLoss { // after a connection loss, the sound already sent stays valid
			c.voice.discardVoice()
		}
	case bridge.TurnComplete:
		c.voice.finishTurn()
	case bridge.Log:
		c.log.Debug(b.Message)
	}
}

// endCall waits until the voice has been played, then hangs up, unless the call was transferred.
func (c *call) endCall() {
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

const (
	// maxPending is the number of out-of-order messages that wait for a missing one. maxGap limits the silence inserted for lost messages.
	maxPending = 2
	maxGap     = 200 * time.Millisecond
	// maxJump is the largest plausible jump of the counter. After a larger one, counting restarts.
	maxJump = 100
	// maxIrregular is the number of consecutive messages that may be late or follow a gap. After that, the counter is reset or ignored.
	maxIrregular = 3
)

// reorderBuffer reorders sound by its message counter, and reports gaps so that silence can fill them: without it, the splice would be
// taken for speech. Some providers restart the counter from 1, count all tracks together, count milliseconds, or do not count. If the
// counter does not fit, counting restarts, or the counter is ignored.
type reorderBuffer struct {
	nextChunk       int // next expected number; 0 before the first message
	pending         []message
	lateMessages    []message // consecutive late messages
	consecutiveGaps int       // consecutive messages that followed a gap
	ignoresCounter  bool      // the counter is ignored
	ready           [][]byte
}

// push adds a message. It returns the sound to play now, valid until the next call, and the number of missing messages before it.
func (o *reorderBuffer) push(m message) (missing int, ready [][]byte) {
	o.ready = o.ready[:0]
	if m.chunk <= 0 || o.ignoresCounter {
		o.ready = append(o.ready, m.sound)
		return 0, o.ready
	}
	if o.nextChunk == 0 || m.chunk < o.nextChunk-maxJump || m.chunk > o.nextChunk+maxJump {
		o.releasePending(m.chunk)
	}
	if m.chunk < o.nextChunk { // late, a duplicate, or the first of a new count
		if o.lateMessages = append(o.lateMessages, m); len(o.lateMessages) == maxIrregular {
			o.resyncCounter()
		}
		return 0, o.ready
	}
	o.lateMessages = o.lateMessages[:0]
	o.pending = append(o.pending, m)
	slices.SortStableFunc(o.pending, func(a, b message) int { return a.chunk - b.chunk })
	taken := 0
	for ; taken < len(o.pending) && (o.pending[taken].chunk <= o.nextChunk || len(o.pending)-taken > maxPending); taken++ {
		first := o.pending[taken]
		if first.chunk < o.nextChunk { // duplicate
			continue
		}
		if o.consecutiveGaps++; first.chunk == o.nextChunk {
			o.consecutiveGaps = 0
		}
		missing += first.chunk - o.nextChunk
		o.ready = append(o.ready, first.sound)
		o.nextChunk = first.chunk + 1
	}
	o.pending = slices.Delete(o.pending, 0, taken)
	if o.consecutiveGaps >= maxIrregular {
		o.ignoresCounter = true
		o.releasePending(0)
	}
	return missing, o.ready
}

// releasePending releases the waiting messages and restarts the count at next.
func (o *reorderBuffer) releasePending(next int) {
	for _, m := range o.pending {
		o.ready = append(o.ready, m.sound)
	}
	o.nextChunk, o.pending, o.lateMessages, o.consecutiveGaps = next, o.pending[:0], o.lateMessages[:0], 0
}

// resyncCounter handles a series of late messages. If they are in order, they begin a new count; otherwise the counter is ignored from now
// on.
func (o *reorderBuffer) resyncCounter() {
	o.ignoresCounter = !slices.IsSortedFunc(o.lateMessages, func(a, b message) int { return a.chunk + 1 - b.chunk })
	late := o.lateMessages
	o.releasePending(late[len(late)-1].chunk + 1)
	for _, m := range late {
		o.ready = append(o.ready, m.sound)
	}
}
