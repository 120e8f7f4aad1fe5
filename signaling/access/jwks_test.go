package access_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"voxgate/bridge"
	"voxgate/signaling/access"
)

// An issuer's key set may contain unused members, and unused or unreadable keys. A valid token of the valid key still
// opens a conversation, and a token of another key does not.
func TestKeySets(t *testing.T) {
	t.Parallel()
	encode := base64.RawURLEncoding.EncodeToString
	rsaKey, other := must(rsa.GenerateKey(rand.Reader, 2048)), must(rsa.GenerateKey(rand.Reader, 2048))
	ecKey := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	edPublic, edKey, _ := ed25519.GenerateKey(nil)
	n, e := encode(rsaKey.N.Bytes()), encode(big.NewInt(int64(rsaKey.E)).Bytes())
	good := `"kty":"RSA","kid":"a","use":"sig","alg":"RS256","n":"` + n + `","e":"` + e + `"`
	point := must(ecKey.PublicKey.ECDH()).Bytes()
	curve := fmt.Sprintf(`{"kty":"EC","kid":"a","crv":"P-256","x":"%s","y":"%s"}`, encode(point[1:33]), encode(point[33:]))
	edwards := `{"kty":"OKP","kid":"a","crv":"Ed25519","x":"` + encode(edPublic) + `"}`
	padded := base64.StdEncoding.EncodeToString(rsaKey.N.Bytes())
	const toCome = `{"kty":"AKP","alg":"ML-DSA-65","kid":"x","pub":"AA"},{"kty":"OKP","crv":"Ed448","kid":"y","x":"AA"}`
	for name, test := range map[string]struct {
		keys, algorithm string
		key             any
	}{
		"plain":                             {`{` + good + `}`, "RS256", rsaKey},
		"a certificate that is none":        {`{` + good + `,"x5c":["AAAA"]}`, "RS256", rsaKey},
		"certificates that are no list":     {`{` + good + `,"x5c":"AAAA","x5t":7}`, "RS256", rsaKey},
		"a thumbprint in another encoding":  {`{` + good + `,"x5t#S256":"MDEyMw=="}`, "RS256", rsaKey},
		"a URL of certificates":             {`{` + good + `,"x5u":"http://127.0.0.1:1/"}`, "RS256", rsaKey},
		"operations":                        {`{` + good + `,"key_ops":["verify"],"ext":true}`, "RS256", rsaKey},
		"unknown operations":                {`{` + good + `,"key_ops":["juggle"]}`, "RS256", rsaKey},
		"dates and nested members":          {`{` + good + `,"exp":1,"nbf":1,"iat":1,"meta":{"a":[1]},"revoked":null}`, "RS256", rsaKey},
		"a broken key before":               {`{"kty":"RSA","kid":"b","n":"!","e":"AQAB","alg":"RS256"},{` + good + `}`, "RS256", rsaKey},
		"keys of kinds to come":             {toCome + `,{` + good + `}`, "RS256", rsaKey},
		"an empty key and a null":           {`{},null,{` + good + `}`, "RS256", rsaKey},
		"a kid that is a number":            {`{"kty":"RSA","kid":7,"n":"AQAB","e":"AQAB"},{` + good + `}`, "RS256", rsaKey},
		"without alg and use":               {`{"kty":"RSA","kid":"a","n":"` + n + `","e":"` + e + `"}`, "RS256", rsaKey},
		"an unknown use":                    {`{` + strings.Replace(good, `"sig"`, `"verify"`, 1) + `}`, "RS256", rsaKey},
		"padding and the other alphabet":    {`{` + strings.Replace(good, n, padded, 1) + `}`, "RS256", rsaKey},
		"a private key by mistake":          {`{` + good + `,"d":"AQAB","p":"AQ","q":"AQ"}`, "RS256", rsaKey},
		"a curve":                           {curve, "ES256", ecKey},
		"Ed25519":                           {edwards, "EdDSA", edKey},
		"Ed25519 by its newer name":         {strings.Replace(edwards, `"crv"`, `"alg":"Ed25519","crv"`, 1), "EdDSA", edKey},
		"a symmetric key that nobody wants": {`{"kty":"oct","kid":"s","k":"AAAA"},{` + good + `}`, "RS256", rsaKey},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprint(w, "\ufeff"+`{"keys":[`+test.keys+`],"generated":"today"}`)
			}))
			defer issuer.Close()
			gate := gateOfIssuer(t, issuer.URL, test.algorithm)
			token := func(key any, audience string) string {
				j := jwt.NewWithClaims(jwt.GetSigningMethod(test.algorithm), jwt.MapClaims{
					"aud": audience, "sub": "ada", "exp": time.Now().Add(time.Minute).Unix(),
				})
				j.Header["kid"] = "a"
				return must(j.SignedString(key))
			}
			if !mayTalk(gate, token(test.key, "voxgate")) {
				t.Error("the good token is refused")
			}
			if mayTalk(gate, token(test.key, "others")) {
				t.Error("a token for others is taken")
			}
			if test.algorithm == "RS256" && mayTalk(gate, token(other, "voxgate")) {
				t.Error("a token of another key is taken")
			}
		})
	}
	for name, answer := range map[string]string{
		"too long":      `{"keys":[{` + good + `}],"x":"` + strings.Repeat("x", 2<<20) + `"}`,
		"not JSON":      "<html>",
		"no key at all": `{"keys":[]}`,
	} {
		issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) }))
		gate := gateOfIssuer(t, issuer.URL, "RS256")
		j := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims{"aud": "voxgate", "sub": "ada", "exp": time.Now().Add(time.Minute).Unix()})
		j.Header["kid"] = "a"
		if mayTalk(gate, must(j.SignedString(rsaKey))) {
			t.Errorf("%s: a token is taken", name)
		}
		issuer.Close()
	}
}

