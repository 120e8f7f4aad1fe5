package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/bridgetest"
	"voxgate/tools"
)

// The plain fields of an agent override its config. The model gets the other fields of the config unchanged.
func TestAgentFieldsOverrideTheConfig(t *testing.T) {
	agent := bridge.Agent{Prompt: "Be brief.", Voice: "Puck", Language: "de-DE", Model: "gemini-3.8-live"}
	for name, test := range map[string]struct {
		agent     bridge.Agent
		config    string
		want, not []string
	}{
		"alone": {agent, `{}`, []string{"Be brief.", `"voiceName":"Puck"`, `"languageCode":"de-DE"`, `models/gemini-3.8-live"`}, nil},
		"null":  {agent, `null`, []string{"Be brief.", `"voiceName":"Puck"`}, nil},
		"wins": {
			agent,
			`{"model":"gemini-3.1-flash-live-preview","systemInstruction":"Be long.",` +
				`"generationConfig":{"speechConfig":{"languageCode":"en-US"}}}`,
			[]string{"Be brief.", `"languageCode":"de-DE"`, `models/gemini-3.8-live"`},
			[]string{"Be long", "en-US", "3.1"},
		},
		"wins in other words": {
			agent,
			`{"system_instruction":"Be long.","generation_config":{"temperature":0.5,` +
				`"speech_config":{"voice_config":{"prebuilt_voice_config":{"voice_name":"Kore"}}}}}`,
			[]string{"Be brief.", `"voiceName":"Puck"`, `"temperature":0.5`},
			[]string{"Be long", "Kore"},
		},
		"one field": {
			bridge.Agent{Voice: "Puck"},
			`{"systemInstruction":"Be long.","generationConfig":{"seed":1234567,"speechConfig":{"languageCode":"en-US"}}}`,
			[]string{"Be long.", `"voiceName":"Puck"`, `"languageCode":"en-US"`, `"seed":1234567`},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			open := bridge.SessionRequest{Override: test.agent, Config: json.RawMessage(test.config)}
			converse(t, open, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
				for _, w := range test.want {
					if !strings.Contains(l.Raw, w) {
						t.Errorf("no %s in %s", w, l.Raw)
					}
				}
				for _, w := range test.not {
					if strings.Contains(l.Raw, w) {
						t.Errorf("%s in %s", w, l.Raw)
					}
				}
				c.checkStillWorks(l)
			})
		})
	}
}

func TestAgentOnABadConfig(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		r := newHarness(t)
		for config, field := range map[string]string{
			`[1]`: "initialConfig", `{`: "initialConfig", `{} {}`: "initialConfig",
			`{"generationConfig":{"temperature":"hot"}}`: "initialConfig.generationConfig.temperature",
		} {
			c := r.startCaller(bridge.SessionRequest{Agent: bridge.Agent{Prompt: "Be brief."}, Config: json.RawMessage(config)})
			if e := c.awaitFailure(bridge.CodeBadConfig); e.Field != field {
				t.Errorf("%s: field %s", config, e.Field)
			}
		}
		r.up.AssertNoDial()
	})
}

// The tools of a SessionRequest run only in that conversation, in addition to the operator's.
func TestToolsOfOneConversation(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		say := func(answer string) tools.Func {
			return func(context.Context, json.RawMessage) (json.RawMessage, error) { return json.RawMessage(answer), nil }
		}
		all := make([]tools.Tool, 1, 4) // with room for a careless append
		all[0] = tools.Tool{Declaration: tools.Declaration{Name: "clock"}, Run: say(`{"hour":3}`)}
		r := newHarness(t, func(o *bridge.Options) { o.Tools = func() []tools.Tool { return all } })
		mine := func(answer string) bridge.SessionRequest {
			return bridge.SessionRequest{Tools: []tools.Tool{{Declaration: tools.Declaration{Name: "transfer"}, Run: say(answer)}}}
		}
		_, a := r.connectCaller(mine(`{"of":"a"}`))
		_, b := r.connectCaller(mine(`{"of":"b"}`))
		plain, l := r.plain()
		for _, l := range []*bridgetest.Conn{a, b, l} {
			l.CallTools("1 clock", "2 transfer")
		}
		a.AssertToolResponses(`1 clock {"hour":3}`, `2 transfer {"of":"a"}`)
		b.AssertToolResponses(`1 clock {"hour":3}`, `2 transfer {"of":"b"}`)
		l.AssertToolResponses(`1 clock {"hour":3}`, `2 transfer {"error":"unknown tool \"transfer\""}`)
		if done := lastEvent[bridge.SetupComplete](plain); len(done.Tools) != 1 || strings.Contains(l.Raw, "transfer") ||
			!strings.Contains(a.Raw, "transfer") {
			t.Errorf("%+v\n%s\n%s", done.Tools, l.Raw, a.Raw)
		}
		if own := all[:2][1].Name; own != "" {
			t.Errorf("%q is among the operator's", own)
		}
	})
}

