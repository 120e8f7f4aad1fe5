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

// The bytes of bodies count with all, an address and a key, until they are closed.
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
			v := &Visitor{gate: g, address: netip.MustParseAddr(address), key: key}
			return v.Body(httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("a", size))))
		}
		reads := func(b io.ReadCloser, want bool) {
			t.Helper()
			_, err := io.Copy(io.Discard, b)
			var e *bridge.Error
			if (err == nil) != want || err != nil && (!errors.As(err, &e) || Status(e) != 503 || e.Retry <= 0) {
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
		for s, u := range g.shares {
			if u.bodies != 0 {
				t.Errorf("%v has %d bytes", s, u.bodies)
			}
		}
	})
}
