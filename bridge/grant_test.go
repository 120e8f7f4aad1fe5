package bridge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/bridgetest"
	"voxgate/tools"
)

// A tool that is not granted does not run, even if the model calls it.
func TestAToolThatIsNotGranted(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		ran := map[string]int{}
		tool := func(name string) tools.Tool {
			return tools.Tool{
				Declaration: tools.Declaration{Name: name},
				Run: func(context.Context, json.RawMessage) (json.RawMessage, error) {
					ran[name]++
					return json.RawMessage(`{"ok":true}`), nil
				},
			}
		}
		r := newHarness(t, func(o *bridge.Options) {
			o.Tools = func() []tools.Tool { return []tools.Tool{tool("pay"), tool("look_up")} }
		})
		c, l := r.connectCaller(bridge.SessionRequest{Grant: &bridge.Grant{Tools: []string{"look_*"}}})
		l.CallTools("a pay", "b look_up")
		time.Sleep(time.Second)
		synctest.Wait()
		if ran["pay"] != 0 || ran["look_up"] != 1 {
			t.Errorf("ran %v", ran)
		}
		if e := lastEvent[bridge.ErrorEvent](c).Err; e.Code != bridge.CodeToolNotFound {
			t.Errorf("got %v", e)
		}
	})
}

// bill is an account that sums the tokens.
type bill struct {
	bridge.Account
	spent int
}

func (b *bill) RecordCost(cost, _ bridge.Cost) (left, most bridge.Cost) {
	b.spent += cost.Tokens
	return left, most
}

// If a caller hangs up within an answer, the tokens used so far are counted.
func TestHangingUpIsNotFree(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		r := newHarness(t)
		b := &bill{Account: bridge.Unlimited}
		c, l := r.connectCaller(bridge.SessionRequest{Account: b})
		c.typeText("Tell me a story.")
		l.Send(`{"usageMetadata":{"promptTokenCount":30,"responseTokenCount":12,"totalTokenCount":42}}`)
		l.SendVoice(1, time.Second)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		c.doCommand(bridge.Goodbye{})
		c.serveError()
		if b.spent != 42 {
			t.Errorf("%d tokens were counted", b.spent)
		}
	})
}

// reports returns the model's usageMetadata for a turn, with in and out as its numbers of audio tokens.
func reports(in, out int) string {
	return fmt.Sprintf(`{"usageMetadata":{"promptTokenCount":%d,"responseTokenCount":%d,"totalTokenCount":%d,`+
		`"promptTokensDetails":[{"modality":"AUDIO","tokenCount":%d}],"responseTokensDetails":[{"modality":"AUDIO","tokenCount":%d}]}`,
		in, out, in+out, in, out)
}

// over reports whether the conversation has ended.
func over(c *caller) bool {
	synctest.Wait()
	select {
	case <-c.session.Done():
		return true
	default:
		return false
	}
}

// A conversation with a money limit never costs more than the limit. A turn that might exceed it does not begin, and nothing
// more is sent to the model. The client gets a warning before.
func TestDollarsOfAConversation(t *testing.T) {
	for most, open := range map[float64]bridge.SessionRequest{
		0.08: {Grant: &bridge.Grant{MaxDollars: 0.08}},
		0.5:  {Grant: &bridge.Grant{MaxDollars: 0.5}, Agent: bridge.Agent{MaxDollars: 1.5}},
		1.5:  {Grant: &bridge.Grant{MaxDollars: 9}, Agent: bridge.Agent{MaxDollars: 1.5}},
	} {
		converse(t, open, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
			context, turns, paid := 500, 0, 0.0
			for ; !over(c); turns++ {
				c.typeText("More.")
				context += 1500
				l.SendVoice(7, time.Second)
				l.Send("%s", reports(context, 1500)+`,"serverContent":{"turnComplete":true}}`)
				paid = *lastEvent[bridge.Usage](c).Dollars
				context += 1500
				if context > 25_600 {
					context = 12_800
				}
				time.Sleep(2 * time.Second) // until the answer was played
			}
			c.awaitEnd(bridge.ErrBudget)
			if paid > most || paid < most-0.12 || turns < 2 {
				t.Errorf("$%g of $%g are paid after %d turns", paid, most, turns)
			}
			warnings := 0
			logs, _ := findEvents[bridge.Log](c)
			for _, e := range logs {
				if left, ok := e.Details["dollarsLeft"].(float64); ok {
					if warnings++; left > most*0.1 && left > 0.25 {
						t.Errorf("warned at $%g of $%g", left, most)
					}
				}
			}
			if warnings != 1 {
				t.Errorf("warned %d times", warnings)
			}
		}, priced)
	}
}

