package bridge_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
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
			t.Errorf("told %v", e)
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

// Who hangs up in the middle of an answer has spent what it took so far.
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
		c, _ := r.connect(bridge.Open{Config: json.RawMessage(`{"model":"gemini-3.8-live"}`), Grant: &bridge.Grant{Models: []string{"gemini-3.8*"}}})
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
