package telephony

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/signaling/phone"
	"voxgate/tools"
)

// signatureScheme describes the request signatures of one provider.
type signatureScheme struct {
	// verify checks the signature of a request. at is the URL that the provider used.
	verify       func(secret, signature, at string, r *http.Request, body []byte) error
	headers      []string // the first of these that the request has holds the signature
	isPublicKey  bool     // secret is a public key
	signsUpgrade bool     // WebSocket requests are signed too
}

// maxLoggedURL caps how much of a URL is logged, in bytes: anyone can send a URL of a megabyte.
const maxLoggedURL = 300

var errSignature = errors.New("the signature is not that of the request")

// verifyRequest returns an error unless the provider has signed the request for one of the URLs in at.
func (s *signatureScheme) verifyRequest(secret string, r *http.Request, body []byte, at ...string) error {
	for _, name := range s.headers {
		signature := r.Header.Get(name)
		if signature == "" {
			continue
		}
		err := errSignature
		for _, u := range at {
			if err = s.verify(secret, signature, u, r, body); err == nil {
				return nil
			}
		}
		return fmt.Errorf("%w; it was checked for %s", err, tools.Truncate(at[0], maxLoggedURL))
	}
	return fmt.Errorf("the request has no %s", s.headers[0])
}

// verifyTwilio checks an HMAC-SHA1 in base64 over the URL and the sorted form parameters
// (https://www.twilio.com/docs/usage/security#validating-requests). For WebSocket requests, only the URL is signed.
func verifyTwilio(secret, signature, at string, _ *http.Request, body []byte) error {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return fmt.Errorf("the body is no form: %w", err)
	}
	mac := hmac.New(sha1.New, []byte(secret))
	io.WriteString(mac, at+encodeForm(form, "", ""))
	return compareSignature(signature, mac.Sum(nil))
}

// verifyPlivo checks an HMAC-SHA256 in base64 over URL, sorted query, sorted parameters and nonce
// (https://www.plivo.com/docs/voice/concepts/signature-validation, V3). The header may hold several signatures; one valid signature is
// enough.
func verifyPlivo(secret, signature, at string, r *http.Request, body []byte) error {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return fmt.Errorf("the body is no form: %w", err)
	}
	base, raw, _ := strings.Cut(at, "?")
	query, err := url.ParseQuery(raw)
	if err != nil {
		return fmt.Errorf("the query of the URL: %w", err)
	}
	if len(query) > 0 || len(form) > 0 {
		base += "?" + encodeForm(query, "=", "&")
	}
	if len(query) > 0 && len(form) > 0 {
		base += "."
	}
	mac := hmac.New(sha256.New, []byte(secret))
	io.WriteString(mac, base+encodeForm(form, "", "")+"."+r.Header.Get("X-Plivo-Signature-V3-Nonce"))
	sum := mac.Sum(nil)
	for _, one := range strings.Split(signature, ",") {
		if compareSignature(strings.TrimSpace(one), sum) == nil {
			return nil
		}
	}
	return errSignature
}

// maxSignatureAge is the maximum age of a signed request, the same as in Telnyx' own libraries.
const maxSignatureAge = 5 * time.Minute

// verifyTelnyx checks an Ed25519 signature in base64 over the time, "|" and the body
// (https://developers.telnyx.com/docs/development/api-fundamentals/webhooks). The URL is not signed.
func verifyTelnyx(publicKey, signature, _ string, r *http.Request, body []byte) error {
	stamp := r.Header.Get("Telnyx-Timestamp")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return errors.New("the request has no Telnyx-Timestamp")
	}
	if age := time.Since(time.Unix(seconds, 0)).Abs(); age > maxSignatureAge {
		return fmt.Errorf("the request was signed %v ago", age.Round(time.Second))
	}
	key, _ := base64.StdEncoding.DecodeString(publicKey) // cannot fail: the configuration was validated
	signed, err := base64.StdEncoding.DecodeString(signature)
	if err != nil || !ed25519.Verify(key, append([]byte(stamp+"|"), body...), signed) {
		return errSignature
	}
	return nil
}

