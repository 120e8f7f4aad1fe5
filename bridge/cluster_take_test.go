package bridge_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/bridgetest"
)

// A returning client gets an open call again, however much was said since the call.
func TestOpenCallsOutlastALongAnswer(t *testing.T) {
	converse(t, bridge.SessionRequest{Resumable: true, Config: []byte(declare("weather"))}, func(t *testing.T, r *harness, c *caller,
		l *bridgetest.Conn,
	) {
		l.CallTool("1", "weather", `{}`)
		for range 300 {
			l.SendContent(`%s,"outputTranscription":{"text":"and "}`, bridgetest.VoiceField(7, 20*time.Millisecond))
		}
		time.Sleep(8 * time.Second)
		c.leave(nil)
		synctest.Wait()
		r.resumeByToken(c.resumeToken()).checkLog("SetupComplete ToolCall(1)")
	})
}

// If a caller takes over a conversation on hold, its speech reaches the model, and it learns which turn is playing.
func TestTakingOver(t *testing.T) {
	converse(t, bridge.SessionRequest{Resumable: true}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		c.doCommand(bridge.Pause{On: true})
		d := r.resumeByToken(c.resumeToken())
		d.sendAudio(countingPCM(0, 3200))
		if n := len(l.ReceivedPCM()); n != 3200 {
			t.Errorf("%d samples of the newcomer went up", n)
		}
		l.SendAnswer(7, 3*time.Second)
		time.Sleep(time.Second)
		e := r.resumeByToken(d.resumeToken())
		if got := lastEvent[bridge.Speaking](e); got.Turn != 1 {
			t.Errorf("turn %d is said to be playing", got.Turn)
		}
		time.Sleep(3 * time.Second)
		if got := lastEvent[bridge.TurnComplete](e); got.Turn != 1 {
			t.Errorf("turn %d is complete", got.Turn)
		}
	})
}

// A returning client does not get answers to requests of another caller.
func TestOldAnswersStayAway(t *testing.T) {
	converse(t, bridge.SessionRequest{Resumable: true}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		c.typeText("hello")
		l.SendAnswer(7, time.Second)
		time.Sleep(2 * time.Second)
		c.doCommand(bridge.GetContext{})
		c.leave(nil)
		synctest.Wait()
		r.resumeByToken(c.resumeToken()).checkLog("SetupComplete")
	})
}

// A question that the person asks over an answer stays open when that answer ends.
func TestInterruptKeepsTheNextQuestion(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		l.SendVoice(7, 6*time.Second)
		time.Sleep(time.Second)
		c.sendInRealTime(countingPCM(0, 16000))
		c.staySilentFor(500 * time.Millisecond)
		c.doCommand(bridge.Interrupt{})
		next := r.dropConnection(l)
		time.Sleep(3 * time.Second)
		if n := len(next.ReceivedPCM()); n < 16000 {
			t.Errorf("%d samples of the question are said again", n)
		}
	})
}

// After a hold, the gateway waits for the answer to text that was typed on hold.
func TestTypedOnHold(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		r := newHarness(t, watchful)
		c, _ := r.plain()
		c.doCommand(bridge.Pause{On: true})
		c.doCommand(bridge.Text{Text: "are you there?"})
		c.doCommand(bridge.Pause{})
		time.Sleep(7 * time.Second)
		c.checkWarning("Gemini does not answer")
		r.up.DiscardDials()
	})
}

// An interrupted turn is counted once, even if the connection is lost before the turn's end has come.
func TestATurnIsCountedOnce(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		l.SendVoice(7, time.Second)
		c.typeText("what time is it?")
		l.SendContent(`"interrupted":true`)
		next := r.dropConnection(l)
		next.SendAnswer(8, time.Second)
		time.Sleep(2 * time.Second)
		if got := next.InputLog(); strings.Count(got, "what time") != 1 {
			t.Errorf("the next connection got %q", got)
		}
		if got := lastEvent[bridge.TurnComplete](c); got.Turn != 2 {
			t.Errorf("the answer is turn %d", got.Turn)
		}
	})
}

// EndAfterSpeaking ends the conversation only when an answer that is due has begun and has been played.
func TestEndAfterAnAnswerThatIsDue(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		c.doCommand(bridge.Prompt{Instruction: "Say goodbye."})
		c.doCommand(bridge.EndAfterSpeaking{})
		time.Sleep(time.Second)
		l.SendAnswer(7, time.Second)
		c.awaitEnd(bridge.ErrGoodbye)
		if n := c.countFrames(); n != 50 {
			t.Errorf("%d frames were heard", n)
		}
	})
}

// A model that transcribes speech while the person still speaks, but never answers, is detected like any silent model.
func TestAnEarlyTranscriptCounts(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		for range 2 {
			c.sendInRealTime(countingPCM(0, 9600))
			l.SendContent(`"inputTranscription":{"text":"hello"}`)
			c.sendInRealTime(countingPCM(9600, 6400))
			c.staySilentFor(500 * time.Millisecond)
			for range 30 {
				time.Sleep(time.Second)
				synctest.Wait()
				if len(r.up.Conns) > 0 {
					l = r.up.NextConn().SendSetupComplete()
					l.SendHandle(fmt.Sprint("h", time.Now().Unix()))
					l.SendContent(`"inputTranscription":{"text":"hello"}`)
				}
			}
		}
		if got := c.watchdogAttempts(); got != "nudge resume none nudge fresh none" {
			t.Errorf("tried %s", got)
		}
	}, watchful)
}
