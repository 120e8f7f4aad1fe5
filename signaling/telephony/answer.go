package telephony

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
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
		return fmt.Errorf("%w; it was checked for %s", err, tools.Cut(at[0], maxLogged))
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

// telnyxAge is how old a signed request may be: what Telnyx' own libraries allow.
const telnyxAge = 5 * time.Minute

// verifyTelnyx: Ed25519 over the time, "|" and the body, in base64
// (https://developers.telnyx.com/docs/development/api-fundamentals/webhooks). The URL does not count.
func verifyTelnyx(publicKey, signature, _ string, r *http.Request, body []byte) error {
	stamp := r.Header.Get("Telnyx-Timestamp")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return errors.New("the request has no Telnyx-Timestamp")
	}
	if age := time.Since(time.Unix(seconds, 0)).Abs(); age > telnyxAge {
		return fmt.Errorf("the request was signed %v ago", age.Round(time.Second))
	}
	key, _ := base64.StdEncoding.DecodeString(publicKey) // checked with the configuration
	signed, err := base64.StdEncoding.DecodeString(signature)
	if err != nil || !ed25519.Verify(key, append([]byte(stamp+"|"), body...), signed) {
		return errSignature
	}
	return nil
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
	open     bridge.Open // whom the call is counted with
	target   string      // of a transfer; empty: it is for a call
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
	if p == nil || p.profile.sign == nil {
		http.NotFound(w, r)
		return nil, nil, false
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "The request cannot be read.", http.StatusBadRequest)
		return nil, nil, false
	}
	if err := p.profile.sign.check(p.Verify, r, body, d.seenAs(d.config.PublicURL, r)...); err != nil {
		d.refuse(w, r, http.StatusForbidden, "signature", err)
		return nil, nil, false
	}
	if form, err = url.ParseQuery(string(body)); err != nil {
		http.Error(w, "The request is no form.", http.StatusBadRequest)
		return nil, nil, false
	}
	return p, form, true
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
		party:    phone.Party{Number: form.Get("From"), Called: form.Get("To"), Name: form.Get("CallerName")},
	}
	if strings.HasPrefix(form.Get("Direction"), "outbound") { // https://www.twilio.com/docs/voice/twiml#request-parameters
		t.party = phone.Party{Number: form.Get("To"), Called: form.Get("From"), Ours: true}
	}
	for name, values := range form {
		for _, prefix := range []string{"SipHeader_", "X-PH-"} { // Twilio's, SignalWire's and Telnyx', and Plivo's
			if header, ok := strings.CutPrefix(name, prefix); ok {
				t.party.Attributes.Add(header, values[0])
			}
		}
	}
	t.agent = d.Agents.Called(doorName, t.party.Called)
	text := p.profile.answer
	switch err := d.room(p); {
	case t.call == "":
		d.refused(r.RemoteAddr, "call", fmt.Errorf("the request has no %s", p.profile.id))
		text = p.profile.reject
	case t.agent == nil:
		d.refused(r.RemoteAddr, "agent", fmt.Errorf("no agent answers calls to %q", phone.Clip(t.party.Called)))
		text = p.profile.reject
	case err != nil:
		d.refused(r.RemoteAddr, "calls", err)
		text = p.profile.reject
	default:
		at := d.socketURL() + "/telephony/" + p.Name + "/stream/" + d.tickets.put("", t)
		text = strings.Replace(text, "{url}", escapeXML(at), 1)
	}
	writeXML(w, text)
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
