package bridge_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
)

// A camera gives a picture a second, but the model is shown one only when it shows something new, or while the person
// speaks; never more than one a second, and the newest.
func TestPicturesAreSentWhenTheyMatter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.plain()
		expect := func(want ...string) {
			t.Helper()
			if got := l.Pictures(); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("the model saw %v, want %v", got, want)
			}
		}
		show := func(name string, changed bool) { c.session.SetFrame("image/jpeg", []byte(name), changed) }
		show("1", false)
		expect("1") // the first is always new
		for i := range 10 {
			show(fmt.Sprint("same", i), false)
			time.Sleep(time.Second)
		}
		expect("1")
		show("2", true)
		show("3", true)
		show("4", false) // shows what 3 did
		expect("1", "4")
		time.Sleep(50 * time.Millisecond)
		for i := range 30 { // a screen that plays a film
			show(fmt.Sprint("film", i), true)
			time.Sleep(100 * time.Millisecond)
		}
		expect("1", "4", "film9", "film19", "film29")
		time.Sleep(5 * time.Second)
		show("5", false)
		c.talks(500 * time.Millisecond)
		expect("1", "4", "film9", "film19", "film29", "5")
		show("6", false)
		c.talks(1500 * time.Millisecond)
		expect("1", "4", "film9", "film19", "film29", "5", "6")
		c.quiet(time.Second)
		show("7", true)
		c.session.ClearFrame()
		time.Sleep(5 * time.Second)
		if got := l.Pictures(); len(got) > 8 { // 7 may have gone at once
			t.Errorf("the model saw %v", got)
		}
	})
}

// Who types is not heard, and the model looks only while it hears: what the person shows goes with what is typed.
func TestTypedTurnsShowThePicture(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.plain()
		said := func() string {
			t.Helper()
			all := l.Inputs()
			return all[len(all)-1].Raw
		}
		c.typed("nothing to see")
		if got := said(); strings.Contains(got, "inlineData") {
			t.Errorf("sent %s", got)
		}
		c.session.SetFrame("image/jpeg", []byte("cat"), true)
		time.Sleep(2 * time.Second)
		c.typed("what is this?")
		if got := said(); !strings.Contains(got, `{"text":"what is this?"},{"inlineData":{"mimeType":"image/jpeg","data":"Y2F0"}}`) {
			t.Errorf("sent %s", got)
		}
		c.do(bridge.Message{Parts: []byte(`[{"inlineData":{"mimeType":"image/png","data":"AAAA"}},{"text":"and this?"}]`), TurnComplete: true})
		if got := said(); strings.Contains(got, "Y2F0") {
			t.Errorf("two pictures: %s", got)
		}
		c.do(bridge.Message{Parts: []byte(`[{"text":"by the way"}]`)})
		if got := said(); strings.Contains(got, "Y2F0") {
			t.Errorf("sent with what wants no answer: %s", got)
		}
		for _, away := range []func(){
			func() { time.Sleep(11 * time.Second) },
			func() { c.session.SetFrame("image/jpeg", []byte("cat"), true); c.session.ClearFrame() },
		} {
			away()
			c.typed("still there?")
			if got := said(); strings.Contains(got, "Y2F0") {
				t.Errorf("an old picture: %s", got)
			}
		}
	})
}

// A picture costs its memory once, not once for each typed turn that waits.
func TestAPictureCostsItsMemoryOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.plain()
		r.up.Set(0, context.DeadlineExceeded) // the network is gone
		l.Cut()
		synctest.Wait()
		c.session.SetFrame("image/png", make([]byte, 8<<20), true)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		const turns = 10
		for i := range turns {
			c.typed(fmt.Sprint("hello ", i))
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if mb := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) >> 20; mb > 30 {
			t.Errorf("%d short turns typed into a dead link hold %d MB", turns, mb)
		}
		r.up.Set(0, nil)
	})
}

// CLEAR_CONTEXT forgets a picture, too.
func TestClearingForgetsThePicture(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, _ := r.plain()
		c.session.SetFrame("image/jpeg", []byte("cat"), true)
		time.Sleep(2 * time.Second)
		c.do(bridge.ClearContext{})
		l := r.up.Next().Accept()
		synctest.Wait()
		c.typed("hello")
		for _, in := range l.Inputs() {
			if strings.Contains(in.Raw, "Y2F0") {
				t.Errorf("the session that shall know nothing is shown the old picture: %s", in.Raw)
			}
		}
	})
}

// A large picture goes with one turn only, and what turns hold of pictures without an answer is bounded; what was left out
// of a turn that nobody could answer goes with the next one.
func TestLargePicturesGoOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.plain()
		pictured := func() (with []bool) {
			t.Helper()
			for _, in := range l.Inputs() {
				if strings.Contains(in.Raw, "clientContent") {
					with = append(with, strings.Contains(in.Raw, "inlineData"))
				}
			}
			return with
		}
		show := func(n byte, size int) {
			c.session.SetFrame("image/png", bytes.Repeat([]byte{n}, size), true)
			time.Sleep(time.Second)
		}
		show(1, 2<<20)
		c.typed("look")
		c.typed("there")
		show(2, 50<<10)
		c.typed("and now?")
		c.typed("still?")
		if got, want := fmt.Sprint(pictured()), "[true false true true]"; got != want {
			t.Errorf("turns with a picture: %v, want %v", got, want)
		}
		sent := l.Inputs()
		if raw := sent[len(sent)-1].Raw; !strings.Contains(raw, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{2}, 50<<10))) {
			t.Error("another picture was sent")
		}
		l.Answer(7, 100*time.Millisecond)
		time.Sleep(time.Second)
		for n := range byte(4) { // none of which is answered
			show(n, 2<<20)
			c.typed("look")
		}
		if got, want := fmt.Sprint(pictured()[4:]), "[true true false false]"; got != want {
			t.Errorf("unanswered turns with a picture: %v, want %v", got, want)
		}
		l.Answer(7, 100*time.Millisecond)
		time.Sleep(time.Second)
		c.typed("look")
		if got := pictured(); !got[len(got)-1] {
			t.Error("the picture that was left out does not go with the next turn")
		}
	})
}

// What is said again to another link has its picture again.
func TestATurnThatIsSaidAgainHasItsPicture(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.plain()
		l.Handle("h")
		c.session.SetFrame("image/jpeg", []byte("cat"), true)
		time.Sleep(2 * time.Second)
		c.typed("what is this?")
		l.Cut()
		l = r.up.Next().Accept()
		time.Sleep(time.Second)
		for _, in := range l.Inputs() {
			if strings.Contains(in.Raw, `{"text":"what is this?"},{"inlineData":{"mimeType":"image/jpeg","data":"Y2F0"}}`) {
				return
			}
		}
		t.Errorf("said %s", l.Said())
	})
}
