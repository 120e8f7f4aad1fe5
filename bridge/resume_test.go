package bridge_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/bridge/bridgetest"
)

var resumable = bridge.SessionRequest{Resumable: true}

// token is the newest resume token a caller got.
func (c *caller) token() string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resume
}

// leaves has a caller leave, and waits.
func (c *caller) leaves() { c.r.t.Helper(); c.leave(nil); c.ends(nil); synctest.Wait() }

// back starts a caller with a token and checks that the conversation is resumed.
func (r *rig) back(token string) *caller {
	r.t.Helper()
	c := r.join(bridge.SessionRequest{Resumable: true, ResumeToken: token})
	synctest.Wait()
	if all := setups(c); len(all) == 0 || !all[0].Resumed {
		r.t.Fatal("not resumed")
	}
	return c
}

// fresh starts a caller with a token and checks that it gets a new conversation.
func (r *rig) fresh(token string) *caller {
	r.t.Helper()
	c, _ := r.connect(bridge.SessionRequest{Resumable: true, ResumeToken: token})
	if last[bridge.SetupComplete](c).Resumed {
		r.t.Fatal("resumed")
	}
	return c
}

func TestResume(t *testing.T) {
	talk(t, resumable, func(t *testing.T, r *rig, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		c.leaves()
		time.Sleep(4 * time.Second)
		d := r.back(c.token())
		if d.session != c.session || d.token() == c.token() || d.token() == "" {
			t.Errorf("session %p then %p, token %q then %q", c.session, d.session, c.token(), d.token())
		}
		time.Sleep(10 * time.Second)
		r.up.AssertNoDial()
		if _, closed := l.ClosedAt(); closed {
			t.Error("the link was closed though the caller was back in time")
		}
		d.works(l)
	})
}

func TestTokensRotate(t *testing.T) {
	talk(t, resumable, func(t *testing.T, r *rig, a *caller, _ *bridgetest.Conn) {
		a.leaves()
		b := r.back(a.token())
		b.leaves()
		c := r.back(a.token()) // as if b's answer was lost: the old one is good until the new one was used
		c.leaves()
		r.fresh(b.token()).leaves() // but what was given with it is void
		d := r.back(c.token())
		d.leaves()
		r.fresh(a.token())
		r.fresh("guess")
		r.back(d.token())
	})
}

// A token is good at the door that it was given at.
func TestATokenIsOfItsDoor(t *testing.T) {
	opened := bridge.SessionRequest{Resumable: true, Origin: bridge.Origin{Protocol: "web"}}
	talk(t, opened, func(t *testing.T, r *rig, c *caller, _ *bridgetest.Conn) {
		c.leaves()
		other, _ := r.connect(bridge.SessionRequest{ResumeToken: c.token(), Origin: bridge.Origin{Protocol: "vox"}})
		if last[bridge.SetupComplete](other).Resumed {
			t.Error("resumed at another door")
		}
		same := r.join(bridge.SessionRequest{Resumable: true, ResumeToken: c.token(), Origin: bridge.Origin{Protocol: "web"}})
		synctest.Wait()
		if all := setups(same); len(all) == 0 || !all[0].Resumed {
			t.Error("not resumed at its own")
		}
	})
}

func TestResumeOnly(t *testing.T) {
	talk(t, bridge.SessionRequest{Resumable: true}, func(t *testing.T, r *rig, c *caller, _ *bridgetest.Conn) {
		c.leaves()
		r.join(bridge.SessionRequest{ResumeError: bridge.ErrNotResumed, ResumeToken: "another"}).fails(bridge.CodeResumptionFailed)
		same := r.join(bridge.SessionRequest{ResumeError: bridge.ErrNotResumed, ResumeToken: c.token()})
		synctest.Wait()
		if all := setups(same); len(all) == 0 || !all[0].Resumed {
			t.Error("not resumed")
		}
	})
}

func TestNotResumable(t *testing.T) {
	talk(t, bridge.SessionRequest{}, func(t *testing.T, _ *rig, c *caller, l *bridgetest.Conn) {
		if token := c.token(); token != "" {
			t.Errorf("token %q", token)
		}
		c.leaves()
		if _, closed := l.ClosedAt(); !closed {
			t.Error("the link is open")
		}
	})
}

