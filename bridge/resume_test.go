package bridge_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/bridgetest"
)

var resumable = bridge.SessionRequest{Resumable: true}

// resumeToken returns the newest resume token of a caller.
func (c *caller) resumeToken() string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resume
}

// disconnect makes a caller leave, and waits for the end of Serve.
func (c *caller) disconnect() { c.r.t.Helper(); c.leave(nil); c.awaitEnd(nil); synctest.Wait() }

// resumeByToken starts a caller with a token and checks that the conversation is resumed.
func (h *harness) resumeByToken(token string) *caller {
	h.t.Helper()
	c := h.startCaller(bridge.SessionRequest{Resumable: true, ResumeToken: token})
	synctest.Wait()
	if all := setups(c); len(all) == 0 || !all[0].Resumed {
		h.t.Fatal("not resumed")
	}
	return c
}

// checkNotResumed starts a caller with a token and checks that it gets a new conversation.
func (h *harness) checkNotResumed(token string) *caller {
	h.t.Helper()
	c, _ := h.connectCaller(bridge.SessionRequest{Resumable: true, ResumeToken: token})
	if lastEvent[bridge.SetupComplete](c).Resumed {
		h.t.Fatal("resumed")
	}
	return c
}

func TestResumeByToken(t *testing.T) {
	converse(t, resumable, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		c.disconnect()
		time.Sleep(4 * time.Second)
		d := r.resumeByToken(c.resumeToken())
		if d.session != c.session || d.resumeToken() == c.resumeToken() || d.resumeToken() == "" {
			t.Errorf("session %p then %p, token %q then %q", c.session, d.session, c.resumeToken(), d.resumeToken())
		}
		time.Sleep(10 * time.Second)
		r.up.AssertNoDial()
		if _, closed := l.ClosedAt(); closed {
			t.Error("the link was closed though the caller was back in time")
		}
		d.checkStillWorks(l)
	})
}

func TestTokensRotate(t *testing.T) {
	converse(t, resumable, func(t *testing.T, r *harness, a *caller, _ *bridgetest.Conn) {
		a.disconnect()
		b := r.resumeByToken(a.resumeToken())
		b.disconnect()
		c := r.resumeByToken(a.resumeToken()) // as if the message with b's token was lost: the old token is valid until the new one is used
		c.disconnect()
		r.checkNotResumed(b.resumeToken()).disconnect() // but the token that b got is revoked
		d := r.resumeByToken(c.resumeToken())
		d.disconnect()
		r.checkNotResumed(a.resumeToken())
		r.checkNotResumed("guess")
		r.resumeByToken(d.resumeToken())
	})
}

// A resume token is valid only for the protocol that it was issued for.
func TestATokenIsOfItsDoor(t *testing.T) {
	opened := bridge.SessionRequest{Resumable: true, Origin: bridge.Origin{Protocol: "web"}}
	converse(t, opened, func(t *testing.T, r *harness, c *caller, _ *bridgetest.Conn) {
		c.disconnect()
		other, _ := r.connectCaller(bridge.SessionRequest{ResumeToken: c.resumeToken(), Origin: bridge.Origin{Protocol: "vox"}})
		if lastEvent[bridge.SetupComplete](other).Resumed {
			t.Error("resumed at another door")
		}
		same := r.startCaller(bridge.SessionRequest{Resumable: true, ResumeToken: c.resumeToken(), Origin: bridge.Origin{Protocol: "web"}})
		synctest.Wait()
		if all := setups(same); len(all) == 0 || !all[0].Resumed {
			t.Error("not resumed at its own")
		}
	})
}

func TestResumeOnly(t *testing.T) {
	converse(t, bridge.SessionRequest{Resumable: true}, func(t *testing.T, r *harness, c *caller, _ *bridgetest.Conn) {
		c.disconnect()
		r.startCaller(bridge.SessionRequest{ResumeError: bridge.ErrNotResumed, ResumeToken: "another"}).awaitFailure(bridge.CodeResumptionFailed)
		same := r.startCaller(bridge.SessionRequest{ResumeError: bridge.ErrNotResumed, ResumeToken: c.resumeToken()})
		synctest.Wait()
		if all := setups(same); len(all) == 0 || !all[0].Resumed {
			t.Error("not resumed")
		}
	})
}

func TestNotResumable(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		if token := c.resumeToken(); token != "" {
			t.Errorf("token %q", token)
		}
		c.disconnect()
		if _, closed := l.ClosedAt(); !closed {
			t.Error("the link is open")
		}
	})
}

