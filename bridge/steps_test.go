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
	"voxgate/bridge/flow"
	"voxgate/bridge/gemini/emulator"
	"voxgate/internal/testkit/bridgetest"
	"voxgate/tools"
)

// desk requests a resumable conversation with an agent that has steps.
func desk() bridge.SessionRequest {
	return bridge.SessionRequest{Resumable: true, Agent: bridge.Agent{Prompt: "You are the desk.", Steps: flow.Plan{
		{Name: "greet", Next: []string{"identify"}},
		{
			Name: "identify", Instruction: "Ask for the name.", Tools: []string{"find_room"}, Next: []string{"book", "greet"},
			Fields: []flow.Field{{Name: "name", Kind: "text"}, {Name: "guests", Kind: "number 1 to 4"}},
		},
		{Name: "book", Tools: []string{"book_room"}, Next: []string{"identify"}},
	}}}
}

// deskTools sets the operator's tools.
func deskTools(o *bridge.Options) {
	o.Tools = func() (list []tools.Tool) {
		run := func(context.Context, json.RawMessage) (json.RawMessage, error) { return json.RawMessage(`"ok"`), nil }
		for _, name := range []string{"find_room", "book_room", "get_time"} {
			list = append(list, tools.Tool{Declaration: tools.Declaration{Name: name}, Run: run})
		}
		return list
	}
}

// stepNames returns the names of the steps that were reported to the caller.
func (c *caller) stepNames() string {
	var names []string
	found, _ := findEvents[bridge.StepChange](c)
	for _, s := range found {
		names = append(names, s.Step)
	}
	return strings.Join(names, " ")
}

