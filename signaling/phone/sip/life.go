package sip

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"voxgate/bridge"
	"voxgate/internal/crash"
	"voxgate/media"
	"voxgate/signaling/phone"
	sipmedia "voxgate/signaling/phone/sip/media"
	"voxgate/signaling/phone/sip/ua"
)

// A call rings, has a conversation, and may then be bridged to another person. For each of these parts, this file has a
// function that returns why the part ended.

// beginCall adds a call to the table of calls. From then on, SIP requests of the call are served.
func (s *Server) beginCall(c *call) error {
	s.calls.add(c)
	err := s.phones.Begin(c.Call)
	if err != nil {
		s.calls.remove(c)
	}
	return err
}

// runCall runs a call that has begun. ring is [call.runIncoming] or [call.runOutgoing]. When the call has ended,
// runCall releases everything that the call holds.
func (s *Server) runCall(c *call, ring func() error) {
	started := time.Now()
	var err error
	defer func() {
		c.Log.Info("call ended", "reason", err, "duration", time.Since(started).Round(time.Millisecond))
	}()
	defer s.phones.Release(c.Call)
	defer c.audio.ClosePort()
	defer s.calls.remove(c)
	crash.Run(c.Log, "sip call", func(e error) {
		err = e
		c.End(e)
	}, func() { err = ring() })
}

// runIncoming lets the caller's phone ring, answers the call and runs its conversation. With early media, the
// conversation begins first, and the call is answered when the model speaks.
func (c *call) runIncoming() (err error) {
	refused := c.applyWebhookDecision()
	if c.HasEarlyCancel() {
		refused = refusalFor(ua.ErrCancelled)
	}
	if refused != nil {
		c.Refuse(refused)
		return errRefused
	}
	c.logBegin(string(c.party.Number), string(c.party.Called))
	if err := c.EndOnCancel(); err != nil {
		return err
	}
	early := false
	if c.replaces == nil { // a call that replaces another call is answered without ringing
		if early, err = c.Ring(c.trunk.EarlyMedia); err != nil {
			return err
		}
	}
	var talked <-chan error // receives why the conversation ended; nil before it begins
	if early {
		talked = c.startConversing()
		select {
		case <-c.modelSpoke: // the model is connected, so the call is answered: from here on it costs the caller money
		case err := <-talked:
			err = cmp.Or(c.EndReason(), err)
			c.Respond(refusalFor(err))
			return err
		}
	}
	defer func() { err = c.HangUp(err, reasonHeader) }()
	if err = c.EndReason(); err != nil {
		c.Respond(refusalFor(err))
	} else if err = c.AnswerAndAwaitAck(); err == nil && !early {
		talked = c.startConversing()
	}
	if err != nil {
		c.End(err)
	}
	if talked != nil {
		err = cmp.Or(err, <-talked)
	}
	return err
}

// runOutgoing dials, and runs the conversation once the call is answered. onProgress gets nil when the phone rings, or
// the error if the call fails. It may be called more than once.
func (c *call) runOutgoing(onProgress func(error)) (err error) {
	r, registry := c.outbound, &c.server.registry
	err = c.Dial(ua.DialOptions{Timeout: r.ringTimeout(), Headers: r.dial.Headers, OnRinging: func() {
		registry.setState(r, StateRinging)
		onProgress(nil)
	}})
	if err != nil {
		onProgress(cmp.Or(c.EndReason(), err))
		return err
	}
	defer func() { err = c.HangUp(err, reasonHeader) }()
	c.audio.DropReceived() // early media, such as a ringback tone, is not the person's voice
	if err := c.Acknowledge(); err != nil {
		onProgress(err)
		return err
	}
	registry.setState(r, StateAnswered)
	onProgress(nil)
	if err := c.ApplyAnswer(); err != nil {
		return err
	}
	return <-c.startConversing()
}

// startConversing runs [call.runConversation] in the background. The returned channel receives its error.
func (c *call) startConversing() <-chan error {
	talked := make(chan error, 1)
	go crash.Run(c.Log, "sip call", func(err error) { talked <- err }, func() { talked <- c.runConversation() })
	return talked
}

// runConversation runs the conversation of a call, or lets a supervisor listen to another call. If the call was put
// through, it then bridges the two people.
func (c *call) runConversation() (err error) {
	ctx, end := c.Context(context.Background())
	defer end(nil)
	switch {
	case c.supervised != nil:
		err = c.superviseUntilTakeOver()
	case c.consultation == nil || c.consultation.brief != "":
		open := c.open
		phone.ConfigureSession(&open, c.agent, c.party)
		open.Tools = c.tools()
		if c.replaces != nil {
			open.Replaces = c.replaces.conversation()
		}
		err = c.server.host.Serve(ctx, c, open)
	}
	switch {
	case c.monitored != nil: // the two people may still talk when the agent no longer listens
		return <-c.monitored.result
	case c.partner != nil:
		return c.runBridge(c.partner)
	case c.consultation != nil && err == nil:
		close(c.consultation.accepted)
		<-c.Ending() // for example, the bridge has ended
		return c.EndReason()
	}
	return err
}