func TestNewCallerReplacesTheOld(t *testing.T) {
	converse(t, resumable, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendVoice(7, time.Second)
		time.Sleep(490 * time.Millisecond)
		d := r.resumeByToken(c.resumeToken())
		c.awaitEnd(bridge.ErrReplaced)
		l.SendContent(`"turnComplete":true`)
		time.Sleep(2 * time.Second)
		c.checkLog("SetupComplete Speaking 7*25")
		d.checkLog("SetupComplete Speaking 7*25 TurnComplete")
		d.checkStillWorks(l)
		r.up.AssertNoDial()
	})
}

func TestReplacedByTwoAtOnce(t *testing.T) {
	converse(t, resumable, func(t *testing.T, r *harness, a *caller, l *bridgetest.Conn) {
		open := bridge.SessionRequest{Resumable: true, ResumeToken: a.resumeToken()}
		b, c := r.startCaller(open), r.startCaller(open)
		a.awaitEnd(bridge.ErrReplaced)
		synctest.Wait()
		select {
		case <-b.over:
			b, c = c, b
		default:
		}
		c.awaitEnd(bridge.ErrReplaced)
		b.checkStillWorks(l)
	})
}

func TestParkTimeOver(t *testing.T) {
	converse(t, resumable, func(t *testing.T, r *harness, c *caller, _ *bridgetest.Conn) {
		c.disconnect()
		time.Sleep(59 * time.Second)
		d := r.startCaller(bridge.SessionRequest{Resumable: true, ResumeToken: c.resumeToken()})
		r.up.NextConn().SendSetupComplete()
		synctest.Wait()
		if !lastEvent[bridge.SetupComplete](d).Resumed {
			t.Fatal("not resumed")
		}
		d.disconnect()
		time.Sleep(2 * time.Second) // the timers of the first absence would have fired by now
		e := r.resumeByToken(d.resumeToken())
		e.disconnect()
		time.Sleep(61 * time.Second)
		if n := len(r.log.find("conversation ended")); n != 1 {
			t.Errorf("%d conversations have ended", n)
		}
		r.checkNotResumed(e.resumeToken())
	})
}

func TestParkedLinkWithoutHandle(t *testing.T) {
	converse(t, resumable, func(t *testing.T, r *harness, c *caller, _ *bridgetest.Conn) {
		c.disconnect()
		time.Sleep(30 * time.Second)
		d := r.resumeByToken(c.resumeToken())
		m := r.up.NextConn().AssertSetup("", "").SendSetupComplete()
		d.checkLog("SetupComplete ErrorEvent")
		d.checkWarning("may be lost")
		d.checkStillWorks(m)
	})
}

func TestLinkLostWhileParked(t *testing.T) {
	converse(t, resumable, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		c.disconnect()
		l.DropConnection()
		r.up.AssertNoDial()
		time.Sleep(2 * time.Second)
		r.up.AssertNoDial()
		d := r.resumeByToken(c.resumeToken())
		d.checkStillWorks(r.up.NextConn().AssertSetup("", "h").SendSetupComplete())
	})
}

// Events for a caller whose connection was dead unnoticed are sent again after its return: canvases, and the ends of calls.
func TestLostWithADeadConnection(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		let := make(chan struct{})
		r := newHarness(t, deaf(let))
		c, l := r.connectCaller(canvasOn("gemini-3.8-live"))
		l.SendHandle("h")
		l.CallTool("p", "pay", `{}`)
		token := c.resumeToken()
		l.CallTool("q", "show_canvas_tool", schema(question))
		l.CallTool("a", "create_canvas_tool", schema(note))
		l.CallTool("b", "append_to_canvas_tool", schema(note))
		c.sendToolResponse("b", "", `{"shown":true}`)
		l.Send(`{"toolCallCancellation":{"ids":["q"]}}`)
		synctest.Wait()
		close(let)
		synctest.Wait()
		l.AssertToolResponses(`a create_canvas_tool {"shown":true}`, `b append_to_canvas_tool {"shown":true}`, `p pay {"output":"done"}`)
		d := r.resumeByToken(token)
		d.checkLog("SetupComplete ToolCall(a) ToolCallCancellation(q) ToolStatus")
		if end := lastEvent[bridge.ToolStatus](d); end.ID != "p" || end.Status != bridge.StatusDone {
			t.Errorf("%+v", end)
		}
		d.disconnect()
		time.Sleep(30 * time.Second)
		e := r.resumeByToken(d.resumeToken()) // events from before its departure may have been lost, too
		e.checkLog("SetupComplete ToolCall(a) ToolCallCancellation(q) ToolStatus")
		r.up.NextConn().SendSetupComplete()
		time.Sleep(41 * time.Second)
		r.resumeByToken(e.resumeToken()).checkLog("SetupComplete ToolCall(a)")
	})
}

