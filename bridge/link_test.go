package bridge_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/bridgetest"
)

func TestLinkLost(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("old")
		l.SendHandle("new")
		l.Send(`{"sessionResumptionUpdate":{"resumable":false}}`) // a resume is not possible while the model generates
		l.SendVoice(7, 2*time.Second)
		time.Sleep(500 * time.Millisecond)
		l.DropConnection()
		m := r.up.NextConn().AssertSetup("", "new").SendSetupComplete()
		time.Sleep(3 * time.Second)
		// The received part of the answer is played to its end. Nothing more of it will come.
		c.checkLog("SetupComplete Speaking 7*100 Interrupted")
		c.checkStillWorks(m)
		m.SendContent(`"modelTurn":{"parts":[{"text":"thoughts"}]}`)
		m.DropConnection()
		c.checkStillWorks(r.up.NextConn().SendSetupComplete())
		if lost := r.log.find("connection lost"); len(lost) != 2 || lost[0]["level"] != "WARN" {
			t.Errorf("logged %v", lost)
		}
	})
}

// Connections that lived long enough do not count as failures, whether they were lost or replaced as planned.
func TestGoodConnectionsResetTheFailureCount(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		for range 5 {
			l.SendHandle("h")
			for range 2 {
				l = r.dropConnection(l)
				synctest.Wait()
			}
			time.Sleep(10 * time.Second)
			l.Send(`{"goAway":{"timeLeft":"50s"}}`)
			l = r.up.NextConn().SendSetupComplete()
			synctest.Wait()
		}
		c.checkStillWorks(l)
	})
}

// The close code of a connection decides whether the conversation goes on.
func TestLinkClosed(t *testing.T) {
	closed := func(code int, reason string) func(*bridgetest.Conn) {
		return func(l *bridgetest.Conn) { l.CloseWith(code, reason) }
	}
	sent := func(frame string) func(*bridgetest.Conn) {
		return func(l *bridgetest.Conn) { l.Send("%s", frame) }
	}
	for name, test := range map[string]struct {
		end  func(*bridgetest.Conn)
		want bridge.Code // code of the conversation's end; "" means that it goes on
	}{
		"quota in words": {closed(1011, "You exceeded your current Quota"), bridge.CodeBusy},
		"quota, sent":    {sent(`{"error":{"code":429,"status":"RESOURCE_EXHAUSTED"}}`), bridge.CodeBusy},
		"refused, sent":  {sent(`{"error":{"code":400,"status":"INVALID_ARGUMENT","message":"no"}}`), bridge.CodeRefused},
		"503, sent":      {sent(`{"error":{"code":503,"status":"UNAVAILABLE"}}`), ""},
		"stale, 1008":    {closed(1008, "BidiGenerateContent session not found"), ""},
		"stale, 1007":    {closed(1007, "Invalid session handle"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
				l.SendHandle("h")
				test.end(l)
				if test.want != "" {
					c.awaitFailure(test.want)
					r.up.AssertNoDial()
					return
				}
				c.checkStillWorks(r.up.NextConn().AssertSetup("", "h").SendSetupComplete())
			})
		})
	}
}

func TestSetupThatIsNeverAnswered(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		r := newHarness(t)
		r.startCaller(bridge.SessionRequest{}).awaitFailure(bridge.CodeConnectionNotEstablished)
		if took := r.elapsed(); took < 30*time.Second || took > 31*time.Second { // three dials
			t.Errorf("after %v", took)
		}
	})
}

// A written answer is a turn, too. The replacement of the connection must not interrupt it.
func TestGoAwayDuringAnAnswerInText(t *testing.T) {
	for _, begin := range []string{`"modelTurn":{"parts":[{"text":"half of "}]}`, bridgetest.VoiceField(7, time.Second)} {
		converse(
			t,
			bridge.SessionRequest{Config: []byte(`{"generationConfig":{"responseModalities":["TEXT"]}}`)},
			func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
				l.SendHandle("h")
				l.SendContent("%s", begin)
				l.Send(`{"goAway":{"timeLeft":"50s"}}`)
				time.Sleep(2 * time.Second)
				r.up.AssertNoDial()
				l.SendContent(`"turnComplete":true`)
				r.up.NextConn().SendSetupComplete()
				c.checkLog("SetupComplete TurnComplete")
			},
		)
	}
}

func TestGoAwayDuringACall(t *testing.T) {
	converse(t, weather, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.CallTools("a weather")
		l.SendHandle("h")
		l.Send(`{"goAway":{"timeLeft":"50s"}}`)
		r.up.AssertNoDial()
		c.sendToolResponse("a", "", `{"x":1}`)
		l.AssertToolResponses(`a weather {"x":1}`)
		l.SendHandle("h2") // this handle covers the tool's answer; the model thinks about it
		time.Sleep(500 * time.Millisecond)
		r.up.AssertNoDial()
		l.SendAnswer(7, time.Second)
		r.up.NextConn().SendSetupComplete()
		time.Sleep(2 * time.Second)
		c.checkLog("SetupComplete ToolCall(a) Speaking 7*50 TurnComplete")
	})
}

