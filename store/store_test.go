package store_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"voxgate/internal/testkit/mediatest"
	"voxgate/internal/testkit/redistest"
	"voxgate/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "a secret of the nodes"

func redis(t *testing.T) *redistest.Server {
	t.Helper()
	s, err := redistest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

func openClient(t *testing.T, url, secret string) store.Store {
	t.Helper()
	s, err := store.OpenRedis(url, secret, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// both runs a test on each kind of store. The stores a and b share their data, like the stores of two gateways.
func both(t *testing.T, f func(t *testing.T, a, b store.Store)) {
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		m := store.NewMemory()
		f(t, m, m)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		url := redis(t).URL()
		f(t, openClient(t, url, secret), openClient(t, url, secret))
	})
}

// eventually calls ok every 10 ms until it returns true, for at most a minute. Redis sends no message when an entry
// expires, or when Redis is available again.
func eventually(t *testing.T, wrong string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(time.Minute); !ok(); {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal(wrong)
		}
	}
}

func TestCompareAndSwap(t *testing.T) {
	both(t, func(t *testing.T, a, b store.Store) {
		ctx := t.Context()
		swap := func(s store.Store, was, is uint64, value string, ttl time.Duration, want uint64) {
			t.Helper()
			var v []byte
			if value != "" {
				v = []byte(value)
			}
			if now, err := s.CompareAndSwap(ctx, "session/x", was, is, v, ttl); now != want || err != nil {
				t.Errorf("swap %d for %d: %d, %v; want %d", was, is, now, err, want)
			}
		}
		holds := func(value string, generation uint64) {
			t.Helper()
			if v, g, err := b.Get(ctx, "session/x"); string(v) != value || g != generation || err != nil {
				t.Errorf("%q of %d, %v; want %q of %d", v, g, err, value, generation)
			}
		}
		holds("", 0)
		swap(a, 1, 1, "", time.Minute, 0) // no value exists that could be renewed
		holds("", 0)
		swap(a, 1, 1, "one", time.Minute, 1)
		holds("one", 1)
		swap(b, 1, 2, "two", time.Minute, 2) // takes over
		swap(a, 1, 1, "old", time.Minute, 2) // fails: b has written generation 2
		swap(b, 1, 2, "also", time.Minute, 2)
		holds("two", 2)
		swap(b, 2, 2, "", time.Minute, 2)
		holds("two", 2)
		swap(b, 2, 2, "", 40*time.Millisecond, 2)
		eventually(t, "it does not end", func() bool {
			_, g, _ := a.Get(ctx, "session/x")
			return g == 0
		})
		swap(a, 1, 1, "again", time.Minute, 1)
		swap(b, 7, 7, "", 0, 1) // another generation cannot delete it
		swap(a, 1, 1, "", 0, 0)
		holds("", 0)
	})
}

// If many gateways take over a conversation at once, exactly one succeeds.
func TestOnlyOneGatewayTakesOver(t *testing.T) {
	both(t, func(t *testing.T, a, b store.Store) {
		if _, err := a.CompareAndSwap(t.Context(), "session/x", 1, 1, []byte("a"), time.Minute); err != nil {
			t.Fatal(err)
		}
		var taken atomic.Int32
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				mine := []byte(fmt.Sprint(i))
				if now, err := []store.Store{a, b}[i%2].CompareAndSwap(t.Context(), "session/x", 1, 2, mine, time.Minute); err != nil {
					t.Error(err)
				} else if v, _, _ := b.Get(t.Context(), "session/x"); now == 2 && string(v) == string(mine) {
					taken.Add(1)
				}
			})
		}
		wg.Wait()
		if n := taken.Load(); n != 1 {
			t.Errorf("%d have it", n)
		}
	})
}

