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
	// MinSecret is the minimum length of the secret, in bytes.
	MinSecret = 16

	// maxFailures is the number of failed calls in a row after which Redis counts as down. Further calls then fail at
	// once, because each would take a Timeout.
	maxFailures = 3
	// retryDelay is the interval between two calls that test whether a Redis that is down responds again.
	retryDelay = time.Second

	// poolSize limits the connections to one Redis. The default of go-redis, ten per CPU, suits programs that do
	// nothing but call Redis.
	poolSize = 32
)

// redisStore is a Store in Redis. Each of its commands and scripts uses keys of one slot only, so it also works with a
// Redis Cluster.
type redisStore struct {
	client            redis.UniversalClient
	nameKey, valueKey []byte // HMAC keys: one hashes names, and one derives the encryption keys of values
	log               *slog.Logger

	mu       sync.Mutex
	failures int       // number of failed calls in a row
	retryAt  time.Time // when to call Redis again; zero while it responds
}

// OpenRedis returns the store of all gateways that use the same Redis and the same secret. It does not block. If Redis
// is unreachable, now or later, this is logged. The URL has one of these forms:
//
//	redis://user:password@host:6379/0                                    one server
//	redis://host:26379/0?master_name=main&addr=host2:26379               the master of this name, as these Sentinels know it
//	redis://host:6379?addr=host2:6379                                    a Cluster of these and further servers
//
// or rediss:// for TLS (see go-redis's ParseURL, ParseFailoverURL and ParseClusterURL).
//
// Redis gets neither values nor names in plaintext. Values are encrypted (AES-256-GCM), and names are hashed
// (HMAC-SHA256). The keys are derived from the secret (HKDF, RFC 5869).
func OpenRedis(address, secret string, log *slog.Logger) (Store, error) {
	if len(secret) < MinSecret {
		return nil, fmt.Errorf("the secret has %d bytes, minimum %d", len(secret), MinSecret)
	}
	client, err := openClient(address)
	if err != nil {
		return nil, err
	}
	redis.SetLogger(silentLogger{}) // go-redis would write every error to stderr
	names, err := hkdf.Key(sha256.New, []byte(secret), nil, "voxgate store names", 32)
	if err != nil {
		return nil, err
	}
	values, err := hkdf.Key(sha256.New, []byte(secret), nil, "voxgate store values", 32)
	if err != nil {
		return nil, err
	}
	return &redisStore{client: client, nameKey: names, valueKey: values, log: log}, nil
}

// silentLogger discards the log of go-redis.
type silentLogger struct{}

func (silentLogger) Printf(context.Context, string, ...any) {}

// openClient returns the Redis client for a URL.
func openClient(address string) (redis.UniversalClient, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, newURLError(err)
	}
	switch query := u.Query(); {
	case query.Has("master_name"):
		f, err := redis.ParseFailoverURL(address)
		if err != nil {
			return nil, newURLError(err)
		}
		setTimeouts(&f.DialTimeout, &f.ReadTimeout, &f.WriteTimeout)
		f.ContextTimeoutEnabled, f.DialerRetries, f.MaxRetries, f.PoolSize = true, 1, 1, poolSize
		return redis.NewFailoverClient(f), nil
	case query.Has("addr"):
		c, err := redis.ParseClusterURL(address)
		if err != nil {
			return nil, newURLError(err)
		}
		setTimeouts(&c.DialTimeout, &c.ReadTimeout, &c.WriteTimeout)
		c.ContextTimeoutEnabled, c.DialerRetries, c.MaxRetries, c.PoolSize = true, 1, 1, poolSize
		return redis.NewClusterClient(c), nil
	}
	one, err := redis.ParseURL(address)
	if err != nil {
		return nil, newURLError(err)
	}
	setTimeouts(&one.DialTimeout, &one.ReadTimeout, &one.WriteTimeout)
	one.ContextTimeoutEnabled, one.DialerRetries, one.MaxRetries, one.PoolSize = true, 1, 1, poolSize
	return redis.NewClient(one), nil
}

