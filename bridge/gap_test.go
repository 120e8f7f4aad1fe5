package bridge_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/emulator"
	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/pricing"
	"voxgate/internal/testkit/bridgetest"
)

// heardAndSeen returns the length of the sound, and the messages of states, since the last clearLog.
func (c *caller) heardAndSeen() (sound time.Duration, messages []string) {
	for _, e := range c.entries() {
		if e.event == nil {
			sound += 20 * time.Millisecond
		} else if change, ok := e.event.(bridge.StateChange); ok && change.Message != "" {
			messages = append(messages, change.Message)
		}
	}
	return sound, messages
}

// While Gemini cannot be reached, the person gets tones, a sentence and a message.
func TestNetworkGapIsSignalled(t *testing.T) {
	const tone, sentence = 200 * time.Millisecond, 1560 * time.Millisecond // length of the frames whose middle sample is not silent
	for down, want := range map[time.Duration]struct {
		tones, sentences int
		reported         bool
	}{
		900 * time.Millisecond:  {},
		1500 * time.Millisecond: {1, 0, true},
		4 * time.Second:         {2, 0, true},
		12 * time.Second:        {2 + 3, 1, true},
		24 * time.Second:        {2 + 9, 1, true},
	} {
		converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
			l.SendHandle("h")
			c.clearLog()
			r.cutNetwork(l)
			time.Sleep(down)
			synctest.Wait()
			sound, reported := c.heardAndSeen()
			expect := time.Duration(want.tones)*tone + time.Duration(want.sentences)*sentence
			if (sound-expect).Abs() > 500*time.Millisecond || (len(reported) == 1) != want.reported || len(reported) > 1 {
				t.Errorf("%v: heard %v, want %v; got %v", down, sound, expect, reported)
			}
			r.up.SetFailure(0, nil)
			m := r.up.NextConn().SendSetupComplete()
			time.Sleep(3 * time.Second) // the sentence ends
			if states, _ := findEvents[bridge.StateChange](c); states[len(states)-1].State != bridge.StateLive {
				t.Errorf("%v: ends as %v", down, states)
			}
			c.checkStillWorks(m)
		})
	}
}

// The gateway's sounds do not cover the end of an answer. A person who reads the answers gets no sounds.
func TestGapIsQuietWhileTheAnswerPlays(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		l.SendVoice(7, 6*time.Second)
		r.cutNetwork(l)
		time.Sleep(4 * time.Second)
		if got := c.summarizeLog(); got != "SetupComplete Speaking 7*200" && got != "SetupComplete Speaking 7*201" {
			t.Error(got)
		}
		reader, k := func() (*caller, *bridgetest.Conn) {
			r.up.SetFailure(0, nil)
			r.up.NextConn().SendSetupComplete()
			return r.connectCaller(bridge.SessionRequest{Config: []byte(`{"generationConfig":{"responseModalities":["TEXT"]}}`)})
		}()
		r.cutNetwork(k)
		time.Sleep(8 * time.Second)
		if sound, reported := reader.heardAndSeen(); sound > 0 || len(reported) != 1 {
			t.Errorf("a reader hears %v and gets %v", sound, reported)
		}
	})
}

// A caller with NoCues gets no sound of the gateway.
func TestGapIsQuietForWhoWantsTheModelAlone(t *testing.T) {
	converse(t, bridge.SessionRequest{NoCues: true}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		r.cutNetwork(l)
		time.Sleep(8 * time.Second)
		if sound, reported := c.heardAndSeen(); sound > 0 || len(reported) != 1 {
			t.Errorf("hears %v and gets %v", sound, reported)
		}
		r.up.SetFailure(0, nil)
		c.checkStillWorks(r.up.NextConn().SendSetupComplete())
	})
}

