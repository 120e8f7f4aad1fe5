package bridge

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/steps"
	"voxgate/tools"
)

// Agent configures the model. An empty field changes nothing.
type Agent struct {
	Prompt   string `json:"prompt,omitempty"`   // the system instruction
	Voice    string `json:"voice,omitempty"`    // one of Google's prebuilt voices: "Puck"
	Language string `json:"language,omitempty"` // BCP 47: "de-DE"
	Model    string `json:"model,omitempty"`    // "gemini-3.8-live"

	Config  json.RawMessage `json:"config,omitempty"`  // a LiveConfig, for what the fields above do not say
	Steps   steps.Plan      `json:"steps,omitempty"`   // through which it takes the conversation; their instructions follow the prompt
	Tools   []string        `json:"tools"`             // patterns of the operator's tools that it uses; nil: every one that is granted
	Outcome json.RawMessage `json:"outcome,omitempty"` // JSON Schema of what is made of the transcript in the end; nil: nothing is
	Longest time.Duration   `json:"longest,omitempty"` // of a conversation; 0: no limit of its own
	Dollars float64         `json:"dollars,omitempty"` // US, that a conversation may cost; 0: no limit of its own
}

// Over returns a with its empty fields taken from under.
func (a Agent) Over(under Agent) Agent {
	over := Agent{
		Prompt: cmp.Or(a.Prompt, under.Prompt), Voice: cmp.Or(a.Voice, under.Voice),
		Language: cmp.Or(a.Language, under.Language), Model: cmp.Or(a.Model, under.Model),
		Config: under.Config, Steps: a.Steps, Tools: a.Tools, Longest: lower(a.Longest, under.Longest), Dollars: lower(a.Dollars, under.Dollars),
	}
	if a.Tools == nil {
		over.Tools = under.Tools
	}
	if over.Outcome = a.Outcome; a.Outcome == nil {
		over.Outcome = under.Outcome
	}
	if a.Steps == nil {
		over.Steps = under.Steps
	}
	if len(a.Config) > 0 {
		over.Config = lay(a.Config, under.Config)
	}
	return over
}

// lower is the lower of two limits, of which 0 is none.
func lower[T time.Duration | float64](a, b T) T {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// config returns raw with the agent's fields set. A config that is no object is returned unchanged, and refused where
// it is parsed.
func (a Agent) config(raw json.RawMessage) json.RawMessage {
	return edited(lay(a.Config, raw), a.Model+a.Prompt+a.Voice+a.Language != "", func(config map[string]any) {
		put(config, a.Model, "model")
		put(config, a.Prompt, instruction)
		if a.Voice != "" { // in place of all that stands there: there are other ways to say a voice
			speech := inner(inner(config, "generationConfig"), "speechConfig")
			rename(speech, "voiceConfig")
			speech["voiceConfig"] = map[string]any{"prebuiltVoiceConfig": map[string]any{"voiceName": a.Voice}}
		}
		put(config, a.Language, "generationConfig", "speechConfig", "languageCode")
	})
}

const instruction = "systemInstruction"

// noted returns raw with a note behind the instruction, whoever has written that.
func noted(raw json.RawMessage, note string) json.RawMessage {
	return edited(raw, note != "", func(config map[string]any) {
		rename(config, instruction)
		switch text := config[instruction].(type) {
		case string:
			config[instruction] = text + "\n\n" + note
		case map[string]any:
			parts, _ := text["parts"].([]any)
			text["parts"] = append(parts, map[string]any{"text": note})
		default:
			config[instruction] = note
		}
	})
}

// edited returns a config as edit leaves it, unless there is nothing to edit or it is no object.
func edited(raw json.RawMessage, needed bool, edit func(config map[string]any)) json.RawMessage {
	config, ok := object(raw)
	if !needed || !ok {
		return raw
	}
	edit(config)
	changed, err := json.Marshal(config)
	if err != nil {
		return raw // what was read can be written
	}
	return changed
}

// lay lays one config over another, field by field. What is no object wins as it is, and is refused where it is parsed.
func lay(over, under json.RawMessage) json.RawMessage {
	top, ok := object(over)
	switch {
	case len(under) == 0 || !ok:
		return over
	case len(top) == 0:
		return under
	}
	return edited(under, true, func(config map[string]any) { merge(config, top) })
}

// whole are the objects that are one field: parts of two of them may contradict each other.
var whole = []string{instruction, "voiceConfig", "thinkingConfig"}

// merge lays the fields of one object over those of another. Both may have names in snake_case; null says nothing. Tools are added.
func merge(under, over map[string]any) {
	for name, value := range over {
		if value == nil {
			continue
		}
		rename(under, tools.Camel(name))
		name = tools.Camel(name)
		inner, isObject := value.(map[string]any)
		below, wasObject := under[name].(map[string]any)
		list, isList := value.([]any)
		before, wasList := under[name].([]any)
		switch {
		case isObject && wasObject && !slices.Contains(whole, name):
			merge(below, inner)
		case name == "tools" && isList && wasList:
			under[name] = slices.Concat(before, list)
		default:
			under[name] = value
		}
	}
}

// object reads a config, of which nothing and null are empty ones. What nobody changes of it goes on as it came, numbers to the digit.
func object(raw json.RawMessage) (config map[string]any, ok bool) {
	if len(raw) == 0 {
		return map[string]any{}, true
	}
	value, err := tools.Decode(raw)
	if value == nil {
		value = map[string]any{}
	}
	config, ok = value.(map[string]any)
	return config, ok && err == nil
}

// put sets the field at the end of a path of objects, unless the value is empty.
func put(object map[string]any, value string, path ...string) {
	if value == "" {
		return
	}
	for _, name := range path[:len(path)-1] {
		object = inner(object, name)
	}
	last := path[len(path)-1]
	rename(object, last)
	object[last] = value
}

// inner is the object in a field, which is made if there is none.
func inner(object map[string]any, name string) map[string]any {
	rename(object, name)
	in, ok := object[name].(map[string]any)
	if !ok {
		in = map[string]any{}
		object[name] = in
	}
	return in
}

// rename gives a field its name in camelCase, which proto3 JSON has in snake_case as well.
func rename(object map[string]any, name string) {
	for other, value := range object {
		if other != name && strings.EqualFold(strings.ReplaceAll(other, "_", ""), name) {
			delete(object, other)
			object[name] = value
		}
	}
}

// CheckConfig says what is wrong with a LiveConfig, whatever model it is for.
func CheckConfig(raw json.RawMessage) error {
	_, err := setup.Parse(raw, "config", setup.Scope{})
	return err
}