func TestReplaced(t *testing.T) {
	talk(t, resumable, func(t *testing.T, r *rig, c *caller, l *bridgetest.Conn) {
		l.SendVoice(7, time.Second)
		time.Sleep(490 * time.Millisecond)
		d := r.back(c.token())
		c.ends(bridge.ErrReplaced)
		l.SendContent(`"turnComplete":true`)
		time.Sleep(2 * time.Second)
		c.sees("SetupComplete Speaking 7*25")
		d.sees("SetupComplete Speaking 7*25 TurnComplete")
		d.works(l)
		r.up.AssertNoDial()
	})
}

func TestReplacedByTwoAtOnce(t *testing.T) {
	talk(t, resumable, func(t *testing.T, r *rig, a *caller, l *bridgetest.Conn) {
		open := bridge.SessionRequest{Resumable: true, ResumeToken: a.token()}
		b, c := r.join(open), r.join(open)
		a.ends(bridge.ErrReplaced)
		synctest.Wait()
		select {
		case <-b.over:
			b, c = c, b
		default:
		}
		c.ends(bridge.ErrReplaced)
		b.works(l)
	})
}

func TestParkTimeOver(t *testing.T) {
	talk(t, resumable, func(t *testing.T, r *rig, c *caller, _ *bridgetest.Conn) {
		c.leaves()
		time.Sleep(59 * time.Second)
		d := r.join(bridge.SessionRequest{Resumable: true, ResumeToken: c.token()})
		r.up.NextConn().AcceptSetup()
		synctest.Wait()
		if !last[bridge.SetupComplete](d).Resumed {
			t.Fatal("not resumed")
		}
		d.leaves()
		time.Sleep(2 * time.Second) // the timers of the first time are over now
		e := r.back(d.token())
		e.leaves()
		time.Sleep(61 * time.Second)
		if n := len(r.log.find("conversation ended")); n != 1 {
			t.Errorf("%d conversations have ended", n)
		}
		r.fresh(e.token())
	})
}

func TestParkedLinkWithoutHandle(t *testing.T) {
	talk(t, resumable, func(t *testing.T, r *rig, c *caller, _ *bridgetest.Conn) {
		c.leaves()
		time.Sleep(30 * time.Second)
		d := r.back(c.token())
		m := r.up.NextConn().AssertDialledFor("", "").AcceptSetup()
		d.sees("SetupComplete ErrorEvent")
		d.warned("may be lost")
		d.works(m)
	})
}

func TestLinkLostWhileParked(t *testing.T) {
	talk(t, resumable, func(t *testing.T, r *rig, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		c.leaves()
		l.DropConnection()
		r.up.AssertNoDial()
		time.Sleep(2 * time.Second)
		r.up.AssertNoDial()
		d := r.back(c.token())
		d.works(r.up.NextConn().AssertDialledFor("", "h").AcceptSetup())
	})
}

// What was sent to a caller whose network was dead, though nobody knew, is sent again to the one that is back: canvases, and the
// ends of calls.
func TestLostWithADeadConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		let := make(chan struct{})
		r := newRig(t, deaf(let))
		c, l := r.connect(canvasOn("gemini-3.8-live"))
		l.SendHandle("h")
		l.CallTool("p", "pay", `{}`)
		token := c.token()
		l.CallTool("q", "show_canvas_tool", schema(question))
		l.CallTool("a", "create_canvas_tool", schema(note))
		l.CallTool("b", "append_to_canvas_tool", schema(note))
		c.respond("b", "", `{"shown":true}`)
		l.Send(`{"toolCallCancellation":{"ids":["q"]}}`)
		synctest.Wait()
		close(let)
		synctest.Wait()
		l.AssertToolResponses(`a create_canvas_tool {"shown":true}`, `b append_to_canvas_tool {"shown":true}`, `p pay {"output":"done"}`)
		d := r.back(token)
		d.sees("SetupComplete ToolCall(a) ToolCallCancellation(q) ToolStatus")
		if end := last[bridge.ToolStatus](d); end.ID != "p" || end.Status != bridge.StatusDone {
			t.Errorf("%+v", end)
		}
		d.leaves()
		time.Sleep(30 * time.Second)
		e := r.back(d.token()) // what came before it left may have been lost as well
		e.sees("SetupComplete ToolCall(a) ToolCallCancellation(q) ToolStatus")
		r.up.NextConn().AcceptSetup()
		time.Sleep(41 * time.Second)
		r.back(e.token()).sees("SetupComplete ToolCall(a)")
	})
}

