package ua

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/emiago/sipgo/sip"

	"voxgate/internal/crash"
	"voxgate/signaling/phone"
)

// refreshPause is the time between two attempts to refresh the session timer. It leaves time for two attempts even with the
// shortest session interval.
const refreshPause = 10 * time.Second

// KeepAlive starts a refresh of the session timer in the background when one is due. It returns [ErrRefresh] if the
// call was not refreshed in time. Call it once a second, from one goroutine.
func (c *Call) KeepAlive(now time.Time) error {
	c.mu.Lock()
	if c.refreshed.IsZero() { // the time until the next refresh starts now
		c.refreshed = now
	}
	timer, waited := c.timer, now.Sub(c.refreshed)
	c.mu.Unlock()
	switch {
	case timer.every == 0:
	case waited > timer.expiresAfter():
		return ErrRefresh
	case timer.isRefresher && waited > timer.every/2 && now.Sub(c.tried) > refreshPause:
		c.tried = now
		c.refreshing.Go(func() {
			crash.Run(c.Log, "sip call", c.End, func() { c.sendRefresh(timer) })
		})
	}
	return nil
}

// sendRefresh refreshes the session timer (RFC 4028, section 7.4). If the response asks for a longer interval or a
// later attempt, it tries again, but for no longer than refreshPause in all.
func (c *Call) sendRefresh(timer sessionTimer) {
	ctx, cancel := context.WithTimeout(context.Background(), refreshPause)
	defer cancel()
	ctx, end := c.Context(ctx)
	defer end(nil)
	for {
		res, err := c.refreshOnce(ctx, timer)
		if err != nil {
			if ctx.Err() == nil || c.EndReason() == nil {
				c.Log.Warn("session timer not refreshed", "err", err)
			}
			return
		}
		wait := time.Duration(0)
		least, _ := strconv.Atoi(headerText(res, "Min-SE"))
		switch interval := time.Duration(least) * time.Second; {
		case res.IsSuccess():
			c.recordRefresh()
			return
		case res.StatusCode == 408, res.StatusCode == 481:
			c.End(ErrRefresh)
			return
		// The peer wants a longer interval (RFC 4028, section 7.4).
		case res.StatusCode == 422 && interval > timer.every && interval <= maxSessionInterval:
			timer.every = interval
			c.mu.Lock()
			c.timer.every = interval
			c.mu.Unlock()
		// The peer is negotiating at the same time. We try again after a random time (RFC 3261, section 14.1; RFC 3311,
		// section 5.2).
		case res.StatusCode == 491:
			wait = 2100*time.Millisecond + rand.N(1900*time.Millisecond)
			if c.dialog.invite != nil { // the other side chose the Call-ID, so our wait is shorter
				wait = rand.N(2000 * time.Millisecond)
			}
		case retryAfter(res) > 0 && retryAfter(res) < refreshPause:
			wait = retryAfter(res)
		default:
			c.Log.Warn("session timer not refreshed", "status", res.StatusCode, "reason", phone.SanitizeField(res.Reason))
			return
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// refreshOnce refreshes by UPDATE (RFC 3311), or by INVITE if the peer does not support UPDATE.
func (c *Call) refreshOnce(ctx context.Context, timer sessionTimer) (res *sip.Response, err error) {
	headers := []sip.Header{sip.NewHeader("Supported", "timer"), timer.header(true)}
	c.mu.Lock()
	invites := c.timer.invites
	c.mu.Unlock()
	if !invites {
		res, err = c.dialog.send(ctx, c.dialog.newRequest(sip.UPDATE, headers...))
		invites = err == nil && (res.StatusCode == 405 || res.StatusCode == 501)
	}
	if invites {
		c.mu.Lock()
		c.timer.invites = true
		c.mu.Unlock()
		res, err = c.sendReinvite(ctx, headers)
	}
	return res, err
}

// sendReinvite sends a re-INVITE that offers again what is agreed.
func (c *Call) sendReinvite(ctx context.Context, headers []sip.Header) (*sip.Response, error) {
	select {
	case c.changing <- struct{}{}:
		defer func() { <-c.changing }()
	default:
		return nil, errChanging
	}
	req := c.dialog.newRequest(sip.INVITE, append(headers, sip.NewHeader("Allow", allowed))...)
	setBody(req, typeSDP, c.Media.LocalDescription())
	res, err := c.dialog.send(ctx, req)
	if err != nil || !res.IsSuccess() {
		return res, err
	}
	c.dialog.setTarget(res.Contact())
	if err := c.dialog.sendAck(res.CSeq().SeqNo); err != nil {
		return nil, err
	}
	answer := findSDP(res)
	if answer == nil { // without an answer, the media stay as they are
		return res, nil
	}
	return res, c.Media.ApplyAnswer(answer)
}

// addCallHeaders adds the supported methods and extensions to a response, and the agreed session timer.
func (c *Call) addCallHeaders(res *sip.Response) *sip.Response {
	res.AppendHeader(sip.NewHeader("Allow", allowed))
	res.AppendHeader(sip.NewHeader("Supported", extensions))
	c.mu.Lock()
	timer := c.timer
	c.mu.Unlock()
	if timer.every > 0 {
		res.AppendHeader(timer.header(false))
		if !timer.isRefresher {
			res.AppendHeader(sip.NewHeader("Require", "timer"))
		}
	}
	return res
}

// recordRefresh records the current time as that of the last refresh.
func (c *Call) recordRefresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refreshed = time.Now()
}

// RefreshNow refreshes the session timer now, and closes done when it has finished. It is for tests of package sip,
// which would otherwise have to wait 45 s.
func (c *Call) RefreshNow() (done <-chan struct{}) {
	over := make(chan struct{})
	c.refreshing.Go(func() {
		defer close(over)
		c.sendRefresh(sessionTimer{every: minSessionInterval, isRefresher: true})
	})
	return over
}
