package bridge

import (
	"context"
	"encoding/json"
	"errors"

	"voxgate/bridge/steps"
	"voxgate/tools"
)

// steering is what the operator's backend, and the steps, have changed in a running conversation. It overrides the caller's configuration.
type steering struct {
	raw       json.RawMessage // the configuration as the caller has it
	flow      steps.Flow      // where the conversation is in the agent's steps
	taken     string          // the newest step whose configuration the model has taken
	agent     Agent
	functions json.RawMessage
	names     map[string]bool // of the functions
}

// begun is the steering of a conversation that begins.
func begun(o Open) *steering { return steeringOf(o.Config, steps.NewFlow(o.Wanted().Steps)) }

func steeringOf(raw json.RawMessage, flow steps.Flow) *steering {
	return &steering{raw: raw, flow: flow, taken: flow.Step}
}

// change changes the agent, or its functions.
func (t *steering) change(c Steer) error {
	if len(c.Functions) > 0 {
		var functions []struct{ Name string }
		if err := json.Unmarshal(c.Functions, &functions); err != nil {
			return &Error{
				Code: CodeBadMessage, Field: "payload.functions",
				Message: "payload.functions is no array of function declarations.",
			}
		}
		t.functions, t.names = c.Functions, map[string]bool{}
		for _, f := range functions {
			t.names[f.Name] = true
		}
	}
	t.agent = c.Agent.Over(t.agent)
	return nil
}

var errSameStep = errors.New("the step is the same")

// advance has the model go on to the next step. It returns errSameStep if it may not: then only what was found out may be new.
func (t *steering) advance(c advance) error {
	var moved bool
	if t.flow, *c.answer, moved = t.flow.Advance(c.args); !moved {
		return errSameStep
	}
	return nil
}

// advance is the command by which the model goes on to the next step. The answer is for the model.
type advance struct {
	args   map[string]any
	answer *map[string]any
}

func (advance) command() {}

// stepTool is the tool by which the model goes on.
func stepTool(do func(Command) error) tools.Tool {
	return tools.Tool{
		Declaration: tools.Declaration{Name: steps.FunctionName},
		Run: func(_ context.Context, raw json.RawMessage) (json.RawMessage, error) {
			decoded, err := tools.Decode(raw)
			if err != nil {
				return nil, err
			}
			args, _ := decoded.(map[string]any)
			var answer map[string]any
			if err := do(advance{args, &answer}); err != nil {
				return nil, err
			}
			return json.Marshal(answer)
		},
	}
}

// config is a config with the functions that the backend answers.
func (t *steering) config(raw json.RawMessage) json.RawMessage {
	return edited(raw, len(t.names) > 0, func(config map[string]any) {
		list, _ := config["tools"].([]any)
		config["tools"] = append(list, map[string]any{"functionDeclarations": t.functions})
	})
}

// share divides calls among those that have declared the functions: the caller, and the backend.
func (t *steering) share(calls []tools.Call) (theirs, backends []tools.Call) {
	for _, c := range calls {
		if t.names[c.Name] {
			backends = append(backends, c)
		} else {
			theirs = append(theirs, c)
		}
	}
	return theirs, backends
}