func TestSetUsage(t *testing.T) {
	both(t, func(t *testing.T, a, b store.Store) {
		ctx := t.Context()
		counts := func(s store.Store, member string, order uint64, n, most int, ttl time.Duration, total int, ok bool) {
			t.Helper()
			if got, let, err := s.SetUsage(ctx, "sessions/all", member, order, n, most, ttl); got != total || let != ok || err != nil {
				t.Errorf("%s uses %d of %d: %d, %v, %v; want %d, %v", member, n, most, got, let, err, total, ok)
			}
		}
		counts(a, "a", 1, 2, 3, time.Minute, 2, true)
		counts(b, "b", 1, 2, 3, time.Minute, 2, false)
		counts(b, "b", 2, 1, 3, time.Minute, 3, true)
		counts(a, "a", 4, 3, 3, time.Minute, 3, false)
		counts(a, "a", 5, 5, -1, time.Minute, 6, true)
		counts(a, "a", 3, 0, -1, time.Minute, 6, true) // arrives late: its order is lower
		if got, err := b.Members(ctx, "sessions/all"); err != nil || !maps.Equal(got, map[string]int{"a": 5, "b": 1}) {
			t.Errorf("members are %v, %v", got, err)
		}
		counts(b, "b", 3, 1, -1, 50*time.Millisecond, 6, true)
		eventually(t, "b is a member for ever", func() bool {
			got, _ := a.Members(ctx, "sessions/all")
			return len(got) == 1
		})
		counts(a, "a", 6, 0, -1, time.Minute, 0, true)
		if got, err := b.Members(ctx, "sessions/all"); err != nil || len(got) != 0 {
			t.Errorf("members are %v, %v", got, err)
		}
	})
}

func TestReserve(t *testing.T) {
	both(t, func(t *testing.T, a, b store.Store) {
		reserves := func(s store.Store, member string, order uint64, own store.BudgetUsage, want, got int, others store.BudgetUsage) {
			t.Helper()
			n, rest, err := s.Reserve(t.Context(), store.Reservation{
				Name: "tokens/key/shop", Period: "2026-11-27", Member: member, Order: order, Usage: own, Want: want, Limit: 10,
				TTL: time.Minute, SpentTTL: time.Hour,
			})
			if n != got || rest != others || err != nil {
				t.Errorf("%s with %+v wants %d: got %d beside %+v, %v; want %d beside %+v", member, own, want, n, rest, err, got, others)
			}
		}
		reserves(a, "a", 1, store.BudgetUsage{Reserved: 6}, 6, 6, store.BudgetUsage{})
		reserves(b, "b", 1, store.BudgetUsage{Reserved: 6}, 6, 4, store.BudgetUsage{Reserved: 6}) // only 4 are left
		reserves(b, "b", 2, store.BudgetUsage{Reserved: 5}, 1, 0, store.BudgetUsage{Reserved: 6})
		reserves(a, "a", 3, store.BudgetUsage{Spent: 2}, 0, 0, store.BudgetUsage{Reserved: 4})
		reserves(a, "a", 2, store.BudgetUsage{Reserved: 6}, 1, 1, store.BudgetUsage{Reserved: 4}) // late: the call before it counts
		reserves(b, "b", 3, store.BudgetUsage{Reserved: 13}, 9, 4, store.BudgetUsage{Spent: 2})
		if n, rest, err := a.Reserve(t.Context(), store.Reservation{
			Name: "tokens/key/shop", Period: "2026-11-28", Member: "a", Order: 4, Usage: store.BudgetUsage{Reserved: 9}, Want: 9, Limit: 10,
			TTL: time.Minute, SpentTTL: time.Hour,
		}); n != 2 || rest != (store.BudgetUsage{Reserved: 8}) || err != nil {
			t.Errorf("a day later: %d beside %+v, %v", n, rest, err)
		}
	})
}

// Concurrent reservations of many members get the whole limit and no more.
func TestReserveAtOnce(t *testing.T) {
	both(t, func(t *testing.T, a, b store.Store) {
		var all atomic.Int64
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				got, _, err := []store.Store{a, b}[i%2].Reserve(t.Context(), store.Reservation{
					Name: "tokens/key/shop", Member: fmt.Sprint(i), Order: 1, Usage: store.BudgetUsage{Reserved: 3}, Want: 3, Limit: 10,
					TTL: time.Minute, SpentTTL: time.Minute,
				})
				if err != nil {
					t.Error(err)
				}
				all.Add(int64(got))
			})
		}
		wg.Wait()
		if n := all.Load(); n != 10 {
			t.Errorf("%d of 10 were reserved", n)
		}
	})
}

