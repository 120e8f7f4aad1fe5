package bridge

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"voxgate/bridge/flow"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/liveconfig"
	"voxgate/tools"
)

// Agent configures the model. An empty field changes nothing.
type Agent struct {
	Prompt   string `json:"prompt,omitempty"`   // the system instruction
	Voice    string `json:"voice,omitempty"`    // one of Google's prebuilt voices: "Puck"
	Language string `json:"language,omitempty"` // language tag (BCP 47): "de-DE"
	Model    string `json:"model,omitempty"`    // name of the model: "gemini-3.8-live"

	Config json.RawMessage `json:"config,omitempty"` // a LiveConfig, for settings without a field above
	Steps  flow.Plan       `json:"steps,omitempty"`  // steps of the conversation; their instructions follow the prompt
	Tools  []string        `json:"tools"`            // patterns for the names of the operator's tools; nil means all granted tools
	// Outcome is the JSON Schema of a result that is generated from the transcript when the conversation has ended; nil
	// means no result.
	Outcome     json.RawMessage `json:"outcome,omitempty"`
	MaxDuration time.Duration   `json:"longest,omitempty"` // limit for a conversation; 0 means that the agent sets none
	MaxDollars  float64         `json:"dollars,omitempty"` // limit in US dollars, per conversation; 0 means that the agent sets none
}

// MergeOver returns a copy of a in which the values of base fill the empty fields.
func (a Agent) MergeOver(base Agent) Agent {
	merged := Agent{
		Prompt: cmp.Or(a.Prompt, base.Prompt), Voice: cmp.Or(a.Voice, base.Voice),
		Language: cmp.Or(a.Language, base.Language), Model: cmp.Or(a.Model, base.Model),
		Config: base.Config, Steps: a.Steps, Tools: a.Tools, MaxDuration: minNonZero(a.MaxDuration, base.MaxDuration),
		MaxDollars: minNonZero(a.MaxDollars, base.MaxDollars),
	}
	if a.Tools == nil {
		merged.Tools = base.Tools
	}
	if merged.Outcome = a.Outcome; a.Outcome == nil {
		merged.Outcome = base.Outcome
	}
	if a.Steps == nil {
		merged.Steps = base.Steps
	}
	if len(a.Config) > 0 {
		merged.Config = mergeConfig(a.Config, base.Config)
	}
	return merged
}