// functionNames returns the names of the functions in the newest SetupComplete.
func (c *caller) functionNames() string {
	var names []string
	for _, tool := range lastEvent[bridge.SetupComplete](c).Tools {
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// If the model accepts changes in place, a step is in force before the model gets the answer to its call. Tools of other
// steps cannot be called.
func TestAStepIsInForceAtOnce(t *testing.T) {
	converse(t, desk(), func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		if !strings.Contains(l.Raw, "You are the desk.") || !strings.Contains(l.Raw, `You are in the step \"greet\" now.`) ||
			!strings.Contains(l.Raw, "get_time") || strings.Contains(l.Raw, "_room") {
			t.Errorf("it begins with %s", l.Raw)
		}
		if s := lastEvent[bridge.SetupComplete](c); s.Step != "greet" {
			t.Errorf("%+v", s)
		}
		l.CallTool("a", "find_room", "{}")
		l.CallTool("b", flow.FunctionName, `{}`)
		called := time.Now()
		l.ToolResponses() // waits for them
		inputs := l.Inputs()
		update, answer := inputs[0], inputs[2] // inputs[1] is the answer to the other call
		if update.Kind != "update" || answer.Kind != "tool" || update.At.Sub(called) > 50*time.Millisecond ||
			!strings.Contains(update.Text, "Ask for the name.") ||
			!strings.Contains(update.Text, "find_room") || strings.Contains(update.Text, "book_room") {
			t.Errorf("after the call came %+v, then %+v", update, answer)
		}
		if text := l.ToolResponses()[1]; strings.Contains(text, "Ask for the name.") || strings.Count(update.Text, "Ask for the name.") != 1 {
			t.Errorf("the model gets the instruction of the step once more: %s", text)
		}
		if !strings.Contains(update.Text, `"guests":{"description":"a number from 1 to 4","maximum":4,"minimum":1,"type":"NUMBER"}`) {
			t.Errorf("the function of the step is %s", update.Text)
		}
		l.CallTool("c", "find_room", "{}")
		l.CallTool("d", "book_room", "{}")
		l.CallTool("e", flow.FunctionName, `{"step":"book","name":"Ada","guests":7}`)
		l.CallTool("f", flow.FunctionName, `{"step":"book","guests":2}`)
		l.CallTool("g", "book_room", "{}")
		var got []string
		for _, answer := range l.ToolResponses() {
			if !strings.Contains(answer, flow.FunctionName) || strings.Contains(answer, `"error"`) {
				got = append(got, answer)
			}
		}
		want := []string{
			`a find_room {"error":"unknown tool \"find_room\""}`, `c find_room {"output":"ok"}`,
			`d book_room {"error":"unknown tool \"book_room\""}`,
			`e next_step {"error":"Not yet: guests must be a number from 1 to 4."}`, `g book_room {"output":"ok"}`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("the model got\n%s", strings.Join(got, "\n"))
		}
		if got := c.stepNames(); got != "identify book" {
			t.Errorf("the caller learns of %s", got)
		}
		if s := lastEvent[bridge.StepChange](c); s.Fields["name"] != "Ada" || s.Fields["guests"] != 2.0 {
			t.Errorf("%+v", s)
		}
		c.updateConfig("{}")
		time.Sleep(time.Second)
		if setups, _ := findEvents[bridge.SetupComplete](c); len(setups) != 2 || setups[1].Step != "book" ||
			c.functionNames() != "book_room get_time next_step" {
			t.Errorf("at the end there are %s: %+v", c.functionNames(), setups)
		}
		r.up.AssertNoDial()
	}, deskTools)
}

// If Gemini rejects the configuration of a step, the conversation returns to the previous step for the caller, the tools and
// the model. A prompt informs the model. The collected fields are kept.
func TestAStepThatGeminiRefuses(t *testing.T) {
	converse(t, desk(), func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.SendHandle("h1")
		l.CallTool("a", flow.FunctionName, `{}`)
		time.Sleep(time.Second)
		l.CallTool("b", flow.FunctionName, `{"step":"book","name":"Ada","guests":2}`)
		l.CloseWith(1007, "Invalid JSON payload received.")
		l = r.up.NextConn().AssertSetup("", "h1").SendSetupComplete()
		if !strings.Contains(l.Raw, `You are in the step \"identify\" now.`) || !strings.Contains(l.Raw, "find_room") {
			t.Errorf("the next connection has %s", l.Raw)
		}
		time.Sleep(time.Second)
		var said []string
		for _, in := range l.Inputs() {
			said = append(said, in.Text)
		}
		if told := strings.Join(said, "\n"); !strings.Contains(told, `The step "book" cannot begin`) &&
			!strings.Contains(told, `The step \"book\" cannot begin`) {
			t.Errorf("the model reads %s", told)
		}
		if got := c.stepNames(); got != "identify book identify" {
			t.Errorf("the caller learns of %s", got)
		}
		if s := lastEvent[bridge.StepChange](c); s.Fields["name"] != "Ada" {
			t.Errorf("%+v", s)
		}
		l.CallTool("c", "find_room", "{}")
		l.CallTool("d", "book_room", "{}")
		if got := strings.Join(l.ToolResponses(), "\n"); !strings.Contains(got, `c find_room {"output":"ok"}`) ||
			!strings.Contains(got, `d book_room {"error"`) {
			t.Errorf("the model got %s", got)
		}
		l.CallTool("e", flow.FunctionName, `{"step":"book"}`)
		time.Sleep(time.Second)
		if list := r.host.Sessions(); list[0].Step != "book" {
			t.Errorf("it does not go on: %+v", list)
		}
	}, deskTools)
}

