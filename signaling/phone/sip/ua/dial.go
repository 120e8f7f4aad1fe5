package ua

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/emiago/sipgo/sip"

	"voxgate/internal/crash"
	"voxgate/signaling/phone"
)

// DialOptions configure the dialling of a call.
type DialOptions struct {
	Timeout time.Duration     // limit on ringing
	Headers map[string]string // additional headers of the INVITE
	// OnRinging is called when the phone rings, at most once for each INVITE. It may be called several times, because a
	// redirection or a challenge leads to another INVITE.
	OnRinging func()
}

// Dial sends the INVITE, and blocks until the call is answered or fails. The error may be a [RefusedError].
func (c *Call) Dial(o DialOptions) (err error) {
	if c.lookupErr != nil {
		return fmt.Errorf("%w: %w", errUnknown, c.lookupErr)
	}
	c.answer, err = c.sendInvites(&o)
	return err
}

// Acknowledge acknowledges the answer to the INVITE.
func (c *Call) Acknowledge() error { return c.dialog.sendAck(c.answer.CSeq().SeqNo) }

// ApplyAnswer applies the media and the session timer in the answer to the INVITE.
func (c *Call) ApplyAnswer() error {
	answer := findSDP(c.answer)
	if answer == nil { // the session description was in a provisional response (RFC 6337, section 3.1.1)
		answer = c.earlySDP.answerFor(c.answer)
	}
	if err := c.Media.ApplyAnswer(answer); err != nil {
		return err
	}
	c.mu.Lock()
	c.timer = agreedTimer(c.answer)
	c.mu.Unlock()
	<-c.changing // unlock: the media can be renegotiated from now on
	return nil
}

// sendInvites sends the INVITE and waits for its final response. It sends the INVITE again after a challenge or a
// redirection, or to the next server if a server does not answer.
func (c *Call) sendInvites(o *DialOptions) (*sip.Response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), o.Timeout)
	defer cancel()
	var auth passwordAnswers
	moved := false
	var more []sip.Header
	for { // each server, and the target of a redirection, may challenge the INVITE
		req := c.dialog.newRequest(sip.INVITE, sip.NewHeader("Allow", allowed), sip.NewHeader("Supported", "timer, replaces"))
		setBody(req, typeSDP, c.Media.LocalDescription())
		headers := auth.authHeaders(c.dialog.login, req)
		for _, h := range headers {
			req.AppendHeader(h)
		}
		for _, h := range more {
			req.AppendHeader(h)
		}
		for name, value := range o.Headers {
			req.AppendHeader(sip.NewHeader(name, value))
		}
		res, err := c.sendInvite(ctx, req, o.OnRinging)
		switch {
		case (errors.Is(err, errSilent) || err == nil && res.StatusCode == 503) && c.dialog.switchToNextServer(): // RFC 3263, section 4.3
			c.Log.Info("trying the next server", "server", c.dialog.servers[0])
			auth = passwordAnswers{}
			continue
		case err != nil:
			return nil, err
		case res.IsSuccess():
			c.dialog.mu.Lock()
			c.dialog.proof = headers
			c.dialog.mu.Unlock()
			return res, nil
		case !moved && c.followRedirect(ctx, res):
			moved, auth = true, passwordAnswers{}
			continue
		case res.StatusCode == 422 && more == nil: // the session interval is too small (RFC 4028, section 7.3)
			if least, err := strconv.Atoi(headerText(res, "Min-SE")); err == nil && least > 0 {
				more = []sip.Header{sip.NewHeader("Session-Expires", strconv.Itoa(least)), sip.NewHeader("Min-SE", strconv.Itoa(least))}
				continue
			}
		}
		if !auth.addChallenges(c.dialog.login, res) {
			return nil, newRefusedError(res)
		}
	}
}

// followRedirect handles a redirection (3xx): it prepares a call by the same trunk to the number in the best allowed
// Contact (RFC 3261, section 8.1.3.4). In a 305, the Contact is the proxy to use. It returns false if no Contact can be
// used.
func (c *Call) followRedirect(ctx context.Context, res *sip.Response) (ok bool) {
	if res.StatusCode/100 != 3 {
		return false
	}
	for _, contact := range contactsIn(res) {
		if res.StatusCode == 305 {
			servers, err := c.core.resolveServers(ctx, contact.Address, c.dialog.transport)
			if err != nil || c.dialog.transport == "TLS" { // the new server's certificate would not be valid for the trunk's name
				continue
			}
			c.Log.Info("call redirected", "proxy", phone.SanitizeField(hostPort(contact.Address)))
			c.dialog.mu.Lock()
			c.dialog.servers = servers
			c.dialog.mu.Unlock()
			return true
		}
		number := userNumber(contact.Address)
		if number == "" || !number.Matches(c.trunk.Outbound.To) || HasURIDelimiters(string(number)) {
			continue
		}
		c.Log.Info("call redirected", "to", phone.SanitizeField(number))
		c.dialog.mu.Lock()
		c.dialog.target.User = string(number)
		c.dialog.mu.Unlock()
		return true
	}
	return false
}

