package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/bridge/pricing"
	"voxgate/internal/testkit/bridgetest"
	"voxgate/store"
	"voxgate/tools"
)

// runTwoGateways runs f with two gateways that share a store and a Gemini, and a caller at the first.
func runTwoGateways(
	t *testing.T, o bridge.SessionRequest, f func(t *testing.T, a, b *harness, c *caller, l *bridgetest.Conn), change ...func(*bridge.Options),
) {
	t.Helper()
	runWithFakeClock(t, func(t *testing.T) {
		shared := store.NewMemory()
		node := func(name string) func(*bridge.Options) {
			return func(o *bridge.Options) { o.Store, o.Node = shared, name }
		}
		a := newHarness(t, append(change, node("a http://a.test"))...)
		b := &harness{t: t, up: a.up}
		b.startHost(a.up.Dial, append(change, node("b http://b.test"))...)
		time.Sleep(5 * time.Second) // time for the gateways to find each other
		c, l := a.connectCaller(o)
		f(t, a, b, c, l)
	})
}

// resumeCaller resumes the conversation of c at this gateway, and checks that it was resumed.
func (h *harness) resumeCaller(c *caller) *caller {
	h.t.Helper()
	c.mu.Lock()
	lastEvent := c.last
	c.mu.Unlock()
	d := h.startCaller(bridge.SessionRequest{Resumable: true, ResumeToken: c.resumeToken(), LastEvent: lastEvent})
	synctest.Wait()
	if all := setups(d); len(all) == 0 || !all[0].Resumed || all[0].SessionID != c.session.ID() {
		h.t.Fatalf("not resumed: %v\n%s", all, h.log.b.String())
	}
	return d
}

// A conversation continues at another gateway, even if the first gateway has not noticed the loss of the caller. It keeps the
// transcript and the newest handle. The first gateway gives it up.
func TestFailoverToAnotherGateway(t *testing.T) {
	runTwoGateways(t, resumable, func(t *testing.T, a, b *harness, c *caller, l *bridgetest.Conn) {
		c.typeText("hello")
		l.SendHandle("h1")
		l.SendContent(`%s,"outputTranscription":{"text":"Good day."}`, bridgetest.VoiceField(7, time.Second))
		l.SendContent(`"turnComplete":true`)
		l.SendHandle("h2")
		time.Sleep(2 * time.Second)
		d := b.resumeCaller(c)
		l2 := a.up.NextConn().AssertSetup("", "h2")
		time.Sleep(300 * time.Millisecond)
		if _, closed := l.ClosedAt(); !closed {
			t.Error("the first gateway is connected still")
		}
		c.awaitEnd(bridge.ErrReplaced)
		l2.SendSetupComplete()
		d.doCommand(bridge.GetContext{})
		if got := lastEvent[bridge.History](d).Entries; len(got) != 2 || got[0].Content != "hello" || got[1].Content != "Good day." ||
			got[1].Interrupted {
			t.Errorf("said was %+v", got)
		}
		e := a.resumeCaller(d) // moves back to the first gateway
		l3 := a.up.NextConn().AssertSetup("", "h2")
		time.Sleep(300 * time.Millisecond)
		if _, closed := l2.ClosedAt(); !closed {
			t.Error("the second gateway is connected still")
		}
		d.awaitEnd(bridge.ErrReplaced)
		if n := len(b.host.Sessions()); n != 0 {
			t.Errorf("the second gateway has %d conversations", n)
		}
		e.checkStillWorks(l3.SendSetupComplete())
	})
}

// If a gateway fails within an answer, the caller is informed at the next gateway. An unanswered question is asked again.
func TestFailoverDuringAnAnswer(t *testing.T) {
	runTwoGateways(t, resumable, func(t *testing.T, a, b *harness, c *caller, l *bridgetest.Conn) {
		c.typeText("tell me a story")
		l.SendContent(`%s,"outputTranscription":{"text":"Once upon a time"}`, bridgetest.VoiceField(7, 4*time.Second))
		l.SendHandle("h1")
		time.Sleep(2 * time.Second)
		d := b.resumeCaller(c)
		a.up.NextConn().AssertSetup("", "h1").SendSetupComplete()
		if i := lastEvent[bridge.Interrupted](d); i.Turn != 1 || i.By != bridge.ByConnectionLoss {
			t.Errorf("got %+v", i)
		}
		d.typeText("and now?")
		synctest.Wait()
		e := a.resumeCaller(d)
		l3 := a.up.NextConn().AssertSetup("", "h1").SendSetupComplete()
		if got := l3.InputLog(); !strings.HasSuffix(got, "typed and now?") {
			t.Errorf("the model was asked %q", got)
		}
		l3.SendAnswer(7, time.Second)
		time.Sleep(2 * time.Second)
		if got := lastEvent[bridge.TurnComplete](e); got.Turn != 2 {
			t.Errorf("turn %d is complete", got.Turn)
		}
	})
}

