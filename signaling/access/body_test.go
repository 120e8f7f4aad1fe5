package access

import (
	"errors"
	"io"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
)

// Bytes of bodies count for the gateway, an address and a key, until the bodies are closed.
func TestBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := New(Options{
			Limits: Limits{BodyMegabytes: 5, BodyMegabytesPerAddress: 3, BodyMegabytesPerKey: 4}, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		body := func(address, key string, size int) io.ReadCloser {
			v := &Client{gate: g, address: netip.MustParseAddr(address), key: key}
			return v.CountedBody(httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("a", size))))
		}
		reads := func(b io.ReadCloser, want bool) {
			t.Helper()
			_, err := io.Copy(io.Discard, b)
			var e *bridge.Error
			if (err == nil) != want || err != nil && (!errors.As(err, &e) || RefusalStatusOrZero(e) != 503 || e.Retry <= 0) {
				t.Errorf("read: %v", err)
			}
			if err != nil {
				b.Close()
			}
		}
		const mb = 1 << 20
		first := body("198.51.100.7", "shop", 2*mb)
		reads(first, true)
		reads(body("198.51.100.7", "", 2*mb), false) // the address
		second := body("198.51.100.8", "shop", 2*mb)
		reads(second, true)
		reads(body("198.51.100.9", "shop", mb), false) // the key
		reads(body("198.51.100.9", "", 2*mb), false)   // all
		reads(body("198.51.100.7", "shop", smallBody), true)
		began := time.Now()
		time.AfterFunc(time.Second, func() { first.Close() })
		third := body("198.51.100.7", "", 2*mb)
		reads(third, true)
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("waited %v", waited)
		}
		for _, b := range []io.ReadCloser{first, second, third} {
			b.Close()
		}
		for s, u := range g.usages {
			if u.bodies != 0 {
				t.Errorf("%v has %d bytes", s, u.bodies)
			}
		}
	})
}

// TestReservedRoomNeedsAPace lets other clients reserve all the room and send their bodies at some rate, while one
// client sends 1 MB.
func TestReservedRoomNeedsAPace(t *testing.T) {
	const mb = 1 << 20
	for name, test := range map[string]struct {
		pace   int // bytes a second of each other client, after the first 70,000
		key    string
		waits  time.Duration // at most
		served bool
	}{
		"nothing":             {0, "", 2500 * time.Millisecond, true},
		"nothing, one key":    {0, "shop", 2500 * time.Millisecond, true},
		"a byte a second":     {1, "", 2500 * time.Millisecond, true},
		"32 KB a second":      {32 << 10, "", 2500 * time.Millisecond, true},
		"1 MB a second":       {mb, "", 4 * time.Second, true},
		"100 KB a second":     {100 << 10, "", 5 * time.Second, false}, // like a slow line: it keeps its reservation
		"1 MB a second, keys": {mb, "shop", 4 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, err := New(Options{
					Limits: Limits{BodyMegabytes: 9, BodyMegabytesPerAddress: 6, BodyMegabytesPerKey: 9}, Logger: slog.New(slog.DiscardHandler),
				})
				if err != nil {
					t.Fatal(err)
				}
				defer g.Close()
				send := func(address string, promised int) (b io.ReadCloser, from *io.PipeReader, to *io.PipeWriter) {
					from, to = io.Pipe()
					r := httptest.NewRequest("POST", "/", from)
					r.ContentLength = int64(promised)
					v := &Client{gate: g, address: netip.MustParseAddr(address), key: test.key}
					return v.CountedBody(r), from, to
				}
				over := make(chan struct{})
				ended := make(chan error, 3)
				for _, address := range []string{"198.51.100.1", "198.51.100.2", "198.51.100.3"} {
					b, from, to := send(address, 3*mb)
					go func() {
						_, err := io.Copy(io.Discard, b)
						b.Close()
						from.Close()
						ended <- err
					}()
					go func() {
						defer func() { _ = to.CloseWithError(io.ErrUnexpectedEOF) }()
						_, _ = to.Write(make([]byte, 70_000))
						sent, step := 70_000, max(test.pace/10, 1)
						for test.pace > 0 && sent < 3*mb {
							select {
							case <-time.After(100 * time.Millisecond):
							case <-over:
								return
							}
							n := min(step, 3*mb-sent)
							_, _ = to.Write(make([]byte, n))
							sent += n
						}
						if sent == 3*mb {
							to.Close()
						}
						<-over
					}()
				}
				time.Sleep(time.Second)
				began := time.Now()
				b, from, to := send("203.0.113.9", mb)
				go func() { _, _ = to.Write(make([]byte, mb)); to.Close() }()
				_, err = io.Copy(io.Discard, b)
				if waited := time.Since(began); (err == nil) != test.served || waited > test.waits {
					t.Errorf("after %v: %v", waited, err)
				}
				b.Close()
				from.Close()
				close(over)
				for range 3 {
					if err := <-ended; err == nil && test.pace < 64<<10 {
						t.Error("a body without a pace was read to its end")
					}
				}
				for s, u := range g.usages {
					if u.bodies != 0 || u.bodyWaits != 0 {
						t.Errorf("%v has %d bytes, %d waits", s, u.bodies, u.bodyWaits)
					}
				}
				if len(g.bodies) > 0 {
					t.Errorf("%d bodies are left", len(g.bodies))
				}
			})
		})
	}
}

// TestBodiesThatWaitAreBounded sends more bodies from one address than there is room for: a few wait, the others are
// rejected at once.
func TestBodiesThatWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := New(Options{
			Limits: Limits{BodyMegabytes: 8, BodyMegabytesPerAddress: 2, BodyMegabytesPerKey: 8}, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		v := &Client{gate: g, address: netip.MustParseAddr("198.51.100.7")}
		body := func() io.ReadCloser {
			return v.CountedBody(httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("a", 2<<20))))
		}
		first := body()
		if _, err := io.Copy(io.Discard, first); err != nil {
			t.Fatal(err)
		}
		waited := make(chan time.Duration, 100)
		for range 100 {
			go func() {
				began, b := time.Now(), body()
				if _, err := io.Copy(io.Discard, b); err == nil {
					t.Error("there was room")
				}
				b.Close()
				waited <- time.Since(began)
			}()
		}
		atOnce := 0
		for range 100 {
			if <-waited == 0 {
				atOnce++
			}
		}
		if atOnce != 92 {
			t.Errorf("%d were refused at once", atOnce)
		}
		first.Close()
	})
}
