package mediastream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// restAPI describes the requests that we send to a provider's REST API.
type restAPI struct {
	base     string // base URL; empty if each customer has a different one
	bearer   bool   // the API key is a bearer token, otherwise the password of the account
	hangUp   func(p *Provider, call string) restRequest
	transfer func(p *Provider, call, target, xmlURL string) restRequest // nil if not supported; xmlURL serves XML for the transfer
	keys     func(p *Provider, call, digits string) restRequest         // nil if not supported
}

// restRequest is a request with a JSON or form body.
type restRequest struct {
	method, path, body string
	form               bool
}

// twilioUpdate returns the request that changes a call (https://www.twilio.com/docs/voice/api/call-resource#update-a-call-resource).
// SignalWire's API is a copy of Twilio's.
func twilioUpdate(version string, p *Provider, call string, values url.Values) restRequest {
	path := version + "/Accounts/" + url.PathEscape(p.Account) + "/Calls/" + url.PathEscape(call) + ".json"
	return restRequest{"POST", path, values.Encode(), true}
}

func twilioHangUp(version string) func(*Provider, string) restRequest {
	return func(p *Provider, call string) restRequest {
		return twilioUpdate(version, p, call, url.Values{"Status": {"completed"}})
	}
}

func twilioTransfer(p *Provider, call, target, _ string) restRequest {
	return twilioUpdate("/2010-04-01", p, call, url.Values{"Twiml": {dialXML(target, "Sip")}})
}

// telnyxAnswerOrReject returns the request that makes Telnyx stream a call to streamURL, or reject the call if streamURL
// is empty. Telnyx ignores a repeated commandID. https://developers.telnyx.com/api-reference/call-commands/answer-call, …/reject-a-call
func telnyxAnswerOrReject(call, streamURL, commandID string) restRequest {
	if streamURL == "" {
		return telnyxAction("reject", quoteJSON(map[string]string{"cause": "USER_BUSY", "command_id": commandID}))(nil, call)
	}
	return telnyxAction("answer", quoteJSON(map[string]string{
		"stream_url": streamURL, "stream_track": "inbound_track", "stream_bidirectional_mode": "rtp", "stream_bidirectional_codec": "PCMU",
		"command_id": commandID,
	}))(nil, call)
}

// telnyxAction returns a function that builds the request for an action on a call
// (https://developers.telnyx.com/api-reference/call-commands/hangup-call, …/transfer-call, …/send-dtmf).
func telnyxAction(action, body string) func(*Provider, string) restRequest {
	return func(_ *Provider, call string) restRequest {
		return restRequest{"POST", "/v2/calls/" + url.PathEscape(call) + "/actions/" + action, body, false}
	}
}

func telnyxTransfer(p *Provider, call, target, _ string) restRequest {
	return telnyxAction("transfer", quoteJSON(map[string]string{"to": target}))(p, call)
}

func telnyxKeys(p *Provider, call, digits string) restRequest {
	return telnyxAction("send_dtmf", quoteJSON(map[string]string{"digits": digits}))(p, call)
}

// plivoCallPath returns the URL path of a call (https://www.plivo.com/docs/voice/api/call#hang-up-a-call,
// …#transfer-a-call).
func plivoCallPath(p *Provider, call string) string {
	return "/v1/Account/" + url.PathEscape(p.Account) + "/Call/" + url.PathEscape(call) + "/"
}

func plivoHangUp(p *Provider, call string) restRequest {
	return restRequest{"DELETE", plivoCallPath(p, call), "", false}
}

func plivoTransfer(p *Provider, call, _, xmlURL string) restRequest {
	body := quoteJSON(map[string]string{"legs": "aleg", "aleg_url": xmlURL, "aleg_method": "POST"})
	return restRequest{"POST", plivoCallPath(p, call), body, false}
}

// dialXML returns XML that connects the call to target. sipElement is the name of the element for SIP URIs.
func dialXML(target, sipElement string) string {
	element := "Number"
	if strings.HasPrefix(target, "sip:") || strings.HasPrefix(target, "sips:") {
		element = sipElement
	}
	return "<Response><Dial><" + element + ">" + escapeXML(target) + "</" + element + "></Dial></Response>"
}

// endedCallStatuses holds the HTTP statuses that mean that a call has ended: 404 from Twilio and Plivo, 422 from Telnyx
// (error 90018).
var endedCallStatuses = map[int]bool{http.StatusNotFound: true, http.StatusUnprocessableEntity: true}

var errCallEnded = errors.New("the call has ended")

// callRESTAPI sends a request to the REST API of a provider.
func (srv *Server) callRESTAPI(ctx context.Context, p *Provider, request restRequest) error {
	ctx, cancel := context.WithTimeout(ctx, restTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, request.method, p.API+request.path, strings.NewReader(request.body))
	if err != nil {
		return err
	}
	switch {
	case request.form:
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	case request.body != "":
		r.Header.Set("Content-Type", "application/json")
	}
	if p.profile.rest.bearer {
		r.Header.Set("Authorization", "Bearer "+p.APIKey)
	} else {
		r.SetBasicAuth(p.Account, p.APIKey)
	}
	answer, err := srv.restClient.Do(r)
	if err != nil {
		return errors.New("the provider's REST API does not respond") // err is not returned: it contains the URL, whose path may hold a secret
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, maxBody)) // read to the end, so that the connection can be reused
	switch {
	case answer.StatusCode < 300:
		return nil
	case endedCallStatuses[answer.StatusCode]:
		return errCallEnded
	}
	return fmt.Errorf("the provider responds %s", answer.Status)
}
