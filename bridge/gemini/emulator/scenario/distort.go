package scenario

import (
	"encoding/json"

	"voxgate/bridge/gemini/emulator/live"
)

// Distort puts into a message what a client must bear.
func (sc *Scenario) Distort(message live.Object) live.Object {
	if !sc.UnknownFields && !sc.Int64Strings {
		return message
	}
	tree, err := live.Decode(live.Encode(message))
	if err != nil {
		panic("scenario: distort " + err.Error()) // it was encoded just now
	}
	return sc.distortTree(tree).(live.Object)
}

func (sc *Scenario) distortTree(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, field := range v {
			if name != "args" { // they are the application's
				v[name] = sc.distortTree(field)
			}
		}
		if sc.UnknownFields {
			v["fieldOfTheFuture"] = live.Object{"list": []any{1, nil, "x"}, "empty": live.Object{}}
		}
	case []any:
		for i, element := range v {
			v[i] = sc.distortTree(element)
		}
	case json.Number:
		if _, err := v.Int64(); err == nil && sc.Int64Strings {
			return v.String()
		}
	}
	return value
}
