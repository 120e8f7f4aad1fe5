package store

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// MinSecret is the least length of the secret, in bytes.
	MinSecret = 16

	// After fewFailures in a row Redis is not asked for restTime; then one call finds out whether it is back. Each failed call has cost a
	// Timeout.
	fewFailures = 3
	restTime    = time.Second

	// poolSize bounds the connections to one Redis: what many callers at once share. Go-redis has ten a CPU, for programs that
	// do nothing else.
	poolSize = 32
)

// shared is a Store in Redis. It needs single commands and scripts of one key, so a Cluster will do.
type shared struct {
	client        redis.UniversalClient
	names, values []byte // the keys of the HMAC that stands for a name, and of the one that is the key of its value
	log           *slog.Logger

	mu       sync.Mutex
	failures int       // in a row
	rests    time.Time // until then; zero: it is asked
}

// OpenRedis returns the store of all gateways that use the same Redis and the same secret. It does not wait for Redis, which may be away
// now or later; log says so. The URL is one of
//
//	redis://user:password@host:6379/0                                    one server
//	redis://host:26379/0?master_name=main&addr=host2:26379               the master of this name, as these Sentinels know it
//	redis://host:6379?addr=host2:6379                                    a Cluster of these and further servers
//
// and rediss:// by TLS, as go-redis's ParseURL, ParseFailoverURL and ParseClusterURL read them. Redis sees neither values nor names:
// values are encrypted (AES-256-GCM) and names hashed (HMAC-SHA256), with keys derived from the secret (HKDF, RFC 5869).
func OpenRedis(address, secret string, log *slog.Logger) (Store, error) {
	if len(secret) < MinSecret {
		return nil, fmt.Errorf("the secret has %d bytes; %d are the least", len(secret), MinSecret)
	}
	client, err := open(address)
	if err != nil {
		return nil, err
	}
	redis.SetLogger(silent{}) // it would write to stderr what each call has as its error
	names, err := hkdf.Key(sha256.New, []byte(secret), nil, "voxgate store names", 32)
	if err != nil {
		return nil, err
	}
	values, err := hkdf.Key(sha256.New, []byte(secret), nil, "voxgate store values", 32)
	if err != nil {
		return nil, err
	}
	return &shared{client: client, names: names, values: values, log: log}, nil
}

// silent is a logger for go-redis.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// open reads the URL.
func open(address string) (redis.UniversalClient, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, badURL(err)
	}
	switch query := u.Query(); {
	case query.Has("master_name"):
		f, err := redis.ParseFailoverURL(address)
		if err != nil {
			return nil, badURL(err)
		}
		limit(&f.DialTimeout, &f.ReadTimeout, &f.WriteTimeout)
		f.ContextTimeoutEnabled, f.DialerRetries, f.MaxRetries, f.PoolSize = true, 1, 1, poolSize
		return redis.NewFailoverClient(f), nil
	case query.Has("addr"):
		c, err := redis.ParseClusterURL(address)
		if err != nil {
			return nil, badURL(err)
		}
		limit(&c.DialTimeout, &c.ReadTimeout, &c.WriteTimeout)
		c.ContextTimeoutEnabled, c.DialerRetries, c.MaxRetries, c.PoolSize = true, 1, 1, poolSize
		return redis.NewClusterClient(c), nil
	}
	one, err := redis.ParseURL(address)
	if err != nil {
		return nil, badURL(err)
	}
	limit(&one.DialTimeout, &one.ReadTimeout, &one.WriteTimeout)
	one.ContextTimeoutEnabled, one.DialerRetries, one.MaxRetries, one.PoolSize = true, 1, 1, poolSize
	return redis.NewClient(one), nil
}

// limit lowers times that go-redis sets to seconds. With the defaults of its retries a call to a Redis that is gone lasts for minutes.
func limit(times ...*time.Duration) {
	for _, t := range times {
		*t = Timeout
	}
}

// badURL is what is wrong with a URL, without it: it may have a password.
func badURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return fmt.Errorf("the URL of Redis cannot be read: %w", err)
}

// key is the name as Redis has it: its purpose stays readable.
func (s *shared) key(name string) string {
	kind, _, _ := strings.Cut(name, "/")
	mac := hmac.New(sha256.New, s.names)
	mac.Write([]byte(name))
	return "voxgate:" + kind + ":" + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:18])
}

// seal encrypts the value of a name. Each name has a key of its own: random nonces allow 2^32 messages of one key (NIST SP 800-38D
// section 8.3), which all gateways together would reach within a day.
func (s *shared) seal(name string) (cipher.AEAD, error) {
	mac := hmac.New(sha256.New, s.values)
	mac.Write([]byte(name))
	block, err := aes.NewCipher(mac.Sum(nil))
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// ask asks Redis, unless it is taken for dead.
func (s *shared) ask(ctx context.Context, f func(context.Context) error) error {
	if !s.admit() {
		return ErrDown
	}
	limited, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	err := f(limited)
	if ctx.Err() == nil { // else it is not known whether it would have answered
		s.answered(err)
	}
	return err
}

// admit reports whether to ask Redis: always while it answers, and by one call now and then when it does not.
func (s *shared) admit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rests.IsZero() {
		return true
	}
	if time.Now().Before(s.rests) {
		return false
	}
	s.rests = time.Now().Add(restTime) // the others wait for this one
	return true
}