// minNonZero returns the lower of two limits; a limit of 0 means unlimited.
func minNonZero[T time.Duration | float64](a, b T) T {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// applyTo returns the LiveConfig raw with the agent's settings applied. If raw is not a JSON object, the parser rejects
// it later.
func (a Agent) applyTo(raw json.RawMessage) json.RawMessage {
	return editJSON(mergeConfig(a.Config, raw), a.Model+a.Prompt+a.Voice+a.Language != "", func(config map[string]any) {
		setField(config, a.Model, "model")
		setField(config, a.Prompt, instructionField)
		if a.Voice != "" { // replaces every other way to set a voice
			speech := ensureSubobject(ensureSubobject(config, "generationConfig"), "speechConfig")
			normalizeKey(speech, "voiceConfig")
			speech["voiceConfig"] = map[string]any{"prebuiltVoiceConfig": map[string]any{"voiceName": a.Voice}}
		}
		setField(config, a.Language, "generationConfig", "speechConfig", "languageCode")
	})
}

const instructionField = "systemInstruction"

// withInstructionSuffix returns the config raw with suffix appended to its system instruction.
func withInstructionSuffix(raw json.RawMessage, suffix string) json.RawMessage {
	return editJSON(raw, suffix != "", func(config map[string]any) {
		normalizeKey(config, instructionField)
		switch text := config[instructionField].(type) {
		case string:
			config[instructionField] = text + "\n\n" + suffix
		case map[string]any:
			parts, _ := text["parts"].([]any)
			text["parts"] = append(parts, map[string]any{"text": suffix})
		default:
			config[instructionField] = suffix
		}
	})
}

// editJSON returns a JSON object after edit has changed it. If isNeeded is false or raw is not an object, it returns
// raw unchanged.
func editJSON(raw json.RawMessage, isNeeded bool, edit func(config map[string]any)) json.RawMessage {
	config, ok := parseObject(raw)
	if !isNeeded || !ok {
		return raw
	}
	edit(config)
	changed, err := json.Marshal(config)
	if err != nil {
		return raw // does not happen: decoded JSON can always be encoded
	}
	return changed
}

// mergeConfig merges override over base, field by field. If one of them is not a JSON object, it returns that one,
// which the parser rejects later.
func mergeConfig(override, base json.RawMessage) json.RawMessage {
	top, ok := parseObject(override)
	switch {
	case len(base) == 0 || !ok:
		return override
	case len(top) == 0:
		return base
	}
	return editJSON(base, true, func(config map[string]any) { mergeObjects(config, top) })
}

// atomicFields are objects that override replaces as a whole. Merging parts of two such objects could lead to a
// contradiction.
var atomicFields = []string{instructionField, "voiceConfig", "thinkingConfig"}

// mergeObjects merges override into base. It ignores fields of override that are null, and appends the tools of
// override to those of base. Both objects may use snake_case names.
func mergeObjects(base, override map[string]any) {
	for name, value := range override {
		if value == nil {
			continue
		}
		normalizeKey(base, tools.ToCamelCase(name))
		name = tools.ToCamelCase(name)
		inner, isObject := value.(map[string]any)
		below, wasObject := base[name].(map[string]any)
		list, isList := value.([]any)
		before, wasList := base[name].([]any)
		switch {
		case isObject && wasObject && !slices.Contains(atomicFields, name):
			mergeObjects(below, inner)
		case name == "tools" && isList && wasList:
			base[name] = slices.Concat(before, list)
		default:
			base[name] = value
		}
	}
}

// parseObject decodes a config; ok is false if it is not an object. Empty text and null yield an empty object.
func parseObject(raw json.RawMessage) (config map[string]any, ok bool) {
	if len(raw) == 0 {
		return map[string]any{}, true
	}
	// tools.Decode keeps all digits of numbers.
	value, err := tools.Decode(raw)
	if value == nil {
		value = map[string]any{}
	}
	config, ok = value.(map[string]any)
	return config, ok && err == nil
}

// setField sets the field at the end of a path, and creates objects that are missing on the path. If value is empty, it
// changes nothing.
func setField(object map[string]any, value string, path ...string) {
	if value == "" {
		return
	}
	for _, name := range path[:len(path)-1] {
		object = ensureSubobject(object, name)
	}
	last := path[len(path)-1]
	normalizeKey(object, last)
	object[last] = value
}

// ensureSubobject returns the object in a field. If the field has no object, it creates one.
func ensureSubobject(object map[string]any, name string) map[string]any {
	normalizeKey(object, name)
	in, ok := object[name].(map[string]any)
	if !ok {
		in = map[string]any{}
		object[name] = in
	}
	return in
}

// normalizeKey renames the snake_case form of a field to name, its camelCase form. Proto3 JSON allows both.
func normalizeKey(object map[string]any, name string) {
	for other, value := range object {
		if other != name && strings.EqualFold(strings.ReplaceAll(other, "_", ""), name) {
			delete(object, other)
			object[name] = value
		}
	}
}

// CheckConfig returns an error if a LiveConfig is invalid for the model that it names, or for the default model. project
// is the project on Vertex AI, or "" for the Gemini API.
func CheckConfig(raw json.RawMessage, project string) error {
	var scope liveconfig.Scope
	if project != "" {
		scope.Vertex = &api.Vertex{Project: project}
	}
	_, err := liveconfig.Parse(raw, "config", scope)
	return err
}
