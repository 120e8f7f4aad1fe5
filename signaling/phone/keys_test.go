package phone_test

import (
	"context"
	"log/slog"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/signaling/phone"
)

// A number is over with #, after 64 keys, or when nothing more is pressed for 1.2 s.
func TestKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pressed, sent := make(chan byte), make(chan bridge.Command, 8)
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go phone.Keys(ctx, slog.New(slog.DiscardHandler), pressed, func(c bridge.Command) error {
			sent <- c
			return nil
		})
		expect := func(want bridge.Command) {
			t.Helper()
			synctest.Wait()
			var got bridge.Command
			select {
			case got = <-sent:
			default:
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("sent %v, not %v", got, want)
			}
		}
		pressed <- '1'
		time.Sleep(1100 * time.Millisecond)
		pressed <- '2'
		time.Sleep(1100 * time.Millisecond)
		expect(nil)
		time.Sleep(200 * time.Millisecond)
		expect(phone.Pressed("12"))
		pressed <- '7'
		pressed <- '#'
		expect(phone.Pressed("7#"))
	})
}
