package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/bridgetest"
	"voxgate/tools"
)

// modelMessages holds single messages of the model. Those listed in asking show that the person has said something.
var modelMessages = map[string]string{
	"empty":                 `{}`,
	"empty content":         `{"serverContent":{}}`,
	"transcript":            `{"serverContent":{"outputTranscription":{"text":"."}}}`,
	"transcript, null":      `{"serverContent":{"outputTranscription":null}}`,
	"transcript finished":   `{"serverContent":{"outputTranscription":{"finished":true}}}`,
	"thought":               `{"serverContent":{"modelTurn":{"parts":[{"text":"Hm","thought":true}]}}}`,
	"thought, transcript":   `{"serverContent":{"modelTurn":{"parts":[{"text":"Hm","thought":true}]},"outputTranscription":{"text":"."}}}`,
	"voice":                 `{"serverContent":{` + bridgetest.VoiceField(9, 200*time.Millisecond) + `}}`,
	"voice and transcript":  `{"serverContent":{` + bridgetest.VoiceField(9, 200*time.Millisecond) + `,"outputTranscription":{"text":"."}}}`,
	"one sample of voice":   `{"serverContent":{"modelTurn":{"parts":[{"inlineData":{"mimeType":"audio/pcm;rate=24000","data":"AAA="}}]}}}`,
	"written text":          `{"serverContent":{"modelTurn":{"parts":[{"text":"."}]}}}`,
	"code":                  `{"serverContent":{"modelTurn":{"parts":[{"executableCode":{"code":"1"}}]}}}`,
	"grounding":             `{"serverContent":{"groundingMetadata":{"webSearchQueries":["x"]}}}`,
	"usage":                 `{"usageMetadata":{"totalTokenCount":3}}`,
	"usage, empty content":  `{"usageMetadata":{"totalTokenCount":3},"serverContent":{}}`,
	"generationComplete":    `{"serverContent":{"generationComplete":true}}`,
	"turnComplete":          `{"serverContent":{"turnComplete":true}}`,
	"both ends":             `{"serverContent":{"generationComplete":true,"turnComplete":true}}`,
	"turn, usage":           `{"usageMetadata":{"totalTokenCount":3},"serverContent":{"turnComplete":true}}`,
	"interrupted":           `{"serverContent":{"interrupted":true}}`,
	"interrupted, turn":     `{"serverContent":{"interrupted":true,"turnComplete":true}}`,
	"still working":         `{"serverContent":{"interactionStatus":"IN_PROGRESS"}}`,
	"idle":                  `{"serverContent":{"interactionStatus":"IDLE"}}`,
	"waiting for input":     `{"serverContent":{"waitingForInput":true}}`,
	"voice activity":        `{"voiceActivity":{"type":"ACTIVITY_START"}}`,
	"cancellation":          `{"toolCallCancellation":{"ids":["x"]}}`,
	"handle":                `{"sessionResumptionUpdate":{"newHandle":"h2","resumable":true}}`,
	"no handle":             `{"sessionResumptionUpdate":{}}`,
	"an unknown field":      `{"somethingNew":{"a":1}}`,
	"the person's words":    `{"serverContent":{"inputTranscription":{"text":"Hello?"}}}`,
	"the person's, nothing": `{"serverContent":{"inputTranscription":{"text":""}}}`,
}

