package access

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/MicahParks/jwkset"

	"voxgate/tools"
)

// maxKeySet limits the size of an issuer's key set, in bytes. The largest known sets have some 100 keys with
// certificates, in 300 kB.
const maxKeySet = 1 << 20

// keySetTransport fetches key sets (JWKS, RFC 7517) and removes everything that is not needed to verify tokens. Without
// this, the library would reject a whole set because of one unreadable key. Section 5 of the RFC requires ignoring such
// a key.
type keySetTransport struct{ http.RoundTripper }

// maxRedirects limits the redirects that are followed. Some issuers have moved, so their address redirects.
const maxRedirects = 5

// keySetClient returns an HTTP client for one issuer. It keeps no connection open, because there is only one request an
// hour.
func keySetClient() *http.Client {
	transport := tools.NewTransport()
	transport.DisableKeepAlives = true
	return &http.Client{Transport: keySetTransport{transport}, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		r.Header.Del("Referer") // the address may hold a token
		if len(via) > maxRedirects {
			return fmt.Errorf("more than %d redirects", maxRedirects)
		}
		return nil
	}}
}

func (t keySetTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	defer resp.Body.Close()
	set, err := io.ReadAll(io.LimitReader(resp.Body, maxKeySet+1))
	if err != nil {
		return nil, err
	}
	if len(set) > maxKeySet {
		return nil, fmt.Errorf("the key set has more than %d bytes", maxKeySet)
	}
	if set, err = cleanKeySet(set); err != nil {
		return nil, err
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(set)), int64(len(set))
	resp.Header.Del("Content-Length")
	return resp, nil
}

// keyMembers are the members of a public key that are needed to verify tokens: RFC 7517 section 4, RFC 7518 section 6, RFC 8037
// section 2.
var keyMembers = []string{"kty", "kid", "use", "alg", "crv", "n", "e", "x", "y"}

// cleanKeySet returns the key set with only the readable keys, and of these only [keyMembers]. It fails if all keys are
// unusable, so that the previous keys stay valid. An empty list of keys is valid: it removes all keys.
func cleanKeySet(text []byte) ([]byte, error) {
	var set struct {
		Keys []map[string]any `json:"keys"`
	}
	dec := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(text, []byte("\ufeff"))))
	dec.UseNumber()
	if err := dec.Decode(&set); err != nil {
		return nil, fmt.Errorf("the answer is not a key set: %w", err)
	}
	keys := []json.RawMessage{}
	for _, key := range set.Keys {
		cleaned, err := json.Marshal(cleanKey(key))
		if err != nil {
			continue
		}
		if _, err := jwkset.NewJWKFromRawJSON(cleaned, jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{}); err == nil {
			keys = append(keys, cleaned)
		}
	}
	if len(keys) == 0 && (set.Keys == nil || len(set.Keys) > 0) {
		return nil, errors.New("the answer has no usable key")
	}
	return json.Marshal(map[string]any{"keys": keys})
}

// cleanKey returns the members of a key that are in [keyMembers], in the form that the library reads.
func cleanKey(key map[string]any) map[string]string {
	cleaned := map[string]string{}
	for name, value := range key {
		text, ok := value.(string)
		if number, is := value.(json.Number); is && name == "kid" {
			text, ok = number.String(), true
		}
		if !ok || !slices.Contains(keyMembers, name) {
			continue
		}
		switch name {
		case "n", "e", "x", "y": // some issuers use the base64 alphabet with + and /, or padding
			text = strings.TrimRight(strings.NewReplacer("+", "-", "/", "_", "\n", "", "\r", "").Replace(text), "=")
		case "use":
			if text != "sig" && text != "enc" {
				continue
			}
		case "alg":
			if text == "Ed25519" { // RFC 9864's name for what tokens call EdDSA
				text = "EdDSA"
			}
		}
		cleaned[name] = text
	}
	return cleaned
}