// The generation of the voice grows over each move. A client that never resets it plays everything, whether the previous
// gateway has failed or has released the conversation.
func TestGenerationGoesOnOverAMove(t *testing.T) {
	runTwoGateways(t, resumable, func(t *testing.T, a, b *harness, c *caller, l *bridgetest.Conn) {
		var generation uint32 // newest generation of the client
		gateways := []*harness{b, a, b}
		for i, next := range gateways {
			l.SendHandle("h")
			c.typeText("tell me a story")
			l.SendVoice(7, 4*time.Second)
			time.Sleep(time.Second)
			c.doCommand(bridge.Interrupt{})
			l.InterruptTurn()
			cut := lastEvent[bridge.Interrupted](c)
			if cut.Generation <= generation {
				t.Errorf("gateway %d has cut generation %d, after %d", i, cut.Generation, generation)
			}
			generation = cut.Generation
			c = next.resumeCaller(c)
			l = a.up.NextConn().SendSetupComplete()
			c.clearLog()
			c.typeText("go on")
			l.SendAnswer(7, time.Second)
			time.Sleep(2 * time.Second)
			for _, f := range c.voiceGenerations() {
				if f < generation {
					t.Fatalf("gateway %d sends frames of generation %d, after %d", i, f, generation)
				}
			}
			if len(c.voiceGenerations()) == 0 {
				t.Error("no frames came")
			}
		}
	})
}

// A gateway that is about to stop asks its callers to move to another gateway, each when neither side speaks. The other
// gateway dials at once for a released conversation.
func TestDrainMovesCallers(t *testing.T) {
	runTwoGateways(t, resumable, func(t *testing.T, a, b *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h1")
		l.SendVoice(7, 3*time.Second)
		time.Sleep(time.Second)
		a.host.BeginDrain()
		time.Sleep(time.Second)
		if n, _ := findEvents[bridge.Move](c); len(n) > 0 {
			t.Error("asked to go in the middle of an answer")
		}
		a.startCaller(resumable).awaitFailure(bridge.CodeBusy)
		l.SendContent(`"turnComplete":true`)
		l.SendHandle("h2")
		time.Sleep(1500 * time.Millisecond)
		if n, _ := findEvents[bridge.Move](c); len(n) != 1 {
			t.Fatalf("asked to go %d times", len(n))
		}
		if _, closed := l.ClosedAt(); closed {
			t.Error("the link was closed before the caller has gone")
		}
		time.Sleep(5 * time.Second)
		if n, _ := findEvents[bridge.Move](c); len(n) != 2 {
			t.Errorf("asked to go %d times", len(n))
		}
		began := time.Now()
		c.leave(nil)
		d := b.resumeCaller(c)
		l2 := a.up.NextConn().AssertSetup("", "h2").SendSetupComplete()
		if closed, _ := l.ClosedAt(); closed.IsZero() || closed.After(l2.OpenedAt) {
			t.Error("dialled before the old link was closed")
		}
		synctest.Wait()
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		c.awaitEnd(nil)
		d.checkStillWorks(l2)
		if n := len(a.host.Sessions()); n != 0 {
			t.Errorf("%d conversations are left", n)
		}
		ended := a.log.find("conversation ended")
		if len(ended) != 1 || ended[0]["reason"] != bridge.ErrMoved.Error() {
			t.Errorf("ended: %v", ended)
		}
	})
}

// A caller that was asked to move may come back to the same gateway.
func TestDrainWithoutAnotherGateway(t *testing.T) {
	runTwoGateways(t, resumable, func(t *testing.T, a, _ *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h1")
		a.host.BeginDrain()
		synctest.Wait()
		c.leave(nil)
		d := a.resumeCaller(c)
		l2 := a.up.NextConn().AssertSetup("", "h1").SendSetupComplete()
		d.checkStillWorks(l2)
	})
}

