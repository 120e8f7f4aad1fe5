// Package agents reads agents: files in the operator's folder, with YAML front matter followed by the prompt in Markdown.
// docs/agents.md describes the format.
package agents

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"voxgate/bridge"
	"voxgate/tools"
)

// Agent is one agent. It comes from a file, or is given in full in a grant or a webhook's answer. A missing field means
// the gateway's default.
type Agent struct {
	Name string `json:"-"` // from the file name; empty without a file

	knownTools []string // names of the operator's tools; nil if not all of them are known
	project    string   // project on Vertex AI, for which the config is checked; "": the Gemini API

	Prompt     string          `json:"prompt,omitzero"`
	Voice      string          `json:"voice,omitzero"`
	Language   string          `json:"language,omitzero"`
	Model      string          `json:"model,omitzero"`
	Greeting   *string         `json:"greeting,omitzero"`   // instruction to start the conversation with; "": the caller speaks first
	Tools      []string        `json:"tools,omitzero"`      // patterns of the allowed tools of the operator (nil: all that are granted)
	Numbers    []string        `json:"numbers,omitzero"`    // patterns of called phone numbers
	Protocols  []string        `json:"doors,omitzero"`      // protocols that can reach the agent (nil: all)
	Limits     limits          `json:"limits,omitzero"`     // limits of a conversation
	Thinking   json.RawMessage `json:"thinking,omitzero"`   // a level, or a budget in tokens
	Config     json.RawMessage `json:"config,omitzero"`     // a LiveConfig for everything else
	Turns      json.RawMessage `json:"turns,omitzero"`      // detection of the end of turns: voxgate.turns of a LiveConfig
	Silence    *silence        `json:"silence,omitzero"`    // reaction to a silent caller (nil: none)
	Waiting    *waiting        `json:"waiting,omitzero"`    // sound or speech during a slow tool call (nil: silence)
	Outcome    json.RawMessage `json:"outcome,omitzero"`    // JSON Schema of the summary that a model writes after the conversation
	Record     *bool           `json:"record,omitzero"`     // whether to record the conversation
	Keys       int             `json:"keys,omitzero"`       // number of phone keys that make a number for the model (0: keys until a pause)
	Collect    []string        `json:"collect,omitzero"`    // names of values that callers enter by keys and the model must not see
	Attributes []string        `json:"attributes,omitzero"` // patterns of the call attributes sent to the model
}

type limits struct {
	Minutes float64 `json:"minutes,omitzero"` // duration in minutes (0: no limit)
	Dollars float64 `json:"dollars,omitzero"` // cost in US dollars (0: no limit)
}

// MaxKeys is the maximum length of a number entered by phone keys.
const MaxKeys = 64

// maxLimit is the maximum of both fields of limits: almost two years in minutes, or a million dollars.
const maxLimit = 1_000_000

// silence configures what happens when the caller is silent. It becomes the field "silence" in voxgate of a LiveConfig.
type silence struct {
	After string `json:"after"`          // length of the silence: "8s"
	Say   string `json:"say,omitzero"`   // instruction for the question that the model asks
	Times *int   `json:"times,omitzero"` // how often the model asks before it says goodbye (0: no limit)
}

// waiting configures what the caller hears during a slow tool call. It becomes the field "waiting" in voxgate of a
// LiveConfig.
type waiting struct {
	Sound *bool  `json:"sound,omitzero"` // a soft tone (nil: true)
	Say   string `json:"say,omitzero"`   // instruction for a sentence of the model, if it can speak during a tool call
}

// thinkingLevels are the values of the Thinking field.
var thinkingLevels = []string{"minimal", "low", "medium", "high"}

// farewell is the instruction that the model gets when the time limit is reached.
const farewell = "The time for this conversation is over. " +
	"Say goodbye in one short sentence, in the language that you have spoken so far."

// fieldError is the error about an invalid field.
type fieldError struct {
	field string // "limits.minutes"; empty for the whole agent
	err   error
}

func (f *fieldError) Error() string { return strings.TrimPrefix(f.field+": "+f.err.Error(), ": ") }
func (f *fieldError) Unwrap() error { return f.err }

func fieldErrorf(field, format string, args ...any) error {
	return &fieldError{field, fmt.Errorf(format, args...)}
}

var unknownField = regexp.MustCompile(`^json: unknown field "(.*)"$`)

// parseFields parses an agent's fields in JSON. Unknown fields are errors.
func (a *Agent) parseFields(fields []byte) error {
	dec := json.NewDecoder(bytes.NewReader(fields))
	dec.DisallowUnknownFields()
	err := dec.Decode(a)
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil:
		return a.validate()
	case errors.As(err, &kind):
		return &fieldError{kind.Field, describeTypeError(kind)}
	}
	if m := unknownField.FindStringSubmatch(err.Error()); m != nil {
		return fieldErrorf(m[1], "unknown field")
	}
	return &fieldError{"", tools.ExplainJSON(err, "")}
}