// A model that does not accept changes in place learns the next step from the answer to its call, and gets that step's tools
// after the next pause. Until then, tools of the previous step cannot be called.
func TestAStepAtTheNextPause(t *testing.T) {
	o := desk()
	o.Config = json.RawMessage(`{"model":"gemini-3.1-flash-live-preview"}`)
	converse(t, o, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.CallTool("a", flow.FunctionName, `{}`)
		if got := l.ToolResponses(); len(got) != 1 || !strings.Contains(got[0], "Ask for the name.") {
			t.Errorf("the model got %s", got)
		}
		l.SendAnswer(7, time.Second)
		l.SendHandle("h1")
		time.Sleep(2 * time.Second)
		m := r.up.NextConn().AssertSetup("", "h1").SendSetupComplete()
		if !strings.Contains(m.Raw, "Ask for the name.") || !strings.Contains(m.Raw, "find_room") {
			t.Errorf("the next connection has %s", m.Raw)
		}
		m.CallTool("b", flow.FunctionName, `{"name":"Ada","guests":1}`) // this answer has no end
		m.CallTool("c", "find_room", "{}")
		m.CallTool("d", flow.FunctionName, `{"step":"book"}`)
		m.CallTool("e", "find_room", "{}")
		if got := strings.Join(m.ToolResponses(), "\n"); !strings.Contains(got, `c find_room {"output":"ok"}`) ||
			!strings.Contains(got, `e find_room {"error"`) {
			t.Errorf("the model got %s", got)
		}
	}, deskTools)
}

// The step and the collected fields survive a lost connection, a fresh session and a move to another gateway.
func TestAStepIsKept(t *testing.T) {
	runTwoGateways(t, desk(), func(t *testing.T, a, b *harness, c *caller, l *bridgetest.Conn) {
		kept := func(where string, l *bridgetest.Conn) {
			t.Helper()
			if !strings.Contains(l.Raw, `You are in the step \"book\" now.`) || !strings.Contains(l.Raw, `\"name\":\"Ada\"`) ||
				!strings.Contains(l.Raw, "book_room") || strings.Contains(l.Raw, "find_room") {
				t.Errorf("%s begins with %s", where, l.Raw)
			}
		}
		l.SendHandle("h1")
		l.CallTool("a", flow.FunctionName, `{}`)
		l.CallTool("b", flow.FunctionName, `{"step":"book","name":"Ada","guests":2}`)
		l.SendAnswer(7, time.Second)
		time.Sleep(2 * time.Second)
		l.SendHandle("h2")
		l = a.dropConnection(l)
		kept("the next connection", l)
		l.DropConnection()
		a.up.NextConn().CloseWith(1008, "BidiGenerateContent session not found")
		l = a.up.NextConn().AssertSetup("", "")
		kept("a fresh session", l.SendSetupComplete())
		l.SendHandle("h3")
		d := b.resumeCaller(c)
		l = a.up.NextConn().AssertSetup("", "h3")
		kept("another gateway", l.SendSetupComplete())
		time.Sleep(time.Second)
		if s := lastEvent[bridge.SetupComplete](d); s.Step != "book" {
			t.Errorf("%+v", s)
		}
		if list := b.host.Sessions(); len(list) != 1 || list[0].Step != "book" {
			t.Errorf("%+v", list)
		}
		l.CallTool("c", flow.FunctionName, `{}`)
		if got := d.stepNames(); got != "identify" {
			t.Errorf("the caller learns of %q", got)
		}
	}, deskTools)
}

// Another agent begins with its first step, or without a step if it has none. A change of the configuration keeps the
// current step.
func TestStepsOfAnotherAgent(t *testing.T) {
	converse(t, desk(), func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.CallTool("a", flow.FunctionName, `{}`)
		c.updateConfig(`{"systemInstruction":"Speak like a pirate."}`)
		time.Sleep(time.Second)
		if s := lastEvent[bridge.SetupComplete](c); s.Step != "identify" || !strings.Contains(string(s.EffectiveConfig), "pirate") ||
			!strings.Contains(string(s.EffectiveConfig), "Ask for the name.") {
			t.Errorf("%s", s.EffectiveConfig)
		}
		c.doCommand(bridge.UpdateConfig{Agent: &bridge.Agent{Prompt: "Another."}, Name: "other"})
		time.Sleep(time.Second)
		if s := lastEvent[bridge.SetupComplete](c); s.Step != "" || strings.Contains(string(s.EffectiveConfig), "step") ||
			!strings.Contains(c.functionNames(), "book_room") {
			t.Errorf("%s, %s", s.EffectiveConfig, c.functionNames())
		}
		c.doCommand(bridge.UpdateConfig{Agent: &bridge.Agent{Steps: flow.Plan{{Name: "only"}}}, Name: "third"})
		time.Sleep(time.Second)
		if got := c.stepNames(); got != "identify  only" {
			t.Errorf("the caller learns of %q", got)
		}
	}, deskTools)
}

