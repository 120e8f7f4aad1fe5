package bridge_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/bridgetest"
	"voxgate/media"
)

// personSpeech is a second of a real voice at 16 kHz, without the silence before it.
func personSpeech(t *testing.T, d time.Duration) []int16 {
	t.Helper()
	raw, err := os.ReadFile("../media/silero/testdata/speech.pcm")
	if err != nil {
		t.Fatal(err)
	}
	voice := media.AppendSamples(nil, raw)[16000*32/100 : 16000*124/100]
	var pcm []int16
	for len(pcm) < int(d.Seconds()*16000) {
		pcm = append(pcm, voice...)
	}
	return pcm[:int(d.Seconds()*16000)]
}

// noiseBurst is a cough: loud noise that no one takes for a voice.
func noiseBurst(d time.Duration) []int16 {
	rng := rand.New(rand.NewPCG(1, 1))
	pcm := make([]int16, int(d.Seconds()*16000))
	for i := range pcm {
		fade := 1 - float64(i)/float64(len(pcm))
		pcm[i] = int16(5000 * fade * rng.NormFloat64())
	}
	return pcm
}

// takeTurns plays a script: "q500" is quiet, "s800" a voice and "n300" noise of so many milliseconds, "-500" no audio at all,
// "answer2000" an answer of the model of that length, and "interrupted" and "complete" end its turn.
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
			c.sendInRealTime(personSpeech(t, d))
		case "n":
			c.sendInRealTime(noiseBurst(d))
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

// turnLog is what the caller was told about turns.
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

// TestGatewayTakesTurns plays each state of turn taking to a scripted model: what it gets, and what the caller is told.
func TestGatewayTakesTurns(t *testing.T) {
	const start, end = "mark activityStart", "mark activityEnd"
	for name, row := range map[string]struct{ settings, script, marks, events string }{
		"a sentence":            {"", "q500 s900 q2000", start + ", " + end, "speaks quiet"},
		"a sentence, then off":  {"", "q500 s900 -2500", start + ", " + end, "speaks quiet"},
		"a cough in quiet":      {"", "q500 n300 q2000", "", ""},
		"a pause in a sentence": {`,"patience":"patient"`, "q500 s900 q400 s900 q3000", start + ", " + end, "speaks quiet"},
		"the end is retracted": {
			`,"patience":{"most":200}`, "q500 s900 q700 s900 q1000",
			start + ", " + end + ", " + start + ", " + end, "speaks quiet speaks(retracted) quiet",
		},
		"retracted while the answer is on its way": {
			`,"patience":{"most":200}`, "q500 s900 q700 s300 answer1000 interrupted s500 q1000",
			start + ", " + end + ", " + start + ", " + end, "speaks quiet speaks(retracted) quiet",
		},
		"an answer": {"", "q500 s900 q1800 answer1000 complete q1500", start + ", " + end, "speaks quiet answer complete"},
		"a cough over an answer": {
			"", "q500 s900 q1800 answer3000 complete q1000 n300 q3000", start + ", " + end, "speaks quiet answer complete",
		},
		"a short word over an answer": {
			"", "q500 s900 q1800 answer3000 complete q1000 s450 q3000", start + ", " + end, "speaks quiet answer held resumed complete",
		},
		"an interruption": {
			"", "q500 s900 q1800 answer5000 complete q1000 s1200 q2000",
			start + ", " + end + ", " + start + ", " + end, "speaks quiet answer held speaks interrupted:voice quiet",
		},
		"interrupted at once": {
			`,"interrupt":"at-once"`, "q500 s900 q1800 answer5000 complete q1000 s300 q2000",
			start + ", " + end + ", " + start + ", " + end, "speaks quiet answer speaks interrupted:voice quiet",
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
				if got := l.InputLog(); got != row.marks {
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