// Conversations that cannot move stay. Without another gateway, all stay.
func TestDrainKeepsWhatCannotMove(t *testing.T) {
	runTwoGateways(t, bridge.SessionRequest{}, func(t *testing.T, a, b *harness, c *caller, l *bridgetest.Conn) {
		a.host.BeginDrain()
		time.Sleep(time.Minute)
		if n, _ := findEvents[bridge.Move](c); len(n) > 0 {
			t.Error("it was asked to go")
		}
		c.checkStillWorks(l)
		if list, err := b.host.OtherNodes(context.Background()); err != nil || !maps.Equal(list, map[string]int{"a http://a.test": 1}) {
			t.Errorf("the gateways that have conversations are %v, %v", list, err)
		}
		go a.host.Shutdown(context.Background())
		time.Sleep(time.Second)
		if list, err := b.host.OtherNodes(context.Background()); err != nil || len(list) > 0 {
			t.Errorf("there is still %v, %v", list, err)
		}
	})
	converse(t, resumable, func(t *testing.T, a *harness, c *caller, l *bridgetest.Conn) {
		time.Sleep(5 * time.Second)
		a.host.BeginDrain()
		time.Sleep(time.Minute)
		if n, _ := findEvents[bridge.Move](c); len(n) > 0 {
			t.Error("it was asked to go where there is nobody")
		}
		c.checkStillWorks(l)
	}, func(o *bridge.Options) { o.Store, o.Node = store.NewMemory(), "a" })
}

// The client's open calls continue at another gateway, if the handle covers them.
func TestFailoverWithToolCalls(t *testing.T) {
	runTwoGateways(t, bridge.SessionRequest{Resumable: true, Config: []byte(declare("weather"))}, func(t *testing.T, a, b *harness, c *caller,
		l *bridgetest.Conn,
	) {
		l.CallTool("1", "weather", `{}`)
		l.SendHandle("h1")
		l.CallTool("2", "weather", `{"city":"Rome"}`)
		d := b.resumeCaller(c)
		a.up.NextConn().AssertSetup("", "h1")
		if got := lastEvent[bridge.ToolCall](d).Calls; len(got) != 1 || got[0].ID != "1" {
			t.Errorf("asked for %v", got)
		}
		if got := lastEvent[bridge.ToolCallCancellation](d).IDs; len(got) != 1 || got[0] != "2" {
			t.Errorf("took back %v", got)
		}
	})
}

// A recording that is paused stays so at another gateway.
func TestAPausedRecordingMoves(t *testing.T) {
	recorded := resumable
	recorded.Config = []byte(`{"voxgate":{"record":true}}`)
	folder := t.TempDir()
	var end bridge.SessionEnded
	runTwoGateways(t, recorded, func(t *testing.T, a, b *harness, c *caller, l *bridgetest.Conn) {
		c.doCommand(bridge.PauseRecording{On: true})
		c.doCommand(bridge.PauseRecording{})
		c.doCommand(bridge.PauseRecording{On: true})
		l.SendHandle("h1")
		time.Sleep(time.Second)
		d := b.resumeCaller(c)
		a.up.NextConn().AssertSetup("", "h1").SendSetupComplete()
		synctest.Wait()
		if lastEvent[bridge.SetupComplete](d).Recording || d.session.IsRecorded() {
			t.Error("it is recorded")
		}
		d.doCommand(bridge.PauseRecording{})
		if synctest.Wait(); !d.session.IsRecorded() {
			t.Error("it is not recorded any more")
		}
		d.doCommand(bridge.Goodbye{})
		d.awaitEnd(bridge.ErrGoodbye)
		synctest.Wait()
		if len(end.Pauses) != 2 || end.Pauses[0].To.IsZero() || end.Pauses[1].To.Sub(end.Pauses[1].From) < time.Second {
			t.Errorf("the end has the pauses %v", end.Pauses)
		}
	}, func(o *bridge.Options) {
		o.Recordings = folder
		o.Observe = func(_ string, x bridge.Observation) {
			if e, ok := x.(bridge.SessionEnded); ok && !e.HasMoved() {
				end = e
			}
		}
	})
}

