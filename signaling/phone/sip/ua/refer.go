package ua

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/emiago/sipgo/sip"

	"voxgate/signaling/phone"
)

// ReferTimeout limits how long the other side may take to reach the target of a REFER.
const ReferTimeout = 45 * time.Second

var (
	// ErrNoRefer reports that the other side refuses a REFER. We may still be able to call the target ourselves.
	ErrNoRefer = errors.New("the other side refuses")
	// ErrNotReached reports that a REFER was accepted, but its target did not answer.
	ErrNotReached = errors.New("nobody was reached")
)

// TransferURI returns the URI of a transfer target. A number gets the domain of the other side's From. If the From is
// hidden, as for an anonymous caller, the number gets the host of the trunk's server, of the Contact, or of the source.
func (c *Call) TransferURI(target string) (sip.Uri, error) {
	if uri, err := ParseURI(target); err == nil {
		return uri, nil
	}
	target = string(phone.ParseNumber(target))
	if target == "" || HasURIDelimiters(target) {
		return sip.Uri{}, fmt.Errorf("%q is not a number", phone.SanitizeField(target))
	}
	c.dialog.mu.Lock()
	host, contact, source := c.dialog.remote.Address.Host, c.dialog.target, c.dialog.source
	c.dialog.mu.Unlock()
	if host == "" || phone.IsInvalidHost(host) {
		var server sip.Uri
		if c.trunk.Outbound != nil {
			server, _ = ParseURI(c.trunk.Outbound.Server) // the error is ignored: the configuration was validated
		}
		host = hostPort(contact)
		switch {
		case server.Host != "":
			host = hostPort(server)
		case contact.Host == "" || phone.IsInvalidHost(contact.Host):
			host, _, _ = net.SplitHostPort(source)
			if strings.Contains(host, ":") {
				host = "[" + host + "]"
			}
		}
	}
	return ParseURI("sip:" + target + "@" + host)
}

// ReferUntilAnswered makes the other side call a target, by REFER (RFC 3515). It blocks until the target has answered.
func (c *Call) ReferUntilAnswered(ctx context.Context, to sip.Uri) error {
	ctx, cancel := context.WithTimeout(ctx, ReferTimeout)
	defer cancel()
	statuses := make(chan int, 8)
	c.mu.Lock()
	c.referStatus = statuses
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.referStatus = nil
		c.mu.Unlock()
	}()
	req := c.dialog.newRequest("REFER", &sip.ReferToHeader{Address: to}, sip.NewHeader("Referred-By", "<"+c.dialog.contact.String()+">"))
	res, err := c.dialog.send(ctx, req)
	if err != nil {
		return fmt.Errorf("the other side does not answer: %w", err)
	}
	if !res.IsSuccess() {
		if res.StatusCode >= 600 { // 6xx is a final refusal, so we do not call the target either (RFC 3261, section 21.6)
			return fmt.Errorf("declined: %d %s", res.StatusCode, res.Reason)
		}
		return fmt.Errorf("%w: %d %s", ErrNoRefer, res.StatusCode, res.Reason)
	}
	return c.awaitTransfer(ctx, statuses)
}

// awaitTransfer blocks until the target of a REFER has answered.
func (c *Call) awaitTransfer(ctx context.Context, statuses <-chan int) error {
	for {
		select {
		case status := <-statuses:
			switch {
			case status >= 300:
				return fmt.Errorf("%w: %d", ErrNotReached, status)
			case status >= 200:
				return nil
			}
		case <-c.ending:
			if reason := c.EndReason(); !errors.Is(reason, ErrHungUp) {
				return reason
			}
			return nil // the other side hangs up as soon as it has completed the transfer
		case <-ctx.Done():
			return fmt.Errorf("%w in time", ErrNotReached)
		}
	}
}

// onNotify handles a NOTIFY about the progress of a transfer. Its body has a SIP status line (RFC 3515, section 2.4.5).
func (c *Call) onNotify(req *sip.Request, tx sip.ServerTransaction) {
	c.mu.Lock()
	statuses := c.referStatus
	c.mu.Unlock()
	if !strings.HasPrefix(strings.ToLower(headerText(req, "Event", "o")), "refer") {
		_ = tx.Respond(c.dialog.buildResponse(req, 489, "Bad Event"))
		return
	}
	part, refused := findBody(req, typeFragment)
	if refused != nil {
		c.respond(tx, req, refused)
		return
	}
	_ = tx.Respond(c.dialog.buildResponse(req, 200, "OK"))
	if part == nil {
		return
	}
	fields := strings.Fields(string(part.data))
	if len(fields) < 2 || statuses == nil {
		return
	}
	if status, err := strconv.Atoi(fields[1]); err == nil {
		phone.TrySend(statuses, status)
	}
}
