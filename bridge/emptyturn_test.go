package bridge_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/bridgetest"
)

// answersFrom makes a model transcribe each spoken question, and answer each spoken or typed question with the content that
// next returns. Empty content means no answer.
func answersFrom(l *bridgetest.Conn, next func() string) {
	var asked, quiet time.Duration
	answer := func() {
		if content := next(); content != "" {
			l.SendContent(`%s`, content)
		}
	}
	l.OnInput(func(in bridgetest.Input) {
		switch {
		case in.Kind == "typed":
			answer()
		case in.Kind == "audio":
			if loud := voiced(in.PCM); loud > 0 {
				asked, quiet = asked+loud, 0
			} else {
				quiet += time.Duration(len(in.PCM)) * time.Second / 16000
			}
			if asked > 0 && quiet >= 500*time.Millisecond {
				asked = 0
				l.SendContent(`"inputTranscription":{"text":"What time is it?"}`)
				answer()
			}
		}
	})
}

// If a turn ends without the expected answer, the question is repeated at once, and the second time in a fresh session. A
// proactive model may stay silent on purpose, unless its server reports another reason for the end of the turn.
func TestTurnsWithoutAnAnswer(t *testing.T) {
	const (
		plain, native, proactive = "gemini-3.1-flash-live-preview", "gemini-2.5-flash-native-audio-latest", "gemini-3.8-live"

		empty    = `"turnComplete":true`
		rejected = `"turnComplete":true,"turnCompleteReason":"RESPONSE_REJECTED"`
		more     = `"turnComplete":true,"turnCompleteReason":"NEED_MORE_INPUT"`
		written  = `"modelTurn":{"parts":[{"text":"It is noon."}]},"generationComplete":true,"turnComplete":true`
	)
	voice := bridgetest.VoiceField(7, 500*time.Millisecond) +
		`,"outputTranscription":{"text":"It is noon."},"generationComplete":true,"turnComplete":true`
	for name, test := range map[string]struct {
		model   string
		typed   bool
		answers []string // content for each question; further answers have a voice
		tried   string
		dials   int // connections after the first
		silent  bool
	}{
		"empty":                              {plain, false, []string{empty}, "again", 0, false},
		"empty twice":                        {plain, false, []string{empty, empty}, "again fresh", 1, false},
		"empty for ever":                     {plain, false, []string{empty, empty, empty, empty, empty}, "again fresh none", 1, true},
		"empty, to typed text":               {native, true, []string{empty}, "again", 0, false},
		"rejected":                           {native, false, []string{rejected}, "again", 0, false},
		"rejected, by a proactive model":     {proactive, false, []string{rejected}, "again", 0, false},
		"empty, by a proactive model":        {proactive, false, []string{empty}, "", 0, true},
		"more input, by a proactive model":   {proactive, false, []string{more}, "", 0, true},
		"written":                            {native, false, []string{written}, "", 0, false},
		"written, by a proactive model":      {proactive, false, []string{written}, "", 0, false},
		"written twice":                      {native, false, []string{written, written}, "fresh", 1, false},
		"written for ever":                   {native, false, []string{written, written, written, written}, "fresh", 1, true},
		"written to typed text, then spoken": {proactive, true, []string{written}, "", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			converse(t, bridge.SessionRequest{Config: []byte(`{"model":"` + test.model + `"}`)}, func(t *testing.T, r *harness, c *caller,
				l *bridgetest.Conn,
			) {
				l.SendHandle("h")
				answers := slices.Clone(test.answers)
				next := func() string {
					if len(answers) == 0 {
						return voice
					}
					answer := answers[0]
					answers = answers[1:]
					return answer
				}
				answersFrom(l, next)
				dials, over := 0, make(chan struct{})
				go func() {
					for {
						select {
						case l := <-r.up.Conns:
							dials++
							l.SendSetupComplete()
							synctest.Wait()
							if strings.Contains(l.InputLog(), "typed Say this") { // which came at once
								l.SendContent(`%s`, next())
							}
							answersFrom(l, next)
						case <-over:
							return
						}
					}
				}()
				c.clearLog()
				if test.typed {
					c.typeText("What time is it?")
				} else {
					c.speakWithoutPause(time.Second)
				}
				c.staySilentFor(20 * time.Second)
				close(over)
				if got := c.watchdogAttempts(); got != test.tried {
					t.Errorf("tried %q, want %q: %s", got, test.tried, c.summarizeLog())
				}
				if spoke := strings.Contains(c.summarizeEvents(), "Speaking"); spoke == test.silent {
					t.Errorf("it spoke: %v; %s", spoke, c.summarizeLog())
				}
				if dials != test.dials {
					t.Errorf("%d dials, want %d", dials, test.dials)
				}
				if got := strings.Count(c.summarizeEvents(), "TurnComplete"); got == 0 {
					t.Errorf("the turn does not end: %s", c.summarizeLog())
				}
			}, watchful)
		})
	}
}