// verifyVonage checks a JWT signed with HMAC-SHA256. Its payload_hash is the SHA-256 of the body
// (https://developer.vonage.com/en/getting-started/concepts/webhooks#decoding-signed-webhooks). The URL is not signed.
func verifyVonage(secret, signature, _ string, _ *http.Request, body []byte) error {
	token, _ := strings.CutPrefix(signature, "Bearer ")
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return errors.New("it shows no JWT")
	}
	mac := hmac.New(sha256.New, []byte(secret))
	io.WriteString(mac, parts[0]+"."+parts[1])
	if signed, err := base64.RawURLEncoding.DecodeString(parts[2]); err != nil || !hmac.Equal(signed, mac.Sum(nil)) {
		return errSignature
	}
	var header struct{ Alg string }
	var claims struct {
		IssuedAt int64  `json:"iat"`
		Hash     string `json:"payload_hash"`
	}
	for i, into := range []any{&header, &claims} {
		text, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil {
			return fmt.Errorf("the JWT cannot be read: %w", err)
		}
	}
	sum := sha256.Sum256(body)
	age := time.Since(time.Unix(claims.IssuedAt, 0)).Abs()
	switch {
	case header.Alg != "HS256":
		return fmt.Errorf("the JWT is signed by %q", phone.ClipField(header.Alg))
	case age > maxSignatureAge:
		return fmt.Errorf("the request was signed %v ago", age.Round(time.Second))
	case !strings.EqualFold(claims.Hash, hex.EncodeToString(sum[:])):
		return errSignature
	}
	return nil
}

// maxAudioHookAge is the maximum clock difference, in either direction, for the signature of a WebSocket request. Genesys' example server
// allows 10 s.
const maxAudioHookAge = 30 * time.Second

// requiredAudioHookParts lists the parts of a request that a Genesys signature must cover.
var requiredAudioHookParts = []string{
	"@request-target", "@authority", "audiohook-organization-id", "audiohook-session-id", "audiohook-correlation-id", "x-api-key",
}

// verifyAudioHook checks an HMAC-SHA256 over the parts named in Signature-Input, by a draft of RFC 9421
// (https://developer.genesys.cloud/devapps/audiohook/security). The secret is in base64. public is the URL that Genesys calls; if empty,
// the request's own host and path are used.
func verifyAudioHook(secret, public string, r *http.Request, now time.Time) error {
	label, input, _ := strings.Cut(r.Header.Get("Signature-Input"), "=")
	list, parameters, _ := strings.Cut(strings.TrimPrefix(input, "("), ")")
	signature, ok := strings.CutPrefix(r.Header.Get("Signature"), label+"=:")
	if !ok || list == "" {
		return errors.New("the request is not signed")
	}
	target, authority := r.URL.RequestURI(), r.Host
	if u, err := url.Parse(public); err == nil && u.Host != "" {
		target, authority = u.Path+target, u.Host
	}
	var names []string
	base := ""
	for _, part := range strings.Fields(list) {
		name := strings.Trim(part, `"`)
		value := strings.Join(r.Header.Values(name), ", ")
		switch name {
		case "@request-target":
			value = target
		case "@authority":
			value = authority
		}
		names = append(names, name)
		base += part + ": " + value + "\n"
	}
	given := map[string]string{}
	for _, one := range strings.Split(parameters, ";") {
		name, value, _ := strings.Cut(one, "=")
		given[name] = strings.Trim(value, `"`)
	}
	created, err := strconv.ParseInt(given["created"], 10, 64)
	switch age := now.Sub(time.Unix(created, 0)).Abs(); {
	case err != nil || age > maxAudioHookAge:
		return errors.New("the request was not signed just now")
	case given["keyid"] != r.Header.Get("X-API-KEY"):
		return errors.New("the signature is of another key")
	case slices.ContainsFunc(requiredAudioHookParts, func(name string) bool { return !slices.Contains(names, name) }):
		return errors.New("the signature leaves something out")
	}
	key, _ := base64.StdEncoding.DecodeString(secret) // cannot fail: the configuration was validated
	mac := hmac.New(sha256.New, key)
	io.WriteString(mac, base+`"@signature-params": `+input)
	return compareSignature(strings.TrimSuffix(signature, ":"), mac.Sum(nil))
}

func compareSignature(signature string, sum []byte) error {
	if got, err := base64.StdEncoding.DecodeString(signature); err != nil || !hmac.Equal(got, sum) {
		return errSignature
	}
	return nil
}

// encodeForm serializes a form, sorted by name, then by value.
func encodeForm(form url.Values, is, between string) string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(form)) {
		for _, value := range slices.Sorted(slices.Values(form[name])) {
			pairs = append(pairs, name+is+value)
		}
	}
	return strings.Join(pairs, between)
}

// ticket permits one call, or one transfer.
type ticket struct {
	provider *Provider
	agent    *agents.Agent
	call     string // the provider's call ID; empty if not yet known
	party    phone.Party
	open     bridge.SessionRequest // carries the account that the call counts for
	target   string                // where to transfer the call; empty on a ticket for a call
	expires  time.Time
}

// ticketLifetime is the time that a call may take from our answer to its connection, and a provider to fetch the XML of a transfer.
const ticketLifetime = 30 * time.Second

// tickets holds the issued tickets that have not been used yet.
type tickets struct {
	mu      sync.Mutex
	pending map[string]ticket
}

// issue stores a ticket and returns its random name.
func (t *tickets) issue(one ticket) string {
	name := rand.Text() // 128 bits
	now := time.Now()
	one.expires = now.Add(ticketLifetime)
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.pending, func(_ string, old ticket) bool { return now.After(old.expires) })
	t.pending[name] = one
	return name
}

