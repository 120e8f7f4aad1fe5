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

// signing is how a provider signs its requests.
type signing struct {
	// verify checks a signature over a request. at is the URL as the provider has it.
	verify    func(secret, signature, at string, r *http.Request, body []byte) error
	headers   []string // the first one that is there has the signature
	publicKey bool     // the secret is a public key
	socket    bool     // the requests for WebSockets are signed, too
}

// maxLogged bounds what the log has of an address, in bytes: a stranger may ask for one of a megabyte.
const maxLogged = 300

var errSignature = errors.New("the signature is not that of the request")

// check refuses a request that the provider has not signed for one of these URLs.
func (s *signing) check(secret string, r *http.Request, body []byte, at ...string) error {
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
		return fmt.Errorf("%w; it was checked for %s", err, tools.Truncate(at[0], maxLogged))
	}
	return fmt.Errorf("the request has no %s", s.headers[0])
}

// verifyTwilio: HMAC-SHA1 over the URL and the sorted parameters of a form, in base64
// (https://www.twilio.com/docs/usage/security#validating-requests). Of a WebSocket's request only the URL counts.
func verifyTwilio(secret, signature, at string, _ *http.Request, body []byte) error {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return fmt.Errorf("the body is no form: %w", err)
	}
	mac := hmac.New(sha1.New, []byte(secret))
	io.WriteString(mac, at+joined(form, "", ""))
	return equal(signature, mac.Sum(nil))
}

// verifyPlivo: HMAC-SHA256 over URL, sorted query, sorted parameters and nonce, in base64; there may be several signatures
// (https://www.plivo.com/docs/voice/concepts/signature-validation, V3).
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
		base += "?" + joined(query, "=", "&")
	}
	if len(query) > 0 && len(form) > 0 {
		base += "."
	}
	mac := hmac.New(sha256.New, []byte(secret))
	io.WriteString(mac, base+joined(form, "", "")+"."+r.Header.Get("X-Plivo-Signature-V3-Nonce"))
	sum := mac.Sum(nil)
	for _, one := range strings.Split(signature, ",") {
		if equal(strings.TrimSpace(one), sum) == nil {
			return nil
		}
	}
	return errSignature
}

// signedAge is how old a signed request may be: what Telnyx' own libraries allow.
const signedAge = 5 * time.Minute

// verifyTelnyx: Ed25519 over the time, "|" and the body, in base64
// (https://developers.telnyx.com/docs/development/api-fundamentals/webhooks). The URL does not count.
func verifyTelnyx(publicKey, signature, _ string, r *http.Request, body []byte) error {
	stamp := r.Header.Get("Telnyx-Timestamp")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return errors.New("the request has no Telnyx-Timestamp")
	}
	if age := time.Since(time.Unix(seconds, 0)).Abs(); age > signedAge {
		return fmt.Errorf("the request was signed %v ago", age.Round(time.Second))
	}
	key, _ := base64.StdEncoding.DecodeString(publicKey) // checked with the configuration
	signed, err := base64.StdEncoding.DecodeString(signature)
	if err != nil || !ed25519.Verify(key, append([]byte(stamp+"|"), body...), signed) {
		return errSignature
	}
	return nil
}

// verifyVonage: a JWT by HMAC-SHA256, whose payload_hash is the SHA-256 of the body
// (https://developer.vonage.com/en/getting-started/concepts/webhooks#decoding-signed-webhooks). The URL does not count.
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
	case age > signedAge:
		return fmt.Errorf("the request was signed %v ago", age.Round(time.Second))
	case !strings.EqualFold(claims.Hash, hex.EncodeToString(sum[:])):
		return errSignature
	}
	return nil
}

// audioHookAge is how old the signature of a request for a WebSocket may be, either way: Genesys' own example of a server has 10 s.
const audioHookAge = 30 * time.Second

// audioHookParts are what Genesys signs at least.
var audioHookParts = []string{
	"@request-target", "@authority", "audiohook-organization-id", "audiohook-session-id", "audiohook-correlation-id", "x-api-key",
}