// For a client that configures after it has connected, the gateway dials once: with that config, or without it after a
// while.
func TestDeferredDialWaitsForAConfig(t *testing.T) {
	for name, test := range map[string]struct {
		updates  []string
		temp     string
		after    time.Duration
		reported string
	}{
		"nothing comes": {nil, "0.1", 800 * time.Millisecond, "SetupComplete"},
		"an update":     {[]string{warm("0.5")}, "0.5", 300 * time.Millisecond, "SetupComplete SetupComplete"},
		"a refused one": {[]string{warm(`"hot"`)}, "0.1", 800 * time.Millisecond, "SetupComplete SetupFailed"},
		"a refused one and a way": {
			[]string{warm(`"hot"`), warm("0.5")},
			"0.5", 600 * time.Millisecond,
			"SetupComplete SetupFailed SetupComplete",
		},
	} {
		t.Run(name, func(t *testing.T) {
			runWithFakeClock(t, func(t *testing.T) {
				r := newHarness(t)
				c := r.startCaller(bridge.SessionRequest{DeferDial: true, Config: []byte(warm("0.1"))})
				<-c.seated
				c.sendAudio(countingPCM(0, 3200)) // this audio is not lost
				for _, u := range test.updates {
					time.Sleep(300 * time.Millisecond)
					r.up.AssertNoDial()
					c.updateConfig(u)
				}
				l := r.up.NextConn().AssertSetup(test.temp, "")
				if at := r.elapsed(); at != test.after {
					t.Errorf("dialled after %v", at)
				}
				l.SendSetupComplete()
				c.checkLog(test.reported)
				if all := setups(c); all[0].Update || len(all) > 1 && !all[1].Update {
					t.Errorf("%+v", all)
				}
				if n := len(l.ReceivedPCM()); n != 3200 {
					t.Errorf("%d samples came", n)
				}
				c.checkStillWorks(l)
				r.up.AssertNoDial()
			})
		})
	}
}

// A conversation can begin with the history of another one. The model and the transcript get that history.
func TestHistoryOfAnotherConversation(t *testing.T) {
	const history = `"voxgate":{"history":[{"role":"user","content":"My name is Ada."},{"role":"model","content":"Hello Ada."}]}`
	for model, seeded := range map[string]bool{
		"gemini-3.8-live": true, "gemini-3.1-flash-live-preview": true,
		"gemini-2.5-flash-native-audio-latest": true,
	} {
		t.Run(model, func(t *testing.T) {
			converse(
				t,
				bridge.SessionRequest{Config: fmt.Appendf(nil, `{"model":%q,%s}`, model, history)},
				func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
					reported := strings.Contains(l.InputLog()+l.Raw, "My name is Ada.+Hello Ada.")
					if reported != seeded {
						t.Errorf("came %s", l.InputLog())
					}
					c.typeText("what is my name?")
					memory := c.contextEntries()
					if len(memory) != 3 || memory[0].Role+memory[0].Content != "userMy name is Ada." ||
						memory[1].Role+memory[1].Content != "assistantHello Ada." {
						t.Errorf("%+v", memory)
					}
					l.SendSpokenWords(7, "Ada.")
					l.SendContent(`"turnComplete":true`)
					time.Sleep(time.Second)
					l.DropConnection() // a fresh session gets both conversations
					m := r.up.NextConn().SendSetupComplete()
					if got := m.InputLog(); seeded && !strings.Contains(got, "My name is Ada.+Hello Ada.+what is my name?+Ada.") {
						t.Errorf("came %s", got)
					}
					c.doCommand(bridge.ClearContext{})
					n := r.up.NextConn().SendSetupComplete()
					if got := n.InputLog(); got != "" || len(c.contextEntries()) != 0 {
						t.Errorf("after the history was cleared came %q", got)
					}
				},
			)
		})
	}
}

// A caller that returns with the number of its last event gets the missed events once and in order. Without that number, it
// gets only the essential events.
func TestMissedEventsAreReplayed(t *testing.T) {
	for _, numbered := range []bool{true, false} {
		t.Run(fmt.Sprint(numbered), func(t *testing.T) {
			converse(t, bridge.SessionRequest{Resumable: true, Config: []byte(declare("weather"))}, func(t *testing.T, r *harness, c *caller,
				l *bridgetest.Conn,
			) {
				l.SendHandle("h")
				c.typeText("hi")
				l.SendSpokenWords(7, "Hello ", "there.")
				l.SendContent(`"turnComplete":true`)
				time.Sleep(time.Second)
				l.CallTools("a weather", "b weather")
				synctest.Wait()
				seen := c.events()
				had := seen[len(seen)-1].Number
				if !numbered {
					had = 0
				}
				c.blockDelivery() // the connection is dead, and neither side has noticed
				c.sendToolResponse("b", "", `{"x":1}`)
				l.SendHandle("h2")
				l.CallTools("c weather")
				l.Send(`{"toolCallCancellation":{"ids":["c"]}}`)
				l.CallTools("d weather")
				synctest.Wait()
				d := r.startCaller(bridge.SessionRequest{Resumable: true, ResumeToken: c.resumeToken(), LastEvent: had})
				c.awaitEnd(bridge.ErrReplaced)
				want := "SetupComplete ToolCallCancellation(c) ToolCall(d)"
				if !numbered {
					want = "SetupComplete ToolCall(a) ToolCallCancellation(c) ToolCall(d)"
				}
				d.checkLog(want)
				got := d.events()
				if got[0].Number != 0 || numbered && got[1].Number <= had {
					t.Errorf("sent again: %+v", got)
				}
				before := c.events()
				d.clearLog()
				l.CallTools("e weather")
				if next := d.events()[0].Number; next <= before[len(before)-1].Number {
					t.Errorf("event %d comes after event %d", next, before[len(before)-1].Number)
				}
			})
		})
	}
}

// ToMicros rounds a tiny limit up, because 0 would mean no limit. A backend may have subtracted costs from the limit.
func TestToMicrosRoundsUp(t *testing.T) {
	for dollars, want := range map[float64]int{0: 0, 5.5e-17: 1, 4e-7: 1, 1.5: 1_500_000, 1e300: 1e15} {
		if got := bridge.ToMicros(dollars); got != want {
			t.Errorf("$%g are %d millionths, not %d", dollars, got, want)
		}
	}
}
