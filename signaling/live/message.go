package live

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/media"
	"voxgate/signaling"
	"voxgate/signaling/protocol"
	"voxgate/tools"
)

// reader parses the messages of one client, in order, independent of socket and conversation. Errors are a [bridge.Error] that names the
// field. The zero value is ready for a new client.
type reader struct {
	config  object       // as requested by the client; nil before the setup
	bound   *constraints // fields that the token locks; nil if none
	sound   media.SampleReader
	history bool // turns are history until turnComplete, as the setup announced
}

// request is a parsed message. Fields without content in the message are nil.
type request struct {
	setup    *setup
	input    *protocol.RealtimeInput
	commands []bridge.Command
	answers  []bridge.ToolResponse
	dropped  string // warning about ignored content, a sentence for the client's developer
}

// setup holds the fields of the setup message other than the config.
type setup struct {
	handles     bool // the client wants resumption handles
	handle      string
	transparent bool // the client wants to know which of its messages a handle covers
}

// Types of client messages.
const (
	nameSetup    = "setup"
	nameContent  = "clientContent"
	nameRealtime = "realtimeInput"
	nameTool     = "toolResponse"
	nameUpdate   = "contextUpdate"
)

// invalid returns the error for a field of a message. An empty field stands for the whole message.
func invalid(field, problem string) *bridge.Error {
	return &bridge.Error{Code: bridge.CodeBadMessage, Field: field, Message: strings.TrimSpace(field + " " + problem)}
}

// unreadable converts an error of [tools.ReadJSON]. at is the path of the JSON value.
func unreadable(err error, at string) *bridge.Error {
	bad := &bridge.Error{Code: bridge.CodeBadMessage, Field: at, Message: tools.ExplainJSON(err, at).Error() + "."}
	if place := (*tools.JSONError)(nil); errors.As(tools.ExplainJSON(err, at), &place) {
		bad.Field = place.Field
	}
	return bad
}

// parse parses a message.
func (r *reader) parse(raw []byte) (request, error) {
	whole, err := readObject(raw, "")
	if err != nil {
		return request{}, err
	}
	names := slices.Sorted(maps.Keys(whole))
	switch {
	case len(names) != 1:
		return request{}, invalid("", "Exactly one message type must be set.")
	case r.config == nil && names[0] != nameSetup:
		return request{}, invalid("", "The first message must be a setup message, and nothing else.")
	case r.config != nil && names[0] == nameSetup:
		return request{}, invalid("", "Setup message must be the first and only the first message.")
	}
	payload := whole[names[0]]
	switch names[0] {
	case nameSetup:
		return r.setup(payload)
	case nameUpdate:
		return r.update(payload)
	case nameContent:
		return r.content(signaling.NormalizeGoogleJSON(payload))
	case nameRealtime:
		if isEmptyObject(payload) || isEmptyList(payload, "mediaChunks") { // ignored by Google; sent to stay connected
			return request{}, nil
		}
		return r.realtime(signaling.NormalizeGoogleJSON(payload))
	case nameTool:
		if isEmptyObject(payload) || isEmptyList(payload, "functionResponses") {
			return request{}, nil
		}
		return toolResponse(signaling.NormalizeGoogleJSON(payload))
	}
	return request{}, invalid("", fmt.Sprintf("Unknown name %q: Cannot find field.", protocol.Clip(names[0])))
}

// realtimeInput and functionResponses are messages in Google's format. They accept more than package protocol does, and are encoded again
// for it.
type realtimeInput struct {
	Text           *string         `json:"text,omitempty"`
	Audio          *blob           `json:"audio,omitempty"`
	Video          *blob           `json:"video,omitempty"`
	ActivityStart  json.RawMessage `json:"activityStart,omitempty"`
	ActivityEnd    json.RawMessage `json:"activityEnd,omitempty"`
	AudioStreamEnd bool            `json:"audioStreamEnd,omitempty"`
	MediaChunks    []blob          `json:"mediaChunks,omitempty"`
}

type blob struct {
	MIMEType string `json:"mimeType"`
	Data     string `json:"data"`
}

type functionResponses struct {
	FunctionResponses []struct {
		ID           string           `json:"id,omitempty"`
		Name         string           `json:"name,omitempty"`
		Response     json.RawMessage  `json:"response,omitempty"`
		Scheduling   tools.Scheduling `json:"scheduling,omitempty"`
		WillContinue bool             `json:"willContinue,omitempty"`
		Parts        []struct {
			InlineData *blob `json:"inlineData,omitempty"`
		} `json:"parts,omitempty"`
	} `json:"functionResponses"`
}