// describeTypeError returns an error that names the expected and the actual type of a field.
func describeTypeError(err *json.UnmarshalTypeError) error {
	expected := "named fields"
	switch err.Type.Kind() {
	case reflect.String:
		expected = "text"
	case reflect.Bool:
		expected = "true or false"
	case reflect.Int, reflect.Float64:
		expected = "a number"
	case reflect.Slice:
		expected = "a list, as [a, b]"
	}
	found, hint := err.Value, ""
	switch kind, _, _ := strings.Cut(err.Value, " "); kind { // the word "number" is followed by its digits
	case "string":
		found = "text"
	case "bool":
		found = "true or false"
	case "array":
		found = "a list"
	case "object":
		found = "named fields"
	case "number":
		if found = "a number"; expected == "text" {
			hint = "; put digits in quotes"
		}
	}
	return fmt.Errorf("must be %s, not %s%s", expected, found, hint)
}

func (a *Agent) validate() error {
	for _, list := range []struct {
		name     string
		patterns []string
	}{{"tools", a.Tools}, {"numbers", a.Numbers}, {"doors", a.Protocols}, {"attributes", a.Attributes}} {
		if err := CheckPatterns(list.name, list.patterns); err != nil {
			return err
		}
	}
	if i := slices.IndexFunc(a.Tools, func(tool string) bool { return a.knownTools != nil && !matchesAny(a.knownTools, tool) }); i >= 0 {
		return fieldErrorf(fmt.Sprintf("tools[%d]", i), "unknown tool %q: not in the tools file", a.Tools[i])
	}
	protocols := bridge.ProtocolNames(bridge.InAgents)
	for _, pattern := range a.Protocols {
		if !slices.ContainsFunc(protocols, func(name string) bool { return bridge.MatchesAny([]string{pattern}, name) }) {
			return fieldErrorf("doors", "%q is not one of %s", pattern, strings.Join(protocols, ", "))
		}
	}
	for name, limit := range map[string]float64{"minutes": a.Limits.Minutes, "dollars": a.Limits.Dollars} {
		switch {
		case limit < 0:
			return fieldErrorf("limits."+name, "must not be negative")
		case limit > maxLimit:
			return fieldErrorf("limits."+name, "%v is above the maximum of %d", limit, maxLimit)
		}
	}
	if a.Keys < 0 || a.Keys > MaxKeys {
		return fieldErrorf("keys", "must be 0 to %d, not %d", MaxKeys, a.Keys)
	}
	if len(a.Numbers) > 0 && len(a.variableNames()) > 0 {
		return fieldErrorf("numbers", "phone callers give no value for {{%s}} of the prompt", a.variableNames()[0])
	}
	if _, err := a.thinkingConfig(); err != nil {
		return err
	}
	if _, _, err := a.parseSteps(); err != nil {
		return &fieldError{"prompt", err}
	}
	if len(a.Outcome) > 0 {
		schema, err := tools.Decode(a.Outcome)
		if err == nil {
			_, err = tools.ParseSchema(schema, nil)
		}
		if err != nil {
			return &fieldError{"outcome", err}
		}
	}
	if err := bridge.CheckConfig(a.Config, a.project); err != nil {
		return &fieldError{"config", err}
	}
	for name, only := range map[string]Agent{
		"silence": {Silence: a.Silence}, "waiting": {Waiting: a.Waiting}, "turns": {Turns: a.Turns},
	} {
		if err := bridge.CheckConfig(only.SessionAgent().Config, a.project); err != nil {
			return &fieldError{name, err}
		}
	}
	return nil
}

// CheckPatterns returns an error if one of a field's patterns is invalid: see [path.Match].
func CheckPatterns(field string, patterns []string) error {
	for i, p := range patterns {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return fieldErrorf(fmt.Sprintf("%s[%d]", field, i), "%q is not a valid pattern", p)
		}
	}
	return nil
}

// thinkingConfig returns the thinkingConfig of a LiveConfig, or nil.
func (a *Agent) thinkingConfig() (config map[string]any, err error) {
	var level string
	var budget int
	switch {
	case len(a.Thinking) == 0 || string(a.Thinking) == "null":
		return nil, nil
	case json.Unmarshal(a.Thinking, &level) == nil && slices.Contains(thinkingLevels, level):
		return map[string]any{"thinkingLevel": strings.ToUpper(level)}, nil
	case json.Unmarshal(a.Thinking, &budget) == nil && budget >= -1:
		return map[string]any{"thinkingBudget": budget}, nil
	}
	return nil, fieldErrorf("thinking", "%s is neither one of %s nor a number of tokens", a.Thinking, strings.Join(thinkingLevels, ", "))
}

