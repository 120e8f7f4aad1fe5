package bridge

import (
	"context"
	"encoding/json"
	"errors"

	"voxgate/bridge/flow"
	"voxgate/tools"
)

// steering holds the changes to a running conversation by the operator's backend and by the steps. It overrides the
// caller's configuration.
type steering struct {
	callerConfig  json.RawMessage // configuration of the caller
	flow          flow.Flow       // state of the agent's steps
	appliedStep   string          // latest step whose configuration the model has accepted
	agent         Agent
	functions     json.RawMessage
	functionNames map[string]bool // names of the functions that the backend runs
}

// newSteering returns the steering of a new conversation.
func newSteering(o SessionRequest) *steering {
	return newSteeringAt(o.Config, flow.NewFlow(o.MergedAgent().Steps))
}

func newSteeringAt(raw json.RawMessage, flow flow.Flow) *steering {
	return &steering{callerConfig: raw, flow: flow, appliedStep: flow.Step}
}

// applyUpdate changes the agent, or its functions.
func (s *steering) applyUpdate(c BackendUpdate) error {
	if len(c.Functions) > 0 {
		var functions []struct{ Name string }
		if err := json.Unmarshal(c.Functions, &functions); err != nil {
			return &Error{
				Code: CodeBadMessage, Field: "payload.functions",
				Message: "payload.functions must be an array of function declarations.",
			}
		}
		s.functions, s.functionNames = c.Functions, map[string]bool{}
		for _, f := range functions {
			s.functionNames[f.Name] = true
		}
	}
	s.agent = c.Agent.MergeOver(s.agent)
	return nil
}

var errSameStep = errors.New("step unchanged")

// advanceStep moves to the next step. It returns errSameStep if the step stays the same; the collected fields may have
// changed even then.
func (s *steering) advanceStep(c advanceStep) error {
	var moved bool
	if s.flow, *c.answer, moved = s.flow.Advance(c.args); !moved {
		return errSameStep
	}
	return nil
}

// advanceStep is the command with which the model moves to the next step. The answer is returned to the model.
type advanceStep struct {
	args   map[string]any
	answer *map[string]any
}

// newStepTool returns the tool with which the model moves to the next step.
func newStepTool(do func(Command) error) tools.Tool {
	return tools.Tool{
		Declaration: tools.Declaration{Name: flow.FunctionName},
		Run: func(_ context.Context, raw json.RawMessage) (json.RawMessage, error) {
			decoded, err := tools.Decode(raw)
			if err != nil {
				return nil, err
			}
			args, _ := decoded.(map[string]any)
			var answer map[string]any
			if err := do(advanceStep{args, &answer}); err != nil {
				return nil, err
			}
			return json.Marshal(answer)
		},
	}
}

// withFunctions adds the functions of the backend to a config.
func (s *steering) withFunctions(raw json.RawMessage) json.RawMessage {
	return editJSON(raw, len(s.functionNames) > 0, func(config map[string]any) {
		list, _ := config["tools"].([]any)
		config["tools"] = append(list, map[string]any{"functionDeclarations": s.functions})
	})
}

// splitCalls separates the calls of functions that the caller has declared from those that the backend has declared.
func (s *steering) splitCalls(calls []tools.Call) (callers, backends []tools.Call) {
	for _, c := range calls {
		if s.functionNames[c.Name] {
			backends = append(backends, c)
		} else {
			callers = append(callers, c)
		}
	}
	return callers, backends
}