// While the last affordable answer is played, nothing is sent to the model.
func TestNothingGoesUpPastTheBudget(t *testing.T) {
	converse(t, bridge.SessionRequest{Grant: &bridge.Grant{MaxDollars: 0.08}}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		c.typeText("Hello.")
		l.SendVoice(7, 5*time.Second)
		l.Send("%s", reports(15_000, 500)+`,"serverContent":{"turnComplete":true}}`)
		synctest.Wait()
		before := len(l.ReceivedPCM())
		c.speakWithoutPause(time.Second)
		if after := len(l.ReceivedPCM()); after != before {
			t.Errorf("%d samples went up", after-before)
		}
		c.awaitEnd(bridge.ErrBudget)
	}, priced)
}

// This also holds for the speech of a returning caller, and for input into a canvas.
func TestNothingGoesUpPastTheBudgetByOthers(t *testing.T) {
	open := canvasOn("gemini-3.1-flash-live-preview")
	open.Grant = &bridge.Grant{MaxDollars: 0.08}
	converse(t, open, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.CallTool("a", "show_canvas_tool", schema(question))
		l.SendVoice(7, 5*time.Second)
		l.Send("%s", reports(15_000, 500)+`,"serverContent":{"turnComplete":true}}`)
		synctest.Wait()
		before, said := len(l.ReceivedPCM()), l.InputLog()
		d := r.resumeByToken(c.resumeToken())
		d.sendToolResponse("a", "", filled)
		d.speakWithoutPause(time.Second)
		if after := len(l.ReceivedPCM()); after != before || l.InputLog() != said {
			t.Errorf("%d samples went up, and %q", after-before, strings.TrimPrefix(l.InputLog(), said))
		}
		d.awaitEnd(bridge.ErrBudget)
	}, priced)
}

// At its time limit, a conversation omits the goodbye if it may cost more than the rest of the budget. Further questions are
// not answered.
func TestNoGoodbyeOverTheBudget(t *testing.T) {
	for _, asks := range []bool{false, true} {
		open := bridge.SessionRequest{FarewellPrompt: "Say goodbye.", Grant: &bridge.Grant{MaxDollars: 0.08, MaxDuration: 10 * time.Second}}
		converse(t, open, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
			time.Sleep(8 * time.Second)
			c.typeText("Hello.")
			l.SendVoice(7, 8*time.Second)
			time.Sleep(4 * time.Second) // the time limit has passed
			l.Send("%s", reports(15_000, 500)+`,"serverContent":{"turnComplete":true}}`)
			synctest.Wait()
			before := l.InputLog()
			if asks {
				_ = c.session.Do(bridge.Message{Text: "And now?", TurnComplete: true}) // this command may itself end the conversation
			}
			c.awaitEnd(bridge.ErrTimeLimit)
			if said := l.InputLog(); said != before {
				t.Errorf("the model got %q", strings.TrimPrefix(said, before))
			}
		}, priced)
	}
}

