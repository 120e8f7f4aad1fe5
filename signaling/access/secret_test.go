package access_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/signaling/access"
	"voxgate/store"
)

// awayStore is a store that accepts nothing while away is set.
type awayStore struct {
	store.Store
	away bool
}

func (s *awayStore) CompareAndSwap(
	ctx context.Context, name string, was, generation uint64, value []byte, ttl time.Duration,
) (now uint64, err error) {
	if s.away {
		return 0, errors.New("away")
	}
	return s.Store.CompareAndSwap(ctx, name, was, generation, value, ttl)
}

// A secret counts only if the store has it, and if the limit is reached the error has the time to retry.
func TestSecretsThatWereNotKept(t *testing.T) {
	t.Parallel()
	away := &awayStore{Store: store.NewMemory(), away: true}
	secrets := access.Secrets{Store: away, Logger: slog.New(slog.DiscardHandler)}
	keep := func(name string) error {
		return secrets.Bind(t.Context(), access.Minter{}, name, strings.Repeat("x", 9<<20), time.Hour) // a share has 16 MiB
	}
	for _, name := range []string{"a", "b", "c"} {
		if err := keep(name); bridge.AsError(err).Retry != time.Second {
			t.Errorf("while the store is away: %v", err)
		}
	}
	away.away = false
	if err := keep("d"); err != nil {
		t.Errorf("when it is back: %v", err)
	}
	if retry := bridge.AsError(keep("e")).Retry; retry < 59*time.Minute || retry > time.Hour {
		t.Errorf("come back in %v", retry)
	}
}

// However many keys mint the maximum, the next one still gets some: no key may use more than it leaves free for others.
func TestSecretsAreLeftForTheNext(t *testing.T) {
	t.Parallel()
	gate, err := access.New(access.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gate.Close)
	secrets := access.Secrets{Store: store.NewMemory(), Logger: slog.New(slog.DiscardHandler)}
	bound := strings.Repeat("x", 1<<20)
	for n, want := range []int{15, 15, 15, 9, 5, 2, 1} { // MiB, of 64
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.RemoteAddr = fmt.Sprintf("192.0.2.%d:9", n+1)
		minter, err := access.From(gate.WithClient(r)).RequireMinter("")
		if err != nil {
			t.Fatal(err)
		}
		kept := 0
		for err == nil && kept < 99 {
			if err = secrets.Bind(t.Context(), minter, rand.Text(), bound, time.Hour); err == nil {
				kept++
			}
		}
		if retry := bridge.AsError(err).Retry; kept != want || retry < 59*time.Minute || retry > time.Hour {
			t.Errorf("client %d has %d, want %d; come back in %v", n, kept, want, retry)
		}
	}
}