// unaskedStates holds functions that lead to states in which no answer is due.
var unaskedStates = map[string]func(c *caller, l *bridgetest.Conn){
	"before any turn": func(*caller, *bridgetest.Conn) {},
	"after an answer": func(c *caller, l *bridgetest.Conn) {
		c.typeText("Hi.")
		l.SendSpokenWords(7, "He", "llo")
		l.CompleteTurn()
		time.Sleep(1500 * time.Millisecond)
	},
	"long after an answer": func(c *caller, l *bridgetest.Conn) {
		c.typeText("Hi.")
		l.SendSpokenWords(7, "He", "llo")
		l.CompleteTurn()
		time.Sleep(20 * time.Second)
	},
	"while the answer is played": func(c *caller, l *bridgetest.Conn) {
		c.typeText("Hi.")
		l.SendVoice(7, 3*time.Second)
		l.CompleteTurn()
		time.Sleep(time.Second)
	},
	"after a spoken question": func(c *caller, l *bridgetest.Conn) {
		c.speakAndPause(time.Second, time.Second)
		l.SendSpokenWords(7, "He", "llo")
		l.CompleteTurn()
		time.Sleep(1500 * time.Millisecond)
	},
	"after an interruption that was answered": func(c *caller, l *bridgetest.Conn) {
		c.typeText("Hi.")
		l.SendVoice(7, 3*time.Second)
		time.Sleep(time.Second)
		c.speakAndPause(time.Second, time.Second)
		l.InterruptTurn()
		l.SendAnswer(8, time.Second)
		time.Sleep(2 * time.Second)
	},
	"after an interruption by the client": func(c *caller, l *bridgetest.Conn) {
		c.typeText("Hi.")
		l.SendVoice(7, 3*time.Second)
		time.Sleep(time.Second)
		c.doCommand(bridge.Interrupt{})
		l.InterruptTurn()
		time.Sleep(time.Second)
	},
	"after a turn of nothing": func(c *caller, l *bridgetest.Conn) {
		c.typeText("Hi.")
		l.CompleteTurn()
		time.Sleep(time.Second)
	},
}

// TestUnexpectedModelMessages sends every message of the model in every state in which no answer is due. Even if nothing
// follows, the gateway asks nothing and replaces no connection. A turn that has begun ends without an interruption, and the
// conversation goes on.
func TestUnexpectedModelMessages(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for state, reach := range unaskedStates {
		for message, raw := range modelMessages {
			t.Run(state+", "+message, func(t *testing.T) {
				converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
					l.SendHandle("h")
					reach(c, l)
					synctest.Wait()
					c.clearLog()
					sent := len(l.InputLog())
					l.Send("%s", raw)
					time.Sleep(150 * time.Millisecond)
					l.Send("%s", raw) // sends the message a second time
					words := message == "the person's words" && (state == "before any turn" || state == "long after an answer")
					if words { // the transcript is a question
						time.Sleep(time.Second)
						l.SendAnswer(8, time.Second)
					}
					time.Sleep(30 * time.Second)
					if tried := c.watchdogAttempts(); tried != "" {
						t.Errorf("tried %s", tried)
					}
					r.up.AssertNoDial()
					if said := l.InputLog(); len(said) != sent {
						t.Errorf("the model was sent %q", said[sent:])
					}
					kinds := strings.Fields(c.summarizeEvents())
					if slices.Contains(kinds, "Interrupted") && !(state == "while the answer is played" && strings.HasPrefix(message, "interrupted")) {
						t.Errorf("something was cut off: %s", kinds)
					}
					began, over := 0, 0
					for _, kind := range kinds {
						switch kind {
						case "Speaking":
							began++
						case "TurnComplete", "Interrupted":
							over++
						}
					}
					if began > over || c.thinkingEvents() != "" && strings.HasSuffix(c.thinkingEvents(), "thinks") {
						t.Errorf("a turn has no end: %s, %s", kinds, c.thinkingEvents())
					}
					c.clearLog()
					c.checkStillWorks(l)
				}, watchful)
			})
		}
	}
}

