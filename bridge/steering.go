package bridge

import (
	"encoding/json"

	"voxgate/tools"
)

// steering is what the operator's backend has changed in a running conversation. It overrides the caller's
// configuration.
type steering struct {
	raw       json.RawMessage // the configuration as the caller has it
	agent     Agent
	functions json.RawMessage
	names     map[string]bool // of the functions
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
