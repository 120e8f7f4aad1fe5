package bridge_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/bridgetest"
	"voxgate/media"
)

// askedStates holds functions that lead to states in which an answer is due or is played.
var askedStates = map[string]func(c *caller, l *bridgetest.Conn){
	"after typed text":        func(c *caller, _ *bridgetest.Conn) { c.typeText("Hi.") },
	"after a spoken question": func(c *caller, _ *bridgetest.Conn) { c.speakAndPause(time.Second, time.Second) },
	"while the person speaks": func(c *caller, _ *bridgetest.Conn) { c.speakWithoutPause(500 * time.Millisecond) },
	"while the model speaks": func(c *caller, l *bridgetest.Conn) {
		c.typeText("Hi.")
		l.SendSpokenWords(7, "He", "llo")
		time.Sleep(100 * time.Millisecond)
	},
	"while the model thinks": func(c *caller, l *bridgetest.Conn) {
		c.typeText("Hi.")
		l.Send(`{"serverContent":{"modelTurn":{"parts":[{"text":"Hm","thought":true}]}}}`)
	},
	"while the person speaks over the model": func(c *caller, l *bridgetest.Conn) {
		c.typeText("Hi.")
		l.SendVoice(7, 3*time.Second)
		time.Sleep(500 * time.Millisecond)
		c.speakWithoutPause(500 * time.Millisecond)
	},
	"after an interruption by text": func(c *caller, l *bridgetest.Conn) {
		c.typeText("Hi.")
		l.SendVoice(7, 3*time.Second)
		time.Sleep(500 * time.Millisecond)
		c.typeText("Stop.")
	},
	"between interrupted and turnComplete": func(c *caller, l *bridgetest.Conn) {
		c.typeText("Hi.")
		l.SendVoice(7, 3*time.Second)
		time.Sleep(500 * time.Millisecond)
		l.SendContent(`"interrupted":true`)
	},
}

// turnFaults returns violations in the client's events: each answer that begins must end exactly once.
func (c *caller) turnFaults() (faults []string) {
	began, ended := map[int]int{}, map[int]string{}
	for _, e := range c.entries() {
		turn, end := 0, ""
		switch b := e.event.(type) {
		case bridge.Speaking:
			if began[b.Turn]++; began[b.Turn] > 1 {
				faults = append(faults, fmt.Sprintf("turn %d begins twice", b.Turn))
			}
			if ended[b.Turn] != "" {
				faults = append(faults, fmt.Sprintf("turn %d begins behind its end", b.Turn))
			}
			continue
		case bridge.TurnComplete:
			turn, end = b.Turn, "TurnComplete"
		case bridge.Interrupted:
			turn, end = b.Turn, "Interrupted"
		default:
			continue
		}
		if ended[turn] != "" && !(turn == 0) {
			faults = append(faults, fmt.Sprintf("turn %d has two ends: %s, %s", turn, ended[turn], end))
		}
		ended[turn] = end
	}
	for turn := range began {
		if ended[turn] == "" {
			faults = append(faults, fmt.Sprintf("turn %d has no end", turn))
		}
	}
	if thinks := c.thinkingEvents(); strings.HasSuffix(thinks, "thinks") {
		faults = append(faults, "an answer is due for ever")
	}
	return faults
}

// rawFaults returns violations in the order of Google's own marks: interrupted must precede the turnComplete of its turn.
func (c *caller) rawFaults() (faults []string) {
	since := "" // the newest end of a turn, if no voice came after it
	for _, e := range c.entries() {
		switch b := e.event.(type) {
		case nil:
			since = ""
		case bridge.Speaking:
			since = ""
		case bridge.Interrupted:
			if since == "turnComplete" {
				faults = append(faults, "interrupted behind turnComplete")
			}
		case bridge.RawServerContent:
			switch content := string(b.ServerContent); {
			case strings.Contains(content, `"turnComplete":true`):
				since = "turnComplete"
			case strings.Contains(content, "modelTurn"), strings.Contains(content, "outputTranscription"):
				since = ""
			}
		}
	}
	return faults
}

