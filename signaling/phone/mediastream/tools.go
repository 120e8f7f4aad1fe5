package mediastream

import (
	"context"
	"errors"
	"fmt"
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
			c.server.countRefusal(p.Name, "transfer", fmt.Errorf("%q does not match transferTo", phone.SanitizeField(target)))
		}
		list = append(list, phone.TransferTool(p.TransferTo, 0, phone.TransferMode{}, refused, c.transferAfterPlayback))
	}
	if _, bySocket := p.profile.dialect.commands[pressKeys]; bySocket || p.APIKey != "" && p.profile.rest.keys != nil {
		list = append(list, phone.PressKeysTool(": digits, * and #.", c.menu, c.pressKeys))
	}
	return list
}

// runCommand sends a command to the session. It may be called only after the conversation has begun.
func (c *call) runCommand(command bridge.Command) error {
	return c.session.Load().Do(command)
}

// maxSentenceWait limits how long a transfer waits until the model's sentence has been played.
const maxSentenceWait = 15 * time.Second

// transferAfterPlayback makes the provider connect the caller to target. It first waits until the model's sentence has
// been played, and fails after maxSentenceWait.
func (c *call) transferAfterPlayback(ctx context.Context, target, _ string) error {
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

// waitUntilSilent blocks until the model's voice should have been played, which it computes from the length of the
// sound. It fails after maxSentenceWait.
func (c *call) waitUntilSilent(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, maxSentenceWait)
	defer cancel()
	for {
		remaining := c.voice.remainingPlayout()
		if remaining <= 0 {
			return nil
		}
		timer := time.NewTimer(remaining)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return errors.New("the model did not stop speaking")
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
			c.log.Warn("hang-up by the REST API failed", "err", err)
		}
	}
}