// verifyAudioHook: HMAC-SHA256 by a secret in base64 over the parts that Signature-Input names, a draft of RFC 9421
// (https://developer.genesys.cloud/devapps/audiohook/security). public is the URL that Genesys has; empty: the request knows it.
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
	case err != nil || age > audioHookAge:
		return errors.New("the request was not signed just now")
	case given["keyid"] != r.Header.Get("X-API-KEY"):
		return errors.New("the signature is of another key")
	case slices.ContainsFunc(audioHookParts, func(name string) bool { return !slices.Contains(names, name) }):
		return errors.New("the signature leaves something out")
	}
	key, _ := base64.StdEncoding.DecodeString(secret) // checked with the configuration
	mac := hmac.New(sha256.New, key)
	io.WriteString(mac, base+`"@signature-params": `+input)
	return equal(strings.TrimSuffix(signature, ":"), mac.Sum(nil))
}

func equal(signature string, sum []byte) error {
	if got, err := base64.StdEncoding.DecodeString(signature); err != nil || !hmac.Equal(got, sum) {
		return errSignature
	}
	return nil
}

// joined is a form, sorted by names and then values.
func joined(form url.Values, is, between string) string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(form)) {
		for _, value := range slices.Sorted(slices.Values(form[name])) {
			pairs = append(pairs, name+is+value)
		}
	}
	return strings.Join(pairs, between)
}

// ticket is leave for one call, or one transfer.
type ticket struct {
	provider *Provider // nil: AudioSocket
	agent    *agents.Agent
	call     string // the provider's id of the call; empty: not known yet
	party    phone.Party
	open     bridge.SessionRequest // whom the call is counted with
	target   string                // of a transfer; empty: it is for a call
	expires  time.Time
}

// ticketLife is how long a call may take from our answer to its socket.
const ticketLife = 30 * time.Second

// tickets are those that were handed out and not used.
type tickets struct {
	mu   sync.Mutex
	list map[string]ticket
}

// put hands out a ticket under a name; empty: under a random one, which is returned.
func (t *tickets) put(name string, one ticket) string {
	if name == "" {
		name = rand.Text() // 128 bits
	}
	now := time.Now()
	one.expires = now.Add(ticketLife)
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.list, func(_ string, old ticket) bool { return now.After(old.expires) })
	t.list[name] = one
	return name
}

// take uses a ticket. One of another provider is left alone.
func (t *tickets) take(name string, p *Provider) (ticket, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one, ok := t.list[name]
	if !ok || one.provider != p {
		return ticket{}, false
	}
	delete(t.list, name)
	return one, time.Now().Before(one.expires)
}

// maxBody is far above what a provider posts, in bytes.
const maxBody = 64 << 10

// signed reads a request that the provider must have signed. If it fails it has answered.
func (d *Door) signed(w http.ResponseWriter, r *http.Request) (p *Provider, form url.Values, ok bool) {
	p = d.providers[r.PathValue("provider")]
	if p == nil || p.signing() == nil {
		http.NotFound(w, r)
		return nil, nil, false
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "The request cannot be read.", http.StatusBadRequest)
		return nil, nil, false
	}
	if err := p.signing().check(p.Verify, r, body, d.seenAs(d.config.PublicURL, r)...); err != nil {
		d.refuse(w, r, http.StatusForbidden, "signature", err)
		return nil, nil, false
	}
	if form, err = formOf(body); err != nil {
		http.Error(w, "The request is neither a form nor JSON.", http.StatusBadRequest)
		return nil, nil, false
	}
	return p, form, true
}

// formOf reads what a provider posts: a form, or JSON, whose names are made those of a form. Telnyx' Call Control has it in an envelope.
func formOf(body []byte) (url.Values, error) {
	if !bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) {
		return url.ParseQuery(string(body))
	}
	value, err := tools.Decode(body)
	fields, _ := value.(map[string]any)
	form := url.Values{}
	if inner, ok := valueAt(fields, "data.payload").(map[string]any); ok {
		form.Set("event", field(fields, "data.event_type"))
		form.Set("command", field(fields, "data.id"))
		fields = inner
	}
	for name, value := range fields {
		form.Set(name, text(value))
	}
	for name, theirs := range map[string]string{"From": "from", "To": "to", "CallerName": "caller_id_name"} {
		form.Set(name, form.Get(theirs))
	}
	return form, err
}

