package mediastream

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"voxgate/signaling/phone"
	"voxgate/tools"
)

// maxBody limits the body of a provider's request, in bytes. Real requests are far smaller.
const maxBody = 64 << 10

// readSignedRequest reads a request and verifies the provider's signature. If that fails, it sends an error response,
// and ok is false.
func (srv *Server) readSignedRequest(w http.ResponseWriter, r *http.Request) (p *Provider, form url.Values, ok bool) {
	p = srv.providers[r.PathValue("provider")]
	if p == nil || p.signatureScheme() == nil {
		http.NotFound(w, r)
		return nil, nil, false
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "The request cannot be read.", http.StatusBadRequest)
		return nil, nil, false
	}
	if err := p.signatureScheme().verifyRequest(p.Verify, r, body, srv.candidateURLs(srv.config.PublicURL, r)...); err != nil {
		srv.rejectRequest(w, r, http.StatusForbidden, "signature", err)
		return nil, nil, false
	}
	if form, err = parseForm(body); err != nil {
		http.Error(w, "The request must be a form or JSON.", http.StatusBadRequest)
		return nil, nil, false
	}
	return p, form, true
}

// parseForm parses the body of a provider's request: a form, or JSON whose fields become form values. Telnyx Call
// Control has the fields in data.payload.
func parseForm(body []byte) (url.Values, error) {
	if !bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) {
		return url.ParseQuery(string(body))
	}
	value, err := tools.Decode(body)
	fields, _ := value.(map[string]any)
	form := url.Values{}
	if inner, ok := valueAt(fields, "data.payload").(map[string]any); ok {
		form.Set("event", textAt(fields, "data.event_type"))
		form.Set("command", textAt(fields, "data.id"))
		fields = inner
	}
	for name, value := range fields {
		form.Set(name, formatText(value))
	}
	for name, theirs := range map[string]string{"From": "from", "To": "to", "CallerName": "caller_id_name"} {
		form.Set(name, form.Get(theirs))
	}
	return form, err
}

// candidateURLs lists the URLs that the provider may have signed: each with and without the port, and with and without
// a trailing slash.
func (srv *Server) candidateURLs(publicURL string, r *http.Request) (list []string) {
	path, query := strings.TrimSuffix(r.URL.EscapedPath(), "/"), ""
	if r.URL.RawQuery != "" {
		query = "?" + r.URL.RawQuery
	}
	u, err := url.Parse(publicURL)
	if err != nil {
		return nil // cannot fail: the configuration was validated
	}
	hosts := []string{u.Host}
	if port := map[string]string{"https": ":443", "wss": ":443", "http": ":80", "ws": ":80"}[u.Scheme]; u.Port() == "" {
		hosts = append(hosts, u.Host+port)
	} else if ":"+u.Port() == port {
		hosts = append(hosts, strings.TrimSuffix(u.Host, port))
	}
	for _, host := range hosts { // the provider may have signed the host as configured, or in lower case
		if lower := strings.ToLower(host); lower != host {
			hosts = append(hosts, lower)
		}
	}
	for _, host := range hosts {
		for _, slash := range []string{"", "/"} {
			list = append(list, u.Scheme+"://"+host+u.Path+path+slash+query)
		}
	}
	return list
}

// serveAnswer handles the webhook for an incoming call. Its answer makes the provider stream the call to us.
func (srv *Server) serveAnswer(w http.ResponseWriter, r *http.Request) {
	p, form, ok := srv.readSignedRequest(w, r)
	if !ok {
		return
	}
	t := ticket{
		provider: p,
		call:     form.Get(p.profile.id),
		party:    p.profile.dialect.newParty(form.Get("From"), form.Get("To"), form.Get("CallerName")),
	}
	if strings.HasPrefix(form.Get("Direction"), "outbound") { // https://www.twilio.com/docs/voice/twiml#request-parameters
		t.party = phone.Party{
			Number: p.profile.dialect.parseCalled(form.Get("To")), Called: p.profile.dialect.parseCalled(form.Get("From")), IsOutbound: true,
		}
	}
	for name, values := range form {
		for _, prefix := range []string{"SipHeader_", "X-PH-"} { // prefixes of Twilio, SignalWire and Telnyx; and of Plivo
			if header, ok := strings.CutPrefix(name, prefix); ok {
				t.party.Attributes.Add(header, values[0])
			}
		}
	}
	t.agent = phone.FindAgent(srv.Agents, protocolName, t.party.Called)
	control := p.Profile == "telnyx" && form.Has("event")
	if control {
		if t.call = form.Get("call_control_id"); form.Get("event") != "call.initiated" || form.Get("direction") != "incoming" {
			return // other events need no answer, because the stream shows the progress of the call
		}
	}
	at := ""
	switch err := srv.checkCapacity(p); {
	case t.call == "":
		srv.countRefusal(r.RemoteAddr, "call", fmt.Errorf("the request has no %s", p.profile.id))
	case t.agent == nil:
		srv.countRefusal(r.RemoteAddr, "agent", fmt.Errorf("no agent answers calls to %q", phone.SanitizeField(t.party.Called)))
	case err != nil:
		srv.countRefusal(r.RemoteAddr, "calls", err)
	default:
		at = srv.socketURL() + "/telephony/" + p.Name + "/stream/" + srv.tickets.issue(t)
	}
	if control {
		err := srv.callRESTAPI(r.Context(), p, telnyxAnswerOrReject(t.call, at, form.Get("command")))
		if err != nil && !errors.Is(err, errCallEnded) {
			srv.rejectRequest(w, r, http.StatusBadGateway, "answer", err) // Telnyx then sends the event again, or sends it to another address
		}
		return
	}
	text := p.profile.answer
	if at == "" {
		text = p.profile.reject
	}
	if strings.HasPrefix(text, "[") {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, strings.NewReplacer("{url}", quoteJSON(at), "{id}", quoteJSON(t.call)).Replace(text))
		return
	}
	writeXML(w, strings.Replace(text, "{url}", escapeXML(at), 1))
}

// serveTransfer handles a provider's request for the XML that connects a transferred call to its target.
func (srv *Server) serveTransfer(w http.ResponseWriter, r *http.Request) {
	p, _, ok := srv.readSignedRequest(w, r)
	if !ok {
		return
	}
	t, ok := srv.tickets.redeem(r.PathValue("token"), p)
	if !ok || t.target == "" {
		srv.rejectRequest(w, r, http.StatusForbidden, "token", errToken)
		return
	}
	writeXML(w, dialXML(t.target, "User"))
}

// socketURL returns publicURL with the scheme ws or wss.
func (srv *Server) socketURL() string { return strings.Replace(srv.config.PublicURL, "http", "ws", 1) }

func writeXML(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/xml; charset=utf-8")
	io.WriteString(w, xml.Header+text)
}

func escapeXML(text string) string {
	var b strings.Builder
	if xml.EscapeText(&b, []byte(text)) != nil {
		return "" // writes to a strings.Builder never fail
	}
	return b.String()
}
