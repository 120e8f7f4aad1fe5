package geminilive

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
	"voxgate/signaling/client/protocol"
	"voxgate/tools"
)

// messageReader parses the messages of one client, in order. It does not depend on the socket or the conversation. Its
// errors are a [bridge.Error] with the field. The zero value is ready to use.
type messageReader struct {
	config         object       // as requested by the client; nil before the setup
	constraints    *constraints // fields that the token locks; nil if none
	sampleReader   media.SampleReader
	expectsHistory bool // the setup announced history: turns are history up to the first turnComplete
}

// clientRequest is a parsed message. Fields without content in the message are nil.
type clientRequest struct {
	setup       *setupOptions
	input       *protocol.RealtimeInput
	commands    []bridge.Command
	answers     []bridge.ToolResponse
	dropWarning string // warning about ignored content, a sentence for the client's developer
}

// setupOptions holds the fields of the setup message other than the config.
type setupOptions struct {
	wantsHandles bool // the client wants resumption handles
	handle       string
	wantsIndex   bool // the client wants to know which of its messages a handle covers
}

// Types of client messages.
const (
	nameSetup    = "setup"
	nameContent  = "clientContent"
	nameRealtime = "realtimeInput"
	nameTool     = "toolResponse"
	nameUpdate   = "contextUpdate"
)

// badMessage returns the error for a field of a message. An empty field stands for the whole message.
func badMessage(field, problem string) *bridge.Error {
	return &bridge.Error{Code: bridge.CodeBadMessage, Field: field, Message: strings.TrimSpace(field + " " + problem)}
}

// badJSON converts an error of [tools.ReadLenientJSON]. path is the path of the JSON value.
func badJSON(err error, path string) *bridge.Error {
	bad := &bridge.Error{Code: bridge.CodeBadMessage, Field: path, Message: tools.ExplainJSON(err, path).Error() + "."}
	if place := (*tools.JSONError)(nil); errors.As(tools.ExplainJSON(err, path), &place) {
		bad.Field = place.Field
	}
	return bad
}

// parseMessage parses a message.
func (r *messageReader) parseMessage(raw []byte) (clientRequest, error) {
	whole, err := parseCamelObject(raw, "")
	if err != nil {
		return clientRequest{}, err
	}
	names := slices.Sorted(maps.Keys(whole))
	switch {
	case len(names) != 1:
		return clientRequest{}, badMessage("", "Exactly one message type must be set.")
	case r.config == nil && names[0] != nameSetup:
		return clientRequest{}, badMessage("", "The first message must be a setup message, and nothing else.")
	case r.config != nil && names[0] == nameSetup:
		return clientRequest{}, badMessage("", "Setup message must be the first and only the first message.")
	}
	payload := whole[names[0]]
	switch names[0] {
	case nameSetup:
		return r.parseSetup(payload)
	case nameUpdate:
		return r.parseUpdate(payload)
	case nameContent:
		return r.parseTurns(signaling.NormalizeGoogleJSON(payload))
	case nameRealtime:
		if isEmptyObject(payload) || isEmptyList(payload, "mediaChunks") { // Google ignores empty input; clients send it as a keepalive
			return clientRequest{}, nil
		}
		return r.parseRealtimeInput(signaling.NormalizeGoogleJSON(payload))
	case nameTool:
		if isEmptyObject(payload) || isEmptyList(payload, "functionResponses") {
			return clientRequest{}, nil
		}
		return parseToolResponse(signaling.NormalizeGoogleJSON(payload))
	}
	return clientRequest{}, badMessage("", fmt.Sprintf("Unknown name %q: Cannot find field.", protocol.ClipText(names[0])))
}

// realtimeInput and functionResponses accept client messages in all forms of JSON that Google accepts. Package protocol
// accepts only one form. So a message is decoded into these types, and encoded again for package protocol.
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

// parseRealtimeInput parses realtimeInput. It first tries the strict parser of package protocol, which is fast and
// accepts audio in the form of Google's SDKs. Only if that fails, it parses as leniently as Google does.
func (r *messageReader) parseRealtimeInput(payload json.RawMessage) (clientRequest, error) {
	read := func() (clientRequest, error) {
		input, err := protocol.ClientMessage{Payload: payload}.ParseRealtimeInput(&r.sampleReader)
		return clientRequest{input: &input}, renameField(err, nameRealtime)
	}
	q, err := read()
	var lenient realtimeInput
	if err == nil || tools.ReadLenientJSON(payload, &lenient) != nil {
		return q, err
	}
	payload = tools.EncodeOrEmpty(lenient)
	return read()
}