// A conversation with limited money does not move to a gateway without the price of its model.
func TestNoMoveWithoutAPrice(t *testing.T) {
	o := resumable
	o.Agent.MaxDollars = 1
	known := pricing.Default
	runTwoGateways(t, o, func(t *testing.T, a, b *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		time.Sleep(time.Second)
		again := o
		again.ResumeToken = c.resumeToken()
		if e := b.startCaller(again).awaitFailure(bridge.CodeForbidden); !strings.Contains(e.Message, "no known price") {
			t.Errorf("%+v", e)
		}
		c.checkStillWorks(l)
	}, func(o *bridge.Options) { o.Prices, known = known, nil })
}

// After a move from another gateway, the agent does not greet again.
func TestNoGreetingAtAnotherGateway(t *testing.T) {
	runTwoGateways(t, resumable, func(t *testing.T, a, b *harness, c *caller, l *bridgetest.Conn) {
		c.typeText("hello")
		l.SendAnswer(7, time.Second)
		l.SendHandle("h")
		time.Sleep(2 * time.Second)
		d := b.startCaller(bridge.SessionRequest{Resumable: true, ResumeToken: c.resumeToken(), GreetingPrompt: "Greet the guest."})
		l2 := a.up.NextConn().SendSetupComplete()
		time.Sleep(300 * time.Millisecond)
		synctest.Wait()
		if err := d.session.Greet(); err != nil {
			t.Fatal(err)
		}
		if time.Sleep(time.Second); l2.InputLog() != "" {
			t.Errorf("the model got %q", l2.InputLog())
		}
	})
}

// Another gateway, too, rejects a resume token of another protocol or person, or of an ended conversation.
func TestTokensOfOtherClientsAreRejectedElsewhere(t *testing.T) {
	opened := bridge.SessionRequest{Resumable: true, Origin: bridge.Origin{Protocol: "web", Identity: "alice"}}
	runTwoGateways(t, opened, func(t *testing.T, a, b *harness, c *caller, _ *bridgetest.Conn) {
		open := opened
		open.ResumeToken, open.ResumeError = c.resumeToken(), bridge.ErrNotResumed
		for _, o := range []bridge.Origin{
			{Protocol: "vox", Identity: "alice"},
			{Protocol: "web", Identity: "bob"},
			{Protocol: "web", Identity: "alice", Key: "another"},
		} {
			other := open
			other.Origin = o
			b.startCaller(other).awaitFailure(bridge.CodeResumptionFailed)
		}
		forged := open
		forged.ResumeToken = open.ResumeToken[:len(open.ResumeToken)-1] + "_"
		b.startCaller(forged).awaitFailure(bridge.CodeResumptionFailed)
		c.doCommand(bridge.Goodbye{})
		c.awaitEnd(bridge.ErrGoodbye)
		b.startCaller(open).awaitFailure(bridge.CodeResumptionFailed)
	})
}

// badStore is a store whose answers take a while, or that does not answer.
type badStore struct {
	store.Store
	mu    sync.Mutex
	delay time.Duration
	gone  bool
}

func (b *badStore) set(delay time.Duration, gone bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.delay, b.gone = delay, gone
}

func (b *badStore) wait() error {
	b.mu.Lock()
	delay, gone := b.delay, b.gone
	b.mu.Unlock()
	if time.Sleep(delay); gone {
		return store.ErrDown
	}
	return nil
}

func (b *badStore) Get(ctx context.Context, name string) ([]byte, uint64, error) {
	if err := b.wait(); err != nil {
		return nil, 0, err
	}
	return b.Store.Get(ctx, name)
}

func (b *badStore) CompareAndSwap(
	ctx context.Context, name string, was, generation uint64, value []byte, ttl time.Duration,
) (uint64, error) {
	if err := b.wait(); err != nil {
		return 0, err
	}
	return b.Store.CompareAndSwap(ctx, name, was, generation, value, ttl)
}

func (b *badStore) Count(ctx context.Context, name, member string, order uint64, n, most int, ttl time.Duration) (int, bool, error) {
	if err := b.wait(); err != nil {
		return 0, false, err
	}
	return b.Store.SetUsage(ctx, name, member, order, n, most, ttl)
}