// setTimeouts lowers the given timeouts, for which go-redis has defaults of seconds. With those and its default
// retries, a call to an unreachable Redis would take minutes.
func setTimeouts(times ...*time.Duration) {
	for _, t := range times {
		*t = Timeout
	}
}

// newURLError returns an error without the URL, which may contain a password.
func newURLError(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return fmt.Errorf("invalid Redis URL: %w", err)
}

// redisKey returns the key in Redis for a name. The part of the name that tells its purpose stays readable. The rest is
// hashed.
func (s *redisStore) redisKey(name string) string {
	kind, _, _ := strings.Cut(name, "/")
	return "voxgate:" + kind + ":" + s.hashName(name)
}

func (s *redisStore) hashName(name string) string {
	mac := hmac.New(sha256.New, s.nameKey)
	mac.Write([]byte(name))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:18])
}

// cipherFor returns the cipher for the value of a name. Each name has its own key, because one key allows only 2^32
// messages with random nonces (NIST SP 800-38D section 8.3). A single key for all names would be used up in less than a
// day.
func (s *redisStore) cipherFor(name string) (cipher.AEAD, error) {
	mac := hmac.New(sha256.New, s.valueKey)
	mac.Write([]byte(name))
	block, err := aes.NewCipher(mac.Sum(nil))
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// callIfUp calls f, which calls Redis. While Redis counts as down, it returns ErrDown instead.
func (s *redisStore) callIfUp(ctx context.Context, f func(context.Context) error) error {
	if !s.admitCall() {
		return ErrDown
	}
	limited, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	err := f(limited)
	if ctx.Err() == nil { // a cancelled call does not show whether Redis responds
		s.recordResult(err)
	}
	return err
}

// admitCall reports whether Redis may be called: always while Redis responds, and otherwise once per retryDelay.
func (s *redisStore) admitCall() (isAdmitted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retryAt.IsZero() {
		return true
	}
	if time.Now().Before(s.retryAt) {
		return false
	}
	s.retryAt = time.Now().Add(retryDelay) // until then, other calls fail at once
	return true
}

// recordResult records whether a call has succeeded. An error response from Redis also counts as a failure.
func (s *redisStore) recordResult(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		if !s.retryAt.IsZero() {
			s.log.Info("the store responds again")
		}
		s.failures, s.retryAt = 0, time.Time{}
		return
	}
	if s.failures++; s.failures < maxFailures {
		return
	}
	if s.retryAt.IsZero() {
		s.log.Warn("the store does not respond", "err", err)
	}
	s.retryAt = time.Now().Add(retryDelay)
}

func (s *redisStore) IsDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.retryAt.IsZero()
}

// In Redis, a value is a hash with two fields: g is the generation, and v the encrypted value.

