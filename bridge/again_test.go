package bridge_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/bridgetest"
)

// Models make the same call twice for one purpose. The second call gets the result of the first, unless something between
// them makes a new call plausible.
func TestTheSameCallAgain(t *testing.T) {
	const order = `{"x":1,"y":9007199254740993}`
	type steps func(c *caller, l *bridgetest.Conn)
	done := func(c *caller, _ *bridgetest.Conn) { c.sendToolResponse("a", "", `{"is":1}`) }
	second := func(c *caller, _ *bridgetest.Conn) { c.sendToolResponse("b", "", `{"is":2}`) }
	both := func(c *caller, l *bridgetest.Conn) { done(c, l); second(c, l) }
	then := func(first steps, next steps) steps {
		return func(c *caller, l *bridgetest.Conn) { first(c, l); next(c, l) }
	}
	handle := func(_ *caller, l *bridgetest.Conn) { time.Sleep(2 * time.Second); l.SendHandle("h") }
	speaks := func(_ *caller, l *bridgetest.Conn) { l.SendAnswer(7, time.Second); time.Sleep(time.Second) }
	asks := func(c *caller, _ *bridgetest.Conn) { c.typeText("again") }
	late := func(*caller, *bridgetest.Conn) { time.Sleep(31 * time.Second) }
	takesBack := func(ids string) steps {
		return func(_ *caller, l *bridgetest.Conn) { l.Send(`{"toolCallCancellation":{"ids":[%s]}}`, ids) }
	}
	comesAgain := func(_ *caller, l *bridgetest.Conn) { l.CallTool("b", "f", order) }
	lost := func(_ *caller, l *bridgetest.Conn) { l.DropConnection() }
	partly := func(c *caller, _ *bridgetest.Conn) {
		c.doCommand(bridge.ToolResponse{ID: "a", Response: []byte(`{"half":1}`), WillContinue: true})
	}
	const swapped, other = `{"y":9007199254740993,"x":1}`, `{"x":1,"y":9007199254740992}`
	const one, two = "ToolCall(a)", "ToolCall(a) ToolCall(b)"
	const cancelled, failed = "ToolCall(a) ToolCallCancellation(a)", "ToolCall(a) ToolCallCancellation(a) ErrorEvent ToolCall(b)"
	const once, twice = `a f {"is":1}, b f {"is":1}`, `a f {"is":1}, b f {"is":2}`
	const timeout = `a f {"error":"the tool did not answer in time (30s)"}, b f {"is":2}`
	for name, test := range map[string]struct {
		before  steps  // what happens before the second call
		args    string // arguments of the second call
		after   steps
		seen    string // events that the client gets
		answers string
	}{
		"while the first is open":         {nil, order, done, one, once},
		"its fields in another order":     {nil, swapped, done, one, once},
		"with other arguments":            {nil, other, both, two, twice},
		"of a function that repeats":      {nil, order, both, two, twice},
		"answered":                        {done, order, nil, one, once},
		"answered, as the handle knows":   {then(done, handle), order, nil, one, once},
		"answered, and spoken of":         {then(done, speaks), order, second, "ToolCall(a) Speaking TurnComplete ToolCall(b)", twice},
		"answered, and asked again":       {then(done, asks), order, second, two, twice},
		"answered with an error":          {late, order, second, failed, timeout},
		"answered long ago":               {then(done, late), order, second, two, twice},
		"the first is taken back":         {nil, order, then(takesBack(`"a"`), done), one, `b f {"is":1}`},
		"the second is taken back":        {nil, order, then(takesBack(`"b"`), done), one, `a f {"is":1}`},
		"both are taken back":             {nil, order, takesBack(`"a","b"`), cancelled, ""},
		"the second comes twice":          {nil, order, then(comesAgain, done), one, once},
		"the session is lost with both":   {nil, order, lost, cancelled, ""},
		"how far it is goes to the first": {nil, order, then(partly, done), one, `a f {"half":1}, ` + once},
	} {
		t.Run(name, func(t *testing.T) {
			repeats := name == "of a function that repeats"
			config := fmt.Appendf(nil, `{"tools":[{"functionDeclarations":[{"name":"f","repeats":%t}]}]}`, repeats)
			converse(t, bridge.SessionRequest{Config: config}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
				c.clearLog()
				l.CallTool("a", "f", order)
				if test.before != nil {
					test.before(c, l)
				}
				l.CallTool("b", "f", test.args)
				if test.after != nil {
					test.after(c, l)
				}
				if got := c.summarizeEvents(); got != test.seen {
					t.Errorf("the client got %s, want %s", got, test.seen)
				}
				if got := strings.Join(l.ToolResponses(), ", "); got != test.answers {
					t.Errorf("answered %s, want %s", got, test.answers)
				}
			})
		})
	}
}