// seenAs are the URLs that a provider may have signed a request for: with the port and without, with a slash at the end and without.
func (d *Door) seenAs(public string, r *http.Request) (list []string) {
	path, query := strings.TrimSuffix(r.URL.EscapedPath(), "/"), ""
	if r.URL.RawQuery != "" {
		query = "?" + r.URL.RawQuery
	}
	u, err := url.Parse(public)
	if err != nil {
		return nil // checked with the configuration
	}
	hosts := []string{u.Host}
	if port := map[string]string{"https": ":443", "wss": ":443", "http": ":80", "ws": ":80"}[u.Scheme]; u.Port() == "" {
		hosts = append(hosts, u.Host+port)
	} else if ":"+u.Port() == port {
		hosts = append(hosts, strings.TrimSuffix(u.Host, port))
	}
	for _, host := range hosts { // whoever signs may have the name as it was typed, or as a URL's parser has it
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

// answer has a provider stream a call here.
func (d *Door) answer(w http.ResponseWriter, r *http.Request) {
	p, form, ok := d.signed(w, r)
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
		for _, prefix := range []string{"SipHeader_", "X-PH-"} { // Twilio's, SignalWire's and Telnyx', and Plivo's
			if header, ok := strings.CutPrefix(name, prefix); ok {
				t.party.Attributes.Add(header, values[0])
			}
		}
	}
	t.agent = phone.FindAgent(d.Agents, doorName, t.party.Called)
	control := p.Profile == "telnyx" && form.Has("event")
	if control {
		if t.call = form.Get("call_control_id"); form.Get("event") != "call.initiated" || form.Get("direction") != "incoming" {
			return // what becomes of the call is seen by its stream
		}
	}
	at := ""
	switch err := d.room(p); {
	case t.call == "":
		d.refused(r.RemoteAddr, "call", fmt.Errorf("the request has no %s", p.profile.id))
	case t.agent == nil:
		d.refused(r.RemoteAddr, "agent", fmt.Errorf("no agent answers calls to %q", phone.ClipField(t.party.Called)))
	case err != nil:
		d.refused(r.RemoteAddr, "calls", err)
	default:
		at = d.socketURL() + "/telephony/" + p.Name + "/stream/" + d.tickets.put("", t)
	}
	if control {
		if err := d.ask(r.Context(), p, telnyxAnswer(t.call, at, form.Get("command"))); err != nil && !errors.Is(err, errCallOver) {
			d.refuse(w, r, http.StatusBadGateway, "answer", err) // Telnyx asks again, or elsewhere
		}
		return
	}
	text := p.profile.answer
	if at == "" {
		text = p.profile.reject
	}
	if strings.HasPrefix(text, "[") {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, strings.NewReplacer("{url}", quoted(at), "{id}", quoted(t.call)).Replace(text))
		return
	}
	writeXML(w, strings.Replace(text, "{url}", escapeXML(at), 1))
}

// transfer answers a provider that asks what to do with a transferred call.
func (d *Door) transfer(w http.ResponseWriter, r *http.Request) {
	p, _, ok := d.signed(w, r)
	if !ok {
		return
	}
	t, ok := d.tickets.take(r.PathValue("token"), p)
	if !ok || t.target == "" {
		d.refuse(w, r, http.StatusForbidden, "token", errToken)
		return
	}
	writeXML(w, dialXML(t.target, "User"))
}

var errToken = errors.New("the token is unknown, used or too old")

// socketURL is publicURL for WebSockets.
func (d *Door) socketURL() string { return strings.Replace(d.config.PublicURL, "http", "ws", 1) }

func writeXML(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/xml; charset=utf-8")
	io.WriteString(w, xml.Header+text)
}

func escapeXML(text string) string {
	var b strings.Builder
	if xml.EscapeText(&b, []byte(text)) != nil {
		return "" // a Builder takes all
	}
	return b.String()
}