// TestTranscriptAfterTheTurn sends pieces of a transcript after the end of its turn. They belong to that turn, as far as it
// was played.
func TestTranscriptAfterTheTurn(t *testing.T) {
	const piece = `{"serverContent":{"outputTranscription":{"text":" there"}}}`
	for name, test := range map[string]struct {
		reach func(c *caller, l *bridgetest.Conn)
		want  string
	}{
		"heard": {func(c *caller, l *bridgetest.Conn) {
			l.SendSpokenWords(7, "Hel", "lo")
			l.CompleteTurn()
			time.Sleep(time.Second)
		}, "u: Hi.; a: Hello there"},
		"while it is played": {func(c *caller, l *bridgetest.Conn) {
			l.SendSpokenWords(7, "Hel", "lo")
			l.CompleteTurn()
		}, "u: Hi.; a: Hello there"},
		"of what was cut off": {func(c *caller, l *bridgetest.Conn) {
			l.SendSpokenWords(7, "Hel", "lo", " my", " friend")
			time.Sleep(510 * time.Millisecond)
			c.doCommand(bridge.Interrupt{})
			l.InterruptTurn()
		}, "u: Hi.; a: Hello (cut after 0.5 s)"},
		"between interrupted and turnComplete": {func(c *caller, l *bridgetest.Conn) {
			l.SendSpokenWords(7, "Hel", "lo", " my", " friend")
			time.Sleep(510 * time.Millisecond)
			l.SendContent(`"interrupted":true`)
			l.Send(piece)
			l.SendContent(`"turnComplete":true`)
		}, "u: Hi.; a: Hello (cut after 0.5 s)"},
	} {
		t.Run(name, func(t *testing.T) {
			converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
				c.typeText("Hi.")
				test.reach(c, l)
				l.Send(piece)
				time.Sleep(10 * time.Second)
				if texts, _ := findEvents[bridge.AssistantText](c); strings.Contains(test.want, "there") {
					if last := texts[len(texts)-1]; last.Turn != 1 || !last.Final || last.Text != "Hello there" {
						t.Errorf("the last text is %+v", last)
					}
				}
				c.checkContext(test.want)
				if got := lastEvent[bridge.SetupComplete](c); got.Update {
					t.Error("set up again")
				}
				c.typeText("More?")
				l.SendSpokenWords(8, "No")
				l.CompleteTurn()
				time.Sleep(time.Second)
				c.checkContext(test.want + "; u: More?; a: No")
			}, watchful)
		})
	}
}

// TestWordsCountAsSpeech sends transcripts of speech that the gateway's detector has not found, or whose end it detects
// later than the model.
func TestWordsCountAsSpeech(t *testing.T) {
	t.Run("not heard here", func(t *testing.T) {
		converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
			l.SendContent(`"inputTranscription":{"text":"Hello?"}`)
			time.Sleep(10 * time.Second)
			if tried := c.watchdogAttempts(); tried == "" {
				t.Error("an answer is due, and nothing was tried")
			}
		}, watchful)
	})
	t.Run("answered before our detector has found the end", func(t *testing.T) {
		converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
			c.speakWithoutPause(time.Second)
			c.staySilentFor(40 * time.Millisecond)
			l.SendContent(`"inputTranscription":{"text":"Hello?"}`)
			l.SendAnswer(8, 100*time.Millisecond)
			c.staySilentFor(30 * time.Second)
			if tried := c.watchdogAttempts(); tried != "" {
				t.Errorf("tried %s", tried)
			}
			c.checkStillWorks(l)
		}, watchful)
	})
}

// TestTypedTextAfterAStrayTurn types during an unrequested turn that has no end. The answer is played.
func TestTypedTextAfterAStrayTurn(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		c.typeText("Hi.")
		l.SendAnswer(7, time.Second)
		time.Sleep(1500 * time.Millisecond)
		l.SendContent("%s", bridgetest.VoiceField(7, 100*time.Millisecond))
		time.Sleep(time.Second)
		c.clearLog()
		c.typeText("More?")
		time.Sleep(500 * time.Millisecond)
		l.SendAnswer(8, time.Second)
		time.Sleep(2 * time.Second)
		if got := c.summarizeLog(); !strings.HasSuffix(got, "Speaking 8*50 TurnComplete") {
			t.Errorf("%s", got)
		}
	}, watchful)
}