// An agent that is named in a running conversation applies its money limit.
func TestDollarsOfAnAgentNamedLater(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		c.doCommand(bridge.UpdateConfig{Agent: &bridge.Agent{MaxDollars: 0.001}})
		if e := lastEvent[bridge.SetupFailed](c).Err; !errors.Is(e, bridge.ErrBudget) {
			t.Errorf("an agent whose first turn may cost more: %v", e)
		}
		c.doCommand(bridge.UpdateConfig{Agent: &bridge.Agent{MaxDollars: 0.08}})
		c.typeText("Hello.")
		l.SendVoice(7, time.Second)
		l.Send("%s", reports(15_000, 500)+`,"serverContent":{"turnComplete":true}}`)
		c.awaitEnd(bridge.ErrBudget)
	}, priced)
}

// A turn that is longer than its reservation reserves more, or is interrupted.
func TestALongTurnCostsNoMoreThanIsLeft(t *testing.T) {
	converse(t, bridge.SessionRequest{Grant: &bridge.Grant{MaxDollars: 0.05}}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		c.typeText("Tell me a story.")
		for range 300 { // seconds of 25 tokens, or 0.0003 dollars, each
			l.SendVoice(7, time.Second)
			time.Sleep(time.Second)
			if over(c) {
				break
			}
		}
		c.awaitEnd(bridge.ErrBudget)
		if took := r.elapsed(); took < 60*time.Second || took > 170*time.Second {
			t.Errorf("it was cut off after %v", took)
		}
	}, priced)
}

// If the client limits the tokens of an answer, only that number is reserved.
func TestShortAnswersReserveLittle(t *testing.T) {
	open := bridge.SessionRequest{Config: []byte(`{"generationConfig":{"maxOutputTokens":100}}`), Grant: &bridge.Grant{MaxDollars: 0.012}}
	converse(t, open, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		c.typeText("Hello.")
		l.SendVoice(7, 4*time.Second)
		time.Sleep(5 * time.Second)
		l.Send("%s", reports(100, 100)+`,"serverContent":{"turnComplete":true}}`)
		if time.Sleep(time.Second); over(c) {
			t.Error("it has ended")
		}
	}, priced)
}

// With the results of tools, the model reads the whole context again. Without money for that, the tool does not run.
func TestNoToolRunsWithoutMoneyForItsAnswer(t *testing.T) {
	converse(t, bridge.SessionRequest{Config: []byte(declare("look_up")), Grant: &bridge.Grant{MaxDollars: 0.1}},
		func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
			l.Send("%s", reports(22_000, 20)+"}")
			l.CallTools("a look_up")
			c.awaitEnd(bridge.ErrBudget)
			if calls, _ := findEvents[bridge.ToolCall](c); len(calls) > 0 {
				t.Errorf("asked for %v", calls)
			}
		}, priced)
}

// If money is limited, a model without a price is rejected, at the beginning and later. A limit that is too low for one turn
// is rejected, too.
func TestDollarsOfAModelWithoutAPrice(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		r := newHarness(t, priced)
		limited := &bridge.Grant{MaxDollars: 1}
		e := r.startCaller(bridge.SessionRequest{Config: []byte(`{"model":"gemini-9-live"}`), Grant: limited}).awaitFailure(bridge.CodeForbidden)
		if e.Field != "initialConfig.model" {
			t.Errorf("%+v", e)
		}
		r.startCaller(bridge.SessionRequest{Grant: &bridge.Grant{MaxDollars: 0.01}}).awaitFailure(bridge.CodeBusy)
		c, _ := r.connectCaller(bridge.SessionRequest{Grant: limited})
		c.updateConfig(`{"model":"gemini-9-live"}`)
		synctest.Wait()
		if e := lastEvent[bridge.SetupFailed](c).Err; e.Field != "payload.model" {
			t.Errorf("%v", e)
		}
	})
}

// A rejected change of the backend is not part of its next change.
func TestARefusedConfigIsNotSteered(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		r := newHarness(t)
		c, _ := r.connectCaller(
			bridge.SessionRequest{Config: json.RawMessage(`{"model":"gemini-3.8-live"}`), Grant: &bridge.Grant{Models: []string{"gemini-3.8*"}}},
		)
		c.updateConfig(`{"model":"gemini-2.5-flash-native-audio-latest"}`)
		time.Sleep(time.Second)
		synctest.Wait()
		if e := lastEvent[bridge.SetupFailed](c).Err; e.Field != "payload.model" {
			t.Errorf("%v", e)
		}
		if err := c.session.Do(bridge.BackendUpdate{Agent: bridge.Agent{Prompt: "You sell hats."}}); err != nil {
			t.Errorf("refused with %v", err)
		}
	})
}

