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
	// maxSecrets and maxSecretBytes limit the number of valid secrets of this gateway, and their total size in the
	// store.
	maxSecrets, maxSecretBytes = 10_000, 64 << 20
	// secretShares is the number of shares into which both limits are divided. A key may use at most one share, because
	// its secrets may live for 20 hours and must leave room for other keys.
	secretShares = 4
)

// Secrets stores the data of client secrets. A client secret is a short string that a page gets in place of a token, as
// in other vendors' APIs. The page may use it at any gateway that shares the store.
type Secrets struct {
	Store  store.Store
	Logger *slog.Logger

	mu     sync.Mutex
	issued map[string]issuedSecret
}

// issuedSecret is the size, owner and expiry of a secret that this gateway has issued.
type issuedSecret struct {
	share     budgetOwner
	size      int
	expiresAt time.Time
}

// errStoreUnavailable rejects a client whose secret cannot be looked up or stored.
var errStoreUnavailable = &bridge.Error{Code: bridge.CodeBusy, Message: "Client secrets cannot be looked up just now.", Retry: time.Second}

// LookUp decodes the data of a secret into the variable to which data points. It blocks until the store answers.
func (s *Secrets) LookUp(ctx context.Context, secret string, data any) error {
	raw, generation, err := s.Store.Get(ctx, secretKey(secret))
	switch {
	case err != nil:
		s.Logger.Warn("store: client secret not read", "err", err)
		return errStoreUnavailable
	case generation == 0:
		return &bridge.Error{Code: bridge.CodeUnauthorized, Message: "This secret is unknown or has expired."}
	}
	return json.Unmarshal(raw, data)
}

// Bind stores the data of a secret for its lifetime, and counts the secret in its minter's quota. It blocks until the
// store answers.
func (s *Secrets) Bind(ctx context.Context, minter Minter, secret string, data any, lifetime time.Duration) error {
	raw, err := json.Marshal(data)
	if err != nil {
		return err
	}
	if retryAfter, ok := s.reserveQuota(minter.share, secret, len(raw), lifetime); !ok {
		return &bridge.Error{Code: bridge.CodeBusy, Message: "Too many client secrets are valid at this time.", Retry: retryAfter}
	}
	if _, err := s.Store.CompareAndSwap(ctx, secretKey(secret), 0, 1, raw, lifetime); err != nil {
		s.mu.Lock()
		delete(s.issued, secret)
		s.mu.Unlock()
		s.Logger.Warn("store: client secret not written", "err", err)
		return errStoreUnavailable
	}
	return nil
}

// CountUse counts one use of a secret. ok is false if it was used maxUses times already. Uses with the same useID count
// once. release takes the use back. Both block until the store answers.
func (s *Secrets) CountUse(ctx context.Context, secret, useID string, maxUses int, life time.Duration) (
	ok bool, release func(), err error,
) {
	_, ok, err = s.Store.SetUsage(ctx, secretKey(secret)+"/uses", useID, 1, 1, maxUses, life)
	if err != nil {
		s.Logger.Warn("store: uses of a client secret not counted", "err", err)
		return false, nil, errStoreUnavailable
	}
	return ok, func() {
		_, _, _ = s.Store.SetUsage(context.WithoutCancel(ctx), secretKey(secret)+"/uses", useID, 2, 0, maxUses, life)
	}, nil
}

// secretKey returns the key of a secret in the store.
func secretKey(secret string) string { return "secret/" + secret }

// reserveQuota counts a secret in the quota of its owner. If the quota is full, ok is false, and retryAfter is the time
// until its next secret expires.
func (s *Secrets) reserveQuota(owner budgetOwner, secret string, size int, life time.Duration) (
	retryAfter time.Duration, ok bool,
) {
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
		if k.share == owner {
			own.add(k)
		}
	}
	next := own.next
	if own.count == 0 {
		next = all.next
	}
	// A new minter must always get a part of the limits, however many minters there are. So a minter may not use more
	// than it leaves free for others.
	if own.isFull(size, min(maxSecrets/secretShares, maxSecrets-all.count), min(maxSecretBytes/secretShares, maxSecretBytes-all.bytes)) {
		return max(next.Sub(now), time.Second), false
	}
	if s.issued == nil {
		s.issued = map[string]issuedSecret{}
	}
	s.issued[secret] = issuedSecret{owner, size, now.Add(life)}
	return 0, true
}

// secretSum is the number and total size of several secrets, and the time when the first of them expires.
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

func (s *secretSum) isFull(size, maxCount, maxBytes int) bool {
	return s.count >= maxCount || s.bytes+size > maxBytes
}
