package geminirest

import (
	"encoding/json"
	"strings"

	"voxgate/bridge"
	"voxgate/tools"
)

// applyAgent changes a request to use the agent that the client's grant requires. The agent's prompt replaces the
// client's. If speech is requested, the agent's voice and language are set.
func applyAgent(request []byte, a bridge.Agent) ([]byte, error) {
	if a.Prompt == "" && a.Voice == "" && a.Language == "" {
		return request, nil
	}
	return editRequest(request, func(fields object) {
		if a.Prompt != "" {
			setField(fields, "systemInstruction", object{"parts": []any{object{"text": a.Prompt}}})
		}
		if a.Voice == "" && a.Language == "" {
			return
		}
		config := ensureSubobject(fields, "generationConfig")
		modalities, _ := config[findSpelling(config, "responseModalities")].([]any)
		speaks := findSpelling(config, "speechConfig") != ""
		for _, m := range modalities {
			kind, _ := m.(string)
			speaks = speaks || strings.EqualFold(kind, "audio")
		}
		if len(config) == 0 {
			removeField(fields, "generationConfig")
		}
		if !speaks {
			return
		}
		speech := ensureSubobject(config, "speechConfig")
		if a.Voice != "" {
			setField(speech, "voiceConfig", object{"prebuiltVoiceConfig": object{"voiceName": a.Voice}})
			removeField(speech, "multiSpeakerVoiceConfig")
		}
		if a.Language != "" {
			setField(speech, "languageCode", a.Language)
		}
	})
}

// editRequest parses a request, calls change to edit its fields, and encodes it again. Apart from these edits, only
// white space and duplicate fields may be lost.
func editRequest(request []byte, change func(fields object)) ([]byte, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(request, &raw); err != nil || raw == nil {
		return nil, &bridge.Error{Code: bridge.CodeBadMessage, Message: "The request is no JSON object."}
	}
	fields := object{}
	for name, value := range raw {
		fields[name] = value
	}
	change(fields)
	return tools.EncodeOrEmpty(fields), nil
}

// ensureSubobject returns the object in a field. If the field is missing, it adds an empty object. If the field also
// occurs in other spellings, their objects are merged into one.
func ensureSubobject(fields object, name string) object {
	into := object{}
	for there := findSpelling(fields, name); there != ""; there = findSpelling(fields, name) {
		var some object
		switch value := fields[there].(type) {
		case json.RawMessage:
			_ = decodeObject(value, &some) // a value of another type is dropped
		case object:
			some = value
		}
		for n, value := range some {
			into[n] = value
		}
		delete(fields, there)
	}
	fields[name] = into
	return into
}

// setField sets a field, and removes its other spellings (snake_case, upper case), which a backend could prefer.
func setField(fields object, name string, value any) {
	removeField(fields, name)
	fields[name] = value
}

func removeField(fields object, name string) {
	for there := findSpelling(fields, name); there != ""; there = findSpelling(fields, name) {
		delete(fields, there)
	}
}

// findSpelling returns the spelling of a field that an object contains. Google also accepts snake_case, and some decoders ignore case.
func findSpelling(fields object, name string) string {
	for there := range fields {
		if strings.EqualFold(strings.ReplaceAll(there, "_", ""), name) {
			return there
		}
	}
	return ""
}