// SessionAgent returns the configuration of the model for this agent.
func (a *Agent) SessionAgent() bridge.Agent {
	merged := map[string]any{}
	if thinking, _ := a.thinkingConfig(); thinking != nil {
		merged["generationConfig"] = map[string]any{"thinkingConfig": thinking}
	}
	extension := map[string]any{}
	if a.Record != nil {
		extension["record"] = *a.Record
	}
	if len(a.Turns) > 0 {
		extension["turns"] = a.Turns
	}
	if a.Silence != nil {
		extension["silence"] = a.Silence
	}
	if a.Waiting != nil {
		extension["waiting"] = a.Waiting
	}
	if len(extension) > 0 {
		merged["voxgate"] = extension
	}
	fields, _ := json.Marshal(merged) // texts and numbers can always be encoded
	prompt, plan, _ := a.parseSteps() // no error: the steps were checked when the agent was read
	layer := bridge.Agent{
		Prompt: prompt, Steps: plan, Voice: a.Voice, Language: a.Language, Model: a.Model, Config: a.Config, Tools: a.Tools, Outcome: a.Outcome,
		MaxDuration: time.Duration(a.Limits.Minutes * float64(time.Minute)), MaxDollars: a.Limits.Dollars,
	}
	if len(merged) > 0 {
		layer = bridge.Agent{Config: fields}.MergeOver(layer)
	}
	return layer
}

// ApplyTo sets a as the agent of a conversation. The caller's configuration overrides its fields one by one.
func (a *Agent) ApplyTo(o *bridge.SessionRequest) {
	o.Agent, o.Origin.Agent = a.SessionAgent(), a.Name
	a.applyGreetingAndFarewell(o)
}

// ApplyAsOverride sets a as the agent that the operator's backend has chosen. Neither the caller nor the grant can
// override its fields. If a has a name, it replaces the agent selected before. Otherwise its fields override those of
// that agent.
func (a *Agent) ApplyAsOverride(o *bridge.SessionRequest) {
	if a.Name != "" {
		o.Agent, o.AgentLocked, o.AgentNamed, o.Origin.Agent = bridge.Agent{}, false, true, a.Name
	}
	o.Override = a.SessionAgent()
	a.applyGreetingAndFarewell(o)
}

// applyGreetingAndFarewell sets the prompts for the greeting and the farewell.
func (a *Agent) applyGreetingAndFarewell(o *bridge.SessionRequest) {
	o.FarewellPrompt = farewell
	if a.Greeting != nil {
		o.GreetingPrompt = *a.Greeting
	}
}

func (a *Agent) servesProtocol(protocol string) bool {
	return len(a.Protocols) == 0 || bridge.MatchesAny(a.Protocols, protocol)
}

var variablePattern = regexp.MustCompile(`\{\{ *([A-Za-z_][A-Za-z0-9_]*) *\}\}`)

// variableNames returns the names of the {{variables}} in the prompt and the greeting, with duplicates.
func (a *Agent) variableNames() (names []string) {
	text := a.Prompt
	if a.Greeting != nil {
		text += *a.Greeting
	}
	for _, m := range variablePattern.FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	return names
}

// maxValue limits the length of a variable's value, in bytes: enough for an address, but not for a prompt.
const maxValue = 1000

// WithVariables returns a copy of the agent in which values replace its {{variables}}. The values are quoted, so that
// the model treats them as data. It returns an error if a value is missing, unknown or too long.
func (a *Agent) WithVariables(values map[string]string) (*Agent, error) {
	names := a.variableNames()
	for name, value := range values {
		switch {
		case !slices.Contains(names, name):
			return nil, fieldErrorf("variables."+name, "the prompt has no {{%s}}", name)
		case len(value) > maxValue:
			return nil, fieldErrorf("variables."+name, "has %d bytes, maximum %d", len(value), maxValue)
		}
	}
	for _, name := range names {
		if _, ok := values[name]; !ok {
			return nil, fieldErrorf("variables."+name, "is missing; the prompt has {{%s}}", name)
		}
	}
	fill := func(text string) string {
		return variablePattern.ReplaceAllStringFunc(text, func(m string) string {
			quoted, _ := json.Marshal(tools.Truncate(strings.ToValidUTF8(values[strings.Trim(m, "{ }")], ""), maxValue)) // a string can be encoded
			return string(quoted)
		})
	}
	filled := *a
	filled.Prompt = fill(a.Prompt)
	if a.Greeting != nil {
		greeting := fill(*a.Greeting)
		filled.Greeting = &greeting
	}
	if _, _, err := filled.parseSteps(); err != nil { // a value stood in the fields of a step, and made them invalid
		return nil, &fieldError{"variables", err}
	}
	return &filled, nil
}

// Choice selects an agent in a grant, a webhook's answer or a request: it names the agent, or contains it in full.
type Choice struct {
	Name  string
	Agent *Agent // nil if selected by name
}

// UnmarshalJSON implements [json.Unmarshaler].
func (c *Choice) UnmarshalJSON(raw []byte) error {
	*c = Choice{}
	if json.Unmarshal(raw, &c.Name) == nil {
		return nil
	}
	c.Agent = &Agent{}
	if err := c.Agent.parseFields(raw); err != nil {
		return fmt.Errorf("agent.%w", err)
	}
	return nil
}

// MarshalJSON implements [json.Marshaler].
func (c Choice) MarshalJSON() ([]byte, error) {
	if c.Agent != nil {
		return json.Marshal(c.Agent)
	}
	return json.Marshal(c.Name)
}
