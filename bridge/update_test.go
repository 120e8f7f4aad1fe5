package bridge_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/bridgetest"
)

// brief returns a config that can be changed in place.
func brief(text string) string { return fmt.Sprintf(`{"systemInstruction":%q}`, text) }

// warm returns a config with a temperature, which cannot be changed in place.
func warm(temperature string) string {
	return fmt.Sprintf(`{"generationConfig":{"temperature":%s}}`, temperature)
}

func (c *caller) updateConfig(config string) {
	c.r.t.Helper()
	c.doCommand(bridge.UpdateConfig{Config: []byte(config)})
}

// checkStillWorks checks that the conversation continues on connection l.
func (c *caller) checkStillWorks(l *bridgetest.Conn) {
	c.r.t.Helper()
	c.clearLog()
	said := len(l.ReceivedPCM())
	c.sendAudio(countingPCM(0, 1600))
	if got := len(l.ReceivedPCM()) - said; got != 1600 {
		c.r.t.Errorf("%d samples came", got)
	}
	l.SendAnswer(7, time.Second)
	time.Sleep(2 * time.Second)
	c.checkLog("Speaking 7*50 TurnComplete")
}

func TestUpdateReconnects(t *testing.T) {
	converse(t, bridge.SessionRequest{Config: []byte(warm("0.1"))}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("old")
		l.SendHandle("h")
		c.updateConfig(warm("0.2"))
		ended, closed := l.ClosedAt()
		if !closed {
			t.Fatal("the old link is open")
		}
		m := r.up.NextConn().AssertSetup("0.2", "h")
		if m.OpenedAt.Before(ended) {
			t.Error("dialled before the old link was closed")
		}
		c.checkLog("SetupComplete")
		m.SendSetupComplete()
		c.checkLog("SetupComplete SetupComplete")
		s := lastEvent[bridge.SetupComplete](c)
		if !strings.Contains(string(s.EffectiveConfig), "0.2") || s.SessionID != c.session.ID() || s.Resumed || s.Backend != "emulator" {
			t.Errorf("got %+v", s)
		}
		c.checkStillWorks(m)
	})
}

// Each answer has the ReplyTo of its command, whatever the backend changes and Gemini rejects meanwhile.
func TestAnswersNameTheirRequest(t *testing.T) {
	converse(t, bridge.SessionRequest{Config: []byte(warm("0.1"))}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		c.clearLog()
		for _, command := range []bridge.Command{
			bridge.BackendUpdate{Agent: bridge.Agent{Voice: "Leda"}},
			bridge.UpdateConfig{Config: []byte(warm("0.2")), ReplyTo: "accepted"},
			bridge.GetContext{ReplyTo: "context"},
			bridge.UpdateConfig{Config: []byte(`[]`), ReplyTo: "invalid"},
			bridge.UpdateConfig{Config: []byte(warm("0.3")), ReplyTo: "rejected"},
		} {
			c.doCommand(command)
		}
		r.up.NextConn().AssertSetup("0.1", "h").SendSetupComplete()
		r.up.NextConn().AssertSetup("0.2", "h").SendSetupComplete()
		r.up.NextConn().AssertSetup("0.3", "h").CloseWith(1007, "no")
		r.up.NextConn().AssertSetup("0.2", "h").SendSetupComplete()
		synctest.Wait()
		c.doCommand(bridge.ClearContext{ReplyTo: "clear"})
		r.up.NextConn().SendSetupComplete()
		synctest.Wait()
		want := []string{
			"bridge.History context", "bridge.SetupComplete <nil>", "bridge.SetupComplete accepted", "bridge.SetupFailed invalid",
			"bridge.SetupFailed rejected", "bridge.History clear",
		}
		if got := repliesOf(c); !slices.Equal(got, want) {
			t.Errorf("the answers are %q,\nwant %q", got, want)
		}
	})
}

// repliesOf returns the type and the ReplyTo of each answer that the caller got.
func repliesOf(c *caller) (replies []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.diary {
		switch e.event.(type) {
		case bridge.SetupComplete, bridge.SetupFailed, bridge.History:
			replies = append(replies, fmt.Sprintf("%T %v", e.event, e.replyTo))
		}
	}
	return replies
}

