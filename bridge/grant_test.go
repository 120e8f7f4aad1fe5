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