// A call was answered, but the connection was lost before the answer was sent. The handle in use does not cover the call.
func TestUnsentAnswerOfAnOlderHandle(t *testing.T) {
	for _, newer := range []bool{false, true} {
		converse(t, weather, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
			l.SendHandle("h")
			l.CallTools("a weather", "b rm")
			l.AssertToolResponses(`b rm {"error":"unknown tool \"rm\""}`)
			if newer {
				l.SendHandle("h2")
			}
			l.StopReading()
			c.doCommand(bridge.Text{Text: "taken"})
			c.doCommand(bridge.Text{Text: "stuck"})
			c.sendToolResponse("a", "", `{"x":1}`)
			m := r.up.NextConn().SendSetupComplete()
			l.ContinueReading()
			if newer {
				m.AssertToolResponses(`a weather {"x":1}`, `b rm {"error":"unknown tool \"rm\""}`) // the session may lack the error of b
			} else {
				m.AssertToolResponses()
			}
			time.Sleep(10 * time.Second)
			// The model has answered neither of the texts.
			if got := m.InputLog(); newer && got != "tool, tool, text taken, text stuck" || !newer && got != "text taken, text stuck" {
				t.Errorf("%q came", got)
			}
		})
	}
}

// After three rejections of the handle, a fresh session begins, but not within the time of a short disturbance. If the
// network has cut a connection, the server may consider it open for a while and reject the handle, which is then kept.
func TestRefusedHandle(t *testing.T) {
	internal := func(l *bridgetest.Conn) { l.CloseWith(1011, "Internal error encountered.") }
	for name, test := range map[string]struct {
		end   func(*bridgetest.Conn)
		lasts time.Duration // time for which the handle is rejected
		fresh bool
	}{
		"by a broken session":       {internal, time.Minute, true},
		"while the old one is held": {(*bridgetest.Conn).DropConnection, 10 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
				l.SendHandle("h")
				time.Sleep(11 * time.Second)
				begin := r.elapsed()
				test.end(l)
				refusals := 0
				for l = r.up.NextConn(); l.Setup.SessionResumption.Handle != "" && r.elapsed()-begin < test.lasts; l = r.up.NextConn() {
					refusals++
					internal(l)
				}
				if fresh := l.Setup.SessionResumption.Handle == ""; fresh != test.fresh {
					t.Errorf("begun anew: %v", fresh)
				}
				if took := r.elapsed() - begin; test.fresh && (refusals < 3 || took < 3*time.Second || took > 8*time.Second) {
					t.Errorf("begun anew after %v and %d refusals", took, refusals)
				}
				l.SendSetupComplete()
				time.Sleep(4 * time.Second)
				c.checkStillWorks(l)
			})
		})
	}
}

// A question after which each session fails is dropped, and the client is informed.
func TestInputThatKillsSessionsIsDropped(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		time.Sleep(11 * time.Second)
		c.typeText("poison")
		for deaths := 0; ; deaths++ {
			time.Sleep(time.Second)
			if !strings.Contains(l.InputLog(), "poison") {
				break
			}
			if deaths > 12 {
				t.Fatal("it is sent for ever")
			}
			l.CloseWith(1011, "Internal error encountered.")
			l = r.up.NextConn().SendSetupComplete()
		}
		c.checkWarning("was dropped")
		time.Sleep(3 * time.Second)
		c.checkStillWorks(l)
	})
}

// Only the last ten seconds of a very long sentence can be replayed. The client is informed of the loss.
func TestVeryLongSentence(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		c.sendInRealTime(loud(14 * time.Second))
		m := r.dropConnection(l)
		time.Sleep(6 * time.Second)
		if d := voiced(m.ReceivedPCM()); d < 9500*time.Millisecond || d > 10*time.Second {
			t.Errorf("%v were said again", d)
		}
		if e := lastEvent[bridge.ErrorEvent](c).Err; e.Code != bridge.CodeAudioStream || !strings.Contains(e.Message, "first 4 s") {
			t.Errorf("%+v", e)
		}
	})
}

// The transcript for a fresh session is limited to its newest 40 KB.
func TestSeedIsBounded(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		for _, size := range []int{10, 900, 2000} {
			r := newHarness(t)
			_, l := r.plain()
			for i := range 40 {
				l.SendContent(
					`%s,"inputTranscription":{"text":"q%d %s"},"outputTranscription":{"text":"a%d"},"turnComplete":true`,
					bridgetest.VoiceField(7, 20*time.Millisecond), i,
					strings.Repeat("x", size),
					i,
				)
			}
			time.Sleep(time.Second)
			m := r.dropConnection(l)
			got := m.InputLog()
			if turns := strings.Count(got, "+") + 1; len(got) > 41<<10 || !strings.Contains(got, "a39") || size < 2000 && turns < 80 ||
				size == 2000 && turns < 38 {
				t.Errorf("%d turns, %d bytes", turns, len(got))
			}
		}
	})
}

// If a session ends after each resume, it first gets a smaller setup, and is then given up.
func TestLinksThatDieAtOnce(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		begin := r.elapsed()
		fresh := 0
		for {
			l.SendHandle("h")
			time.Sleep(4 * time.Second) // longer than a passing outage, shorter than any calm
			l.CloseWith(1011, "Internal error encountered.")
			select {
			case l = <-r.up.Conns:
				l.SendSetupComplete()
				if l.Setup.SessionResumption.Handle == "" {
					fresh++
				}
				continue
			case <-c.over:
			}
			break
		}
		if e := c.awaitFailure(bridge.CodeWebSocketError); e.Status != 1011 {
			t.Errorf("status %d", e.Status)
		}
		if took := r.elapsed() - begin; took < 30*time.Second || took > 60*time.Second || fresh < 2 {
			t.Errorf("given up after %v, %d of the links were fresh", took, fresh)
		}
		r.up.AssertNoDial()
	})
}