// An exhausted quota is not retried. It is reported at once, with the time until a retry, and new conversations are rejected
// for that time.
func TestQuotaIsNotRetried(t *testing.T) {
	var refused atomic.Int32
	count := func(o *bridge.Options) { o.OnQuotaRefusal = func() { refused.Add(1) } }
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		l.CloseWith(1011, "RESOURCE_EXHAUSTED")
		if e := c.awaitFailure(bridge.CodeBusy); e.Retry != 30*time.Second {
			t.Errorf("%+v", e)
		}
		dials := r.up.DialCount()
		time.Sleep(20 * time.Second)
		if e := r.startCaller(bridge.SessionRequest{}).awaitFailure(bridge.CodeBusy); e.Retry != 10*time.Second {
			t.Errorf("%+v", e)
		}
		if n := r.up.DialCount(); n != dials {
			t.Error("it was dialled")
		}
		if closed := r.host.ClosedModels(); refused.Load() != 1 || closed[api.DefaultModel] != 10*time.Second {
			t.Errorf("%d refusals are counted, and closed are %v", refused.Load(), closed)
		}
		time.Sleep(10 * time.Second)
		// One caller is the probe for all.
		r.up.SetFailure(429, nil)
		if e := r.startCaller(bridge.SessionRequest{}).awaitFailure(bridge.CodeBusy); e.Status != 429 {
			t.Errorf("%+v", e)
		}
		r.startCaller(bridge.SessionRequest{}).awaitFailure(bridge.CodeBusy)
		if n := r.up.DialCount(); n != dials+1 {
			t.Errorf("%d dials", n-dials)
		}
		r.up.SetFailure(0, nil)
		time.Sleep(30 * time.Second)
		// if the probe fails for another reason, the next caller is the probe
		r.startCaller(bridge.SessionRequest{Account: used{bridge.Unlimited}}).awaitFailure(bridge.CodeUnauthorized)
		d, m := r.plain()
		d.checkStillWorks(m)
		e, k := r.plain()
		e.checkStillWorks(k)
		if closed := r.host.ClosedModels(); refused.Load() != 2 || len(closed) > 0 {
			t.Errorf("%d refusals are counted, and closed are %v", refused.Load(), closed)
		}
	}, count)
}

// used is the account of a caller whose single-use token was used before.
type used struct{ bridge.Account }

func (used) ConsumeToken() error {
	return &bridge.Error{Code: bridge.CodeUnauthorized, Message: "It has begun."}
}

// Google may still count a connection that has just ended, so a running conversation waits and dials again.
func TestQuotaOnResume(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		r.up.SetFailure(429, nil)
		l.DropConnection()
		time.Sleep(12 * time.Second)
		r.startCaller(bridge.SessionRequest{}).awaitFailure(bridge.CodeBusy)
		r.up.SetFailure(0, nil)
		m := r.up.NextConn().AssertSetup("", "h").SendSetupComplete()
		time.Sleep(3 * time.Second)
		c.checkStillWorks(m)
		m.SendHandle("h")
		r.up.SetFailure(429, nil)
		m.DropConnection()
		if e := c.awaitFailure(bridge.CodeBusy); e.Retry != 30*time.Second {
			t.Errorf("%+v", e)
		}
	})
}

// A fresh session gets the transcript, and does not greet again.
func TestFreshSessionGetsTheHistory(t *testing.T) {
	for _, model := range []string{"gemini-3.8-live", "gemini-3.1-flash-live-preview", "gemini-2.5-flash-native-audio-latest"} {
		runWithFakeClock(t, func(t *testing.T) {
			f := emulator.Fault{On: emulator.OnTurnComplete, Nth: 2, After: time.Second, Times: 1, Drop: true}
			r, m := emulated(t, emulator.Scenario{HandleTTL: time.Nanosecond, Faults: []emulator.Fault{f}}, watchful, distant(10*time.Millisecond))
			c := r.meets(bridge.SessionRequest{Config: json.RawMessage(`{"model":"` + model + `"}`)})
			c.typeText("my name is Ada")
			c.staySilentFor(8 * time.Second)
			c.speakAndPause(2*time.Second, 8*time.Second)
			opened := m.saw(emulator.EventOpened, emulator.EventAppended)
			reported := ""
			for _, e := range opened {
				if e.Connection == opened[len(opened)-1].Connection && !e.Resumed {
					for _, h := range e.History {
						reported += h.Role + ": " + h.Text + "|"
					}
				}
			}
			for _, want := range []string{"user: my name is Ada", "model: You said: my name is Ada", "seconds of speech"} {
				if !strings.Contains(reported, want) {
					t.Errorf("%s got %q, without %q", model, reported, want)
				}
			}
			if failures, _ := findEvents[bridge.ErrorEvent](c); len(failures) != 1 || failures[0].Err.Code != bridge.CodeResumptionFailed {
				t.Errorf("%s: %v", model, failures)
			}
			if got := strings.Count(c.summarizeEvents(), "Speaking"); got != 2 {
				t.Errorf("%s: it spoke %d times", model, got)
			}
			c.speakAndPause(time.Second, 4*time.Second)
			m.heard(2*time.Second, time.Second)
		})
	}
}

