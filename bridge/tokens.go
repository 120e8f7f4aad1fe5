package bridge

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"sync"
)

// tokenHash stands for a resume token, which itself is not kept.
type tokenHash [sha256.Size]byte

func hashOf(token string) tokenHash { return sha256.Sum256([]byte(token)) }

// resumeTokens are those of the conversations of a host, by their ids. Each has two: the newest, and the one that was
// used for it.
type resumeTokens struct {
	mu   sync.Mutex
	ids  map[tokenHash]string
	byID map[string][2]tokenHash
}

func newResumeTokens() *resumeTokens {
	return &resumeTokens{ids: map[tokenHash]string{}, byID: map[string][2]tokenHash{}}
}

// idLength is the length of a session's id, in base32: 80 bits, so that no two of a million conversations at many
// gateways share one.
const idLength = 16

// tokenFor is a resume token of a conversation. It contains the id, by which any gateway finds the conversation.
func tokenFor(id, secret string) string { return id + "." + secret }

// conversationOf is the id of the conversation in a resume token; empty: it is not ours.
func conversationOf(token string) string {
	if id, _, _ := strings.Cut(token, "."); len(id) == idLength {
		return id
	}
	return ""
}

// next gives a conversation its next token. The one that was used for it stays valid until the new one is used, because
// the answer that carries the new one may be lost with the connection; any other is void.
func (t *resumeTokens) next(id, used string) string {
	secret := make([]byte, 32)
	rand.Read(secret) // never fails (crypto/rand)
	token := tokenFor(id, base64.RawURLEncoding.EncodeToString(secret))
	hashes := [2]tokenHash{hashOf(token)}
	if used != "" {
		hashes[1] = hashOf(used)
	}
	t.set(id, hashes)
	return token
}

// set makes these the tokens of a conversation, and all others of it void. A zero hash is none.
func (t *resumeTokens) set(id string, hashes [2]tokenHash) {
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

// void invalidates the tokens of a conversation.
func (t *resumeTokens) void(id string) { t.set(id, [2]tokenHash{}) }

// find is the id of the conversation that a token opens; empty: none.
func (t *resumeTokens) find(token string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ids[hashOf(token)]
}

// of are the tokens of a conversation, as a snapshot has them: nil stands for none.
func (t *resumeTokens) of(id string) (tokens [2][]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, h := range t.byID[id] {
		if h != (tokenHash{}) {
			tokens[i] = h[:]
		}
	}
	return tokens
}