// The precedence of the settings that the caller cannot change applies to each field separately.
func TestPrecedenceOfAgentFields(t *testing.T) {
	file, key, hook := bridge.Agent{
		Prompt: "file",
		Voice:  "file",
	}, bridge.Agent{
		Prompt: "key",
		Model:  "key",
	}, bridge.Agent{
		Prompt:   "hook",
		Language: "hook",
	}
	grant := &bridge.Grant{Agent: key}
	for _, test := range []struct {
		open bridge.SessionRequest
		want bridge.Agent
	}{
		{bridge.SessionRequest{}, bridge.Agent{}},
		{bridge.SessionRequest{Agent: file}, file},
		{bridge.SessionRequest{Agent: file, Grant: &bridge.Grant{}}, file},
		{bridge.SessionRequest{Grant: grant}, key},
		{bridge.SessionRequest{Agent: file, Grant: grant}, bridge.Agent{Prompt: "key", Voice: "file", Model: "key"}},
		{bridge.SessionRequest{Agent: file, Override: hook}, bridge.Agent{Prompt: "hook", Voice: "file", Language: "hook"}},
		{bridge.SessionRequest{Grant: grant, Override: hook}, bridge.Agent{Prompt: "hook", Language: "hook", Model: "key"}},
		{bridge.SessionRequest{Agent: file, Grant: grant, Override: hook}, bridge.Agent{
			Prompt: "hook", Voice: "file", Language: "hook",
			Model: "key",
		}},
	} {
		if got := test.open.MergedAgent(); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%+v want %+v", test.open, got)
		}
	}
}

// The model's configuration comes from these layers, and later ones override earlier ones, field by field: the operator's
// file, the caller, the grant, the session webhook, the operator's backend. This holds at the beginning, after each change
// by the caller, even of few fields, and at another gateway.
func TestLayersOfTheAgent(t *testing.T) {
	configured := func(prompt, voice, language string) json.RawMessage {
		return fmt.Appendf(nil, `{"systemInstruction":%q,"generationConfig":{"speechConfig":{"languageCode":%q,
			"voiceConfig":{"prebuiltVoiceConfig":{"voiceName":%q}}}}}`, prompt, language, voice)
	}
	open := bridge.SessionRequest{
		Resumable: true, Config: configured("client", "Puck", "de-DE"), Agent: bridge.Agent{Prompt: "file", Voice: "Kore", Language: "it-IT"},
		Grant: &bridge.Grant{Agent: bridge.Agent{Prompt: "grant", Voice: "Zephyr"}}, Override: bridge.Agent{Prompt: "webhook"},
	}
	runTwoGateways(t, open, func(t *testing.T, a, b *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		check := func(when string, c *caller, prompt, voice, language string) {
			t.Helper()
			synctest.Wait()
			done := lastEvent[bridge.SetupComplete](c)
			var got struct {
				SystemInstruction struct{ Parts []struct{ Text string } }
				GenerationConfig  struct {
					SpeechConfig struct {
						LanguageCode string
						VoiceConfig  struct{ PrebuiltVoiceConfig struct{ VoiceName string } }
					}
				}
			}
			if err := json.Unmarshal(done.EffectiveConfig, &got); err != nil || len(got.SystemInstruction.Parts) != 1 {
				t.Fatalf("%s: %s, %v", when, done.EffectiveConfig, err)
			}
			speech := got.GenerationConfig.SpeechConfig
			have := fmt.Sprint(got.SystemInstruction.Parts[0].Text, " ", speech.VoiceConfig.PrebuiltVoiceConfig.VoiceName, " ", speech.LanguageCode)
			if want := prompt + " " + voice + " " + language; have != want {
				t.Errorf("%s: %s, want %s", when, have, want)
			}
		}
		next := func(c *caller, command bridge.Command) {
			t.Helper()
			c.clearLog()
			c.doCommand(command)
			a.up.NextConn().SendSetupComplete().SendHandle("h") // another voice or language needs another connection
		}
		check("at the beginning", c, "webhook", "Zephyr", "de-DE")
		next(c, bridge.UpdateConfig{Config: configured("client again", "Aoede", "fr-FR")})
		check("after a change", c, "webhook", "Zephyr", "fr-FR")
		next(c, bridge.UpdateConfig{Config: json.RawMessage(`{}`)})
		check("after a change that says nothing", c, "webhook", "Zephyr", "it-IT")
		next(c, bridge.BackendUpdate{Agent: bridge.Agent{Voice: "Leda"}})
		check("after a change by the backend", c, "webhook", "Leda", "it-IT")
		d := b.resumeCaller(c)
		a.up.NextConn().SendSetupComplete().SendHandle("h")
		check("at another gateway", d, "webhook", "Leda", "it-IT")
		next(d, bridge.UpdateConfig{Config: configured("client again", "Aoede", "fr-FR")})
		check("there, after a change", d, "webhook", "Leda", "fr-FR")
	})
}

