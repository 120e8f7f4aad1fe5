package sip

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"voxgate/bridge"
	"voxgate/internal/crash"
	"voxgate/signaling/access"
	"voxgate/signaling/phone"
	sipmedia "voxgate/signaling/phone/sip/media"
)

// takeKey is the key that a supervisor presses to take over a call.
const takeKey = '1'

// findSupervised returns the call that has a session. It fails if the call cannot be supervised, because it is itself a
// consultation or is already bridged.
func (s *Server) findSupervised(session string) (*call, error) {
	for _, c := range s.calls.all() {
		if c.sessionID() == session && c.consultation == nil && !c.isBridged() {
			return c, nil
		}
	}
	return nil, newUnknownSessionError(session)
}

// newUnknownSessionError returns the error for a session that the client may not supervise or that is not a phone call
// of this gateway. Both get the same error.
func newUnknownSessionError(session string) error {
	return &bridge.Error{
		Code: bridge.CodeBadMessage, Field: "supervise",
		Message: "supervise: at this gateway no call of a trunk has the conversation " + phone.SanitizeField(session) + ".",
	}
}

// authorizeSupervision returns an error if the client's server key may not listen to a session.
func (s *Server) authorizeSupervision(r *http.Request, session string) error {
	key, err := access.From(r.Context()).RequireWatcher(access.MayListen)
	if err != nil {
		return err
	}
	c, err := s.findSupervised(session)
	if err == nil && !key.MayWatch(c.conversation().Origin()) {
		return newUnknownSessionError(session) // the same error as for an unknown session, so the client cannot find out which sessions exist
	}
	return err
}

// superviseCall makes the outgoing call c a call to a supervisor, who listens to target. c ends when target's session
// ends, unless the supervisor has taken over.
func (c *call) superviseCall(target *call) {
	c.consultation = newConsultation("")
	c.supervised = target
	session := target.conversation()
	go func() {
		select {
		case <-session.Done():
			if target.line.Load().partner != c { // the supervisor has not taken over
				c.End(errSessionOver)
			}
		case <-c.Released():
		}
	}()
}

// superviseUntilTakeOver lets a supervisor listen to another call. It blocks, and returns nil if the supervisor takes over that call.
func (c *call) superviseUntilTakeOver() error {
	session := c.supervised.conversation()
	if err := c.playSessionUntilTakeOver(session); !errors.Is(err, errTakeOver) {
		return err
	}
	c.consultation.isRecorded = session.IsRecorded()
	monitoredLine := c.supervised.line.Load()
	select {
	case monitoredLine.joining <- c:
		return nil
	case <-monitoredLine.bridged: // the caller was put through to another person just now
		return errSessionOver
	case <-c.Ending():
		return c.EndReason()
	}
}

// playSessionUntilTakeOver plays a session to the supervisor. It blocks until the supervisor takes over, and then returns
// [errTakeOver], or until the call must end, and then returns the reason.
func (c *call) playSessionUntilTakeOver(session *bridge.Session) error {
	ctx, end := c.Context(context.Background())
	defer end(nil)
	var both sipmedia.Mixer
	leave, err := session.AddListener(&both)
	if err != nil {
		return err
	}
	defer leave()
	stop, err := c.audio.StartPlayback(both.MixInto)
	defer stop()
	if err != nil {
		return err
	}
	c.Log.Info("supervisor listens", "session", session.ID())
	var reading sync.WaitGroup
	defer reading.Wait()
	defer end(nil)
	reading.Go(func() { crash.Run(c.Log, "keypad", end, func() { c.audio.ReadKeys(ctx) }) })
	return c.watchBridge(ctx, func(key byte) {
		if key == takeKey && !c.supervised.line.Load().isBridged() {
			end(errTakeOver)
		}
	})
}