func (b *badStore) Members(ctx context.Context, name string) (map[string]int, error) {
	if err := b.wait(); err != nil {
		return nil, err
	}
	return b.Store.Members(ctx, name)
}

// A store that takes 200 ms for each answer delays no voice, no audio of the microphone and no event. A store that is
// unreachable for 10 s has no effect on the conversation, and gets the snapshots afterwards.
func TestNothingWaitsForTheStore(t *testing.T) {
	bad := &badStore{Store: store.NewMemory()}
	converse(t, resumable, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		for name, gone := range map[string]bool{"slow": false, "away": true} {
			bad.set(200*time.Millisecond, gone)
			time.Sleep(10 * time.Second)
			c.clearLog()
			said := len(l.ReceivedPCM())
			began := time.Now()
			c.sendAudio(countingPCM(0, 1600))
			if got, took := len(l.ReceivedPCM())-said, time.Since(began); got != 1600 || took > 0 {
				t.Errorf("%s: %d samples went up after %v", name, got, took)
			}
			l.SendContent(`%s`, bridgetest.VoiceField(7, 2*time.Second))
			for i := range 20 { // causes snapshots
				l.SendHandle(fmt.Sprint(name, i))
				c.doCommand(bridge.GetContext{})
				time.Sleep(100 * time.Millisecond)
			}
			l.SendContent(`"turnComplete":true`)
			time.Sleep(time.Second)
			var before time.Duration
			frames := 0
			for _, e := range c.entries() {
				if e.tag == 0 {
					continue
				}
				if frames++; frames > 1 && e.at-before != 20*time.Millisecond {
					t.Fatalf("%s: a frame came %v after the one before", name, e.at-before)
				}
				before = e.at
			}
			if frames != 100 {
				t.Errorf("%s: %d frames were heard", name, frames)
			}
		}
		bad.set(0, false)
		time.Sleep(5 * time.Second)
		b := &harness{t: t, up: r.up}
		b.startHost(r.up.Dial, func(o *bridge.Options) { o.Store, o.Node = bad, "b" })
		b.resumeCaller(c)
		r.up.NextConn()
	}, func(o *bridge.Options) { o.Store, o.Node = bad, "a" })
}

// If the store is unreachable when a caller comes to another gateway, the caller is asked to retry, and then resumes.
func TestResumeWithoutTheStore(t *testing.T) {
	bad := &badStore{Store: store.NewMemory()}
	converse(t, resumable, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		b := &harness{t: t, up: r.up}
		b.startHost(r.up.Dial, func(o *bridge.Options) { o.Store, o.Node = bad, "b" })
		bad.set(0, true)
		if err := b.startCaller(bridge.SessionRequest{
			Resumable:   true,
			ResumeToken: c.resumeToken(),
		}).awaitFailure(bridge.CodeBusy); err.Retry == 0 {
			t.Error("no time to come back")
		}
		fresh, _ := b.connectCaller(resumable)
		fresh.disconnect()
		bad.set(0, false)
		time.Sleep(5 * time.Second) // time to write the pending snapshots
		b.resumeCaller(c)
		r.up.NextConn().AssertSetup("", "h")
	}, func(o *bridge.Options) { o.Store, o.Node = bad, "a" })
}

// If a caller resumes twice at the same time at another gateway, the conversation continues once.
func TestConcurrentFailover(t *testing.T) {
	for _, apart := range []time.Duration{0, 60 * time.Millisecond, 120 * time.Millisecond} { // the store is asked three times in 150 ms
		runWithFakeClock(t, func(t *testing.T) {
			bad := &badStore{Store: store.NewMemory()}
			node := func(name string) func(*bridge.Options) {
				return func(o *bridge.Options) { o.Store, o.Node = bad, name }
			}
			a := newHarness(t, node("a"))
			b := &harness{t: t, up: a.up}
			b.startHost(a.up.Dial, node("b"))
			c, l := a.connectCaller(resumable)
			l.SendHandle("h")
			time.Sleep(time.Second)
			bad.set(50*time.Millisecond, false)
			again := bridge.SessionRequest{Resumable: true, ResumeToken: c.resumeToken(), ResumeError: bridge.ErrNotResumed}
			d := b.startCaller(again)
			time.Sleep(apart)
			e := b.startCaller(again)
			time.Sleep(time.Second)
			if list := b.host.Sessions(); len(list) != 1 || list[0].ID != c.session.ID() {
				t.Errorf("%v apart: %+v run", apart, list)
			}
			if apart == 0 { // either resume may be the second
				select {
				case <-e.over:
					d, e = e, d
				default:
				}
			}
			d.awaitEnd(bridge.ErrReplaced)
			a.up.NextConn().AssertSetup("", "h").SendSetupComplete()
			synctest.Wait()
			a.up.AssertNoDial()
			e.disconnect()
			f := b.resumeByToken(e.resumeToken())
			f.doCommand(bridge.Goodbye{})
			f.awaitEnd(bridge.ErrGoodbye)
			if n := len(b.host.Sessions()); n > 0 {
				t.Errorf("%v apart: %d are left", apart, n)
			}
		})
	}
}