// If Gemini rejects another agent, the previous agent continues in its step, with the collected fields.
func TestStepsOfAnAgentThatGeminiRefuses(t *testing.T) {
	converse(t, desk(), func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		l.CallTool("a", flow.FunctionName, `{}`)
		l.CallTool("b", flow.FunctionName, `{"name":"Ada"}`) // not yet
		time.Sleep(time.Second)
		l.SendHandle("h1")
		c.doCommand(bridge.UpdateConfig{Agent: &bridge.Agent{Steps: flow.Plan{{Name: "only"}}}, Name: "other"})
		l.CloseWith(1007, "Invalid JSON payload received.")
		l = r.up.NextConn().AssertSetup("", "h1").SendSetupComplete()
		synctest.Wait()
		if got := c.stepNames(); got != "identify only identify" {
			t.Errorf("the caller learns of %q", got)
		}
		if list := r.host.Sessions(); list[0].Agent != "" || list[0].Step != "identify" {
			t.Errorf("%+v", list)
		}
		l.CallTool("c", flow.FunctionName, `{"step":"book","guests":2}`)
		if s := lastEvent[bridge.StepChange](c); s.Step != "book" || s.Fields["name"] != "Ada" {
			t.Errorf("%+v", s)
		}
	}, deskTools)
}

// An agent that the backend has named continues to answer, even if the client names another one later.
func TestAnAgentThatIsNamed(t *testing.T) {
	o := bridge.SessionRequest{AgentNamed: true, Override: bridge.Agent{Prompt: "Night."}, Origin: bridge.Origin{Agent: "night"}}
	converse(t, o, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
		c.doCommand(bridge.UpdateConfig{Agent: &bridge.Agent{Prompt: "Desk.", Voice: "Kore"}, Name: "desk"})
		time.Sleep(time.Second)
		s := string(lastEvent[bridge.SetupComplete](c).EffectiveConfig)
		if list := r.host.Sessions(); list[0].Agent != "night" || strings.Contains(s, "Kore") || !strings.Contains(s, "Night.") {
			t.Errorf("%s answers, by %s", list[0].Agent, s)
		}
	})
}

// A thousand steps in two conversations need only one connection each.
func TestAThousandSteps(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		r, m := emulated(t, emulator.Scenario{})
		plan := flow.Plan{
			{Name: "even", Instruction: "Say an even number.", Next: []string{"odd"}, Fields: []flow.Field{{Name: "n", Kind: "number"}}},
			{Name: "odd", Instruction: "Say an odd number.", Next: []string{"even"}},
		}
		for range 2 {
			c := r.meets(bridge.SessionRequest{Agent: bridge.Agent{Steps: plan}})
			for i := range 500 {
				c.typeText(fmt.Sprintf(`/tool next_step {"n":%d}`, i))
				time.Sleep(time.Second)
			}
			found, _ := findEvents[bridge.StepChange](c)
			if n := len(found); n != 500 || found[n-1].Step != "even" || found[n-1].Fields["n"] != 499.0 {
				t.Errorf("%d steps, the last is %+v", n, found[n-1])
			}
			c.leave(nil)
			synctest.Wait()
		}
		if updated, opened := m.saw(emulator.EventContextUpdate), m.saw(emulator.EventOpened); len(updated) != 1000 || len(opened) != 2 {
			t.Errorf("%d changes over %d connections", len(updated), len(opened))
		} else if text := updated[998].Text; !strings.Contains(text, "Say an odd number.") {
			t.Errorf("the last but one is %s", text)
		}
	})
}