// A returning caller does not get an old cancellation for a new call with the same ID.
func TestLostCancellationOfAnIDUsedAgain(t *testing.T) {
	converse(t, bridge.SessionRequest{Resumable: true, Config: []byte(declare("weather"))}, func(t *testing.T, r *harness, c *caller,
		l *bridgetest.Conn,
	) {
		l.CallTool("a", "weather", `{}`)
		l.Send(`{"toolCallCancellation":{"ids":["a"]}}`)
		synctest.Wait()
		d := r.resumeByToken(c.resumeToken())
		d.checkLog("SetupComplete ToolCallCancellation(a)")
		l.CallTool("a", "weather", `{}`)
		r.resumeByToken(d.resumeToken()).checkLog("SetupComplete ToolCall(a)")
	})
}

// Goodbye ends the conversation for good, also if a busy session processes it together with the caller's departure.
func TestGoodbyeEndsTheConversation(t *testing.T) {
	for range 10 { // a race
		converse(t, resumable, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
			l.StopReading()
			c.doCommand(bridge.Text{Text: "taken"})
			c.doCommand(bridge.Text{Text: "stuck"})
			c.updateConfig(warm("1"))
			if err := c.session.Do(bridge.Goodbye{}); err != nil {
				t.Fatal(err)
			}
			c.leave(nil)
			c.awaitEnd(bridge.ErrGoodbye)
			if err := c.session.Do(bridge.Text{Text: "late"}); err == nil || bridge.AsError(err).Code != bridge.CodeInvalidState {
				t.Errorf("what is said after the end: %v", err)
			}
			l.ContinueReading()
			if _, closed := l.ClosedAt(); !closed {
				t.Error("the link is open")
			}
			if end := r.log.find("conversation ended"); len(end) != 1 || end[0]["reason"] != bridge.ErrGoodbye.Error() {
				t.Errorf("logged %v", end)
			}
			r.up.DiscardDials() // the session may have dialled for the update before it processed the goodbye
			r.checkNotResumed(c.resumeToken())
		})
	}
}

func TestCallerFails(t *testing.T) {
	for _, open := range []bridge.SessionRequest{{}, resumable} {
		converse(t, open, func(t *testing.T, _ *harness, c *caller, _ *bridgetest.Conn) {
			broken := errors.New("too slow")
			c.leave(broken)
			c.awaitEnd(broken)
		})
	}
}

func TestCallerLeavesWhileDialling(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		r := newHarness(t)
		c := r.startCaller(resumable)
		l := r.up.NextConn()
		<-c.seated
		c.disconnect()
		if _, closed := l.ClosedAt(); !closed {
			t.Error("the dial goes on")
		}
		if len(r.log.find("conversation ended")) != 1 {
			t.Error("the conversation goes on")
		}
		for range 100 { // the commands are not processed, but Do returns
			_ = c.session.Do(bridge.Text{Text: "x"})
		}
	})
}

func TestShutdown(t *testing.T) {
	converse(t, resumable, func(t *testing.T, r *harness, live *caller, l *bridgetest.Conn) {
		l.SendVoice(7, 10*time.Second)
		parked, _ := r.connectCaller(resumable)
		parked.disconnect()
		long, _ := r.connectCaller(resumable)
		long.disconnect()
		time.Sleep(10 * time.Second) // without a connection to the model
		again, _ := r.connectCaller(resumable)
		again.disconnect()
		dialling := r.startCaller(bridge.SessionRequest{})
		r.up.NextConn()
		waiting, n := r.plain()
		r.cutNetwork(n)
		begin := r.elapsed()
		if err := r.host.Shutdown(context.Background()); err != nil {
			t.Fatal(err)
		}
		if took := r.elapsed() - begin; took != 0 {
			t.Errorf("took %v", took)
		}
		live.awaitEnd(bridge.ErrShutdown)
		dialling.awaitEnd(bridge.ErrShutdown)
		<-waiting.over
		if _, closed := l.ClosedAt(); !closed {
			t.Error("a link is open")
		}
		if n := len(r.log.find("conversation ended")); n != 6 {
			t.Errorf("%d of 6 conversations have ended", n)
		}
		late := r.startCaller(bridge.SessionRequest{ResumeToken: parked.resumeToken()})
		late.awaitEnd(bridge.ErrShutdown)
	})
}

func TestShutdownDoesNotWaitForEver(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		r := &harness{t: t, up: bridgetest.NewUpstream(t)}
		stuck := make(chan struct{})
		r.startHost(func(context.Context, string, string) (net.Conn, error) { <-stuck; return nil, errors.New("at last") })
		c := r.startCaller(bridge.SessionRequest{})
		<-c.seated
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := r.host.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		close(stuck)
		c.awaitEnd(bridge.ErrShutdown)
	})
}

