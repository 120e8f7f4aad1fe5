package sip

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/emiago/sipgo/sip"

	"voxgate/agents"
)

// askTimeout bounds the request to the operator's webhook: meanwhile the caller hears nothing.
const askTimeout = 5 * time.Second

// Decision is the response of the operator's webhook about a call.
type Decision struct {
	Action string         `json:"action"` // accept, reject or refer
	Agent  *agents.Choice `json:"agent"`  // answers instead of the number's agent; may be nil
	Status int            `json:"status"` // status of a reject; 603 unless within 400 to 699
	To     string         `json:"to"`     // target of a refer: a SIP URI
}

// askWebhook asks the operator's webhook what to do with a call, if one is configured, and returns a refusal or nil. If the webhook does
// not answer, the call is refused, since the webhook is there to decide.
func (c *call) askWebhook() *refusal {
	endpoint := c.server.endpoint
	if endpoint == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	status, answer, err := endpoint.Post(ctx, c.dialog.callID, map[string]any{
		"type": "call.incoming", "id": c.dialog.callID, "trunk": c.trunk.Name, "caller": c.party,
	})
	var d Decision
	if err == nil && status/100 != 2 {
		err = fmt.Errorf("it answered %d", status)
	}
	if err == nil {
		err = json.Unmarshal(answer, &d)
	}
	if err != nil {
		return &refusal{503, "Service Unavailable", "webhook: it does not answer: " + err.Error(), nil}
	}
	return c.applyDecision(d)
}

func (c *call) applyDecision(d Decision) *refusal {
	switch d.Action {
	case "accept":
		if d.Agent == nil {
			return nil
		}
		var err error
		if c.agent, err = c.server.resolveAgent(*d.Agent, nil); err != nil {
			return &refusal{503, "Service Unavailable", "webhook: its agent: " + err.Error(), nil}
		}
		return nil
	case "reject":
		if d.Status < 400 || d.Status > 699 {
			d.Status = 603
		}
		reason := http.StatusText(d.Status)
		if reason == "" {
			reason = "Declined"
		}
		return &refusal{d.Status, reason, "webhook rejects", nil}
	case "refer":
		if uri, err := parseURI(d.To); err == nil {
			return &refusal{302, "Moved Temporarily", "webhook refers", []sip.Header{&sip.ContactHeader{Address: uri}}}
		}
	}
	return &refusal{503, "Service Unavailable", fmt.Sprintf("webhook: it answers with the action %q to %q", d.Action, d.To), nil}
}
