package bridge

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"sync"
)

// tokenHash is the hash of a resume token. It is stored instead of the token.
type tokenHash [sha256.Size]byte

func hashToken(token string) tokenHash { return sha256.Sum256([]byte(token)) }

// resumeTokens holds the tokens of a host's conversations, by conversation ID. Each conversation has two valid tokens:
// the newest token, and the token that the caller used to get the newest.
type resumeTokens struct {
	mu   sync.Mutex
	ids  map[tokenHash]string
	byID map[string][2]tokenHash
}

func newResumeTokens() *resumeTokens {
	return &resumeTokens{ids: map[tokenHash]string{}, byID: map[string][2]tokenHash{}}
}

// idLength is the length of a session ID in base32: 80 bits. They are enough for a million conversations to have
// different IDs.
const idLength = 16

// formatToken returns a resume token of a conversation. The token contains the conversation's ID, so that any gateway
// can find the conversation.
func formatToken(id, secret string) string { return id + "." + secret }

// parseSessionID returns the conversation ID in a resume token, or "" if the token is malformed.
func parseSessionID(token string) string {
	if id, _, _ := strings.Cut(token, "."); len(id) == idLength {
		return id
	}
	return ""
}

// issueToken issues the next token of a conversation. The message with this token may be lost, so the token that the
// caller has just used stays valid until the caller uses the next one. Older tokens are revoked.
func (t *resumeTokens) issueToken(id, used string) string {
	secret := make([]byte, 32)
	rand.Read(secret) // never fails (crypto/rand)
	token := formatToken(id, base64.RawURLEncoding.EncodeToString(secret))
	hashes := [2]tokenHash{hashToken(token)}
	if used != "" {
		hashes[1] = hashToken(used)
	}
	t.setTokens(id, hashes)
	return token
}

// setTokens sets the valid tokens of a conversation, and revokes all its other tokens. It ignores a hash that is zero.
func (t *resumeTokens) setTokens(id string, hashes [2]tokenHash) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.byID[id] {
		delete(t.ids, h)
	}
	delete(t.byID, id)
	for _, h := range hashes {
		if h != (tokenHash{}) {
			t.ids[h], t.byID[id] = id, hashes
		}
	}
}

// revokeTokens invalidates the tokens of a conversation.
func (t *resumeTokens) revokeTokens(id string) { t.setTokens(id, [2]tokenHash{}) }

// findSession returns the ID of the conversation that a token resumes, or "".
func (t *resumeTokens) findSession(token string) (sessionID string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ids[hashToken(token)]
}

// tokenHashes returns the hashes of a conversation's two tokens, for a snapshot. If a token is missing, its hash is
// nil.
func (t *resumeTokens) tokenHashes(id string) (tokens [2][]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, h := range t.byID[id] {
		if h != (tokenHash{}) {
			tokens[i] = h[:]
		}
	}
	return tokens
}
