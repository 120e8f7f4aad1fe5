package liveconfig

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"maps"
	"strings"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/tools"
)

// Profile describes how a model behaves in an open session. Package bridge adapts to it.
type Profile struct {
	// Name identifies the profile in the table of models.
	Name string

	// ContextUpdate is set if system instruction and tools can be changed in an open session.
	ContextUpdate bool

	// Seeds is set if a new session can be given an earlier conversation.
	Seeds bool

	// Appends is set if the gateway can add turns in an open session without making the model answer.
	Appends bool

	// ForgetfulHandles is set if a handle that was received on a resumed connection may restore only the turns of that
	// connection.
	ForgetfulHandles bool

	// ForgetfulWithLongInstruction is set if resuming a session loses the conversation when
	// [Config.HasLongInstruction].
	ForgetfulWithLongInstruction bool

	// EndSilence is the length of silence after which the model detects the end of speech. The gateway sends this
	// silence when the user's audio stops. 0 means that the gateway sends audioStreamEnd instead.
	EndSilence time.Duration

	// AnswersAfterTurn is set if the server drops the response to a non-blocking call that it receives before the end
	// of the model's turn. The gateway must therefore wait for the end of the turn.
	AnswersAfterTurn bool

	// InterruptedAnswersContinue is set if the model continues an answer after an empty client turn has interrupted it.
	InterruptedAnswersContinue bool

	// NoSpeechMarker is set if the model writes "<no speech>" into the transcript of a user turn without speech.
	NoSpeechMarker bool

	// Proactive is set if the model may decide not to answer speech.
	Proactive bool

	// Slow is set if the model thinks for many seconds before it answers. The end of its answer is interactionStatus
	// IDLE, not turnComplete.
	Slow bool

	// IsTextModel is set for a model that is not a Live model. Package textmodel connects such a model.
	IsTextModel bool
}

// longInstruction is the minimum size of a long system instruction, in bytes. It stands for 200 tokens of four bytes
// (cookbook #1197).
const longInstruction = 800

// HasLongInstruction reports whether the system instruction is longer than longInstruction: see
// [Profile].ForgetfulWithLongInstruction.
func (c Config) HasLongInstruction() bool {
	return c.setup["systemInstruction"] != nil && len(tools.EncodeOrEmpty(c.setup["systemInstruction"])) > longInstruction
}

// HasVoice reports whether the model answers with audio.
func (c Config) HasVoice() bool {
	modalities, _ := fieldByPath(c.setup, "generationConfig.responseModalities").([]any)
	return !c.Profile.IsTextModel && len(modalities) > 0 && modalities[0] == "AUDIO"
}

// EndSilence returns the length of silence that the gateway must send when the user's audio stops. It is at least a
// second longer than the client's silenceDurationMs. 0 means that audioStreamEnd is enough.
func (c Config) EndSilence() time.Duration {
	if c.Options.Manual || c.Profile.EndSilence == 0 {
		return 0
	}
	return max(c.Profile.EndSilence, c.Options.EndPause+time.Second)
}

// Findings holds what tests against a server have found out. Each field replaces an assumption about a model in the
// table, unless it is nil.
type Findings struct {
	ForgetfulHandles             *bool // see [Profile]
	ForgetfulWithLongInstruction *bool // see [Profile]
	SilenceRequired              *bool // only silence, not audioStreamEnd, ends a turn: see Profile.EndSilence
}

// LogValue implements slog.LogValuer. It includes only fields that were measured.
func (f Findings) LogValue() slog.Value {
	var attrs []slog.Attr
	for _, finding := range []struct {
		name  string
		value *bool
	}{
		{"forgetful_handles", f.ForgetfulHandles},
		{"forgetful_with_long_instruction", f.ForgetfulWithLongInstruction},
		{"silence_required", f.SilenceRequired},
	} {
		if finding.value != nil {
			attrs = append(attrs, slog.Bool(finding.name, *finding.value))
		}
	}
	return slog.GroupValue(attrs...)
}

// apply replaces the assumptions in a profile by the findings.
func (f Findings) apply(p *Profile) {
	if f.ForgetfulHandles != nil {
		p.ForgetfulHandles = *f.ForgetfulHandles
	}
	if f.ForgetfulWithLongInstruction != nil {
		p.ForgetfulWithLongInstruction = *f.ForgetfulWithLongInstruction
	}
	switch {
	case f.SilenceRequired == nil:
	case *f.SilenceRequired:
		p.EndSilence = endSilence
	default:
		p.EndSilence = 0
	}
}

