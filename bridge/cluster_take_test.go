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

// An open call is sent to a client that is back, however much was said since.
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

// A caller that takes over a conversation on hold is heard, and learns which turn is playing.
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

// What somebody else has asked for is not sent to a client that is back.
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

// A question that is asked over the answer survives the end of that answer.
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

// What is typed on hold is waited for when that is over.
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

// A turn that was interrupted is counted once, though its connection is lost before its end has come.
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

// The conversation ends when the answer has been heard that is due, and not before it has begun.
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

// A model that understands at once, while the person still speaks, and never answers, is found out like any other.
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
					l = r.up.NextConn().AcceptSetup()
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