// Turns that the handle does not cover are sent after the resume. A handle that came on a resumed connection is not used,
// because it may lack the earlier turns.
func TestMissedTurnsAreTold(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("old")
		c.typeText("my name is Ada")
		l.SendContent(`%s,"outputTranscription":{"text":"Hello Ada."}`, bridgetest.VoiceField(7, time.Second))
		l.SendContent(`"turnComplete":true`)
		time.Sleep(2 * time.Second)
		c.typeText("how are you")
		l.DropConnection()
		m := r.up.NextConn().AssertSetup("", "old").SendSetupComplete()
		if got := m.InputLog(); got != "typed my name is Ada+Hello Ada., typed how are you" {
			t.Errorf("came %q", got)
		}
		m.SendHandle("new")
		m.DropConnection()
		if got := r.up.NextConn().AssertSetup("",
			"old").SendSetupComplete().InputLog(); got != "typed my name is Ada+Hello Ada., typed how are you" {
			t.Errorf("came %q", got)
		}
	})
}

// If the Findings say that the server's handles forget nothing, and that audioStreamEnd ends a turn, the gateway relies on
// that.
func TestFindingsReplaceAssumptions(t *testing.T) {
	found := func(o *bridge.Options) {
		o.Findings = map[string]liveconfig.Findings{"gemini-3.8-live": {ForgetfulHandles: new(false), SilenceRequired: new(false)}}
	}
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("old")
		l.DropConnection()
		m := r.up.NextConn().AssertSetup("", "old").SendSetupComplete()
		m.SendHandle("new")
		m.DropConnection()
		n := r.up.NextConn().AssertSetup("", "new").SendSetupComplete()
		c.sendInRealTime(loud(time.Second))
		time.Sleep(4 * time.Second) // the microphone has stopped
		if got := voiced(n.ReceivedPCM()); got != time.Second || len(n.ReceivedPCM()) > 16000 {
			t.Errorf("%v of speech came, in %d samples", got, len(n.ReceivedPCM()))
		}
	}, found)
}

// If the Findings say that a resume with a long instruction loses the conversation, the model gets a fresh session with the
// transcript.
func TestLongInstructionsAreNotResumed(t *testing.T) {
	found := func(o *bridge.Options) {
		o.Findings = map[string]liveconfig.Findings{"gemini-3.1-flash-live-preview": {ForgetfulWithLongInstruction: new(true)}}
	}
	for length, handle := range map[int]string{100: "h", 4000: ""} {
		config := fmt.Sprintf(`{"model":"gemini-3.1-flash-live-preview","systemInstruction":%q}`, strings.Repeat("word ", length/5))
		converse(t, bridge.SessionRequest{Config: []byte(config)}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
			c.typeText("my name is Ada")
			l.SendContent(`%s,"outputTranscription":{"text":"Hello Ada."},"generationComplete":true`, bridgetest.VoiceField(7, time.Second))
			l.SendContent(`"turnComplete":true`)
			l.SendHandle("h")
			time.Sleep(2 * time.Second)
			l.DropConnection()
			m := r.up.NextConn().AssertSetup("", handle).SendSetupComplete()
			if got := m.InputLog(); (handle == "") != strings.Contains(got, "my name is Ada+Hello Ada.") {
				t.Errorf("%d bytes: came %q", length, got)
			}
		}, found)
	}
}

// A question is not sent again if the handle covers the tool call that it led to, however many connections are lost.
func TestWhatWasActedOnIsNotMissed(t *testing.T) {
	converse(t, bridge.SessionRequest{Config: []byte(declare("pay"))}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		c.typeText("Pay my bill.")
		l.CallTools("a pay")
		l.SendHandle("h")
		for range 3 {
			l = r.dropConnection(l)
			if got := l.InputLog(); got != "" {
				t.Errorf("came %q", got)
			}
		}
		c.sendToolResponse("a", "", `{"paid":true}`)
		l.SendSpokenWords(7, "Paid.")
		l.CompleteTurn()
		time.Sleep(time.Second)
		l.DropConnection()
		if got := r.up.NextConn().AssertSetup("", "h").SendSetupComplete().InputLog(); !strings.HasPrefix(got, "typed Pay my bill.+Paid.") {
			t.Errorf("came %q", got)
		}
	})
}