// A call that has the id of one that was cancelled is not cancelled when the caller is back.
func TestLostCancellationOfAnIDUsedAgain(t *testing.T) {
	talk(t, bridge.SessionRequest{Resumable: true, Config: []byte(declare("weather"))}, func(t *testing.T, r *rig, c *caller,
		l *bridgetest.Conn,
	) {
		l.CallTool("a", "weather", `{}`)
		l.Send(`{"toolCallCancellation":{"ids":["a"]}}`)
		synctest.Wait()
		d := r.back(c.token())
		d.sees("SetupComplete ToolCallCancellation(a)")
		l.CallTool("a", "weather", `{}`)
		r.back(d.token()).sees("SetupComplete ToolCall(a)")
	})
}

// The goodbye ends the conversation for good, also when a busy session finds it together with the caller's departure.
func TestGoodbye(t *testing.T) {
	for range 10 { // a race
		talk(t, resumable, func(t *testing.T, r *rig, c *caller, l *bridgetest.Conn) {
			l.StopReading()
			c.do(bridge.Text{Text: "taken"})
			c.do(bridge.Text{Text: "stuck"})
			c.update(warm("1"))
			if err := c.session.Do(bridge.Goodbye{}); err != nil {
				t.Fatal(err)
			}
			c.leave(nil)
			c.ends(bridge.ErrGoodbye)
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
			r.up.DiscardDials() // the update may have been dialled before the goodbye was found
			r.fresh(c.token())
		})
	}
}

func TestCallerFails(t *testing.T) {
	for _, open := range []bridge.SessionRequest{{}, resumable} {
		talk(t, open, func(t *testing.T, _ *rig, c *caller, _ *bridgetest.Conn) {
			broken := errors.New("too slow")
			c.leave(broken)
			c.ends(broken)
		})
	}
}

func TestCallerLeavesWhileDialling(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c := r.join(resumable)
		l := r.up.NextConn()
		<-c.seated
		c.leaves()
		if _, closed := l.ClosedAt(); !closed {
			t.Error("the dial goes on")
		}
		if len(r.log.find("conversation ended")) != 1 {
			t.Error("the conversation goes on")
		}
		for range 100 { // taken by nobody, but it returns
			_ = c.session.Do(bridge.Text{Text: "x"})
		}
	})
}

func TestShutdown(t *testing.T) {
	talk(t, resumable, func(t *testing.T, r *rig, live *caller, l *bridgetest.Conn) {
		l.SendVoice(7, 10*time.Second)
		parked, _ := r.connect(resumable)
		parked.leaves()
		long, _ := r.connect(resumable)
		long.leaves()
		time.Sleep(10 * time.Second) // without a link
		again, _ := r.connect(resumable)
		again.leaves()
		dialling := r.join(bridge.SessionRequest{})
		r.up.NextConn()
		waiting, n := r.plain()
		r.cutOff(n)
		begin := r.since()
		if err := r.host.Shutdown(context.Background()); err != nil {
			t.Fatal(err)
		}
		if took := r.since() - begin; took != 0 {
			t.Errorf("took %v", took)
		}
		live.ends(bridge.ErrShutdown)
		dialling.ends(bridge.ErrShutdown)
		<-waiting.over
		if _, closed := l.ClosedAt(); !closed {
			t.Error("a link is open")
		}
		if n := len(r.log.find("conversation ended")); n != 6 {
			t.Errorf("%d of 6 conversations have ended", n)
		}
		late := r.join(bridge.SessionRequest{ResumeToken: parked.token()})
		late.ends(bridge.ErrShutdown)
	})
}

