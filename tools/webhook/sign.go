package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
)

// ownHeaders are those that no option may set.
var ownHeaders = []string{"Content-Type", "Content-Length", "Host", "Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"}

// signingKey returns the bytes that a secret stands for. Standard Webhooks serializes them as base64 after "whsec_".
func signingKey(secret string) ([]byte, error) {
	key := []byte(secret)
	if text, ok := strings.CutPrefix(secret, "whsec_"); ok {
		var err error
		if key, err = base64.StdEncoding.DecodeString(text); err != nil {
			return nil, errors.New(`secret: what follows "whsec_" is not base64`)
		}
	}
	if len(key) == 0 {
		return nil, errors.New("secret: must not be empty")
	}
	return key, nil
}

// sign returns the header webhook-signature of Standard Webhooks: version 1 is HMAC-SHA256 of id, timestamp (seconds since 1970)
// and body, with full stops between them.
func sign(key []byte, id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