// PrefillTurns are sent in order, are part of the transcript, and are sent again if they may be lost.
func TestPrefillTurns(t *testing.T) {
	turn := func(model bool, text string) bridge.PrefillTurn {
		return bridge.PrefillTurn{Model: model, Parts: fmt.Appendf(nil, `[{"text":%q}]`, text)}
	}
	seed := bridge.PrefillTurns{Turns: []bridge.PrefillTurn{turn(false, "one"), turn(true, "two"), turn(false, "three"), turn(true, "four")}}
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("old")
		c.doCommand(seed)
		c.typeText("five")
		if got := l.InputLog(); got != "typed one+two+three+four, typed five" {
			t.Errorf("came %q", got)
		}
		l.DropConnection()
		m := r.up.NextConn().AssertSetup("", "old").SendSetupComplete()
		if got := m.InputLog(); got != "typed one+two+three+four, typed five" {
			t.Errorf("sent again: %q", got)
		}
		var texts []string
		for _, e := range c.contextEntries() {
			texts = append(texts, e.Role+" "+e.Content)
		}
		if got := strings.Join(texts, ", "); got != "user one, assistant two, user three, assistant four, user five" {
			t.Errorf("kept %s", got)
		}
	})
	converse(
		t,
		bridge.SessionRequest{Config: []byte(`{"model":"gemini-3.1-flash-live-preview"}`)},
		func(t *testing.T, _ *harness, c *caller, _ *bridgetest.Conn) {
			if err := c.session.Do(seed); err == nil {
				t.Error("a model got it that takes only what asks for an answer")
			}
		},
	)
}

func TestContextHoldsTheTranscript(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		l.SendContent(`"inputTranscription":{"text":"Tell me "}`)
		l.SendContent(`"inputTranscription":{"text":"a story."}`)
		for _, word := range []string{"Once ", "upon ", "a ", "time "} {
			l.SendContent(`%s,"outputTranscription":{"text":%q}`, bridgetest.VoiceField(7, time.Second), word)
		}
		time.Sleep(2500 * time.Millisecond)
		l.SendContent(`"interrupted":true`)
		l.SendContent(`"inputTranscription":{"text":"Stop."}`)
		l.SendContent(`"turnComplete":true`)
		l.SendContent(`%s,"outputTranscription":{"text":"As you wish."}`, bridgetest.VoiceField(7, time.Second))
		l.SendContent(`"turnComplete":true`)
		time.Sleep(2 * time.Second)
		c.typeText("thanks")
		c.checkContext("u: Tell me a story.; a: Once upon a (cut after 2.5 s); u: Stop.; a: As you wish.; u: thanks")
	})
}

func TestContextIsBounded(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		for i := range 1050 { // of two entries each
			l.SendContent(`"inputTranscription":{"text":"%d"},"outputTranscription":{"text":"%d"},"turnComplete":true`, i, i)
		}
		time.Sleep(time.Second)
		if got := c.contextEntries(); len(got) != 2000 || got[1999].Content != "1049" {
			t.Errorf("%d entries, the last %+v", len(got), got[len(got)-1])
		}
		for range 5 {
			l.SendContent(`"inputTranscription":{"text":%q},"turnComplete":true`, strings.Repeat("ä", 90_000))
		}
		if got := c.contextEntries(); len(got) != 2 {
			t.Errorf("%d entries", len(got))
		}
		l.SendContent(`"inputTranscription":{"text":%q},"turnComplete":true`, strings.Repeat("ö", 300_000))
		if got := c.contextEntries(); len(got) != 1 || len([]rune(got[0].Content)) != 200_000 {
			t.Errorf("%d entries", len(got))
		}
	})
}

func TestClearContext(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		c.typeText("my name is Ada")
		l.SendVoice(7, 10*time.Second)
		time.Sleep(time.Second)
		c.clearLog()
		c.doCommand(bridge.ClearContext{})
		m := r.up.NextConn().AssertSetup("", "").SendSetupComplete()
		c.checkLog("Interrupted History")
		if got := c.contextEntries(); len(got) != 0 {
			t.Errorf("kept %v", got)
		}
		if got := m.InputLog(); got != "" {
			t.Errorf("the fresh session got %q", got)
		}
		c.checkStillWorks(m)
	})
}

