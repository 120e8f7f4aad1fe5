package telephony

import (
	"context"
	"encoding/json"
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

// tools are what the model can do with its call.
func (c *call) tools() []tools.Tool {
	list := []tools.Tool{{
		Declaration: tools.Declaration{
			Name: "end_call", Title: "Hanging up…",
			Description: "Ends this telephone call when all that you say has been heard. Say goodbye first.",
		},
		Run: c.endCall,
	}}
	p := c.provider
	if p == nil {
		return list
	}
	if len(p.TransferTo) > 0 {
		list = append(list, tools.Tool{
			Declaration: tools.Declaration{
				Name: "transfer_call", Title: "Transferring…",
				Description: "Hands this call over to somebody else. Say so first. It works for these alone: " + strings.Join(p.TransferTo, ", ") + ".",
				Parameters:  json.RawMessage(`{"type":"object","required":["target"],"properties":{"target":{"type":"string","description":"A number or a SIP URI"}}}`),
			},
			Run: c.transferCall,
		})
	}
	if _, bySocket := p.profile.dialect.say[pressKeys]; bySocket || p.APIKey != "" && p.profile.rest.keys != nil {
		list = append(list, tools.Tool{
			Declaration: tools.Declaration{
				Name: "send_dtmf", Title: "Pressing keys…",
				Description: "Presses keys of the telephone, as another automatic system asks for: digits, * and #.",
				Parameters:  json.RawMessage(`{"type":"object","required":["digits"],"properties":{"digits":{"type":"string"}}}`),
			},
			Run: c.sendDTMF,
		})
	}
	return list
}

// do is for the tools, which nobody calls before there is a session.
func (c *call) do(what bridge.Command) error {
	return c.session.Load().Do(what)
}

func (c *call) endCall(context.Context, json.RawMessage) (json.RawMessage, error) {
	if err := c.do(bridge.EndAfterSpeaking{}); err != nil {
		return nil, err
	}
	return json.RawMessage(`{"output":"The call ends when you have finished speaking."}`), nil
}

// quietWait is how long a transfer waits for the end of a sentence.
const quietWait = 15 * time.Second

// transferCall has the provider connect the other side with somebody else.
func (c *call) transferCall(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
	var a struct{ Target string }
	if err := json.Unmarshal(args, &a); err != nil {
		return nil, fmt.Errorf("target must be a text: %w", err)
	}
	p, target := c.provider, strings.TrimSpace(a.Target)
	if target == "" || !phone.Matches(p.TransferTo, target) {
		c.door.refused(c.from(), "transfer", fmt.Errorf("%q is not on the list", phone.Clip(target)))
		return nil, fmt.Errorf("%q may not be called; these may: %s", target, strings.Join(p.TransferTo, ", "))
	}
	if err := c.quiet(ctx); err != nil {
		return nil, err
	}
	c.heard()
	xmlURL := c.door.config.PublicURL + "/telephony/" + p.Name + "/transfer/" + c.door.tickets.put("", ticket{provider: p, target: target})
	if err := c.door.ask(ctx, p, p.profile.rest.transfer(p, c.call, target, xmlURL)); err != nil {
		return nil, fmt.Errorf("the transfer failed: %w", err)
	}
	c.moved.Store(true)
	c.log.Info("transferred")
	_ = c.do(bridge.Goodbye{}) // fails if the provider has left already
	return json.RawMessage(`{"output":"The call was handed over."}`), nil
}

// quiet waits until the voice has ended and was heard, as far as it is known here.
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

func (c *call) sendDTMF(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
	var a struct{ Digits string }
	if err := json.Unmarshal(args, &a); err != nil {
		return nil, fmt.Errorf("digits must be a text: %w", err)
	}
	for _, key := range a.Digits {
		if _, err := readDigit(string(key)); err != nil {
			return nil, err
		}
	}
	if a.Digits == "" || len(a.Digits) > maxPressed {
		return nil, fmt.Errorf("digits must be 1 to %d keys", maxPressed)
	}
	if c.speech.tell(pressKeys, a.Digits) {
		return nil, nil
	}
	return nil, c.door.ask(ctx, c.provider, c.provider.profile.rest.keys(c.provider, c.call, a.Digits))
}

// hangUp ends the call by the provider's REST API, if there is one and the other side is still there.
func (c *call) hangUp() {
	select {
	case <-c.gone:
		return
	default:
	}
	if p := c.provider; p != nil && p.APIKey != "" {
		if err := c.door.ask(context.Background(), p, p.profile.rest.hangUp(p, c.call)); err != nil && !errors.Is(err, errCallOver) {
			c.log.Warn("not hung up by the provider", "err", err)
		}
	}
}

// callOver are the statuses by which a provider says that a call is no more: Twilio's and Plivo's, and Telnyx' for its error 90018.
var callOver = map[int]bool{http.StatusNotFound: true, http.StatusUnprocessableEntity: true}

var errCallOver = errors.New("the call is over")

// ask sends a request to a provider's REST API.
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
		return errors.New("the provider's REST API does not answer") // err has the URL, and a path in it may be a secret
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, maxBody)) // so that the connection can be used again
	switch {
	case answer.StatusCode < 300:
		return nil
	case callOver[answer.StatusCode]:
		return errCallOver
	}
	return fmt.Errorf("the provider answers %s", answer.Status)
}
