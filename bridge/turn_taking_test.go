package bridge_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/bridgetest"
	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
)

// takeTurns plays a script. The numbers are milliseconds: "q500" is quiet, "s800" a voice, "n300" noise, "-500" no audio at
// all, and "answer2000" an answer of the model. "interrupted" and "complete" end its turn.
func takeTurns(t *testing.T, c *caller, l *bridgetest.Conn, script string) {
	t.Helper()
	for _, word := range strings.Fields(script) {
		at := strings.IndexAny(word, "0123456789")
		name, ms := word, 0
		if at >= 0 {
			name = word[:at]
			if _, err := fmt.Sscan(word[at:], &ms); err != nil {
				t.Fatal(err)
			}
		}
		switch d := time.Duration(ms) * time.Millisecond; name {
		case "q":
			c.staySilentFor(d)
		case "s":
			c.sendInRealTime(mediatest.RealVoice(t, d, 16000))
		case "n":
			c.sendInRealTime(mediatest.Cough(d, 16000))
		case "-":
			time.Sleep(d)
		case "answer":
			l.SendContent(`%s,"outputTranscription":{"text":"one two "}`, bridgetest.VoiceField(8000, d))
		case "interrupted":
			l.InterruptTurn()
		case "complete":
			l.CompleteTurn()
		default:
			t.Fatalf("script: %q", word)
		}
	}
}

// turnLog returns the caller's events about turns.
func (c *caller) turnLog() string {
	var words []string
	for _, e := range c.events() {
		switch b := e.Body.(type) {
		case bridge.UserSpeaking:
			word := map[bool]string{true: "speaks", false: "quiet"}[b.Speaking]
			if b.Retracted {
				word += "(retracted)"
			}
			words = append(words, word)
		case bridge.InterruptionPending:
			words = append(words, map[bool]string{true: "held", false: "resumed"}[b.Pending])
		case bridge.Interrupted:
			words = append(words, "interrupted:"+string(b.By))
		case bridge.Speaking:
			words = append(words, "answer")
		case bridge.TurnComplete:
			words = append(words, "complete")
		}
	}
	return strings.Join(words, " ")
}

// gatewayTurns is a config in which the gateway decides about turns.
const gatewayTurns = `{"voxgate":{"turns":{"by":"gateway"%s}}}`

// TestGatewayTakesTurns plays each state of turn taking, and checks the model's input and the caller's events.
func TestGatewayTakesTurns(t *testing.T) {
	const start, end = "mark activityStart", "mark activityEnd"
	for name, row := range map[string]struct{ settings, script, marks, events string }{
		"a sentence":            {"", "q500 s900 q2000", start + ", " + end, "speaks quiet"},
		"a sentence, then off":  {"", "q500 s900 -2500", start + ", " + end, "speaks quiet"},
		"a cough in quiet":      {"", "q500 n300 q2000", "", ""},
		"a pause in a sentence": {`,"patience":"patient"`, "q500 s900 q400 s900 q3000", start + ", " + end, "speaks quiet"},
		"the end is retracted": {
			`,"patience":{"most":200}`, "q500 s900 q700 s900 q1000 answer1000 complete q1500",
			start + ", " + end + ", " + start + ", " + end, "speaks quiet speaks(retracted) quiet answer complete",
		},
		"retracted while the answer is on its way": {
			`,"patience":{"most":200}`, "q500 s900 q700 s300 answer1000 interrupted s500 q1000 answer1000 complete q1500",
			start + ", " + end + ", " + start + ", " + end, "speaks quiet speaks(retracted) quiet answer complete",
		},
		"an answer": {"", "q500 s900 q1800 answer1000 complete q1500", start + ", " + end, "speaks quiet answer complete"},
		"a cough over an answer": {
			"", "q500 s900 q1800 answer3000 complete q1000 n300 q3000", start + ", " + end, "speaks quiet answer complete",
		},
		"a short word over an answer": {
			"", "q500 s900 q1800 answer3000 complete q1000 s450 q3000", start + ", " + end, "speaks quiet answer held resumed complete",
		},
		"an interruption": {
			"", "q500 s900 q1800 answer5000 complete q1000 s1200 q2000 answer1000 complete q1500",
			start + ", " + end + ", " + start + ", " + end, "speaks quiet answer held speaks interrupted:voice quiet answer complete",
		},
		"interrupted at once": {
			`,"interrupt":"at-once"`, "q500 s900 q1800 answer5000 complete q1000 s300 q2000 answer1000 complete q1500",
			start + ", " + end + ", " + start + ", " + end, "speaks quiet answer speaks interrupted:voice quiet answer complete",
		},
		"never interrupted": {
			`,"interrupt":"never"`, "q500 s900 q1800 answer3000 complete q1000 s1200 q2000", start + ", " + end, "speaks quiet answer complete",
		},
		"an answer with a gap": {
			"", "q500 s900 q1800 answer500 q1000 s450 q600 answer500 complete q1500",
			start + ", " + end, "speaks quiet answer held resumed complete",
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := fmt.Sprintf(gatewayTurns, row.settings)
			converse(t, bridge.SessionRequest{Config: []byte(config)}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
				if !strings.Contains(l.Raw, `"automaticActivityDetection":{"disabled":true}`) {
					t.Fatalf("setup %s", l.Raw)
				}
				takeTurns(t, c, l, row.script)
				if got := marksOf(l); got != row.marks {
					t.Errorf("the model got: %s, want %s", got, row.marks)
				}
				if got := c.turnLog(); got != row.events {
					t.Errorf("the caller got: %s, want %s", got, row.events)
				}
				checkMarkedAudio(t, l)
			})
		})
	}
}

