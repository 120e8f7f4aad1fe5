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
		pad, sent := phone.NewKeypad(), make(chan bridge.Command, 8)
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go pad.Run(ctx, slog.New(slog.DiscardHandler), func(c bridge.Command) error {
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
		pad.Press('1')
		time.Sleep(1100 * time.Millisecond)
		pad.Press('2')
		time.Sleep(1100 * time.Millisecond)
		expect(nil)
		time.Sleep(200 * time.Millisecond)
		expect(phone.Pressed("12"))
		pad.Press('7')
		pad.Press('#')
		expect(phone.Pressed("7#"))
	})
}
