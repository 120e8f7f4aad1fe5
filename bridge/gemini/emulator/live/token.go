package live

import (
	"errors"
	"strings"
	"time"
)

// TokenRequest is what a client asks of an ephemeral token: https://ai.google.dev/gemini-api/docs/ephemeral-tokens.
type TokenRequest struct {
	Uses                 *int           // nil if not given, 0 for no limit
	ExpireTime           time.Time      // zero if not given, as the next
	NewSessionExpireTime time.Time      // of new sessions
	Setup                map[string]any // in place of the client's, nil for none
	Locked               []string       // the fields of Setup that are locked, as paths in camelCase; none means all
}

// ParseTokenRequest reads the body of a request for a token. Its errors are Google's words.
func ParseTokenRequest(body []byte) (TokenRequest, error) {
	tree, err := check(body, "AuthToken", "auth_token")
	if err != nil {
		return TokenRequest{}, err
	}
	var ask struct {
		Uses                     *int
		ExpireTime               time.Time
		NewSessionExpireTime     time.Time
		BidiGenerateContentSetup map[string]any
		FieldMask                string
	}
	if err := remarshal(tree, &ask); err != nil {
		return TokenRequest{}, errors.New(usualReason(CloseInvalid))
	}
	r := TokenRequest{
		Uses: ask.Uses, ExpireTime: ask.ExpireTime, NewSessionExpireTime: ask.NewSessionExpireTime,
		Setup: ask.BidiGenerateContentSetup,
	}
	for field := range strings.SplitSeq(ask.FieldMask, ",") {
		if field != "" {
			r.Locked = append(r.Locked, camelPath(field))
		}
	}
	return r, nil
}