// schedulings lists FunctionResponse.Scheduling by enum number (https://ai.google.dev/api/live#FunctionResponse). The first is
// "unspecified".
var schedulings = []tools.Scheduling{"", tools.Silent, tools.WhenIdle, tools.Interrupt}

// realtime parses realtimeInput. Most messages are audio as Google's SDKs encode it. Only if that fails, the message is parsed again as
// leniently as Google's servers do.
func (r *reader) realtime(payload json.RawMessage) (request, error) {
	read := func() (request, error) {
		input, err := protocol.ClientMessage{Payload: payload}.RealtimeInput(&r.sound)
		return request{input: &input}, located(err, nameRealtime)
	}
	q, err := read()
	var lenient realtimeInput
	if err == nil || tools.ReadJSON(payload, &lenient) != nil {
		return q, err
	}
	payload = tools.Encode(lenient)
	return read()
}

// toolResponse parses toolResponse, as leniently as realtime.
func toolResponse(payload json.RawMessage) (request, error) {
	read := func() (request, error) {
		wrapped := tools.Encode(object{nameTool: payload})
		answers, err := protocol.ClientMessage{Payload: wrapped}.ToolResponses()
		return request{answers: answers}, located(err, "")
	}
	q, err := read()
	var lenient functionResponses
	if err == nil || tools.ReadJSON(payload, &lenient) != nil {
		return q, err
	}
	for i, one := range lenient.FunctionResponses {
		word := strings.ToUpper(string(one.Scheduling))
		if n, err := strconv.Atoi(word); err == nil && n >= 0 && n < len(schedulings) {
			word = string(schedulings[n])
		} else if strings.HasSuffix(word, "_UNSPECIFIED") {
			word = ""
		}
		lenient.FunctionResponses[i].Scheduling = tools.Scheduling(word)
	}
	payload = tools.Encode(lenient)
	return read()
}

// located renames the field in an error of package protocol to its name in this API.
func located(err error, name string) error {
	e := (*bridge.Error)(nil)
	if !errors.As(err, &e) {
		return err
	}
	moved := *e
	moved.Field, moved.Message = strings.Replace(e.Field, "payload", name, 1), strings.Replace(e.Message, "payload", name, 1)
	moved.Field, moved.Message = strings.TrimPrefix(moved.Field, "."), strings.TrimPrefix(moved.Message, ".")
	return &moved
}

// setup parses the setup message. The engine validates its config.
func (r *reader) setup(raw json.RawMessage) (request, error) {
	config, err := readObject(raw, nameSetup)
	if err != nil {
		return request{}, err
	}
	config = r.bound.apply(config)
	var opening setup
	if given := config["sessionResumption"]; given != nil {
		var resumption struct {
			Handle      string `json:"handle"`
			Transparent bool   `json:"transparent"`
		}
		if err := tools.ReadJSON(given, &resumption); err != nil {
			return request{}, unreadable(err, "setup.sessionResumption")
		}
		opening = setup{true, resumption.Handle, resumption.Transparent}
	}
	if given := config["historyConfig"]; given != nil {
		var history struct{ InitialHistoryInClientContent bool }
		if err := tools.ReadJSON(given, &history); err != nil {
			return request{}, unreadable(err, "setup.historyConfig")
		}
		r.history = history.InitialHistoryInClientContent && opening.handle == ""
	}
	delete(config, "sessionResumption") // this endpoint handles both itself
	delete(config, "historyConfig")
	r.config = config
	return request{setup: &opening}, nil
}

// agent removes the agent name from the field "model" of the setup and returns it, or "". If agents are configured, any name that does
// not look like a Google model is an agent's.
func (r *reader) agent(folder *agents.Folder) (name string) {
	if json.Unmarshal(r.config["model"], &name) != nil {
		return ""
	}
	name = strings.TrimPrefix(name, "models/")
	if folder == nil || name == "" || strings.HasPrefix(name, "gemini-") || strings.Contains(name, "/") {
		return ""
	}
	delete(r.config, "model")
	return name
}

// update parses changes of the system instruction and the tools.
func (r *reader) update(raw json.RawMessage) (request, error) {
	update, err := readObject(raw, nameUpdate)
	if err != nil {
		return request{}, err
	}
	config := maps.Clone(r.config)
	for _, name := range []string{"systemInstruction", "tools"} {
		if update[name] != nil && r.bound.locks(name) {
			return request{}, invalid("contextUpdate."+name, "is fixed by the ephemeral token.")
		}
	}
	if instruction := update["systemInstruction"]; instruction != nil {
		config["systemInstruction"] = instruction
	}
	if given := update["tools"]; given != nil {
		wrapper, err := readObject(given, "contextUpdate.tools")
		if err != nil {
			return request{}, err
		}
		config["tools"] = wrapper["tools"]
		if wrapper["tools"] == nil {
			delete(config, "tools")
		}
	}
	r.config = config
	return request{commands: []bridge.Command{bridge.UpdateConfig{Config: tools.Encode(config)}}}, nil
}