// marksOf returns the marks that a model got.
func marksOf(l *bridgetest.Conn) string {
	var marks []string
	for _, in := range l.Inputs() {
		if strings.HasPrefix(in.Kind, "mark ") {
			marks = append(marks, in.Kind)
		}
	}
	return strings.Join(marks, ", ")
}

// checkMarkedAudio fails if audio came outside of an activity, for which Google closes the connection.
func checkMarkedAudio(t *testing.T, l *bridgetest.Conn) {
	t.Helper()
	isOpen := false
	for _, in := range l.Inputs() {
		switch in.Kind {
		case "mark activityStart":
			isOpen = true
		case "mark activityEnd":
			isOpen = false
		case "audio":
			if !isOpen {
				t.Fatal("audio outside of an activity")
			}
		}
	}
}

// TestATurnSurvivesItsConnection loses the connection in each state of turn taking. The next connection gets the turn from its
// beginning, unless it was answered. (The answer is then its history.)
func TestATurnSurvivesItsConnection(t *testing.T) {
	const start, end = "mark activityStart", "mark activityEnd"
	for name, row := range map[string]struct {
		before, after string
		marks         string        // marks that the next connection gets
		audio         time.Duration // minimum of the audio that it gets
	}{
		"quiet":           {"q1000", "q500 s900 q2000", start + ", " + end, 1200 * time.Millisecond},
		"talking":         {"q500 s600", "s600 q2000", start + ", " + end, 1500 * time.Millisecond},
		"in a pause":      {"q500 s900 q260", "s600 q2000", start + ", " + end, 1900 * time.Millisecond},
		"waiting":         {"q500 s900 q800", "q2000", start + ", " + end, 1200 * time.Millisecond},
		"retracted":       {"q500 s900 q800 s400", "s400 q2000", start + ", " + end + ", " + start + ", " + end, 2400 * time.Millisecond},
		"an answer heard": {"q500 s900 q800 answer1000 complete q500", "q3000", "typed one two", 0},
		"held":            {"q500 s900 q800 answer4000 complete q500 s350", "q3000", "typed one two", 0},
		"cut":             {"q500 s900 q800 answer4000 complete q500 s1000", "s300 q2000", start + ", " + end, 1500 * time.Millisecond},
		"no audio comes":  {"q500 s600", "-3000", start + ", " + end, 800 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			config := fmt.Sprintf(gatewayTurns, `,"patience":{"most":600}`)
			converse(t, bridge.SessionRequest{Config: []byte(config)}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
				takeTurns(t, c, l, row.before)
				next := r.dropConnection(l)
				takeTurns(t, c, next, row.after)
				if got := next.InputLog(); got != row.marks {
					t.Errorf("the next connection got: %s, want %s", got, row.marks)
				}
				if got := media.Duration(len(next.ReceivedPCM()), 16000); got < row.audio {
					t.Errorf("it got %v of audio, want %v", got, row.audio)
				}
				checkMarkedAudio(t, next)
			})
		})
	}
}

