package sip

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"voxgate/agents"
	"voxgate/signaling/phone"
	"voxgate/signaling/phone/sip/ua"
	"voxgate/tools/webhook"
)

// askTimeout limits the request to the operator's webhook. It is short, because the caller hears nothing in the
// meantime.
const askTimeout = 5 * time.Second

// Decision is the response of the operator's webhook about a call.
type Decision struct {
	Action string         `json:"action"` // accept, reject or refer
	Agent  *agents.Choice `json:"agent"`  // agent that answers instead of the agent of the called number; may be nil
	Status int            `json:"status"` // SIP status for reject; 603 is used if it is not within 400 to 699
	To     string         `json:"to"`     // target for refer: a SIP URI
}

// askWebhook asks the operator's webhook what to do with a call. If the webhook does not answer, the call is refused.
func askWebhook(endpoint *webhook.Endpoint, id, trunk string, caller phone.Party) (d Decision, refused *ua.Refusal) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	status, answer, err := endpoint.Post(ctx, id, map[string]any{"type": "call.incoming", "id": id, "trunk": trunk, "caller": caller})
	if err == nil && status/100 != 2 {
		err = fmt.Errorf("it answered %d", status)
	}
	if err == nil {
		err = json.Unmarshal(answer, &d)
	}
	if err != nil {
		return d, &ua.Refusal{Code: 503, Reason: "Service Unavailable", Rule: "webhook: it does not answer: " + err.Error()}
	}
	return d, d.refusal()
}

// refusal returns the refusal for a decision other than accept, or nil.
func (d *Decision) refusal() *ua.Refusal {
	switch d.Action {
	case "accept":
		return nil
	case "reject":
		if d.Status < 400 || d.Status > 699 {
			d.Status = 603
		}
		reason := http.StatusText(d.Status)
		if reason == "" {
			reason = "Declined"
		}
		return &ua.Refusal{Code: d.Status, Reason: reason, Rule: "webhook rejects"}
	case "refer":
		if r, err := ua.RedirectTo(d.To, "webhook refers"); err == nil {
			return r
		}
	}
	return &ua.Refusal{
		Code: 503, Reason: "Service Unavailable", Rule: fmt.Sprintf("webhook: it answers with the action %q to %q", d.Action, d.To),
	}
}

// applyWebhookDecision asks the operator's webhook, if one is configured, what to do with a call, and sets the agent
// that the webhook names. It blocks until the webhook has answered. If the webhook refuses the call, it returns the
// refusal.
func (c *call) applyWebhookDecision() *ua.Refusal {
	if c.server.endpoint == nil {
		return nil
	}
	d, refused := askWebhook(c.server.endpoint, c.ID(), c.trunk.Name, c.party)
	if refused != nil || d.Agent == nil {
		return refused
	}
	var err error
	if c.agent, err = c.server.resolveAgent(*d.Agent, nil); err != nil {
		return &ua.Refusal{Code: 503, Reason: "Service Unavailable", Rule: "webhook: its agent: " + err.Error()}
	}
	return nil
}
