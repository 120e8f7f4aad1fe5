package telephony

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"voxgate/bridge"
	"voxgate/signaling/phone"
	"voxgate/tools"
)

// buildTools returns the tools with which the model controls its call.
func (c *call) buildTools() []tools.Tool {
	list := append(c.server.config.Collect.BuildTools(c.agent, func() *phone.Keypad { return c.keypad }), phone.EndCallTool(c.runCommand))
	p := c.provider
	if len(p.TransferTo) > 0 {
		refused := func(target string) {
			c.server.countRefusal(p.Name, "transfer", fmt.Errorf("%q is not on the list", phone.ClipField(target)))
		}
		list = append(list, phone.TransferTool(p.TransferTo, 0, phone.TransferMode{}, refused, c.transferCall))
	}
	if _, bySocket := p.profile.dialect.commands[pressKeys]; bySocket || p.APIKey != "" && p.profile.rest.keys != nil {
		list = append(list, phone.PressKeysTool(": digits, * and #.", c.menu, c.pressKeys))
	}
	return list
}

// runCommand sends a command to the session. Tools call it, so the session already exists.
func (c *call) runCommand(what bridge.Command) error {
	return c.session.Load().Do(what)
}

// maxSentenceWait is how long a transfer waits for the model to finish its sentence.
const maxSentenceWait = 15 * time.Second

// transferCall makes the provider connect the caller to target.
func (c *call) transferCall(ctx context.Context, target, _ string) error {
	if err := c.waitUntilSilent(ctx); err != nil {
		return err
	}
	c.waitForPlayback()
	p := c.provider
	xmlURL := c.server.config.PublicURL + "/telephony/" + p.Name + "/transfer/" + c.server.tickets.issue(ticket{provider: p, target: target})
	if err := c.server.callRESTAPI(ctx, p, p.profile.rest.transfer(p, c.call, target, xmlURL)); err != nil {
		return fmt.Errorf("the transfer failed: %w", err)
	}
	c.isTransferred.Store(true)
	c.log.Info("transferred")
	_ = c.runCommand(bridge.Goodbye{}) // fails if the provider has already hung up
	return nil
}

// waitUntilSilent blocks until the model's voice has been played, as far as this side can tell.
func (c *call) waitUntilSilent(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, maxSentenceWait)
	defer cancel()
	for {
		left := c.voice.remainingPlayout()
		if left <= 0 {
			return nil
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return errors.New("the voice did not end")
		}
	}
}

// pressKeys sends DTMF keys, through the WebSocket or the provider's REST API.
func (c *call) pressKeys(ctx context.Context, digits string) error {
	for _, key := range digits {
		if _, err := parseDigit(string(key)); err != nil {
			return err
		}
	}
	if digits == "" || len(digits) > phone.MaxKeys {
		return fmt.Errorf("digits must be 1 to %d keys", phone.MaxKeys)
	}
	if c.voice.sendKeys(digits) {
		return nil
	}
	return c.server.callRESTAPI(ctx, c.provider, c.provider.profile.rest.keys(c.provider, c.call, digits))
}

// hangUpByREST ends the call through the provider's REST API, if it has one and the caller is still connected.
func (c *call) hangUpByREST() {
	select {
	case <-c.disconnected:
		return
	default:
	}
	if p := c.provider; p.APIKey != "" {
		if err := c.server.callRESTAPI(context.Background(), p, p.profile.rest.hangUp(p, c.call)); err != nil && !errors.Is(err, errCallEnded) {
			c.log.Warn("not hung up by the provider", "err", err)
		}
	}
}

// endedCallStatuses holds the statuses that providers return for a call that has ended: Twilio and Plivo, and Telnyx for its error 90018.
var endedCallStatuses = map[int]bool{http.StatusNotFound: true, http.StatusUnprocessableEntity: true}

var errCallEnded = errors.New("the call is over")

// callRESTAPI sends a request to the REST API of a provider.
func (d *Server) callRESTAPI(ctx context.Context, p *Provider, what restRequest) error {
	ctx, cancel := context.WithTimeout(ctx, restTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, what.method, p.API+what.path, strings.NewReader(what.body))
	if err != nil {
		return err
	}
	switch {
	case what.form:
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	case what.body != "":
		r.Header.Set("Content-Type", "application/json")
	}
	if p.profile.rest.bearer {
		r.Header.Set("Authorization", "Bearer "+p.APIKey)
	} else {
		r.SetBasicAuth(p.Account, p.APIKey)
	}
	answer, err := d.restClient.Do(r)
	if err != nil {
		return errors.New("the provider's REST API does not answer") // err contains the URL, whose path may hold a secret
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, maxBody)) // so that the connection can be reused
	switch {
	case answer.StatusCode < 300:
		return nil
	case endedCallStatuses[answer.StatusCode]:
		return errCallEnded
	}
	return fmt.Errorf("the provider answers %s", answer.Status)
}
