package sip

import (
	"context"
	"errors"
	"fmt"
	"time"

	"voxgate/bridge"
	"voxgate/signaling/phone"
	"voxgate/signaling/phone/sip/ua"
)

var (
	errBridged   = errors.New("the caller was put through and talks to somebody else: you only listen")
	errTransfers = errors.New("another transfer is under way")
)

// transferCall transfers the call by REFER (RFC 3515), and blocks until the target has answered. If the other side
// refuses REFER, or transfers are warm, the gateway calls the target itself.
func (c *call) transferCall(ctx context.Context, target, reason string) error {
	uri, err := c.TransferURI(target)
	if err != nil {
		return err
	}
	if c.isBridged() {
		return errBridged
	}
	if c.isTransferring.Swap(true) {
		return errTransfers
	}
	defer c.isTransferring.Store(false)
	if err := c.audio.WaitVoiceEnd(ctx); err != nil { // lets the model finish a sentence such as "I'll put you through"
		return err
	}
	if c.trunk.Transfer == transferWarm {
		return c.putThrough(ctx, target, colleagueBrief(c.party, reason))
	}
	err = c.ReferUntilAnswered(ctx, uri)
	switch {
	case err == nil:
		c.End(errTransferred)
	case errors.Is(err, ua.ErrNoRefer) && c.trunk.Outbound != nil:
		c.Log.Info("REFER refused, calling the target", "err", err)
		return c.putThrough(ctx, target, "")
	case errors.Is(err, ua.ErrNotReached): // Asterisk may have connected the caller to the target without ending the call with us
		c.audio.DistrustReports()
	}
	return err
}

// putThrough calls a target by the call's trunk, and bridges the caller to that call. It blocks until the target has
// accepted or the transfer has failed. Meanwhile the caller hears music.
func (c *call) putThrough(ctx context.Context, target, brief string) (err error) {
	leg, err := c.callColleague(ctx, target, brief)
	if err != nil {
		return err
	}
	sound := c.audio
	defer func() {
		if err != nil {
			_ = sound.SetHoldMusic(false) // fails if the conversation is over
		}
	}()
	if err := sound.SetHoldMusic(true); err != nil {
		c.server.releaseUnstartedCall(leg)
		return err
	}
	if err := c.server.startCall(leg, func(error) {}); err != nil {
		return err
	}
	limit := time.NewTimer(ua.ReferTimeout + consultationTimeout)
	defer limit.Stop()
	joining, taken := chan *call(nil), leg.consultation.accepted
	for {
		select {
		case <-taken:
			leg.consultation.isRecorded = c.conversation().IsRecorded()
			joining, taken = c.joining, nil
			continue
		case joining <- leg:
			return nil
		case <-leg.Ending(): // earlier than leg.Released, by up to 32 s if the trunk does not answer our CANCEL
			return c.server.registry.newColleagueError(leg.outbound, leg.EndReason())
		case <-leg.Released():
			return c.server.registry.newColleagueError(leg.outbound, leg.EndReason())
		case <-limit.C:
			err = errNotTaken
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-c.Released(): // the call has ended, or another call has replaced it
			err = errPartner
		}
		leg.End(errPartner)
		return err
	}
}

// callColleague creates the call to the target of a transfer, but does not dial it yet.
func (c *call) callColleague(ctx context.Context, target, brief string) (*call, error) {
	t := c.trunk
	number, err := t.NumberOf(target)
	if err != nil {
		return nil, err
	}
	switch {
	case number == "" || ua.HasURIDelimiters(number):
		return nil, fmt.Errorf("%q is not a number", phone.SanitizeField(target))
	case brief == "" && !phone.Number(number).Matches(t.Outbound.To): // allowed only for REFER, which the other side pays for
		return nil, fmt.Errorf("%q may not be called by this trunk", phone.SanitizeField(number))
	}
	if !c.server.host.IsReady() {
		return nil, bridge.ErrShutdown
	}
	agent := *c.agent
	agent.Prompt, agent.Greeting = "You are on the telephone with a colleague, whom you have called.", &brief
	r := newOutboundCall("", Dial{To: number, Trunk: t.Name, RingSeconds: int(ua.ReferTimeout / time.Second)})
	leg, err := c.server.newOutgoing(ctx, r, &agent)
	if err != nil {
		return nil, err
	}
	leg.consultation = newConsultation(brief)
	leg.open.Grant = &bridge.Grant{MaxDuration: consultationTimeout}
	return leg, nil
}