// TestWhatHasInterrupted checks the reported cause of an interruption, which the model does not report.
func TestWhatHasInterrupted(t *testing.T) {
	respond := func(c *caller) { c.doCommand(bridge.Prompt{Instruction: "Say that it rains."}) }
	typed := func(c *caller) { c.typeText("What time is it?") }
	speaks := func(c *caller) { c.speakWithoutPause(300 * time.Millisecond) }
	for name, test := range map[string]struct {
		before func(c *caller)
		during func(c *caller) // what happens during the answer
		want   bridge.Cause
	}{
		"typed, then an instruction": {func(c *caller) { typed(c); respond(c) }, nil, bridge.ByClient},
		"an instruction, then typed": {func(c *caller) { respond(c); typed(c) }, nil, bridge.ByText},
		"typed twice":                {func(c *caller) { typed(c); typed(c) }, nil, bridge.ByText},
		"spoken":                     {typed, speaks, bridge.ByVoice},
		"heard by the model alone":   {typed, nil, bridge.ByVoice},
		"typed, instruction, spoken": {func(c *caller) { typed(c); respond(c) }, speaks, bridge.ByVoice},
	} {
		t.Run(name, func(t *testing.T) {
			converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
				test.before(c)
				l.SendVoice(7, 3*time.Second)
				time.Sleep(20 * time.Millisecond)
				if test.during != nil {
					test.during(c)
				}
				l.InterruptTurn()
				if cut := lastEvent[bridge.Interrupted](c); cut.By != test.want {
					t.Errorf("cut by %q, want %q", cut.By, test.want)
				}
			})
		})
	}
}

// TestEmptyEndOfATurnWithCalls ends the turn with the calls before the answer, as models do that continue while a tool runs.
// If the gateway answers all calls, the client does not get this end: it would take it for an empty answer.
func TestEmptyEndOfATurnWithCalls(t *testing.T) {
	const ended = `{"serverContent":{"generationComplete":true}}|{"serverContent":{"turnComplete":true},"usageMetadata":{"totalTokenCount":9}}`
	const both = `{"serverContent":{"generationComplete":true,"turnComplete":true}}`
	for name, test := range map[string]struct {
		calls string
		ends  string
		want  string // ends of turns that the client gets, before the answer and after it
	}{
		"the gateway's":           {`{"id":"1","name":"pay","args":{}}`, ended, "0 1"},
		"two of the gateway's":    {`{"id":"1","name":"pay","args":{}},{"id":"2","name":"pay","args":{"a":1}}`, ended, "0 1"},
		"in one message":          {`{"id":"1","name":"pay","args":{}}`, both, "0 1"},
		"the client's":            {`{"id":"c","name":"show","args":{}}`, ended, "1 2"},
		"one of each":             {`{"id":"1","name":"pay","args":{}},{"id":"c","name":"show","args":{}}`, ended, "1 2"},
		"a tool that is not here": {`{"id":"1","name":"nothing","args":{}}`, ended, "0 1"},
	} {
		t.Run(name, func(t *testing.T) {
			converse(t, bridge.SessionRequest{Config: json.RawMessage(declare("show"))},
				func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
					ends := func() int {
						turns, _ := findEvents[bridge.TurnComplete](c)
						raws, _ := findEvents[bridge.RawServerContent](c)
						raw := 0
						for _, m := range raws {
							if strings.Contains(string(m.ServerContent), `"turnComplete":true`) {
								raw++
							}
						}
						if raw != len(turns) {
							t.Errorf("%d ends, %d in Google's words", len(turns), raw)
						}
						return len(turns)
					}
					c.typeText("Pay.")
					l.Send(`{"toolCall":{"functionCalls":[%s]}}`, test.calls)
					for message := range strings.SplitSeq(test.ends, "|") {
						l.Send("%s", message)
					}
					time.Sleep(time.Second)
					before := ends()
					if strings.Contains(test.calls, "show") {
						c.doCommand(bridge.ToolResponse{ID: "c"})
					}
					l.SendAnswer(7, time.Second)
					time.Sleep(2 * time.Second)
					if got := fmt.Sprint(before, " ", ends()); got != test.want {
						t.Errorf("ends %s, want %s: %s", got, test.want, c.summarizeLog())
					}
					if tried := c.watchdogAttempts(); tried != "" {
						t.Errorf("tried %s", tried)
					}
					c.checkStillWorks(l)
				}, watchful, func(o *bridge.Options) {
					pay := tools.Tool{
						Declaration: tools.Declaration{Name: "pay", Description: "Pays"},
						Run: func(context.Context, json.RawMessage) (json.RawMessage, error) {
							return json.RawMessage(`{"paid":true}`), nil
						},
					}
					o.Tools = func() []tools.Tool { return []tools.Tool{pay} }
				})
		})
	}
}
