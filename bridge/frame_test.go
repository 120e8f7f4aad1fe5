package bridge_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/bridgetest"
)

// The model takes pictures into account only while it receives speech. A typed turn therefore contains the picture that the
// person shows.
func TestTypedTurnsShowThePicture(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		said := func() string {
			t.Helper()
			all := l.Inputs()
			return all[len(all)-1].Raw
		}
		c.typeText("nothing to see")
		if got := said(); strings.Contains(got, "inlineData") {
			t.Errorf("sent %s", got)
		}
		c.session.SetFrame("image/jpeg", []byte("cat"), true)
		time.Sleep(2 * time.Second)
		c.typeText("what is this?")
		if got := said(); !strings.Contains(got, `{"text":"what is this?"},{"inlineData":{"mimeType":"image/jpeg","data":"Y2F0"}}`) {
			t.Errorf("sent %s", got)
		}
		c.doCommand(bridge.Message{
			Parts:        []byte(`[{"inlineData":{"mimeType":"image/png","data":"AAAA"}},{"text":"and this?"}]`),
			TurnComplete: true,
		})
		if got := said(); strings.Contains(got, "Y2F0") {
			t.Errorf("two pictures: %s", got)
		}
		c.doCommand(bridge.Message{Parts: []byte(`[{"text":"by the way"}]`)})
		if got := said(); strings.Contains(got, "Y2F0") {
			t.Errorf("sent with what wants no answer: %s", got)
		}
		c.session.SetFrame("image/jpeg", []byte("cat"), true)
		c.session.ClearFrame()
		c.typeText("still there?")
		if got := said(); strings.Contains(got, "Y2F0") {
			t.Errorf("an old picture: %s", got)
		}
	})
}

// A picture takes up memory once, not once for each waiting typed turn.
func TestAPictureCostsItsMemoryOnce(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		r.up.SetFailure(0, context.DeadlineExceeded) // the network is gone
		l.DropConnection()
		synctest.Wait()
		c.session.SetFrame("image/png", make([]byte, 8<<20), true)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		const turns = 10
		for i := range turns {
			c.typeText(fmt.Sprint("hello ", i))
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if mb := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) >> 20; mb > 30 {
			t.Errorf("%d short turns typed into a dead link hold %d MB", turns, mb)
		}
		r.up.SetFailure(0, nil)
	})
}

// A turn that is replayed on another connection has its picture again.
func TestATurnThatIsSaidAgainHasItsPicture(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		c.session.SetFrame("image/jpeg", []byte("cat"), true)
		time.Sleep(2 * time.Second)
		c.typeText("what is this?")
		l = r.dropConnection(l)
		time.Sleep(time.Second)
		for _, in := range l.Inputs() {
			if strings.Contains(in.Raw, `{"text":"what is this?"},{"inlineData":{"mimeType":"image/jpeg","data":"Y2F0"}}`) {
				return
			}
		}
		t.Errorf("said %s", l.InputLog())
	})
}
