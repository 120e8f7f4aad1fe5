package access

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"voxgate/bridge"
	"voxgate/store"
)

const (
	// maxSecrets and maxSecretBytes bound the secrets of this gateway that are good at a time, and what they take in the store.
	maxSecrets, maxSecretBytes = 10_000, 64 << 20
	// secretShares is how many shares both have. One key may take one share: a secret may be good for 20 hours, and other keys mint, too.
	secretShares = 4
)

// Secrets are short names for tokens of the gateway, bound to more than a token can hold: what other makers' APIs give to pages. The store
// has them, so that a page may come to any gateway that shares the store.
type Secrets struct {
	Store  store.Store
	Logger *slog.Logger

	mu     sync.Mutex
	issued map[string]issuedSecret
}

// issuedSecret is how much a secret of this gateway takes, of whose share, and until when.
type issuedSecret struct {
	share     budgetOwner
	size      int
	expiresAt time.Time
}

// errStoreUnavailable refuses a client whose secret cannot be looked up or kept.
var errStoreUnavailable = &bridge.Error{Code: bridge.CodeBusy, Message: "Client secrets cannot be looked up just now.", Retry: time.Second}

// LookUp reads what a secret is bound to. It blocks as long as the store does.
func (s *Secrets) LookUp(ctx context.Context, secret string, bound any) error {
	raw, generation, err := s.Store.Get(ctx, secretKey(secret))
	switch {
	case err != nil:
		s.Logger.Warn("the store was asked for a client secret", "err", err)
		return errStoreUnavailable
	case generation == 0:
		return &bridge.Error{Code: bridge.CodeUnauthorized, Message: "This secret is not known, or has expired."}
	}
	return json.Unmarshal(raw, bound)
}

// Bind binds a secret to something for so long, in the share of the one that mints it. It blocks as long as the store does.
func (s *Secrets) Bind(ctx context.Context, minter Minter, secret string, bound any, life time.Duration) error {
	raw, err := json.Marshal(bound)
	if err != nil {
		return err
	}
	if retry := s.reserve(minter.share, secret, len(raw), life); retry > 0 {
		return &bridge.Error{Code: bridge.CodeBusy, Message: "Too many client secrets are good at this time.", Retry: retry}
	}
	if _, err := s.Store.CompareAndSwap(ctx, secretKey(secret), 0, 1, raw, life); err != nil {
		s.mu.Lock()
		delete(s.issued, secret)
		s.mu.Unlock()
		s.Logger.Warn("the store was given a client secret", "err", err)
		return errStoreUnavailable
	}
	return nil
}

// CountUse counts one use of a secret, and reports false if there were as many as it has. by names the use; free gives it back.
func (s *Secrets) CountUse(ctx context.Context, secret, by string, most int, life time.Duration) (ok bool, free func(), err error) {
	_, ok, err = s.Store.SetUsage(ctx, secretKey(secret)+"/uses", by, 1, 1, most, life)
	if err != nil {
		s.Logger.Warn("the store was asked for the uses of a client secret", "err", err)
		return false, nil, errStoreUnavailable
	}
	return ok, func() {
		_, _, _ = s.Store.SetUsage(context.WithoutCancel(ctx), secretKey(secret)+"/uses", by, 2, 0, most, life)
	}, nil
}

// secretKey is what the store has a secret under.
func secretKey(secret string) string { return "secret/" + secret }

// reserve counts a secret, or says when to come back: when the next one expires that takes the room.
func (s *Secrets) reserve(of budgetOwner, secret string, size int, life time.Duration) (retry time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var all, own secretSum
	for name, k := range s.issued {
		if now.After(k.expiresAt) {
			delete(s.issued, name)
			continue
		}
		all.add(k)
		if k.share == of {
			own.add(k)
		}
	}
	next := own.next
	if own.count == 0 {
		next = all.next
	}
	// Nobody takes more than they leave free: however many have their share, the next one gets some.
	if own.isFull(size, min(maxSecrets/secretShares, maxSecrets-all.count), min(maxSecretBytes/secretShares, maxSecretBytes-all.bytes)) {
		return max(next.Sub(now), time.Second)
	}
	if s.issued == nil {
		s.issued = map[string]issuedSecret{}
	}
	s.issued[secret] = issuedSecret{of, size, now.Add(life)}
	return 0
}

// secretSum is what secrets take together, and when the first of them expires.
type secretSum struct {
	count, bytes int
	next         time.Time
}

func (s *secretSum) add(k issuedSecret) {
	s.count, s.bytes = s.count+1, s.bytes+k.size
	if s.next.IsZero() || k.expiresAt.Before(s.next) {
		s.next = k.expiresAt
	}
}

func (s *secretSum) isFull(size, most, mostBytes int) bool {
	return s.count >= most || s.bytes+size > mostBytes
}