// If Google has refused a model to one gateway for lack of quota, the other gateways do not dial that model for the same time.
func TestQuotaAmongGateways(t *testing.T) {
	runTwoGateways(t, resumable, func(t *testing.T, a, b *harness, _ *caller, _ *bridgetest.Conn) {
		a.up.SetFailure(http.StatusTooManyRequests, nil)
		a.startCaller(resumable).awaitFailure(bridge.CodeBusy)
		time.Sleep(2500 * time.Millisecond) // one gateway reports it within a second, the other reads it within the next
		dialled := a.up.DialCount()
		if err := b.startCaller(resumable).awaitFailure(bridge.CodeBusy); err.Retry < 25*time.Second || err.Retry > 30*time.Second {
			t.Errorf("asked to come back in %v", err.Retry)
		}
		if n := a.up.DialCount(); n != dialled {
			t.Error("Google was asked")
		}
		a.up.SetFailure(0, nil)
		another := resumable
		another.Config = json.RawMessage(`{"model":"gemini-2.5-flash-native-audio-latest"}`)
		b.connectCaller(another) // a model with a separate quota
		b.startCaller(resumable).awaitFailure(bridge.CodeBusy)
		time.Sleep(30 * time.Second)
		b.connectCaller(resumable)
	})
}

// If a gateway fails while it runs a tool, the next gateway answers the call with an error. The question is repeated only if
// the handle does not cover the call. Otherwise the model would call the tool again.
func TestFailoverWithARunningTool(t *testing.T) {
	for name, test := range map[string]struct {
		before, after bool // a handle comes before the call, and after it
		stale         bool // Gemini no longer accepts the newest handle
		lost          bool // a connection was lost at the first gateway
		asks          bool // the question is sent to the model again
		answered      int  // number of answered calls
	}{
		"known":          {after: true, answered: 1},
		"known and lost": {after: true, lost: true, answered: 1},
		"not known":      {before: true, asks: true},
		"a new session":  {after: true, stale: true, asks: true},
	} {
		t.Run(name, func(t *testing.T) {
			runWithFakeClock(t, func(t *testing.T) {
				shared := store.NewMemory()
				forever := tools.Tool{
					Declaration: tools.Declaration{Name: "pay", Description: "Pays"},
					Run: func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
						<-ctx.Done()
						return nil, ctx.Err()
					},
				}
				node := func(name string) func(*bridge.Options) {
					return func(o *bridge.Options) {
						o.Store, o.Node = shared, name
						o.Tools = func() []tools.Tool { return []tools.Tool{forever} }
					}
				}
				a := newHarness(t, node("a"))
				b := &harness{t: t, up: a.up}
				b.startHost(a.up.Dial, node("b"))
				c, l := a.connectCaller(resumable)
				if test.before {
					l.SendHandle("h1")
				}
				c.typeText("Pay my bill.")
				l.CallTool("1", "pay", `{}`)
				if test.after {
					l.SendHandle("h1")
				}
				if test.lost {
					a.dropConnection(l)
				}
				b.resumeCaller(c)
				l2 := a.up.NextConn().AssertSetup("", "h1")
				if test.stale {
					l2.CloseWith(1008, "BidiGenerateContent session not found")
					l2 = a.up.NextConn().AssertSetup("", "")
				}
				l2.SendSetupComplete()
				synctest.Wait()
				got := l2.ToolResponses()
				if len(got) != test.answered || test.answered > 0 && !strings.Contains(got[0], "not known what it has done") {
					t.Errorf("the model got %q", got)
				}
				if said := l2.InputLog(); strings.Contains(said, "typed Pay my bill.") != test.asks {
					t.Errorf("the model was asked %q", said)
				}
			})
		})
	}
}