// gateOfIssuer returns a gate that trusts the key set at a URL.
func gateOfIssuer(t *testing.T, url, algorithm string) *access.Gate {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys.json")
	text, _ := json.Marshal(map[string]any{
		"secret": base64.RawURLEncoding.EncodeToString(make([]byte, 32)),
		"issuers": []any{map[string]any{
			"name": "idp", "algorithm": algorithm, "jwks": url, "audience": "voxgate", "grant": map[string]any{},
		}},
	})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	gate, _ := openKeys(t, file, slog.DiscardHandler)
	return gate
}

// mayTalk reports whether a key may open a conversation.
func mayTalk(gate *access.Gate, key string) bool {
	request := &http.Request{Header: http.Header{"Authorization": {"Bearer " + key}}}
	return access.From(gate.WithClient(request)).Authorize(&bridge.SessionRequest{}, "") == nil
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// TestReplacedKeySets changes an issuer's answer before the request for an unknown key. An answer that is not a key
// set with a usable key leaves the keys unchanged; a token is rejected if its key is missing in a valid answer.
func TestReplacedKeySets(t *testing.T) {
	t.Parallel()
	encode := base64.RawURLEncoding.EncodeToString
	key := must(rsa.GenerateKey(rand.Reader, 2048))
	entry := func(kid string) string {
		return fmt.Sprintf(`{"kty":"RSA","kid":"%s","n":"%s","e":"AQAB"}`, kid, encode(key.N.Bytes()))
	}
	good := `{"keys":[` + entry("a") + `]}`
	for name, test := range map[string]struct {
		status int
		answer string
		stays  bool
	}{
		"cut in the middle":          {200, good[:len(good)/2], true},
		"empty":                      {200, "", true},
		"an error":                   {500, `{"keys":[]}`, true},
		"an error with status 200":   {200, `{"error":"unavailable"}`, true},
		"null":                       {200, `null`, true},
		"keys that are null":         {200, `{"keys":null}`, true},
		"a list without its object":  {200, `[` + entry("b") + `]`, true},
		"keys that cannot be read":   {200, `{"keys":[{"kty":"RSA","kid":"b","n":"!","e":"AQAB"}]}`, true},
		"a page":                     {200, `<html><body>Maintenance</body></html>`, true},
		"an empty list":              {200, `{"keys":[]}`, false},
		"another key":                {200, `{"keys":[` + entry("b") + `]}`, false},
		"the key and one more":       {200, `{"keys":[` + entry("a") + "," + entry("b") + `]}`, true},
		"the key and one broken key": {200, `{"keys":[{"kty":"RSA"},` + entry("a") + `]}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var replaced atomic.Bool
			issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if !replaced.Load() {
					fmt.Fprint(w, good)
					return
				}
				w.WriteHeader(test.status)
				fmt.Fprint(w, test.answer)
			}))
			defer issuer.Close()
			gate := gateOfIssuer(t, issuer.URL, "RS256")
			token := func(kid string) string {
				j := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims{"aud": "voxgate", "sub": "ada", "exp": time.Now().Add(time.Minute).Unix()})
				j.Header["kid"] = kid
				return must(j.SignedString(key))
			}
			if !mayTalk(gate, token("a")) {
				t.Fatal("the token is refused at first")
			}
			replaced.Store(true)
			_ = mayTalk(gate, token("unknown")) // requests the issuer's keys again
			if got := mayTalk(gate, token("a")); got != test.stays {
				t.Errorf("the token of the first key is taken: %v, want %v", got, test.stays)
			}
		})
	}
}
