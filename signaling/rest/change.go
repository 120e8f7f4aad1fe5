package rest

import (
	"encoding/json"
	"strings"

	"voxgate/bridge"
	"voxgate/tools"
)

// withAgent is a request as the agent that a grant fixes has it: its prompt takes the place of the client's, and, where speech is asked
// for, its voice and language do.
func withAgent(request []byte, a bridge.Agent) ([]byte, error) {
	if a.Prompt == "" && a.Voice == "" && a.Language == "" {
		return request, nil
	}
	return changed(request, func(fields object) {
		if a.Prompt != "" {
			put(fields, "systemInstruction", object{"parts": []any{object{"text": a.Prompt}}})
		}
		if a.Voice == "" && a.Language == "" {
			return
		}
		config := inner(fields, "generationConfig")
		modalities, _ := config[find(config, "responseModalities")].([]any)
		speaks := find(config, "speechConfig") != ""
		for _, m := range modalities {
			kind, _ := m.(string)
			speaks = speaks || strings.EqualFold(kind, "audio")
		}
		if len(config) == 0 {
			remove(fields, "generationConfig")
		}
		if !speaks {
			return
		}
		speech := inner(config, "speechConfig")
		if a.Voice != "" {
			put(speech, "voiceConfig", object{"prebuiltVoiceConfig": object{"voiceName": a.Voice}})
			remove(speech, "multiSpeakerVoiceConfig")
		}
		if a.Language != "" {
			put(speech, "languageCode", a.Language)
		}
	})
}

// changed is a request with other fields. What is not touched goes on as it came, but for white space and repeated fields.
func changed(request []byte, change func(fields object)) ([]byte, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(request, &raw); err != nil || raw == nil {
		return nil, &bridge.Error{Code: bridge.CodeBadMessage, Message: "The request is no JSON object."}
	}
	fields := object{}
	for name, value := range raw {
		fields[name] = value
	}
	change(fields)
	return tools.Encode(fields), nil
}

// inner is the object in a field, which is made if there is none.
func inner(fields object, name string) object {
	into := object{}
	for there := find(fields, name); there != ""; there = find(fields, name) {
		var some object
		switch value := fields[there].(type) {
		case json.RawMessage:
			_ = decode(value, &some) // what is no object is dropped
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

// put sets a field, in place of all that a backend could take for it.
func put(fields object, name string, value any) {
	remove(fields, name)
	fields[name] = value
}

func remove(fields object, name string) {
	for there := find(fields, name); there != ""; there = find(fields, name) {
		delete(fields, there)
	}
}

// find finds a field under a name or another spelling of it: in snake_case, as Google takes it, or with other capitals, which some
// decoders do not mind.
func find(fields object, name string) string {
	for there := range fields {
		if strings.EqualFold(strings.ReplaceAll(there, "_", ""), name) {
			return there
		}
	}
	return ""
}