func (s *redisStore) Get(ctx context.Context, name string) (value []byte, generation uint64, err error) {
	key := s.redisKey(name)
	var found []any
	err = s.callIfUp(ctx, func(ctx context.Context) (err error) {
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
	seal, err := s.cipherFor(name)
	if err != nil {
		return nil, 0, err
	}
	if value, err = seal.Open(nil, nil, []byte(sealed), nil); err != nil {
		return nil, 0, fmt.Errorf("%s was written with another secret: %w", key, err)
	}
	return value, generation, nil
}

var swapScript = redis.NewScript(`
local now = redis.call('HGET', KEYS[1], 'g')
if now and now ~= ARGV[1] then return now end
if ARGV[4] == '0' then redis.call('DEL', KEYS[1]) return '0' end
if ARGV[3] ~= '' then redis.call('HSET', KEYS[1], 'g', ARGV[2], 'v', ARGV[3])
elseif now then redis.call('HSET', KEYS[1], 'g', ARGV[2])
else return '0' end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return ARGV[2]`)

func (s *redisStore) CompareAndSwap(
	ctx context.Context, name string, expected, generation uint64, value []byte, ttl time.Duration,
) (storedGeneration uint64, err error) {
	sealed := []byte{}
	if value != nil {
		seal, err := s.cipherFor(name)
		if err != nil {
			return 0, err
		}
		sealed = seal.Seal(nil, nil, value, nil)
	}
	keys := []string{s.redisKey(name)}
	err = s.callIfUp(ctx, func(ctx context.Context) (err error) {
		storedGeneration, err = swapScript.Run(ctx, s.client, keys, expected, generation, sealed, ttl.Milliseconds()).Uint64()
		return err
	})
	return storedGeneration, err
}

// In Redis, the counts of a name are a hash with a field for each member. The field holds n, the order of the call, and
// the expiry by Redis's clock. These functions do the same as the methods of memory.
const countFunctions = `
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local function splitUsage(key, member)
  local total, own, newest, all = 0, 0, -1, redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    local used, at, ends = string.match(all[i + 1], '^(%d+) (%d+) (%d+)$')
    if tonumber(ends) <= now then redis.call('HDEL', key, all[i])
    elseif all[i] == member then own, newest = tonumber(used), tonumber(at)
    else total = total + used end
  end
  return total, own, newest
end
local function setUsage(key, member, n, order, newest, ttl)
  if newest > order then return end
  redis.call('HSET', key, member, string.format('%.0f %.0f %.0f', n, order, now + ttl))
  if redis.call('PTTL', key) < ttl then redis.call('PEXPIRE', key, ttl) end
end
`

var countScript = redis.NewScript(countFunctions + `
local member, order, n, most, ttl = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local total, own, newest = splitUsage(KEYS[1], member)
if newest > order then return {total + own, 1} end
if most >= 0 and total + n > most then return {total + own, 0} end
setUsage(KEYS[1], member, n, order, newest, ttl)
return {total + n, 1}`)

func (s *redisStore) SetUsage(
	ctx context.Context,
	name, member string,
	order uint64,
	n, limit int,
	ttl time.Duration,
) (total int, ok bool, err error) {
	keys := []string{s.redisKey(name)}
	err = s.callIfUp(ctx, func(ctx context.Context) error {
		got, err := countScript.Run(ctx, s.client, keys, member, order, n, limit, ttl.Milliseconds()).Int64Slice()
		if err == nil {
			total, ok = int(got[0]), got[1] == 1
		}
		return err
	})
	return total, ok, err
}

// reserveScript records a usage and reserves more, as [Reservation.AmountWithinLimit] does. Its two keys have the same
// hash tag, because a Redis Cluster requires both in one slot.
var reserveScript = redis.NewScript(countFunctions + `
local member, order, limit, want = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local others, _, newest = splitUsage(KEYS[1], member)
local othersSpent, _, newestSpent = splitUsage(KEYS[2], member)
local kept, spent = tonumber(ARGV[5]), tonumber(ARGV[6])
local got = math.max(0, math.min(want, limit - others - othersSpent - kept - spent))
setUsage(KEYS[1], member, kept + got, order, newest, tonumber(ARGV[7]))
setUsage(KEYS[2], member, spent, order, newestSpent, tonumber(ARGV[8]))
return {got, others, othersSpent}`)

func (s *redisStore) Reserve(ctx context.Context, r Reservation) (got int, others BudgetUsage, err error) {
	tag := "{" + s.hashName(r.Name) + "}"
	keys := []string{"voxgate:reserved:" + tag, "voxgate:spent:" + tag + r.Period}
	err = s.callIfUp(ctx, func(ctx context.Context) error {
		n, err := reserveScript.Run(ctx, s.client, keys, r.Member, r.Order, r.Limit, r.Want, r.Usage.Reserved-r.Want, r.Usage.Spent,
			r.TTL.Milliseconds(), r.SpentTTL.Milliseconds()).Int64Slice()
		if err == nil {
			got, others = int(n[0]), BudgetUsage{int(n[1]), int(n[2])}
		}
		return err
	})
	return got, others, err
}

// membersScript returns the members whose usage has not expired, with their usage. It is a script because the expiry is
// compared with Redis's clock.
var membersScript = redis.NewScript(`
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

func (s *redisStore) Members(ctx context.Context, name string) (map[string]int, error) {
	keys, list := []string{s.redisKey(name)}, map[string]int{}
	err := s.callIfUp(ctx, func(ctx context.Context) error {
		got, err := membersScript.Run(ctx, s.client, keys).StringSlice()
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

func (s *redisStore) Close() error { return s.client.Close() }