// A fixed voice replaces every other setting of a voice.
func TestAFixedVoiceIsTheOnlyOne(t *testing.T) {
	config := `{"generationConfig":{"speechConfig":{"voiceConfig":{"voice":"Puck","replicatedVoiceConfig":{"mimeType":"audio/pcm"}}}}}`
	open := bridge.SessionRequest{Config: []byte(config), Grant: &bridge.Grant{Agent: bridge.Agent{Voice: "Kore"}}}
	converse(t, open, func(t *testing.T, _ *harness, c *caller, _ *bridgetest.Conn) {
		got := string(lastEvent[bridge.SetupComplete](c).EffectiveConfig)
		if want := `"voiceConfig":{"prebuiltVoiceConfig":{"voiceName":"Kore"}}`; !strings.Contains(got, want) {
			t.Errorf("the model got %s", got)
		}
	})
}

// The caller's config overrides that of a file: in objects field by field, in either spelling, except in the atomicFields.
// Tools are added, null changes nothing, and a note is appended to any prompt.
func TestConfigsInLayers(t *testing.T) {
	for name, test := range map[string]struct{ file, caller, want string }{
		"one":       {`{"a":1}`, ``, `{"a":1}`},
		"the other": {``, `{"a":1}`, `{"a":1}`},
		"field by field": {
			`{"generationConfig":{"topK":1,"temperature":0.1}}`, `{"generation_config":{"top_k":2}}`,
			`{"generationConfig":{"temperature":0.1,"topK":2}}`,
		},
		"one or the other": {
			`{"generationConfig":{"thinkingConfig":{"thinkingLevel":"LOW"}}}`,
			`{"generationConfig":{"thinkingConfig":{"thinkingBudget":0}}}`, `{"generationConfig":{"thinkingConfig":{"thinkingBudget":0}}}`,
		},
		"tools": {
			`{"tools":[{"googleSearch":{}}]}`, `{"tools":[{"functionDeclarations":[{"name":"f"}]}]}`,
			`{"tools":[{"googleSearch":{}},{"functionDeclarations":[{"name":"f"}]}]}`,
		},
		"null": {`{"voxgate":{"record":true}}`, `{"voxgate":null}`, `{"voxgate":{"record":true}}`},
	} {
		runWithFakeClock(t, func(t *testing.T) {
			got := bridge.Agent{Config: json.RawMessage(test.caller)}.MergeOver(bridge.Agent{Config: json.RawMessage(test.file)}).Config
			if string(got) != test.want {
				t.Errorf("%s: %s, want %s", name, got, test.want)
			}
		})
	}
	for config, want := range map[string]string{
		`{}`:                                 `[{"text":"note"}]`,
		`{"system_instruction":"Be brief."}`: `[{"text":"Be brief.\n\nnote"}]`,
		`{"systemInstruction":{"parts":[{"text":"Be brief."}]}}`: `[{"text":"Be brief."},{"text":"note"}]`,
	} {
		converse(t, bridge.SessionRequest{Config: json.RawMessage(config), PromptSuffix: "note"}, func(t *testing.T, _ *harness, c *caller,
			_ *bridgetest.Conn,
		) {
			var got struct {
				SystemInstruction struct{ Parts json.RawMessage }
			}
			setup := lastEvent[bridge.SetupComplete](c).EffectiveConfig
			if err := json.Unmarshal(setup, &got); err != nil || string(got.SystemInstruction.Parts) != want {
				t.Errorf("%s: %s, %v", config, got.SystemInstruction.Parts, err)
			}
		})
	}
}