// If a model pauses for 7 s within an answer, the gateway waits, and nothing of the answer is lost.
func TestPauseInAnAnswer(t *testing.T) {
	for _, pause := range []time.Duration{3 * time.Second, 7 * time.Second, 8500 * time.Millisecond} {
		converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
			l.SendHandle("h")
			c.typeText("count to ten")
			c.clearLog()
			l.SendContent(`%s`, bridgetest.VoiceField(7, time.Second))
			time.Sleep(pause)
			l.SendContent(`%s`, bridgetest.VoiceField(8, time.Second))
			l.SendContent(`"generationComplete":true`)
			l.SendContent(`"turnComplete":true`)
			time.Sleep(3 * time.Second)
			c.checkLog("Speaking 7*50 8*50 TurnComplete")
			if tried := c.watchdogAttempts(); tried != "" {
				t.Errorf("pause of %v: tried %s", pause, tried)
			}
			r.up.AssertNoDial()
		}, watchful)
	}
}

// Some models drop the answer to a non-blocking call before the end of the calling turn, so the answer waits for that end.
// The end does not count as a reaction to the answer: a model that stays silent afterwards is asked again.
func TestAnswersWaitForTheEndOfTheTurn(t *testing.T) {
	const blocking = `{"tools":[{"functionDeclarations":[{"name":"weather","behavior":"BLOCKING"}]}]}`
	for name, test := range map[string]struct {
		config string
		spoken time.Duration // length of the voice before the call
		end    time.Duration // time from the call to the end of the turn; negative if the turn is interrupted
		want   time.Duration // time from the call to its answer
	}{
		"at once":                  {declare("weather"), 0, 0, 0},
		"a little later":           {declare("weather"), 0, 40 * time.Millisecond, 40 * time.Millisecond},
		"behind what is said":      {declare("weather"), 2 * time.Second, 2 * time.Second, 2 * time.Second},
		"interrupted":              {declare("weather"), 4 * time.Second, -time.Second, time.Second},
		"it does not come":         {declare("weather"), 0, time.Hour, 100 * time.Millisecond},
		"nor behind what is said":  {declare("weather"), 2 * time.Second, time.Hour, 5 * time.Second},
		"a function that blocks":   {blocking, 0, time.Hour, 0},
		"a model that takes it":    {`{"model":"gemini-2.5-flash-native-audio-latest",` + declare("weather")[1:], 0, time.Hour, 0},
		"extended thinking has it": {`{"model":"gemini-3.8-live-extended-thinking",` + declare("weather")[1:], 0, time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			converse(t, bridge.SessionRequest{Config: []byte(test.config)}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
				l.SendHandle("h")
				c.typeText("how is the weather?")
				if test.spoken > 0 {
					l.SendContent(`%s`, bridgetest.VoiceField(7, test.spoken))
				}
				l.Send(`{"toolCall":{"functionCalls":[{"id":"a","name":"weather","args":{}}]}}`)
				synctest.Wait()
				called := time.Now()
				c.sendToolResponse("a", "weather", `{"sun":1}`)
				switch {
				case test.end < 0:
					time.Sleep(-test.end)
					l.SendContent(`"interrupted":true`)
					l.SendContent(`"turnComplete":true`)
				case test.end < time.Hour:
					time.Sleep(test.end)
					l.SendContent(`"generationComplete":true`)
					l.SendContent(`"turnComplete":true`)
				}
				time.Sleep(6 * time.Second)
				var came []time.Duration
				for _, in := range l.Inputs() {
					if in.Kind == "tool" {
						came = append(came, in.At.Sub(called))
					}
				}
				if len(came) != 1 || (came[0]-test.want).Abs() > 30*time.Millisecond {
					t.Errorf("the answer went up after %v, want %v", came, test.want)
				}
				if test.end < 0 {
					return
				}
				time.Sleep(10 * time.Second)
				if c.watchdogAttempts() == "" && !strings.Contains(test.config, "extended") {
					t.Errorf("nobody notices that the model says nothing: %s", c.summarizeLog())
				}
			}, watchful)
		})
	}
}