// TestATurnEndsWithItsReason puts the call on hold, loses the caller and changes the config while the person speaks, and over a
// held answer. The model's activity ends, and the answer is not held any more.
func TestATurnEndsWithItsReason(t *testing.T) {
	const start, end = "mark activityStart", "mark activityEnd"
	for name, row := range map[string]struct {
		before, marks string
		do            func(r *harness, c *caller)
	}{
		"hold in a turn": {"q500 s600", start + ", " + end, func(_ *harness, c *caller) { c.doCommand(bridge.Pause{On: true}) }},
		"hold over a held answer": {
			"q500 s900 q2500 answer4000 complete q500 s350", start + ", " + end,
			func(_ *harness, c *caller) { c.doCommand(bridge.Pause{On: true}); c.doCommand(bridge.Pause{}) },
		},
		"the client decides now": {"q500 s600", start + ", " + end, func(_ *harness, c *caller) {
			c.doCommand(bridge.UpdateConfig{Config: []byte(`{"voxgate":{"turns":{"by":"client"}}}`)})
		}},
		"the client decides now, over a held answer": {
			"q500 s900 q2500 answer4000 complete q500 s350", start + ", " + end,
			func(_ *harness, c *caller) { c.updateConfig(`{"voxgate":{"turns":{"by":"client"}}}`) },
		},
		"the caller is lost": {"q500 s600", start + ", " + end, func(_ *harness, c *caller) { c.disconnect() }},
		"the microphone pauses": {"q500 s600", start + ", " + end, func(_ *harness, c *caller) {
			c.doCommand(bridge.AudioStreamEnd)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			config := fmt.Sprintf(gatewayTurns, `,"patience":"patient"`)
			o := bridge.SessionRequest{Config: []byte(config), Resumable: true}
			converse(t, o, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
				takeTurns(t, c, l, row.before)
				row.do(r, c)
				time.Sleep(500 * time.Millisecond) // less than any patience but for a sound that cannot go on
				if got := marksOf(l); got != row.marks {
					t.Errorf("the model got: %s, want %s", got, row.marks)
				}
				checkMarkedAudio(t, l)
				log := strings.TrimSuffix(c.turnLog(), map[bool]string{true: "speaks"}[name == "the caller is lost"]) // there is no caller then
				if strings.Count(log, "held") > strings.Count(log, "resumed")+strings.Count(log, "interrupted") || strings.HasSuffix(log, "speaks") {
					t.Errorf("the caller got: %s", log)
				}
			})
		})
	}
}

// TestAHeldAnswerGoesOn says a short word during an answer. The answer stops within 450 ms, or 150 ms if it has only begun. It
// continues within 600 ms of the word's end, and is complete.
func TestAHeldAnswerGoesOn(t *testing.T) {
	for name, row := range map[string]struct {
		before string
		within time.Duration
	}{
		"in its middle": {before: "q500 s900 q1800 answer4000 complete q1200", within: 450 * time.Millisecond},
		"early":         {before: "q500 s900 q1800 answer4000 complete q300", within: 150 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			config := fmt.Appendf(nil, gatewayTurns, "")
			converse(t, bridge.SessionRequest{Config: config}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
				takeTurns(t, c, l, row.before)
				word := r.elapsed()
				takeTurns(t, c, l, "s450")
				over := r.elapsed()
				takeTurns(t, c, l, "q5000")
				var stopped, resumed time.Duration
				frames, last := 0, time.Duration(0)
				for _, e := range c.entries() {
					if e.event != nil || e.tag == 0 {
						continue
					}
					frames++
					if last > word && stopped == 0 && e.at-last > 100*time.Millisecond {
						stopped, resumed = last, e.at
					}
					last = e.at
				}
				if stopped == 0 || stopped-word > row.within || resumed-over > 600*time.Millisecond {
					t.Errorf("word from %v to %v: the answer stopped at %v and went on at %v", word, over, stopped, resumed)
				}
				if frames < 199 || frames > 201 {
					t.Errorf("%d frames of 200 were heard", frames)
				}
			})
		})
	}
}

