package live

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

// translator makes Google's messages of what happens in a conversation, for one socket that carries it. It knows
// neither the socket nor the conversation. The zero value is for a client that begins one.
type translator struct {
	cut  bool // the client knows that the turn is interrupted
	open bool // it has something of an answer, and not the end of its turn
}

// object is a JSON object whose fields are kept as they came.
type object = map[string]json.RawMessage

// ready reports that the conversation is there, with a handle for it if there is one.
func ready(handle string, consumed int64) [][]byte {
	list := [][]byte{[]byte(`{"setupComplete":{}}`)}
	if handle != "" {
		list = append(list, resumable(handle, consumed))
	}
	return list
}

// resumable is the message with a handle for the conversation. Google has more of them to give, one after each turn; ours is good until it
// is used. consumed is the index of the client's newest message that is behind it, counted from the setup, which is 0
// (https://ai.google.dev/api/live#BidiGenerateContentSessionResumptionUpdate); below 0: the client does not want to know.
func resumable(handle string, consumed int64) []byte {
	update := map[string]any{"newHandle": handle, "resumable": true}
	if consumed >= 0 {
		update["lastConsumedClientMessageIndex"] = strconv.FormatInt(consumed, 10) // as proto3 JSON has 64 bits
	}
	return tools.Encode(map[string]any{"sessionResumptionUpdate": update})
}

// translate returns the messages for a client about an event.
func (t *translator) translate(body bridge.EventBody) [][]byte {
	switch b := body.(type) {
	case bridge.RawServerContent:
		return t.raw(b)
	case bridge.Speaking:
		t.open, t.cut = true, false
	case bridge.Interrupted:
		if b.By == bridge.ByConnectionLoss { // no more will come of it, and all that came is to be heard
			return t.complete()
		}
		if !t.cut {
			t.cut = true
			return [][]byte{content(object{"interrupted": yes})}
		}
	case bridge.TurnComplete:
		return t.complete()
	case bridge.ToolCall:
		calls := make([]map[string]any, len(b.Calls))
		for i, c := range b.Calls {
			calls[i] = map[string]any{"id": c.ID, "name": c.Name, "args": c.Args}
		}
		return [][]byte{tools.Encode(map[string]any{"toolCall": map[string]any{"functionCalls": calls}})}
	case bridge.ToolCallCancellation:
		return [][]byte{tools.Encode(map[string]any{"toolCallCancellation": map[string]any{"ids": b.IDs}})}
	}
	return nil
}

var yes = json.RawMessage("true")

// complete ends a turn whose end the model did not report, because the connection to it was lost.
func (t *translator) complete() [][]byte {
	if !t.open {
		return nil
	}
	t.open = false
	return [][]byte{content(object{"turnComplete": yes})}
}

// raw passes on what Google's server has sent, each field in its place.
func (t *translator) raw(b bridge.RawServerContent) [][]byte {
	if b.TopLevel {
		return [][]byte{b.ServerContent}
	}
	fields, whole := object{}, object{}
	if json.Unmarshal(b.ServerContent, &fields) != nil {
		return nil // it was an object
	}
	if usage := fields["usageMetadata"]; usage != nil { // the engine has put it there
		delete(fields, "usageMetadata")
		whole["usageMetadata"] = usage
	}
	if is(fields, "interrupted") {
		if t.cut {
			delete(fields, "interrupted")
		}
		t.cut = true
	}
	switch {
	case is(fields, "turnComplete"):
		t.open, t.cut = false, false
	case fields["modelTurn"] != nil || fields["outputTranscription"] != nil:
		t.open = true
	}
	if len(fields) > 0 {
		whole["serverContent"] = tools.Encode(fields)
	}
	if len(whole) == 0 {
		return nil
	}
	return [][]byte{tools.Encode(whole)}
}

func is(fields object, name string) bool { return bytes.Equal(fields[name], yes) }

func content(fields object) []byte {
	return tools.Encode(object{"serverContent": tools.Encode(fields)})
}

// What is around the voice in a message.
var (
	voiceHead = fmt.Appendf(
		nil,
		`{"serverContent":{"modelTurn":{"parts":[{"inlineData":{"mimeType":"audio/pcm;rate=%d","data":"`,
		bridge.VoiceRate,
	)
	voiceTail = []byte(`"}}]}}}`)
)

// encodeVoice is the message with a piece of the voice.
func encodeVoice(pcm []int16) []byte {
	raw := media.AppendBytes(nil, pcm)
	message := make([]byte, 0, len(voiceHead)+base64.StdEncoding.EncodedLen(len(raw))+len(voiceTail))
	message = base64.StdEncoding.AppendEncode(append(message, voiceHead...), raw)
	return append(message, voiceTail...)
}
