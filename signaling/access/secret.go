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
	// maxSecrets and maxSecretBytes limit the valid secrets of this gateway, and their size in the store.
	maxSecrets, maxSecretBytes = 10_000, 64 << 20
	// secretShares divides both limits into shares: a key may use at most one share. Its secrets may live for 20 hours, so
	// they must leave room for other keys.
	secretShares = 4
)

// Secrets stores the data of client secrets: short names that pages get in place of a token, as in other vendors' APIs.
// A page may use any gateway that shares the store.
type Secrets struct {
	Store  store.Store
	Logger *slog.Logger

	mu     sync.Mutex
	issued map[string]issuedSecret
}

// issuedSecret records the size, owner and expiry of a secret of this gateway.
type issuedSecret struct {
	share     budgetOwner
	size      int
	expiresAt time.Time
}

// errStoreUnavailable rejects a client whose secret cannot be looked up or stored.
var errStoreUnavailable = &bridge.Error{Code: bridge.CodeBusy, Message: "Client secrets cannot be looked up just now.", Retry: time.Second}

// LookUp decodes the data of a secret into the variable to which bound points. It blocks as long as the store does.
func (s *Secrets) LookUp(ctx context.Context, secret string, bound any) error {
	raw, generation, err := s.Store.Get(ctx, secretKey(secret))
	switch {
	case err != nil:
		s.Logger.Warn("store: client secret not read", "err", err)
		return errStoreUnavailable
	case generation == 0:
		return &bridge.Error{Code: bridge.CodeUnauthorized, Message: "This secret is unknown or has expired."}
	}
	return json.Unmarshal(raw, bound)
}

// Bind stores the data of a secret for its lifetime, and counts it in the quota of its minter. It blocks as long as the
// store does.
func (s *Secrets) Bind(ctx context.Context, minter Minter, secret string, bound any, lifetime time.Duration) error {
	raw, err := json.Marshal(bound)
	if err != nil {
		return err
	}
	if retry := s.reserve(minter.share, secret, len(raw), lifetime); retry > 0 {
		return &bridge.Error{Code: bridge.CodeBusy, Message: "Too many client secrets are valid at this time.", Retry: retry}
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

// CountUse counts one use of a secret, with the identifier by. A secret permits `most` uses; after that, ok is false.
// Calling free takes the use back. CountUse and free block as long as the store does.
func (s *Secrets) CountUse(ctx context.Context, secret, by string, most int, life time.Duration) (ok bool, free func(), err error) {
	_, ok, err = s.Store.SetUsage(ctx, secretKey(secret)+"/uses", by, 1, 1, most, life)
	if err != nil {
		s.Logger.Warn("store: uses of a client secret not counted", "err", err)
		return false, nil, errStoreUnavailable
	}
	return ok, func() {
		_, _, _ = s.Store.SetUsage(context.WithoutCancel(ctx), secretKey(secret)+"/uses", by, 2, 0, most, life)
	}, nil
}

// secretKey returns the key of a secret in the store.
func secretKey(secret string) string { return "secret/" + secret }

// reserve counts a secret in the quota of its owner. If the quota is full, it returns the time until its next secret
// expires.
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
	// A minter may not use more than it leaves free for others. So a new minter always gets a part, however many others
	// there are.
	if own.isFull(size, min(maxSecrets/secretShares, maxSecrets-all.count), min(maxSecretBytes/secretShares, maxSecretBytes-all.bytes)) {
		return max(next.Sub(now), time.Second)
	}
	if s.issued == nil {
		s.issued = map[string]issuedSecret{}
	}
	s.issued[secret] = issuedSecret{of, size, now.Add(life)}
	return 0
}

// secretSum is the number and the size of several secrets, and the time when the first of them expires.
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
