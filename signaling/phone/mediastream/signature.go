package mediastream

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"voxgate/signaling/phone"
	"voxgate/tools"
)

// signatureScheme describes the request signatures of one provider.
type signatureScheme struct {
	// verify checks the signature of a request. signedURL is the URL that the provider used.
	verify       func(secret, signature, signedURL string, r *http.Request, body []byte) error
	headers      []string // names of headers that may contain the signature; the first header present counts
	isPublicKey  bool     // secret is a public key
	signsUpgrade bool     // WebSocket requests are signed too
}

// maxLoggedURL limits how much of a URL is logged, in bytes, because anyone can send a URL of 1 MB.
const maxLoggedURL = 300

var errSignature = errors.New("the signature does not match the request")

// verifyRequest returns an error unless the provider has signed the request for one of the URLs.
func (s *signatureScheme) verifyRequest(secret string, r *http.Request, body []byte, urls ...string) error {
	for _, name := range s.headers {
		signature := r.Header.Get(name)
		if signature == "" {
			continue
		}
		err := errSignature
		for _, u := range urls {
			if err = s.verify(secret, signature, u, r, body); err == nil {
				return nil
			}
		}
		return fmt.Errorf("%w; it was checked for %s", err, tools.Truncate(urls[0], maxLoggedURL))
	}
	return fmt.Errorf("the request has no %s", s.headers[0])
}

// verifyTwilio checks an HMAC-SHA1 in base64 over the URL and the sorted form parameters. A WebSocket request has no
// parameters (https://www.twilio.com/docs/usage/security#validating-requests).
func verifyTwilio(secret, signature, signedURL string, _ *http.Request, body []byte) error {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return fmt.Errorf("the body is not a form: %w", err)
	}
	mac := hmac.New(sha1.New, []byte(secret))
	io.WriteString(mac, signedURL+encodeForm(form, "", ""))
	return compareSignature(signature, mac.Sum(nil))
}

// verifyPlivo checks an HMAC-SHA256 in base64 over URL, sorted query, sorted parameters and nonce. The header may list
// several signatures. One valid signature is enough (https://www.plivo.com/docs/voice/concepts/signature-validation,
// V3).
func verifyPlivo(secret, signature, signedURL string, r *http.Request, body []byte) error {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return fmt.Errorf("the body is not a form: %w", err)
	}
	base, raw, _ := strings.Cut(signedURL, "?")
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

// maxSignatureAge is the maximum age of a signed request. Telnyx' own libraries use the same value.
const maxSignatureAge = 5 * time.Minute

// verifyTelnyx checks an Ed25519 signature in base64 over the timestamp, "|" and the body
// (https://developers.telnyx.com/docs/development/api-fundamentals/webhooks). The signature does not cover the URL.
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
// (https://developer.vonage.com/en/getting-started/concepts/webhooks#decoding-signed-webhooks). The signature does not
// cover the URL.
func verifyVonage(secret, signature, _ string, _ *http.Request, body []byte) error {
	token, _ := strings.CutPrefix(signature, "Bearer ")
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return errors.New("no JWT in the request")
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
		return fmt.Errorf("unsupported JWT algorithm %q", phone.SanitizeField(header.Alg))
	case age > maxSignatureAge:
		return fmt.Errorf("the request was signed %v ago", age.Round(time.Second))
	case !strings.EqualFold(claims.Hash, hex.EncodeToString(sum[:])):
		return errSignature
	}
	return nil
}

// maxAudioHookAge is the maximum difference between the time of a signature and our clock, in either direction. Genesys' example server
// allows 10 s.
const maxAudioHookAge = 30 * time.Second

// requiredAudioHookParts lists the parts of a request that a Genesys signature must cover.
var requiredAudioHookParts = []string{
	"@request-target", "@authority", "audiohook-organization-id", "audiohook-session-id", "audiohook-correlation-id", "x-api-key",
}

// verifyAudioHook checks an HMAC-SHA256 over the parts listed in Signature-Input, by a draft of RFC 9421
// (https://developer.genesys.cloud/devapps/audiohook/security). secret is in base64. publicURL is the URL that Genesys
// calls; if it is empty, the URL of the request is used.
func verifyAudioHook(secret, publicURL string, r *http.Request, now time.Time) error {
	label, input, _ := strings.Cut(r.Header.Get("Signature-Input"), "=")
	list, parameters, _ := strings.Cut(strings.TrimPrefix(input, "("), ")")
	signature, ok := strings.CutPrefix(r.Header.Get("Signature"), label+"=:")
	if !ok || list == "" {
		return errors.New("the request is not signed")
	}
	target, authority := r.URL.RequestURI(), r.Host
	if u, err := url.Parse(publicURL); err == nil && u.Host != "" {
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
	signatureParams := map[string]string{}
	for _, one := range strings.Split(parameters, ";") {
		name, value, _ := strings.Cut(one, "=")
		signatureParams[name] = strings.Trim(value, `"`)
	}
	created, err := strconv.ParseInt(signatureParams["created"], 10, 64)
	switch age := now.Sub(time.Unix(created, 0)).Abs(); {
	case err != nil || age > maxAudioHookAge:
		return errors.New("the signature is too old or has no valid time")
	case signatureParams["keyid"] != r.Header.Get("X-API-KEY"):
		return errors.New("keyid is not the X-API-KEY of the request")
	case slices.ContainsFunc(requiredAudioHookParts, func(name string) bool { return !slices.Contains(names, name) }):
		return errors.New("the signature does not cover all required parts")
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

// encodeForm serializes a form, sorted by name and then by value. nameSeparator is written between name and value, and
// pairSeparator between pairs.
func encodeForm(form url.Values, nameSeparator, pairSeparator string) string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(form)) {
		for _, value := range slices.Sorted(slices.Values(form[name])) {
			pairs = append(pairs, name+nameSeparator+value)
		}
	}
	return strings.Join(pairs, pairSeparator)
}