func TestShutdownDoesNotWaitForEver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := &rig{t: t, up: bridgetest.NewUpstream(t)}
		stuck := make(chan struct{})
		r.serve(func(context.Context, string, string) (net.Conn, error) { <-stuck; return nil, errors.New("at last") })
		c := r.join(bridge.SessionRequest{})
		<-c.seated
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := r.host.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		close(stuck)
		c.ends(bridge.ErrShutdown)
	})
}

// Everything at once, at every moment of a dial: nothing hangs.
func TestEndsInEveryState(t *testing.T) {
	for name, end := range map[string]func(*rig, *caller){
		"shutdown": func(r *rig, _ *caller) { _ = r.host.Shutdown(context.Background()) },
		"leaving":  func(_ *rig, c *caller) { c.leave(nil) },
		"goodbye":  func(_ *rig, c *caller) { _ = c.session.Do(bridge.Goodbye{}) },
	} {
		for state, reach := range map[string]func(*rig) *caller{
			"dialling": func(r *rig) *caller { c := r.join(bridge.SessionRequest{}); r.up.NextConn(); return c },
			"live":     func(r *rig) *caller { c, _ := r.plain(); return c },
			"stalled": func(r *rig) *caller {
				c, l := r.plain()
				l.StopReading()
				time.AfterFunc(time.Hour, l.ContinueReading)
				c.speak(count(0, 16000))
				return c
			},
			"talking": func(r *rig) *caller { c, l := r.plain(); l.SendVoice(7, 20*time.Second); return c },
			"waiting": func(r *rig) *caller {
				c, l := r.plain()
				r.cutOff(l)
				return c
			},
			"updating": func(r *rig) *caller {
				c, _ := r.plain()
				c.update(warm("1"))
				r.up.NextConn()
				return c
			},
			"calling": func(r *rig) *caller {
				c, l := r.connect(bridge.SessionRequest{Config: []byte(declare("weather"))})
				l.CallTools("a weather")
				return c
			},
		} {
			t.Run(name+" while "+state, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					r := newRig(t)
					c := reach(r)
					<-c.seated
					begin := r.since()
					end(r, c)
					select {
					case <-c.over:
					case <-time.After(time.Minute):
						t.Fatal("hangs")
					}
					if took := r.since() - begin; took > 2*time.Second {
						t.Errorf("took %v", took)
					}
					time.Sleep(2 * time.Hour)
				})
			})
		}
	}
}

// What was said to nobody, or is still to be played when the caller leaves, would be stale for who comes back. Nor is the end
// of such a turn announced.
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
			talk(t, resumable, func(t *testing.T, r *rig, c *caller, l *bridgetest.Conn) {
				do := func(f func(*bridgetest.Conn), then time.Duration) {
					if f != nil {
						f(l)
					}
					time.Sleep(then)
				}
				do(test.before, 990*time.Millisecond)
				c.leaves()
				do(test.away, time.Second)
				d := r.back(c.token())
				do(test.after, 3*time.Second)
				c.sees(test.first)
				d.sees("SetupComplete")
				d.works(l)
			})
		})
	}
}

// What was asked before its caller was lost is answered when it is back.
func TestAnsweredAfterTheReturn(t *testing.T) {
	for name, test := range map[string]struct {
		ask      bridge.Command
		goes     func(l *bridgetest.Conn)
		answered func(c *caller) int
	}{
		"CLEAR_CONTEXT": {bridge.ClearContext{}, func(l *bridgetest.Conn) { l.AcceptSetup() }, func(c *caller) int {
			seen, _ := find[bridge.History](c)
			return len(seen)
		}},
		"a refused update": {
			bridge.UpdateConfig{Config: []byte(warm("0.3"))},
			func(l *bridgetest.Conn) { l.CloseWith(1007, "no") },
			func(c *caller) int {
				seen, _ := find[bridge.SetupFailed](c)
				return len(seen)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			talk(t, resumable, func(t *testing.T, r *rig, c *caller, l *bridgetest.Conn) {
				l.SendHandle("h")
				c.do(test.ask)
				m := r.up.NextConn()
				c.leaves()
				test.goes(m)
				d := r.back(c.token())
				time.Sleep(time.Second)
				if n := test.answered(d); n != 1 {
					t.Errorf("%d answers", n)
				}
				r.up.DiscardDials()
			})
		})
	}
}
