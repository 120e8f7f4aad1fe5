package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/bridge/bridgetest"
	"voxgate/tools"
)

// A tool that is not granted does not run, though the model calls it.
func TestAToolThatIsNotGranted(t *testing.T) {
	bubble(t, func(t *testing.T) {
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
		r := newRig(t, func(o *bridge.Options) {
			o.Tools = func() []tools.Tool { return []tools.Tool{tool("pay"), tool("look_up")} }
		})
		c, l := r.connect(bridge.Open{Grant: &bridge.Grant{Tools: []string{"look_*"}}})
		l.Calls("a pay", "b look_up")
		time.Sleep(time.Second)
		synctest.Wait()
		if ran["pay"] != 0 || ran["look_up"] != 1 {
			t.Errorf("ran %v", ran)
		}
		if e := last[bridge.Failure](c).Err; e.Code != bridge.CodeToolNotFound {
			t.Errorf("got %v", e)
		}
	})
}

// bill is an account that adds up.
type bill struct {
	bridge.Account
	spent int
}

func (b *bill) Spend(tokens int) (left, most int) {
	b.spent += tokens
	return 0, 0
}

// A caller that hangs up in the middle of an answer has spent what it took so far.
func TestHangingUpIsNotFree(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		b := &bill{Account: bridge.Unlimited}
		c, l := r.connect(bridge.Open{Account: b})
		c.typed("Tell me a story.")
		l.Send(`{"usageMetadata":{"promptTokenCount":30,"responseTokenCount":12,"totalTokenCount":42}}`)
		l.Say(1, time.Second)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		c.do(bridge.Goodbye{})
		c.gone()
		if b.spent != 42 {
			t.Errorf("%d tokens were counted", b.spent)
		}
	})
}

// What a backend may not have, the next change of it does not keep.
func TestARefusedConfigIsNotSteered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, _ := r.connect(
			bridge.Open{Config: json.RawMessage(`{"model":"gemini-3.8-live"}`), Grant: &bridge.Grant{Models: []string{"gemini-3.8*"}}},
		)
		c.update(`{"model":"gemini-2.5-flash-native-audio-latest"}`)
		time.Sleep(time.Second)
		synctest.Wait()
		if e := last[bridge.SetupFailed](c).Err; e.Field != "payload.model" {
			t.Errorf("%v", e)
		}
		if err := c.session.Do(bridge.Steer{Agent: bridge.Agent{Prompt: "You sell hats."}}); err != nil {
			t.Errorf("refused with %v", err)
		}
	})
}

// Whose word counts of what the caller cannot change, each field by itself.
func TestWanted(t *testing.T) {
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
		open bridge.Open
		want bridge.Agent
	}{
		{bridge.Open{}, bridge.Agent{}},
		{bridge.Open{Agent: file}, file},
		{bridge.Open{Agent: file, Grant: &bridge.Grant{}}, file},
		{bridge.Open{Grant: grant}, key},
		{bridge.Open{Agent: file, Grant: grant}, bridge.Agent{Prompt: "key", Voice: "file", Model: "key"}},
		{bridge.Open{Agent: file, Override: hook}, bridge.Agent{Prompt: "hook", Voice: "file", Language: "hook"}},
		{bridge.Open{Grant: grant, Override: hook}, bridge.Agent{Prompt: "hook", Language: "hook", Model: "key"}},
		{bridge.Open{Agent: file, Grant: grant, Override: hook}, bridge.Agent{Prompt: "hook", Voice: "file", Language: "hook", Model: "key"}},
	} {
		if got := test.open.Wanted(); got != test.want {
			t.Errorf("%+v want %+v", test.open, got)
		}
	}
}

// What the model is set up with lies in layers, of which each counts more than the one before, field by field: what the
// caller configures, the door's agent, the grant, the session webhook, the operator's backend. So it is at the
// beginning, after each change by the caller, however little that says, and at another gateway.
func TestLayersOfTheAgent(t *testing.T) {
	configured := func(prompt, voice, language string) json.RawMessage {
		return fmt.Appendf(nil, `{"systemInstruction":%q,"generationConfig":{"speechConfig":{"languageCode":%q,
			"voiceConfig":{"prebuiltVoiceConfig":{"voiceName":%q}}}}}`, prompt, language, voice)
	}
	open := bridge.Open{
		Resumable: true, Config: configured("client", "Puck", "de-DE"), Agent: bridge.Agent{Prompt: "door", Voice: "Kore"},
		Grant: &bridge.Grant{Agent: bridge.Agent{Prompt: "grant", Voice: "Zephyr"}}, Override: bridge.Agent{Prompt: "webhook"},
	}
	fleet(t, open, func(t *testing.T, a, b *rig, c *caller, l *bridgetest.Link) {
		l.Handle("h")
		check := func(when string, c *caller, prompt, voice, language string) {
			t.Helper()
			synctest.Wait()
			done := last[bridge.SetupComplete](c)
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
			c.forget()
			c.do(command)
			a.up.Next().Accept().Handle("h") // another voice or language takes another connection
		}
		check("at the beginning", c, "webhook", "Zephyr", "de-DE")
		next(c, bridge.UpdateConfig{Config: configured("client again", "Aoede", "fr-FR")})
		check("after a change", c, "webhook", "Zephyr", "fr-FR")
		next(c, bridge.UpdateConfig{Config: json.RawMessage(`{}`)})
		check("after a change that says nothing", c, "webhook", "Zephyr", "")
		next(c, bridge.Steer{Agent: bridge.Agent{Voice: "Leda"}})
		check("after a change by the backend", c, "webhook", "Leda", "")
		d := b.comes(c)
		a.up.Next().Accept().Handle("h")
		check("at another gateway", d, "webhook", "Leda", "")
		next(d, bridge.UpdateConfig{Config: configured("client again", "Aoede", "fr-FR")})
		check("there, after a change", d, "webhook", "Leda", "fr-FR")
	})
}