// parseToolResponse parses toolResponse, as leniently as parseRealtimeInput.
func parseToolResponse(payload json.RawMessage) (clientRequest, error) {
	read := func() (clientRequest, error) {
		wrapped := tools.EncodeOrEmpty(object{nameTool: payload})
		answers, err := protocol.ClientMessage{Payload: wrapped}.ParseToolResponses()
		return clientRequest{answers: answers}, renameField(err, "")
	}
	q, err := read()
	var lenient functionResponses
	if err == nil || tools.ReadLenientJSON(payload, &lenient) != nil {
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
	payload = tools.EncodeOrEmpty(lenient)
	return read()
}

// renameField renames the field in an error of package protocol to its name in this API.
func renameField(err error, name string) error {
	e := (*bridge.Error)(nil)
	if !errors.As(err, &e) {
		return err
	}
	moved := *e
	moved.Field, moved.Message = strings.Replace(e.Field, "payload", name, 1), strings.Replace(e.Message, "payload", name, 1)
	moved.Field, moved.Message = strings.TrimPrefix(moved.Field, "."), strings.TrimPrefix(moved.Message, ".")
	return &moved
}

// parseSetup parses the setup message. It does not validate the config in it; package bridge does.
func (r *messageReader) parseSetup(raw json.RawMessage) (clientRequest, error) {
	config, err := parseCamelObject(raw, nameSetup)
	if err != nil {
		return clientRequest{}, err
	}
	config = r.constraints.applyTo(config)
	var opening setupOptions
	if value := config["sessionResumption"]; value != nil {
		var resumption struct {
			Handle      string `json:"handle"`
			Transparent bool   `json:"transparent"`
		}
		if err := tools.ReadLenientJSON(value, &resumption); err != nil {
			return clientRequest{}, badJSON(err, "setup.sessionResumption")
		}
		opening = setupOptions{true, resumption.Handle, resumption.Transparent}
	}
	if value := config["historyConfig"]; value != nil {
		var history struct{ InitialHistoryInClientContent bool }
		if err := tools.ReadLenientJSON(value, &history); err != nil {
			return clientRequest{}, badJSON(err, "setup.historyConfig")
		}
		r.expectsHistory = history.InitialHistoryInClientContent && opening.handle == ""
	}
	delete(config, "sessionResumption") // this endpoint handles sessionResumption and historyConfig itself
	delete(config, "historyConfig")
	r.config = config
	return clientRequest{setup: &opening}, nil
}

// extractAgent removes the agent name from the field "model" of the setup and returns it, or "". If agents are
// configured, each name that does not look like a Google model is the name of an agent.
func (r *messageReader) extractAgent(folder *agents.Folder) (name string) {
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

// parseUpdate parses changes of the system instruction and the tools.
func (r *messageReader) parseUpdate(raw json.RawMessage) (clientRequest, error) {
	update, err := parseCamelObject(raw, nameUpdate)
	if err != nil {
		return clientRequest{}, err
	}
	config := maps.Clone(r.config)
	for _, name := range []string{"systemInstruction", "tools"} {
		if update[name] != nil && r.constraints.isLocked(name) {
			return clientRequest{}, badMessage("contextUpdate."+name, "is fixed by the ephemeral token.")
		}
	}
	if instruction := update["systemInstruction"]; instruction != nil {
		config["systemInstruction"] = instruction
	}
	if value := update["tools"]; value != nil {
		wrapper, err := parseCamelObject(value, "contextUpdate.tools")
		if err != nil {
			return clientRequest{}, err
		}
		config["tools"] = wrapper["tools"]
		if wrapper["tools"] == nil {
			delete(config, "tools")
		}
	}
	r.config = config
	return clientRequest{commands: []bridge.Command{bridge.UpdateConfig{Config: tools.EncodeOrEmpty(config)}}}, nil
}

// parseTurns parses clientContent. If the client requests an answer and the last turn is the user's, the model answers
// that turn.
func (r *messageReader) parseTurns(raw json.RawMessage) (clientRequest, error) {
	var p struct {
		Turns []struct {
			Role  string
			Parts json.RawMessage
		}
		TurnComplete bool
	}
	if err := tools.ReadLenientJSON(raw, &p); err != nil {
		return clientRequest{}, badJSON(err, nameContent)
	}
	var q clientRequest
	var turns []bridge.PrefillTurn
	seeds := r.expectsHistory
	for i, t := range p.Turns {
		at := fmt.Sprintf("clientContent.turns[%d]", i)
		typedParts, droppedField := keepTypedParts(t.Parts)
		if droppedField != "" {
			q.dropWarning = cmp.Or(q.dropWarning, fmt.Sprintf("Dropped from %s, which may have only text and inlineData: %s.", at, droppedField))
			if typedParts == nil {
				continue
			}
		}
		if t.Role != "" && t.Role != "user" && t.Role != "model" {
			return clientRequest{}, badMessage(at+".role", "must be user or model.")
		}
		typed, dropped, err := protocol.ClientMessage{Payload: tools.EncodeOrEmpty(map[string]any{"parts": typedParts})}.ParseTurn()
		if err != nil {
			return clientRequest{}, renameField(err, at)
		}
		q.dropWarning = cmp.Or(q.dropWarning, strings.ReplaceAll(dropped, "payload", at))
		turns = append(turns, bridge.PrefillTurn{Model: t.Role == "model", Parts: typed.Parts})
		seeds = seeds || t.Role == "model"
	}
	wantsAnswer := p.TurnComplete && !r.expectsHistory
	last := bridge.Message{Parts: json.RawMessage("[]"), TurnComplete: true}
	if n := len(turns); wantsAnswer && n > 0 && !turns[n-1].Model {
		last.Parts, turns = turns[n-1].Parts, turns[:n-1]
	}
	r.expectsHistory = r.expectsHistory && !p.TurnComplete
	// The remaining turns become history if the setup announced history, or if one of them is a turn of the model.
	// Otherwise they are sent as messages that the model does not answer.
	if seeds && len(turns) > 0 {
		q.commands = append(q.commands, bridge.PrefillTurns{Turns: turns})
		turns = nil
	}
	for _, t := range turns {
		q.commands = append(q.commands, bridge.Message{Parts: t.Parts})
	}
	if wantsAnswer {
		q.commands = append(q.commands, last)
	}
	return q, nil
}

// keepTypedParts removes the parts of a turn that a user cannot type or show, such as function calls in a replayed
// history. droppedField names what was removed, or is empty.
func keepTypedParts(raw json.RawMessage) (typedParts json.RawMessage, droppedField string) {
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
		droppedField = cmp.Or(droppedField, slices.Sorted(maps.Keys(p))[0])
	}
	switch {
	case droppedField == "":
		return raw, ""
	case rest == nil:
		return nil, protocol.ClipText(droppedField)
	}
	return tools.EncodeOrEmpty(rest), protocol.ClipText(droppedField)
}

// isEmptyObject reports whether a value is null, or an object whose fields are all null.
func isEmptyObject(raw json.RawMessage) bool {
	fields, err := parseCamelObject(raw, "value")
	return err == nil && len(fields) == 0 || string(raw) == "null"
}

// isEmptyList reports whether an object has a single field, which has this name and is an empty list.
func isEmptyList(raw json.RawMessage, name string) bool {
	fields, err := parseCamelObject(raw, name)
	var list []json.RawMessage
	return err == nil && len(fields) == 1 && fields[name] != nil && json.Unmarshal(fields[name], &list) == nil && len(list) == 0
}

// parseCamelObject parses an object and converts its field names to camelCase (https://protobuf.dev/programming-guides/json).
// Null values are omitted.
func parseCamelObject(raw []byte, path string) (object, error) {
	var fields object
	if err := json.Unmarshal(tools.TrimBOM(raw), &fields); err != nil || fields == nil {
		if path == "" {
			return nil, badMessage("", "Invalid JSON payload received: it must be an object.")
		}
		return nil, badMessage(path, "must be an object.")
	}
	named := make(object, len(fields))
	for name, value := range fields {
		if string(value) != "null" {
			named[tools.ToCamelCase(name)] = value
		}
	}
	return named, nil
}
