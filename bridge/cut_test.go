package bridge_test

import (
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/bridgetest"
)

// If an answer is interrupted while it is ducked, the next answer has its normal volume, even if the person, or a noise, is
// still detected.
func TestTheVoiceIsAsLoudAfterACut(t *testing.T) {
	for name, cut := range map[string]func(c *caller, l *bridgetest.Conn){
		"by the model": func(_ *caller, l *bridgetest.Conn) {
			l.InterruptTurn()
		},
		"by typed text": func(c *caller, l *bridgetest.Conn) {
			l.CompleteTurn()
			c.typeText("stop")
		},
	} {
		t.Run(name, func(t *testing.T) {
			converse(t, bridge.SessionRequest{Config: []byte(`{"voxgate":{"ducking":true}}`)}, func(t *testing.T, _ *harness, c *caller,
				l *bridgetest.Conn,
			) {
				l.SendContent(`%s,"outputTranscription":{"text":"one two three "}`, bridgetest.VoiceField(8000, 5*time.Second))
				c.staySilentFor(500 * time.Millisecond)
				c.speakWithoutPause(500 * time.Millisecond)
				before := c.entries()
				if tag := before[len(before)-1].tag; tag == 0 || tag > 4000 {
					t.Fatalf("the voice is at %d while the person speaks: this proves nothing", tag)
				}
				cut(c, l)
				c.speakWithoutPause(100 * time.Millisecond)
				c.clearLog()
				l.SendContent(`%s,"outputTranscription":{"text":"four"}`, bridgetest.VoiceField(8000, 500*time.Millisecond))
				l.CompleteTurn()
				c.speakWithoutPause(600 * time.Millisecond)
				frames := 0
				for _, e := range c.entries() {
					if speaks, ok := e.event.(bridge.UserSpeaking); ok {
						t.Fatalf("%+v: this proves nothing", speaks)
					}
					if e.event == nil {
						frames++
						if e.tag != 8000 && frames > 1 { // the volume rises within one frame
							t.Errorf("frame %d of the next answer is at %d", frames, e.tag)
						}
					}
				}
				if frames < 20 {
					t.Errorf("%d frames", frames)
				}
			})
		})
	}
}

// Output after an interruption is another answer. The transcript has each answer separately, as far as it was played.
func TestAnAnswerDoesNotMixWithTheOneCutBefore(t *testing.T) {
	for name, ends := range map[string][]string{
		"turnComplete follows":     {`"interrupted":true`, `"turnComplete":true`},
		"turnComplete with it":     {`"interrupted":true,"turnComplete":true`},
		"turnComplete comes late":  {`"interrupted":true`},
		"generation complete, too": {`"interrupted":true,"generationComplete":true`, `"turnComplete":true`},
		"interrupted twice":        {`"interrupted":true`, `"interrupted":true`, `"turnComplete":true`},
		"sent again after its end": {`"interrupted":true`, `"turnComplete":true`, `"interrupted":true`, `"turnComplete":true`},
	} {
		t.Run(name, func(t *testing.T) {
			converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
				say := func(words string, tag int16, d time.Duration) {
					l.SendContent(`%s,"outputTranscription":{"text":%q}`, bridgetest.VoiceField(tag, d), words)
				}
				say("nought ", 6, time.Second)
				l.CompleteTurn()
				time.Sleep(1500 * time.Millisecond)
				l.SendContent(`"inputTranscription":{"text":"Count!"}`)
				say("one two three four ", 7, 4*time.Second)
				time.Sleep(2300 * time.Millisecond)
				for _, fields := range ends {
					l.SendContent("%s", fields)
				}
				l.SendContent(`"inputTranscription":{"text":"Letters!"}`)
				say("a b ", 8, 2*time.Second)
				l.CompleteTurn()
				time.Sleep(3 * time.Second)
				c.checkContext("a: nought; u: Count!; a: one two (cut after 2.3 s); u: Letters!; a: a b")
			})
		})
	}
}

// Speech over an answer, or text typed during it, is the next question, even before the model has ended its turn.
func TestWordsIntoAnAnswerAreTheNextQuestion(t *testing.T) {
	for name, over := range map[string]func(c *caller, l *bridgetest.Conn){
		"spoken": func(c *caller, l *bridgetest.Conn) {
			c.speakWithoutPause(300 * time.Millisecond)
			l.SendContent(`"inputTranscription":{"text":"Letters!"}`)
		},
		"typed": func(c *caller, _ *bridgetest.Conn) {
			time.Sleep(300 * time.Millisecond)
			c.typeText("Letters!")
		},
	} {
		t.Run(name, func(t *testing.T) {
			converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
				l.SendContent(`"inputTranscription":{"text":"Count!"}`)
				l.SendContent(`%s,"outputTranscription":{"text":"one two three four "}`, bridgetest.VoiceField(7, 4*time.Second))
				c.staySilentFor(2 * time.Second)
				over(c, l)
				l.InterruptTurn()
				l.SendContent(`%s,"outputTranscription":{"text":"a b "}`, bridgetest.VoiceField(8, 2*time.Second))
				l.CompleteTurn()
				time.Sleep(3 * time.Second)
				c.checkContext("u: Count!; a: one two (cut after 2.3 s); u: Letters!; a: a b")
			})
		})
	}
}

// After the gateway has interrupted an answer, its rest is dropped, even if a sound of the gateway is interrupted later.
func TestTheRestOfACutAnswerIsDropped(t *testing.T) {
	converse(
		t,
		bridge.SessionRequest{Config: []byte(`{"model":"gemini-3.1-flash-live-preview"}`)},
		func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
			l.SendContent(`%s,"outputTranscription":{"text":"one "}`, bridgetest.VoiceField(7, time.Second))
			time.Sleep(500 * time.Millisecond)
			c.doCommand(bridge.Interrupt{})
			c.speakFor(time.Second)
			l.SendContent(`"inputTranscription":{"text":"Hm?"}`)
			for before := c.countFrames(); c.countFrames() == before; { // the model is silent until the gateway plays a tone
				c.staySilentFor(20 * time.Millisecond)
			}
			c.typeText("do you hear me?")
			c.checkLog("SetupComplete Speaking 7*26 Interrupted Log 73*1 Interrupted")
			l.SendContent(`%s,"outputTranscription":{"text":"two "}`, bridgetest.VoiceField(7, time.Second))
			time.Sleep(time.Second)
			c.checkLog("SetupComplete Speaking 7*26 Interrupted Log 73*1 Interrupted")
		},
		watchful,
	)
}