// redeem removes a ticket and returns it. It reports false if the ticket is unknown or expired, or belongs to another provider than p; in
// the last case the ticket stays valid.
func (t *tickets) redeem(name string, p *Provider) (ticket, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one, ok := t.pending[name]
	if !ok || one.provider != p {
		return ticket{}, false
	}
	delete(t.pending, name)
	return one, time.Now().Before(one.expires)
}

// maxBody limits the body of a provider's request, in bytes. Real requests are far smaller.
const maxBody = 64 << 10

// readSignedRequest reads a request and verifies the provider's signature. If ok is false, the error response has been sent.
func (d *Server) readSignedRequest(w http.ResponseWriter, r *http.Request) (p *Provider, form url.Values, ok bool) {
	p = d.providers[r.PathValue("provider")]
	if p == nil || p.signatureScheme() == nil {
		http.NotFound(w, r)
		return nil, nil, false
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "The request cannot be read.", http.StatusBadRequest)
		return nil, nil, false
	}
	if err := p.signatureScheme().verifyRequest(p.Verify, r, body, d.candidateURLs(d.config.PublicURL, r)...); err != nil {
		d.rejectRequest(w, r, http.StatusForbidden, "signature", err)
		return nil, nil, false
	}
	if form, err = parseForm(body); err != nil {
		http.Error(w, "The request is neither a form nor JSON.", http.StatusBadRequest)
		return nil, nil, false
	}
	return p, form, true
}

// parseForm parses the body of a provider's request: a form, or JSON, whose fields become form values. Telnyx Call Control wraps them in an
// envelope.
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

// candidateURLs lists the URLs that the provider may have signed for this request: with and without the port, with and without a trailing
// slash.
func (d *Server) candidateURLs(public string, r *http.Request) (list []string) {
	path, query := strings.TrimSuffix(r.URL.EscapedPath(), "/"), ""
	if r.URL.RawQuery != "" {
		query = "?" + r.URL.RawQuery
	}
	u, err := url.Parse(public)
	if err != nil {
		return nil // cannot fail: the configuration was validated
	}
	hosts := []string{u.Host}
	if port := map[string]string{"https": ":443", "wss": ":443", "http": ":80", "ws": ":80"}[u.Scheme]; u.Port() == "" {
		hosts = append(hosts, u.Host+port)
	} else if ":"+u.Port() == port {
		hosts = append(hosts, strings.TrimSuffix(u.Host, port))
	}
	for _, host := range hosts { // the signed URL may have the host as it was configured, or as a URL parser writes it
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

// serveAnswer handles the webhook for an incoming call and makes the provider stream the call to us.
func (d *Server) serveAnswer(w http.ResponseWriter, r *http.Request) {
	p, form, ok := d.readSignedRequest(w, r)
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
	t.agent = phone.FindAgent(d.Agents, protocolName, t.party.Called)
	control := p.Profile == "telnyx" && form.Has("event")
	if control {
		if t.call = form.Get("call_control_id"); form.Get("event") != "call.initiated" || form.Get("direction") != "incoming" {
			return // the stream shows what becomes of the call
		}
	}
	at := ""
	switch err := d.checkCapacity(p); {
	case t.call == "":
		d.countRefusal(r.RemoteAddr, "call", fmt.Errorf("the request has no %s", p.profile.id))
	case t.agent == nil:
		d.countRefusal(r.RemoteAddr, "agent", fmt.Errorf("no agent answers calls to %q", phone.ClipField(t.party.Called)))
	case err != nil:
		d.countRefusal(r.RemoteAddr, "calls", err)
	default:
		at = d.socketURL() + "/telephony/" + p.Name + "/stream/" + d.tickets.issue(t)
	}
	if control {
		err := d.callRESTAPI(r.Context(), p, telnyxAnswer(t.call, at, form.Get("command")))
		if err != nil && !errors.Is(err, errCallEnded) {
			d.rejectRequest(w, r, http.StatusBadGateway, "answer", err) // Telnyx then retries, or tries another address
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

// serveTransfer answers a provider that asks where to connect a transferred call.
func (d *Server) serveTransfer(w http.ResponseWriter, r *http.Request) {
	p, _, ok := d.readSignedRequest(w, r)
	if !ok {
		return
	}
	t, ok := d.tickets.redeem(r.PathValue("token"), p)
	if !ok || t.target == "" {
		d.rejectRequest(w, r, http.StatusForbidden, "token", errToken)
		return
	}
	writeXML(w, dialXML(t.target, "User"))
}

var errToken = errors.New("the token is unknown, used or too old")

// socketURL returns publicURL with the scheme ws or wss.
func (d *Server) socketURL() string { return strings.Replace(d.config.PublicURL, "http", "ws", 1) }

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
