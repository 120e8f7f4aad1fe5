package bridge

import (
	"context"
	"encoding/json"
	"errors"

	"voxgate/bridge/flow"
	"voxgate/tools"
)

// steering holds the changes that the operator's backend and the agent's steps have made to a running conversation. It
// overrides the caller's configuration.
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
	return newSteeringWithFlow(o.Config, flow.NewFlow(o.MergedAgent().Steps))
}

func newSteeringWithFlow(callerConfig json.RawMessage, flow flow.Flow) *steering {
	return &steering{callerConfig: callerConfig, flow: flow, appliedStep: flow.Step}
}

// applyUpdate applies a backend's change of the agent or of its functions.
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

// advanceStep moves to the next step. If the step stays the same, it returns errSameStep, although the collected fields
// may have changed.
func (s *steering) advanceStep(c advanceStep) error {
	var moved bool
	if s.flow, *c.answer, moved = s.flow.Advance(c.args); !moved {
		return errSameStep
	}
	return nil
}

// advanceStep is the command that moves to the next step. The model sends it by calling the step tool, which returns
// answer to the model.
type advanceStep struct {
	args   map[string]any
	answer *map[string]any
}

// newStepTool returns the tool that the model calls to move to the next step.
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

// withBackendFunctions adds the functions that the backend has declared to a config.
func (s *steering) withBackendFunctions(raw json.RawMessage) json.RawMessage {
	return editJSON(raw, len(s.functionNames) > 0, func(config map[string]any) {
		list, _ := config["tools"].([]any)
		config["tools"] = append(list, map[string]any{"functionDeclarations": s.functions})
	})
}

// splitCalls divides calls into those of functions that the caller has declared, and those of functions that the
// backend has declared.
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
