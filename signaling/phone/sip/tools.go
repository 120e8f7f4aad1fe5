package sip

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/emiago/sipgo/sip"

	"voxgate/bridge"
	"voxgate/signaling/phone"
	sipmedia "voxgate/signaling/phone/sip/media"
	"voxgate/tools"
)

// transferTimeout bounds how long the other side may take to reach the target of a REFER.
const transferTimeout = 45 * time.Second

// tools returns the tools of the model for its call, or for another that has replaced it.
func (c *call) tools() []tools.Tool {
	end := phone.EndCallTool(func(command bridge.Command) error { return c.conversation().Do(command) })
	if c.consultation != nil {
		return c.consultation.buildTools()
	}
	list := append(c.server.config.Collect.BuildTools(c.agent, func() *phone.Keypad { return c.line.Load().keypad }), end)
	list = append(list, phone.PressKeysTool(
		". Digits, *, #, and a comma for a pause of half a second.", c.menu(),
		func(ctx context.Context, digits string) error {
			now := c.line.Load()
			if now.isBridged() {
				return errBridged
			}
			return now.media.SendDigits(ctx, digits)
		},
	))
	if c.screen.ask {
		list = append(list, c.screen.answeredByTool())
	}
	if len(c.trunk.TransferTo) > 0 {
		manner := phone.TransferMode{Warm: c.trunk.Transfer == transferWarm, Listen: c.trunk.Listen}
		const timeout = transferTimeout + consultationTimeout + sipmedia.SpokenTimeout + byeTimeout
		list = append(list, phone.TransferTool(c.trunk.TransferTo, timeout, manner, nil,
			func(ctx context.Context, target, about string) error {
				return c.line.Load().transferCall(ctx, target, about)
			}))
	}
	return list
}

// menu returns the state of an automatic phone menu for an outgoing call, or nil for an incoming one.
func (c *call) menu() *phone.Menu {
	if c.outbound == nil {
		return nil
	}
	return &c.outbound.menu
}

var (
	errTransferred = errors.New("the call was transferred")
	errNoRefer     = errors.New("the other side refuses")
	errTransfers   = errors.New("another transfer is under way")
)

// transferCall transfers the call by REFER (RFC 3515): the other side calls the target. If the other side refuses the REFER, or the trunk
// uses warm transfers, we call the target ourselves. It blocks until the target has answered.
func (c *call) transferCall(ctx context.Context, target, about string) error {
	uri, err := c.transferURI(target)
	if err != nil {
		return err
	}
	if c.isBridged() {
		return errBridged
	}
	statuses := make(chan int, 8)
	c.mu.Lock()
	busy := c.referStatus != nil
	if !busy {
		c.referStatus = statuses
	}
	c.mu.Unlock()
	if busy {
		return errTransfers
	}
	defer func() {
		c.mu.Lock()
		c.referStatus = nil
		c.mu.Unlock()
	}()
	if err := c.media.WaitSpoken(ctx); err != nil { // "I'll put you through"
		return err
	}
	if c.trunk.Transfer == transferWarm {
		return c.putThrough(ctx, target, colleagueBrief(c.party, about))
	}
	err = c.sendRefer(ctx, uri, statuses)
	if errors.Is(err, errNoRefer) && c.trunk.Outbound != nil {
		c.log.Info("REFER refused, calling the target", "err", err)
		return c.putThrough(ctx, target, "")
	}
	if err == nil {
		c.endCall(errTransferred)
	}
	return err
}

// transferURI returns the URI of a target. A number gets the domain of the other side's From. If an anonymous caller's From has none, it
// gets that of the trunk's server, the Contact or the source address of requests.
func (c *call) transferURI(target string) (sip.Uri, error) {
	if uri, err := parseURI(target); err == nil {
		return uri, nil
	}
	target = string(phone.ParseNumber(target))
	if target == "" || strings.ContainsAny(target, notInNumber) {
		return sip.Uri{}, fmt.Errorf("%q is not a number", phone.ClipField(target))
	}
	c.dialog.mu.Lock()
	host, contact, source := c.dialog.remote.Address.Host, c.dialog.target, c.dialog.source
	c.dialog.mu.Unlock()
	if host == "" || phone.IsInvalidHost(host) {
		var server sip.Uri
		if c.trunk.Outbound != nil {
			server, _ = parseURI(c.trunk.Outbound.Server) // validated with the configuration
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
	return parseURI("sip:" + target + "@" + host)
}

// hostPort returns the host of a URI, with its port if set.
func hostPort(uri sip.Uri) string {
	if uri.Port > 0 {
		return fmt.Sprintf("%s:%d", uri.Host, uri.Port)
	}
	return uri.Host
}

// sendRefer sends a REFER, and blocks until the target has answered.
func (c *call) sendRefer(ctx context.Context, to sip.Uri, statuses <-chan int) error {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	req := c.dialog.newRequest("REFER", &sip.ReferToHeader{Address: to}, sip.NewHeader("Referred-By", "<"+c.dialog.contact.String()+">"))
	res, err := c.dialog.send(ctx, req)
	if err != nil {
		return fmt.Errorf("the other side does not answer: %w", err)
	}
	if !res.IsSuccess() {
		if res.StatusCode >= 600 { // a final refusal (RFC 3261, section 21.6)
			return fmt.Errorf("declined: %d %s", res.StatusCode, res.Reason)
		}
		return fmt.Errorf("%w: %d %s", errNoRefer, res.StatusCode, res.Reason)
	}
	err = c.awaitTransfer(ctx, statuses)
	if err != nil { // Asterisk moves the caller to the call to the target, but keeps the one with us
		c.media.DistrustReports()
	}
	return err
}

// awaitTransfer blocks until the target of a REFER has answered.
func (c *call) awaitTransfer(ctx context.Context, statuses <-chan int) error {
	for {
		select {
		case status := <-statuses:
			switch {
			case status >= 300:
				return fmt.Errorf("nobody was reached: %d", status)
			case status >= 200:
				return nil
			}
		case <-c.endRequested: // a side that hangs up at once has completed the transfer
			return nil
		case <-ctx.Done():
			return errors.New("nobody was reached in time")
		}
	}
}

// onNotify handles the progress of a transfer: a status line (RFC 3515, section 2.4.5).
func (c *call) onNotify(req *sip.Request, tx sip.ServerTransaction) {
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
		trySend(statuses, status)
	}
}

// parseURI parses a SIP URI.
func parseURI(text string) (uri sip.Uri, err error) {
	scheme, _, _ := strings.Cut(strings.ToLower(text), ":")
	if scheme != "sip" && scheme != "sips" {
		return uri, fmt.Errorf("%q is not a SIP URI like sip:host or sip:+4930123@host", text)
	}
	if err := sip.ParseUri(text, &uri); err != nil {
		return uri, fmt.Errorf("%q is not a SIP URI: %w", text, err)
	}
	if uri.Host == "" {
		return uri, fmt.Errorf("%q is not a SIP URI: it has no host", text)
	}
	return uri, nil
}