// Conversations that end while they wait for a slow store are forgotten.
func TestEndsBeforeItIsTold(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		shared := store.NewMemory()
		bad := &badStore{Store: shared, delay: 200 * time.Millisecond}
		r := newHarness(t, func(o *bridge.Options) { o.Store, o.Node = bad, "a" })
		time.Sleep(time.Second)
		var callers []*caller
		for range 40 { // more than are written at once
			c, _ := r.connectCaller(resumable)
			callers = append(callers, c)
		}
		time.Sleep(250 * time.Millisecond)
		for _, c := range callers {
			c.doCommand(bridge.Goodbye{})
		}
		time.Sleep(10 * time.Second)
		for _, c := range callers {
			if _, generation, err := shared.Get(t.Context(), "session/"+c.session.ID()); generation != 0 || err != nil {
				t.Errorf("%s is still in the store: generation %d, %v", c.session.ID(), generation, err)
			}
		}
	})
}

// A conversation that the backend has ended while the store does not answer does not come back: not here, and at no
// other gateway once the store responds again.
func TestEndedWhileTheStoreIsAway(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		shared := store.NewMemory()
		bad := &badStore{Store: shared}
		a := newHarness(t, func(o *bridge.Options) { o.Store, o.Node = bad, "a http://a.test" })
		b := &harness{t: t, up: a.up}
		b.startHost(a.up.Dial, func(o *bridge.Options) { o.Store, o.Node = shared, "b http://b.test" })
		c, l := a.connectCaller(resumable)
		l.SendHandle("h")
		time.Sleep(time.Second)
		bad.set(0, true)
		c.doCommand(bridge.Goodbye{})
		c.awaitEnd(bridge.ErrGoodbye)
		time.Sleep(time.Second)
		bad.set(0, false)
		back := bridge.SessionRequest{Resumable: true, ResumeToken: c.resumeToken(), ResumeError: bridge.ErrNotResumed}
		a.startCaller(back).awaitFailure(bridge.CodeResumptionFailed)
		time.Sleep(6 * time.Second) // the renewal
		b.startCaller(back).awaitFailure(bridge.CodeResumptionFailed)
		if _, generation, err := shared.Get(t.Context(), "session/"+c.session.ID()); generation != 0 || err != nil {
			t.Errorf("the store has generation %d of it, %v", generation, err)
		}
	})
}

// swaps is a store that counts the first writes of conversations.
type swaps struct {
	store.Store
	n atomic.Int32
}

func (s *swaps) CompareAndSwap(
	ctx context.Context, name string, was, generation uint64, value []byte, ttl time.Duration,
) (uint64, error) {
	if value != nil {
		s.n.Add(1)
	}
	return s.Store.CompareAndSwap(ctx, name, was, generation, value, ttl)
}

// If no other gateway can continue a conversation, only the name of its gateway is written to the store, once.
func TestWhatCannotMoveIsWrittenOnce(t *testing.T) {
	for name, test := range map[string]struct {
		open bridge.SessionRequest
		most int32
	}{
		"telephone": {bridge.SessionRequest{Tools: []tools.Tool{}}, 1},
		"VOX":       {bridge.SessionRequest{Resumable: true, EndpointState: 1}, 1},
		"browser":   {bridge.SessionRequest{Resumable: true}, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			counted := &swaps{Store: store.NewMemory()}
			converse(t, test.open, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
				for range 5 {
					c.typeText("hello")
					l.SendHandle("h")
					l.SendAnswer(7, time.Second)
					time.Sleep(4 * time.Second)
				}
				if n := counted.n.Load(); n == 0 || n > test.most || test.most > 1 && n < 5 {
					t.Errorf("%d snapshots were written", n)
				}
				if node := r.host.FindNode(t.Context(), c.session.ID()); node != "a http://a.test" {
					t.Errorf("it is at %q", node)
				}
			}, func(o *bridge.Options) { o.Store, o.Node = counted, "a http://a.test" })
		})
	}
}