// Redis contains neither values nor names in plain text, and a gateway with another secret finds nothing.
func TestRedisSeesNoPlainText(t *testing.T) {
	t.Parallel()
	server := redis(t)
	a, other := openClient(t, server.URL(), secret), openClient(t, server.URL(), "another secret, as long")
	if _, err := a.CompareAndSwap(t.Context(), "session/of-alice", 1, 1, []byte("a handle"), time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.SetUsage(t.Context(), "sessions/192.0.2.1", "node", 1, 1, -1, time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Reserve(t.Context(), store.Reservation{
		Name: "tokens/person/alice", Member: "node", Order: 1, TTL: time.Minute,
		SpentTTL: time.Minute,
	}); err != nil {
		t.Fatal(err)
	}
	if _, g, err := other.Get(t.Context(), "session/of-alice"); g != 0 || err != nil {
		t.Errorf("another secret finds %d, %v", g, err)
	}
	socket := strings.TrimPrefix(server.URL(), "unix://")
	all, err := exec.Command(
		"redis-cli",
		"-s",
		socket,
		"eval",
		`local out = {}
		for _, k in ipairs(redis.call('KEYS', '*')) do
			out[#out+1] = k
			for _, v in ipairs(redis.call('HGETALL', k)) do out[#out+1] = v end
		end
		return out`,
		"0",
	).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, seen := range []string{"alice", "192.0.2", "handle"} {
		if strings.Contains(string(all), seen) {
			t.Errorf("Redis has %q: %s", seen, all)
		}
	}
	if !strings.Contains(string(all), "voxgate:session:") {
		t.Errorf("Redis has %s", all)
	}
}

// While Redis is unreachable, a few calls wait for their timeout and all others fail at once. Once Redis is back, calls
// succeed again.
func TestRedisUnreachable(t *testing.T) {
	t.Parallel()
	server := redis(t)
	p, err := server.OpenProxy()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s := openClient(t, p.URL(), secret)
	write := func() error {
		_, err := s.CompareAndSwap(t.Context(), "session/x", 1, 1, []byte("v"), time.Minute)
		return err
	}
	isUsed := func(name string) { // repeatedly: on a busy machine a call may exceed store.Timeout
		eventually(t, name+": it is not used", func() bool { return write() == nil })
	}
	isUsed("begun")
	for name, gone := range map[string]struct{ begin, end func() }{
		"killed":  {server.Kill, func() { _ = server.Restart() }},
		"cut off": {func() { p.SetBlackhole(true) }, func() { p.SetBlackhole(false) }},
	} {
		gone.begin()
		began := time.Now()
		for i := range 1000 {
			if write() == nil {
				t.Fatalf("%s: call %d succeeded", name, i)
			}
		}
		// Three calls wait for their timeout, and then one call a second. The limit is higher for a busy machine.
		if took := time.Since(began); took > max(10*store.Timeout, 10*time.Second) || !s.IsDown() {
			t.Errorf("%s: 1000 calls took %v; down: %v", name, took, s.IsDown())
		}
		if err := write(); !errors.Is(err, store.ErrDown) && !errors.Is(err, context.DeadlineExceeded) {
			t.Logf("%s: %v", name, err)
		}
		gone.end()
		isUsed(name)
		if s.IsDown() {
			t.Errorf("%s: it is down still", name)
		}
	}
}

func TestBadURLs(t *testing.T) {
	for _, c := range []struct{ url, secret string }{
		{"redis://localhost:6379", "short"},
		{"http://localhost", secret},
		{"", secret},
		{"redis://user:hidden@localhost:6379/x", secret},
		{"redis://user:hidden@[::1?master_name=m", secret},
		{"redis://localhost?addr=a:1&colour=red", secret},
	} {
		if s, err := store.OpenRedis(c.url, c.secret, slog.New(slog.DiscardHandler)); err == nil {
			s.Close()
			t.Errorf("%s is taken", c.url)
		} else if strings.Contains(err.Error(), "hidden") {
			t.Errorf("the password is shown: %v", err)
		}
	}
	for _, url := range []string{
		"rediss://localhost", "redis://:p@localhost:26379/1?master_name=m&addr=b:26379",
		"redis://localhost:1?addr=b:1",
	} {
		s, err := store.OpenRedis(url, secret, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		s.Close()
	}
}

// server runs a redis-server on a TCP port, which a Cluster and Sentinels need.
func server(t *testing.T, port int, args ...string) {
	t.Helper()
	cmd := exec.Command("redis-server", append(args, "--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir())...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// command repeats a Redis command until the answer contains word.
func command(t *testing.T, port int, word string, args ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%v: no %s", args, word), func() bool {
		out, err := exec.Command("redis-cli", append([]string{"-p", fmt.Sprint(port)}, args...)...).CombinedOutput()
		return err == nil && strings.Contains(string(out), word)
	})
}

// works calls each method of a store that reads or writes data.
func works(t *testing.T, s store.Store) {
	t.Helper()
	eventually(t, "it is not used", func() bool { // the first calls look up the servers
		_, err := s.CompareAndSwap(t.Context(), "session/x", 1, 1, []byte("v"), time.Minute)
		return err == nil
	})
	for i := range 20 { // names in many slots of a Cluster
		name := fmt.Sprint("nodes/", i)
		if v, g, err := s.Get(t.Context(), "session/x"); string(v) != "v" || g != 1 || err != nil {
			t.Errorf("%q, %d, %v", v, g, err)
		}
		if total, ok, err := s.SetUsage(t.Context(), name, "a", 1, 2, 2, time.Minute); total != 2 || !ok || err != nil {
			t.Errorf("%d, %v, %v", total, ok, err)
		}
		r := store.Reservation{
			Name: name, Member: "a", Order: 1, Usage: store.BudgetUsage{Reserved: 3}, Want: 3, Limit: 2, TTL: time.Minute, SpentTTL: time.Minute,
		}
		if got, _, err := s.Reserve(t.Context(), r); got != 2 || err != nil {
			t.Errorf("%s: reserved %d, %v", name, got, err)
		}
		if m, err := s.Members(t.Context(), name); m["a"] != 2 || err != nil {
			t.Errorf("%v, %v", m, err)
		}
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	create := []string{"--cluster", "create", "--cluster-yes"}
	var ports []int
	for range 3 { // the minimum for a Cluster
		port := mediatest.FreePort(t)
		server(t, port, "--cluster-enabled", "yes", "--cluster-port", fmt.Sprint(mediatest.FreePort(t)))
		command(t, port, "PONG", "ping")
		create, ports = append(create, fmt.Sprint("127.0.0.1:", port)), append(ports, port)
	}
	if out, err := exec.Command("redis-cli", create...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, port := range ports {
		command(t, port, "cluster_state:ok", "cluster", "info")
	}
	works(t, openClient(t, fmt.Sprintf("redis://127.0.0.1:%d?addr=127.0.0.1:%d", ports[0], ports[1]), secret))
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	master, watcher := mediatest.FreePort(t), mediatest.FreePort(t)
	server(t, master)
	command(t, master, "PONG", "ping")
	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, "sentinel monitor main 127.0.0.1 %d 1\n", master), 0o600); err != nil {
		t.Fatal(err)
	}
	server(t, watcher, conf, "--sentinel")
	command(t, watcher, "PONG", "ping")
	works(t, openClient(t, fmt.Sprintf("redis://127.0.0.1:%d?master_name=main", watcher), secret))
}

// TestTLS connects to a Redis with a certificate of a private CA. A client that does not know the CA fails, and a client
// with the CA in SSL_CERT_DIR succeeds. Go reads that variable once per process, so a second process has it.
func TestTLS(t *testing.T) {
	t.Parallel()
	const variable = "VOXGATE_TEST_REDIS"
	if url := os.Getenv(variable); url != "" {
		works(t, openClient(t, url, secret))
		return
	}
	ca, cert, key := certificates(t)
	port := mediatest.FreePort(t)
	server(
		t,
		mediatest.FreePort(t),
		"--tls-port",
		fmt.Sprint(port),
		"--tls-cert-file",
		cert,
		"--tls-key-file",
		key,
		"--tls-ca-cert-file",
		ca,
		"--tls-auth-clients",
		"no",
	)
	command(t, port, "PONG", "--tls", "--cacert", ca, "ping")
	url := fmt.Sprintf("rediss://127.0.0.1:%d", port)
	err := context.DeadlineExceeded
	// Repeat after a timeout: store.Timeout is short for a TLS handshake on a busy machine.
	for began := time.Now(); errors.Is(err, context.DeadlineExceeded) && time.Since(began) < 20*time.Second; {
		_, err = openClient(t, url, secret).CompareAndSwap(t.Context(), "session/x", 1, 1, []byte("v"), time.Minute)
	}
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); !unknown {
		t.Errorf("without the CA: %v", err)
	}
	second := exec.Command(os.Args[0], "-test.run=^TestTLS$")
	second.Env = append(os.Environ(), variable+"="+url, "SSL_CERT_DIR="+filepath.Dir(ca))
	if out, err := second.CombinedOutput(); err != nil {
		t.Errorf("with the CA: %v\n%s", err, out)
	}
}

// certificates creates a CA, and a certificate for 127.0.0.1 signed by it. It returns the paths of the PEM files.
func certificates(t *testing.T) (ca, cert, key string) {
	t.Helper()
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a CA of our own"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	authorityDER, err := x509.CreateCertificate(rand.Reader, authority, authority, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, authority, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return write("ca.pem", "CERTIFICATE", authorityDER), write("cert.pem", "CERTIFICATE", leafDER), write("key.pem", "PRIVATE KEY", keyDER)
}