// content parses turns. If an answer is requested and the last turn is the user's, that is the new message. The earlier turns become
// history if one of them is the model's, or if the setup announced history; otherwise they are messages that need no answer.
func (r *reader) content(raw json.RawMessage) (request, error) {
	var p struct {
		Turns []struct {
			Role  string
			Parts json.RawMessage
		}
		TurnComplete bool
	}
	if err := tools.ReadJSON(raw, &p); err != nil {
		return request{}, unreadable(err, nameContent)
	}
	var q request
	var turns []bridge.PrefillTurn
	seeds := r.history
	for i, t := range p.Turns {
		at := fmt.Sprintf("clientContent.turns[%d]", i)
		kept, lost := keepTypedParts(t.Parts)
		if lost != "" {
			q.dropped = cmp.Or(q.dropped, fmt.Sprintf("Dropped from %s, which has text and inlineData alone: %s.", at, lost))
			if kept == nil {
				continue
			}
		}
		if t.Role != "" && t.Role != "user" && t.Role != "model" {
			return request{}, invalid(at+".role", "must be user or model.")
		}
		typed, dropped, err := protocol.ClientMessage{Payload: tools.Encode(map[string]any{"parts": kept})}.Turn()
		if err != nil {
			return request{}, located(err, at)
		}
		q.dropped = cmp.Or(q.dropped, strings.ReplaceAll(dropped, "payload", at))
		turns = append(turns, bridge.PrefillTurn{Model: t.Role == "model", Parts: typed.Parts})
		seeds = seeds || t.Role == "model"
	}
	asks := p.TurnComplete && !r.history
	last := bridge.Message{Parts: json.RawMessage("[]"), TurnComplete: true}
	if n := len(turns); asks && n > 0 && !turns[n-1].Model {
		last.Parts, turns = turns[n-1].Parts, turns[:n-1]
	}
	r.history = r.history && !p.TurnComplete
	if seeds && len(turns) > 0 {
		q.commands = append(q.commands, bridge.PrefillTurns{Turns: turns})
		turns = nil
	}
	for _, t := range turns {
		q.commands = append(q.commands, bridge.Message{Parts: t.Parts})
	}
	if asks {
		q.commands = append(q.commands, last)
	}
	return q, nil
}

// keepTypedParts removes the parts of a turn that a user cannot type or show: function calls and responses, which frameworks replay as
// history, and files. lost names the removed fields, or is empty. kept is nil if no parts remain.
func keepTypedParts(raw json.RawMessage) (kept json.RawMessage, lost string) {
	if len(raw) > 0 && raw[0] == '{' { // a single object instead of a list
		raw = slices.Concat(json.RawMessage("["), raw, json.RawMessage("]"))
	}
	var parts []object
	if json.Unmarshal(raw, &parts) != nil {
		return raw, "" // invalid JSON is reported by the parser later
	}
	var rest []object
	for _, p := range parts {
		if p["text"] != nil || p["inlineData"] != nil || len(p) == 0 {
			rest = append(rest, p)
			continue
		}
		lost = cmp.Or(lost, slices.Sorted(maps.Keys(p))[0])
	}
	switch {
	case lost == "":
		return raw, ""
	case rest == nil:
		return nil, protocol.Clip(lost)
	}
	return tools.Encode(rest), protocol.Clip(lost)
}

// isEmptyObject reports whether a value is null, or an object whose fields are all null.
func isEmptyObject(raw json.RawMessage) bool {
	fields, err := readObject(raw, "value")
	return err == nil && len(fields) == 0 || string(raw) == "null"
}

// isEmptyList reports whether the only content of an object is an empty list.
func isEmptyList(raw json.RawMessage, name string) bool {
	fields, err := readObject(raw, name)
	var list []json.RawMessage
	return err == nil && len(fields) == 1 && fields[name] != nil && json.Unmarshal(fields[name], &list) == nil && len(list) == 0
}

// readObject parses an object and converts its field names to camelCase; proto3 JSON also permits snake_case
// (https://protobuf.dev/programming-guides/json). Null values are omitted.
func readObject(raw []byte, at string) (object, error) {
	var fields object
	if err := json.Unmarshal(tools.TrimBOM(raw), &fields); err != nil || fields == nil {
		if at == "" {
			return nil, invalid("", "Invalid JSON payload received: an object is wanted.")
		}
		return nil, invalid(at, "must be an object.")
	}
	named := make(object, len(fields))
	for name, value := range fields {
		if string(value) != "null" {
			named[tools.ToCamelCase(name)] = value
		}
	}
	return named, nil
}
