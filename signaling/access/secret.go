package access

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"voxgate/bridge"
	"voxgate/store"
)

// maxSecrets and maxSecretBytes bound the secrets of this gateway that are good at a time, and what they take in the store.
const maxSecrets, maxSecretBytes = 10_000, 64 << 20

// Secrets are short names for tokens of the gateway, bound to more than a token can hold: what other makers' APIs give to pages. The store
// has them, so that a page may come to any gateway that shares the store.
type Secrets struct {
	Store  store.Store
	Logger *slog.Logger

	mu    sync.Mutex
	kept  []keptSecret
	bytes int
}

// keptSecret is how much a secret of this gateway takes, and until when.
type keptSecret struct {
	size  int
	until time.Time
}

// errStoreAway refuses a client whose secret cannot be looked up or kept.
var errStoreAway = &bridge.Error{Code: bridge.CodeBusy, Message: "Client secrets cannot be looked up just now.", Retry: time.Second}

// Find reads what a secret is bound to. found is false if it is not known, or has expired. It blocks as long as the store does.
func (s *Secrets) Find(ctx context.Context, secret string, bound any) (found bool, err error) {
	raw, generation, err := s.Store.Get(ctx, secretName(secret))
	switch {
	case err != nil:
		s.Logger.Warn("the store was asked for a client secret", "err", err)
		return false, errStoreAway
	case generation == 0:
		return false, nil
	}
	err = json.Unmarshal(raw, bound)
	return err == nil, err
}

// Keep binds a secret to something for so long. It blocks as long as the store does.
func (s *Secrets) Keep(ctx context.Context, secret string, bound any, life time.Duration) error {
	raw, err := json.Marshal(bound)
	if err != nil {
		return err
	}
	if !s.add(len(raw), life) {
		return &bridge.Error{Code: bridge.CodeBusy, Message: "Too many client secrets are good at this time."}
	}
	if _, err := s.Store.Swap(ctx, secretName(secret), 0, 1, raw, life); err != nil {
		s.Logger.Warn("the store was given a client secret", "err", err)
		return errStoreAway
	}
	return nil
}

// Use counts one use of a secret, and reports false if there were as many as it has. by names the use; free gives it back.
func (s *Secrets) Use(ctx context.Context, secret, by string, most int, life time.Duration) (ok bool, free func(), err error) {
	_, ok, err = s.Store.Count(ctx, secretName(secret)+"/uses", by, 1, 1, most, life)
	if err != nil {
		s.Logger.Warn("the store was asked for the uses of a client secret", "err", err)
		return false, nil, errStoreAway
	}
	return ok, func() {
		_, _, _ = s.Store.Count(context.WithoutCancel(ctx), secretName(secret)+"/uses", by, 2, 0, most, life)
	}, nil
}

// secretName is what the store has a secret under.
func secretName(secret string) string { return "secret/" + secret }

// add reports false if there is too much.
func (s *Secrets) add(size int, life time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.kept = slices.DeleteFunc(s.kept, func(k keptSecret) bool {
		over := now.After(k.until)
		if over {
			s.bytes -= k.size
		}
		return over
	})
	if len(s.kept) >= maxSecrets || s.bytes+size > maxSecretBytes {
		return false
	}
	s.kept = append(s.kept, keptSecret{size, now.Add(life)})
	s.bytes += size
	return true
}
