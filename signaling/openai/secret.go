package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"

	"voxgate/bridge"
	"voxgate/signaling/access"
)

const (
	// secretPrefix begins the secrets that a page is given.
	secretPrefix = "ek_"
	// secretLife is how long a secret is good for to begin conversations, and longestLife the most that one may ask for:
	// https://platform.openai.com/docs/api-reference/realtime-sessions/create-realtime-client-secret.
	secretLife, shortestLife, longestLife = 600, 10, 7200 // seconds
	// maxSecrets and maxSecretBytes bound the secrets of this gateway that are good at a time, and what they take in the store.
	maxSecrets, maxSecretBytes = 10_000, 64 << 20
)

// secret is what a client secret is bound to. The store has it, so that a page may come to any gateway that shares the store.
type secret struct {
	Session session `json:"session"`
	Token   string  `json:"token"` // of the gateway's; empty: none is needed
}

// secretName is what the store has a client secret under.
func secretName(value string) string { return "secret/" + value }

// errStoreAway refuses a client whose secret cannot be looked up or kept.
var errStoreAway = &bridge.Error{Code: bridge.CodeBusy, Message: "Client secrets cannot be looked up just now.", Retry: time.Second}

// secret finds what a client secret is bound to.
func (d *Door) secret(ctx context.Context, value string) (found secret, err error) {
	raw, generation, err := d.Store.Get(ctx, secretName(value))
	switch {
	case err != nil:
		d.Logger.Warn("the store was asked for a client secret", "err", err)
		return found, errStoreAway
	case generation == 0:
		return found, refusal("invalid_api_key", "", "This client secret is not known, or has expired.")
	}
	err = json.Unmarshal(raw, &found)
	return found, err
}

// keep puts a secret into the store.
func (d *Door) keep(ctx context.Context, value string, made secret, life time.Duration) error {
	raw := encode(made)
	if !d.minted.add(len(raw), life) {
		return refusal("rate_limit_exceeded", "", "Too many client secrets are good at this time.")
	}
	if _, err := d.Store.Swap(ctx, secretName(value), 0, 1, raw, life); err != nil {
		d.Logger.Warn("the store was given a client secret", "err", err)
		return errStoreAway
	}
	return nil
}

// minted is what this gateway has put into the store.
type minted struct {
	mu    sync.Mutex
	good  []kept
	bytes int
}

// kept is how much a secret takes, and until when.
type kept struct {
	size  int
	until time.Time
}

// add reports false if there is too much.
func (m *minted) add(size int, life time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.good = slices.DeleteFunc(m.good, func(k kept) bool {
		over := now.After(k.until)
		if over {
			m.bytes -= k.size
		}
		return over
	})
	if len(m.good) >= maxSecrets || m.bytes+size > maxSecretBytes {
		return false
	}
	m.good = append(m.good, kept{size, now.Add(life)})
	m.bytes += size
	return true
}

// identityHeader names to OpenAI the person for whom a backend acts.
const identityHeader = "OpenAI-Safety-Identifier"

// mint makes a secret for a page, bound to a session.
func (d *Door) mint(w http.ResponseWriter, r *http.Request) error {
	var asked struct {
		ExpiresAfter struct {
			Anchor  string `json:"anchor"`
			Seconds int    `json:"seconds"`
		} `json:"expires_after"`
		Session json.RawMessage `json:"session"`
	}
	minter, err := access.From(r.Context()).Minter(tokenOf(r))
	if err != nil {
		return err
	}
	if r.ContentLength != 0 {
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&asked); err != nil {
			return unread(err)
		}
	}
	life := cmp.Or(asked.ExpiresAfter.Seconds, secretLife)
	if life < shortestLife || life > longestLife {
		return invalid("expires_after.seconds", "must be between 10 and 7200.")
	}
	made := secret{Session: newSession(newID("sess"), "")}
	if asked.Session != nil {
		if made.Session, err = made.Session.updated(asked.Session); err != nil {
			return err
		}
	}
	if err := made.Session.checkModel("session.model"); err != nil {
		return err
	}
	token, err := minter.Mint(access.Wanted{Identity: r.Header.Get(identityHeader), ExpiresIn: life, Once: new(bool)}, doorName)
	if err != nil {
		return err
	}
	value, lasts := newID("ek"), time.Duration(life)*time.Second
	made.Token = token.Token
	expires := time.Now().Add(lasts)
	if err := d.keep(r.Context(), value, made, lasts); err != nil {
		return err
	}
	reply(w, http.StatusOK, object{"value": value, "expires_at": expires.Unix(), "session": made.Session})
	return nil
}
