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

// tools returns the tools with which the model controls its call.
func (c *call) tools() []tools.Tool {
	list := append(c.door.config.Collect.BuildTools(c.agent, func() *phone.Keypad { return c.keypad }), phone.EndCallTool(c.do))
	p := c.provider
	if len(p.TransferTo) > 0 {
		refused := func(target string) {
			c.door.refused(p.Name, "transfer", fmt.Errorf("%q is not on the list", phone.ClipField(target)))
		}
		list = append(list, phone.TransferTool(p.TransferTo, 0, phone.TransferMode{}, refused, c.transfer))
	}
	if _, bySocket := p.profile.dialect.say[pressKeys]; bySocket || p.APIKey != "" && p.profile.rest.keys != nil {
		list = append(list, phone.PressKeysTool(": digits, * and #.", c.menu, c.press))
	}
	return list
}

// do sends a command to the session. Tools call it, so the session already exists.
func (c *call) do(what bridge.Command) error {
	return c.session.Load().Do(what)
}

// quietWait is how long a transfer waits for the model to finish its sentence.
const quietWait = 15 * time.Second

// transfer makes the provider connect the caller to target.
func (c *call) transfer(ctx context.Context, target, _ string) error {
	if err := c.quiet(ctx); err != nil {
		return err
	}
	c.heard()
	p := c.provider
	xmlURL := c.door.config.PublicURL + "/telephony/" + p.Name + "/transfer/" + c.door.tickets.put(ticket{provider: p, target: target})
	if err := c.door.ask(ctx, p, p.profile.rest.transfer(p, c.call, target, xmlURL)); err != nil {
		return fmt.Errorf("the transfer failed: %w", err)
	}
	c.moved.Store(true)
	c.log.Info("transferred")
	_ = c.do(bridge.Goodbye{}) // fails if the provider has already hung up
	return nil
}

// quiet blocks until the model's voice has been played, as far as this side can tell.
func (c *call) quiet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, quietWait)
	defer cancel()
	for {
		left := c.speech.left()
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

// press sends DTMF keys, through the WebSocket or the provider's REST API.
func (c *call) press(ctx context.Context, digits string) error {
	for _, key := range digits {
		if _, err := readDigit(string(key)); err != nil {
			return err
		}
	}
	if digits == "" || len(digits) > phone.MaxKeys {
		return fmt.Errorf("digits must be 1 to %d keys", phone.MaxKeys)
	}
	if c.speech.press(digits) {
		return nil
	}
	return c.door.ask(ctx, c.provider, c.provider.profile.rest.keys(c.provider, c.call, digits))
}

// hangUp ends the call through the provider's REST API, if it has one and the caller is still connected.
func (c *call) hangUp() {
	select {
	case <-c.gone:
		return
	default:
	}
	if p := c.provider; p.APIKey != "" {
		if err := c.door.ask(context.Background(), p, p.profile.rest.hangUp(p, c.call)); err != nil && !errors.Is(err, errCallOver) {
			c.log.Warn("not hung up by the provider", "err", err)
		}
	}
}

// callOver holds the statuses that providers return for a call that has ended: Twilio and Plivo, and Telnyx for its error 90018.
var callOver = map[int]bool{http.StatusNotFound: true, http.StatusUnprocessableEntity: true}

var errCallOver = errors.New("the call is over")

// ask sends a request to the REST API of a provider.
func (d *Door) ask(ctx context.Context, p *Provider, what restRequest) error {
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
	answer, err := d.client.Do(r)
	if err != nil {
		return errors.New("the provider's REST API does not answer") // err contains the URL, whose path may hold a secret
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, maxBody)) // so that the connection can be reused
	switch {
	case answer.StatusCode < 300:
		return nil
	case callOver[answer.StatusCode]:
		return errCallOver
	}
	return fmt.Errorf("the provider answers %s", answer.Status)
}