// A change that Gemini has rejected is not part of later changes, and is not passed on to other gateways.
func TestAChangeThatGeminiRefuses(t *testing.T) {
	open := bridge.SessionRequest{Resumable: true, Config: []byte(warm("0.1"))}
	runTwoGateways(t, open, func(t *testing.T, a, b *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		for _, change := range []bridge.Command{
			bridge.UpdateConfig{Config: []byte(warm("0.2"))},
			bridge.UpdateConfig{Agent: &bridge.Agent{Config: []byte(warm("0.2"))}, Name: "other"},
			bridge.BackendUpdate{Agent: bridge.Agent{Config: []byte(warm("0.2"))}},
		} {
			c.doCommand(change)
			a.up.NextConn().AssertSetup("0.2", "h").CloseWith(1007, "no")
			l = a.up.NextConn().AssertSetup("0.1", "h").SendSetupComplete()
			synctest.Wait()
			if n, _ := findEvents[bridge.SetupFailed](c); len(n) != 1 {
				t.Errorf("%T: %d SETUP_FAILEDs", change, len(n))
			}
			c.doCommand(bridge.BackendUpdate{Agent: bridge.Agent{Prompt: "Hats."}})
			if got := l.InputLog(); !strings.Contains(got, "Hats.") {
				t.Errorf("%T: after it came %q", change, got)
			}
			time.Sleep(time.Second)
			a.up.AssertNoDial()
			c.clearLog()
		}
		if list := a.host.Sessions(); list[0].Agent != "" {
			t.Errorf("%q answers", list[0].Agent)
		}
		b.resumeCaller(c)
		l = a.up.NextConn().AssertSetup("0.1", "h").SendSetupComplete()
		if !strings.Contains(l.Raw, "Hats.") {
			t.Errorf("another gateway begins with %s", l.Raw)
		}
	})
}

// Of two pending changes, the second includes the first. If both are rejected, both are undone. If only the first is rejected,
// only its configuration is undone.
func TestChangesInARowThatGeminiRefuses(t *testing.T) {
	for _, both := range []bool{true, false} {
		converse(t, bridge.SessionRequest{Config: []byte(warm("0.1"))}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
			l.SendHandle("h")
			c.updateConfig(warm("0.2"))
			c.updateConfig(warm("0.3"))
			r.up.NextConn().AssertSetup("0.2", "h").CloseWith(1007, "no")
			m, left := r.up.NextConn().AssertSetup("0.3", "h"), "0.3"
			if both {
				m.CloseWith(1007, "no")
				m, left = r.up.NextConn().AssertSetup("0.1", "h"), "0.1"
			}
			m.SendSetupComplete()
			c.doCommand(bridge.BackendUpdate{Agent: bridge.Agent{Voice: "Leda"}}) // needs another connection
			m = r.up.NextConn().AssertSetup(left, "h").SendSetupComplete()
			if !strings.Contains(m.Raw, "Leda") {
				t.Errorf("dialled with %s", m.Raw)
			}
		})
	}
}

func TestUpdateRefusedHere(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		c.updateConfig(`{"generationConfig":{"temperature":9}}`)
		c.checkLog("SetupComplete SetupFailed")
		if e := lastEvent[bridge.SetupFailed](c).Err; e.Code != bridge.CodeConfigUpdateFailed ||
			e.Field != "payload.generationConfig.temperature" {
			t.Errorf("%+v", e)
		}
		r.up.AssertNoDial()
		c.checkStillWorks(l)
	})
}

// Updates during the first dial are answered after it, in order, and rejected ones too.
func TestUpdateWhileDialling(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		r := newHarness(t)
		c := r.startCaller(bridge.SessionRequest{})
		l := r.up.NextConn()
		<-c.seated
		c.updateConfig(`[]`)
		c.updateConfig(warm("0.6"))
		c.updateConfig(`{"generationConfig":{"topP":7}}`)
		c.checkLog("")
		l.SendSetupComplete()
		c.checkLog("SetupComplete SetupFailed")
		m := r.up.NextConn().AssertSetup("0.6", "").SendSetupComplete()
		c.checkLog("SetupComplete SetupFailed ErrorEvent SetupComplete SetupFailed")
		c.checkStillWorks(m)
	})
}

func TestUpdatesInARow(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		for _, config := range []string{warm("0.6"), `{"model":7}`, warm("0.7"), warm("0.8")} {
			c.updateConfig(config)
		}
		r.up.NextConn().AssertSetup("0.6", "h").SendSetupComplete()
		r.up.NextConn().AssertSetup("0.7", "h").CloseWith(1007, "no")
		m := r.up.NextConn().AssertSetup("0.8", "h").SendSetupComplete()
		c.checkLog("SetupComplete SetupComplete SetupFailed SetupFailed SetupComplete")
		c.checkStillWorks(m)
		r.up.AssertNoDial()
	})
}

func TestUpdatesAreBounded(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		r := newHarness(t)
		c := r.startCaller(bridge.SessionRequest{})
		l := r.up.NextConn()
		<-c.seated
		for i := range 40 {
			c.updateConfig(warm(fmt.Sprintf("0.%d", i+1)))
		}
		l.SendSetupComplete()
		for range 16 {
			r.up.NextConn().SendSetupComplete()
			synctest.Wait()
		}
		r.up.AssertNoDial()
		done, _ := findEvents[bridge.SetupComplete](c)
		failed, _ := findEvents[bridge.SetupFailed](c)
		if len(done) != 17 || len(failed) != 24 || failed[0].Err.Code != bridge.CodeStreamLimitExceeded {
			t.Errorf("%d done, %d refused", len(done), len(failed))
		}
	})
}