// TypedTurnMessages returns the messages for a typed turn in an open session. parts is a JSON array of Part.
//
// Some models accept no clientContent in an open session. For such a model, images become video frames, texts become
// realtime text after the images, and other parts are dropped. The model may then answer even if isTurnComplete is
// false.
func (c Config) TypedTurnMessages(parts json.RawMessage, isTurnComplete bool) []wire.ClientMessage {
	if c.Profile.Appends || !c.Profile.Seeds {
		content := &wire.ClientContent{TurnComplete: isTurnComplete}
		if trimmed := bytes.TrimSpace(parts); len(trimmed) > 0 && !bytes.Equal(trimmed, []byte("null")) && !isEmptyArray(trimmed) {
			content.Turns = []wire.Content{{Role: "user", Parts: parts}}
		} else if !isTurnComplete {
			return nil
		}
		return []wire.ClientMessage{{ClientContent: content}}
	}
	var list []map[string]any
	if json.Unmarshal(parts, &list) != nil {
		return nil
	}
	var messages []wire.ClientMessage
	var text []string
	for _, part := range list {
		part = camelKeys(part)
		if said, ok := part["text"].(string); ok && said != "" {
			text = append(text, said)
		}
		if data, ok := part["inlineData"].(map[string]any); ok {
			if frame := imageBlob(camelKeys(data)); frame != nil {
				messages = append(messages, wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{Video: frame}})
			}
		}
	}
	if len(text) > 0 {
		messages = append(messages, wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{Text: strings.Join(text, "\n")}})
	}
	return messages
}

func isEmptyArray(trimmed []byte) bool {
	return trimmed[0] == '[' && len(bytes.TrimSpace(trimmed[1:])) == 1
}

// imageBlob returns the image in an inlineData object, or nil.
func imageBlob(data map[string]any) *wire.Blob {
	mime, _ := data["mimeType"].(string)
	encoded, _ := data["data"].(string)
	image, err := wire.AppendDecodedBase64(nil, []byte(encoded))
	if err != nil || len(image) == 0 || !strings.HasPrefix(strings.ToLower(mime), "image/") {
		return nil
	}
	return &wire.Blob{MIMEType: mime, Data: image}
}

// InPlaceUpdate returns the message that changes an open session from c to next, or nil if no message is needed.
// isPossible is false if the change needs a new connection. The caller must use next from then on even if no message is
// needed, because next may have other options of the gateway.
func (c Config) InPlaceUpdate(next Config) (update *wire.ContextUpdate, isPossible bool) {
	if c.Options.Resumption != next.Options.Resumption {
		return nil, false
	}
	was, will := maps.Clone(c.setup), maps.Clone(next.setup)
	instruction, update := fieldDiffers(was, will, "systemInstruction"), &wire.ContextUpdate{}
	functions := fieldDiffers(was, will, "tools")
	delete(was, "systemInstruction")
	delete(will, "systemInstruction")
	delete(was, "tools")
	delete(will, "tools")
	switch {
	case !bytes.Equal(tools.EncodeOrEmpty(was), tools.EncodeOrEmpty(will)):
		return nil, false
	case !instruction && !functions:
		return nil, true
	case !c.Profile.ContextUpdate:
		return nil, false
	}
	if instruction {
		// A contextUpdate changes only the fields that it contains, so it cannot remove an instruction
		// (https://ai.google.dev/api/live, LiveClientContextUpdate).
		if next.setup["systemInstruction"] == nil {
			return nil, false
		}
		update.SystemInstruction = tools.EncodeOrEmpty(next.setup["systemInstruction"])
	}
	if functions {
		update.Tools = json.RawMessage(`{}`)
		if next.setup["tools"] != nil {
			update.Tools = tools.EncodeOrEmpty(map[string]any{"tools": next.setup["tools"]})
		}
	}
	return update, true
}

func fieldDiffers(a, b map[string]any, name string) bool {
	return !bytes.Equal(tools.EncodeOrEmpty(a[name]), tools.EncodeOrEmpty(b[name]))
}