// answered takes the outcome of a call. An error that Redis itself has sent is an answer, too; but none that helps.
func (s *shared) answered(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		if !s.rests.IsZero() {
			s.log.Info("the store answers again")
		}
		s.failures, s.rests = 0, time.Time{}
		return
	}
	if s.failures++; s.failures < fewFailures {
		return
	}
	if s.rests.IsZero() {
		s.log.Warn("the store does not answer", "err", err)
	}
	s.rests = time.Now().Add(restTime)
}

func (s *shared) Down() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.rests.IsZero()
}

// A value is a hash: g, the generation, and v, the value as it was sealed.

func (s *shared) Get(ctx context.Context, name string) (value []byte, generation uint64, err error) {
	key := s.key(name)
	var found []any
	err = s.ask(ctx, func(ctx context.Context) (err error) {
		found, err = s.client.HMGet(ctx, key, "g", "v").Result()
		return err
	})
	if err != nil || found[0] == nil || found[1] == nil {
		return nil, 0, err
	}
	text, _ := found[0].(string)
	sealed, _ := found[1].(string)
	if generation, err = strconv.ParseUint(text, 10, 64); err != nil {
		return nil, 0, fmt.Errorf("%s has no generation: %w", key, err)
	}
	seal, err := s.seal(name)
	if err != nil {
		return nil, 0, err
	}
	if value, err = seal.Open(nil, nil, []byte(sealed), nil); err != nil {
		return nil, 0, fmt.Errorf("%s was written with another secret: %w", key, err)
	}
	return value, generation, nil
}

var swap = redis.NewScript(`
local now = redis.call('HGET', KEYS[1], 'g')
if now and now ~= ARGV[1] then return now end
if ARGV[4] == '0' then redis.call('DEL', KEYS[1]) return '0' end
if ARGV[3] ~= '' then redis.call('HSET', KEYS[1], 'g', ARGV[2], 'v', ARGV[3])
elseif now then redis.call('HSET', KEYS[1], 'g', ARGV[2])
else return '0' end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return ARGV[2]`)

func (s *shared) Swap(ctx context.Context, name string, was, generation uint64, value []byte, ttl time.Duration) (now uint64, err error) {
	sealed := []byte{}
	if value != nil {
		seal, err := s.seal(name)
		if err != nil {
			return 0, err
		}
		sealed = seal.Seal(nil, nil, value, nil)
	}
	keys := []string{s.key(name)}
	err = s.ask(ctx, func(ctx context.Context) (err error) {
		now, err = swap.Run(ctx, s.client, keys, was, generation, sealed, ttl.Milliseconds()).Uint64()
		return err
	})
	return now, err
}

// The counts of a name are a hash, too: a member's field has n, the order of the call, and when it ends by Redis's clock, so that
// those of the gateways may differ.
var count = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local member, order, n, most, ttl = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local total, mine, newest, all = 0, 0, -1, redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local used, at, ends = string.match(all[i + 1], '^(%d+) (%d+) (%d+)$')
  if tonumber(ends) <= now then redis.call('HDEL', KEYS[1], all[i])
  elseif all[i] == member then mine, newest = tonumber(used), tonumber(at)
  else total = total + used end
end
if newest > order then return {total + mine, 1} end
if most >= 0 and total + n > most then return {total + mine, 0} end
redis.call('HSET', KEYS[1], member, string.format('%d %d %.0f', n, order, now + ttl))
if redis.call('PTTL', KEYS[1]) < ttl then redis.call('PEXPIRE', KEYS[1], ttl) end
return {total + n, 1}`)

func (s *shared) Count(
	ctx context.Context,
	name, member string,
	order uint64,
	n, most int,
	ttl time.Duration,
) (total int, ok bool, err error) {
	keys := []string{s.key(name)}
	err = s.ask(ctx, func(ctx context.Context) error {
		got, err := count.Run(ctx, s.client, keys, member, order, n, most, ttl.Milliseconds()).Int64Slice()
		if err == nil {
			total, ok = int(got[0]), got[1] == 1
		}
		return err
	})
	return total, ok, err
}

// members is a script because only Redis knows its time.
var members = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local list, all = {}, redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local used, ends = string.match(all[i + 1], '^(%d+) %d+ (%d+)$')
  if tonumber(ends) > now and used ~= '0' then
    list[#list + 1] = all[i]
    list[#list + 1] = used
  end
end
return list`)

func (s *shared) Members(ctx context.Context, name string) (map[string]int, error) {
	keys, list := []string{s.key(name)}, map[string]int{}
	err := s.ask(ctx, func(ctx context.Context) error {
		got, err := members.Run(ctx, s.client, keys).StringSlice()
		for i := 0; i+1 < len(got); i += 2 {
			n, bad := strconv.Atoi(got[i+1])
			if list[got[i]] = n; bad != nil {
				err = bad
			}
		}
		return err
	})
	return list, err
}

func (s *shared) Close() error { return s.client.Close() }
