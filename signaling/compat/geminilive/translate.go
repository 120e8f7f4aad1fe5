package geminilive

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"

	"voxgate/bridge"
	"voxgate/media"
	"voxgate/tools"
)

// translator converts the events of a conversation to Google's messages, for one socket. The zero value is ready for a
// new conversation.
type translator struct {
	interruptionSent bool // the newest interruption was already sent to the client
	turnOpen         bool // the client was sent a part of an answer, but not the end of the turn
}

// object is a JSON object with unparsed values.
type object = map[string]json.RawMessage

// setupMessages returns the messages that announce the conversation. If handle is not empty, they include a
// [resumptionMessage].
func setupMessages(handle string, consumedIndex int64) [][]byte {
	list := [][]byte{[]byte(`{"setupComplete":{}}`)}
	if handle != "" {
		list = append(list, resumptionMessage(handle, consumedIndex))
	}
	return list
}

// resumptionMessage returns a message with a resumption handle. The gateway's handle stays valid until it is used.
//
// consumedIndex is the index of the newest client message that the handle covers; the setup message has the index 0
// (https://ai.google.dev/api/live#BidiGenerateContentSessionResumptionUpdate). A negative index is omitted.
func resumptionMessage(handle string, consumedIndex int64) []byte {
	update := map[string]any{"newHandle": handle, "resumable": true}
	if consumedIndex >= 0 {
		update["lastConsumedClientMessageIndex"] = strconv.FormatInt(consumedIndex, 10) // 64-bit numbers are strings in proto3 JSON
	}
	return tools.EncodeOrEmpty(map[string]any{"sessionResumptionUpdate": update})
}

// translateEvent returns the client messages for an event.
func (t *translator) translateEvent(body bridge.EventBody) [][]byte {
	switch b := body.(type) {
	case bridge.RawServerContent:
		return t.translateRaw(b)
	case bridge.Speaking:
		t.turnOpen, t.interruptionSent = true, false
	case bridge.Interrupted:
		if b.By == bridge.ByConnectionLoss { // the answer will not continue, but the client should play all of it
			return t.endOpenTurn()
		}
		if !t.interruptionSent {
			t.interruptionSent = true
			return [][]byte{serverContentMessage(object{"interrupted": jsonTrue})}
		}
	case bridge.TurnComplete:
		return t.endOpenTurn()
	case bridge.ToolCall:
		calls := make([]map[string]any, len(b.Calls))
		for i, c := range b.Calls {
			calls[i] = map[string]any{"id": c.ID, "name": c.Name, "args": c.Args}
		}
		return [][]byte{tools.EncodeOrEmpty(map[string]any{"toolCall": map[string]any{"functionCalls": calls}})}
	case bridge.ToolCallCancellation:
		return [][]byte{tools.EncodeOrEmpty(map[string]any{"toolCallCancellation": map[string]any{"ids": b.IDs}})}
	}
	return nil
}

var jsonTrue = json.RawMessage("true")

// endOpenTurn ends a turn whose end is missing because the connection to the model was lost.
func (t *translator) endOpenTurn() [][]byte {
	if !t.turnOpen {
		return nil
	}
	t.turnOpen = false
	return [][]byte{serverContentMessage(object{"turnComplete": jsonTrue})}
}

// translateRaw returns the messages that forward serverContent of Google's server. usageMetadata moves from
// serverContent to the top level of the message.
func (t *translator) translateRaw(b bridge.RawServerContent) [][]byte {
	if b.TopLevel {
		return [][]byte{b.ServerContent}
	}
	fields, whole := object{}, object{}
	if json.Unmarshal(b.ServerContent, &fields) != nil {
		return nil // cannot happen: the engine has parsed it as an object
	}
	if usage := fields["usageMetadata"]; usage != nil { // added by the engine
		delete(fields, "usageMetadata")
		whole["usageMetadata"] = usage
	}
	if isTrue(fields, "interrupted") {
		if t.interruptionSent {
			delete(fields, "interrupted")
		}
		t.interruptionSent = true
	}
	switch {
	case isTrue(fields, "turnComplete"):
		t.turnOpen, t.interruptionSent = false, false
	case fields["modelTurn"] != nil || fields["outputTranscription"] != nil:
		t.turnOpen = true
	}
	if len(fields) > 0 {
		whole["serverContent"] = tools.EncodeOrEmpty(fields)
	}
	if len(whole) == 0 {
		return nil
	}
	return [][]byte{tools.EncodeOrEmpty(whole)}
}

func isTrue(fields object, name string) bool { return bytes.Equal(fields[name], jsonTrue) }

func serverContentMessage(fields object) []byte {
	return tools.EncodeOrEmpty(object{"serverContent": tools.EncodeOrEmpty(fields)})
}

// The parts of a message with audio, before and after the base64 text.
var (
	voiceHead = fmt.Appendf(
		nil,
		`{"serverContent":{"modelTurn":{"parts":[{"inlineData":{"mimeType":"audio/pcm;rate=%d","data":"`,
		bridge.VoiceRate,
	)
	voiceTail = []byte(`"}}]}}}`)
)

// encodeVoice returns a message with audio.
func encodeVoice(pcm []int16) []byte {
	raw := media.AppendBytes(nil, pcm)
	message := make([]byte, 0, len(voiceHead)+base64.StdEncoding.EncodedLen(len(raw))+len(voiceTail))
	message = base64.StdEncoding.AppendEncode(append(message, voiceHead...), raw)
	return append(message, voiceTail...)
}