// Everything at once, at every moment of a dial: nothing hangs.
func TestEndsInEveryState(t *testing.T) {
	for name, end := range map[string]func(*harness, *caller){
		"shutdown": func(r *harness, _ *caller) { _ = r.host.Shutdown(context.Background()) },
		"leaving":  func(_ *harness, c *caller) { c.leave(nil) },
		"goodbye":  func(_ *harness, c *caller) { _ = c.session.Do(bridge.Goodbye{}) },
	} {
		for state, reach := range map[string]func(*harness) *caller{
			"dialling": func(r *harness) *caller { c := r.startCaller(bridge.SessionRequest{}); r.up.NextConn(); return c },
			"live":     func(r *harness) *caller { c, _ := r.plain(); return c },
			"stalled": func(r *harness) *caller {
				c, l := r.plain()
				l.StopReading()
				time.AfterFunc(time.Hour, l.ContinueReading)
				c.sendAudio(countingPCM(0, 16000))
				return c
			},
			"talking": func(r *harness) *caller { c, l := r.plain(); l.SendVoice(7, 20*time.Second); return c },
			"waiting": func(r *harness) *caller {
				c, l := r.plain()
				r.cutNetwork(l)
				return c
			},
			"updating": func(r *harness) *caller {
				c, _ := r.plain()
				c.updateConfig(warm("1"))
				r.up.NextConn()
				return c
			},
			"calling": func(r *harness) *caller {
				c, l := r.connectCaller(bridge.SessionRequest{Config: []byte(declare("weather"))})
				l.CallTools("a weather")
				return c
			},
		} {
			t.Run(name+" while "+state, func(t *testing.T) {
				runWithFakeClock(t, func(t *testing.T) {
					r := newHarness(t)
					c := reach(r)
					<-c.seated
					begin := r.elapsed()
					end(r, c)
					select {
					case <-c.over:
					case <-time.After(time.Minute):
						t.Fatal("hangs")
					}
					if took := r.elapsed() - begin; took > 2*time.Second {
						t.Errorf("took %v", took)
					}
					time.Sleep(2 * time.Hour)
				})
			})
		}
	}
}

// Voice that comes without a caller, or is still queued when the caller leaves, is dropped: it would be outdated after the
// return. The end of such a turn is not reported to the returning caller.
func TestVoiceOfALostCaller(t *testing.T) {
	for name, test := range map[string]struct {
		before, away, after func(l *bridgetest.Conn)
		first               string
	}{
		"said while nobody is there": {nil, func(l *bridgetest.Conn) { l.SendAnswer(7, 2*time.Second) }, nil, "SetupComplete"},
		"playing":                    {func(l *bridgetest.Conn) { l.SendAnswer(7, 2*time.Second) }, nil, nil, "SetupComplete Speaking 7*50"},
		"complete after the return": {nil, func(l *bridgetest.Conn) { l.SendVoice(7, 2*time.Second) }, func(l *bridgetest.Conn) {
			l.CompleteTurn()
		}, "SetupComplete"},
	} {
		t.Run(name, func(t *testing.T) {
			converse(t, resumable, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
				do := func(f func(*bridgetest.Conn), then time.Duration) {
					if f != nil {
						f(l)
					}
					time.Sleep(then)
				}
				do(test.before, 990*time.Millisecond)
				c.disconnect()
				do(test.away, time.Second)
				d := r.resumeByToken(c.resumeToken())
				do(test.after, 3*time.Second)
				c.checkLog(test.first)
				d.checkLog("SetupComplete")
				d.checkStillWorks(l)
			})
		})
	}
}

// A question from before the loss of the caller is answered after the caller's return.
func TestAnsweredAfterTheReturn(t *testing.T) {
	for name, test := range map[string]struct {
		ask      bridge.Command
		goes     func(l *bridgetest.Conn)
		answered func(c *caller) int
	}{
		"CLEAR_CONTEXT": {bridge.ClearContext{}, func(l *bridgetest.Conn) { l.SendSetupComplete() }, func(c *caller) int {
			seen, _ := findEvents[bridge.History](c)
			return len(seen)
		}},
		"a refused update": {
			bridge.UpdateConfig{Config: []byte(warm("0.3"))},
			func(l *bridgetest.Conn) { l.CloseWith(1007, "no") },
			func(c *caller) int {
				seen, _ := findEvents[bridge.SetupFailed](c)
				return len(seen)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			converse(t, resumable, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
				l.SendHandle("h")
				c.doCommand(test.ask)
				m := r.up.NextConn()
				c.disconnect()
				test.goes(m)
				d := r.resumeByToken(c.resumeToken())
				time.Sleep(time.Second)
				if n := test.answered(d); n != 1 {
					t.Errorf("%d answers", n)
				}
				r.up.DiscardDials()
			})
		})
	}
}