// An agent can use the granted tools that its file lists. A limit in its file applies whatever the caller requests.
func TestToolsAndTimeOfAnAgent(t *testing.T) {
	named := func(list ...string) (all []tools.Tool) {
		for _, name := range list {
			all = append(all, tools.Tool{
				Declaration: tools.Declaration{Name: name},
				Run:         func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, nil },
			})
		}
		return all
	}
	for name, test := range map[string]struct {
		open bridge.SessionRequest
		want string
	}{
		"nothing said": {bridge.SessionRequest{}, "[find_room pay]"},
		"some":         {bridge.SessionRequest{Agent: bridge.Agent{Tools: []string{"find_*"}}, Tools: named("end_call")}, "[find_room end_call]"},
		"none":         {bridge.SessionRequest{Agent: bridge.Agent{Tools: []string{}}}, "[]"},
		"not granted":  {bridge.SessionRequest{Agent: bridge.Agent{Tools: []string{"*"}}, Grant: &bridge.Grant{Tools: []string{"pay"}}}, "[pay]"},
	} {
		runWithFakeClock(t, func(t *testing.T) {
			r := newHarness(t, func(o *bridge.Options) { o.Tools = func() []tools.Tool { return named("find_room", "pay") } })
			test.open.Agent.MaxDuration = time.Minute
			test.open.Config = json.RawMessage(`{"voxgate":{"maxDuration":"2h"}}`)
			c, _ := r.connectCaller(test.open)
			got := []string{}
			for _, tool := range lastEvent[bridge.SetupComplete](c).Tools {
				got = append(got, tool.Name)
			}
			if fmt.Sprint(got) != test.want {
				t.Errorf("%s: %v, want %s", name, got, test.want)
			}
			time.Sleep(time.Minute)
			c.awaitEnd(bridge.ErrTimeLimit)
			if took := r.elapsed(); !isAbout(took, time.Minute) {
				t.Errorf("%s: over after %v", name, took)
			}
		})
	}
}

// A locked agent overrides its caller, also at another gateway. Its tools are declared once.
func TestALockedAgent(t *testing.T) {
	open := bridge.SessionRequest{
		Resumable: true, AgentLocked: true, Config: json.RawMessage(`{"systemInstruction":"client","generationConfig":{"topK":3}}`),
		Agent: bridge.Agent{Prompt: "file", Config: json.RawMessage(`{"tools":[{"googleSearch":{}}]}`)},
	}
	runTwoGateways(t, open, func(t *testing.T, a, b *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h")
		check := func(when string, c *caller) {
			t.Helper()
			synctest.Wait()
			config := string(lastEvent[bridge.SetupComplete](c).EffectiveConfig)
			if !strings.Contains(config, `"file"`) || strings.Contains(config, "client") || strings.Count(config, "googleSearch") != 1 ||
				!strings.Contains(config, `"topK":3`) {
				t.Errorf("%s: %s", when, config)
			}
		}
		check("at the beginning", c)
		d := b.resumeCaller(c)
		a.up.NextConn().SendSetupComplete().SendHandle("h")
		check("at another gateway", d)
	})
}