// A conversation ends at its limits, but not in the middle of an answer.
func TestConversationEndsAtItsLimits(t *testing.T) {
	for name, test := range map[string]struct {
		config string
		tokens int
		reach  func(*bridgetest.Conn)
		want   error
	}{
		"time": {`{"voxgate":{"maxDuration":"30s"}}`, 0, func(*bridgetest.Conn) { time.Sleep(30 * time.Second) }, bridge.ErrTimeLimit},
		"tokens": {`{}`, 1000, func(l *bridgetest.Conn) {
			l.Send(`{"usageMetadata":{"totalTokenCount":1000},"serverContent":{"turnComplete":true}}`)
		}, bridge.ErrTokenLimit},
	} {
		for _, talking := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				runWithFakeClock(t, func(t *testing.T) {
					r := newHarness(t, func(o *bridge.Options) { o.MaxTokens = test.tokens })
					c, l := r.connectCaller(bridge.SessionRequest{Config: []byte(test.config)})
					begin := r.elapsed()
					if talking && name == "time" {
						time.Sleep(29 * time.Second)
						l.SendAnswer(7, 5*time.Second)
						begin = r.elapsed() - 25*time.Second
					} else if talking {
						l.SendVoice(7, 5*time.Second)
						begin = r.elapsed() + 5*time.Second
						test.reach(l)
					} else {
						test.reach(l)
					}
					c.awaitEnd(test.want)
					if took := r.elapsed() - begin; name == "time" && !isAbout(took, 30*time.Second) || name == "tokens" && !isAbout(took, 0) {
						t.Errorf("talking %v: ended after %v", talking, took)
					}
					if talking && c.countFrames() != 250 {
						t.Errorf("%d frames of the last answer were heard", c.countFrames())
					}
				})
			})
		}
	}
}

// Once the tokens are used up, a question typed during the last answer is not sent, and costs nothing.
func TestWhatIsAskedPastTheLimit(t *testing.T) {
	for name, ask := range map[string]bridge.Command{
		"message": bridge.Message{Text: "More.", TurnComplete: true}, "text": bridge.Text{Text: "More."}, "respond": bridge.Prompt{},
	} {
		t.Run(name, func(t *testing.T) {
			runWithFakeClock(t, func(t *testing.T) {
				c, l := newHarness(t, func(o *bridge.Options) { o.MaxTokens = 1000 }).connectCaller(bridge.SessionRequest{})
				l.SendVoice(7, 5*time.Second)
				l.Send(`{"usageMetadata":{"totalTokenCount":1000},"serverContent":{"turnComplete":true}}`)
				c.doCommand(ask)
				c.awaitEnd(bridge.ErrTokenLimit)
				if got := l.InputLog(); got != "" {
					t.Errorf("Gemini got %s", got)
				}
			})
		})
	}
}

// Fields beside serverContent in Gemini's message are separate from those within it.
func TestRawFieldsOutsideServerContent(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		l.Send(`{"usageMetadata":{"totalTokenCount":1}}`)
		l.Send(`{"voiceActivity":{"type":"ACTIVITY_START"}}`)
		l.Send(`{"newField":1}`)
		l.Send(`{"serverContent":{"newField":2}}`)
		var got []string
		raws, _ := findEvents[bridge.RawServerContent](c)
		for _, r := range raws {
			got = append(got, fmt.Sprint(r.TopLevel, string(r.ServerContent)))
		}
		want := `true{"usageMetadata":{"totalTokenCount":1}} true{"voiceActivity":{"type":"ACTIVITY_START"}} ` +
			`true{"newField":1} false{"newField":2}`
		if strings.Join(got, " ") != want {
			t.Errorf("%s", got)
		}
	})
}

func TestTokenUsageIsReported(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		for range 2 {
			l.Send(`{"usageMetadata":{"promptTokenCount":100,"responseTokenCount":20,"totalTokenCount":120,` +
				`"promptTokensDetails":[{"modality":"AUDIO","tokenCount":90},{"modality":"TEXT","tokenCount":10}],` +
				`"responseTokensDetails":[{"modality":"AUDIO","tokenCount":20}]},"serverContent":{"turnComplete":true}}`)
		}
		got, reported := findEvents[bridge.Usage](c)
		over, ended := findEvents[bridge.TurnComplete](c)
		if len(over) != 2 || reported[1] > ended[1] {
			t.Errorf("got at %v, of turns over at %v", reported, ended)
		}
		if len(got) != 2 || got[1].Turn.Prompt != 100 || got[1].Turn.PromptBy["AUDIO"] != 90 || got[1].Total.Total != 240 ||
			got[1].Total.ResponseBy["AUDIO"] != 40 {
			t.Errorf("%+v", got)
		}
		if got[1].Dollars == nil || *got[1].Dollars != 0.001035 { // twice 90 at $3 a million, 10 at $0.75, 20 at $12, to the millionth
			t.Errorf("it costs %v", got[1].Dollars)
		}
		c.disconnect()
		if end := r.log.find("conversation ended"); len(end) != 1 || end[0]["tokens"] != 240.0 {
			t.Errorf("%v", end)
		}
	}, priced)
}