// Serve implements bridge.Caller. The session host calls it within [call.runConversation], and the session is attached
// until it returns.
func (c *call) Serve(ctx context.Context, s *bridge.Session) error {
	took := c.attachSession(s)
	stop, err := c.audio.StartConversation(conversationAudio{c, s})
	defer stop()
	if err != nil {
		return err
	}
	decisions := c.consultation.decisionChannels(c.keypad.Keys())
	stopKeys := func() {}
	if c.consultation == nil {
		stopKeys = c.startKeypad(ctx)
	}
	defer stopKeys()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	if c.screen.isActive() {
		c.screen.restartSilenceClock()
	} else if err := c.greetCaller(s, took); err != nil { // with early media, the greeting is heard before the answer
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case c.partner = <-c.joining:
			close(c.bridged)
			stopKeys()
			stop()
			return c.runMonitoredBridge(ctx, s)
		case err := <-decisions.reported:
			return err
		case key := <-decisions.keys:
			c.consultation.handleKey(key)
		case <-decisions.silence:
			return errColleagueSilent
		case by := <-c.screen.outcome:
			if err := c.handleAnsweredBy(s, by); err != nil {
				return err
			}
		case <-c.screen.doubt:
			if err := s.Do(bridge.Prompt{Instruction: amdQuestion}); err != nil {
				return err
			}
		case <-c.screen.ready:
			if err := c.leaveMessage(s); err != nil {
				return err
			}
		case now := <-tick.C:
			c.screen.checkTimeouts(now)
			if err := cmp.Or(c.audio.ReportAndCheckSilence(now), c.KeepAlive(now)); err != nil {
				return err
			}
		}
	}
}

// runBridge connects two people until one of them hangs up or the call's time limit is reached.
func (c *call) runBridge(leg *call) error {
	ctx, leave, err := c.server.host.RegisterWork(context.Background(), "telephones "+c.ID())
	if err != nil { // the gateway is stopping, and the endpoint will end the calls
		ctx, leave = context.Background(), func() {}
	}
	defer leave()
	ctx, stop := context.WithTimeoutCause(ctx, time.Until(c.startedAt.Add(c.trunk.maxDuration())), bridge.ErrTimeLimit)
	defer stop()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	c.Log.Info("call bridged", "with", leg.ID())
	tapes, done := c.startRecorders(leg)
	defer done()
	var running sync.WaitGroup
	for from, to := range map[*call]*call{c: leg, leg: c} {
		running.Go(func() {
			crash.Run(c.Log, "sip media", end, func() { end(cmp.Or(from.audio.RelayTo(ctx, to.audio, tapes, from == c), errPartner)) })
		})
		running.Go(func() {
			defer crash.Recover(c.Log, "sip call", end)
			end(from.watchBridge(ctx, func(key byte) {
				if err := to.audio.SendDigits(ctx, string(key)); err != nil {
					from.Log.Warn("DTMF digit not relayed", "err", err)
				}
			}))
		})
	}
	running.Wait()
	if err = context.Cause(ctx); errors.Is(err, ua.ErrHungUp) {
		err = errPartner
	}
	leg.End(err)
	return err
}

// runMonitoredBridge lets the agent listen to the two bridged people, if the trunk is configured for that and no
// supervisor has taken over. It blocks until the bridge or the agent's conversation has ended. If the conversation ends
// first, the two people go on talking.
func (c *call) runMonitoredBridge(ctx context.Context, s *bridge.Session) error {
	if !c.trunk.Listen || c.partner.supervised != nil {
		return nil
	}
	mic, err := s.NewMicrophone(sipmedia.PlaybackRate)
	if err != nil {
		return err
	}
	o := &monitoredBridge{result: make(chan error, 1)}
	c.monitored = o
	go crash.Run(c.Log, "sip call", func(err error) { o.result <- err }, func() { o.result <- c.runBridge(c.partner) })
	s.AttachOutput(nil)
	if err := s.Do(bridge.Pause{On: true, Listen: true}); err != nil {
		return err
	}
	tick := time.NewTicker(media.FrameDuration)
	defer tick.Stop()
	frame := make([]int16, media.Samples(media.FrameDuration, sipmedia.PlaybackRate))
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-o.result:
			o.result <- err
			return err
		case <-tick.C:
			clear(frame)
			o.both.MixInto(frame)
			_ = mic.WritePCM(frame) // never fails
		}
	}
}

// startRecorders returns the recorders that get the audio of a bridge: the agent's mixer if the agent listens, and a
// recording if the conversation was recorded. stopRecording finishes the recording.
func (c *call) startRecorders(leg *call) (recorders []sipmedia.Recorder, stopRecording func()) {
	if c.monitored != nil {
		recorders = append(recorders, &c.monitored.both)
	}
	if leg.consultation.isRecorded {
		f, end, err := c.server.host.RecordBridged(c.conversation())
		if err == nil {
			return append(recorders, f), end
		}
		c.Log.Error("recording", "err", err)
	}
	return recorders, func() {}
}