// TestSequencesOfMessages sends two and three consecutive messages of the model in every state. Each answer that the client
// gets ends once, and an interruption comes before the end of its turn. No answer begins without voice or text. The model is
// asked again only if an answer was due, and the conversation goes on.
func TestSequencesOfMessages(t *testing.T) {
	messages := maps.Clone(modelMessages)
	messages["goAway"] = `{"goAway":{"timeLeft":"50s"}}`
	messages["a call"] = `{"toolCall":{"functionCalls":[{"id":"x","name":"nothing","args":{}}]}}`
	names := slices.Sorted(maps.Keys(messages))
	pick := rand.New(rand.NewPCG(48, 1)).IntN
	const tries = 20 // in each state
	states := map[string]func(c *caller, l *bridgetest.Conn){}
	for name, reach := range unaskedStates {
		states["nobody asks, "+name] = reach
	}
	for name, reach := range askedStates {
		states["asked, "+name] = reach
	}
	for _, state := range slices.Sorted(maps.Keys(states)) {
		for i := range tries {
			sequence := make([]string, 2+i%2)
			for j := range sequence {
				sequence[j] = names[pick(len(names))]
			}
			calls := slices.Contains(sequence, "a call")
			asked := calls || strings.HasPrefix(state, "asked") || slices.Contains(sequence, "the person's words")
			if i := slices.Index(sequence, "goAway"); i >= 0 && (asked || i < len(sequence)-1) { // later messages would come on another connection
				continue
			}
			gap := []time.Duration{0, 20 * time.Millisecond, 400 * time.Millisecond, 1200 * time.Millisecond}[pick(4)]
			atOnce := pick(3) == 0
			t.Run(fmt.Sprintf("%s: %s, %v apart, at once %v", state, strings.Join(sequence, "; "), gap, atOnce), func(t *testing.T) {
				runWithFakeClock(t, func(t *testing.T) {
					r := newHarness(t, watchful)
					if atOnce {
						r.lead = media.UnlimitedLead
					}
					c, l := r.connectCaller(bridge.SessionRequest{})
					l.SendHandle("h")
					states[state](c, l)
					synctest.Wait()
					sent := len(l.InputLog())
					before, _ := findEvents[bridge.Speaking](c)
					for _, name := range sequence {
						l.Send("%s", messages[name])
						time.Sleep(gap)
					}
					if asked {
						if strings.Contains(state, "speaks") {
							c.staySilentFor(2 * time.Second)
						}
						if strings.Contains(state, "over the model") || strings.Contains(state, "by text") {
							l.InterruptTurn()
						}
						time.Sleep(time.Second)
						if calls {
							l.CompleteTurn()
							time.Sleep(100 * time.Millisecond)
						}
						l.SendAnswer(8, time.Second)
					}
					time.Sleep(40 * time.Second)
					check := func(ok bool, format string, args ...any) {
						if !ok {
							t.Errorf(format+"; the client saw %s; %s; the model got %s", append(args, c.summarizeEvents(), c.thinkingEvents(), l.InputLog())...)
						}
					}
					faults := c.turnFaults()
					if atOnce {
						faults = append(faults, c.rawFaults()...)
					}
					check(len(faults) == 0, "%q", faults)
					if asked {
						return
					}
					after, _ := findEvents[bridge.Speaking](c)
					voiced := slices.ContainsFunc(sequence, func(s string) bool { return strings.Contains(s, "voice") && s != "voice activity" })
					check(voiced || len(after) == len(before) || strings.Contains(state, "while the answer"), "an answer begins")
					check(c.watchdogAttempts() == "", "tried %s", c.watchdogAttempts())
					check(len(l.InputLog()) == sent, "the model was sent more")
					if !slices.Contains(sequence, "goAway") {
						r.up.AssertNoDial()
						if !atOnce {
							c.checkStillWorks(l)
						}
					}
				})
			})
		}
	}
}