// On another connection, the model counts the tokens of the turn from zero. The tokens from before the loss of the
// connection are added.
func TestUsageOfALostConnection(t *testing.T) {
	converse(t, resumable, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		c.typeText("Tell me a story.")
		l.Send("%s", reports(5000, 100)+"}")
		l.SendVoice(7, time.Second)
		synctest.Wait()
		m := r.dropConnection(l)
		m.Send("%s", reports(5300, 150)+`,"serverContent":{"turnComplete":true}}`)
		if got := lastEvent[bridge.Usage](c); got.Turn.Total != 5450 || got.Total.Total != 10_550 {
			t.Errorf("a turn of %d tokens, %d in all", got.Turn.Total, got.Total.Total)
		}
	})
}

// priced gives the gateway the prices of the models.
func priced(o *bridge.Options) { o.Prices = pricing.Default }

// Each turn is priced by its model. A turn of a model without a price makes the sum unknown.
func TestTheModelChangesAndItsPrice(t *testing.T) {
	converse(t, bridge.SessionRequest{Config: []byte(`{"model":"gemini-3.8-live"}`)},
		func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
			turn := `{"usageMetadata":{"promptTokenCount":1000,"totalTokenCount":1000,` +
				`"promptTokensDetails":[{"modality":"TEXT","tokenCount":1000}]},` +
				`"serverContent":{"turnComplete":true}}`
			for _, step := range []struct {
				model string
				costs float64
			}{{"", 0.00075}, {"gemini-2.5-flash-native-audio-latest", 0.00125}, {"gemini-9-live", 0}, {"gemini-3.8-live", 0}} {
				if step.model != "" {
					c.updateConfig(`{"model":"` + step.model + `"}`)
					l = r.up.NextConn().SendSetupComplete()
					synctest.Wait()
				}
				l.Send("%s", turn)
				got := lastEvent[bridge.Usage](c)
				if (got.Dollars != nil) != (step.costs > 0) || step.costs > 0 && *got.Dollars != step.costs {
					t.Errorf("%s: %+v", step.model, got)
				}
			}
		}, priced)
}

func TestRepeatedMessageIDsAreDetected(t *testing.T) {
	converse(t, resumable, func(t *testing.T, r *harness, c *caller, _ *bridgetest.Conn) {
		for i := range 300 {
			if id := string(rune('a'+i%26)) + strings.Repeat("x", i/26); !c.session.MarkReceived(id) {
				t.Errorf("%s is said to be known", id)
			}
		}
		if c.session.MarkReceived("zxxxxxxxxxx") {
			t.Error("the same arrived twice")
		}
		c.disconnect()
		if got := lastEvent[bridge.SetupComplete](r.resumeByToken(c.resumeToken())).ReceivedIDs; len(got) != 256 {
			t.Errorf("%d ids", len(got))
		}
	})
}

// Audio is dropped while a model waits for a tool, if audio would make that model close the session.
func TestAudioIsHeldWhileABlockingToolRuns(t *testing.T) {
	converse(
		t,
		bridge.SessionRequest{Config: []byte(strings.Replace(declare("weather"), "{", `{"model":"gemini-3.1-flash-live-preview",`, 1))},
		func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
			l.CallTools("a weather")
			c.checkLog("SetupComplete ToolCall(a)")
			c.sendAudio(loud(time.Second))
			if n := len(l.ReceivedPCM()); n > 0 {
				t.Errorf("%d samples came", n)
			}
			c.sendToolResponse("a", "", `{"x":1}`)
			c.sendAudio(loud(time.Second))
			if n := len(l.ReceivedPCM()); n != 16000 {
				t.Errorf("%d samples came", n)
			}
			l.CallTools("b weather")
			c.entries()
			time.Sleep(10 * time.Second)
			l.AssertToolResponses(`a weather {"x":1}`, `b weather {"error":"the tool did not answer in time (10s)"}`)
			c.sendAudio(loud(time.Second))
			if n := len(l.ReceivedPCM()); n != 32000 {
				t.Errorf("%d samples came", n)
			}
		},
	)
}