// fixedJudge gives the same verdict on every pause, after a delay.
type fixedJudge struct {
	finished float64
	ok       bool
	after    time.Duration
	asked    chan time.Duration // lengths of the audio
}

func (j *fixedJudge) Ask(pcm []int16, answer func(finished float64, ok bool)) {
	j.asked <- media.Duration(len(pcm), 16000)
	time.AfterFunc(j.after, func() { answer(j.finished, j.ok) })
}

// TestTurnJudge checks that the judge determines the length of a pause, or prosody if the judge has no answer.
func TestTurnJudge(t *testing.T) {
	const start, end = "mark activityStart", "mark activityEnd"
	for name, row := range map[string]struct {
		judge fixedJudge
		marks string
	}{
		"finished":     {fixedJudge{finished: 0.99, ok: true, after: 40 * time.Millisecond}, start + ", " + end + ", " + start + ", " + end},
		"not finished": {fixedJudge{finished: 0.01, ok: true, after: 40 * time.Millisecond}, start + ", " + end},
		"too late":     {fixedJudge{finished: 0.99, ok: true, after: 2 * time.Second}, start + ", " + end},
	} {
		t.Run(name, func(t *testing.T) {
			row.judge.asked = make(chan time.Duration, 10)
			o := bridge.SessionRequest{Config: fmt.Appendf(nil, gatewayTurns, "")}
			converse(t, o, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
				takeTurns(t, c, l, "q500 s900 q620 s900 q2500")
				if got := l.InputLog(); got != row.marks {
					t.Errorf("the model got: %s, want %s", got, row.marks)
				}
				if length := <-row.judge.asked; length < time.Second || length > 4*time.Second {
					t.Errorf("the judge got %v of audio", length)
				}
			}, func(o *bridge.Options) { o.TurnJudge = &row.judge })
		})
	}
}

// TestTurnsOfAnyRate changes the sample rate of the client's audio within a frame.
func TestTurnsOfAnyRate(t *testing.T) {
	config := fmt.Appendf(nil, gatewayTurns, `,"patience":{"most":300}`)
	converse(t, bridge.SessionRequest{Config: config}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		for _, rate := range []int{48000, 16000, 8000, 44100, 24000} {
			mic, err := c.session.NewMicrophone(rate)
			if err != nil {
				t.Fatal(err)
			}
			// 81 pieces of 35 ms leave three quarters of a frame of 20 ms.
			sound := append(mediatest.RealVoice(t, 900*time.Millisecond, rate), make([]int16, media.Samples(1935*time.Millisecond, rate))...)
			for len(sound) > 0 {
				n := min(len(sound), media.Samples(35*time.Millisecond, rate))
				if err := mic.WritePCM(sound[:n]); err != nil {
					t.Fatal(err)
				}
				time.Sleep(media.Duration(n, rate))
				sound = sound[n:]
			}
		}
		const turn = "mark activityStart, mark activityEnd"
		if got, want := marksOf(l), turn+strings.Repeat(", "+turn, 4); got != want {
			t.Errorf("the model got: %s, want %s", got, want)
		}
	})
}

// TestAnAnswerAfterARetraction puts the call on hold while the person continues a retracted turn, which then gets no answer.
// Later answers of the model are still played.
func TestAnAnswerAfterARetraction(t *testing.T) {
	config := fmt.Appendf(nil, gatewayTurns, `,"patience":{"most":200}`)
	converse(t, bridge.SessionRequest{Config: config}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		takeTurns(t, c, l, "q500 s900 q700 s300")
		c.doCommand(bridge.Pause{On: true})
		c.doCommand(bridge.Pause{})
		takeTurns(t, c, l, "q1000 answer1000 complete q1500")
		if got, want := c.turnLog(), "speaks quiet speaks(retracted) quiet answer complete"; got != want {
			t.Errorf("the caller got: %s, want %s", got, want)
		}
	})
}