// serverTimeout is the time that a server has to respond before the next server is tried. In this time, an INVITE by
// UDP is sent four times: at 0, 0.5, 1.5 and 3.5 s (RFC 3261, timer A).
const serverTimeout = 4 * time.Second

var errSilent = errors.New("the server does not answer")

// sendInvite sends one INVITE and waits for its final response. It returns [errSilent] if the server does not answer.
func (c *Call) sendInvite(ctx context.Context, req *sip.Request, onRinging func()) (*sip.Response, error) {
	tx, err := c.dialog.client.TransactionRequest(ctx, req, addVia)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSilent, err)
	}
	defer tx.Terminate()
	// A nil channel never delivers. serverTimer is nil if all other servers were tried, and cancelDeadline until giveUp
	// is called.
	var serverTimer, cancelDeadline <-chan time.Time
	if len(c.dialog.servers) > 1 {
		serverTimer = time.After(serverTimeout)
	}
	var stopping <-chan struct{}
	hasResponse, isRinging := false, false
	ending, ctxDone := c.ending, ctx.Done()
	giveUp := func() {
		ending, ctxDone, serverTimer = nil, nil, nil
		// A cancelled call must end within this time, or within ByeTimeout when the user agent closes (RFC 3261,
		// section 9.1). sipgo would wait without a limit.
		cancelDeadline, stopping = time.After(c.core.timeout), c.core.closing
		c.sendCancel(req)
	}
	for {
		select {
		case res := <-tx.Responses():
			serverTimer, hasResponse = nil, true
			switch {
			case res.IsSuccess():
				// updateFromAnswer comes first, because it stores the peer's tag. Without the tag, a repeated answer
				// would count as the answer of another phone.
				c.dialog.updateFromAnswer(res)
				if ctxDone == nil { // the answer crossed our CANCEL
					_ = c.dialog.sendAck(res.CSeq().SeqNo)
					c.dialog.sendBye("")
					return nil, ErrCancelled
				}
				return res, nil
			case !res.IsProvisional():
				return res, nil
			}
			c.earlySDP.addAnswer(res)
			if res.StatusCode >= 180 && !isRinging {
				isRinging = true
				onRinging()
			}
		case <-serverTimer:
			return nil, errSilent
		case <-tx.Done():
			if !hasResponse && ctxDone != nil {
				return nil, fmt.Errorf("%w: %w", errSilent, cmp.Or(tx.Err(), error(ErrCancelled)))
			}
			return nil, cmp.Or(tx.Err(), error(ErrCancelled))
		case <-ending:
			giveUp()
		case <-ctxDone:
			c.End(ErrNoAnswer)
			giveUp()
		case <-stopping:
			stopping, cancelDeadline = nil, time.After(ByeTimeout)
		case <-cancelDeadline:
			return nil, ErrCancelled
		}
	}
}

// sendCancel sends the CANCEL for an INVITE, in the background.
func (c *Call) sendCancel(invite *sip.Request) {
	req := sip.NewRequest(sip.CANCEL, invite.Recipient)
	for _, name := range []string{"Via", "Route", "From", "To", "Call-ID", "Max-Forwards"} {
		sip.CopyHeaders(name, invite, req)
	}
	req.AppendHeader(&sip.CSeqHeader{SeqNo: invite.CSeq().SeqNo, MethodName: sip.CANCEL})
	req.SetTransport(invite.Transport())
	req.SetDestination(invite.Destination())
	req.SetBody(nil)
	req.Laddr = invite.Laddr
	c.core.running.Go(func() {
		defer crash.Recover(c.Log, "sip call", c.End)
		ctx, stop := context.WithTimeout(context.Background(), ByeTimeout)
		defer stop()
		_, _ = transact(ctx, c.dialog.client, req)
	})
}

// HasURIDelimiters reports whether a number has characters that would change the meaning of a URI.
func HasURIDelimiters(number string) bool { return strings.ContainsAny(number, notInNumber) }

// notInNumber are the characters that would change the meaning of a number in a URI.
const notInNumber = "<>\"@;? \r\n"