// A rejected update does not cause a dial.
func TestRefusedUpdateWhileWaiting(t *testing.T) {
	converse(t, bridge.SessionRequest{Config: []byte(warm("0.4"))}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		l = r.dropConnection(l)
		synctest.Wait()
		l.DropConnection() // the second time there is a pause
		c.updateConfig(`[]`)
		m := r.up.NextConn().AssertSetup("0.4", "h").SendSetupComplete()
		c.checkLog("SetupComplete SetupFailed")
		c.checkStillWorks(m)
	})
}

// Another model does not know the conversation or its calls.
func TestUpdateOfTheModel(t *testing.T) {
	converse(t, bridge.SessionRequest{Config: []byte(declare("weather"))}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.CallTools("a weather")
		l.SendHandle("h")
		time.Sleep(time.Second) // otherwise the call and the wait for its end would end at the same moment
		c.updateConfig(strings.Replace(declare("weather"), "{", `{"model":"gemini-3.1-flash-live-preview",`, 1))
		m := r.up.NextConn().AssertSetup("", "")
		if m.Setup.Model != "models/gemini-3.1-flash-live-preview" {
			t.Errorf("dialled %q", m.Setup.Model)
		}
		m.SendSetupComplete()
		c.checkLog("SetupComplete ToolCall(a) ToolCallCancellation(a) ErrorEvent Log SetupComplete") // after the end of the call
		c.checkWarning("fresh session")
		c.checkAnswerRejected("a", "")
		m.DropConnection()
		n := r.up.NextConn().AssertSetup("", "").SendSetupComplete() // the old handle is forgotten
		time.Sleep(time.Minute)
		n.AssertToolResponses()
	})
}

// Fields that the model accepts within a session are changed in place, at once and without another connection.
func TestUpdateInPlace(t *testing.T) {
	converse(t, bridge.SessionRequest{Config: []byte(brief("long"))}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		l.SendVoice(7, 5*time.Second) // in the middle of an answer
		c.updateConfig(brief("short"))
		if got := l.InputLog(); got != `update {"systemInstruction":{"parts":[{"text":"short"}]}}` {
			t.Errorf("came %s", got)
		}
		if n := len(setups(c)); n != 1 {
			t.Errorf("%d SETUP_COMPLETEs before Gemini could object", n)
		}
		time.Sleep(500 * time.Millisecond)
		if all := setups(c); len(all) != 2 || !strings.Contains(string(all[1].EffectiveConfig), "short") {
			t.Errorf("%d SETUP_COMPLETEs: %+v", len(all), all)
		}
		c.updateConfig(brief("short")) // no change
		if n := len(setups(c)); n != 3 {
			t.Errorf("%d SETUP_COMPLETEs", n)
		}
		r.up.AssertNoDial()
		// A resumed session may have kept its original setup.
		m := r.dropConnection(l)
		if got := m.Setup.SystemInstruction.Parts[0].Text; got != "short" {
			t.Errorf("resumed with %q", got)
		}
		if got := m.InputLog(); got != `update {"systemInstruction":{"parts":[{"text":"short"}]}}` {
			t.Errorf("came %s", got)
		}
	})
}

func setups(c *caller) []bridge.SetupComplete {
	found, _ := findEvents[bridge.SetupComplete](c)
	return found
}

// A change that needs another connection waits until neither side speaks. The old connection serves until then.
func TestUpdateWaitsForAQuietMoment(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		l.SendVoice(7, 5*time.Second)
		c.updateConfig(warm("0.5"))
		time.Sleep(3 * time.Second)
		r.up.AssertNoDial()
		if s, _ := findEvents[bridge.StateChange](c); s[len(s)-1].State != bridge.StateDraining {
			t.Errorf("state %v", s[len(s)-1])
		}
		c.speakWithoutPause(time.Second) // the person speaks as well
		l.SendContent(`"turnComplete":true`)
		l.SendHandle("h2")
		r.up.AssertNoDial()
		c.staySilentFor(time.Second)
		l.SendAnswer(8, time.Second)
		l.SendHandle("h3")
		if n := len(l.ReceivedPCM()); n != 2*16000 {
			t.Errorf("%d samples came by the old link", n)
		}
		m := r.up.NextConn().AssertSetup("0.5", "h3").SendSetupComplete()
		if n := len(m.ReceivedPCM()); n != 0 {
			t.Errorf("%d samples were said again", n)
		}
		time.Sleep(2 * time.Second)
		c.checkStillWorks(m)
	})
}
